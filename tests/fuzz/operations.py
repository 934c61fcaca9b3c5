"""Operations on a store that may be damaged, and conditions on their results."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from outcome import note
from paging import paged
from reference import Edges
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.nn import GraphSAGE, HeteroConv, SAGEConv, SimpleConv

import pyg_graphzero as gz
from pyg_graphzero.loader import HGTLoader, LinkNeighborLoader, NeighborLoader, ShaDowKHopSampler
from pyg_graphzero.memory import costs

# Result of an operation: tensors and numbers by name, to be compared with those of a good store.
Found = dict[str, Any]

LABOR = gz.SamplingOptions(method="labor")


class Subject:
    """A store that is used by one operation.

    Args:
        path: The store.
        variant: Number of the operation's way; everything it does follows from it.
        is_hetero: Whether the store was heterogeneous before the damage.
        late: Called when the store has been opened.
        is_paged: Loaders read rows and neighbours from disk.
        num_workers: Argument of loaders.
    """

    def __init__(
        self,
        path: Path,
        variant: int,
        is_hetero: bool,
        late: Callable[[], None] = lambda: None,
        is_paged: bool = False,
        num_workers: int = 0,
    ) -> None:
        self.path = path
        self.variant = variant
        self.rng = random.Random(variant)
        self.is_hetero = is_hetero
        self.late = late
        self.is_paged = is_paged
        self.num_workers = num_workers
        self.knows_nodes = True  # numbers of rows are right, so that nodes are found
        self.seed_type = "paper"
        torch.manual_seed(variant)

    def open(self, mode: str = "r") -> gz.Store:
        store = gz.open(self.path, mode)
        self.late()
        self.late = lambda: None
        return store

    def batches(
        self,
        make: Callable[..., Any],
        data: Any,
        *args: Any,
        seeds: Tensor | None = None,
        **options: Any,
    ) -> Found:
        """An epoch of a loader; ``seeds`` are where its batches begin, by ``input_id``."""
        found: Found = {}
        edges = Edges(self.path)
        ahead = {"prefetch_factor": 3} if self.num_workers else {}
        may_read = options.get("options") != LABOR
        with paged(self.is_paged and may_read):
            loader = make(data, *args, num_workers=self.num_workers, **ahead, **options)
            for i, batch in enumerate(loader):
                check_batch(batch, data)
                if options.get("subgraph_type") != "bidirectional":  # which adds turned edges
                    check_edges(batch, edges)
                if seeds is not None and self.knows_nodes:
                    nodes = batch[self.seed_type] if self.is_hetero else batch
                    begin = seeds[nodes.input_id]
                    assert torch.equal(nodes.n_id[: len(begin)], begin), "seeds are not first"
                found |= flat(batch.to_dict(), f"batch{i}")
        return found


def flat(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested dictionaries, named by their paths."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, f"{name}/{key}")
    elif isinstance(value, (list, tuple)) and any(isinstance(v, (Tensor, dict)) for v in value):
        for i, inner in enumerate(value):
            yield from flat(inner, f"{name}/{i}")
    else:
        yield name, value


def check_ids(ids: Tensor, total: int, name: str) -> None:
    for found in ids.aminmax() if ids.numel() else ():
        assert 0 <= int(found) < total, f"{name} {int(found)} of {total}"


def check_batch(batch: Any, data: Any) -> None:
    """Asserts the properties of any batch, whatever the numbers in the files are."""
    is_hetero = isinstance(batch, HeteroData)
    for name in batch.node_types if is_hetero else [None]:
        nodes = batch[name] if is_hetero else batch
        total = (data[name] if is_hetero else data).num_nodes
        if "n_id" not in nodes:
            continue
        n_id = nodes.n_id
        assert n_id.numel() == nodes.num_nodes, f"n_id: {n_id.numel()} of {nodes.num_nodes} nodes"
        check_ids(n_id, total, "n_id")
        for key in ("x", "time"):
            if key in nodes and isinstance(nodes[key], Tensor):
                rows = nodes[key].size(0)
                assert rows == n_id.numel(), f"{key}: {rows} rows for {n_id.numel()} nodes"
    for name in batch.edge_types if is_hetero else [None]:
        edges = batch[name] if is_hetero else batch
        if "edge_index" not in edges:
            continue
        for end, ids in zip((0, 2), edges.edge_index, strict=True):
            count = batch[name[end]].num_nodes if is_hetero else batch.num_nodes
            check_ids(ids, count, "edge_index")
        e_id = edges.e_id if "e_id" in edges else None
        if e_id is not None and e_id.numel():
            total = (data[name] if is_hetero else data).num_edges
            total = total if isinstance(total, int) else e_id.max() + 1  # an attribute of that name
            assert e_id.numel() == edges.edge_index.size(1)
            check_ids(e_id, total, "e_id")


def check_edges(batch: Any, edges: Edges) -> None:
    """The edges of a batch are edges of the store's files, whatever these say."""
    is_hetero = isinstance(batch, HeteroData)
    for name in batch.edge_types if is_hetero else [None]:
        part = batch[name] if is_hetero else batch
        ends = (batch[name[0]], batch[name[2]]) if is_hetero else (batch, batch)
        if "edge_index" not in part or any("n_id" not in end for end in ends):
            continue
        src, dst = (end.n_id[ids] for end, ids in zip(ends, part.edge_index, strict=True))
        assert edges.has_all(name, src, dst), f"edges of {name} that there are not"


