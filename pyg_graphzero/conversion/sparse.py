"""Sparse matrices, of SciPy, torch and torch_sparse, as edges."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import to_edge_index

from pyg_graphzero.errors import InputError
from pyg_graphzero.util.arguments import as_tensor

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)


def is_sparse(value: Any) -> bool:
    """Whether this is a sparse matrix, of whatever library."""
    if isinstance(value, Tensor):
        return value.layout in _LAYOUTS
    return isinstance(value, SparseTensor) or _is_scipy(value)


def _is_scipy(value: Any) -> bool:
    return hasattr(value, "tocoo") and hasattr(value, "nnz") and hasattr(value, "shape")


def coo(matrix: Any, where: str, name: str) -> tuple[Any, Any, Tensor | None]:
    """Rows, columns and values; entries that are there twice stay two.

    Args:
        matrix: A matrix that :func:`is_sparse` recognises.
        where: The input, for messages.
        name: The matrix, for messages.

    Raises:
        InputError: It is none, or its pointers are no such.
    """
    if isinstance(matrix, SparseTensor):
        rows, columns, values = matrix.coo()
        return rows, columns, values
    if isinstance(matrix, Tensor) and matrix.layout in _LAYOUTS:
        if matrix.layout != torch.sparse_coo:
            by_row = matrix.layout == torch.sparse_csr
            pointers = matrix.crow_indices() if by_row else matrix.ccol_indices()
            # torch looks at these only where it is told to.
            bad = int(pointers[0]) != 0 or bool((pointers.diff() < 0).any())
            if bad or int(pointers[-1]) != len(matrix.values()):
                found = f"pointers {pointers[:3].tolist()} … {pointers[-1:].tolist()}"
                raise InputError(where, name, found, f"0 ascending to {len(matrix.values())}")
        # Entries that are there twice are parallel edges, which coalesce() would add up. PyG takes
        # them as they are; it marks its argument as coalesced, which is not to be the caller's.
        indices, values = to_edge_index(matrix.detach())
        return indices[0], indices[1], values
    if _is_scipy(matrix):
        found = matrix.tocoo()
        rows, columns, values = (as_tensor(a, name) for a in (found.row, found.col, found.data))
        return rows, columns, values
    raise InputError(where, name, type(matrix).__name__, "a SparseTensor or a sparse torch tensor")


def shape_of(matrix: Any) -> tuple[int, int]:
    """Rows and columns of what :func:`is_sparse` recognises."""
    shape = matrix.sizes() if isinstance(matrix, SparseTensor) else matrix.shape
    return int(shape[0]), int(shape[1])
