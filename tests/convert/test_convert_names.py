"""Ends of edges by the names and values of columns, triples, and text as categories."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import chunks
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.parquet as pq
import pytest
import torch
from commands import graphzero
from convert_support import converted, edges_from, edges_of, refused, stored, write
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero import InputError
from pyg_graphzero.conversion.names import ends_of

TRIPLES = "/m/1\tborn in\t/m/2\n/m/2\tcapital of\t/m/3\n/m/1\tborn in\t/m/3\n"


@pytest.mark.parametrize(
    ("names", "ends"),
    [
        ("tx_id,branch,payer,payee", "payer,payee"),
        ("timestamp,user_id,friend_id", "user_id,friend_id"),
        ("weight,a,b", "a,b"),
        ("time,receiver,sender", "sender,receiver"),
        ("FromNodeId,ToNodeId", "FromNodeId,ToNodeId"),
        (":START_ID(P),since:int,:END_ID(P),:TYPE", ":START_ID(P),:END_ID(P)"),
        ("subject,predicate,object", "subject,object"),
        ("txId1,txId2", "txId1,txId2"),
        ("protein1,protein2,combined_score", "protein1,protein2"),
        ("source_type,source_id,target_type,target_id", "source_id,target_id"),
        ("sender_name,sender_id,receiver_name,receiver_id", "sender_id,receiver_id"),
        ("userId,movieId,rating,timestamp", "userId,movieId"),
        ("id,friend,weight", "id,friend"),
        ("tx_id,customer,merchant,amount", "customer,merchant"),
        # In doubt: not two.
        ("user_id,item_id,category_id,timestamp", "user_id,item_id,category_id"),
        ("user,item,start,end", "user,item,start,end"),
        ("p,q,r", "p,q,r"),
        ("tx_id,customer,amount", "customer"),
        ("user,item,f0,f1", "user,item,f0,f1"),
        ("time,user", "user"),
    ],
)
def test_which_columns_are_ends(names, ends):
    columns = names.split(",")
    found = ends_of(columns, lambda at: True, (None, None), (), ("", ""))
    assert [columns[at] for at in found] == ends.split(",")


def test_contents_kinds_and_given_ends_tell_the_ends():
    def found(names, **more):
        options: dict[str, Any] = {"given": (None, None), "taken": (), "kinds": ("", "")} | more
        kinds: dict[int, bool | None] = options.pop("holds", {})
        return ends_of(names.split(","), lambda at: kinds.get(at, True), **options)

    assert found("p,q,r", taken={1}) == [0, 2]
    assert found("p,q,r", holds={0: False}) == [1, 2]
    assert found("p,q,r", holds={0: None}) == [1, 2]  # a fraction
    assert found("person,firm,from,to", holds={2: False, 3: False}) == [0, 1]  # dates
    assert found("user,item,shop", kinds=("shop", "item")) == [2, 1]
    assert found("x,payee,payer", given=(None, 1)) == [2, 1]
    assert found("p,q,r", given=(0, None)) == [0, 1, 2]


@pytest.mark.parametrize("how", ["csv", "parquet", "frame"])
def test_one_rule_for_all_tables(tmp_path, how):
    def source(**columns):
        table = pa.table(columns)
        if how == "frame":
            return table.to_pandas()
        path = tmp_path / f"e.{how}"
        if how == "csv":
            table.to_pandas().to_csv(path, index=False)
        else:
            pq.write_table(table, path)
        return path

    paid = source(tx_id=[900, 901], branch=[7, 7], payer=[0, 1], payee=[1, 2])
    assert edges_from(paid, tmp_path / "s", num_nodes=3) == [(0, 1), (1, 2)]
    error = refused(source(p=[0], q=[1], r=[2]), tmp_path / "t")
    assert error.endswith(
        "columns: found 'p', 'q', 'r', expected two of them that are the ends of edges, by their "
        "names and values. Say which: src='p', dst='q' (--src p --dst q)."
    )
    gz.convert(source(p=[0], q=[1], r=[2]), tmp_path / "t", src="r", dst="p", num_nodes=3)
    assert edges_of(tmp_path / "t") == [(2, 0)]


def test_rows_whose_values_recur_are_no_header(tmp_path):
    path = write(tmp_path / "e.csv", "ann,bob\nbob,cid\nann,cid\n")
    assert gz.convert(path, tmp_path / "s").num_edges == 3


def test_a_knowledge_graph(tmp_path):
    path = write(tmp_path / "kg.tsv", TRIPLES)
    summary = gz.convert(path, tmp_path / "s")
    assert "edge_type: int64, 2 categories" in str(summary)
    store = gz.open(tmp_path / "s")
    assert store.ids()[:] == ["/m/1", "/m/2", "/m/3"]
    assert store.categories("edge_type")[:] == ["born in", "capital of"]
    rows = [("/m/1", "/m/2", 0), ("/m/2", "/m/3", 1), ("/m/1", "/m/3", 0)]
    assert edges_of(tmp_path / "s", None, "edge_type") == rows
    assert "edge_type: int64, 2 categories" in graphzero("info", store.path).output

    data = converted(path, tmp_path / "t", edge_type="entity,*,entity")
    kinds = [("entity", "born in", "entity"), ("entity", "capital of", "entity")]
    assert data.edge_types == kinds
    assert [data[kind].edge_index.tolist() for kind in kinds] == [[[0, 0], [1, 2]], [[1], [2]]]
    with pytest.raises(InputError, match=r"found no column of relations, expected triples"):
        gz.convert(np.array([[0, 1, 2], [1, 2, 0]]), tmp_path / "u", edge_type="a,*,a")

    named = write(tmp_path / "named.csv", "tail,relation,head\nb,r,a\n")
    assert edges_from(named, tmp_path / "v", "edge_type") == [("a", "b", 0)]
    numbers = write(tmp_path / "n.tsv", "0\t_a\t1\n1\t_b\t2\n")
    assert edges_from(numbers, tmp_path / "w", "edge_type") == [(0, 1, 0), (1, 2, 1)]
    last = write(tmp_path / "last.tsv", "/a\t/b\tlikes\n/b\t/c\tlikes\n/a\t/d\tlikes\n")
    refused(last, tmp_path / "x", "the last has the fewest values, expected head, relation")


@chunks.both
def test_n_triples(tmp_path):
    lines = [
        "<http://x/a#1> <http://x/p> <http://x/b> .",
        "# a comment",
        '<http://x/a#1> <http://x/name> "A . <b>"@en .',
        '<http://x/b> <http://x/age> "3"^^<http://x/int> .',
        "_:b1 <http://x/q> <http://x/a#1> . # another",
    ]
    path = write(tmp_path / "g.nt", "\n".join(lines))
    summary = gz.convert(path, tmp_path / "s")
    assert summary.notes == ["g.nt: 2 triples to literals are no edges"]
    store = gz.open(tmp_path / "s")
    assert store.ids()[:] == ["_:b1", "http://x/a#1", "http://x/b"]
    assert store.categories("edge_type")[:] == ["http://x/p", "http://x/q"]
    rows = [("http://x/a#1", "http://x/b", 0), ("_:b1", "http://x/a#1", 1)]
    assert edges_of(tmp_path / "s", None, "edge_type") == rows
    write(path, "\n".join([*lines, "<http://x/a> no triple"]))
    refused(path, tmp_path / "t", r"line 6: found '<http://x/a> no triple', expected <subj")


def test_files_of_neo4j(tmp_path):
    nodes = "name,person:ID(P),:LABEL\nAnn,10,Person\nBob,20,Person\nAcme,30,Firm\n"
    header = write(tmp_path / "a-header.csv", ":START_ID(P),:END_ID(P),since:int,:TYPE\n")
    rows = write(tmp_path / "b.csv", "10,20,1999,KNOWS\n10,30,2001,WORKS_AT\n")
    store = stored(
        [header, rows],
        tmp_path / "s",
        edge_attrs={"since": "since:int", "kind": ":TYPE"},
        nodes=write(tmp_path / "n.csv", nodes),
        node_attrs={"label": ":LABEL"},
    )
    assert store.ids().tolist() == [10, 20, 30]
    assert store.categories("label")[:] == ["Firm", "Person"]
    assert store.data().label.tolist() == [1, 1, 0]
    assert edges_of(tmp_path / "s", None, "since", "kind") == [(10, 20, 1999, 0), (10, 30, 2001, 1)]


@chunks.both
@pytest.mark.parametrize("how", ["csv", "parquet", "feather", "frame", "array"])
def test_text_becomes_categories(tmp_path, how, monkeypatch):
    words = [f"w{n * 7 % 5}" for n in range(40)]
    table = pa.table({"id": range(40), "y": words})
    source: Any = tmp_path / f"n.{how}"
    if how == "csv":
        table.to_pandas().to_csv(source, index=False)
    elif how == "parquet":
        pq.write_table(table, source, row_group_size=7)
    elif how == "feather":
        pads.write_dataset(
            table, source, format="feather", max_rows_per_file=9, max_rows_per_group=9
        )
    else:
        source = table if how == "frame" else np.array(words)
    ring = np.array([np.arange(40), np.roll(np.arange(40), 1)])
    dtypes = {"y": "int32"}
    summary = gz.convert(ring, tmp_path / "s", node_attrs={"y": source}, dtypes=dtypes)
    assert summary.info["node_types"][0]["attrs"]["y"]["categories"] == 5
    store = gz.open(tmp_path / "s")
    names = store.categories("y")
    assert names[:] == sorted(set(words))
    assert store.data().y.dtype == torch.int32
    assert names[store.data().y] == words
    with pytest.raises(gz.MissingAttributeError, match=r"of 'x': found none, .* text: \['y'\]"):
        store.categories("x")
    with gz.open(tmp_path / "s", mode="r+") as changed:
        changed.feature_store.put_tensor(
            torch.zeros(40), group_name=None, attr_name="y", index=None
        )
    with pytest.raises(gz.MissingAttributeError, match="found none"):
        gz.open(tmp_path / "s").categories("y")


def test_dictionaries_are_text(tmp_path):
    values = pd.Categorical(["lo", "hi", "lo"], categories=["mid", "lo", "hi"])
    frame = pd.DataFrame({"src": [0, 1, 2], "dst": [1, 2, 0], "c": values})
    frame.to_parquet(tmp_path / "e.parquet")
    frame.to_feather(tmp_path / "e.feather")
    sources = [frame, tmp_path / "e.feather", tmp_path / "e.parquet", pl.from_pandas(frame)]
    for number, source in enumerate(sources):
        store = stored(source, tmp_path / f"{number}", edge_attrs=["c"])
        assert store.data().c.tolist() == [1, 0, 1]
        assert store.categories("c")[:] == ["hi", "lo"]
    with pytest.raises(ValueError, match="time_attr='c': found names"):
        gz.convert(frame, tmp_path / "t", edge_attrs=["c"], time_attr="c")
    for option in ({"coalesce": "mean"}, {"self_loops": "add"}):
        with pytest.raises(ValueError, match="found the edge attribute 'c'"):
            gz.convert(frame, tmp_path / "t", edge_attrs=["c"], **option)


@pytest.mark.parametrize("how", ["csv", "frame", "dictionary"])
def test_missing_text(tmp_path, how):
    words = ["b", None, "a"]
    column = pa.array(words).dictionary_encode() if how == "dictionary" else pa.array(words)
    source: Any = pa.table({"id": [0, 1, 2], "y": column})
    if how == "csv":
        source = write(tmp_path / "n.csv", "id,y\n0,b\n1,\n2,a\n")
    ring = np.array([[0, 1, 2], [1, 2, 0]])
    refused(ring, tmp_path / "s", r"column 'y': found .*fill=\{'y': -1\}", node_attrs={"y": source})
    store = stored(ring, tmp_path / "s", node_attrs={"y": source}, fill={"y": -1})
    assert store.data().y.tolist() == [1, -1, 0]
    assert store.categories("y")[:] == ["a", "b"]


def batches(num: int, rows: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, num * rows, rows):
        at = np.arange(begin, begin + rows)
        columns = [at, (at + 1) % (num * rows), at / 8, [f"k{n % 3}" for n in at]]
        yield pa.record_batch(columns, names=["src", "dst", "edge_weight", "kind"])


@pytest.mark.parametrize("memory", [None, "small"])
def test_a_stream_is_read_once_in_the_bounds_of_memory(tmp_path, memory, monkeypatch):
    if memory is not None:  # nothing may be held: all goes through a file
        monkeypatch.setattr("pyg_graphzero.util.workspace.Workspace.hold", lambda *_: False)
    schema = next(batches(1, 1)).schema
    reader = pa.RecordBatchReader.from_batches(schema, batches(5, 7))
    store = stored(reader, tmp_path / "s", edge_attrs=["edge_weight", "kind"])
    found = edges_of(tmp_path / "s", None, "edge_weight", "kind")
    assert found == [(n, (n + 1) % 35, n / 8, n % 3) for n in range(35)]
    assert store.categories("kind")[:] == ["k0", "k1", "k2"]
    assert list(tmp_path.iterdir()) == [tmp_path / "s"]


def test_whatever_hands_out_arrow_data(tmp_path):
    class Anything:
        def __arrow_c_stream__(self, requested_schema=None):
            return pa.table({"src": [0, 1], "dst": [1, 0]}).__arrow_c_stream__(requested_schema)

    dictionary = pa.table({"id": [0, 1], "y": ["n", "m"]})
    pq.write_table(dictionary, tmp_path / "n.parquet")
    nodes = pads.dataset(tmp_path / "n.parquet")
    summary = gz.convert(Anything(), tmp_path / "s", nodes=nodes, node_attrs=["y"])
    assert summary.what == "table (Anything)"
    assert gz.open(tmp_path / "s").categories("y")[:] == ["m", "n"]


def test_duckdb(tmp_path):
    duckdb = pytest.importorskip("duckdb")
    pq.write_table(
        pa.table({"payer": [5, 6, 5], "payee": [6, 5, 6], "amount": [1, 2, 4]}),
        tmp_path / "p.parquet",
    )
    paid = f"SELECT payer, payee, sum(amount) AS w FROM '{tmp_path}/p.parquet' GROUP BY ALL"
    paid += " ORDER BY ALL"
    with duckdb.connect() as connection:
        query = connection.sql(paid.replace("sum(amount)", "sum(amount)::BIGINT"))
        assert edges_from(query, tmp_path / "s", "w", edge_attrs=["w"]) == [(5, 6, 5), (6, 5, 2)]
        with pytest.raises(InputError, match=r"decimal128.*CAST\(w AS DOUBLE PRECISION\)"):
            gz.convert(connection.sql(paid), tmp_path / "t", edge_attrs=["w"])


def test_adbc(tmp_path):
    adbc = pytest.importorskip("adbc_driver_sqlite.dbapi")
    with adbc.connect() as connection, connection.cursor() as cursor:
        cursor.execute("CREATE TABLE follows AS SELECT 1 AS follower, 2 AS followee, 0.5 AS since")
        cursor.execute("SELECT * FROM follows")
        gz.convert(cursor, tmp_path / "s", edge_attrs=["since"])
    assert edges_of(tmp_path / "s", None, "since") == [(1, 2, 0.5)]


def test_ids_of_64_bits(tmp_path):
    hashes = [2**64 - 1, 5, 2**63]
    ends = pa.table(
        {"src": pa.array(hashes, pa.uint64()), "dst": pa.array([5, 2**63, 5], pa.uint64())}
    )
    pq.write_table(ends, tmp_path / "e.parquet")
    labels = pd.DataFrame({"id": np.array(hashes, np.uint64), "y": [3, 1, 2]})
    for number, source in enumerate([ends, tmp_path / "e.parquet"]):
        store = stored(source, tmp_path / f"{number}", node_attrs={"y": labels})
        assert store.ids().tolist() == sorted(hashes)
        assert store.ids().dtype == torch.uint64
        assert store.data().y.tolist() == [1, 2, 3]
        assert store.lookup(hashes).tolist() == [2, 0, 1]
        assert store.lookup(torch.tensor([5])).tolist() == [0]
        for wanted in ([6], [-1], [2**63 + 1], [2**64 - 1, 7]):
            with pytest.raises(gz.MissingAttributeError, match=f"id {wanted[-1]}: no node has it"):
                store.lookup(wanted)
    small = pa.table({"src": pa.array([0, 1], pa.uint64()), "dst": pa.array([1, 0], pa.uint64())})
    assert gz.convert(small, tmp_path / "t").nodes[None].ids == "ids are rows"
    far = {"train_idx": np.array([0, 2**63], np.uint64)}
    words = r"found id 9223372036854775808, expected an id below 2\*\*63"
    refused(small, tmp_path / "u", words, node_attrs=far)


def test_refusals_name_the_place_and_the_remedy(tmp_path):
    def told(source):
        return refused(source, tmp_path / "s")

    floats = pd.DataFrame({"src": [0, None], "dst": [1, 0]})
    assert told(floats).startswith("<DataFrame>: row 0, column 'src': found float64, expected int")
    assert "frame.dropna().astype('int64')" in told(floats)
    mixed = told(pd.DataFrame({"src": [0, "x"], "dst": [1, 0]}))
    assert "Conversion failed for column src" in mixed
    assert "frame['id'].astype('int64')" in mixed
    lists = pa.table({"src": [0, 1], "dst": [1, 0], "w": [[1.0, 2.0], None]})
    with pytest.raises(InputError, match=r"<Table>: row 1, column 'w': found null, .*\. Give it"):
        gz.convert(lists, tmp_path / "s", edge_attrs=["w"])
    assert "found list of Data, expected a path" in told([Data(), Data()])
