"""Graph RAG from a store: against PyG's stores, and against all similarities at once."""

from __future__ import annotations

import pickle
import re
from importlib.util import find_spec

import chunks
import pytest
import torch
from convert_support import stored
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize
from torch_geometric.data import Data
from torch_geometric.llm import RAGQueryLoader
from torch_geometric.llm.utils import DocumentRetriever
from torch_geometric.sampler import SamplerOutput

import graphs
import pyg_graphzero as gz
from pyg_graphzero.rag.index import LIBRARIES, RowIndex
from pyg_graphzero.rag.rows import Embeddings

pytestmark = chunks.both

INSTALLED = [
    pytest.param(name, marks=pytest.mark.skipif(find_spec(name) is None, reason=f"no {name}"))
    for name in ("usearch", "faiss")
]


class Letters(torch.nn.Module):
    """An encoder: how often each of the first letters is in a text."""

    def encode(self, texts: list[str]) -> torch.Tensor:
        assert not self.training
        return torch.tensor([[float(text.count(c)) for c in "abcdefgh"] for text in texts])


def loader_of(store, *options, k_nodes=4, num_neighbors=(-1, -1), index="scan", **more):
    features = gz.rag.FeatureStore(store, index=index, **more)
    config = {
        "k_nodes": k_nodes,
        "num_neighbors": list(num_neighbors),
        "encoder_model": Letters(),
    }
    return RAGQueryLoader((features, gz.rag.GraphStore(store)), *options, config=config)


@pytest.fixture
def data():
    return graphs.homogeneous(200, 900)


@pytest.fixture
def store(data, tmp_path):
    return stored(data, tmp_path / "store", both_directions=True)


@pytest.fixture
def typed(tmp_path):
    data = graphs.heterogeneous()
    data["author"].x = torch.randn(120, 8)
    data["author", "writes", "paper"].edge_attr = torch.randn(600, 8)
    gz.convert(data, tmp_path / "typed", progress=False, both_directions=True)
    return data, gz.open(tmp_path / "typed", memory="4GB")


def nearest(x, query, k):
    """The definition."""
    scores = normalize(x.float(), dim=1) @ normalize(query.float(), dim=0)
    return scores.topk(k).indices.tolist()


def embeddings(store):
    return Embeddings(store.contents, store.contents.node_type(None).attrs["x"], "x")


def ball(edge_index, seeds, hops):
    """Nodes around seeds, and edges at those that are not in the last ring."""
    seen, ring, edges = set(seeds), set(seeds), set()
    for _ in range(hops):
        at = torch.isin(edge_index, torch.tensor(sorted(ring))).any(0).nonzero().view(-1)
        edges |= set(at.tolist())
        ring = set(edge_index[:, at].flatten().tolist()) - seen
        seen |= ring
    return sorted(seen), sorted(edges)


@given(
    num_rows=st.integers(1, 60), k=st.integers(1, 70), num_queries=st.integers(1, 3),
    features=st.sampled_from([None, "float16", "int8"]), seed=st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=30)
def test_a_scan_is_topk_of_all_similarities(tmp_path_factory, num_rows, k, num_queries, features,
                                            seed):  # fmt: skip
    torch.manual_seed(seed)
    path = tmp_path_factory.mktemp("scan") / "store"
    graph = Data(x=torch.randn(num_rows, 9), edge_index=torch.empty(2, 0, dtype=torch.int64))
    store = stored(graph, path, features=features)
    x, queries = store.data().x, torch.randn(num_queries, 9)
    found = embeddings(store).nearest(queries, k)
    for query, (scores, rows) in zip(queries, found, strict=True):
        assert rows.tolist() == nearest(x, query, min(k, num_rows))
        expected = torch.cosine_similarity(x[rows], query[None])
        assert torch.allclose(scores, expected, atol=1e-5)


def test_slabs_are_small_where_the_budget_is(tmp_path):
    graph = Data(x=torch.randn(6000, 32), edge_index=torch.zeros(2, 1, dtype=torch.int64))
    rows = embeddings(stored(graph, tmp_path / "store"))
    rows.contents.memory = 0  # the process has more already: nothing is left
    slabs = dict(rows.slabs(3, 6000))
    assert max(len(slab) for slab in slabs.values()) <= (1 << 20) // (4 * 4 * 32)
    assert torch.allclose(torch.cat(list(slabs.values())), normalize(graph.x[3:], dim=1))
    assert list(slabs) == sorted(slabs)


