"""Has loaders of tiny stores read from disk what they would hold, as in a budget that is too small.

No budget that a process can have is too small for a store of 100 kB, so what divides budgets is
replaced; what reads is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from pyg_graphzero.memory import keeper
from pyg_graphzero.memory.needs import Kind, Needs
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.util.disk import DiskSpeed

_DISK = DiskSpeed("none", 50_000, 1e9, 32, False, 0)


def _division(memory: int, baseline: int, needs: Needs) -> MemoryPlan:
    """Tables are held, a third of all other rows stays in memory, and windows are of 2 batches."""
    tables = {*needs.of(Kind.BOUNDS), *needs.of(Kind.TABLE)}
    return MemoryPlan(
        memory=1 << 40,
        baseline=0,
        held={file.name: file.held_bytes for file in tables},
        hot={file.name: file.num_bytes // 3 for file in needs.files if file not in tables},
        windows=4 << 20,
        window=2,
        plans=1 << 20,
        sampled=8 << 20,
        ready=4,
        batches=4 * max(1 << 20, needs.batch.whole),
        topology_window=2,
        topology_windows=8 << 20,
    )


@contextmanager
def paged(is_paged: bool = True) -> Iterator[None]:
    """Loaders that begin here read rows, ids and neighbours of stores from disk."""
    if not is_paged:
        yield
        return

    with (
        patch.object(keeper, "is_ample", lambda *_: False),
        patch.object(keeper, "divide", _division),
        patch.object(keeper, "probe", lambda _: _DISK),
    ):
        yield
