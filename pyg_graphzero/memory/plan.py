"""How a budget of memory is divided: files held whole, rows that stay resident, rows read ahead.

Everything here is arithmetic over sizes; :mod:`pyg_graphzero.memory.pager` acts on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget, how_many


@dataclass(frozen=True)
class FileSize:
    """One file that loaders read from.

    Attributes:
        name: Name of the file.
        num_rows: Number of its rows.
        row_bytes: Bytes of a row as it is stored.
        kind: ``"indptr"``, ``"node"``, ``"indices"`` or ``"edge"``: the order in which files are
            held where rows are small.
        is_ranked: Rows lie in the order of their use, so that the first ones are to be kept.
            Unranked files keep recently used rows.
        used_rows: How many first rows of a ranked file batches use; they hardly ever use others.
            None where that is not known.
        packed_bytes: Bytes of a table in this process's own memory that may stand for the file;
            None where there is no such table.
        processes: How many processes have the file mapped. They share the pages of a file that is
            held.
    """

    name: str
    num_rows: int
    row_bytes: int
    kind: str
    processes: int = 1
    is_ranked: bool = False
    packed_bytes: int | None = None
    used_rows: int | None = None

    @property
    def num_bytes(self) -> int:
        """Bytes of all rows."""
        return self.num_rows * self.row_bytes

    @property
    def held_bytes(self) -> int:
        """One process's share of the file, if it is held whole."""
        return -(-self.num_bytes // self.processes)

    @property
    def is_packed(self) -> bool:
        """Whether the table is smaller than the file; it then stands for it, unless all fits."""
        return self.packed_bytes is not None and self.packed_bytes < self.held_bytes

    @property
    def least_bytes(self) -> int:
        """This process's bytes for the file if it is held, and not all files are."""
        return self.packed_bytes or 0 if self.is_packed else self.held_bytes


@dataclass(frozen=True)
class BatchSize:
    """Memory of one batch, in bytes unless said otherwise.

    Attributes:
        sampled: Its nodes and edges, while it waits for its rows.
        whole: All of it with its rows, as the consumer gets it.
        nodes: Number of its nodes of all types.
        reading: All of it while the neighbours of its last hop are read.
    """

    sampled: int
    whole: int
    nodes: int = 0
    reading: int = 0


@dataclass(frozen=True)
class Split:
    """Division of the memory for large rows; the best one is found by simulation.

    Attributes:
        hot: Share of that memory for rows that stay; the rest goes to windows.
        new: Share of a batch's rows that are neither hot nor another batch's of its window.
    """

    hot: float = 0.4
    new: float = 0.3


#: Where batches are too few to find out anything.
DEFAULT_SPLIT = Split()


@dataclass(frozen=True)
class MemoryPlan:
    """Uses of a budget, in bytes but for ``window``, ``ready`` and ``topology_window`` in batches.

    Attributes:
        memory: The budget.
        baseline: Memory of the process before the plan.
        held: Files that are in memory whole, with this process's share of each.
        hot: Memory for resident rows of each other file.
        windows: Rows that are read for windows of batches.
        window: For how many batches rows are read at once.
        plans: Working out which rows to read for a window.
        sampled: Batches that are sampled and wait for their rows.
        ready: Batches that may be ready, in the making, or in the consumer's hands.
        batches: Memory of the ``ready`` batches.
        topology_window: For how many batches the neighbours of a hop are read at once.
        topology_windows: Memory of batches while their neighbours are read together.
        cached: Part of ``windows`` that is read into ``hot``, where recently used rows stay.
        reading: Buffers of the readers; neighbours that are read have a reader of their own.
    """

    memory: int
    baseline: int
    held: Mapping[str, int]
    hot: Mapping[str, int] = field(default_factory=dict)
    windows: int = 0
    window: int = 1
    plans: int = 0
    sampled: int = 0
    ready: int = costs.MOST_READY
    batches: int = 0
    topology_window: int = 1
    topology_windows: int = 0
    cached: int = 0
    reading: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything is held."""
        return not self.hot

    def window_of(self, epoch: int) -> int:
        """For how many batches rows are read at once, in an epoch of ``epoch`` batches.

        There are two windows at least: while one window of all batches were read, the consumer and
        the other threads would have nothing to do.
        """
        return max(1, min(self.window, -(-epoch // 2)))

    @property
    def parts(self) -> dict[str, int]:
        """Bytes of each use; uses without any are left out."""
        parts = {
            "this process, before": self.baseline,
            "files in memory whole": sum(self.held.values()),
            "what stays of the others": sum(self.hot.values()),
            f"rows read for {self.window} batches at once": self.windows - self.cached,
            "batches that wait for those": self.sampled,
            "working out what to read": self.plans,
            f"neighbours read for {self.topology_window} batches at once": self.topology_windows,
            "reading": self.reading,
            f"{self.ready} batches, made or being made": self.batches,
        }
        return {name: num_bytes for name, num_bytes in parts.items() if num_bytes > 0}

    @property
    def total(self) -> int:
        """All of it together."""
        return sum(self.parts.values())


def least_memory(files: Sequence[FileSize], baseline: int, batch: BatchSize) -> int:
    """Bytes below which no batch of this size can be made: nothing resident, one made at a time."""
    must = sum(file.least_bytes for file in files if file.kind == "indptr")
    least = baseline + must + costs.READER + costs.LEAST_READY * batch.whole
    return least + batch.sampled + batch.reading + _window_of_one(files, batch)


def _window_of_one(files: Sequence[FileSize], batch: BatchSize) -> int:
    """Bytes of a window of one batch, which is read at any price, and of samples that wait."""
    of_node = sum(file.row_bytes for file in files if file.kind == "node")
    has_edges = any(file.kind == "edge" for file in files)
    rows = batch.whole if has_edges else min(batch.whole, batch.nodes * of_node)
    return rows + costs.WINDOWS_AHEAD * batch.sampled + _planning(batch, 1.0)


def _planning(batch: BatchSize, sorted_share: float) -> int:
    """Bytes that working out what to read takes for each batch of a window."""
    return int(batch.nodes * (costs.WINDOW_PLACE + costs.WINDOW_KEY * sorted_share))


def is_ample(memory: int, files: Sequence[FileSize], baseline: int) -> bool:
    """Whether there is room for everything and some batches, whatever a batch takes."""
    return memory >= 2 * (baseline + sum(file.held_bytes for file in files))


def neighbours_are_held(plan: MemoryPlan, files: Sequence[FileSize]) -> bool:
    """Whether no batch has to wait for neighbours that are read."""
    return all(file.name not in plan.hot for file in files if file.kind == "indices")


def divide(
    memory: int,
    files: Sequence[FileSize],
    baseline: int,
    batch: BatchSize,
    split: Split = DEFAULT_SPLIT,
) -> MemoryPlan:
    """Divides a budget.

    Memory that every batch needs comes first. Then small rows are held whole (a read of 4 KiB for 8
    bytes is a bad bargain), then topologies; large rows share the rest with the windows they are
    read in.

    Args:
        memory: The budget, in bytes.
        files: Files that loaders read from.
        baseline: Bytes that the process holds already.
        batch: Size of one batch.
        split: Division of the memory that is left for large rows.

    Raises:
        MemoryBudgetError: The budget is too small for one batch; names the least that works.
    """
    budget = Budget(memory, baseline)
    everything = sum(file.held_bytes for file in files)
    if budget.left >= everything + costs.LEAST_READY * batch.whole + batch.sampled:
        budget.spend(everything + batch.sampled)
        ready = budget.take(1.0, batch.whole, costs.LEAST_READY, costs.MOST_READY)
        held = {file.name: file.held_bytes for file in files}
        return MemoryPlan(memory, baseline, held, ready=ready, batches=ready * batch.whole)
    budget.check(
        least_memory(files, 0, batch),
        "",
        f", and one batch {batch.whole / 1e6:,.0f} MB, {costs.LEAST_READY} at a time; smaller "
        "batches or fan-outs need less",
        max((file.processes for file in files), default=1),
    )
    held = {file.name: file.least_bytes for file in files if file.kind == "indptr"}
    budget.spend(costs.READER + sum(held.values()))
    ready = budget.take(costs.READY_SHARE, batch.whole, costs.LEAST_READY, costs.MOST_READY)
    budget.spend(batch.sampled)
    one = min(_window_of_one(files, batch), budget.left)
    paged: list[FileSize] = []
    for file in sorted((f for f in files if f.kind != "indptr"), key=_worth):
        is_small = file.row_bytes <= costs.SMALL_ROW
        most = min(costs.HELD_SHARE * budget.left, budget.left - one)
        if is_small and file.least_bytes <= most:
            held[file.name] = budget.spend(file.least_bytes)
        else:
            paged.append(file)
    hot: dict[str, int] = {}
    topology_window, topology_windows = 1, 0
    topologies = [file for file in paged if file.kind == "indices"]
    reading = costs.READER
    if topologies:
        each = max(1, batch.reading)
        topology_window = how_many(budget.left, costs.TOGETHER_SHARE, each, 1, costs.MAX_TOGETHER)
        topology_windows = budget.spend(min(topology_window * each, budget.left))
    else:
        spared = costs.SPARED_SHARE * max(0, budget.left)
        reading += budget.spend(-int(min(costs.READER / 2, spared)))
    for file in topologies:
        most = max(0, min(file.num_bytes, budget.left - one))
        hot[file.name] = budget.take(costs.TOPOLOGY_SHARE, most=most)
    rows = [file for file in paged if file.kind != "indices"]
    # Rows that are read for a window, and samples that wait for it, those of the next one too.
    ahead = budget.take(1 - split.hot, least=min(one, budget.left))
    planning = _planning(batch, split.new if all(file.is_ranked for file in rows) else 1.0)
    new = int(split.new * batch.nodes * sum(file.row_bytes for file in rows))
    waiting = costs.WINDOWS_AHEAD * batch.sampled
    window = how_many(ahead, 1.0, waiting + planning + new, 1, costs.MAX_WINDOW)
    sampled = min(window * waiting, ahead)
    plans = min(window * planning, ahead - sampled)
    windows = ahead - sampled - plans
    all_rows = max(1, sum(file.num_bytes for file in rows))
    cached = 0
    for file in rows:
        share = budget.left * file.num_bytes // all_rows
        if not file.is_ranked:
            part = int(costs.CACHED_SHARE * windows * file.num_bytes / all_rows)
            share, cached = share + part, cached + part
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
        batches=ready * batch.whole,
        topology_window=topology_window,
        topology_windows=topology_windows,
        cached=cached,
        reading=reading,
    )


def _worth(file: FileSize) -> tuple[int, int]:
    return ("node", "indices", "edge").index(file.kind), file.num_bytes
