"""Callers' arguments, checked and as tensors."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import torch
from torch import Tensor


def as_tensor(value: Any, what: str) -> Tensor:
    """A CPU tensor over ``value``'s memory where possible.

    Args:
        value: ``torch.Tensor`` or ``np.ndarray``.
        what: How to call it in an error.

    Raises:
        TypeError: ``value`` is neither, or of a dtype torch does not know.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise TypeError(f"{what}: found a {value.layout} tensor, expected a dense one")
        return value.detach().cpu().resolve_conj().resolve_neg()
    if not isinstance(value, np.ndarray):
        raise TypeError(f"{what}: found {type(value).__name__}, expected a tensor or an array")
    native = value.astype(value.dtype.newbyteorder("="), copy=False)
    if min(native.strides, default=0) < 0:  # which no tensor has
        native = native.copy()
    with warnings.catch_warnings():
        # Read-only arrays (memory-mapped .npy) are only read here.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        try:
            return torch.from_numpy(native)
        except TypeError:
            raise TypeError(
                f"{what}: found dtype {value.dtype}, expected a number or bool type"
            ) from None


def check_path(value: Any, name: str) -> Any:
    """Returns the argument ``name``, a path: ``str``, or what has ``__fspath__``, as a store has.

    Raises:
        TypeError: It is none, such as a store's data.
    """
    if not isinstance(value, str) and not hasattr(value, "__fspath__"):
        expected = "a path, or a store as gz.open() returns it"
        raise TypeError(f"{name}: found {type(value).__name__}, expected {expected}")
    return value


def of_type(name: Any) -> str:
    """`` of NAME`` in messages; nothing where the graph has one type, whose name is None."""
    return "" if name is None else f" of {name!r}"


def check_count(name: str, value: Any) -> None:
    """Raises ValueError if the argument ``name`` is no integer of 1 or more."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ValueError(f"{name}: found {value!r}, expected 1 or more")


def as_row_index(index: Any, num_rows: int) -> Tensor:
    """A row index of any kind PyG allows, as ``int64 [n]``.

    Args:
        index: Integer tensor or array, or a boolean mask ``[num_rows]``.
        num_rows: Number of rows.

    Raises:
        TypeError: Not an index.
        IndexError: A mask of another length.
    """
    rows = torch.as_tensor(index, device="cpu")
    if rows.dtype == torch.bool:
        if rows.shape != (num_rows,):
            raise IndexError(f"mask: found shape {list(rows.shape)}, expected [{num_rows}]")
        return rows.nonzero().view(-1)
    if rows.dtype.is_floating_point or rows.dtype.is_complex:
        raise TypeError(f"index: found {rows.dtype}, expected integers or a boolean mask")
    return rows.to(torch.int64).reshape(-1)


def check_index_set(index: Tensor, num_nodes: int, name: str) -> Tensor:
    """``index`` as ``int64``, one-dimensional, every id a node.

    Raises:
        IndexError: One is not ``0 <= node < num_nodes``.
        ValueError: The shape or dtype is not that of an index.
    """
    if index.dim() != 1 or index.dtype.is_floating_point or index.dtype.is_complex:
        raise ValueError(
            f"{name}: found {index.dtype} of shape {list(index.shape)}, expected integers [any]"
        )
    index = index.to(torch.int64)
    bad = (index < 0) | (index >= num_nodes)
    if bad.any():
        at = int(bad.nonzero()[0, 0])
        raise IndexError(
            f"{name}[{at}]: found node {int(index[at])}, expected 0 <= node < {num_nodes}"
        )
    return index
