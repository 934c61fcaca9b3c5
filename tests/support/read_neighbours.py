"""Loaders whose sampler reads its neighbours from a file."""

from __future__ import annotations

from unittest.mock import patch

from pyg_graphzero.memory import costs, residence
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.memory.needs import BatchSize, Kind, Needs, files_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.memory.residence import Residence

_BITS = 4


def in_pages(loader, share=0.0):
    """Has a loader read the neighbours of all edge types: ``share`` of them once."""
    contents = loader.graph_sampler.graph.contents
    needs = Needs(tuple(files_of(loader)), BatchSize(1 << 40, 1 << 40))  # no batch is larger
    hot = {
        file.name: (int(share * file.num_rows) >> _BITS) * ((file.row_bytes << _BITS) + costs.FRAME)
        for file in needs.of(Kind.NEIGHBOURS)
    }
    plan = MemoryPlan(
        contents.memory, 0, {}, hot, 0, 3, topology_window=3, topology_windows=1 << 20
    )
    with patch.object(residence, "group_bits_of", lambda *_: _BITS):
        keeper_of(contents).current = Residence(contents, plan, needs, merge_gap=64)
    return loader
