"""Counts of edges and degrees, by one pass over each topology."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.reporting.components import PIECE, ComponentReport, Components
from pyg_graphzero.reporting.nodes import Update
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.csc import edge_slices
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.tune.seeds import ChosenSeeds

#: By node type, the class of each node (``int16``); negative: none.
Labels: TypeAlias = Mapping[str | None, Tensor]
_HUBS = 5


@dataclass
class Degrees:
    """How many edges nodes have, in one direction.

    Attributes:
        mean: Edges by node.
        p99: 99% of the nodes have no more.
        largest: The most that a node has.
        top_share: The share of all edges that 1% of the nodes have, those of most edges.
        hubs: The nodes of most edges, each with its number.
        histogram: Nodes that have none, 1, 2 to 3, 4 to 7 and so on.
    """

    mean: float = 0.0
    p99: int = 0
    largest: int = 0
    top_share: float = 0.0
    hubs: list[tuple[int, int]] = field(default_factory=list)
    histogram: list[int] = field(default_factory=list)

    @classmethod
    def of(cls, counts: np.ndarray) -> Degrees:
        """From the number of each node, which are sorted in place."""
        num = len(counts)
        if num == 0:
            return cls()
        hubs: list[tuple[int, int]] = []
        for first in range(0, num, PIECE):
            part = counts[first : first + PIECE]
            at = np.argpartition(part, -min(_HUBS, len(part)))[-_HUBS:]
            hubs = sorted([*hubs, *((-int(part[i]), first + int(i)) for i in at)])[:_HUBS]
        counts.sort()
        total, largest = int(counts.sum(dtype=np.int64)), int(counts[-1])
        steps = np.array([0, *(1 << k for k in range(largest.bit_length()))], counts.dtype)
        histogram = np.diff([*np.searchsorted(counts, steps), num]).tolist()
        return cls(
            mean=total / num,
            p99=int(counts[(num - 1) * 99 // 100]),
            largest=largest,
            top_share=int(counts[num - -(-num // 100) :].sum(dtype=np.int64)) / max(1, total),
            hubs=[(node, -degree) for degree, node in hubs],
            histogram=histogram,
        )


@dataclass
class EdgeReport:
    """One edge type.

    Attributes:
        name: Its name; None in a homogeneous store.
        num_edges: Number of edges.
        dangling: Edges whose source is no node.
        duplicates: Edges beyond the first between the same two nodes.
        self_loops: Edges from a node to itself.
        in_degree: Edges that end in a node: messages that it gets.
        out_degree: Edges that begin in a node.
        labelled: Edges between two nodes with a label, where both are of one type.
        same_label: Edges among them between nodes of the same label.
        by_chance: How many of them would be, had each end a label drawn from those of all ends.
        homophily: Share of equal labels, less chance: 1 where all are equal, 0 where they are by
            chance.
    """

    name: EdgeType | None
    num_edges: int
    dangling: int = 0
    duplicates: int = 0
    self_loops: int = 0
    in_degree: Degrees = field(default_factory=Degrees)
    out_degree: Degrees = field(default_factory=Degrees)
    labelled: int = 0
    same_label: int = 0
    by_chance: float = 0.0
    homophily: float | None = None


class EdgePass:
    """Looks at all edges of a store, type by type.

    Args:
        contents: The store.
        labels: Classes of nodes.
        progress: Called with the number of edges that were looked at.
    """

    def __init__(self, contents: StoreContents, labels: Labels, progress: Update) -> None:
        self._contents, self._labels, self._progress = contents, labels, progress
        records = contents.schema.node_types
        self._linked = {each.name: np.zeros(each.num_nodes, np.bool_) for each in records}
        ends = accumulate((each.num_nodes for each in records), initial=0)
        self._offsets = dict(zip(self._linked, ends, strict=False))
        self._components = Components(sum(each.num_nodes for each in records))

    def all(self) -> list[EdgeReport]:
        """All edge types.

        Raises:
            FormatError: A topology is damaged; sources that are no nodes are counted.
        """
        return [self._look(each.name) for each in self._contents.schema.edge_types]

    def isolated(self, node_type: str | None) -> int:
        """Nodes of a type without any edge."""
        return int(np.count_nonzero(~self._linked[node_type]))

    def components_with(self, seeds: ChosenSeeds | None) -> ComponentReport:
        """Nodes that edges of any type and direction join; seeds count that have a name."""
        if seeds is None or not seeds.name:
            return self._components.report()
        first, num_nodes = self._offsets[seeds.node_type], len(self._linked[seeds.node_type])
        nodes = seeds.nodes[(seeds.nodes >= 0) & (seeds.nodes < num_nodes)]
        return self._components.report(nodes + first, seeds.name)

    def _look(self, name: EdgeType | None) -> EdgeReport:
        """All edges of a type."""
        topology = self._contents.topology(name)
        src, dst = (None, None) if name is None else (name[0], name[2])
        num_src, num_dst, num_edges = topology.num_src, topology.num_dst, topology.num_edges
        found = EdgeReport(name, num_edges)
        kind = np.int32 if num_edges < 1 << 31 else np.int64
        counts = np.empty(num_dst, kind)
        for first in range(0, num_dst, PIECE):
            bounds = topology.bounds(first, min(first + PIECE, num_dst))
            counts[first : first + PIECE] = bounds.diff().numpy()
        topology.forget_pages()
        np.logical_or(self._linked[dst], counts, out=self._linked[dst])
        found.in_degree = Degrees.of(counts)
        counts = np.zeros(num_src, kind)
        out, ones = torch.from_numpy(counts), torch.ones(1, dtype=torch.from_numpy(counts).dtype)
        labels = self._labels.get(src) if src == dst else None
        classes = 0 if labels is None else max(1, int(labels.max()) + 1)
        ends = torch.zeros(2, classes, dtype=torch.int64)
        parallel = _Parallel(num_src)
        for sources, rows in edge_slices(topology, checked=False):
            self._progress(len(sources))
            inside = (sources >= 0) & (sources < num_src)
            if not inside.all():
                sources, rows = sources[inside], rows[inside]
                found.dangling += len(inside) - len(sources)
            out.scatter_add_(0, sources, ones.expand(len(sources)))
            found.duplicates += parallel.count(sources, rows)
            if src == dst:
                found.self_loops += int((sources == rows).sum())
            self._components.join(sources + self._offsets[src], rows + self._offsets[dst])
            if labels is not None:
                known = torch.stack([labels[sources], labels[rows]])
                known = known[:, (known >= 0).all(0)]
                found.labelled += known.shape[1]
                found.same_label += int((known[0] == known[1]).sum())
                ends += torch.stack([torch.bincount(end, minlength=classes) for end in known])
        found.by_chance = float(ends.double().prod(0).sum()) / max(1, found.labelled)
        apart = found.labelled - found.by_chance
        found.homophily = (found.same_label - found.by_chance) / apart if apart > 0 else None
        np.logical_or(self._linked[src], counts, out=self._linked[src])
        found.out_degree = Degrees.of(counts)
        return found


class _Parallel:
    """Counts edges beyond the first between two nodes, where those to a node come together.

    Each source has a mark where the edges to one node come in several slices.
    """

    def __init__(self, num_src: int) -> None:
        self._num_src = num_src
        self._row = -1
        self._seen: np.ndarray | None = None

    def count(self, sources: Tensor, rows: Tensor) -> int:
        """Parallel edges of a slice."""
        if len(rows) == 0:
            return 0
        first = int(rows[0])
        keys = ((rows - first) * self._num_src + sources).numpy()
        keys.sort()
        is_new = np.ones(len(keys), np.bool_)
        np.not_equal(keys[1:], keys[:-1], out=is_new[1:])
        if first == int(rows[-1]):
            if self._seen is None or self._row != first:
                self._row, self._seen = first, np.zeros(self._num_src, np.bool_)
            is_new &= ~self._seen[keys]
            self._seen[keys] = True
        return len(keys) - int(np.count_nonzero(is_new))