def test_pygs_loader_gives_the_subgraph_of_the_nearest_nodes(data, store):
    for text in ("abba", "cab", "high"):
        batch = loader_of(store, num_neighbors=[-1, -1]).query(text)
        query = Letters().eval().encode([text])[0]
        nodes, edges = ball(data.edge_index, nearest(data.x, query, 4), 2)
        assert sorted(batch.node_idx.tolist()) == nodes
        assert sorted(batch.edge_idx.tolist()) == edges
        assert torch.equal(batch.x, data.x[batch.node_idx])
        assert torch.equal(batch.y, data.y[batch.node_idx])
        assert torch.equal(batch.edge_attr, data.edge_attr[batch.edge_idx])
        assert torch.equal(batch.node_idx[batch.edge_index], data.edge_index[:, batch.edge_idx])


def test_fan_out_bounds_what_is_drawn(store):
    torch.manual_seed(3)
    loader = loader_of(store, k_nodes=2, num_neighbors=[3])
    batch = loader.query("abc")
    assert batch.edge_index.size(1) <= 2 * 2 * 3
    assert batch.num_nodes < 2 + 2 * 2 * 3 + 1
    torch.manual_seed(3)
    assert torch.equal(loader.query("abc").edge_idx, batch.edge_idx)


def test_filters_and_documents(store):
    seen = []

    def subgraph_filter(batch, query):
        seen.append(query)
        return batch

    encoder = Letters().eval()
    documents = ["aaa", "hhh", "ccc"]
    retriever = DocumentRetriever(documents, k_for_docs=1, model=lambda texts: encoder.encode(
        [texts] if isinstance(texts, str) else texts))  # fmt: skip
    plain = loader_of(store, subgraph_filter)
    assert plain.query("aab").num_nodes > 4
    loader = loader_of(store, subgraph_filter, True, retriever)
    batch = loader.query("hh")
    assert batch.text_context == ["hhh"]
    assert seen == ["aab", ["hh", "hhh"]]


def test_several_queries_are_put_together(data, store):
    features = gz.rag.FeatureStore(store)
    features.config = {"k_nodes": 5}
    queries = torch.randn(3, 8)
    nodes, encoded = features.retrieve_seed_nodes(queries)
    assert torch.equal(encoded, queries)
    expected = [node for query in queries for node in nearest(data.x, query, 5)]
    assert nodes.tolist() == list(dict.fromkeys(expected))


def test_typed_graphs(typed):
    data, store = typed
    batch = loader_of(store, k_nodes=6, num_neighbors=[-1]).query("abcabd")
    query = Letters().eval().encode(["abcabd"])[0]
    x = torch.cat([data["paper"].x, data["author"].x])
    best = nearest(x, query, 6)
    seeds = {
        "paper": [at for at in best if at < 200],
        "author": [at - 200 for at in best if at >= 200],
        "venue": [],
    }
    assert seeds["paper"]
    assert seeds["author"]
    nodes = {name: set(rows) for name, rows in seeds.items()}
    for edge_type in data.edge_types:
        src, _, dst = edge_type
        row, col = data[edge_type].edge_index
        taken = torch.isin(row, torch.tensor(seeds[src], dtype=torch.int64))
        taken |= torch.isin(col, torch.tensor(seeds[dst], dtype=torch.int64))
        assert sorted(batch[edge_type].edge_idx.tolist()) == taken.nonzero().view(-1).tolist()
        nodes[src] |= set(row[taken].tolist())
        nodes[dst] |= set(col[taken].tolist())
    for name, expected in nodes.items():
        assert sorted(batch[name].node_idx.tolist()) == sorted(expected)
        if name != "venue":
            assert torch.equal(batch[name].x, data[name].x[batch[name].node_idx])
    writes = batch["author", "writes", "paper"]
    of_all = data["author", "writes", "paper"]
    assert torch.equal(writes.edge_attr, of_all.edge_attr[writes.edge_idx])


def test_seed_edges(typed):
    data, store = typed
    features = gz.rag.FeatureStore(store)
    features.config = {"k_nodes": 1, "k_edges": 4}
    query, name = torch.randn(8), ("author", "writes", "paper")
    edges, _ = features.retrieve_seed_edges(query)
    best = nearest(data[name].edge_attr, query, 4)
    assert torch.equal(edges[name], data[name].edge_index[:, best])
    graph = gz.rag.GraphStore(store)
    graph.config = {"num_neighbors": [0]}
    sample = graph.sample_subgraph({"venue": torch.tensor([3, 1])}, edges)
    assert sample.node["venue"].tolist() == [1, 3]
    assert sample.node["author"].tolist() == edges[name][0].unique().tolist()
    assert sample.node["paper"].tolist() == edges[name][1].unique().tolist()


