"""Loaders whose sampler reads its neighbours from a file."""

from __future__ import annotations

from unittest.mock import patch

from pyg_graphzero.memory import paged
from pyg_graphzero.memory.paged import PagedFiles
from pyg_graphzero.memory.pager import pager_of
from pyg_graphzero.memory.plan import MemoryPlan


def in_pages(loader, share=0.0, window=(3, 1 << 20)):
    """Has a loader read the neighbours of all edge types: ``share`` of them once."""
    contents = loader.graph_sampler.graph.contents
    plan = MemoryPlan(contents.memory, 0, {}, topology_window=window[0], topology_windows=window[1])
    kept = {t.topology: int(share * t.num_edges) >> 4 for t in contents.schema.edge_types}
    with patch.object(paged, "group_bits_of", lambda *_: 4):
        files = PagedFiles(contents, plan, kept, merge_gap=64)
    pager_of(contents).use(files)
    return loader
