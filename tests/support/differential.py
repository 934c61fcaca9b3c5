"""Random loaders over one graph: in memory, on disk, and PyG's own.

A case is a number, which says how a loader is made and used. Its batches are equal, bit by bit, in
memory and on disk, and agree with PyG's by the definition. ``test_differential.py`` runs the first
cases, ``python tests/fuzz/run.py loaders 0:10000`` as many as are asked for.
"""

from __future__ import annotations

import pickle
import random
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.loader
import torch_geometric.typing
from paging import paged
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling, NumNeighbors

import pyg_graphzero as gz
from graphs import check_neighborhood, check_rows, heterogeneous, homogeneous

HAS_PYG_LIB = torch_geometric.typing.WITH_PYG_LIB
WAYS = ("here", "pickled", "spawned", "inference_mode")
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "encoded": {"features": "float16"}}
LIKES = ("author", "likes", "paper")  # of which the graph has no edges
SEED_FIELDS = ("input_id", "batch_size", "seed_time", "edge_label", "edge_label_time", "tag")
REFUSALS = (ValueError, TypeError, LookupError, RuntimeError)
BATCHES = 3  # of an epoch are looked at


# The graphs ######################################################################################


def _numbers(count: int, high: int, seed: int) -> Tensor:
    return torch.randint(0, high, (count,), generator=torch.Generator().manual_seed(seed))


def _weights(count: int, seed: int) -> Tensor:
    return torch.rand(count, generator=torch.Generator().manual_seed(seed)) + 0.1


def make_graph(is_hetero: bool) -> Data | HeteroData:
    """Features that are the same in half precision; times and weights of some types."""
    if not is_hetero:
        data = homogeneous(150, 1200)
        data.x = data.x.half().float()
        data.time, data.etime = _numbers(150, 60, 1), _numbers(1200, 60, 2)
        data.weight = _weights(1200, 3)
        data.name = "one graph"
        return data
    hetero = heterogeneous()
    for node_type in ("paper", "author"):
        hetero[node_type].x = hetero[node_type].x.half().float()
    hetero["paper"].time, hetero["author"].time = _numbers(200, 60, 1), _numbers(120, 60, 2)
    for i, name in enumerate(hetero.edge_types):
        hetero[name].weight = _weights(hetero[name].num_edges, i)
        if name[0] != "venue":
            hetero[name].etime = _numbers(hetero[name].num_edges, 60, i)
    return hetero


class Graphs:
    """The graphs in memory, and their stores of every kind, made unless they are there."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.data = {is_hetero: make_graph(is_hetero) for is_hetero in (False, True)}
        for is_hetero, data in self.data.items():
            for kind, options in KINDS.items():
                if not (path := self.path(is_hetero, kind)).exists():
                    gz.convert(data, path, progress=False, **options)

    def path(self, is_hetero: bool, kind: str) -> Path:
        return self.directory / f"{'hetero' if is_hetero else 'homo'}-{kind}"


# Cases ###########################################################################################


def tag(batch: Any) -> Any:
    """A transform."""
    batch.tag = "seen"
    return batch


def keep(out: Any) -> Any:
    """A transform of a sampler's output."""
    out.metadata = tuple(out.metadata)
    return out


@dataclass
class Case:
    """How a loader is made and used."""

    seed: int
    is_hetero: bool
    is_link: bool
    seed_type: Any  # node type, edge type or None
    arguments: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)  # arguments that PyG has not
    drawn: dict[str, Any] = field(default_factory=dict)  # fields of their options
    fanouts: Any = None  # of all edge types, or by edge type
    seeds: Any = None  # nodes, or ends of edges
    ids: Any = None  # of each seed, as batches have them in ``input_id``
    is_all: bool = False  # nodes
    kind: str = "plain"
    is_paged: bool = False
    given: str = "data"  # what of the store the loader is given
    way: str = "here"  # where and how the loader is used
    num_workers: int = 0
    has_duplicates: bool = False

    def __str__(self) -> str:
        return "\n".join(f"  {key}: {value}" for key, value in vars(self).items())


