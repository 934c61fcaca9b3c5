"""``Needs``: the files of a store that a loader reads from, and how large its batches are."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field
from enum import Enum, auto
from math import prod
from typing import Any

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.ranking import Uses
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.usage import trial_batch
from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.store.columns import EncodedRows, engine_array
from pyg_graphzero.store.contents import StoreContents


class Kind(Enum):
    """The kinds of rows that files have; files whose rows are small are held in this order."""

    BOUNDS = auto()  # of neighbourhoods, and neighbours that none may read: in memory at any price
    TABLE = auto()  # of a copy's order: in memory at any price
    ROWS = auto()  # attributes of nodes
    NEIGHBOURS = auto()
    EDGES = auto()  # attributes and ids of edges


#: Kinds of the files of topologies.
TOPOLOGY = (Kind.BOUNDS, Kind.NEIGHBOURS)
_WHY_ALL = (
    ", with all neighbours for method='labor', which looks at every neighbour of a frontier (or "
    "sample uniformly)"
)


@dataclass(frozen=True)
class Need:
    """One file that loaders read from.

    Attributes:
        name: Name of the file.
        num_rows: Number of its rows.
        row_bytes: Bytes of a row as it is stored.
        kind: The kind of its rows.
        processes: How many processes have the file mapped. They share the pages of a file that is
            held.
        packed_bytes: Bytes of a table in this process's own memory that may stand for the file;
            None where there is no such table.
        uses: Where rows lie in the order of their use: how often each of the first ones is used,
            and how many these are, again and again; rows that are not among them are hardly used.
            None: rows lie as they were converted, and recently used ones are kept.
    """

    name: str
    num_rows: int
    row_bytes: int
    kind: Kind
    processes: int = 1
    packed_bytes: int | None = None
    uses: Uses | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def used_bytes(self) -> int:
        """Bytes of the rows that are known to be used; 0 where that is not known."""
        return self.row_bytes * sum(count for _, count in self.uses or ())

    def served(self, num_bytes: int) -> float:
        """Share of the uses that so large a first part of the rows serves."""
        left, served, total = num_bytes // self.row_bytes, 0.0, 0.0
        for uses, count in self.uses or ():
            kept = min(count, left)
            left -= kept
            served += uses * kept
            total += uses * count
        return served / total if total else 0.0

    def missed(self, num_bytes: int) -> float:
        """Share of the uses in another epoch that so large a first part of the rows misses, about.

        Further batches use rows that no counted one had as often as counted ones had rows that no
        other had (I. J. Good, "The population frequencies of species", 1953). Among rows that are
        used ``uses`` times in the mean, about one in ``uses`` is such a row.
        """
        once = sum(count * uses / max(1.0, uses) ** 2 for uses, count in self.uses or ())
        total = sum(count * uses for uses, count in self.uses or ())
        return max(1 - self.served(num_bytes), once / max(1.0, total))

    @property
    def held_bytes(self) -> int:
        """One process's share of the file, if it is held whole."""
        return -(-self.num_bytes // self.processes)

    @property
    def is_packed(self) -> bool:
        """Whether the table is smaller than the file; it then stands for it, unless all fits."""
        return self.packed_bytes is not None and self.packed_bytes < self.held_bytes

    @property
    def least_bytes(self) -> int:
        """This process's bytes for the file if it is held, and not all files are."""
        return self.packed_bytes or 0 if self.is_packed else self.held_bytes


@dataclass(frozen=True)
class BatchSize:
    """Memory of one batch, in bytes unless said otherwise.

    Attributes:
        sampled: Its nodes and edges, while it waits for its rows.
        whole: All of it with its rows, as the consumer gets it.
        nodes: Number of its nodes of all types.
        reading: All of it while the neighbours of its last hop are read, none of which is in
            memory.
        sources: The part of ``reading`` that these neighbours take.
        edges: Number of its edges of all types.
    """

    sampled: int = 0
    whole: int = 0
    nodes: int = 0
    reading: int = 0
    sources: int = 0
    edges: int = 0

    @property
    def sampling(self) -> int:
        """Bytes of its nodes and edges until its ids are narrowed."""
        return int(costs.SLACK * (costs.NODE * self.nodes + costs.EDGE * self.edges))

    def larger(self, other: BatchSize) -> BatchSize:
        """One that is as large as both in every respect."""
        return BatchSize(*map(max, astuple(self), astuple(other)))

    def over(self, other: BatchSize) -> float:
        """How much larger it is than another, as a factor."""
        return max(self.sampled / max(1, other.sampled), self.whole / max(1, other.whole))


@dataclass(frozen=True)
class Needs:
    """The needs of a loader.

    Attributes:
        files: The files that it reads from.
        batch: Size of its largest batch, with some slack.
        epoch: How many batches an epoch has.
        seeds: How many seeds an epoch has.
        trial: The rows of one batch, by node type; empty where there are no seeds. Two loaders that
            sample in the same way around the same seeds have equal ones.
        is_summed: Batches have sums of neighbours' rows.
        why: Why more is in memory at any price than other loaders have, for an error.
    """

    files: tuple[Need, ...]
    batch: BatchSize = BatchSize()
    epoch: int = 0
    seeds: int = 0
    trial: list[Tensor] = field(default_factory=list)
    is_summed: bool = False
    why: str = ""

    @property
    def processes(self) -> int:
        """How many processes have the files mapped, and a budget each."""
        return max((file.processes for file in self.files), default=1)

    def of(self, kind: Kind) -> list[Need]:
        """The files of a kind."""
        return [file for file in self.files if file.kind is kind]


def needs_of(loader: BatchSource, reading: Reading | None = None) -> Needs:
    """The needs of a loader, by one batch that is sampled as it would sample; no row is read.

    Args:
        loader: The loader. torch's generator is left as it is.
        reading: Where it finds neighbours, see ``GraphSampler.recipe``.
    """
    size, trial = BatchSize(), []
    files, seeds = tuple(files_of(loader)), len(loader.dataset)
    number = 4 if all(file.num_rows <= 1 << 32 for file in files) else 8
    batch = trial_batch(loader, reading)
    if batch is not None:
        size, trial = batch_size(loader, batch, number), list(batch.nodes)
    is_summed = loader.first_aggregation is not None
    why = "" if loader.graph_sampler.may_read else _WHY_ALL
    return Needs(files, size, loader.epoch_length(), seeds, trial, is_summed, why)


def batch_size(loader: BatchSource, batch: _core.Batch, number: int = 4) -> BatchSize:
    """Size of a loader's batch, with some slack; numbers of edges take ``number`` bytes."""
    row_bytes, inner_bytes, keeps_slots = bytes_of_batches(loader)
    names = loader.graph_sampler.graph.node_types
    nodes = [rows.numel() for rows in batch.nodes]
    inner = [sum(hops[:-1]) for hops in batch.num_sampled_nodes]
    whole = costs.NODE * sum(nodes) + costs.EDGE * batch.num_edges
    whole += sum(
        row_bytes[name] * of_all + inner_bytes[name] * of_inner
        for name, of_all, of_inner in zip(names, nodes, inner, strict=True)
    )
    ids = [*batch.nodes, *batch.trees, *(end for both in batch.edge_index for end in both)]
    ids += batch.slots if keeps_slots else []
    waits = sum(_core.narrow_bytes(engine_array(each)) for each in ids)
    sources = costs.READ_SOURCE * batch.num_edges
    edges = (costs.READ_END + 2 * number) * batch.num_edges
    reading = edges + sources + costs.READ_NODE * sum(inner)
    sizes = (int(costs.SLACK * size) for size in (waits, whole, reading, sources))
    waits, whole, reading, sources = sizes
    return BatchSize(waits, whole, sum(nodes), reading, sources, batch.num_edges)


def files_of(loader: BatchSource) -> list[Need]:
    """Files of a store that a loader reads from."""
    graph = loader.graph_sampler.graph
    contents: StoreContents = graph.contents
    sharers = contents.processes

    def column(file: str, kind: Kind) -> Need:
        found = contents.column(file)
        return Need(file, found.shape[0], found.row_bytes, kind, sharers)

    files: list[Need] = []
    for i, name in enumerate(graph.edge_types):
        if loader.maps_topology or not graph.on_disk(name):
            continue
        topology, record = contents.topology(name), contents.edge_type(name)
        num_edges = topology.num_edges
        packed = _core.PackedBounds.num_bytes(topology.num_dst, num_edges)
        sizes = topology.num_dst + 1, 8
        files.append(Need(bounds_of(i), *sizes, Kind.BOUNDS, sharers, packed))
        packed = _core.PackedSources.num_bytes(topology.num_src, num_edges)
        sizes = num_edges, topology.index_bytes
        kind = Kind.NEIGHBOURS if loader.graph_sampler.may_read else Kind.BOUNDS
        files.append(Need(record.topology, *sizes, kind, sharers, packed))
        if record.edge_id is not None and loader.edge_ids:
            files.append(column(record.edge_id, Kind.EDGES))
    edge_files = {file for t in contents.schema.edge_types for file in t.attrs.values()}
    for store in loader.data.stores:
        for _, value in raw_items(store):
            file = file_of(contents, value)
            if file is not None:
                files.append(column(file, Kind.EDGES if file in edge_files else Kind.ROWS))
    return files


def bounds_of(edge_type: int) -> str:
    """Name of the bounds of an edge type's neighbourhoods, which are a part of its topology."""
    return f"indptr {edge_type}"


def file_of(contents: StoreContents, value: Any) -> str | None:
    """The file that an attribute's rows are in; None where they are not, or were changed."""
    if isinstance(value, OnDemand):
        value = None if value.is_built else value.rows
    stored = value.stored if isinstance(value, EncodedRows) else value
    if not isinstance(stored, Tensor) or stored.dim() == 0:
        return None
    return contents.file_of(stored)


def owners_of(contents: StoreContents) -> dict[str, str | None]:
    """The node type that each file has attributes of."""
    return {file: t.name for t in contents.schema.node_types for file in t.attrs.values()}


def bytes_of_rows(data: Any, *, but: str | None = None) -> dict[str | None, int]:
    """Bytes of one node's attributes and id in a batch, by node type.

    Args:
        data: The graph.
        but: An attribute that does not count.
    """
    found: dict[str | None, int] = {}
    for name, store in node_storages(data).items():
        found[name] = costs.NODE
        for key, value in raw_items(store):
            is_rows = isinstance(value, Tensor | EncodedRows | OnDemand)
            if is_rows and key != but and store.is_node_attr(key):
                found[name] += prod(value.shape[1:]) * value.dtype.itemsize
    return found


def bytes_of_batches(
    loader: BatchSource,
) -> tuple[dict[str | None, int], dict[str | None, int], bool]:
    """Bytes of a node in a loader's batches, and bytes more of a node before the last hop.

    With ``first_aggregation`` only nodes before the last hop have features, and a sum for each
    edge type that leads to them.

    Returns:
        Both by node type, and whether batches have slots of edges: for edge ids, or attributes.
    """
    every = bytes_of_rows(loader.data)
    has_slots = (
        loader.edge_ids
        or not loader.graph_sampler.is_final
        or any(
            key == "adj_t" or (key != "edge_index" and store.is_edge_attr(key))
            for store in edge_storages(loader.data).values()
            for key, _ in raw_items(store)
        )
    )
    if loader.first_aggregation is None:
        return every, dict.fromkeys(every, 0), has_slots
    others = bytes_of_rows(loader.data, but="x")
    ends = [name if name is None else name[2] for name in loader.graph_sampler.graph.edge_types]
    inner = {name: (every[name] - others[name]) * (1 + ends.count(name)) for name in every}
    return others, inner, has_slots
