"""The edges that a store's files have, read with NumPy by the format page: damaged or not."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np

EdgeType = tuple[str, str, str]


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
            except (struct.error, ValueError, IndexError, OSError, StopIteration):
                self._known[name] = None
        known = self._known[name]
        return known is None or bool(np.isin(_pairs(np.asarray(src), np.asarray(dst)), known).all())

    def _read(self, name: EdgeType | None) -> np.ndarray:
        wanted = None if name is None else list(name)
        record = next(t for t in self.body["edge_types"] if t["name"] == wanted)
        raw = (self.store / record["topology"]).read_bytes()
        num_src, num_dst, num_edges = struct.unpack_from("<QQQ", raw, 64)
        (index_bytes,) = struct.unpack_from("<I", raw, 88)
        indptr_at, _, indices_at, _ = struct.unpack_from("<QQQQ", raw, 96)
        indptr = np.frombuffer(raw, "<i8", num_dst + 1, indptr_at)
        dtype = "<u4" if index_bytes == 4 else "<i8"
        indices = np.frombuffer(raw, dtype, num_edges, indices_at).astype(np.int64)
        # Bounds outside the arrays give no edges.
        parts = [
            np.arange(begin, end) if 0 <= begin <= end <= num_edges else np.arange(0)
            for begin, end in zip(indptr.tolist(), indptr[1:].tolist(), strict=False)
        ]
        slots = np.concatenate([np.arange(0), *parts])
        dst = np.repeat(np.arange(num_dst), [len(part) for part in parts])
        src = indices[slots]
        keep = (src >= 0) & (src < num_src)
        return _pairs(src[keep], dst[keep])


def _pairs(src: np.ndarray, dst: np.ndarray) -> np.ndarray:
    return (src.astype(np.int64) << 10) + dst.astype(np.int64)
