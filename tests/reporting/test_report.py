"""``gz.report``: counts against plain references, and each finding with a store that has it."""

from __future__ import annotations

import json
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from commands import graphzero
from hypothesis import given, settings
from hypothesis import strategies as st
from torch_geometric.data import Data, HeteroData

import pyg_graphzero as gz
from graphs import heterogeneous, random_edges, write_store
from pyg_graphzero.reporting.components import Components
from pyg_graphzero.reporting.findings import RULES, WHY
from pyg_graphzero.reporting.page import Report
from pyg_graphzero.store import csc

NUM = 2000


def ring(*steps: int, num: int = NUM) -> torch.Tensor:
    """Edges from each node to the nodes that follow it by these steps."""
    nodes = torch.arange(num)
    return torch.cat([torch.stack([nodes, (nodes + step) % num]) for step in steps], dim=1)


def clean() -> Data:
    """A graph that nothing is to be said of."""
    nodes = torch.arange(NUM)
    return Data(
        edge_index=ring(2, -2, 4, -4, 1),
        x=torch.randn(NUM, 4, generator=torch.Generator().manual_seed(0)),
        y=nodes % 2,
        time=nodes,
        train_mask=nodes < 1000,
        val_mask=(nodes >= 1000) & (nodes < 1500),
        test_mask=nodes >= 1500,
    )


def report(data, path, **options) -> Report:
    return gz.report(write_store(data, path), num_neighbors=(), progress=False, **options)


def names(found: Report) -> set[str]:
    return {each.name for each in found.findings}


def with_edges(data: Data, edges: torch.Tensor) -> None:
    data.edge_index = torch.cat([data.edge_index, edges], dim=1)