def _everything(data: Any) -> Found:
    return dict(flat(data.to_dict(), "data"))


def views(s: Subject) -> Found:
    """Every attribute, built where it has to be."""
    data = s.open().data()
    repr(data)
    found = _everything(data)
    if s.rng.random() < 0.5:
        found |= {"nodes": data.num_nodes, "edges": data.num_edges, "features": data.num_features}
        found["isolated"] = data.has_isolated_nodes()
    return found


def layouts(s: Subject) -> Found:
    """Topologies as COO, CSC and CSR."""
    store = s.open()
    ways = ["coo", "csc", "csr"]
    s.rng.shuffle(ways)
    found: Found = {}
    for way in ways[: s.rng.choice([1, 2, 3])]:
        found |= flat(getattr(store.graph_store, way)(), way)
    return found


def tensors(s: Subject) -> Found:
    """Attributes by index, as PyG's feature store gives them."""
    store = s.open()
    found: Found = {}
    attrs = [(t, name) for t in store.node_types for name in ("x", "y", "z", "time", "train_mask")]
    attrs += [
        ((None, None) if t is None else t, name)
        for t in store.edge_types
        for name in ("weight", "edge_attr")
    ]
    for group, name in s.rng.sample(attrs, min(4, len(attrs))):
        size = store.feature_store.get_tensor_size(group_name=group, attr_name=name)
        if size is None or size[0] < 10:
            continue
        index: Any = s.rng.choice([None, slice(2, 9), 3, torch.tensor([5, 0, 5]), np.array([1, 2])])
        if isinstance(index, slice) and s.rng.random() < 0.3:
            index = slice(None, None, 2)
        found[f"{group}/{name}"] = store.feature_store.get_tensor(
            group_name=group, attr_name=name, index=index
        )
    return found


def _seeds(s: Subject, data: Any) -> dict[str, Any]:
    """The loaders' argument ``input_nodes``, and as ``seeds`` the nodes that it means."""
    choice = s.rng.choice(["all", "some", "set", "mask"])
    nodes = data
    if s.is_hetero:
        has_few = data["author"].num_nodes < 1 << 20
        if has_few and choice in ("all", "some"):
            s.seed_type = s.rng.choice(["paper", "author"])
        nodes = data[s.seed_type]
    if choice == "all":
        given, seeds = None, torch.arange(nodes.num_nodes)
    elif choice == "some":
        given = seeds = torch.tensor([3, 1, 4, 1, 5, 9, 2, 6])
    elif choice == "set":
        given = seeds = nodes.train_idx
    else:
        given, seeds = nodes.train_mask, torch.arange(nodes.num_nodes)
    return {"input_nodes": (s.seed_type, given) if s.is_hetero else given, "seeds": seeds}


def _fanout(s: Subject) -> list[int]:
    return s.rng.choice([[4, 3], [-1], [2, 2, 2], [-1, 2], [1], [30, 0]])