def _fan_outs(rng: random.Random, case: Case, data: Any) -> Any:
    hops = rng.choice([0, 1, 2, 2, 3])
    values = [-1] * hops if rng.random() < 0.4 else rng.choices([-1, 0, 1, 2, 4], k=hops)
    case.fanouts = values
    form = rng.choice(["list", "list", "tuple", "array", "object", "dict"])
    if form == "dict" and case.is_hetero:
        by_type = {
            name: values if rng.random() < 0.5 else rng.choices([-1, 0, 2], k=hops)
            for name in data.edge_types
        }
        case.fanouts = by_type
        return by_type if rng.random() < 0.5 else NumNeighbors(by_type)
    if form == "array" and not case.is_hetero:
        return np.array(values, dtype=np.int64)
    if form == "array":
        return [np.int64(k) for k in values]
    return {"tuple": tuple(values), "object": NumNeighbors(values)}.get(form, values)


def _seed_nodes(rng: random.Random, case: Case, num_nodes: int) -> Any:
    """Seeds in some form."""
    generator = torch.Generator().manual_seed(case.seed)
    form = rng.choice(
        ["all", "mask", "index", "index", "repeated", "list", "column", "array", "int32"]
    )
    if form == "all":
        case.seeds, case.is_all = torch.arange(num_nodes), True
        return None
    if form == "mask":
        mask = torch.rand(num_nodes, generator=generator) < 0.3
        case.seeds = case.ids = mask.nonzero().view(-1)
        return mask
    index = torch.randperm(num_nodes, generator=generator)[: rng.choice([0, 1, 20, 60])]
    if form == "repeated" and len(index):
        index = index[torch.randint(0, len(index), (40,), generator=generator)]
        case.has_duplicates = True
    case.seeds = index
    forms = {
        "list": index.tolist(), "column": index.view(-1, 1), "array": index.numpy(),
        "int32": index.to(torch.int32),
    }  # fmt: skip
    return forms.get(form, index)


def _seed_edges(rng: random.Random, case: Case, data: Any) -> Any:
    generator = torch.Generator().manual_seed(case.seed)
    names = [*data.edge_types, LIKES] if case.is_hetero else [None]
    name = case.seed_type = rng.choice(names)
    ends = (None, None) if name is None else (name[0], name[2])
    counts = [int((data if t is None else data[t]).num_nodes) for t in ends]
    edges: Tensor | None = None
    if name != LIKES and rng.random() < 0.7:
        edges = (data if name is None else data[name]).edge_index
    form = "pairs" if edges is None else rng.choice(["all", "all", "edges"])
    if form == "all":
        case.seeds = edges
        return rng.choice([name, (name, None), name[::2]]) if case.is_hetero else None
    if form == "edges":
        assert edges is not None
        case.seeds = edges[:, torch.randperm(edges.size(1), generator=generator)[:60]]
    else:
        ends = [torch.randint(0, n, (40,), generator=generator) for n in counts]
        case.seeds = torch.stack(ends)
    return (name, case.seeds) if case.is_hetero else case.seeds


def make_case(seed: int, graphs: Graphs) -> Case:
    """The case of a number."""
    rng = random.Random(f"loaders {seed}")
    generator = torch.Generator().manual_seed(seed)
    case = Case(seed, rng.random() < 0.5, rng.random() < 0.45, None)
    data = graphs.data[case.is_hetero]
    arguments = case.arguments
    arguments["num_neighbors"] = _fan_outs(rng, case, data)
    if case.is_link:
        arguments["edge_label_index"] = _seed_edges(rng, case, data)
        count = case.seeds.size(1)
        modes: list[Any] = [None, None, "binary", NegativeSampling("binary", 2.0)]
        modes += [NegativeSampling("binary", 0.5), "triplet", NegativeSampling("triplet", 2)]
        negatives = NegativeSampling.cast(rng.choice(modes))
        arguments["neg_sampling"] = negatives
        labels: list[Any] = [
            None, torch.randint(0, 4, (count,), generator=generator),
            torch.rand(count, generator=generator), torch.rand(count, 2, generator=generator) + 1,
        ]  # fmt: skip
        if negatives is None or negatives.is_binary():
            arguments["edge_label"] = rng.choice(labels)
        if negatives is not None and case.seed_type != LIKES and rng.random() < 0.15:
            case.drawn["exclude_edges"] = True
    else:
        case.seed_type = rng.choice(data.node_types) if case.is_hetero else None
        num_nodes = (data[case.seed_type] if case.is_hetero else data).num_nodes
        nodes = _seed_nodes(rng, case, int(num_nodes))
        count = len(case.seeds)
        if case.is_hetero:
            nodes = (
                case.seed_type if nodes is None and rng.random() < 0.5 else (case.seed_type, nodes)
            )
        arguments["input_nodes"] = nodes
    _how_to_sample(rng, case, count, generator)
    _how_to_load(rng, case, count, generator)
    return case


