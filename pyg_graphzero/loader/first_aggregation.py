"""Whether a loader can take the first aggregation of a model, found on a batch of a few seeds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch_geometric.data import HeteroData
from torch_geometric.sampler.base import SubgraphType

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader.plan import BatchPlan
from pyg_graphzero.sampling.both_ways import BidirectionalNeighborSampler
from pyg_graphzero.sampling.inner_rows import REDUCTIONS
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.sampling.options import one_of

# Seeds of a batch that a model is tried on.
_SEEDS = 4


def check_first_aggregation(value: str | None, loader: Any) -> None:
    """Whether a loader's batches are such that features can be added up while they are gathered.

    Raises:
        ValueError: It is no way to do that.
        UnsupportedError: They are not.
    """
    if value is None:
        return
    one_of("first_aggregation", value, REDUCTIONS)
    sampler, found = loader.graph_sampler, None
    if not isinstance(sampler, NeighborSampler) or isinstance(
        sampler, BidirectionalNeighborSampler
    ):
        found = f"batches of {type(sampler).__name__}"
    elif sampler.subgraph_type != SubgraphType.directional:
        found = f"subgraph_type={sampler.subgraph_type.value!r}"
    elif sampler.graph.backward:
        found = "sample_direction='backward'"
    elif loader.transform_sampler_output is not None:
        found = "transform_sampler_output"
    if found is not None:
        raise UnsupportedError(
            f"first_aggregation={value!r}: found {found}, expected batches that "
            "gz.loader.NeighborLoader or LinkNeighborLoader samples by itself with "
            "subgraph_type='directional'; leave it out"
        )


def suit(loader: Any, can_run: Callable[[Any, Any], bool], device: torch.device) -> None:
    """Sets a loader's ``first_aggregation`` to what a model can run with; None: with neither.

    Args:
        loader: The loader.
        can_run: Whether the model can run on ``x`` and ``edge_index`` (of types: dictionaries).
        device: The model's.

    Raises:
        TypeError: The loader is none of this package.
    """
    if not hasattr(loader, "trial"):
        found = f"{type(loader).__module__}.{type(loader).__qualname__}"
        raise TypeError(f"loader: found {found}, expected one of gz.loader")
    loader.first_aggregation = None
    # Memory is not planned for these batches: rows and neighbours are read through maps.
    sampler, data = loader.graph_sampler, loader.data
    for reduction in REDUCTIONS:
        try:
            check_first_aggregation(reduction, loader)
            plan = BatchPlan(data, sampler, edge_ids=False, first_aggregation=reduction)
        except UnsupportedError:
            return
        seeds = loader.trial(torch.arange(min(_SEEDS, len(loader.dataset))), 0).seeds
        sampled = sampler.sample_of(sampler.recipe().make(seeds, 0))
        batch = plan.assemble(sampled, plan.gather(sampled, 0)).to(str(device))
        of_types = "_dict" if isinstance(batch, HeteroData) else ""
        if can_run(getattr(batch, f"x{of_types}"), getattr(batch, f"edge_index{of_types}")):
            loader.first_aggregation = reduction
            return
