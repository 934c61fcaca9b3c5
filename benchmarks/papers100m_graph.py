"""A graph of the shape of ogbn-papers100M, at any scale up to its own, in bounded memory.

At scale 1 it has exactly as many nodes, citations, features, classes and nodes of each split.
Papers belong to communities, most of which have one topic; the class of a paper is its topic, known
for the nodes of the splits alone, which lie in a few communities. Features are the centroid of the
topic under much noise, so that a paper's own features tell something of its class, and those of
its neighbours more.

Where citations lead was chosen so that training on both directions with 10, 10, 10 neighbours
touches what is published of the real graph (``papers100m_shape.py`` measures it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from harness.communities import CommunityGraph, made_ahead
from pyg_graphzero.store.csc import CscOptions
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.store.writer import StoreWriter

NUM_NODES = 111_059_956
NUM_EDGES = 1_615_685_872
NUM_FEATURES = 128
NUM_CLASSES = 172
SPLIT = {"train": 1_207_179, "valid": 125_265, "test": 214_338}
MASKS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}

_COMMUNITIES = 10_000
_COMMUNITY_NODES = 100  # at least, at small scales
# Communities that have labels, as a share; more at small scales, so that all classes occur.
_LABELLED = 0.03
# No paper cites more than this share of the papers.
_LARGEST = 0.002
# Share of papers that have the topic of their community.
_PURITY = 0.8
_BLOCK_EDGES = 1 << 16
# Kinds of citations that are no distance between communities.
_EVENLY, _HUB, _ANYWHERE = 1 << 28, (1 << 28) + 1, (1 << 28) + 2
# How far centroids lie from the origin, in each feature, in units of the noise.
_SIGNAL = 0.25
# Noise is the sum of a row of each of two tables: a million different ones out of 0.5 MB each.
_TABLE_BITS = 10
_BLOCK_ROWS, _SLAB_ROWS = 1 << 11, 1 << 16
# Odd numbers for multiplicative hashing (Knuth, TAOCP 3, 6.4): one for each table.
_HASH = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)


@dataclass(frozen=True)
class Citations:
    """Distribution of the citations.

    Attributes:
        inside: Share of the citations that stay in the community.
        nearby: Share of the citations that lead to a community nearby. The rest leads to hubs of
            the field.
        anywhere: Share of the citations, out of this rest, that lead to any paper of the graph.
        evenly: Share of the citations inside that lead to any paper of the community, well-known
            or not.
        field: Share of the communities that cite each other, the labelled ones among them; the
            others make up a second field.
        unreferencing: Share of the papers that cite none.
        uncited: Share of the papers of a community that are cited ``evenly`` or not at all.
        alpha: Exponent of the power law of the number of papers that one cites.
        skew: Exponent of the rank: the cited paper has rank u^skew in its community, so that a
            larger exponent concentrates citations on fewer papers.
        hub_skew: Exponent of the rank among the hubs of a field.
    """

    inside: float
    nearby: float
    anywhere: float
    evenly: float
    field: float
    unreferencing: float
    uncited: float
    alpha: float
    skew: float
    hub_skew: float


BOTH_WAYS = Citations(0.35, 0.15, 0.006, 0.2, 0.31, 0.6, 0.57, alpha=3, skew=3, hub_skew=1.25)
# For stores of one direction, in which nearly all papers are within reach of a seed.
ONE_WAY = Citations(0.55, 0.15, 0, 0, 1, 0, 0, alpha=1.6, skew=2.5, hub_skew=2)


@dataclass(frozen=True)
class PapersGraph(CommunityGraph):
    """Parameters of the graph; each of its parts is made when it is asked for.

    Attributes:
        scale: Share of the nodes, citations and split of the real one.
        directed: Neighbours of a paper are those it cites, not those that cite it too.
    """

    chunk_nodes = 1 << 16

    scale: float = 1.0
    directed: bool = False

    @classmethod
    def of(cls, scale: float, seed: int = 0, directed: bool = False) -> PapersGraph:
        """The graph of one scale.

        Raises:
            ValueError: ``scale`` is not in 0 … 1, or leaves too few nodes.
        """
        if not 0 < scale <= 1:
            raise ValueError(f"scale: found {scale}, expected more than 0 and at most 1")
        num_nodes = round(scale * NUM_NODES)
        communities = max(1, min(_COMMUNITIES, num_nodes // _COMMUNITY_NODES))
        labelled = max(round(_LABELLED * communities), min(NUM_CLASSES, communities))
        return cls(
            num_nodes=num_nodes,
            edges_per_node=NUM_EDGES / NUM_NODES,
            num_features=NUM_FEATURES,
            num_communities=communities,
            seed_share=SPLIT["train"] / NUM_NODES,
            seed_communities=labelled / communities,
            seed=seed,
            scale=scale,
            directed=directed,
        )

    @property
    def citations(self) -> Citations:
        """Distribution of the citations, by the store's directions."""
        return ONE_WAY if self.directed else BOTH_WAYS

    @property
    def num_edges(self) -> int:
        """Number of citations, exact; a store of both directions has up to twice as many edges."""
        return round(self.scale * NUM_EDGES)

    @property
    def options(self) -> CscOptions | None:
        """See :class:`CommunityGraph`: both directions, as PyG's example has them."""
        if self.directed:
            return None
        return CscOptions(undirected=True, coalesce="first", edge_ids=False)

    @cached_property
    def split(self) -> dict[str, np.ndarray]:
        """Ids of the training, validation and test nodes, ascending, ``int64`` each."""
        labelled = round(self.seed_communities * self.num_communities) * self.community_size
        counts = {name: max(1, round(self.scale * count)) for name, count in SPLIT.items()}
        rng = np.random.default_rng((self.seed, 1))
        places = rng.permutation(min(labelled, self.num_nodes))[: sum(counts.values())]
        ids = self.id_of[places].astype(np.int64)
        bounds = np.cumsum(list(counts.values()))[:-1]
        parts = np.split(ids, bounds)
        return {name: np.sort(part) for name, part in zip(counts, parts, strict=True)}

    def train_nodes(self) -> Tensor:
        """The training seeds by id, ascending: ``int64 [any]``."""
        return torch.from_numpy(self.split["train"])

    @cached_property
    def topic_of(self) -> np.ndarray:
        """``uint8 [num_nodes]``: the topic of every id, that of most papers of its community."""
        topics = np.empty(self.num_nodes, np.uint8)
        for number, begin in enumerate(range(0, self.num_nodes, 1 << 20)):
            part = topics[begin : begin + (1 << 20)]
            rng = np.random.default_rng((self.seed, 3, number))
            place = self.place_of[begin : begin + len(part)]
            part[:] = place // np.int32(self.community_size) % np.int32(NUM_CLASSES)
            other = rng.random(len(part), dtype=np.float32) >= _PURITY
            part[other] = rng.integers(0, NUM_CLASSES, int(other.sum()), dtype=np.uint8)
        return topics

    def labels(self) -> Tensor:
        """The class of nodes of the splits, -1 for the others: ``int64 [num_nodes]``."""
        known = np.concatenate(list(self.split.values()))
        found = torch.full((self.num_nodes,), -1)
        found[known] = torch.from_numpy(self.topic_of[known].astype(np.int64))
        return found

    def masks(self) -> Iterator[tuple[str, Tensor]]:
        """``train_mask``, ``val_mask`` and ``test_mask``, one after the other."""
        for name, ids in self.split.items():
            mask = torch.zeros(self.num_nodes, dtype=torch.bool)
            mask[ids] = True
            yield MASKS[name], mask

    def features(self) -> _Features:
        """``float32 [num_nodes, 128]``, made as they are read."""
        return _Features(self)

    def _write_nodes(self, writer: StoreWriter) -> None:
        writer.add_node_attr(None, "y", self.labels())
        for name, mask in self.masks():
            writer.add_node_attr(None, name, mask)

    def _degrees(self, rng: np.random.Generator, begin: int, end: int) -> np.ndarray:
        """In-degrees that sum up to this range's share of the edges, whatever is drawn."""
        alpha, share = self.citations.alpha, 1 - self.citations.unreferencing
        # Lomax's distribution begins at 0: as of papers, some have no neighbours.
        wanted = rng.random(end - begin) ** (-1 / alpha) - 1
        if share < 1:
            wanted[rng.random(end - begin) >= share] = 0
        unit = self.edges_per_node / share * (alpha - 1)
        upto = np.cumsum(np.minimum(wanted, max(1.0, _LARGEST * self.num_nodes / unit)))
        first, last = (each * self.num_edges // self.num_nodes for each in (begin, end))
        upto = np.rint(upto * ((last - first) / max(upto[-1], 1e-9))).astype(np.int64)
        return np.diff(upto, prepend=0)

    @cached_property
    def _fields(self) -> tuple[np.int32, np.int32]:
        """Where the second field begins, and the number of communities."""
        first = round(self.citations.field * self.num_communities)
        return np.int32(max(1, first)), np.int32(self.num_communities)

    @cached_property
    def _shifts(self) -> np.ndarray:
        """``int32 [65536]``: how many communities away a source is, for 16 random bits.

        0 in its own, else 1, 2, … with falling probability to either side; or one of the kinds
        below.
        """
        cites, (first, communities) = self.citations, self._fields
        share = (np.arange(1 << 16) + 0.5) / (1 << 16)
        shifts = np.full(1 << 16, _HUB, np.int32)
        shifts[share < cites.inside] = 0
        shifts[share < cites.inside * cites.evenly] = _EVENLY
        near = (share >= cites.inside) & (share < cites.inside + cites.nearby)
        u = np.linspace(-1, 1, int(near.sum()))
        farthest = max(1, int(min(first, communities - first or communities)) // 2)
        far = np.minimum(1 / np.maximum(1 - np.abs(u), 1e-9), farthest)
        shifts[near] = np.sign(u) * np.maximum(far, 1)
        shifts[share >= 1 - cites.anywhere] = _ANYWHERE
        return shifts

    def _sources(self, rng: np.random.Generator, place: np.ndarray) -> np.ndarray:
        """A source for every edge into these places, by id; 64 random bits are enough for one."""
        out = np.empty(len(place), np.int32)
        for begin in range(0, len(place), _BLOCK_EDGES):
            part = place[begin : begin + _BLOCK_EDGES]
            bits = rng.bit_generator.random_raw(len(part))
            out[begin : begin + len(part)] = self._places(bits, part)
        return self.id_of[out]

    def _places(self, bits: np.ndarray, place: np.ndarray) -> np.ndarray:
        cites, (first, communities) = self.citations, self._fields
        size, known = np.int32(self.community_size), np.float32(1 - cites.uncited)
        u = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        shift = self._shifts[bits & np.uint64(0xFFFF)]
        evenly, hubs = (np.flatnonzero(shift == kind) for kind in (_EVENLY, _HUB))
        anywhere = np.flatnonzero(shift == _ANYWHERE)
        shift[shift >= _EVENLY] = 0
        own = place // size
        begin = np.where(own < first, np.int32(0), first)
        end = np.where(own < first, first, communities)
        community = own + shift
        community[community >= end] -= (end - begin)[community >= end]
        community[community < begin] += (end - begin)[community < begin]
        rank = known * u ** np.float32(cites.skew)
        rank[evenly] = u[evenly]
        source = community * size + (rank * np.float32(size)).astype(np.int32)
        # Hubs are spread over communities: rank r of all is rank r / communities of one of them.
        for edges, upto, lowest, among in (
            (hubs, known, begin[hubs], (end - begin)[hubs]),
            (anywhere, 1.0, np.int32(0), communities),
        ):
            rank = (bits[edges] >> np.uint64(16)).astype(np.float64) * 2.0**-48
            if edges is hubs:
                rank **= cites.hub_skew
            hub = (rank * (among * (size * upto))).astype(np.int32)
            source[edges] = (lowest + hub % among) * size + hub // among
        return np.minimum(source, np.int32(self.num_nodes - 1))


class _Features(Rows):
    """The centroid of a node's topic, and noise that depends on its id alone."""

    def __init__(self, graph: PapersGraph) -> None:
        super().__init__((graph.num_nodes, graph.num_features), torch.float32)
        generator = torch.Generator().manual_seed(graph.seed)
        rows = 1 << _TABLE_BITS
        noise = torch.randn(2 * rows, graph.num_features, generator=generator) / 2**0.5
        centroids = torch.randn(NUM_CLASSES, graph.num_features, generator=generator)
        self._noise = [table.numpy() for table in noise.split(rows)]
        self._centroids = _SIGNAL * centroids.numpy()
        self._topic_of = graph.topic_of

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        out = np.empty((end - begin, *self.shape[1:]), np.float32)
        # In pieces that stay in the cache while three rows are added up.
        for at in range(begin, end, _BLOCK_ROWS):
            nodes = np.arange(at, min(at + _BLOCK_ROWS, end), dtype=np.uint64)
            first, second = (
                ((nodes + np.uint64(1)) * np.uint64(key) >> np.uint64(64 - _TABLE_BITS)).view(
                    np.int64
                )
                for key in _HASH
            )
            rows = out[at - begin : at - begin + len(nodes)]
            # The mode that does not check first, which would need a copy of the rows.
            np.take(self._noise[0], first, axis=0, out=rows, mode="clip")
            rows += self._noise[1].take(second, axis=0)
            rows += self._centroids.take(self._topic_of[nodes.view(np.int64)], axis=0)
        return torch.from_numpy(out)

    def slabs(self, num_rows: int | None = None) -> Iterator[Tensor]:
        """See :meth:`Rows.slabs`."""
        step = num_rows or _SLAB_ROWS

        def slab(number: int) -> Tensor:
            return self.read(number * step, min((number + 1) * step, len(self)))

        return made_ahead(slab, range(-(-len(self) // step)))
