"""``random_walk``: walks over a store or a graph in memory, within the store's budget."""

from __future__ import annotations

import os
from collections.abc import Sequence
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.memory.residence import page_topologies
from pyg_graphzero.pyg.data import edge_storages
from pyg_graphzero.sampling.graph import Unmapped, graph_of, resolve
from pyg_graphzero.sampling.options import SamplingOptions, options_of
from pyg_graphzero.sampling.order import add_order
from pyg_graphzero.sampling.walks import mirror_of, one_way, steps_of
from pyg_graphzero.sampling.windows import check_of_seeds, check_window, latest_seen, seed_times
from pyg_graphzero.store.columns import engine_array, look_up
from pyg_graphzero.store.edge_order import earlier
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.arguments import as_row_index, check_count
from pyg_graphzero.util.keys import random_key


class RandomWalker:
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

    def __init__(
        self,
        source: Any,
        p: float = 1.0,
        q: float = 1.0,
        weight_attr: str | None = None,
        metapath: Sequence[EdgeType] | None = None,
        reverse: bool = False,
        return_edge_ids: bool = False,
        time_attr: str | None = None,
        options: SamplingOptions | None = None,
    ) -> None:
        self._strictly = options_of(options, self, ("strictly_earlier",)).strictly_earlier
        if self._strictly and time_attr is None:
            raise ValueError("strictly_earlier: found True without a time_attr, expected both")
        for what, value in (("p", p), ("q", q)):
            if not (isfinite(value) and value > 0):
                raise ValueError(f"{what}={value!r}: expected a number above 0")
        data = resolve(source)
        self.p, self.q, self.reverse = float(p), float(q), reverse
        self.steps = steps_of(list(edge_storages(data)), metapath, reverse)
        names = list(dict.fromkeys(self.steps))
        if (p != 1 or q != 1) and len(names) > 1:
            raise ValueError(
                f"p={p}, q={q}: found a metapath of {len(names)} edge types, expected one: they "
                "compare nodes of one type"
            )
        graph = self.graph = graph_of(data, backward=not reverse, only=names, stays=True)
        graph.unnumbered.clear()  # attributes of such edges come in the order of the store
        for name in names:
            if not graph.on_disk(name):
                if p != 1 or q != 1:
                    self._sort(name)
                continue
            if return_edge_ids:
                graph.store.need_edge_ids(name, "edge ids of walks")
            if not reverse and graph.store.csr(name) is None:
                graph.mirrors[name] = mirror_of(graph.store, name)
        self.time_attr = time_attr
        add_order(graph, data, time_attr, weight_attr, of_nodes=False)
        self._max_bytes, self._engine_of = 0, -1
        self._engine = self._build()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_engine_of": -1}

    # Topologies that are read, as rows by path, and how many bytes at once.
    page = staticmethod(page_topologies)

    def num_nodes_of(self, name: str | None = None) -> int:
        """How many nodes of a type there are."""
        return self.graph.node_types[name]

    def walk(
        self,
        start: Any,
        walk_length: int,
        restart: float = 0.0,
        on_end: str | int = -1,
        return_edge_ids: bool = False,
        generator: torch.Generator | None = None,
        num_threads: int = 0,
        input_time: Any = None,
        time_window: Any = None,
    ) -> Any:
        """See :func:`random_walk`."""
        check_count("walk_length", walk_length)
        for name in self.graph.mirrors if return_edge_ids else ():
            raise one_way(self.graph.store, name, "edge ids of walks along edges")
        if not 0 <= restart < 1:
            raise ValueError(f"restart={restart!r}: expected a probability, 0 <= restart < 1")
        if str(on_end) not in ("-1", "stay"):
            raise ValueError(f"on_end={on_end!r}: expected -1 or 'stay'")
        cycle = self.steps
        if restart and len(set(cycle)) > 1:
            raise ValueError(
                f"restart={restart}: found a metapath of {len(set(cycle))} edge types, expected "
                "one: a walk that restarts would leave it"
            )
        first, last = self.graph.ends(cycle[0])[1], self.graph.ends(cycle[-1])[0]
        if first != last and (walk_length > len(cycle) or restart):
            raise ValueError(
                f"metapath: found one from {first!r} to {last!r} for {walk_length} steps, expected "
                f"at most {len(cycle)}, or one that ends where it begins and is repeated"
            )
        if on_end == "stay" and len({end for name in cycle for end in self.graph.ends(name)}) > 1:
            raise ValueError(
                "on_end='stay': found a metapath over several node types, expected -1: a node does "
                "not become one of another type"
            )
        names = [cycle[step % len(cycle)] for step in range(walk_length)]
        if start is None:
            start = torch.arange(self.num_nodes_of(first))
        elif isinstance(start, Sequence) and len(start) == 0:
            start = torch.empty(0, dtype=torch.int64)
        nodes = as_row_index(start, self.num_nodes_of(first)).contiguous()
        numbers = [self.graph.edge_types.index(name) for name in names]
        latest, earliest = self._limits(nodes.numel(), input_time, time_window)
        rows, slots = self._opened().walk(
            engine_array(nodes),
            numbers,
            p=self.p,
            q=self.q,
            restart=float(restart),
            stay=on_end == "stay",
            return_slots=return_edge_ids,
            key=random_key(generator) % 2**64,
            max_bytes=self._max_bytes,
            num_threads=num_threads,
            latest=latest,
            earliest=earliest,
        )
        if slots is None:
            return rows
        for name in dict.fromkeys(names):
            columns = [i for i, own in enumerate(names) if own == name]
            part = slots[:, columns]
            ids = self._edge_ids(name, part.clamp(min=0).view(-1)).view(part.shape)
            slots[:, columns] = ids.where(part >= 0, -1)
        return rows, slots

    def _edge_ids(self, name: Any, slots: Tensor) -> Tensor:
        if not self.reverse and self.graph.on_disk(name):
            store = self.graph.store
            store.need_edge_ids(name, "edge ids of walks")
            own = store.csr_slot(name)
            slots = slots if own is None else look_up(own, slots)
        ids = self.graph.ids(name)
        return slots if ids is None else look_up(ids, slots)

    def _limits(
        self, count: int, input_time: Any, time_window: Any
    ) -> tuple[Tensor | None, Tensor | None]:
        """The latest and the earliest times of the edges that each walk may take."""
        as_float = self.graph.float_times
        if as_float is None:
            for what, value in (("input_time", input_time), ("time_window", time_window)):
                if value is not None:
                    raise ValueError(f"{what}: found one without a time_attr, expected both")
            return None, None
        if input_time is None:
            raise ValueError(
                f"input_time: found none, expected a time for each start: edges have their own, "
                f"{self.time_attr!r}"
            )
        times = seed_times(input_time, count, "input_time", as_float, self.time_attr)
        window = check_window(time_window)
        check_of_seeds(count, "starts", time_window=window)
        latest = engine_array(latest_seen(times, self._strictly))
        if window is None:
            return latest, None
        return latest, engine_array(earlier(times, window, as_float).contiguous())

    def _sort(self, name: EdgeType | None) -> None:
        """Has the neighbours of every node of a graph in memory ascend."""
        indptr, indices = self.graph.arrays[name]
        owner = torch.repeat_interleave(torch.arange(indptr.numel() - 1), indptr.diff())
        sizes = tuple(self.graph.node_types[end] for end in self.graph.ends(name))
        _, by_index = _core.sort_by_destination(
            engine_array(owner), engine_array(indices), sizes[1], sizes[0]
        )
        _, by_owner = _core.sort_by_destination(
            engine_array(indices[by_index]), engine_array(owner[by_index]), *sizes
        )
        order = by_index[by_owner]
        ids = self.graph.edge_ids[name]
        self.graph.arrays[name] = indptr, indices[order]
        self.graph.edge_ids[name] = order if ids is None else ids[order]

    def _opened(self) -> _core.Walker:
        if self._engine_of != os.getpid():  # what reads is the parent's
            self._engine = self._build()
        return self._engine

    def _build(self) -> _core.Walker:
        graph, unmapped = self.graph, dict[EdgeType | None, Unmapped]()
        files = {name: graph.topology(name) for name in graph.edge_types if graph.on_disk(name)}
        is_biased = self.p != 1 or self.q != 1
        ascends = {
            name: not self.reverse and name not in graph.mirrors if name in files else is_biased
            for name in graph.edge_types
        }
        if files:
            paged, self._max_bytes = self.page(graph.store, list(files.values()))
            for name, topology in files.items():
                rows, order = paged.get(topology.path), graph.orders.get(name)
                where = f"{graph.store.path}: p={self.p}, q={self.q}"
                if rows is not None and is_biased and order is not None and order.times is not None:
                    raise UnsupportedError(
                        f"{where}, time_attr={self.time_attr!r}: found neighbours that do not fit "
                        "in memory, expected them to fit, or p=1 and q=1; raise gz.open(memory=)"
                    )
                if rows is not None and is_biased and not ascends[name]:
                    raise UnsupportedError(
                        f"{where}: found neighbours that do not fit in memory, expected them in "
                        "ascending order: gz.open(path, mode='r+').create_csr(), and walks along "
                        "edges"
                    )
                unmapped[name] = Unmapped(rows)
        self._engine_of = os.getpid()
        return _core.Walker(graph.builder(unmapped), list(ascends.values()))


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
