"""What is found out behind an epoch's back, waited for."""

from __future__ import annotations

from typing import Any

from pyg_graphzero.memory.pager import pager_of


def tuned(loader: Any) -> None:
    """Waits until a thread knows how a loader's budget is best divided.

    Then there is a copy of its rows, or none is made. The next batch, or the next epoch, goes by
    it; if an epoch did not go over to it already.
    """
    pager = pager_of(loader.graph_sampler.graph.contents)
    assert pager is not None
    if pager.tuning is not None:
        pager.tuning.thread.join(60)
        assert pager.tuning.is_over
