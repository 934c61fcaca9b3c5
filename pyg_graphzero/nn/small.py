"""A small graph with the hops of a batch, on which a forward pass is learned.

Its numbers of nodes and edges differ from every other size in the model, so that a dimension of
such a size is known to be one of rows.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.data import BaseData

from pyg_graphzero.nn.block import Block
from pyg_graphzero.nn.rules import Space
from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex, known_no_hops
from pyg_graphzero.sampling.inner_rows import InnerRows

_SEED = 12345
# Seeds of each node type, and nodes that each hop adds.
_FIRST, _MORE = 5, 7
_LEAST = 101


class AmbiguousError(Exception):
    """The sizes of this batch do not tell the rows that a tensor has."""


def map_leaves(
    obj: Any, change: Callable[[Any, Any], Any], key: Any = None, kind: type = Tensor
) -> Any:
    """A copy of nested arguments with every leaf of a kind replaced.

    Args:
        obj: Leaves, and lists, tuples, dictionaries and PyG's ``Data`` of them.
        change: Function that returns the new leaf, given a leaf and the key under which it lies in
            a dictionary (in ``Data``, the type of its storage).
        key: Key under which ``obj`` lies.
        kind: Class of the leaves.
    """
    if isinstance(obj, kind):
        return change(obj, key)
    if isinstance(obj, dict):
        return type(obj)((k, map_leaves(v, change, k, kind)) for k, v in obj.items())
    if isinstance(obj, list | tuple):
        items = [map_leaves(item, change, key, kind) for item in obj]
        return type(obj)(*items) if hasattr(obj, "_fields") else type(obj)(items)
    if isinstance(obj, BaseData):
        out = copy.copy(obj)
        for of, store in (node_storages(out) | edge_storages(out)).items():
            for name, value in list(store.items()):
                store[name] = map_leaves(value, change, of, kind)
        return out
    return obj


def tensors_in(obj: Any) -> Iterator[tuple[Any, Tensor]]:
    """Keys and tensors of nested arguments; keys are those of ``map_leaves``."""
    found: list[tuple[Any, Tensor]] = []
    map_leaves(obj, lambda tensor, key: found.append((key, tensor)))
    return iter(found)


def hops_in(obj: Any) -> Hops | None:
    """Hops of the batch that arguments belong to; None where edges know none, or there are none."""
    edges = [tensor for _, tensor in tensors_in(obj) if isinstance(tensor, SampledEdgeIndex)]
    hops = [each.hops for each in edges]
    return None if None in hops or not hops else hops[0]


def is_cuda(obj: Any) -> bool:
    """Whether there is a tensor of a GPU among nested arguments."""
    return any(tensor.is_cuda for _, tensor in tensors_in(obj))


def plain(obj: Any) -> Any:
    """Arguments whose edges know nothing of hops."""
    return map_leaves(obj, lambda tensor, _: known_no_hops(tensor))


def space_of(tensor: Tensor, key: Any, hops: Hops) -> Space | None:
    """Nodes or edges that the rows of an argument stand for; None if neither.

    Raises:
        AmbiguousError: The number of nodes equals that of edges, or of nodes of another type.
    """
    if isinstance(tensor, InnerRows):
        return Space(False, tensor.node_type)
    if not tensor.dim() or isinstance(tensor, SampledEdgeIndex):
        return None
    size = tensor.size(0)
    fits = [
        Space(of_edges, name)
        for of_edges, counts in ((False, hops.nodes), (True, hops.edges))
        for name, by_hop in counts.items()
        if by_hop[-1] == size
    ]
    own = [space for space in fits if space.name == key and key is not None]
    if own:
        return own[0]
    if len(fits) > 1:
        raise AmbiguousError
    return fits[0] if fits else None


class SmallGraph:
    """A graph of some hundred nodes.

    Args:
        hops: Hops of the batch that the graph stands for.
        taken: Sizes that its numbers of rows must avoid.
        device: Device of its edges.
    """

    def __init__(self, hops: Hops, taken: set[int], device: torch.device) -> None:
        sizes = (n for n in range(_LEAST, 1 << 20) if n not in taken and _is_prime(n))
        depth = hops.depth
        nodes: dict[Any, tuple[int, ...]] = {}
        for name, counts in hops.nodes.items():
            first = _FIRST if counts[0] else 0
            fresh = [first + hop * _MORE for hop in range(depth + 1)]
            fresh[-1] = next(size for size in sizes if size >= fresh[-1])
            nodes[name] = tuple(fresh)
        generator = torch.Generator().manual_seed(_SEED)
        self.edge_index: dict[Any, Tensor] = {}
        edges: dict[Any, tuple[int, ...]] = {}
        for edge_type in hops.edges:
            src, dst = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
            total = next(size for size in sizes if size > 2 * nodes[dst][-1])
            pairs, ends_by_hop = [], [0]
            for hop in range(1, depth + 1):
                begin = 0 if hop == 1 else nodes[dst][hop - 2]
                ends = torch.arange(begin, nodes[dst][hop - 1]).repeat_interleave(2)
                if hop == depth and len(ends):
                    missing = total - ends_by_hop[-1] - len(ends)
                    ends = torch.cat((ends, ends[-1:].expand(missing)))
                from_ = torch.randint(max(1, nodes[src][hop]), (len(ends),), generator=generator)
                pairs.append(torch.stack((from_, ends)))
                ends_by_hop.append(ends_by_hop[-1] + len(ends))
            self.edge_index[edge_type] = torch.cat(pairs, 1).to(device)
            edges[edge_type] = tuple(ends_by_hop)
        self.hops = Hops(nodes, edges)
        self.num_rows = {
            Space(of_edges, name): by_hop[-1]
            for of_edges, counts in ((False, nodes), (True, edges))
            for name, by_hop in counts.items()
            if by_hop[-1]
        }

    def arguments(self, obj: Any, hops: Hops) -> tuple[Any, list[tuple[Tensor, Space]]]:
        """Arguments for this graph in place of a batch's, and the tensors with rows among them.

        Args:
            obj: Arguments of a batch.
            hops: Hops of the batch.

        Raises:
            AmbiguousError: See ``space_of``.
        """
        rows: list[tuple[Tensor, Space]] = []

        def change(tensor: Tensor, key: Any) -> Tensor:
            if isinstance(tensor, SampledEdgeIndex):
                name = tensor.edge_type
                return SampledEdgeIndex.of(self.edge_index[name], self.hops, name)
            space = space_of(tensor, key, hops)
            if space is None:
                # Integers may be numbers of seeds; there are fewer seeds here.
                return tensor.remainder(_FIRST) if tensor.dtype == torch.int64 else tensor
            tensor = tensor.rows if isinstance(tensor, InnerRows) else tensor
            count = self.num_rows.get(space, 0)
            have = tensor.size(0)
            if have:
                out = tensor.detach()[torch.arange(count, device=tensor.device) % have]
            else:
                out = tensor.new_zeros(count, *tensor.shape[1:])
            if count:
                rows.append((out, space))
            return out

        return map_leaves(obj, change), rows

    def with_sums(self, obj: Any, summed: list[tuple[Tensor, InnerRows]]) -> Any:
        """A copy of arguments, some as a loader with ``first_aggregation`` gives them.

        Args:
            obj: Arguments from ``arguments``.
            summed: Tensors to replace, each with the tensor of the batch that it stands for.
        """
        last = self.hops.depth - 1
        like = {id(tensor): given for tensor, given in summed}

        def change(tensor: Tensor, key: Any) -> Tensor:
            given = like.get(id(tensor))
            if given is None:
                return tensor
            name, sums = given.node_type, {}
            for edge_type in given.sums:
                edges = SampledEdgeIndex.of(self.edge_index[edge_type], self.hops, edge_type)
                is_mean = given.reduction == "mean"
                sums[edge_type] = Block(edges, self.hops, last).sum(tensor, mean=is_mean)
            inner = tensor[: self.hops.num_nodes(name, last)]
            return InnerRows.of(inner, sums, given.reduction, name)

        return map_leaves(obj, change)


def _is_prime(n: int) -> bool:
    return all(n % factor for factor in range(2, int(n**0.5) + 1))