def _how_to_sample(rng: random.Random, case: Case, count: int, generator: torch.Generator) -> None:
    arguments = case.arguments
    arguments["replace"] = rng.random() < 0.2
    arguments["disjoint"] = rng.random() < 0.25
    arguments["subgraph_type"] = rng.choice(["directional"] * 5 + ["bidirectional", "induced"])
    if rng.random() < 0.2:
        arguments["weight_attr"] = "weight"
    if rng.random() < 0.3:
        times = torch.randint(0, 70, (count,), generator=generator)
        arguments["time_attr"] = rng.choice(["time", "etime"])
        arguments["temporal_strategy"] = rng.choice(["uniform", "last"])
        arguments["disjoint"] = True
        has_own = case.seed_type != "venue" and arguments["time_attr"] == "time"
        if case.is_link:
            arguments["edge_label_time"] = times
        elif not has_own or rng.random() < 0.7:
            arguments["input_time"] = times
    if rng.random() < 0.1:
        case.drawn["method"] = "labor"
        case.drawn["layer_dependency"] = rng.random() < 0.5


def _how_to_load(rng: random.Random, case: Case, count: int, generator: torch.Generator) -> None:
    arguments = case.arguments
    case.ids = torch.arange(count) if case.ids is None else case.ids
    arguments["batch_size"] = rng.choice([1, 7, 32, 50])
    arguments["shuffle"] = rng.random() < 0.4 and count > 0
    arguments["drop_last"] = rng.random() < 0.2
    arguments["filter_per_worker"] = rng.choice([None, None, True, False])
    if rng.random() < 0.15:
        arguments["input_id"] = torch.randperm(count, generator=generator) + 1000
        case.ids = arguments["input_id"]
    if rng.random() < 0.2:
        arguments["transform"] = tag
    if rng.random() < 0.1:
        arguments["transform_sampler_output"] = keep
    if rng.random() < 0.1:
        case.ours["edge_ids"] = False
    case.kind = rng.choice([*KINDS])
    # LABOR wants all neighbours in memory.
    case.is_paged = rng.random() < 0.3 and "method" not in case.drawn
    case.given = rng.choice(["data", "data", "store", "stores", "pickled data"])
    case.way = rng.choices(WAYS, [6, 2, 1, 2])[0]
    case.num_workers = rng.choice([0, 0, 2])


# Outcomes ########################################################################################


@dataclass
class Outcome:
    """An epoch's first batches, or the error instead of them."""

    batches: list[Any]
    error: Exception | None = None


def run_loader(make: Callable[[], Any], seed: int) -> Outcome:
    """The first batches of a loader, or its error."""
    try:
        with warnings.catch_warnings():
            # PyG's, of relations that have no reverse to be bidirectional by.
            warnings.filterwarnings("ignore", "Cannot convert to bidirectional graph")
            loader = make()
            torch.manual_seed(seed)
            return Outcome(list(islice(iter(loader), BATCHES)))
    except REFUSALS as error:
        return Outcome([], error)


def run_pickled(loader: bytes, seed: int) -> bytes:
    """``run_loader`` for another process, where everything comes from the pickle."""
    torch.set_num_threads(1)
    return pickle.dumps(run_loader(lambda: pickle.loads(loader), seed))


def our_loader(case: Case, data: Any, num_workers: int) -> Any:
    loader = gz.loader.LinkNeighborLoader if case.is_link else gz.loader.NeighborLoader
    options = gz.SamplingOptions(**case.drawn)
    return loader(data, num_workers=num_workers, options=options, **case.arguments, **case.ours)


