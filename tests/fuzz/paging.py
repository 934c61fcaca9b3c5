"""Has loaders of tiny stores read from disk what they would hold, as in a budget that is too small.

No budget that a process can have is too small for a store of 100 kB, so what divides budgets is
replaced; what reads is not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from unittest.mock import patch

from pyg_graphzero.memory import pager
from pyg_graphzero.memory.plan import BatchSize, FileSize, MemoryPlan
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.util.disk import DiskSpeed

_DISK = DiskSpeed("none", 50_000, 1e9, 32, False, 0)


def _division(files: Sequence[FileSize], batch: BatchSize) -> MemoryPlan:
    """Bounds are held, a third of all other rows stays in memory, and windows are of 2 batches."""
    return MemoryPlan(
        memory=1 << 40,
        baseline=0,
        held={file.name: file.held_bytes for file in files if file.kind == "indptr"},
        hot={file.name: file.num_bytes // 3 for file in files if file.kind != "indptr"},
        windows=4 << 20,
        window=2,
        plans=1 << 20,
        sampled=8 << 20,
        ready=4,
        batches=4 * max(1 << 20, batch.whole),
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
        patch.object(pager, "is_ample", lambda *_: False),
        patch.object(Case, "divide", lambda case, _, files: _division(files, case.batch)),
        patch.object(pager.Pager, "_tune", lambda _, task: _division(task.files, task.case.batch)),
        patch.object(pager, "probe", lambda _: _DISK),
    ):
        yield
