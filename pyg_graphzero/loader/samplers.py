"""Samplers that choose the seeds, or the graphs, of a ``DataLoader``'s batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
import torch_geometric.loader
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.loader.cluster import ClusterData
from pyg_graphzero.loader.inputs import check_input_nodes
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.sampling.graph import resolve
from pyg_graphzero.sampling.options import one_of
from pyg_graphzero.util.arguments import check_count


class ImbalancedSampler(torch_geometric.loader.ImbalancedSampler):
    """Draws seeds so that all classes come alike; see PyG's class of the same name.

    A class is drawn, each alike, then one of its seeds, with replacement: the probabilities of
    PyG's, for any number of seeds (torch draws by weight among 2²⁴ at most). Takes 8 bytes a seed
    in memory.

    Args:
        dataset: A store, its ``.data()``, ``Data`` or ``HeteroData``, whose ``y`` has the labels;
            integer labels themselves, ``[n]`` or ``[n, 1]``; or graphs with a label each.
        input_nodes: Which nodes, where the loader has some: what it is given as ``input_nodes``.
        num_samples: How many seeds an epoch has; None: as many as there are.
        generator: Where randomness comes from; torch's own by default.

    Raises:
        ValueError: Labels are not an integer of 0 or more for each seed, or there are none.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> sampler = gz.loader.ImbalancedSampler(torch.tensor([0] * 98 + [1] * 2))
        >>> sum(seed >= 98 for seed in sampler) > 25
        True
    """

    def __init__(
        self,
        dataset: Any,
        input_nodes: Any = None,
        num_samples: int | None = None,
        generator: torch.Generator | None = None,
    ) -> None:
        labels = _labels(dataset, input_nodes)
        if labels.dtype.is_floating_point or labels.dtype.is_complex or labels.dim() != 1:
            raise ValueError(
                f"y: found {labels.dtype} of shape {list(labels.shape)}, expected an integer for "
                "each seed"
            )
        if labels.numel() == 0:
            raise ValueError("y: found no labels, expected one for each seed")
        labels = labels.to(torch.int64)
        if int(labels.min()) < 0:
            at = int((labels < 0).nonzero()[0, 0])
            raise ValueError(f"y: found label {int(labels[at])} of seed {at}, expected 0 or more")
        if num_samples is None:
            num_samples = labels.numel()
        check_count("num_samples", num_samples)
        self.num_samples, self.replacement, self.generator = num_samples, True, generator
        self._by_class = labels.argsort(stable=True)
        sizes = labels.unique(return_counts=True)[1]
        self._sizes, self._first = sizes, sizes.cumsum(0) - sizes

    @property
    def weights(self) -> Tensor:
        """Weights in proportion to which seeds are drawn, ``float64 [n]``."""
        weights = torch.empty(self._by_class.numel(), dtype=torch.float64)
        weights[self._by_class] = torch.repeat_interleave(1 / self._sizes.double(), self._sizes)
        return weights

    def __iter__(self) -> Iterator[int]:
        of = torch.randint(self._sizes.numel(), (self.num_samples,), generator=self.generator)
        within = torch.rand(self.num_samples, dtype=torch.float64, generator=self.generator)
        place = self._first[of] + within.mul_(self._sizes[of]).to(torch.int64)
        yield from self._by_class[place].tolist()


def _labels(dataset: Any, input_nodes: Any) -> Tensor:
    """The labels of all seeds."""
    if isinstance(dataset, (Store, Data, HeteroData)):
        data = resolve(dataset)
        nodes = check_input_nodes(data, input_nodes)
        of = data
        if isinstance(data, HeteroData):
            name, nodes = nodes
            of = data[name]
        if "y" not in of:
            raise ValueError(
                f"y: found none, expected labels among {sorted(map(str, of.keys()))}; labels kept "
                "under another name can be given themselves"
            )
        labels, count = torch.as_tensor(of.y), int(of.num_nodes)
        if labels.numel() != count:
            raise ValueError(f"y: found shape {list(labels.shape)}, expected {count} nodes")
    else:
        nodes = input_nodes if isinstance(dataset, Tensor) else None
        labels = dataset if isinstance(dataset, Tensor) else _labels_of_graphs(dataset)
    labels = labels.detach().cpu()
    labels = labels.view(-1) if labels.dim() < 2 or labels.size(1) == 1 else labels
    return labels if nodes is None else labels[nodes]


def _labels_of_graphs(graphs: Any) -> Tensor:
    labels = [torch.as_tensor(graph.y).view(-1) for graph in graphs]
    bad = [number for number, label in enumerate(labels) if label.numel() != 1]
    if bad:
        found = labels[bad[0]].numel()
        raise ValueError(f"y of graph {bad[0]}: found {found} labels, expected one")
    return torch.cat(labels) if labels else torch.empty(0, dtype=torch.int64)


class DynamicBatchSampler(torch_geometric.loader.DynamicBatchSampler):
    """Puts graphs into a batch as long as they fit; see PyG's class of the same name.

    With a :class:`ClusterData` its parts are these graphs, and nothing is read to learn how many
    nodes they have; their edges are counted once. Edges between parts of a batch come on top.

    Args:
        dataset: Graphs: a :class:`ClusterData`, or a dataset whose items have ``num_nodes`` and
            ``num_edges``.
        max_num: How many nodes (or edges) a batch has at most, unless a graph alone has more.
        mode: ``"node"`` or ``"edge"``: what is counted.
        shuffle: Another order in each epoch.
        skip_too_big: Leave out graphs that do not fit into a batch of their own.
        num_steps: How many batches an epoch has at most; None: until all graphs were in one.

    Unlike PyG's, a graph that is left out has no other come twice, and ``len()`` of an unknown
    number of batches is a ``TypeError``, which ``list`` and ``tqdm`` take for what it means.

    Raises:
        ValueError: ``max_num`` or ``num_steps`` below 1, another ``mode``.
        TypeError: The dataset is one graph.

    Example:
        >>> import pyg_graphzero as gz
        >>> parts = gz.loader.ClusterData(gz.open(example_store), 4, partition="ranges")
        >>> list(gz.loader.DynamicBatchSampler(parts, max_num=3))
        [[0, 1, 2], [3]]
    """

    def __init__(
        self,
        dataset: Any,
        max_num: int,
        mode: str = "node",
        shuffle: bool = False,
        skip_too_big: bool = False,
        num_steps: int | None = None,
    ) -> None:
        if isinstance(dataset, (Store, Data, HeteroData)):
            raise TypeError(
                f"dataset: found one graph, a {type(dataset).__name__}, expected several: of a "
                "large one, the parts of gz.loader.ClusterData"
            )
        check_count("max_num", max_num)
        if num_steps is not None:
            check_count("num_steps", num_steps)
        one_of("mode", mode, ("node", "edge"))
        self.dataset, self.max_num, self.mode = dataset, max_num, mode
        self.shuffle, self.skip_too_big, self.num_steps = shuffle, skip_too_big, num_steps
        self.max_steps = num_steps or len(dataset)

    def __iter__(self) -> Iterator[list[int]]:
        count = len(self.dataset)
        order: Sequence[int] = torch.randperm(count).tolist() if self.shuffle else range(count)
        is_parts = isinstance(self.dataset, ClusterData)
        sizes = self.dataset.part_sizes(self.mode).tolist() if is_parts else None
        batch: list[int] = []
        total = steps = 0
        for number in order:
            size = self._size(number) if sizes is None else sizes[number]
            if size > self.max_num and self.skip_too_big:
                continue
            if batch and total + size > self.max_num:
                yield batch
                batch, total, steps = [], 0, steps + 1
                if steps >= self.max_steps:
                    return
            batch.append(number)
            total += size
        if batch:
            yield batch

    def _size(self, number: int) -> int:
        graph = self.dataset[number]
        return int(graph.num_nodes if self.mode == "node" else graph.num_edges)

    def __len__(self) -> int:
        if self.num_steps is None:
            raise TypeError(
                "len(DynamicBatchSampler): found num_steps=None, expected a number: how many "
                "batches there are depends on the order of the graphs"
            )
        return self.num_steps
