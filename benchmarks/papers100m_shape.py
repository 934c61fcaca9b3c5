"""Rows that an epoch of training reads, and how often it reads each.

``PUBLISHED`` are the figures for ogbn-papers100M, both directions, batches of 1024 with 10, 10, 10
neighbours (pull request 7541 of dmlc/dgl). A cache of 18% of the rows that began empty missed 7.0%
of the accesses of the first epoch there; a cache of 36% missed 6.0% of the accesses that the
hottest 0.9% do not serve, and 1% later on.

The figures at another scale follow from how often a batch draws each node of a small graph: a
graph of n times as many nodes draws each one n times less often.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from harness.child import Task, Tell
from harness.sieve import SieveCache
from pyg_graphzero.sampling.neighbor import NeighborSampler

# Shares of the nodes, whose accesses are counted.
HOTTEST = (0.009, 0.18, 0.36)
_SEEDS_AT_ONCE = 256  # of batches that are counted with repetitions


class Touched(NamedTuple):
    """Nodes whose rows an epoch reads.

    Attributes:
        nodes: Mean number of nodes of a batch.
        distinct: Distinct nodes of the epoch, as a share of all nodes.
        hottest: Shares of the accesses that go to the ``HOTTEST`` nodes.
    """

    nodes: float
    distinct: float
    hottest: tuple[float, ...]


PUBLISHED = Touched(662_000, 0.31, (0.26, 0.94, 0.99))


def shares(accesses: np.ndarray) -> tuple[float, ...]:
    """Shares of the accesses (any number for each node) that go to the ``HOTTEST``."""
    upto = np.cumsum(np.sort(accesses)[::-1], dtype=np.float64)
    return tuple(float(upto[max(0, int(share * len(upto)) - 1)] / upto[-1]) for share in HOTTEST)


def epochs(task: Task, data: Any, caches: dict[str, SieveCache]) -> Iterator[dict[str, Any]]:
    """Samples every batch of each epoch; counts its accesses and the misses of caches.

    Args:
        task: Batches and epochs.
        data: Graph to sample, homogeneous.
        caches: Caches by name, of rows of one byte, since nothing is read.

    Yields:
        ``touched``, a :class:`Touched`, and ``missed``: shares of the accesses, by cache.
    """
    seeds = data[task.seeds].nonzero().view(-1)
    sampler = NeighborSampler(data, task.fanout)
    generator = torch.Generator().manual_seed(task.seed)
    for _ in range(task.epochs):
        counts = torch.zeros(data.num_nodes, dtype=torch.int32)
        one = torch.ones((), dtype=torch.int32)
        missed = dict.fromkeys(caches, 0)
        batches = seeds[torch.randperm(len(seeds), generator=generator)].split(task.batch_size)
        for batch in batches:
            nodes = sampler.sample_from_nodes(NodeSamplerInput(None, batch)).node
            counts.index_put_((nodes,), one, accumulate=True)
            row = torch.empty(len(nodes), 1, dtype=torch.uint8)
            for name, cache in caches.items():
                places = cache.query(nodes, row)
                cache.insert(nodes, places, row)
                missed[name] += len(places)
        accesses = int(counts.sum(dtype=torch.int64))
        distinct = int(torch.count_nonzero(counts)) / len(counts)
        touched = Touched(accesses / len(batches), distinct, shares(counts.numpy()))
        yield {
            "touched": touched._asdict(),
            "missed": {name: count / accesses for name, count in missed.items()},
        }


def at_scale(task: Task, data: Any, scale: float, wanted: float = 1.0) -> Touched:
    """Estimates a graph of another scale from the draws of every node of this one.

    Args:
        task: Batches.
        data: A graph of ``scale``.
        scale: Its nodes, as a share of the real one's.
        wanted: The other scale.
    """
    seeds = data[task.seeds].nonzero().view(-1)
    sampler = NeighborSampler(data, task.fanout, disjoint=True)
    draws = torch.zeros(data.num_nodes)
    for part in seeds.split(_SEEDS_AT_ONCE):
        found = sampler.sample_from_nodes(NodeSamplerInput(None, part)).node
        draws += torch.bincount(found, minlength=len(draws))
    more, batches = wanted / scale, len(seeds) / task.batch_size
    # So often in a batch, on average; at least once with this probability.
    chance = -np.expm1(-draws.numpy().astype(np.float64) / batches / more)
    distinct = 1 - float(((1 - chance) ** (batches * more)).mean())
    return Touched(float(chance.sum()) * more, distinct, shares(chance))


def shape(task: Task, tell: Tell) -> dict[str, Any]:
    """The phase: epochs of the graph that there is, and what its shape is at scale 1."""
    begin = time.perf_counter()
    with gz.open(task.store) as store:
        data = store.data()
        caches = {
            f"{share:.0%}": SieveCache(data.num_nodes, int(share * data.num_nodes), 1)
            for share in HOTTEST[1:]
        }
        found: dict[str, Any] = {"published": PUBLISHED._asdict(), "epochs": []}
        if task.options["scale"] != 1:  # there the epochs show it
            found["at_scale_1"] = at_scale(task, data, task.options["scale"])._asdict()
        for each in epochs(task, data, caches):
            found["epochs"].append(each)
            found["seconds"] = time.perf_counter() - begin
            tell({"event": "found", "found": found})
        return found
