"""Edges made by a program, chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from convert_support import edges_of, random_edges

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.conversion import plan
from pyg_graphzero.store.csc import EdgeChunk

EDGES = random_edges(20, 100)
WEIGHT = np.arange(100, dtype=np.float32)
TRIPLES = [(*pair, float(w)) for pair, w in zip(EDGES.T.tolist(), WEIGHT, strict=True)]
BOUNDS = [(0, 30), (30, 30), (30, 31), (31, 100)]

FORMS: dict[str, Callable[[np.ndarray, np.ndarray], Any]] = {
    "pair": lambda edges, _: (edges[0], torch.from_numpy(edges[1])),
    "array": lambda edges, _: edges.astype(np.int32),
    "tensor": lambda edges, _: torch.from_numpy(edges),
    "dict": lambda edges, w: {"src": edges[0], "dst": edges[1], "w": w},
    "edge_index": lambda edges, w: {"edge_index": torch.from_numpy(edges), "w": torch.tensor(w)},
    "EdgeChunk": lambda edges, w: EdgeChunk(edges[0], edges[1], {"w": w}),
}


def chunks(form: str) -> Iterator[Any]:
    for begin, end in BOUNDS:
        yield FORMS[form](EDGES[:, begin:end], WEIGHT[begin:end])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("how", ["function", "iterator"])
@pytest.mark.parametrize("step", [7, 1000])
def test_chunks(
    tmp_path: Path, form: str, how: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "CHUNK_BYTES", 20 * step)
    source = (lambda: chunks(form)) if how == "function" else chunks(form)
    summary = gz.convert(source, tmp_path / "s")
    has_weight = form in ("dict", "edge_index", "EdgeChunk")
    want = TRIPLES if has_weight else [triple[:2] for triple in TRIPLES]
    assert edges_of(tmp_path / "s", None, *["w"] * has_weight) == want
    assert summary.num_edges == 100
    assert summary.what == "chunks of edges"
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_options_and_types(tmp_path: Path) -> None:
    gz.convert(lambda: chunks("dict"), tmp_path / "a", skip=["w"], num_nodes=30, ids="dense")
    assert "w" not in gz.open(tmp_path / "a").data()
    spec = {"edges": [{"type": "a,to,b", "file": lambda: chunks("dict"), "undirected": True}]}
    summary = gz.convert(spec, tmp_path / "b", dtypes={"w": "int64"})
    assert edges_of(tmp_path / "b", ("a", "to", "b"), "w") == TRIPLES
    assert ("b", "rev_to", "a") in summary.edges


def test_ids_are_mapped_too(tmp_path: Path) -> None:
    gz.convert(
        lambda: ((EDGES * 10)[:, begin:end] for begin, end in BOUNDS), tmp_path / "s", ids="map"
    )
    assert edges_of(tmp_path / "s") == [(10 * src, 10 * dst) for src, dst, _ in TRIPLES]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "chunks: found none, expected at least one"),
        ([3], "chunk 0: found int, expected (src, dst), an array [2, n], or a dict of columns"),
        ([{"a": 1}], "chunk 0: found a, expected src and dst, or edge_index"),
        (
            [EDGES, EDGES.astype(float)],
            "chunk 1: found ['src: double', 'dst: double'], expected ['src: int64', 'dst: int64']",
        ),
        ([{"src": [1], "dst": [2]}, {"src": [1], "dst": [2], "w": [1]}], "chunk 1: found ['src: "),
        ([EDGES.astype(float)], "edge 0, column 'src': found float64, expected integers or str"),
        ([(EDGES[0], EDGES[1, :7])], "chunk 0: found Arrays were not all the same length"),
        ([{"src": [1], "dst": [2], "w": [3, None]}], "chunk 0: found Arrays were not all the same"),
        ([{"src": [1, 2], "dst": [2, 3], "w": [3, None]}], "edge 1, column 'w': found null, exp"),
        ([{"src": [1], "dst": [2], "w": [{}]}], "column 'w': found struct<>, expected numbers"),
        ([EDGES, EDGES - 20], "edge 100, column 'src': found id "),
    ],
)
@pytest.mark.parametrize("how", ["function", "iterator"])
def test_bad_chunks(tmp_path: Path, values: list[Any], message: str, how: str) -> None:
    with pytest.raises(InputError) as caught:
        gz.convert((lambda: iter(values)) if how == "function" else iter(values), tmp_path / "s")
    assert str(caught.value).startswith(f"<chunks>: {message}")
    assert list(tmp_path.iterdir()) == []


def test_text_and_rows(tmp_path: Path) -> None:
    """Chunks have what tables have: text ids, text as categories, rows of numbers."""

    def source() -> Iterator[Any]:
        for kind, row in (("knows", [1.0, 2.0]), ("likes", [3.0, 4.0])):
            yield {"src": ["ann"], "dst": ["bob"], "kind": [kind], "w": np.array([row])}

    gz.convert(source, tmp_path / "s", dtypes={"w": "float64"})
    store = gz.open(tmp_path / "s")
    assert list(store.ids()) == ["ann", "bob"]
    assert list(store.categories("kind")) == ["knows", "likes"]
    assert store.data().w.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_an_error_of_the_program_comes_through(tmp_path: Path) -> None:
    def source() -> Iterator[Any]:
        yield EDGES
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        gz.convert(source(), tmp_path / "s")
    assert list(tmp_path.iterdir()) == []
