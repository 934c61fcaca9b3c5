"""A graph of the shape of ogbn-papers100M, at any scale up to its own, in bounded memory.

At scale 1 it has exactly as many nodes, edges, features, classes and nodes of each split. Papers
belong to communities, most of which have one topic; the class of a paper is its topic, known for
the nodes of the splits alone, which lie in a few communities. Features are the centroid of the
topic under much noise, so that a paper's own features tell something of its class, and those of
its neighbours more.
"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.bench.communities import CommunityGraph, made_ahead
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
# In-degrees follow a power law of this exponent, and nobody has more than this share of the nodes.
_ALPHA = 1.6
_LARGEST = 0.002
# Shares of papers that have the topic of their community, and of edges that stay in it or lead to
# one nearby; the others lead to hubs anywhere.
_PURITY = 0.8
_INSIDE, _NEARBY = 0.55, 0.15
_BLOCK_EDGES = 1 << 16
# How far centroids lie from the origin, in each feature, in units of the noise.
_SIGNAL = 0.25
# Noise is the sum of a row of each of two tables: a million different ones out of 0.5 MB each.
_TABLE_BITS = 10
_BLOCK_ROWS, _SLAB_ROWS = 1 << 11, 1 << 16
# Odd numbers for multiplicative hashing (Knuth, TAOCP 3, 6.4): one for each table.
_HASH = (0x9E3779B97F4A7C15, 0xD1342543DE82EF95)


@dataclass(frozen=True)
class PapersGraph(CommunityGraph):
    """What the graph is; nothing is made until it is asked for.

    Attributes:
        scale: Share of the nodes, edges and split of the real one.
    """

    chunk_nodes = 1 << 16

    scale: float = 1.0

    @classmethod
    def of(cls, scale: float, seed: int = 0) -> PapersGraph:
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
        )

    @property
    def num_edges(self) -> int:
        """Exactly so many."""
        return round(self.scale * NUM_EDGES)

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

    def features(self) -> Rows:
        """``float32 [num_nodes, 128]``, made as they are read."""
        return _Features(self)

    def _write_nodes(self, writer: StoreWriter) -> None:
        writer.add_node_attr(None, "y", self.labels())
        for name, mask in self.masks():
            writer.add_node_attr(None, name, mask)

    def _degrees(self, rng: np.random.Generator, begin: int, end: int) -> np.ndarray:
        """In-degrees that sum up to this range's share of the edges, whatever is drawn."""
        # Lomax's distribution begins at 0: as of papers, some have no neighbours.
        wanted = rng.random(end - begin) ** (-1 / _ALPHA) - 1
        unit = self.edges_per_node * (_ALPHA - 1)
        upto = np.cumsum(np.minimum(wanted, max(1.0, _LARGEST * self.num_nodes / unit)))
        first, last = (each * self.num_edges // self.num_nodes for each in (begin, end))
        upto = np.rint(upto * ((last - first) / upto[-1])).astype(np.int64)
        return np.diff(upto, prepend=0)

    @cached_property
    def _shifts(self) -> np.ndarray:
        """``int32 [65536]``: how many communities away a source is, for 16 random bits.

        0 in its own, else 1, 2, … with falling probability to either side; ``num_communities`` says
        anywhere.
        """
        share = (np.arange(1 << 16) + 0.5) / (1 << 16)
        shifts = np.full(1 << 16, self.num_communities, np.int32)
        shifts[share < _INSIDE] = 0
        near = (share >= _INSIDE) & (share < _INSIDE + _NEARBY)
        u = np.linspace(-1, 1, int(near.sum()))
        far = np.minimum(1 / np.maximum(1 - np.abs(u), 1e-9), self.num_communities // 2)
        shifts[near] = np.sign(u) * np.maximum(far, 1)
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
        size, communities = np.int32(self.community_size), np.int32(self.num_communities)
        u = (bits >> np.uint64(40)).astype(np.float32) * np.float32(2**-24)
        shift = self._shifts[bits & np.uint64(0xFFFF)]
        community = place // size + shift
        community[community >= communities] -= communities
        community[community < 0] += communities
        # Of a community, the node of rank u^2.5: larger exponents mean stronger hubs.
        source = community * size + (u * u * np.sqrt(u) * np.float32(size)).astype(np.int32)
        anywhere = np.flatnonzero(shift == communities)
        # Hubs are spread over communities: rank r of all is rank r / communities of one of them.
        rank = (bits[anywhere] >> np.uint64(16)).astype(np.float64) * 2.0**-48
        hub = (rank * rank * self.num_nodes).astype(np.int32)
        source[anywhere] = hub % communities * size + hub // communities
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
            upto = min(at + _BLOCK_ROWS, end)
            self.rows(np.arange(at, upto), out[at - begin : upto - begin])
        return torch.from_numpy(out)

    def rows(self, nodes: np.ndarray, out: np.ndarray) -> None:
        """Those of some nodes, ``int64 [n]``, into ``out``."""
        hashes = [(nodes.astype(np.uint64) + np.uint64(1)) * np.uint64(key) for key in _HASH]
        first, second = ((each >> np.uint64(64 - _TABLE_BITS)).astype(np.int64) for each in hashes)
        # The mode that does not check first, which would need a copy of the rows.
        np.take(self._noise[0], first, axis=0, out=out, mode="clip")
        out += self._noise[1].take(second, axis=0)
        out += self._centroids.take(self._topic_of[nodes], axis=0)

    def slabs(self, num_rows: int | None = None) -> Iterator[Tensor]:
        """See :meth:`Rows.slabs`."""
        step = num_rows or _SLAB_ROWS

        def slab(number: int) -> Tensor:
            return self.read(number * step, min((number + 1) * step, len(self)))

        return made_ahead(slab, range(-(-len(self) // step)))


def write_ogb(graph: PapersGraph, root: Path) -> None:
    """The files of ogbn_papers100M as they are after download; see ``docs/convert.md``.

    Args:
        graph: Which.
        root: The dataset's directory, which must not exist.

    Raises:
        FileExistsError: It does.
    """
    raw, split = root / "raw", root / "split" / "time"
    raw.mkdir(parents=True)
    n, num_edges = graph.num_nodes, graph.num_edges
    with zipfile.ZipFile(raw / "data.npz", "w") as archive:
        edges = (
            part.astype(np.int64)
            for end in ("src", "dst")
            for part in (getattr(chunk, end) for chunk in graph.edges())
        )
        _member(archive, "edge_index", np.int64, (2, num_edges), edges)
        features = (slab.numpy() for slab in graph.features().slabs())
        _member(archive, "node_feat", np.float32, (n, graph.num_features), features)
        years = np.random.default_rng((graph.seed, 4)).integers(1990, 2020, n, dtype=np.int64)
        _member(archive, "node_year", np.int64, (n, 1), [years])
        _member(archive, "num_nodes_list", np.int64, (1,), [np.array([n])])
        _member(archive, "num_edges_list", np.int64, (1,), [np.array([num_edges])])
    labels = graph.labels().to(torch.float32)
    labels[labels < 0] = torch.nan
    with zipfile.ZipFile(raw / "node-label.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        _member(archive, "node_label", np.float32, (n, 1), [labels.numpy()])
    split.mkdir(parents=True)
    for name, ids in graph.split.items():
        with gzip.open(split / f"{name}.csv.gz", "wt") as file:
            file.writelines(f"{each}\n" for each in ids.tolist())
    (root / "mapping").mkdir()
    (root / "processed").mkdir()
    (root / "RELEASE_v1.txt").touch()


def _member(
    archive: zipfile.ZipFile, name: str, dtype: Any, shape: tuple[int, ...], parts: Any
) -> None:
    """One array of an ``.npz``, a piece at a time."""
    header = {"descr": np.dtype(dtype).str, "fortran_order": False, "shape": shape}
    with archive.open(f"{name}.npy", "w", force_zip64=True) as file:
        np.lib.format.write_array_header_1_0(file, header)
        for part in parts:
            file.write(np.ascontiguousarray(part).data)