def test_seed_edges_of_one_type(data, tmp_path):
    data.edge_attr = torch.randn(900, 8)
    features = gz.rag.FeatureStore(stored(data, tmp_path / "edges"))
    features.config = {"k_nodes": 3}
    query = torch.randn(8)
    edges, _ = features.retrieve_seed_edges(query)
    assert torch.equal(edges, data.edge_index[:, nearest(data.edge_attr, query, 3)])


def test_samples_of_others_have_original_ids(data, store):
    """Numbered like those of PyG's graph store."""
    ids = torch.tensor([700, 3, 45])
    node, inverse = data.edge_index[:, ids].unique(return_inverse=True)
    sample = SamplerOutput(node=node, row=inverse[0], col=inverse[1], edge=ids, batch=None)
    batch = gz.rag.FeatureStore(store).load_subgraph(sample)
    assert torch.equal(batch.edge_attr, data.edge_attr[ids])
    assert torch.equal(batch.edge_idx, ids)
    assert torch.equal(batch.x, data.x[node])


def test_edges_without_ids(data, tmp_path):
    del data.edge_attr
    gz.convert(data, tmp_path / "bare", progress=False, both_directions=True, edge_ids=False)
    batch = loader_of(gz.open(tmp_path / "bare"), num_neighbors=[-1]).query("add")
    nodes, edges = ball(data.edge_index, nearest(data.x, Letters().eval().encode(["add"])[0], 4), 1)
    assert sorted(batch.node_idx.tolist()) == nodes
    found = batch.node_idx[batch.edge_index].t().tolist()
    assert sorted(set(map(tuple, found))) == sorted(
        set(map(tuple, data.edge_index[:, edges].t().tolist()))
    )
    assert "edge_idx" not in batch


def test_undirected_graphs_need_no_edges_by_source(tmp_path):
    data = graphs.homogeneous(100, 300)
    store = stored(data, tmp_path / "store", undirected=True, coalesce="first")
    graph = gz.rag.GraphStore(store)
    with pytest.raises(gz.UnsupportedError, match="create_csr"):
        graph.config = {"num_neighbors": [2]}
    graph = gz.rag.GraphStore(store, gz.sampler.NeighborSampler)
    graph.config = {"num_neighbors": [-1]}
    sample = graph.sample_subgraph(torch.tensor([5]))
    row, col = data.edge_index
    expected = {5, *row[col == 5].tolist(), *col[row == 5].tolist()}
    assert set(sample.node.tolist()) == expected


@pytest.mark.parametrize("library", INSTALLED)
def test_an_index_finds_nearly_all_and_is_made_once(tmp_path, library):
    torch.manual_seed(0)
    centres = torch.randn(40, 16)
    x = centres[torch.randint(40, (20_000,))] + 0.5 * torch.randn(20_000, 16)
    gz.convert(Data(x=x, edge_index=torch.zeros(2, 1, dtype=torch.int64)), tmp_path / "store")
    rows = embeddings(gz.open(tmp_path / "store"))
    rows.contents.memory = 0  # parts are as small as they may be
    queries = x[torch.randint(20_000, (50,))] + 0.3 * torch.randn(50, 16)
    found = RowIndex(rows, LIBRARIES[library](), tmp_path / "indexes").nearest(queries, 10)
    (folder,) = (tmp_path / "indexes").iterdir()
    files = {path: path.stat().st_mtime_ns for path in folder.glob("*.index")}
    assert len(files) > 1
    hits = 0
    for query, (scores, best) in zip(queries, found, strict=True):
        hits += len(set(best.tolist()) & set(nearest(x, query, 10)))
        assert torch.allclose(scores, torch.cosine_similarity(x[best], query[None]), atol=1e-5)
        assert (scores.diff() <= 0).all()
    assert hits >= 0.95 * 500
    rows = embeddings(gz.open(tmp_path / "store"))
    again = RowIndex(rows, LIBRARIES[library](), tmp_path / "indexes").nearest(queries, 10)
    assert all(torch.equal(a[1], b[1]) for a, b in zip(found, again, strict=True))
    assert files == {path: path.stat().st_mtime_ns for path in folder.glob("*.index")}