def neighbors(s: Subject) -> Found:
    """Batches around nodes."""
    data = s.open().data()
    options = s.rng.choice(
        [
            {},
            {"replace": True},
            {"disjoint": True},
            {"subgraph_type": "induced"},
            {"subgraph_type": "bidirectional"},
            {"options": LABOR},
            {"edge_ids": False},
        ]
    )
    shuffle = s.rng.random() < 0.5
    return s.batches(
        NeighborLoader, data, _fanout(s), batch_size=16, shuffle=shuffle, **_seeds(s, data),
        **options,
    )  # fmt: skip


def weighted(s: Subject) -> Found:
    """Batches whose neighbours are drawn by weight."""
    data = s.open().data()
    return s.batches(
        NeighborLoader, data, _fanout(s), batch_size=16, weight_attr="weight",
        replace=s.rng.random() < 0.5, **_seeds(s, data),
    )  # fmt: skip


def temporal(s: Subject) -> Found:
    """Batches of what was before their seeds."""
    data = s.open().data()
    seeds = ("paper", torch.arange(30)) if s.is_hetero else torch.arange(30)
    times = torch.arange(30) if s.rng.random() < 0.7 else None
    strategy, window = s.rng.choice(["uniform", "last"]), s.rng.choice([None, 0, 5])
    return s.batches(
        NeighborLoader, data, _fanout(s), input_nodes=seeds, batch_size=10, time_attr="time",
        input_time=times, temporal_strategy=strategy, time_window=window, seeds=torch.arange(30),
    )  # fmt: skip


def links(s: Subject) -> Found:
    """Batches around edges."""
    data = s.open().data()
    edges: Any = ("author", "writes", "paper") if s.is_hetero else None
    if s.rng.random() < 0.3:
        some = torch.tensor([[0, 3, 2, 7], [1, 1, 5, 0]])
        edges = (edges, some) if s.is_hetero else some
    negatives = s.rng.choice([None, "binary", "triplet"])
    shuffle = s.rng.random() < 0.5
    return s.batches(
        LinkNeighborLoader, data, _fanout(s), edge_label_index=edges, batch_size=60,
        neg_sampling=negatives, shuffle=shuffle,
    )  # fmt: skip


def subgraphs(s: Subject) -> Found:
    """HGT batches of a heterogeneous store, ShaDow batches of another."""
    data = s.open().data()
    if s.is_hetero:
        return s.batches(HGTLoader, data, [8, 4], ("paper", torch.arange(40)), batch_size=20)
    return s.batches(ShaDowKHopSampler, data, 2, 3, node_idx=torch.arange(40), batch_size=20)


def walks(s: Subject) -> Found:
    """Random walks, against edges: a store needs no other files for that."""
    name = ("paper", "cites", "paper") if s.is_hetero else None
    options = s.rng.choice([{}, {"p": 0.5, "q": 2.0}, {"restart": 0.2}, {"weight_attr": "weight"}])
    walks, ids = gz.sampler.random_walk(
        s.open(), torch.arange(40), 6, metapath=name and [name], reverse=True,
        return_edge_ids=True, **options,
    )  # fmt: skip
    if s.knows_nodes:
        taken = ids >= 0
        src, dst = walks[:, 1:][taken], walks[:, :-1][taken]
        assert Edges(s.path).has_all(name, src, dst), f"edges of {name} that there are not"
    return {"walks": walks, "ids": ids}


def verify(s: Subject) -> Found:
    """Whether the store is good, by its own check."""
    report = s.open().verify()
    note(f"verify: {report.bad[:2]}")
    return {"is good": report.ok}


def about(s: Subject) -> Found:
    """Information, sizes and the text of it all."""
    store = s.open()
    store.info()
    repr(store)
    return {"num_nodes": store.num_nodes, "num_edges": store.num_edges}


def ids(s: Subject) -> Found:
    """Ids of users, and back."""
    store = s.open()
    found: Found = {}
    for name in store.node_types:
        known = store.ids(name)
        every = list(known) if s.rng.random() < 0.5 else [known[i] for i in range(len(known))]
        found[f"{name} ids"] = [v if isinstance(v, str) else int(v) for v in every]
        found[f"{name} rows"] = store.lookup(every[:9], name)
    return found


