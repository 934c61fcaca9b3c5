"""Budgets of stores in a process that other tests have used."""

from __future__ import annotations

import gc

from pyg_graphzero import _core
from pyg_graphzero.util.system import private_rss, return_freed_memory


def budget_beside(extra: int) -> int:
    """A budget that leaves ``extra`` bytes beside what this process has already.

    Garbage, and memory that is kept after it is freed, would go while the store is used, and leave
    it more. So does a store that the caller lets go of after this.
    """
    gc.collect()
    _core.free_idle_blocks()
    return_freed_memory()
    return private_rss() + extra
