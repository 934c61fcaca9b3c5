"""How a budget of memory is divided: what is held whole, what stays resident, what is read ahead.

Everything here is arithmetic over sizes; :mod:`pyg_graphzero.memory.pager` acts on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import ceil

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.util.disk import READER_BYTES

#: Batches in the consumer's hands: a loop gets the next one before it lets go of the last.
CONSUMER_BATCHES = 2
#: Batches are read for at most so many at once. More hardly unites more rows.
MAX_WINDOW = 64
#: Batches whose topology is read are sampled so many together, at most.
MAX_TOPOLOGY_WINDOW = 16
#: While the batches of one window are gathered, those of the next are sampled.
WINDOWS_AHEAD = 2
#: Rows of at most so many bytes cost less to hold in memory than to read one by one.
SMALL_ROW = 64

# Shares of what is left for what is not held whole.
_HELD_SHARE = 0.6
_TOPOLOGY_SHARE = 0.5
# For each row of each batch of a window, while it is worked out what to read: sort keys, places.
_PLAN_BYTES = 24
_TOGETHER_SHARE = 0.15
# What a batch takes while it is sampled together with others, in what it takes when it waits: ids
# and slots in 64 bits, an id map, what is read; and two such windows at a time.
_TOGETHER = 8
# Batches that are ready, in the making, or in the consumer's hands.
_READY = 3 + CONSUMER_BATCHES
_LEAST_READY = 1 + CONSUMER_BATCHES
_READY_SHARE = 0.1


@dataclass(frozen=True)
class FileSize:
    """One file that loaders read from.

    Attributes:
        name: Of the file.
        num_rows: Its rows.
        row_bytes: Of each, as it is stored.
        kind: ``"indptr"``, ``"node"``, ``"indices"`` or ``"edge"``: the order in which files are
            held where rows are small.
        processes: How many have the file mapped. Pages of a file that is held are in memory once,
            whoever uses them.
    """

    name: str
    num_rows: int
    row_bytes: int
    kind: str
    processes: int = 1

    @property
    def num_bytes(self) -> int:
        """Of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def held_bytes(self) -> int:
        """What one of the processes pays for, if the file is held whole."""
        return -(-self.num_bytes // self.processes)


@dataclass(frozen=True)
class BatchSize:
    """What one batch takes, in bytes unless said otherwise.

    Attributes:
        sampled: Its nodes and edges, before anything is gathered.
        whole: With its rows, as the consumer gets them.
        nodes: How many it has; of all types.
    """

    sampled: int
    whole: int
    nodes: int = 0


@dataclass(frozen=True)
class Split:
    """How large rows share what is left for them; what is best is found out by simulation.

    Attributes:
        hot: The share of rows that stay in memory; the rest goes to windows.
        new: Of the rows of a batch, those that are neither hot nor another batch's of its
            window, as a share.
    """

    hot: float = 0.4
    new: float = 0.3


#: Where batches are too few to find out anything.
DEFAULT_SPLIT = Split()


@dataclass(frozen=True)
class MemoryPlan:
    """What a budget is used for; all in bytes but ``window`` and ``ready``, which count batches.

    Attributes:
        memory: The budget.
        baseline: What the process had before.
        held: Files that are in memory whole; of each, what this process pays for.
        hot: What stays in memory of the other files.
        windows: Rows that are read for windows of batches.
        window: For how many batches rows are read at once.
        plans: Working out what to read for a window.
        sampled: Batches that are sampled and wait to be read for.
        ready: Batches that may be ready, in the making, or in the consumer's hands.
        batches: What those take.
        topology_window: For how many batches the neighbours of a hop are read at once.
        topology_windows: What batches take that are sampled so, two windows at a time.
    """

    memory: int
    baseline: int
    held: dict[str, int]
    hot: dict[str, int] = field(default_factory=dict)
    windows: int = 0
    window: int = 1
    plans: int = 0
    sampled: int = 0
    ready: int = _READY
    batches: int = 0
    topology_window: int = 1
    topology_windows: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything is held."""
        return not self.hot

    def window_of(self, epoch: int) -> int:
        """For how many batches rows are read at once, in an epoch of so many.

        There are two windows at least: while one of all its batches would be read, nobody could do
        anything else.
        """
        return max(1, min(self.window, -(-epoch // 2)))

    @property
    def total(self) -> int:
        """All of it together."""
        parts = (self.baseline, self.windows, self.plans, self.sampled, self.batches)
        reader = 0 if self.is_whole else READER_BYTES + self.topology_windows
        return sum(parts) + reader + sum(self.held.values()) + sum(self.hot.values())


def least_memory(files: Sequence[FileSize], baseline: int, batch: BatchSize) -> int:
    """Bytes below which no batch of this size can be made: nothing resident, one made at a time."""
    must = sum(file.held_bytes for file in files if file.kind == "indptr")
    least = baseline + must + READER_BYTES + _LEAST_READY * batch.whole + batch.sampled
    return least + _TOGETHER * batch.sampled


def is_ample(memory: int, files: Sequence[FileSize], baseline: int) -> bool:
    """Whether there is room for everything and some batches, whatever a batch takes."""
    return memory >= 2 * (baseline + sum(file.held_bytes for file in files))


def divide(
    memory: int,
    files: Sequence[FileSize],
    baseline: int,
    batch: BatchSize,
    split: Split = DEFAULT_SPLIT,
) -> MemoryPlan:
    """Divides a budget.

    What every batch needs comes first. Then small rows are held whole (a read of 4 KiB for 8 bytes
    is a bad bargain), then topologies; large rows share the rest with the windows they are read in.

    Args:
        memory: The budget, in bytes.
        files: What loaders read from.
        baseline: What the process holds already, in bytes.
        batch: Size of one batch.
        split: How large rows share what is left for them.

    Raises:
        MemoryBudgetError: The budget is too small for one batch; names the least that works.
    """
    least = least_memory(files, baseline, batch)
    everything = sum(file.held_bytes for file in files)
    if memory >= baseline + everything + _LEAST_READY * batch.whole + batch.sampled:
        spare = memory - baseline - everything - batch.sampled
        ready = max(_LEAST_READY, min(_READY, spare // max(1, batch.whole)))
        held = {file.name: file.held_bytes for file in files}
        return MemoryPlan(memory, baseline, held, ready=ready, batches=ready * batch.whole)
    if memory < least:
        sharers = max((file.processes for file in files), default=1)
        whose = "" if sharers == 1 else f" for each of {sharers} processes"
        raise MemoryBudgetError(
            f"memory: found {memory // 10**6:,} MB{whose}, expected "
            f"{ceil(least / 1e6):,} MB or more: the process takes "
            f"{baseline / 1e6:,.0f} MB already, and one batch "
            f"{batch.whole / 1e6:,.0f} MB, {_LEAST_READY} at a time; smaller batches or fan-outs "
            f"need less"
        )
    must = {file.name: file.held_bytes for file in files if file.kind == "indptr"}
    room = memory - baseline - READER_BYTES - sum(must.values())
    ready = max(_LEAST_READY, min(_READY, int(_READY_SHARE * room) // max(1, batch.whole)))
    batches = ready * batch.whole
    room -= batches + batch.sampled
    held = dict(must)
    paged: list[FileSize] = []
    for file in sorted((f for f in files if f.kind != "indptr"), key=_worth):
        is_small = file.row_bytes <= SMALL_ROW
        if is_small and file.held_bytes <= _HELD_SHARE * room:
            held[file.name] = file.held_bytes
            room -= file.held_bytes
        else:
            paged.append(file)
    hot: dict[str, int] = {}
    topology_window = topology_windows = 0
    if any(file.kind == "indices" for file in paged):
        each = _TOGETHER * max(1, batch.sampled)
        topology_window = max(1, min(MAX_TOPOLOGY_WINDOW, int(_TOGETHER_SHARE * room) // each))
        topology_windows = min(topology_window * each, room)
        room -= topology_windows
    for file in paged:
        if file.kind == "indices":
            share = int(_TOPOLOGY_SHARE * room)
            hot[file.name] = min(file.num_bytes, share)
            room -= hot[file.name]
    rows = [file for file in paged if file.kind != "indices"]
    # What is read for a window, and the samples that wait for it, the next one's too.
    ahead = int((1 - split.hot) * room)
    per_batch = WINDOWS_AHEAD * batch.sampled + _PLAN_BYTES * batch.nodes
    per_batch += int(split.new * batch.nodes * sum(file.row_bytes for file in rows))
    window = max(1, min(MAX_WINDOW, ahead // max(1, per_batch)))
    sampled = min(WINDOWS_AHEAD * window * batch.sampled, ahead)
    plans = min(window * _PLAN_BYTES * batch.nodes, ahead - sampled)
    windows = ahead - sampled - plans
    room -= ahead
    all_rows = sum(file.num_bytes for file in rows)
    for file in rows:
        share = room * file.num_bytes // max(1, all_rows)
        hot[file.name] = min(file.num_bytes, share)
    return MemoryPlan(
        memory=memory,
        baseline=baseline,
        held=held,
        hot=hot,
        windows=windows,
        window=window,
        plans=plans,
        sampled=sampled + batch.sampled,
        ready=ready,
        batches=batches,
        topology_window=max(1, topology_window),
        topology_windows=topology_windows,
    )


def _worth(file: FileSize) -> tuple[int, int]:
    return ("node", "indices", "edge").index(file.kind), file.num_bytes
