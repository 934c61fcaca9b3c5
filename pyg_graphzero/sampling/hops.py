"""Edges of a batch that know how far from the seeds they were sampled.

A batch of neighbours grows hop by hop: first come the seeds, then the nodes one hop away, and so
on; edges come in the same order. So a layer of a model needs a prefix of the nodes and a prefix of
the edges (as PyG's ``trim_to_layer`` uses it). A model that was accelerated
(``pyg_graphzero.nn.accelerate``) finds the lengths of these prefixes in the ``edge_index`` that it
is given, wherever the batch has gone since.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.store.schema import EdgeType

#: A hop so far away that all nodes and edges of a batch are within it.
ALL = 1 << 20

#: Functions that return the same numbers, most of them in other memory.
KEEPING = frozenset(
    (
        Tensor.to,
        Tensor.cpu,
        Tensor.cuda,
        Tensor.clone,
        Tensor.contiguous,
        Tensor.detach,
        Tensor.pin_memory,
        Tensor.share_memory_,
    )
)


_data: Any = Tensor.data
#: Function that torch calls for ``tensor.data``.
DATA_OF = _data.__get__
# Functions that hand out memory whose writes torch does not count.
_UNCOUNTED = frozenset((Tensor.numpy, Tensor.__array__, Tensor.__dlpack__, DATA_OF, _data.__set__))


@dataclass(frozen=True)
class Hops:
    """How many nodes and edges of a batch lie within each hop.

    Attributes:
        nodes: By node type (None in a homogeneous graph): entry ``h`` counts nodes at most ``h``
            hops from the seeds.
        edges: By edge type: entry ``h`` counts edges that end less than ``h`` hops from them.
    """

    nodes: dict[str | None, tuple[int, ...]]
    edges: dict[EdgeType | None, tuple[int, ...]]

    @property
    def depth(self) -> int:
        """Number of hops that were sampled."""
        return len(next(iter(self.nodes.values()))) - 1

    def num_nodes(self, name: str | None, hop: int) -> int:
        """Nodes of a type at most ``hop`` hops away."""
        counts = self.nodes[name]
        return counts[min(hop, len(counts) - 1)]

    def num_edges(self, name: EdgeType | None, hop: int) -> int:
        """Edges of a type that end less than ``hop`` hops away."""
        counts = self.edges[name]
        return counts[min(hop, len(counts) - 1)]


class SampledEdgeIndex(Tensor):
    """``edge_index`` of a sampled batch, ``int64 [2, num_edges]``, that knows its hops.

    A copy elsewhere (``to``, ``pin_memory``, ``share_memory_``, ``clone``) knows them too; whatever
    else is made of it is a plain tensor. It is pickled and saved as one. Edges that were written
    to, through this tensor or a view of it, have no hops any more; nor have edges whose memory was
    handed out (``numpy()``, ``.data``), where torch counts no writes.

    Attributes:
        edge_type: Type of these edges; None in a homogeneous graph.
        made: Results computed from these edges, by name; they live as long as the edges.
    """

    edge_type: EdgeType | None
    made: dict[Any, Any]
    _hops: Hops
    _counted: int  # count of writes when the hops became known

    @staticmethod
    def of(edge_index: Tensor, hops: Hops, edge_type: EdgeType | None) -> SampledEdgeIndex:
        """A tensor of these edges that knows their hops."""
        with torch.inference_mode(False):
            if edge_index.is_inference():  # writes to such tensors are not counted
                edge_index = edge_index.clone()
            out = Tensor._make_subclass(SampledEdgeIndex, edge_index)
        out._hops, out.edge_type, out.made, out._counted = hops, edge_type, {}, out._version
        return out

    @property
    def hops(self) -> Hops | None:
        """Hops of the batch; None once the edges were written to."""
        with torch._C.DisableTorchFunction():
            return self._hops if self._counted == self._version else None

    def plain(self) -> Tensor:
        """These edges as a plain tensor, which knows no hops."""
        return self.as_subclass(Tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        with torch._C.DisableTorchFunctionSubclass():
            out = func(*args, **(kwargs or {}))
            if func in _UNCOUNTED and isinstance(args[0], cls):
                args[0]._counted = -1
            if func in KEEPING and type(out) is Tensor and out.dtype == torch.int64:
                hops = args[0].hops
                return out if hops is None else cls.of(out, hops, args[0].edge_type)
        return out

    def __deepcopy__(self, memo: Any) -> Any:
        out = memo[id(self)] = self.clone()
        return out

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.plain().__reduce_ex__(protocol)


def known_hops(edge_index: Any) -> Hops | None:
    """Hops that a tensor knows; None for anything else."""
    return edge_index.hops if isinstance(edge_index, SampledEdgeIndex) else None


def known_no_hops(tensor: Tensor) -> Tensor:
    """The tensor itself; edges that know their hops as a plain tensor."""
    return tensor.plain() if isinstance(tensor, SampledEdgeIndex) else tensor


_is_wanted = False


def want_hops(wanted: bool = True) -> None:
    """Has batches of this process know their hops from now on; before, they are like PyG's."""
    global _is_wanted
    _is_wanted = wanted


def are_hops_wanted() -> bool:
    """Whether batches of this process are to know their hops."""
    return _is_wanted


def attach_hops(batch: Data | HeteroData) -> None:
    """Lets the edges of a batch know their hops; a batch without counts by hop stays unchanged.

    Args:
        batch: Batch with ``num_sampled_nodes`` and ``num_sampled_edges``, as ``NeighborLoader`` and
            ``LinkNeighborLoader`` give it for ``subgraph_type="directional"``.
    """
    nodes = node_storages(batch)
    edges = {name: store for name, store in edge_storages(batch).items() if "edge_index" in store}
    if not edges or not all("num_sampled_edges" in store for store in edges.values()):
        return
    hops = Hops(
        {name: tuple(accumulate(store["num_sampled_nodes"])) for name, store in nodes.items()},
        {name: (0, *accumulate(store["num_sampled_edges"])) for name, store in edges.items()},
    )
    for name, store in edges.items():
        store["edge_index"] = SampledEdgeIndex.of(store["edge_index"], hops, name)
