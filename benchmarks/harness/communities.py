"""A graph of any size in bounded memory, like citations between papers of which few have labels.

Nodes belong to communities; most edges stay there or lead to communities nearby, some lead to hubs
anywhere. Degrees follow power laws on both sides. Ids say nothing about communities or degrees, and
the training seeds lie in a few communities: what an epoch touches is a part of the graph, and rows
that are wanted together lie apart. Everything is the same for the same arguments.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar, TypeVar

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.store.csc import BuildRoom, CscOptions, EdgeChunk
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.workspace import Workspace

# Exponent of the in-degrees' power law; the mean is edges_per_node.
_ALPHA = 2.5
# The most neighbours that a node has, as a share of the nodes.
_LARGEST = 0.001
# Shares of edges that stay in the community, and that lead to one nearby; the others lead anywhere.
_INSIDE, _NEARBY = 0.4, 0.2
# A source is the node of rank u^skew, of its community or of all: larger means stronger hubs.
_SKEW, _HUB_SKEW = 2.5, 2.0
# Threads that make what comes next while the last is used.
_THREADS = 2
_BLOCK_ROWS = 1 << 12
# Items of a row that hold the node's number, 11 bits each: float16 keeps them exactly.
_DIGITS, _DIGIT_BITS = 3, 11

T = TypeVar("T")


def made_ahead(
    make: Callable[[int], T], numbers: Iterable[int], threads: int = _THREADS
) -> Iterator[T]:
    """``make`` of every number, in order; threads make the next ones while one is used."""
    with ThreadPoolExecutor(threads) as pool:
        ahead: deque[Future[T]] = deque()
        for number in numbers:
            ahead.append(pool.submit(make, number))
            if len(ahead) > _THREADS:
                yield ahead.popleft().result()
        while ahead:
            yield ahead.popleft().result()


@dataclass(frozen=True)
class CommunityGraph:
    """Parameters of the graph; each of its parts is made when it is asked for.

    Attributes:
        num_nodes: Number of nodes.
        edges_per_node: Mean in-degree.
        num_features: Width of ``x``, at least 4.
        num_communities: Communities of equal size.
        seed_share: Training seeds, as a share of the nodes.
        seed_communities: Communities that have them, as a share.
        seed: Seed of the graph; equal seeds give equal graphs.
    """

    # Destinations of a chunk of edges; another number is another graph.
    chunk_nodes: ClassVar[int] = 1 << 18

    num_nodes: int
    edges_per_node: float = 6.0
    num_features: int = 128
    num_communities: int = 1000
    seed_share: float = 0.011
    seed_communities: float = 0.03
    seed: int = 0

    def __post_init__(self) -> None:
        if self.num_nodes < 2 * self.num_communities:
            raise ValueError(
                f"num_nodes: found {self.num_nodes}, expected at least two for each of "
                f"{self.num_communities} communities"
            )
        if self.num_nodes >= 1 << min(31, _DIGITS * _DIGIT_BITS):
            raise ValueError(f"num_nodes: found {self.num_nodes}, expected less than 2^31")
        if self.num_features <= _DIGITS:
            raise ValueError(f"num_features: found {self.num_features}, expected more than 3")
        if not 0 < self.seed_share <= self.seed_communities <= 1:
            raise ValueError(
                f"seed_share: found {self.seed_share}, expected more than 0 and at most "
                f"seed_communities={self.seed_communities}, at most 1"
            )

    @property
    def community_size(self) -> int:
        """Places of a community; the last one may lack some."""
        return -(-self.num_nodes // self.num_communities)

    @cached_property
    def id_of(self) -> np.ndarray:
        """``int32 [num_nodes]``: the id of every place; places of a community are in a row."""
        ids = np.arange(self.num_nodes, dtype=np.int32)
        np.random.default_rng((self.seed, 0)).shuffle(ids)
        return ids

    @cached_property
    def place_of(self) -> np.ndarray:
        """``int32 [num_nodes]``: the place of every id."""
        places = np.empty(self.num_nodes, dtype=np.int32)
        places[self.id_of] = np.arange(self.num_nodes, dtype=np.int32)
        return places

    def train_nodes(self) -> Tensor:
        """The training seeds by id, ascending: ``int64 [any]``."""
        known = max(1, round(self.seed_communities * self.num_communities)) * self.community_size
        known = min(known, self.num_nodes)
        count = max(1, min(known, round(self.seed_share * self.num_nodes)))
        rng = np.random.default_rng((self.seed, 1))
        places = rng.choice(known, count, replace=False, shuffle=False)
        return torch.from_numpy(np.sort(self.id_of[places]).astype(np.int64))

    def labels(self) -> Tensor:
        """A class for every node, that of its community: ``uint8 [num_nodes]``."""
        classes = self.place_of // self.community_size % NUM_CLASSES
        return torch.from_numpy(classes.astype(np.uint8))

    @property
    def num_edges(self) -> int | None:
        """How many edges there are; None where that is not known before they are made."""
        return None

    @property
    def options(self) -> CscOptions | None:
        """How a store changes the edges; None takes them as they are."""
        return None

    def edges(self) -> Iterator[EdgeChunk]:
        """All edges, destinations ascending; those to come are made meanwhile."""
        assert len(self.place_of)  # made here, not by two threads
        return made_ahead(self._chunk, range(-(-self.num_nodes // self.chunk_nodes)))

    def _chunk(self, number: int) -> EdgeChunk:
        begin = number * self.chunk_nodes
        end = min(begin + self.chunk_nodes, self.num_nodes)
        rng = np.random.default_rng((self.seed, 2, number))
        degree = self._degrees(rng, begin, end)
        dst = np.repeat(np.arange(begin, end, dtype=np.int32), degree)
        return EdgeChunk(self._sources(rng, self.place_of[dst]), dst)

    def _degrees(self, rng: np.random.Generator, begin: int, end: int) -> np.ndarray:
        """In-degrees of some nodes: a Pareto distribution, rounded so that its mean is kept."""
        count = end - begin
        least = self.edges_per_node * (_ALPHA - 1) / _ALPHA
        wanted = least * rng.random(count) ** (-1 / _ALPHA)
        wanted = np.minimum(wanted, max(least, _LARGEST * self.num_nodes))
        return np.floor(wanted + rng.random(count)).astype(np.int64)

    def _sources(self, rng: np.random.Generator, place: np.ndarray) -> np.ndarray:
        """A source for every edge into these places, by id."""
        n, size = len(place), self.community_size
        kind = rng.random(n, dtype=np.float32)
        community = place // size
        # How far away a nearby one is: 1, 2, … with falling probability, to either side.
        far = np.minimum(1 / (1 - rng.random(n)), self.num_communities).astype(np.int32)
        far[rng.random(n, dtype=np.float32) < 0.5] *= -1
        far[kind < _INSIDE] = 0
        community = (community + far) % self.num_communities
        rank = rng.random(n)
        source = community * size + (rank**_SKEW * size).astype(np.int32)
        anywhere = kind >= _INSIDE + _NEARBY
        # Hubs are spread over communities: rank r of all is rank r / communities of one of them.
        hub = (rank[anywhere] ** _HUB_SKEW * self.num_nodes).astype(np.int64)
        source[anywhere] = hub % self.num_communities * size + hub // self.num_communities
        return self.id_of[np.minimum(source, self.num_nodes - 1)]

    def features(self) -> Rows:
        """``float32 [num_nodes, num_features]``, made as they are read."""
        return _Features(self.num_nodes, self.num_features, self.seed)

    def write(
        self,
        path: str | os.PathLike[str],
        encoding: str | None = None,
        memory: int | str | None = None,
    ) -> None:
        """Makes a store of it: ``x``, labels, and which nodes are for training.

        Edges come first: while they are sorted they take the most disk.

        Args:
            path: The store's directory.
            encoding: Encoding of the features, a value of ``gz.convert(features=...)``.
            memory: Memory that the whole process may use to sort edges.

        Raises:
            FileExistsError: There is something already.
        """
        path = Path(path)
        with StoreWriter(path, is_hetero=False) as writer, Workspace(path, memory) as workspace:
            writer.add_node_type(None, self.num_nodes)
            assert len(self.place_of)  # part of what is taken already
            room = BuildRoom(workspace.left(), workspace.folder)
            writer.add_edge_type(None, self.edges(), self.num_edges, self.options, room)
            self._write_nodes(writer)
            writer.add_node_attr(None, "x", self.features(), encoding=encoding)
            writer.finish()

    def _write_nodes(self, writer: StoreWriter) -> None:
        """Writes the labels ``y`` and the index set ``train_idx``."""
        writer.add_node_attr(None, "y", self.labels())
        writer.add_index_set(None, "train_idx", self.train_nodes())


class _Features(Rows):
    """Noise, but for the first items of a row, which tell its node."""

    def __init__(self, num_nodes: int, num_features: int, seed: int) -> None:
        super().__init__((num_nodes, num_features), torch.float32)
        self._seed = seed

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        first, last = begin // _BLOCK_ROWS, -(-end // _BLOCK_ROWS)
        blocks = []
        for number in range(first, last):
            generator = torch.Generator().manual_seed((self._seed << 32) + number)
            blocks.append(torch.randn(_BLOCK_ROWS, self.shape[1], generator=generator))
        base = first * _BLOCK_ROWS
        rows = torch.cat(blocks)[begin - base : end - base]
        rows[:, :_DIGITS] = row_digits(torch.arange(begin, end))
        return rows


def row_digits(nodes: Tensor) -> Tensor:
    """The first items of the features of nodes: ``float32 [num_nodes, 3]``, exact in float16."""
    shifts = torch.arange(_DIGITS) * _DIGIT_BITS
    base = 1 << _DIGIT_BITS
    return (nodes[:, None] >> shifts) % base / float(base)


def check_rows(nodes: Tensor, x: Tensor) -> None:
    """Looks whether rows are those of their nodes.

    Args:
        nodes: ``int64 [n]``.
        x: Their features, ``float32`` or ``float16 [n, num_features]``.

    Raises:
        ValueError: Names the first row that is another node's.
    """
    wrong = (x[:, :_DIGITS].float() != row_digits(nodes)).any(1).nonzero()
    if len(wrong):
        at = int(wrong[0])
        raise ValueError(
            f"x[{at}]: found {x[at, :_DIGITS].tolist()} first, expected "
            f"{row_digits(nodes[at : at + 1])[0].tolist()}, those of node {int(nodes[at])}"
        )