@pytest.mark.parametrize("library", INSTALLED)
def test_other_rows_have_another_index(tmp_path, library):
    graph = Data(x=torch.eye(8), edge_index=torch.zeros(2, 1, dtype=torch.int64))
    gz.convert(graph, tmp_path / "store")
    for shift in (0, 3):
        with gz.open(tmp_path / "store", "r+") as store:
            x = torch.eye(8).roll(shift, 0)
            store.feature_store.update_tensor(x, group_name=None, attr_name="x", index=None)
            features = gz.rag.FeatureStore(store, index=library)
            features.config = {"k_nodes": 1}
            nodes, _ = features.retrieve_seed_nodes(torch.eye(8)[0])
        assert nodes.tolist() == [shift]
    assert len(list((tmp_path / "store.index").iterdir())) == 2


def test_small_tables_are_scanned_and_missing_libraries_named(store, monkeypatch, tmp_path):
    gz.rag.FeatureStore(store)
    assert not (tmp_path / "store.index").exists()
    monkeypatch.setattr("pyg_graphzero.rag.index.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match=re.escape("pip install pyg_graphzero[rag]")):
        gz.rag.FeatureStore(store, index="usearch")


def test_pickled(store):
    loader = loader_of(store, num_neighbors=[-1])
    pair = pickle.loads(pickle.dumps((loader.feature_store, loader.graph_store)))
    again = RAGQueryLoader(pair, config=pair[0].config)
    expected, found = (each.query("face") for each in (loader, again))
    assert torch.equal(found.node_idx, expected.node_idx)
    assert torch.equal(found.edge_idx, expected.edge_idx)


def test_bad_settings(store, typed, tmp_path):
    features, graph = gz.rag.FeatureStore(store), gz.rag.GraphStore(store)
    for make in (gz.rag.FeatureStore, gz.rag.GraphStore):
        with pytest.raises(TypeError, match=r"store: found DiskData, expected what gz\.open"):
            make(store.data())
    with pytest.raises(ValueError, match=r"found \['k'\], expected 'k_nodes'"):
        features.config = {"k": 1}
    with pytest.raises(ValueError, match="found None, expected 'num_neighbors'"):
        graph.config = None
    with pytest.raises(ValueError, match="config: found none"):
        graph.sample_subgraph(torch.tensor([0]))
    with pytest.raises(ValueError, match="expected 'k_nodes'"):
        features.retrieve_seed_nodes(torch.zeros(8))
    for k, query, words in (
        (0, torch.zeros(8), "k_nodes: found 0"),
        (2, "text", "expected 'encoder_model'"),
        (2, torch.zeros(5), r"found embeddings of shape \[1, 5\].*\[num_queries, 8\]"),
    ):
        features.config = {"k_nodes": k}
        with pytest.raises(ValueError, match=words):
            features.retrieve_seed_nodes(query)
    for options, error, words in (
        ({"attr": "y"}, ValueError, r"'y': found torch.int64 of shape \[200\]"),
        ({"attr": "z", "node_types": [None]}, gz.MissingAttributeError, "'z': expected one of"),
        ({"node_types": ["paper"]}, gz.MissingAttributeError, "'paper': expected None"),
        ({"index": "hnsw"}, ValueError, "index: found 'hnsw'"),
    ):
        with pytest.raises(error, match=words):
            gz.rag.FeatureStore(store, **options)
    with pytest.raises(gz.UnsupportedError, match="found Tensor"):
        graph.edge_index = torch.zeros(2, 0)
    with pytest.raises(ValueError, match="feature_store: found one of"):
        graph.register_feature_store(gz.rag.FeatureStore(typed[1]))
    data = graphs.heterogeneous()
    with pytest.raises(ValueError, match=r"found widths \{'paper': 8, 'author': 5\}"):
        gz.rag.FeatureStore(gz.open(graphs.write_store(data, tmp_path / "widths")))
    papers = gz.rag.FeatureStore(gz.open(tmp_path / "widths"), node_types=["paper"])
    papers.config = {"k_nodes": 3}
    nodes, _ = papers.retrieve_seed_nodes(data["paper"].x[7])
    assert list(nodes) == ["paper"]
    assert nodes["paper"][0] == 7
    with pytest.raises(gz.MissingAttributeError, match="'w'"):
        gz.rag.FeatureStore(store, edge_attr="w").retrieve_seed_edges(torch.zeros(8))
