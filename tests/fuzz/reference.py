"""The edges that a store's files have, read by the format page's reader: damaged or not."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from store_files import page_reader

EdgeType = tuple[str, str, str]
_reader = page_reader()


class Edges:
    """Which edges there are, by edge type; None where the files are not even of their sizes.

    Args:
        store: A store, which could be opened.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        self.body = json.loads((store / "store.json").read_bytes())
        self._known: dict[EdgeType | None, np.ndarray | None] = {}

    def has_all(self, name: EdgeType | None, src: Any, dst: Any) -> bool:
        """Whether all edges ``src[i]`` → ``dst[i]`` are edges of the type."""
        if name not in self._known:
            try:
                self._known[name] = self._read(name)
            except (struct.error, ValueError, TypeError, AssertionError, OSError, StopIteration):
                self._known[name] = None
        known = self._known[name]
        return known is None or bool(np.isin(_pairs(np.asarray(src), np.asarray(dst)), known).all())

    def _read(self, name: EdgeType | None) -> np.ndarray:
        wanted = None if name is None else list(name)
        record = next(t for t in self.body["edge_types"] if t["name"] == wanted)
        indptr, indices = _reader["read_topology"](self.store / record["topology"])
        # Bounds outside the arrays give no edges.
        parts = [
            np.arange(begin, end) if 0 <= begin <= end <= len(indices) else np.arange(0)
            for begin, end in pairwise(indptr.tolist())
        ]
        dst = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
        return _pairs(indices[np.concatenate([np.arange(0), *parts])], dst)


def _pairs(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    return (src.astype(np.int64) << 10) + dst.astype(np.int64)
