"""The files of GraphZero 0.2 as tables: a graph (``.gl``), and features of its nodes (``.gd``).

A ``.gl`` file has out-neighbours: pointers and ids of 64 bits and, if there are any, weights of 32.
A ``.gd`` file has a row for every node. All numbers are little-endian. A store's own files end so
too, and begin otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, FileRows, Rows
from pyg_graphzero.util.reading import reading

GRAPH, FEATURES = ".gl", ".gd"
#: The name of weights in a store.
WEIGHTS = "edge_weight"
# Magic; bytes and offsets of pointers and ids; nodes, edges, whether there are weights.
_GRAPH = struct.Struct("<8s7Q")
# Magic, a number that is 0, what is stored, nodes, values of each.
_FEATURES = struct.Struct("<8sIIQQ")
_GRAPH_MAGIC, _FEATURES_MAGIC = b"graphlit", b"GZDATA26"
_DTYPES = (torch.int32, torch.int64, torch.float32, torch.float64)
_ALIGNMENT = 64


def open_graph(path: Path) -> dict[str, Callable[[], Rows | np.ndarray]]:
    """The arrays of a ``.gl`` file, as those of an archive: each is opened by calling it.

    Raises:
        InputError: It is none, or a length in it contradicts another.
    """
    fields = _header(path, _GRAPH, _GRAPH_MAGIC, "a graph of GraphZero 0.2")
    indptr_bytes, indices_bytes, indptr_at, indices_at, num_nodes, num_edges, weighted = fields
    _check(path, "size of the pointers", indptr_bytes, 8 * (num_nodes + 1))
    _check(path, "size of the ids", indices_bytes, 8 * num_edges)
    if weighted not in (0, 1):
        raise InputError(path, "whether there are weights", weighted, "0 or 1")
    if indptr_at < _GRAPH.size or indices_at < indptr_at + indptr_bytes:
        found = f"pointers at {indptr_at}, ids at {indices_at}"
        expected = f"pointers behind the header of {_GRAPH.size} bytes, and ids behind these"
        raise InputError(path, "offsets", found, expected)
    end = indices_at + indices_bytes
    weights_at = -(-end // _ALIGNMENT) * _ALIGNMENT
    _check(path, "file", path.stat().st_size, weights_at + 4 * num_edges if weighted else end)
    members: dict[str, Callable[[], Rows | np.ndarray]] = {
        "format": lambda: np.array("csr"),
        "indptr": lambda: FileRows(path, indptr_at, (num_nodes + 1,), torch.int64),
        "indices": lambda: FileRows(path, indices_at, (num_edges,), torch.int64),
        "shape": lambda: ArrayRows(torch.tensor([num_nodes, num_nodes])),
    }
    if weighted:
        members["weights"] = lambda: FileRows(path, weights_at, (num_edges,), torch.float32)
    return members


def open_features(path: Path) -> FileRows:
    """The rows of a ``.gd`` file.

    Raises:
        InputError: It is none, or shorter or longer than it says.
    """
    fields = _header(path, _FEATURES, _FEATURES_MAGIC, "features of GraphZero 0.2")
    _, code, num_nodes, width = fields
    if code >= len(_DTYPES):
        names = ", ".join(f"{i} ({dtype})" for i, dtype in enumerate(_DTYPES))
        raise InputError(path, "dtype", code, names)
    size = _FEATURES.size + num_nodes * width * _DTYPES[code].itemsize
    _check(path, "file", path.stat().st_size, size)
    return FileRows(path, _FEATURES.size, (num_nodes, width), _DTYPES[code])


def weights_of(path: Path) -> dict[str, str] | None:
    """Edge attributes of a ``.gl`` file, as ``convert`` is given them; None if it has none."""
    return {WEIGHTS: f"{path}:weights"} if "weights" in open_graph(path) else None


def _header(path: Path, layout: struct.Struct, magic: bytes, what: str) -> tuple[int, ...]:
    with reading(path, "header", what), open(path, "rb") as file:
        raw = file.read(layout.size)
    if not raw.startswith(magic):
        hint = ""
        if (path.parent.parent / "store.json").exists():
            hint = f"It is part of a store: gz.open({str(path.parent.parent)!r})."
        expected = f"{magic!r}, which begins {what}"
        raise InputError(path, "header", repr(raw[: len(magic)]), expected, hint)
    _check(path, "header", len(raw), layout.size)
    found: tuple[int, ...] = layout.unpack(raw)[1:]
    return found


def _check(path: Path, where: str, found: int, expected: int) -> None:
    if found != expected:
        raise InputError(path, where, f"{found} bytes", f"{expected}, by its counts")
