"""Helpers of conversion tests: writing inputs, and reading a store back in the user's ids."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyg_graphzero as gz


def write(path: Path, text: str | bytes) -> Path:
    """Write ``text`` to ``path``, compressed if the name says so."""
    raw = text.encode() if isinstance(text, str) else text
    path.write_bytes(gzip.compress(raw) if path.suffix == ".gz" else raw)
    return path


def stored(source: Any, out: Path, **options: Any) -> gz.Store:
    """The store that a conversion writes."""
    gz.convert(source, out, **options)
    return gz.open(out)


def converted(source: Any, out: Path, **options: Any) -> Any:
    """Its graph, as PyG sees it."""
    return stored(source, out, **options).data()


def refused(
    source: Any,
    out: Path,
    match: str | None = None,
    error: type[Exception] = gz.InputError,
    **options: Any,
) -> str:
    """The message, which matches, of a conversion that fails and leaves nothing behind."""
    before = {*out.parent.rglob("*")}
    with pytest.raises(error, match=match) as caught:
        gz.convert(source, out, **options)
    assert {*out.parent.rglob("*")} == before
    return str(caught.value)


def edges_of(
    path: Path, edge_type: tuple[str, str, str] | None = None, *attrs: str
) -> list[tuple[Any, ...]]:
    """``(src id, dst id, *attributes)`` of every edge, in original order, in the user's ids."""
    with gz.open(path) as store:
        data = store.data()
        part = data if edge_type is None else data[edge_type]
        ends = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
        ids = [np.asarray(store.ids(end)).tolist() for end in ends]
        rows = part.edge_index.tolist()
        columns = [part[attr].tolist() for attr in attrs]
        return [
            (ids[0][src], ids[1][dst], *rest)
            for src, dst, *rest in zip(rows[0], rows[1], *columns, strict=True)
        ]


def edges_from(source: Any, out: Path, *attrs: str, **options: Any) -> list[tuple[Any, ...]]:
    """The edges of the store that a conversion writes, as ``edges_of`` has them."""
    gz.convert(source, out, **options)
    return edges_of(out, None, *attrs)


def kinds(owner: dict[str, Any]) -> dict[str, str]:
    """Dtype and row shape of each attribute of a type, which ``gz.info`` describes."""
    return {
        name: f"{column['dtype']}{column['shape'][1:] or ''}"
        for name, column in owner["attrs"].items()
    }


def random_edges(num_nodes: int, num_edges: int, seed: int = 0) -> np.ndarray:
    """``int64 [2, num_edges]``, parallel edges and loops among them."""
    return np.random.default_rng(seed).integers(0, num_nodes, (2, num_edges))
