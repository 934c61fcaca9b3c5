"""PyG's own loaders over a graph on disk.

``NodeLoader``, ``LinkLoader`` and Lightning's data modules join a sample with a graph's attributes
by functions that read each attribute whole, ``edge_index`` too. These are wrapped here, where the
loaders call them: for a graph on disk that our sampler has sampled from, rows are gathered as in
our own loaders. PyG's ``NeighborSampler``, which ``NeighborLoader`` and Lightning's data modules
make, sorts all edges in memory; of a graph on disk it is ours. Graphs in memory are served as ever.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import torch_geometric.loader.link_loader
import torch_geometric.loader.node_loader
import torch_geometric.sampler as stock_sampler
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput
from torch_geometric.sampler import NeighborSampler as StockSampler

from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.pyg.data import contents_of
from pyg_graphzero.sampling.base import GraphSampler
from pyg_graphzero.sampling.both_ways import BidirectionalNeighborSampler
from pyg_graphzero.sampling.graph import EdgePermutation
from pyg_graphzero.sampling.neighbor import NeighborSampler

_plans: weakref.WeakKeyDictionary[GraphSampler, BatchPlan] = weakref.WeakKeyDictionary()


def _plan_of(data: Any, sampler: GraphSampler) -> BatchPlan:
    plan = _plans.get(sampler)
    if plan is None or not plan.is_for(data, sampler.graph):
        plan = _plans[sampler] = BatchPlan(data, sampler)
    return plan


def _joined(stock: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stock)
    def join(data: Any, node: Any, row: Any, col: Any, edge: Any, perm: Any = None) -> Any:
        first = next(iter(perm.values()), None) if isinstance(perm, dict) else perm
        if contents_of(data) is None or not isinstance(first, EdgePermutation):
            return stock(data, node, row, col, edge, perm)
        sampler = first.sampler
        if isinstance(node, dict):  # parts that a transform has left out are empty
            none = torch.empty(0, dtype=torch.int64)
            node = {name: node.get(name, none) for name in sampler.graph.node_types}
            names = sampler.graph.edge_types
            row, col, edge = ({n: part.get(n, none) for n in names} for part in (row, col, edge))
            out: Any = HeteroSamplerOutput(node, row, col, edge)
        else:
            out = SamplerOutput(node, row, col, edge)
        plan, sampled = _plan_of(data, sampler), sampler.sampled(out)
        return plan.assemble(sampled, plan.gather(sampled, sampler.num_threads))

    return join


@wraps(StockSampler.__init__)  # its signature is asked for
def _sampler_of(cls: type[StockSampler], data: Any = None, *args: Any, **kwargs: Any) -> Any:
    is_both_ways = cls is getattr(stock_sampler, "BidirectionalNeighborSampler", None)
    if (cls is not StockSampler and not is_both_ways) or contents_of(data) is None:
        return object.__new__(cls)
    if is_both_ways:
        return BidirectionalNeighborSampler(data, *args, **kwargs)
    return NeighborSampler(data, *args, **kwargs)


def _wrap() -> None:
    loaders = (torch_geometric.loader.node_loader, torch_geometric.loader.link_loader)
    for module in loaders:
        for name in ("filter_data", "filter_hetero_data"):
            setattr(module, name, _joined(getattr(module, name)))
    StockSampler.__new__ = _sampler_of


_wrap()