def optimize(s: Subject) -> Found:
    """Rows that training uses are copied, and batches read by the copy."""
    seeds = s.rng.choice(["train_idx", "train_mask"])
    kind = "paper" if s.is_hetero else None
    sampled: dict[str, Any] = {"num_neighbors": [3, 3], "batch_size": 16}
    s.open().close()
    with patch.object(costs, "SMALL_ROW", 8):
        gz.optimize(s.path, seeds=seeds, input_type=kind, progress=False, **sampled)
        data = gz.open(s.path).data()
        nodes = (kind, data[kind][seeds]) if kind else data[seeds]
        return s.batches(NeighborLoader, data, input_nodes=nodes, **sampled)


def layerwise(s: Subject) -> Found:
    """Layers over all nodes."""
    s.open().close()
    options = {"progress": False, "out": "h2", "num_workers": s.num_workers}
    options["encoding"] = s.rng.choice([None, "float16"])
    with paged(s.is_paged):
        if s.is_hetero:
            torch.manual_seed(1)
            layer = HeteroConv({("paper", "cites", "paper"): SAGEConv(8, 4)})
            gz.inference.layerwise(layer, s.path, **options)
        elif s.rng.random() < 0.5:
            torch.manual_seed(1)
            model = GraphSAGE(8, 6, num_layers=2, out_channels=3)
            gz.inference.layerwise(model, s.path, **options)
        else:
            conv = SimpleConv("sum", combine_root=None)  # a batch of neighbours at a time
            gz.inference.layerwise(conv, s.path, max_edges=200, **options)
    data = gz.open(s.path).data()
    return {"h2": data["paper"].h2 if s.is_hetero else data.h2}


def edits(s: Subject) -> Found:
    """Attributes and edges added, replaced and removed, and read."""
    group = "paper" if s.is_hetero else None
    edge = ("author", "writes", "paper") if s.is_hetero else None
    edge_group = (None, None) if edge is None else edge
    with s.open("r+") as store:
        count, num_edges = store.num_nodes_of(group), store.num_edges_of(edge)
        assert count < 10**6
        assert num_edges < 10**6
        for _ in range(s.rng.choice([1, 2, 3])):
            kind = s.rng.randrange(4)
            fs = store.feature_store
            if kind == 0:
                value = torch.arange(float(count))
                fs.put_tensor(value, group_name=group, attr_name="fresh", index=None)
            elif kind == 1:
                fs.put_tensor(torch.ones(count, 2), group_name=group, attr_name="x", index=None)
            elif kind == 2:
                if fs.get_tensor_size(group_name=group, attr_name="time") is not None:
                    fs.remove_tensor(group_name=group, attr_name="time", index=None)
            else:
                value = torch.arange(num_edges)
                fs.put_tensor(value, group_name=edge_group, attr_name="e", index=None)
    return _everything(gz.open(s.path).data())


def columns(s: Subject) -> Found:
    """A column that is written and published."""
    group = "paper" if s.is_hetero else None
    name, width, options = s.rng.choice(
        [
            ("h", 6, {"encoding": "float16"}),
            ("g", (), {"dtype": torch.int64}),
            ("fresh", 2, {}),
        ]
    )
    with s.open("r+") as store:
        count = store.num_nodes_of(group)
        assert count < 10**6
        column = store.create_column(name, width, node_type=group, **options)
        rows = torch.arange(count * max(1, int(np.prod(column.shape))))
        column.write(0, rows.view(count, *column.shape).to(column.dtype))
        column.publish()
        data = store.data()
        return {name: (data[group] if s.is_hetero else data)[name]}


def pickles(s: Subject) -> Found:
    """Copies of what is open."""
    store = s.open()
    data = store.data()
    way = s.rng.choice([copy.copy, copy.deepcopy, lambda v: pickle.loads(pickle.dumps(v))])
    again = way(data)
    assert isinstance(again, (Data, HeteroData))
    pickle.loads(pickle.dumps(store))
    return _everything(again)


OPERATIONS: dict[Callable[[Subject], Found], int] = {
    views: 10,
    layouts: 8,
    tensors: 8,
    neighbors: 14,
    weighted: 8,
    temporal: 8,
    links: 9,
    subgraphs: 7,
    verify: 7,
    about: 3,
    ids: 4,
    optimize: 4,
    layerwise: 4,
    edits: 5,
    columns: 5,
    pickles: 4,
    walks: 6,
}

# Operations whose results do not depend on where rows and neighbours are read from.
LOADING = (neighbors, weighted, temporal, links, subgraphs)
# Operations that do nothing for every node of all types.
SPARSE = (neighbors, weighted, links, tensors, verify)