def on_disk(case: Case, graphs: Graphs, spawned: Any) -> Outcome:
    """The case's loader over its store."""
    store = gz.open(graphs.path(case.is_hetero, case.kind))
    given: Any = {"store": store, "stores": (store.feature_store, store.graph_store)}.get(
        case.given
    )
    if given is None:
        given = store.data()
    if case.given == "pickled data":
        given = pickle.loads(pickle.dumps(given))

    def make() -> Any:
        loader = our_loader(case, given, case.num_workers)
        return pickle.loads(pickle.dumps(loader)) if case.way == "pickled" else loader

    if case.way == "spawned" and spawned is not None:
        try:
            loader = pickle.dumps(our_loader(case, given, case.num_workers))
        except REFUSALS as error:
            return Outcome([], error)
        outcome: Outcome = pickle.loads(spawned(run_pickled, loader, case.seed))
        return outcome
    mode = torch.inference_mode() if case.way == "inference_mode" else nullcontext()
    with paged(case.is_paged), mode:
        return run_loader(make, case.seed)


def parts(batch: Any) -> dict[Any, dict[str, Any]]:
    """A batch's attributes by node and edge type, but ``num_nodes``, which a store always has."""
    return {
        store._key: {key: value for key, value in store.items() if key != "num_nodes"}
        for store in batch.stores
    }


def same(a: Any, b: Any) -> bool:
    """Bit by bit, dtype and shape included."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


def difference(a: Any, b: Any) -> str:
    """Where two batches differ; empty where they do not."""
    ours, theirs = parts(a), parts(b)
    if ours.keys() != theirs.keys():
        return f"types: {list(ours)} and {list(theirs)}"
    for name, values in ours.items():
        if values.keys() != theirs[name].keys():
            return f"{name}: keys: {sorted(values)} and {sorted(theirs[name])}"
        for key, value in values.items():
            if not same(value, theirs[name][key]):
                return f"{name}: {key}: {value} and {theirs[name][key]}"
    for x, y in zip(a.node_stores, b.node_stores, strict=True):
        if x.num_nodes != y.num_nodes:
            return f"{x._key}: num_nodes: {x.num_nodes} and {y.num_nodes}"
    return ""


# The definition ##################################################################################


def _ends(name: Any) -> tuple[Any, Any]:
    return (None, None) if name is None else (name[0], name[2])


def _of(batch: Any, name: Any) -> Any:
    return batch if name is None else batch[name]


def _types(data: Any, what: str) -> list[Any]:
    return list(getattr(data, what)) if isinstance(data, HeteroData) else [None]


def check_definition(case: Case, data: Any, batch: Any, is_ours: bool = True) -> None:
    """Edges are edges, rows belong to their nodes, seeds, counts and times are kept.

    Seeds and counts of PyG's batches are held against ours, and its edges have another order.
    """
    arguments = case.arguments
    kind = arguments["subgraph_type"]
    # A reverse has the id of the edge it reverses.
    check_rows(batch, data, turned=kind == "bidirectional")
    for name in _types(data, "node_types"):
        out = _of(batch, name)
        assert not is_ours or out.num_nodes == out.n_id.numel(), name
        if kind == "directional":
            assert sum(out.num_sampled_nodes) == out.n_id.numel(), name
    if is_ours:
        _check_seeds(case, data, batch)
    for name in _types(data, "edge_types"):
        out, whole = _of(batch, name), _of(data, name)
        if "e_id" not in out:
            continue
        src, dst = (_of(batch, end) for end in _ends(name))
        row, col = out.edge_index
        if arguments["disjoint"]:
            assert torch.equal(src.batch[row], dst.batch[col]), name
        assert not is_ours or ("num_sampled_edges" in out) == (kind == "directional"), name
        if kind != "directional":
            continue
        assert sum(out.num_sampled_edges) == out.e_id.numel(), name
        if not arguments["replace"]:
            assert torch.stack([col, out.e_id]).unique(dim=1).size(1) == col.numel(), name
        if arguments.get("time_attr"):
            _check_times(case, data, batch, name)
        elif is_ours:
            fanouts = case.fanouts[name] if isinstance(case.fanouts, dict) else case.fanouts
            check_neighborhood(
                row, col, out.e_id, src.n_id, dst.n_id, whole.edge_index, fanouts,
                dst.num_sampled_nodes[:-1], out.num_sampled_edges, arguments["replace"],
            )  # fmt: skip


def _places(case: Case, batch: Any) -> Tensor:
    """Where the batch's seeds are among all of them."""
    input_id = _of(batch, case.seed_type).input_id
    return (case.ids == input_id.view(-1, 1)).nonzero()[:, 1]


