"""Loaders whose rows do not fit in their budget, so that a copy of the used ones is made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from budgets import budget_beside
from same import assert_same

import pyg_graphzero as gz
from pyg_graphzero.memory.keeper import keeper_of

SAMPLED = {"num_neighbors": [8, 4], "batch_size": 128, "edge_ids": False}
# More than a loader needs, less than the rows are.
ROOM = 60_000_000


def training(path: Path, seeds: Any = None, room: int = ROOM, **options: Any) -> Any:
    """A loader that shuffles, over a store which does not fit in its budget."""
    data = gz.open(path, memory=budget_beside(room), **options).data()
    seeds = data.train_mask if seeds is None else seeds
    return gz.loader.NeighborLoader(data, input_nodes=seeds, shuffle=True, num_workers=1, **SAMPLED)


def epoch(loader: Any, seed: int = 0) -> tuple[list[Any], Any]:
    """Batches, and what was counted."""
    loader.generator.manual_seed(seed) if loader.generator else torch.manual_seed(seed)
    return list(loader), loader.stats()


def goes_on(loader: Any, is_copied: bool = True) -> list[Any]:
    """Two epochs: the same batches, the second one read by a copy or not."""
    batches, _ = epoch(loader)
    again, stats = epoch(loader)
    assert_same(again, batches)
    assert stats.reordered == is_copied
    return batches


def partials(store: Path) -> list[Path]:
    """Copies of a store that are being made, or whose maker was killed."""
    return list((store / "orders").glob(".*"))


def residence_of(loader: Any) -> Any:
    """The store's files as a loader's last epoch had them."""
    return keeper_of(loader.graph_sampler.graph.contents).current
