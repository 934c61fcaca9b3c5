"""Conversion of Python objects: tables, sparse matrices, and graphs of other libraries."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import chunks
import networkx as nx
import numpy as np
import pandas
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse as sp
import torch
from convert_support import converted, edges_from, edges_of, refused, stored
from torch_geometric.utils import from_networkx

import pyg_graphzero as gz
from pyg_graphzero import InputError

pytestmark = chunks.both

ROWS = [("a", "x", 1.0), ("b", "y", 2.0), ("a", "y", 3.0)]
RATES = ("user", "rates", "item")


def frames() -> list[Any]:
    """One table in the types of every library that is installed."""
    columns = {
        name: list(values) for name, values in zip("uir", zip(*ROWS, strict=True), strict=True)
    }
    table = pa.table(columns)
    found = [table, table.to_batches()[0], pa.concat_tables([table[:2], table[2:]])]
    found.append(table.set_column(0, "u", table["u"].dictionary_encode()))
    return [*found, pandas.DataFrame(columns), polars.DataFrame(columns)]


@pytest.mark.parametrize("frame", frames(), ids=lambda frame: type(frame).__module__)
def test_tables(tmp_path, frame):
    summary = gz.convert(frame, tmp_path / "s", edge_type=RATES, edge_attrs={"w": "r"})
    assert edges_of(tmp_path / "s", RATES, "w") == ROWS
    assert summary.what == f"table ({type(frame).__name__})"
    with pytest.raises(InputError, match=r"<\w+>: columns: found u, i, r, expected a column 'q'"):
        gz.convert(frame, tmp_path / "t", edge_attrs=["q"])


def test_tables_of_nodes(tmp_path):
    edges = pa.table({"src": [1, 2], "dst": [2, 3]})
    ages, scores = [30, None, 20], [float("nan"), None, 1.5]
    nodes = pa.table({"id": [3, 1, 2], "age": ages, "score": scores})
    words = r"<Table>: row 1, column 'age': found null, expected a va"
    refused(edges, tmp_path / "s", words, nodes=nodes, node_attrs=["age"])
    options = {"node_attrs": ["age", "score"], "fill": {"age": -1, "score": -1}}
    path = tmp_path / "n.parquet"
    pq.write_table(nodes, path, row_group_size=2)
    for number, source in enumerate((nodes, path)):
        store = stored(edges, tmp_path / f"s{number}", nodes=source, **options)
        assert store.ids().tolist() == [3, 1, 2]
        assert store.data().age.tolist() == [30, -1, 20]
        assert store.data().score.tolist() == [-1, -1, 1.5]
    labels = pa.table({"y": [7, 8, 9], "id": [2, 3, 1]})
    assert converted(edges, tmp_path / "t", node_attrs={"y": labels}).y.tolist() == [9, 7, 8]
    spec = {"edges": [{"type": "a,to,a", "file": edges}], "nodes": {"a": {"file": nodes}}}
    assert stored(spec, tmp_path / "u").ids("a").tolist() == [3, 1, 2]


def test_an_index_of_pandas_joins(tmp_path):
    edges = pandas.DataFrame({"src": ["a", "b"], "dst": ["b", "c"]})
    labels = pandas.DataFrame({"id": ["c", "a", "b"], "y": [2, 0, 1]}).set_index("id")["y"]
    assert converted(edges, tmp_path / "s", node_attrs={"y": labels}).y.tolist() == [0, 1, 2]
    gz.convert((edges.src, edges.dst), tmp_path / "t", node_attrs={"y": labels})
    assert edges_of(tmp_path / "t") == [("a", "b"), ("b", "c")]
    for name in ("zone", None):  # whatever it is called
        for each in (labels.rename_axis(name), labels.rename_axis(name).to_frame()):
            gz.convert(edges, tmp_path / "u", node_attrs={"y": each}, force=True)
            assert gz.open(tmp_path / "u").data().y.tolist() == [0, 1, 2]
    few = pandas.DataFrame({"id": ["b", "a", "b", "c"], "y": [1, 0, 9, 2]})
    few = few[few.y < 9]  # its index is row numbers with a gap, beside a column of ids
    gz.convert(edges, tmp_path / "v", node_attrs={"y": few}, edge_attrs={"w": few[["y"]][:2]})
    assert gz.open(tmp_path / "v").data().y.tolist() == [0, 1, 2]
    assert gz.open(tmp_path / "v").data().w.tolist() == [1, 0]


def matrices() -> list[Any]:
    dense = np.array([[0, 2, 0], [0, 0, 3], [4, 0, 5]], np.float32)
    found: list[Any] = [
        getattr(sp, f"{kind}_matrix")(dense) for kind in ("csr", "csc", "coo", "lil")
    ]
    found.append(sp.csr_array(dense))
    tensor = torch.from_numpy(dense)
    return [*found, tensor.to_sparse(), tensor.to_sparse_csr(), tensor.to_sparse_csc()]


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support:UserWarning")
@pytest.mark.parametrize("number", range(8))
def test_sparse_matrices(tmp_path, number):
    matrix = matrices()[number]
    summary = gz.convert(matrix, tmp_path / "s")
    found = sorted(edges_of(tmp_path / "s", None, "edge_weight"))
    assert found == [(0, 1, 2), (1, 2, 3), (2, 0, 4), (2, 2, 5)]
    assert summary.what.startswith("sparse matrix in memory")
    assert "edge_weight" not in converted(matrix, tmp_path / "t", skip=["edge_weight"])
    if not torch.is_tensor(matrix) and matrix.format != "lil":
        sp.save_npz(tmp_path / "m.npz", matrix)
        assert sorted(edges_from(tmp_path / "m.npz", tmp_path / "v")) == [
            each[:2] for each in found
        ]
    gz.convert(matrix, tmp_path / "u", edge_attrs={"edge_weight": np.arange(4)})
    assert gz.open(tmp_path / "u").data().edge_weight.dtype == torch.int64


@pytest.mark.parametrize("requires_grad", [False, True])
def test_entries_that_are_there_twice_stay_two(tmp_path, requires_grad):
    ends = torch.tensor([[0, 0, 1], [1, 1, 0]])
    matrix = torch.sparse_coo_tensor(
        ends, torch.tensor([1.0, 2.0, 3.0]), (2, 2), check_invariants=True
    )
    matrix.requires_grad_(requires_grad)
    assert edges_from(matrix, tmp_path / "s", "edge_weight") == [(0, 1, 1), (0, 1, 2), (1, 0, 3)]
    assert not matrix.is_coalesced()


def test_matrices_of_two_kinds_of_nodes(tmp_path):
    matrix = sp.coo_matrix(([1, 2], ([0, 1], [4, 0])), shape=(2, 6))
    refused(matrix, tmp_path / "s", "2 rows and 6 columns, expected as many columns as rows")
    summary = gz.convert(matrix, tmp_path / "s", edge_type=RATES)
    assert {name: node.num_nodes for name, node in summary.nodes.items()} == {"user": 2, "item": 6}
    assert edges_of(tmp_path / "s", RATES, "edge_weight") == [(0, 4, 1), (1, 0, 2)]


def test_rows_of_attributes_are_dense(tmp_path):
    x = sp.random(3, 9, 0.3, format="csr", random_state=0, dtype=np.float32)
    sp.save_npz(tmp_path / "x.npz", x)
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    for source in (x, torch.eye(3).to_sparse()):
        with pytest.raises(InputError, match=r"<x>: value: found .*dense: pass x\.toarray\(\), or"):
            gz.convert(edges, tmp_path / "s", node_attrs={"x": source})
    with pytest.raises(InputError, match=r"x\.npz: members: found .*load_npz\(\.\.\.\)\.toarray"):
        gz.convert(edges, tmp_path / "s", node_attrs={"x": tmp_path / "x.npz"})


def test_graphs_of_networkx_become_data_first(tmp_path):
    graph = nx.Graph([("a", "b"), ("b", "c")])
    refused(graph, tmp_path / "s", r"source: type: found Graph, .*utils\.from_networkx\(")
    assert edges_from(from_networkx(graph), tmp_path / "s") == [(0, 1), (1, 0), (1, 2), (2, 1)]


class Views(dict[Any, Any]):
    """``graph.edges`` of DGL: a function, and data by type."""

    def __call__(self, etype: Any) -> Any:
        return self[etype].ends


def dgl(edges: dict[Any, torch.Tensor], sizes: dict[str, int], **data: Any) -> Any:
    """A stand-in for ``DGLGraph`` with the members that the conversion uses."""
    views = {name: SimpleNamespace(ends=tuple(ends), data={}) for name, ends in edges.items()}
    nodes = {name: SimpleNamespace(data=data.get(name, {})) for name in sizes}
    for name, values in data.get("edata", {}).items():
        views[name].data = values
    return SimpleNamespace(
        ntypes=list(sizes),
        canonical_etypes=list(edges),
        num_nodes=sizes.__getitem__,
        nodes=nodes,
        edges=Views(views),
    )


def test_dgl(tmp_path):
    cites = ("_N", "_E", "_N")
    ends = torch.tensor([[0, 1, 2], [1, 2, 0]])
    of_nodes = {"feat": torch.ones(4, 2), "label": torch.arange(4), "train_mask": torch.ones(4) > 0}
    graph = dgl({cites: ends}, {"_N": 4}, _N=of_nodes, edata={cites: {"feat": torch.arange(3)}})
    data = converted(graph, tmp_path / "s")
    assert (data.num_nodes, data.x.shape, data.y.tolist()) == (4, (4, 2), [0, 1, 2, 3])
    assert data.train_mask.all()
    assert edges_of(tmp_path / "s", None, "edge_attr") == [(0, 1, 0), (1, 2, 1), (2, 0, 2)]

    graph = dgl({RATES: ends, ("item", "is", "item"): ends}, {"user": 3, "item": 5})
    summary = gz.convert(graph, tmp_path / "t")
    assert edges_of(tmp_path / "t", RATES) == [(0, 1), (1, 2), (2, 0)]
    assert summary.nodes["item"].num_nodes == 5