def _check_seeds(case: Case, data: Any, batch: Any) -> None:
    seeds, at = _of(batch, case.seed_type), _places(case, batch)
    assert torch.equal(_positives(case, batch), case.seeds[..., at])
    limits = _limits(case, data, batch)
    if limits is None:
        return
    if "edge_label_index" in seeds:  # negatives have the times of positives
        assert torch.equal(seeds.edge_label_time[: at.numel()], limits)
        limits = limits.repeat(-(-seeds.edge_label_time.numel() // at.numel()))
        assert torch.equal(seeds.edge_label_time, limits[: seeds.edge_label_time.numel()])
    elif case.is_link or "input_time" in case.arguments:
        src = _of(batch, _ends(case.seed_type)[0]) if case.is_link else seeds
        assert torch.equal(src.seed_time, limits)


def _limits(case: Case, data: Any, batch: Any) -> Tensor | None:
    """The time of every tree, if there are any."""
    name = "edge_label_time" if case.is_link else "input_time"
    if name in case.arguments:
        return case.arguments[name][_places(case, batch)]
    if "time_attr" not in case.arguments:
        return None
    seeds = _of(batch, case.seed_type)
    return _of(data, case.seed_type).time[seeds.n_id[: seeds.batch_size]]


def _check_times(case: Case, data: Any, batch: Any, name: Any) -> None:
    attr = case.arguments["time_attr"]
    of_edges = attr == "etime"
    whole = _of(data, name if of_edges else _ends(name)[0])
    out, src = _of(batch, name), _of(batch, _ends(name)[0])
    if attr in whole:
        row = out.edge_index[0]
        times = whole[attr][out.e_id if of_edges else src.n_id[row]]
        assert (times <= _limits(case, data, batch)[src.batch[row]]).all(), name


# PyG's own loader ################################################################################


def is_comparable(case: Case) -> bool:
    """Whether PyG has this, and is right."""
    arguments, negatives = case.arguments, case.arguments.get("neg_sampling")
    is_fraction = negatives is not None and negatives.amount % 1 > 0
    return not (
        not HAS_PYG_LIB
        or (is_fraction and arguments["disjoint"])  # PyG then mixes up whose tree is whose
        or case.ours
        or case.drawn
        or ("input_id" in arguments and case.is_all)  # PyG then leaves out the ids
        or arguments["subgraph_type"] == "induced"  # pyg-lib has none
        or (case.has_duplicates and not arguments["disjoint"])  # pyg-lib gives wrong edges
        or ("weight_attr" in arguments and "time_attr" in arguments)  # likewise has none
    )


def of_pyg(case: Case, graphs: Graphs) -> Outcome:
    """The case's loader as PyG has it."""
    loaders: Any = torch_geometric.loader
    loader = loaders.LinkNeighborLoader if case.is_link else loaders.NeighborLoader
    return run_loader(lambda: loader(graphs.data[case.is_hetero], **case.arguments), case.seed)


def is_determined(case: Case) -> bool:
    """Whether a batch holds all there is around seeds that are not drawn."""
    fanouts = case.arguments["num_neighbors"]
    values = fanouts.values if isinstance(fanouts, NumNeighbors) else fanouts
    lists = list(values.values()) if isinstance(values, dict) else [values]
    return case.arguments.get("neg_sampling") is None and all(
        k in (-1, 0) for v in lists for k in v
    )


def compare_batches(case: Case, data: Any, ours: Any, theirs: Any) -> None:
    """Asserts equal fields, dtypes, dimensions and seeds; where determined, nodes and edges."""
    a, b = parts(ours), parts(theirs)
    assert a.keys() == b.keys(), (list(a), list(b))
    for name, values in a.items():
        assert values.keys() == b[name].keys(), (name, sorted(values), sorted(b[name]))
        for key, value in values.items():
            other = b[name][key]
            assert type(value) is type(other), (name, key, value, other)
            if isinstance(value, Tensor):
                assert (value.dtype, value.dim()) == (other.dtype, other.dim()), (name, key)
                assert value.shape[1:] == other.shape[1:] or key.endswith("index"), (name, key)
            if key in SEED_FIELDS:
                assert same(value, other), (name, key, value, other)
            if key.startswith("num_sampled"):
                assert len(value) == len(other), (name, key)
    assert torch.equal(_positives(case, ours), _positives(case, theirs))
    if not is_determined(case):
        return
    for name in _types(data, "node_types"):
        assert same(_nodes(ours, name), _nodes(theirs, name)), name
        if case.arguments["subgraph_type"] == "directional":
            x, y = _of(ours, name), _of(theirs, name)
            assert x.num_sampled_nodes == y.num_sampled_nodes, name
    for name in _types(data, "edge_types"):
        x, y = _edges(case, ours, name), _edges(case, theirs, name)
        assert same(x, y), name


def _positives(case: Case, batch: Any) -> Tensor:
    """The seeds as nodes of the graph, negatives left out."""
    seeds = _of(batch, case.seed_type)
    if not case.is_link:
        return seeds.n_id[: seeds.batch_size]
    src, dst = (_of(batch, end) for end in _ends(case.seed_type))
    if "src_index" in src:
        ends = src.src_index, dst.dst_pos_index
    else:
        ends = seeds.edge_label_index[:, : seeds.input_id.numel()]
    return torch.stack([src.n_id[ends[0]], dst.n_id[ends[1]]])


def _sorted(columns: list[Tensor]) -> list[tuple[int, ...]]:
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def _nodes(batch: Any, name: Any) -> list[tuple[int, ...]]:
    out = _of(batch, name)
    return _sorted([out.n_id, out.batch] if "batch" in out else [out.n_id])


def _edges(case: Case, batch: Any, name: Any) -> list[tuple[int, ...]]:
    out = _of(batch, name)
    src, dst = (_of(batch, end) for end in _ends(name))
    row, col = out.edge_index
    columns = [src.n_id[row], dst.n_id[col]]
    if case.arguments["subgraph_type"] == "directional":
        columns.append(out.e_id)
    return _sorted([*columns, src.batch[row]] if "batch" in src else columns)


# All of it #######################################################################################


def compare_with_disk(seed: int, graphs: Graphs, spawned: Any = None) -> set[str]:
    """Memory against disk; says what was shown. ``spawned`` calls a function in a new process."""
    case = make_case(seed, graphs)
    with _explained(case):
        data = graphs.data[case.is_hetero]
        memory = run_loader(lambda: our_loader(case, data, 0), case.seed)
        disk = on_disk(case, graphs, spawned)
        if memory.error is not None or disk.error is not None:
            errors = memory.error, disk.error
            assert type(errors[0]) is type(errors[1]), (
                f"in memory {errors[0]!r}, on disk {errors[1]!r}"
            )
            assert case.drawn, f"refused: {memory.error!r}"  # some options do not go together
            return {"refused", f"refused: {str(memory.error)[:60]}"}
        assert len(memory.batches) == len(disk.batches)
        for ours, stored in zip(memory.batches, disk.batches, strict=True):
            found = difference(ours, stored)
            assert not found, f"memory and disk differ: {found}"
            check_definition(case, data, ours)
        is_paged = "paged" if case.is_paged else "mapped"
        return {"batches", case.kind, case.way, case.given, is_paged} if memory.batches else set()


def compare_with_pyg(seed: int, graphs: Graphs) -> set[str]:
    """Memory against PyG, where PyG has what the case wants and is right."""
    case = make_case(seed, graphs)
    if not is_comparable(case):
        return set()
    with _explained(case):
        data = graphs.data[case.is_hetero]
        memory = run_loader(lambda: our_loader(case, data, case.num_workers), case.seed)
        theirs = of_pyg(case, graphs)
        if theirs.error is not None:
            return {f"PyG: {type(theirs.error).__name__}: {str(theirs.error)[:80]}"}
        assert memory.error is None, f"PyG does this: {memory.error!r}"
        assert len(memory.batches) == len(theirs.batches)
        for ours, other in zip(memory.batches, theirs.batches, strict=True):
            compare_batches(case, data, ours, other)
            check_definition(case, data, other, is_ours=False)
        return {"determined" if is_determined(case) else "drawn"} if memory.batches else set()


@contextmanager
def _explained(case: Case) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise AssertionError(f"{error}\n{case}") from error
