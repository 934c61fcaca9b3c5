"""``random_walk``: walks over a store or a graph in memory, within the store's budget."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from pyg_graphzero import _core
from pyg_graphzero.memory.residence import page_topologies
from pyg_graphzero.sampling.options import SamplingOptions
from pyg_graphzero.sampling.walks import Walker
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType


class RandomWalker(Walker):
    """Random walks, many times over the same graph: :func:`random_walk` with its preparation kept.

    Args:
        source: A store, its ``.data()``, or ``Data`` or ``HeteroData`` in memory.
        p: A step back is taken ``1 / p`` times as likely (node2vec); see :func:`random_walk`.
        q: A step to another node is taken ``1 / q`` times as likely; see :func:`random_walk`.
        weight_attr: Steps are in proportion to this edge attribute.
        metapath: The edge types of the steps.
        reverse: Walk from destination to source.
        return_edge_ids: Whether :meth:`walk` will be asked for edge ids.
        time_attr: An edge attribute with times: :meth:`walk` then takes ``input_time`` and
            ``time_window``.
        options: ``strictly_earlier`` alone; see :func:`random_walk`.

    Example:
        >>> import pyg_graphzero as gz
        >>> walker = gz.sampler.RandomWalker(gz.open(example_store), reverse=True)
        >>> walker.walk([0, 1], walk_length=3).shape
        torch.Size([2, 4])
    """

    def page(
        self, contents: StoreContents, topologies: Sequence[_core.Topology]
    ) -> tuple[dict[str, _core.PagedRows], int]:
        """Pages the topologies that do not fit in memory."""
        return page_topologies(contents, topologies)


def random_walk(
    source: Any,
    start: Any,
    walk_length: int,
    p: float = 1.0,
    q: float = 1.0,
    weight_attr: str | None = None,
    metapath: Sequence[EdgeType] | None = None,
    restart: float = 0.0,
    reverse: bool = False,
    generator: torch.Generator | None = None,
    *,
    on_end: str | int = -1,
    return_edge_ids: bool = False,
    num_threads: int = 0,
    time_attr: str | None = None,
    input_time: Any = None,
    time_window: Any = None,
    options: SamplingOptions | None = None,
) -> Any:
    """Random walks from each of some nodes, in the engine.

    Each is a function of the generator's number and of its place in ``start``, whatever the number
    of threads, and whether the edges are in memory or read.

    Args:
        source: A store, its ``.data()``, or ``Data`` or ``HeteroData`` in memory, whose edges are
            sorted for it (:class:`RandomWalker` does so once).
        start: Nodes, ``[n]`` integers, or a mask; None: all of them.
        walk_length: How many steps.
        p: A step back to the node before is taken ``1 / p`` times as likely as one to a neighbour
            of that node (node2vec, Grover and Leskovec 2016), by rejection. Neighbours are those
            that a walk could have gone to from there.
        q: A step to another node is taken ``1 / q`` times as likely.
        weight_attr: Steps are in proportion to this edge attribute, one number of 0 or more each.
        metapath: The edge types of the steps, repeated as long as walks go on; needed in a
            heterogeneous graph.
        restart: The probability of a step that leads to the walk's start.
        reverse: Walk against edges, from destination to source. A store needs nothing for that. To
            walk along directed ones it needs them by source, too: see :meth:`Store.create_csr`.
        generator: Where randomness comes from; torch's own by default.
        on_end: Nodes behind the end of a walk, at a node that no edge leads on from: -1, or
            ``"stay"``: its last node, as in PyG.
        return_edge_ids: The edges, too.
        num_threads: 0 uses as many as torch does.
        time_attr: An edge attribute with times, integers or floats, one each: a walk takes no edge
            later than its own time. Edge types without it are not restricted, where others have it.
        input_time: The time of each walk, ``[n]``; it stays the same on the way.
        time_window: A walk takes no edge that is more than this earlier either. A number in the
            units of the times, or a tensor ``[n]``; None is no limit. Both ends count. Steps are
            drawn from the edges that are left, found by two binary searches. With ``p`` and ``q``,
            neighbours of the node before are looked for among these one by one.
        options: With ``strictly_earlier``, a walk takes no edge of its very time either; no other
            option means anything to walks.

    Returns:
        ``int64 [n, walk_length + 1]``, the start first; with ``return_edge_ids`` also the ids of
        the edges, ``int64 [n, walk_length]``, -1 where a step took none.

    Raises:
        UnsupportedError: The store has directed edges by destination only, or ``p`` and ``q`` are
            to look at times of neighbours that do not fit in memory.
        IndexError: A start is no node.
        ValueError: An argument is out of its range, the metapath does not fit, no edge has the
            weights or times, or there is not a time for each start.
        FormatError: The store is damaged.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import Data
        >>> ring = Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=3)
        >>> gz.sampler.random_walk(ring, [0, 1], walk_length=4)
        tensor([[0, 1, 2, 0, 1],
                [1, 2, 0, 1, 2]])
    """
    walker = RandomWalker(
        source, p, q, weight_attr, metapath, reverse, return_edge_ids, time_attr, options
    )
    return walker.walk(
        start, walk_length, restart, on_end, return_edge_ids, generator, num_threads,
        input_time, time_window,
    )  # fmt: skip