def without_edges(data: Data, *ends: int) -> None:
    """Leaves out edges whose source (0) or destination (1) is among the last nodes."""
    for end in ends:
        data.edge_index = data.edge_index[:, data.edge_index[end] < NUM - 300 // len(ends) ** 2]


def halves(data: Data) -> None:
    data.edge_index = torch.cat([ring(2, -2, num=1000), ring(2, -2, num=1000) + 1000], dim=1)


def changed(name: str, where: slice | torch.Tensor | tuple, value) -> object:
    def change(data: Data) -> None:
        data[name][where] = value

    return change


DEFECTS = {
    "duplicates": lambda data: with_edges(data, data.edge_index[:, :300]),
    "self-loops": lambda data: with_edges(data, torch.arange(300).expand(2, -1)),
    "no messages": lambda data: without_edges(data, 1),
    "isolated": lambda data: without_edges(data, 0, 1),
    "hub": lambda data: with_edges(data, torch.arange(9, 1990) * torch.tensor([[1], [0]])),
    "homophily": lambda data: data.update(Data(y=torch.randint(2, (NUM,)))),
    "unreached": halves,
    "overlap": changed("val_mask", slice(5), True),
    "late": changed("time", slice(10), NUM),
    "unlabelled": changed("y", slice(10), -1),
    "imbalance": lambda data: data.update(Data(y=(torch.arange(NUM) % 50 == 0).long())),
    "unseen": changed("y", slice(1400, 1500), 2),
    "missing": changed("x", (3, 1), float("nan")),
    "infinite": changed("x", (3, 1), float("inf")),
    "zeros": changed("x", slice(100), 0.0),
    "constant": changed("x", (slice(None), 2), 7.0),
    "scale": changed("x", (slice(None), 3), torch.arange(NUM).float()),
}  # fmt: skip


@pytest.fixture(scope="module")
def no_findings(tmp_path_factory):
    return report(clean(), tmp_path_factory.mktemp("clean") / "s")


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_found_and_nothing_where_there_is_none(name, tmp_path, no_findings):
    assert no_findings.findings == []
    data = clean()
    DEFECTS[name](data)
    found = report(data, tmp_path / "s")
    (finding,) = [each for each in found.findings if each.name == name]
    assert finding.found in str(found)
    assert finding.why in str(found)


def overwrite(path, offset: int, value: int, dtype: type) -> None:
    with open(path, "r+b") as file:
        file.seek(offset)
        file.write(np.array([value], dtype).tobytes())


def test_ids_that_are_no_nodes(tmp_path):
    data = clean()
    data.train_idx = torch.arange(10)
    store = gz.open(write_store(data, tmp_path / "s"))
    column = store.contents.column(store.contents.node_type(None).index_sets["train_idx"])
    topology = store.contents.topology(None)
    overwrite(column.path, column.data_offset, NUM + 3, np.int64)
    assert names(gz.report(store, num_neighbors=())) == {"dangling ids"}
    overwrite(topology.path, topology.indices_offset, NUM + 3, np.uint32)
    found = gz.report(store, num_neighbors=[2], seconds=0.1)
    assert found.edges[0].dangling == 1
    assert {"dangling ids", "dangling edges"} <= names(found)
    assert "fan-out [2]: " in found.notes[0]


def test_batches(tmp_path):
    path = write_store(clean(), tmp_path / "s")
    found = gz.report(path, num_neighbors=[4, 4], seconds=0.2)
    assert [each.num_neighbors for each in found.batches] == [[4], [4, 4]]
    assert "files in memory whole" in str(found)
    small = gz.report(path, num_neighbors=[2], batch_size=10, seconds=0.1)
    rows = small.batches[0].loaded.nodes / small.batches[0].loaded.batches
    assert 10 < rows <= 30
    assert names(small) == set()
    with pytest.raises(ValueError, match="no such index set"):
        gz.report(path, seeds="none")
    with pytest.raises(gz.MemoryBudgetError, match="expected"):
        gz.report(path, memory="1MB")


def test_a_type_that_gets_no_messages(tmp_path):
    data = HeteroData()
    data["user"].num_nodes, data["movie"].num_nodes = 20, 30
    data["user", "rates", "movie"].edge_index = torch.stack(
        [torch.arange(30) % 20, torch.arange(30)]
    )
    found = report(data, tmp_path / "s")
    assert [(each.name, each.where) for each in found.findings] == [("no messages", "user")]
    assert "no batches were sampled: " in str(found)


def test_the_first_of_several_splits_counts(tmp_path):
    data = clean()
    data.train_mask = torch.stack([data.train_mask, data.test_mask], dim=1)
    found = gz.report(write_store(data, tmp_path / "s"), num_neighbors=[2], seconds=0.1)
    assert found.nodes[0].splits.sizes == {"train": 1000, "val": 500, "test": 500}
    assert (len(found.batches), found.components.seeds, found.notes) == (1, None, [])


def reference(edge_index: torch.Tensor, num_src: int, num_dst: int) -> SimpleNamespace:
    pairs = Counter(map(tuple, edge_index.t().tolist()))
    return SimpleNamespace(
        duplicates=sum(pairs.values()) - len(pairs),
        loops=sum(count for (a, b), count in pairs.items() if a == b),
        out=torch.bincount(edge_index[0], minlength=num_src),
        into=torch.bincount(edge_index[1], minlength=num_dst),
    )


def check_degrees(found, counts: torch.Tensor) -> None:
    num, order = len(counts), counts.sort().values
    assert found.largest == int(counts.max())
    assert found.mean == pytest.approx(float(counts.double().mean()))
    assert found.p99 == int(order[(num - 1) * 99 // 100])
    assert [degree for _, degree in found.hubs] == order.flip(0)[: len(found.hubs)].tolist()
    assert all(int(counts[node]) == degree for node, degree in found.hubs)
    kinds = [0 if each == 0 else each.bit_length() for each in counts.tolist()]
    assert found.histogram == [kinds.count(kind) for kind in range(max(kinds) + 1)]
    top = int(order[num - -(-num // 100) :].sum())
    assert found.top_share == pytest.approx(top / max(1, int(counts.sum())))


@pytest.mark.parametrize("slab", [1 << 18, 7])
def test_counts_of_types(tmp_path, monkeypatch, slab):
    """In slices of a few edges, too: those to a hub come in several."""
    monkeypatch.setattr(csc, "_SLAB_EDGES", slab)
    data = heterogeneous()
    found = report(data, tmp_path / "s")
    touched = {
        name: torch.zeros(data[name].num_nodes, dtype=torch.bool) for name in data.node_types
    }
    for edges in found.edges:
        src, _, dst = edges.name
        edge_index = data[edges.name].edge_index
        expected = reference(edge_index, data[src].num_nodes, data[dst].num_nodes)
        assert edges.num_edges == edge_index.shape[1]
        assert edges.duplicates == expected.duplicates
        assert edges.self_loops == (expected.loops if src == dst else 0)
        check_degrees(edges.in_degree, expected.into)
        check_degrees(edges.out_degree, expected.out)
        touched[src][edge_index[0]] = touched[dst][edge_index[1]] = True
    assert {each.name: each.isolated for each in found.nodes} == {
        name: int((~of).sum()) for name, of in touched.items()
    }
    (cites,) = [each for each in found.edges if each.name == ("paper", "cites", "paper")]
    ends = data["paper"].y[data["paper", "cites", "paper"].edge_index]
    shares = [torch.bincount(end, minlength=4) / 900 for end in ends]
    chance = float((shares[0] * shares[1]).sum())
    assert cites.same_label == int((ends[0] == ends[1]).sum())
    assert cites.homophily == pytest.approx(
        (cites.same_label / 900 - chance) / (1 - chance), abs=1e-6
    )
    assert [each.attr for node in found.nodes for each in node.features] == ["x", "x"]
    assert json.loads(json.dumps(found.to_dict()))["components"]["num_nodes"] == 327


@settings(max_examples=60)
@given(
    st.integers(1, 40),
    st.lists(st.tuples(st.integers(0, 39), st.integers(0, 39)), max_size=60),
    st.integers(1, 9),
)
def test_components(num_nodes, pairs, slab):
    edges = torch.tensor(
        [(a % num_nodes, b % num_nodes) for a, b in pairs], dtype=torch.int64
    ).view(-1, 2)
    component = list(range(num_nodes))
    for a, b in edges.tolist():
        low, high = sorted((component[a], component[b]))
        component = [low if each == high else each for each in component]
    made = Components(num_nodes)
    for part in edges.split(slab):
        made.join(part[:, 0], part[:, 1])
    seeds = torch.arange(0, num_nodes, 3)
    found = made.report(seeds, "some")
    sizes = Counter(component)
    reached = {component[seed] for seed in seeds.tolist()}
    assert (found.number, found.largest) == (len(sizes), max(sizes.values()))
    assert (found.with_seeds, found.reached) == (len(reached), sum(sizes[each] for each in reached))


def test_a_long_path_is_joined_in_few_steps(monkeypatch):
    calls, find = [0], Components.lowest

    def counting(self, nodes):
        calls[0] += 1
        return find(self, nodes)

    monkeypatch.setattr(Components, "lowest", counting)
    nodes = torch.arange(100_000)
    for one, other in ((nodes[:-1], nodes[1:]), (nodes[1:].flip(0), nodes[:-1].flip(0))):
        made = Components(100_000)
        made.join(one, other)
        made.join(torch.zeros(100_000, dtype=torch.int64), nodes)
        assert made.report().number == 1
    assert calls[0] < 30


@pytest.mark.parametrize("encoding", [None, "float16", "int8"])
def test_features_of_encoded_rows(tmp_path, encoding):
    x = torch.randn(5000, 3) * torch.tensor([1.0, 30.0, 0.0]) + torch.tensor([0.0, 100.0, 2.0])
    data = Data(x=x, edge_index=random_edges(5000, 5000, 9000))
    path = tmp_path / "s"
    gz.convert(data, path, features=encoding, progress=False)
    ((found,),) = [each.features for each in gz.report(path, num_neighbors=()).nodes]
    assert (found.kind, found.constant, found.widest_column) == ("float32[3]", [2], 1)
    assert found.widest == pytest.approx(float(x[:, 1].mean()), rel=0.01)
    assert found.typical == pytest.approx(float(x[:, 0].std()), rel=0.02)


def test_values_that_are_missing_do_not_count(tmp_path):
    x = torch.randn(3000, 2) + 50
    x[::7, 0], x[1, 1] = float("nan"), float("-inf")
    data = Data(x=x, y=torch.rand(3000), edge_index=random_edges(3000, 3000, 100))
    data.y[:6] = float("nan")
    (found,) = report(data, tmp_path / "s").nodes
    (feature,) = found.features
    assert (feature.nan_rows, feature.infinite) == (429, 1)
    assert feature.widest == pytest.approx(50, rel=0.01)
    assert feature.typical == pytest.approx(1, rel=0.1)
    assert (found.labels.labelled, found.labels.classes) == (2994, [])


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: Counter[str] = Counter()

    def handle_starttag(self, tag, attrs):
        self.seen[tag] += 1
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen[tag] += 1

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_needs_nothing_else(tmp_path):
    data = clean()
    data.x[0, 0] = float("nan")
    found = report(data, tmp_path / "<b>")
    page, tags = found.html(), _Tags()
    tags.feed(page)
    assert tags.open == []
    assert tags.seen["svg"] == 2
    assert not tags.seen.keys() & {"b>", "script", "link", "img"}
    assert "//" not in page.replace("<!DOCTYPE html>", "")
    assert "&lt;b&gt;: 1 error" in page
    assert found.findings[0].why in page


def test_the_command(tmp_path):
    path, out = write_store(clean(), tmp_path / "s"), tmp_path / "report.html"
    options = "report", path, "--num-neighbors", 2, "--seconds", 0.1
    assert graphzero(*options, "-o", out).output.startswith(f"{path}: ")
    assert out.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    done = graphzero(*options, "--json")
    assert json.loads(done.output)["nodes"][0]["splits"]["sizes"]["train"] == 1000


def test_options_are_looked_at_first(tmp_path):
    with pytest.raises(FileNotFoundError, match="No such directory"):
        gz.report(tmp_path / "nowhere", out=tmp_path / "no" / "page.html")
    with pytest.raises(ValueError, match="batch_size: found 0, expected 1 or more"):
        gz.report(tmp_path / "nowhere", batch_size=0)


def test_each_rule_has_its_reason_and_its_test():
    elsewhere = {"dangling ids", "dangling edges"}
    assert RULES.keys() == WHY.keys() == DEFECTS.keys() | elsewhere


def test_a_graph_of_nothing(tmp_path):
    data = Data(x=torch.zeros(0, 3), y=torch.zeros(0).long(), edge_index=torch.zeros(2, 0).long())
    found = gz.report(write_store(data, tmp_path / "s"), progress=False)
    assert names(found) == set()
    assert (found.nodes[0].isolated, found.edges[0].homophily, found.batches) == (0, None, [])
    assert "<svg" in found.html()
