"""Files of GraphZero 0.2 become stores; each length in them is checked."""

from __future__ import annotations

import struct

import numpy as np
import pytest
import torch

import pyg_graphzero as gz
from pyg_graphzero.errors import InputError

INDPTR, INDICES = [0, 2, 3, 3, 5, 5], [1, 2, 2, 0, 4]
EDGES = torch.tensor([[0, 0, 1, 3, 3], INDICES])
WEIGHTS = [0.5, 1.5, 2.5, 3.5, 0.0]
DTYPES = [np.int32, np.int64, np.float32, np.float64]


def padded(raw):
    return raw + bytes(-len(raw) % 64)


def graph_file(path, weights=None, change=None, tail=b""):
    """Writes the file that GraphZero's ``convert_csv_to_gl`` would."""
    indptr, indices = (np.array(each, np.uint64).tobytes() for each in (INDPTR, INDICES))
    fields = {"indptr_bytes": len(indptr), "indices_bytes": len(indices), "indptr_at": 64}
    fields |= {"indices_at": 128, "nodes": len(INDPTR) - 1, "edges": len(INDICES)}
    fields |= {"weighted": int(weights is not None), **(change or {})}
    raw = padded(struct.pack("<8s7Q", b"graphlit", *fields.values())) + padded(indptr) + indices
    if weights is not None:
        raw = padded(raw) + np.array(weights, np.float32).tobytes()
    path.write_bytes(raw + tail)
    return path


def feature_file(path, rows, code=None):
    """Writes the file that GraphZero's ``convert_csv_to_gd`` would."""
    code = DTYPES.index(rows.dtype) if code is None else code
    path.write_bytes(struct.pack("<8sIIQQ", b"GZDATA26", 0, code, *rows.shape) + rows.tobytes())
    return path


@pytest.mark.parametrize("weights", [None, WEIGHTS])
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_graph_and_its_features(tmp_path, weights, dtype):
    rows = np.arange(10).reshape(5, 2).astype(dtype)
    graph = graph_file(tmp_path / "graph.gl", weights)
    features = feature_file(tmp_path / "features.gd", rows)
    summary = gz.convert(graph, tmp_path / "s", node_attrs={"x": features}, progress=False)
    assert (summary.num_nodes, summary.num_edges) == (5, 5)
    data = gz.open(tmp_path / "s").data()
    assert torch.equal(data.edge_index, EDGES)
    assert torch.equal(data.x, torch.from_numpy(rows))
    assert ("edge_weight" in data) == (weights is not None)
    if weights is not None:
        assert data.edge_weight.tolist() == weights


def test_options_are_those_of_other_edges(tmp_path):
    graph = graph_file(tmp_path / "g.gl", WEIGHTS)
    gz.convert(graph, tmp_path / "s", edge_attrs={"w": f"{graph}:weights"}, undirected=True)
    data = gz.open(tmp_path / "s").data()
    assert data.num_edges == 10
    assert data.w.tolist() == [*WEIGHTS, *WEIGHTS]


def test_the_command(tmp_path):
    from click.testing import CliRunner

    from pyg_graphzero_cli import main

    graph_file(tmp_path / "g.gl", WEIGHTS)
    feature_file(tmp_path / "f.gd", np.ones((5, 3), np.float32))
    arguments = ["convert", str(tmp_path / "g.gl"), "-o", str(tmp_path / "s")]
    found = CliRunner().invoke(main, [*arguments, "--node-attr", f"x={tmp_path / 'f.gd'}"])
    assert found.exit_code == 0, found.output
    assert "GraphZero graph" in found.output
    assert gz.open(tmp_path / "s").data().x.shape == (5, 3)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"indptr_bytes": 40}, "size of the pointers.*40 bytes.*48"),
        ({"indices_bytes": 48}, "size of the ids.*48 bytes.*40"),
        ({"edges": 1 << 62}, "size of the ids"),
        ({"nodes": (1 << 64) - 1}, "size of the pointers"),
        ({"weighted": 7}, "whether there are weights.*7.*0 or 1"),
        ({"indptr_at": 8}, "offsets.*pointers at 8"),
        ({"indices_at": 100}, "offsets.*ids at 100"),
        ({"indices_at": 192}, "file.*bytes"),
        ({"weighted": 1}, "file.*168 bytes.*212"),
    ],
)
def test_lengths_that_contradict_each_other(tmp_path, change, says):
    with pytest.raises(InputError, match=says):
        gz.convert(graph_file(tmp_path / "g.gl", change=change), tmp_path / "s", progress=False)
    assert not (tmp_path / "s").exists()


def test_files_that_are_none(tmp_path):
    path = graph_file(tmp_path / "g.gl", tail=b"more")
    with pytest.raises(InputError, match=r"file.*172 bytes.*168"):
        gz.convert(path, tmp_path / "s", progress=False)
    path.write_bytes(path.read_bytes()[:40])
    with pytest.raises(InputError, match=r"header.*40 bytes.*64"):
        gz.convert(path, tmp_path / "s", progress=False)
    path.write_bytes(b"something else")
    with pytest.raises(InputError, match=r"b.graphlit., which begins a graph of GraphZero 0\.2"):
        gz.convert(path, tmp_path / "s", progress=False)
    graph = graph_file(tmp_path / "g.gl")
    for code, size, says in ((4, 0, "dtype.*4.*3 .torch.float64"), (2, 4, "file.*68 bytes.*72")):
        features = feature_file(tmp_path / "f.gd", np.zeros((5, 2), np.float32), code)
        features.write_bytes(features.read_bytes()[: -size or None])
        with pytest.raises(InputError, match=says):
            gz.convert(graph, tmp_path / "s", node_attrs={"x": features}, progress=False)
    features = feature_file(tmp_path / "f.gd", np.zeros((4, 2), np.float32))
    with pytest.raises(InputError, match="4"):
        gz.convert(graph, tmp_path / "s", node_attrs={"x": features}, progress=False)


def test_ids_that_are_no_nodes(tmp_path):
    path = graph_file(tmp_path / "g.gl")
    raw = bytearray(path.read_bytes())
    raw[128:136] = struct.pack("<Q", 9)
    path.write_bytes(raw)
    with pytest.raises(InputError, match="9"):
        gz.convert(path, tmp_path / "s", progress=False)
    raw[72:80] = struct.pack("<Q", 77)
    path.write_bytes(raw)
    with pytest.raises(InputError, match=r"indptr.*ascend"):
        gz.convert(path, tmp_path / "s", progress=False)


def test_a_file_of_a_store_is_told_apart(tmp_path):
    gz.convert(EDGES, tmp_path / "s", progress=False)
    with pytest.raises(InputError, match=r"part of a store: gz\.open"):
        gz.convert(tmp_path / "s" / "edge" / "topology.gl", tmp_path / "t", progress=False)
