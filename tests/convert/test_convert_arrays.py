"""NumPy, torch and in-memory sources; attributes, dtypes, index sets, and the build options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import chunks
import numpy as np
import pytest
import torch
from convert_support import converted, edges_from, edges_of, kinds, refused, stored, write

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.util import progress

EDGES = np.array([[0, 1, 2, 3, 3], [1, 2, 3, 0, 0]])
PAIRS = [tuple(pair) for pair in EDGES.T.tolist()]
RING = np.array([[0, 1, 2, 3], [1, 2, 3, 0]])


def save(path: Path, **members: Any) -> Path:
    np.savez(path, **members)
    return path


@pytest.mark.parametrize(
    "members",
    [
        {"edge_index": EDGES},
        {"edges": EDGES.T},
        {"row": EDGES[0], "col": EDGES[1]},
        {"src": EDGES[0], "dst": EDGES[1], "label": np.arange(4)},
        {"anything": EDGES},
    ],
    ids=lambda members: "+".join(members),
)
def test_npz_members(tmp_path, members):
    sources: list[Any] = [save(tmp_path / "g.npz", **members)]
    if {*members} <= {"row", "col", "edge_index"}:
        torch.save({name: torch.from_numpy(each) for name, each in members.items()},
                   tmp_path / "g.pt")  # fmt: skip
        sources += [members, tmp_path / "g.pt"]
    for source in sources:
        assert edges_from(source, tmp_path / "store", force=True) == PAIRS


@chunks.both
@pytest.mark.parametrize("prefix", ["", "adj_"])
def test_npz_csr_rows_are_sources_and_csc_columns_destinations(tmp_path, prefix):
    # Nodes 4 and 5 have no edges at all; features are a sparse matrix beside the adjacency.
    members = {
        "feat_indptr": np.array([0, 1]),
        "feat_indices": np.array([0]),
        f"{prefix}indptr": np.array([0, 1, 2, 3, 5, 5, 5]),
        f"{prefix}indices": np.array([1, 2, 3, 0, 0]),
    }
    summary = gz.convert(save(tmp_path / "g.npz", **members), tmp_path / "store")
    assert edges_of(tmp_path / "store") == PAIRS
    assert (summary.nodes[None].num_nodes, summary.nodes[None].isolated) == (6, 2)
    path = save(tmp_path / "c.npz", colptr=np.array([0, 1, 3]), row=np.array([1, 0, 1]))
    assert edges_from(path, tmp_path / "csc") == [(1, 0), (0, 1), (1, 1)]


def test_member_selection(tmp_path):
    path = save(tmp_path / "g.npz", a=EDGES[0], b=EDGES[1], other=EDGES[::-1])
    gz.convert(f"{path}:a,b", tmp_path / "one")
    gz.convert(f"{path}:other", tmp_path / "two")
    assert edges_of(tmp_path / "one") == PAIRS
    assert edges_of(tmp_path / "two") == [(b, a) for a, b in PAIRS]
    refused(path, tmp_path / "three", r"members: found a, b, other, expected edge_index, row/col")
    refused(f"{path}:a,c", tmp_path / "three", r"members: found a, b, other, expected a member 'c'")


def test_arrays_and_tensors(tmp_path):
    tensor = torch.from_numpy(EDGES)
    torch.save(tensor, tmp_path / "e.pt")
    for source in (EDGES, tensor, (tensor[0], EDGES[1]), tmp_path / "e.pt"):
        assert edges_from(source, tmp_path / "store", force=True) == PAIRS


def test_two_by_two_must_be_told(tmp_path):
    square = np.array([[0, 1], [2, 3]])
    refused(square, tmp_path / "store", r"found shape \[2, 2\], which may be either")
    gz.convert(square, tmp_path / "a", edge_layout="2xE")
    gz.convert(square, tmp_path / "b", edge_layout="Ex2")
    assert edges_of(tmp_path / "a") == [(0, 2), (1, 3)]
    assert edges_of(tmp_path / "b") == [(0, 1), (2, 3)]


FLOAT, UINT64 = RING.astype(float), np.array([2**63, 1], np.uint64)
TURNS = {"indptr": np.array([0, 2, 1]), "indices": np.array([0])}
ENDS = {"indptr": np.array([0, 1, 2]), "indices": np.array([0])}


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (FLOAT, "src[0]: found float64, expected integers or strings, as ids are. Int"),
        (RING - 1, "src[0]: found id -1, expected an id of 0 or more"),
        (np.arange(6), "edges: found shape [6], expected shape [2, E] or [E, 2]"),
        (np.zeros((3, 3), int), "edges: found shape [3, 3], expected shape [2, E] or [E, 2]"),
        ((RING[0], RING[1][:3]), "dst: found 3 values, expected 4, as many as src has"),
        (TURNS, "indptr: found values that do not ascend from 0, expected 0 ascending to 1"),
        (ENDS, "indptr: found a last value of 2, expected 0 ascending to 1"),
        ((UINT64, np.array([0, -1])), "dst[1]: found id -1, expected an id of 0 or more, as"),
    ],
)  # fmt: skip
def test_bad_edges(tmp_path, value, message):
    assert refused(value, tmp_path / "store").startswith(f"<edge_index>: {message}")


def test_damaged_and_pickled_files(tmp_path):
    (tmp_path / "in").mkdir()
    objects = np.array([{}, []], dtype=object)
    np.save(tmp_path / "in/cut.npy", RING)
    write(tmp_path / "in/cut.npy", (tmp_path / "in/cut.npy").read_bytes()[:-8])
    for suffix in ("npy", "npz", "pt"):
        write(tmp_path / f"in/junk.{suffix}", b"PK junk" if suffix == "npz" else b"junk")
    np.save(tmp_path / "in/objects.npy", objects, allow_pickle=True)
    torch.save({"a": Path("x")}, tmp_path / "in/objects.pt")
    save(tmp_path / "in/objects.npz", edge_index=objects)
    for path in (tmp_path / "in").iterdir():
        refused(path, tmp_path / "store", path.name)


ALL_DTYPES = ["bool", "uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@pytest.mark.parametrize("dtype", [*ALL_DTYPES, "bfloat16"])
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_attributes_of_any_dtype_follow_their_edges(tmp_path, dtype, shape):
    edges = np.random.default_rng(0).integers(0, 20, (2, 200))
    generator = torch.Generator().manual_seed(0)
    values = torch.randint(0, 2, (200, *shape), generator=generator).to(getattr(torch, dtype))
    nodes = torch.randint(0, 2, (20, *shape), generator=generator).to(getattr(torch, dtype))
    data = converted(edges, tmp_path / "store", edge_attrs={"a": values}, node_attrs={"b": nodes})
    assert torch.equal(data.edge_index, torch.from_numpy(edges))
    assert torch.equal(data.a, values)
    assert data.a.dtype == values.dtype
    assert torch.equal(data.b, nodes)
    assert data.b.dtype == nodes.dtype


@chunks.both
def test_attributes_from_everywhere(tmp_path):
    rng = np.random.default_rng(1)
    features = np.asfortranarray(rng.random((4, 3), dtype=np.float32).astype(">f4"))
    np.save(tmp_path / "x.npy", features)
    save(tmp_path / "g.npz", y=np.arange(4), w=np.arange(4) / 2)
    torch.save({"z": torch.arange(4) * 2}, tmp_path / "z.pt")
    write(
        tmp_path / "table.csv",
        "id,age,ok,f0,f1\n0,10,true,1,2\n1,11,false,3,4\n2,12,true,5,6\n3,13,true,7,8\n",
    )
    np.save(tmp_path / "test_idx.npy", np.array([3, 0, 0]))
    write(tmp_path / "valid.csv", "2\n1\n")
    summary = gz.convert(
        RING,
        tmp_path / "store",
        edge_attrs={"edge_weight": f"{tmp_path}/g.npz:w"},
        nodes=tmp_path / "table.csv",
        node_attrs={
            "x": tmp_path / "x.npy",
            "y": f"{tmp_path}/g.npz:y",
            "z": f"{tmp_path}/z.pt:z",
            "age": "age",
            "train_mask": "ok",
            "f": ["f0", "f1"],
            "valid_idx": tmp_path / "valid.csv",
            "test_idx": tmp_path / "test_idx.npy",
            "train_idx": torch.tensor([1, 2]),
        },
    )
    data = gz.open(tmp_path / "store").data()
    assert np.array_equal(data.x.numpy(), features)
    assert data.y.tolist() == [0, 1, 2, 3]
    assert data.z.tolist() == [0, 2, 4, 6]
    assert data.age.tolist() == [10, 11, 12, 13]
    assert data.train_mask.tolist() == [True, False, True, True]
    assert data.f.tolist() == [[1, 2], [3, 4], [5, 6], [7, 8]]
    assert data.valid_idx.tolist() == [2, 1]
    assert data.test_idx.tolist() == [3, 0, 0]
    assert data.train_idx.tolist() == [1, 2]
    assert data.edge_weight.tolist() == [0, 0.5, 1, 1.5]
    (nodes,) = summary.info["node_types"]
    assert kinds(nodes)["x"] == "float32[3]"
    sizes = {name: column["shape"] for name, column in nodes["index_sets"].items()}
    assert sizes == {"valid_idx": [2], "test_idx": [3], "train_idx": [2]}


def test_a_number_float32_cannot_hold_is_refused_in_features(tmp_path):
    attrs = {"x": write(tmp_path / "x.csv", "0,1\n1,1e60\n")}
    edges = np.array([[0, 1, 1], [1, 0, 1]])
    words = r"line 2, column 1: found 1e\+60, expected a value that"
    refused(edges, tmp_path / "store", words, node_attrs=attrs)
    data = converted(edges, tmp_path / "store", node_attrs=attrs, dtypes={"x": "float64"})
    assert data.x[1, 1] == 1e60


def test_row_counts_must_match(tmp_path):
    np.save(tmp_path / "w.npy", np.zeros(3))
    words = r"w\.npy: w: found 3 rows, expected 4, one per edge in"
    refused(RING, tmp_path / "store", words, edge_attrs={"w": tmp_path / "w.npy"})
    x = np.zeros(6)
    for words, attrs in (
        (r"<y>: y: found 5 rows, expected 6, the number of nodes", {"x": x, "y": x[:5]}),
        (r"src\[3\]: found id 3, expected an id below 3, the number", {"x": x[:3]}),
        (r"train_idx\[1\]: found id 4, expected an id of 0…3", {"train_idx": np.array([0, 4])}),
    ):
        refused(RING, tmp_path / "store", words, node_attrs=attrs)


def test_feature_dtype(tmp_path):
    x = np.random.default_rng(0).random((4, 2))
    for dtype in ("float16", "bfloat16", torch.float32, np.float16):
        gz.convert(RING, tmp_path / "s", node_attrs={"x": x}, dtypes={"x": dtype}, force=True)
        got = gz.open(tmp_path / "s").data().x
        assert torch.allclose(got.double(), torch.from_numpy(x), atol=1e-2)
        assert got.element_size() == (4 if dtype is torch.float32 else 2)
    attrs, words = {"x": np.array([1, 2, 7e4, 3])}, "<x>: row 2: found 70000.0, expected a value"
    refused(
        RING, tmp_path / "t", f"{words} that float16", node_attrs=attrs, dtypes={"x": "float16"}
    )


def test_numbers_from_2_to_the_63_on_do_not_wrap(tmp_path):
    attrs = {"x": np.array([1, 2, 2**63 + 5, 3], np.uint64)}
    data = converted(RING, tmp_path / "s", node_attrs=attrs, dtypes={"x": "float64"})
    assert data.x.tolist() == [1, 2, 2.0**63, 3]
    words = r"<x>: row 2: found 9223372036854775813, expected a value that int64 can hold"
    refused(RING, tmp_path / "t", words, node_attrs=attrs, dtypes={"x": "int64"})


def test_take_and_skip(tmp_path):
    attrs = {"x": np.zeros(4), "y": np.zeros(4)}
    gz.convert(RING, tmp_path / "a", node_attrs=attrs, edge_attrs={"w": np.zeros(4)}, take=["x"])
    gz.convert(RING, tmp_path / "b", node_attrs=attrs, skip=["x"])
    assert set(gz.open(tmp_path / "a").data().keys()) >= {"x"}
    assert not {"y", "w"} & set(gz.open(tmp_path / "a").data().keys())
    assert "x" not in gz.open(tmp_path / "b").data()


@chunks.both
def test_ids_are_rows_or_mapped(tmp_path):
    def ids(edges, **options):
        summary = gz.convert(edges, tmp_path / "s", force=True, **options)
        assert edges_of(tmp_path / "s") == [tuple(pair) for pair in edges.T.tolist()]
        return summary.nodes[None].num_nodes, summary.nodes[None].ids

    assert ids(RING) == (4, "ids are rows")
    assert ids(RING + (RING > 1)) == (5, "ids are rows (1 of 0…4 not in any edge)")
    assert ids(RING + 1) == (4, "integer ids mapped, ascending")
    assert ids(RING + 1, ids="map") == (4, "integer ids mapped, ascending")
    assert ids(RING + 10) == (4, "integer ids mapped, ascending")
    assert ids(RING + 10, ids="dense") == (14, "ids are rows")
    assert ids(RING, num_nodes=9) == (9, "ids are rows")
    assert ids(RING * 4_000_000_000) == (4, "integer ids mapped, ascending")
    assert ids(RING * -1, ids="map") == (4, "integer ids mapped, ascending")
    assert ids(RING * 10, node_attrs={"x": np.zeros(31)}) == (31, "ids are rows")


@chunks.both
def test_ids_beyond_the_features_are_not_guessed_at(tmp_path):
    attrs = {"x": np.arange(4.0), "train_idx": np.array([30, 10])}
    with pytest.raises(InputError, match="expected an id below 4, the number of nodes by <x>"):
        gz.convert(RING * 10, tmp_path / "s", node_attrs=attrs)
    store = stored(RING * 10, tmp_path / "s", node_attrs=attrs, ids="map")
    assert store.ids().tolist() == [0, 10, 20, 30]
    assert store.data().train_idx.tolist() == [3, 1]  # rows of the nodes the user calls 30 and 10
    assert store.lookup([20]).tolist() == [2]


@chunks.both
def test_a_bad_id_far_into_the_edges(tmp_path):
    table = write(tmp_path / "n.csv", "id\n" + "".join(f"{i * 7}\n" for i in range(20)))
    edges = np.arange(40).reshape(2, 20) % 20
    for column, name in enumerate(["src", "dst"]):
        for place in (0, 11, 19):
            bad = edges.copy()
            bad[column, place] = 33
            where = rf"{name}\[{place}\]: found id "
            refused(bad, tmp_path / "s", where + "33, expected an id below 20", num_nodes=20)
            refused(bad * 7, tmp_path / "s", where + "231, expected an id in the node", nodes=table)


@chunks.both
def test_a_node_table_that_almost_counts_on(tmp_path):
    """Its ids are its rows only if they count on to the end."""
    for ids in ([0, 1, 2, 3, 4, 5, 6], [0, 1, 2, 13, 14, 15, 16], [0, 1, 2, 3, 4, 6, 5]):
        table = write(tmp_path / "n.csv", "id\n" + "".join(f"{i}\n" for i in ids))
        edges = np.array([ids[:6], ids[1:]])
        assert stored(edges, tmp_path / "s", nodes=table, force=True).ids().tolist() == ids
        assert edges_of(tmp_path / "s") == list(zip(*edges.tolist(), strict=True))


@chunks.both
def test_text_ids_from_arrays(tmp_path):
    edges = np.array([["b", "c", "b"], ["a", "a", "ü"]])
    sets = {"train_idx": np.array(["ü", "a"])}
    store = stored(edges, tmp_path / "s", node_attrs=sets)
    assert list(store.ids()) == ["a", "b", "c", "ü"]
    assert store.data().train_idx.tolist() == [3, 0]
    assert edges_of(tmp_path / "s") == [("b", "a"), ("c", "a"), ("b", "ü")]
    numbers = np.array([[7, -3, 100], [100, 7, 7]])
    assert list(stored(numbers, tmp_path / "t", id_type="str").ids()) == ["-3", "100", "7"]
    assert edges_of(tmp_path / "t") == [("7", "100"), ("-3", "7"), ("100", "7")]


@chunks.both
def test_node_table_gives_the_order(tmp_path):
    table = write(tmp_path / "n.csv", "name,year\nzoe,1\nadam,2\nlone,3\n")
    edges = write(tmp_path / "e.csv", "src,dst\nadam,zoe\nzoe,adam\n")
    summary = gz.convert(edges, tmp_path / "s", nodes=table, node_attrs=["year"])
    store = gz.open(tmp_path / "s")
    assert list(store.ids()) == ["zoe", "adam", "lone"]
    assert store.data().year.tolist() == [1, 2, 3]
    assert summary.nodes[None].isolated == 1

    write(edges, "src,dst\nadam,zoe\n\nzoe,eve\n")
    words = "line 4, column 'dst': found id 'eve', expected an id in"
    refused(edges, tmp_path / "t", words, nodes=table)
    write(edges, "src,dst\nadam,zoe\n")
    words, sets = r"train_idx\[1\]: found id 'eve', expected an id in the node", ["zoe", "eve"]
    refused(edges, tmp_path / "t", words, nodes=table, node_attrs={"train_idx": np.array(sets)})
    write(table, "name,year\nzoe,1\nadam,2\nzoe,3\n")
    words = "line 4, column 'name': found id 'zoe', expected every id"
    refused(edges, tmp_path / "t", words, nodes=table)


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("coalesce='avg': expected one of first, sum", {"coalesce": "avg"}),
        ("self_loops='drop': expected one of keep", {"self_loops": "drop"}),
        ("ids='sparse': expected one of auto", {"ids": "sparse"}),
        ("num_nodes=-1: expected 0 or more", {"num_nodes": -1}),
        ("delimiter is an option for delimited text", {"delimiter": ","}),
        ("dtype of 'x': found 'floaty', expected one of torch's", {"dtypes": {"x": "floaty"}}),
        (r"dtypes=\['w'\]: expected a mapping from attributes", {"dtypes": ["w"]}),
        (r"fill=\['w'\]: expected a mapping from attributes", {"fill": ["w"]}),
        ("features=8: expected a mapping from attributes", {"features": 8}),
        ("take=3: expected a list of names", {"take": 3}),
        ("both_directions='no': expected True or False", {"both_directions": "no"}),
        ("force='no': expected True or False", {"force": "no"}),
        ("adopt='x': expected True or False", {"adopt": "x"}),
        (r"edge_type: found 3, expected \[.src.", {"edge_type": 3}),
        ("convert: header: found 'no', expected a value of type bool", {"header": "no"}),
        ("convert: comment: found 5, expected a value of type str", {"comment": 5}),
        ("convert: delimiter: found 5, expected a value of type str", {"delimiter": 5}),
        ("num_nodes: found True, expected a value of type int", {"num_nodes": True}),
        (r"num_nodes: found 2\.5, expected a value of type int", {"num_nodes": 2.5}),
        (
            r"<x>: value: found .*inhomogeneous.*, expected rows of numbers, all of one length",
            {"node_attrs": {"x": [[1], [1, 2]]}},
        ),
        (
            "<x>: x: found <U1, expected numbers or booleans",
            {"node_attrs": {"x": np.array([*"abcd"])}, "dtypes": {"x": "float32"}},
        ),
        (r"skip names 'x', which is no attribute\. There are: w", {"skip": ["x"]}),
        (r"fill names 'x', which is no attribute\. There are: w", {"fill": {"x": 1}}),
        (r"dtypes names 'x', which is no attribute\. There are: w", {"dtypes": {"x": "int8"}}),
        ("fill of 'w': found 'none', expected a number, nan, true", {"fill": {"w": "none"}}),
    ],
)
def test_options_that_are_refused(tmp_path, words, options):
    refused(RING, tmp_path / "s", words, ValueError, edge_attrs={"w": np.ones(4)}, **options)


def test_a_number_of_nodes_by_numpy(tmp_path):
    summary = gz.convert(RING, tmp_path / "s", num_nodes=np.int64(6))
    assert json.loads(json.dumps(summary.to_dict()))["nodes"][""]["num_nodes"] == 6


def test_sources_and_outputs_that_are_refused(tmp_path):
    words = "<year>: source: found 'year', expected a path such as"
    refused(RING, tmp_path / "s", words, node_attrs=["year"])
    refused(42, tmp_path / "s", "source: type: found int, expected a path")
    refused(RING, tmp_path / "nowhere" / "s", "nowhere", error=FileNotFoundError)


def test_the_output_is_never_an_input_and_never_replaced_unasked(tmp_path):
    gz.convert(RING, tmp_path / "s")
    inside = tmp_path / "s" / "e.npy"
    np.save(inside, RING)
    refused(RING, tmp_path / "s", "force=True or --force replaces it", error=FileExistsError)
    refused(inside, tmp_path / "s", "would destroy its own input", force=True)
    assert inside.exists()
    np.save(tmp_path / "e.npy", RING)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos/cat.jpg").write_bytes(b"meow")
    for name in ("e.npy", "photos"):
        refused(RING, tmp_path / name, "is not a store", error=FileExistsError, force=True)
    assert edges_from(RING[:, :3], tmp_path / "s", force=True) == [(0, 1), (1, 2), (2, 3)]


def test_progress_is_shown_when_asked_for(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(progress, "_DELAY_SECONDS", 0)
    path = write(tmp_path / "e.csv", "0,1\n1,0\n")
    gz.convert(path, tmp_path / "a")
    assert capsys.readouterr().err == ""
    gz.convert(path, tmp_path / "b", progress=True)
    shown = capsys.readouterr().err
    assert "reading e.csv" in shown
    assert "sorting edges" in shown
