"""Finds the best memory plan while an epoch is under way that began with a preliminary one.

The preliminary plan knows one batch, which shows how large batches are. A thread then samples more
of them, has rows put in order where that is worth it (:mod:`.own_order`), and tries other divisions
of the budget (:mod:`.planner`). The epoch goes on by the plan that it finds.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Sequence
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from time import perf_counter

from pyg_graphzero.errors import FormatError
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.files import bytes_of_batches
from pyg_graphzero.memory.own_order import (
    CopyTarget,
    OrderKeeper,
    Sampling,
    make_copy,
    making_bytes,
    no_room,
    rank_to_copy,
)
from pyg_graphzero.memory.plan import (
    BatchSize,
    FileSize,
    MemoryPlan,
    least_memory,
    neighbours_are_held,
)
from pyg_graphzero.memory.planner import choose_plan
from pyg_graphzero.memory.profile import MOST_BATCHES, larger, profile
from pyg_graphzero.memory.row_copy import OwnOrder, Stopped, ranks_of
from pyg_graphzero.memory.simulate import Case
from pyg_graphzero.memory.source import BatchSource
from pyg_graphzero.memory.watch import Watch
from pyg_graphzero.sampling.base import Reading
from pyg_graphzero.util.system import return_freed_memory

log = logging.getLogger("pyg_graphzero")

# Share of the memory left for rows that batches may take which are kept to plan with, and seconds
# for which these batches are sampled.
_KEEP_SHARE, _KEEP_SECONDS = 0.05, 2.0
# Bytes of a row's count.
_COUNT_BYTES = 2
# The share of batches that are kept while an epoch is watched; and of the rows that it may use.
_WATCH_KEEP, _WATCH_USED = 0.02, 0.5
# Number of amounts tried between the memory that is enough to put rows in order and the least.
_STEPS = 16


@dataclass(frozen=True)
class Tuned:
    """How a budget is to be divided.

    Attributes:
        loader: The loader whose batches the plan is for.
        epoch: How many batches an epoch has.
        files: Files that the batches are read from.
        order: The copy of rows among these files.
        batch: Size of one batch.
        plan: The memory plan.
    """

    loader: weakref.ref[BatchSource]
    epoch: int
    files: tuple[FileSize, ...]
    order: Path | None
    batch: BatchSize
    plan: MemoryPlan

    def is_for(
        self, loader: BatchSource, case: Case, files: Sequence[FileSize], order: OwnOrder | None
    ) -> bool:
        """Whether it is for batches like these."""
        pairs = zip(astuple(self.batch), astuple(case.batch), strict=True)
        return (
            self.loader() is loader
            and self.epoch == case.profile.epoch
            and self.files == tuple(files)
            and self.order == (None if order is None else order.path)
            and all(mine >= other for mine, other in pairs)
        )


@dataclass
class Task:
    """A loader, a budget and files for which the best plan is to be found.

    Attributes:
        loader: The loader that the plan is for.
        reading: Where it finds neighbours.
        case: One of its batches, or some.
        memory: The budget.
        files: Files that batches are read from.
        order: The copy of rows among these files.
        target: Where a copy is to be made; None: none is.
    """

    loader: BatchSource
    reading: Reading | None
    case: Case
    memory: int
    files: Sequence[FileSize]
    order: OwnOrder | None
    target: CopyTarget | None = None

    def plan(self, beside: int = 0) -> MemoryPlan:
        """The memory plan by the default split, with ``beside`` bytes less."""
        case = replace(self.case, baseline=self.case.baseline + beside)
        return case.divide(self.memory, self.files)

    def has_room(self, beside: int) -> bool:
        """Whether batches can be made with ``beside`` bytes less."""
        baseline = self.case.baseline + beside
        return least_memory(self.files, baseline, self.case.batch) <= self.memory

    def reads_neighbours(self, beside: int = 0) -> bool:
        """Whether batches wait for neighbours that are read, with ``beside`` bytes less."""
        return not neighbours_are_held(self.plan(beside), self.files)

    def leaves(self, num_bytes: int) -> bool:
        """Whether batches can be made with ``num_bytes`` less.

        False, too, where only the lack of these bytes would have neighbours read from disk.
        """
        if not self.has_room(num_bytes):
            return False
        return not self.reads_neighbours(num_bytes) or self.reads_neighbours()

    def finding_bytes(self, plan: MemoryPlan) -> tuple[int, int]:
        """Memory in which the best plan is found.

        Args:
            plan: The memory plan by the default split.

        Returns:
            Bytes for batches that are kept, and bytes for all but putting rows in order.
        """
        profile, is_watched = self.case.profile, self.reads_neighbours()
        share = _WATCH_KEEP if is_watched else _KEEP_SHARE
        keep = max(int(share * _room(plan)), sum(rows.nbytes for rows in profile.batches[0]))
        # A batch is sampled while another waits.
        sampling = 0 if is_watched else 2 * profile.accesses.sampling_bytes
        return keep, keep + sampling + _COUNT_BYTES * sum(self.case.graph.node_types.values())

    def making_bytes(self, plan: MemoryPlan) -> tuple[int, int]:
        """Memory to put rows in order in: the least that is worth a try, and the most there is.

        Args:
            plan: The memory plan by the default split.
        """
        used = _WATCH_USED if self.reads_neighbours() else 1.0
        least, most = making_bytes(self.case.graph, _room(plan), used)
        _, beside = self.finding_bytes(plan)
        step = max(1, (most - least) // _STEPS)
        return least, next((n for n in range(most, 0, -step) if self.leaves(beside + n)), 0)

    def tuned(self, plan: MemoryPlan) -> Tuned:
        """The result of this task, with the plan that was found."""
        path = None if self.order is None else self.order.path
        loader, epoch = weakref.ref(self.loader), self.case.profile.epoch
        return Tuned(loader, epoch, tuple(self.files), path, self.case.batch, plan)


class Tuning:
    """A thread that finds out how to divide a budget.

    Args:
        task: The loader and the budget.
        num_bytes: Memory that tuning takes.
        keep: Part of ``num_bytes`` for batches that are kept.
        making: Part of ``num_bytes`` for ranking and copying rows.

    Attributes:
        thread: The thread.
        watch: Where an epoch's own batches are to be noted; None: more are sampled.
        num_bytes: Memory that tuning takes.
        result: The plan that was found; until then, and if tuning fails, the default split's.
        is_needless: All rows that are used stay in memory by the preliminary plan.
    """

    def __init__(self, task: Task, num_bytes: int, keep: int, making: int = 0) -> None:
        self.num_bytes = num_bytes
        self.result = task.tuned(task.plan())
        self.is_needless = False
        self._keep = keep
        self._making = making
        self.watch = None
        if task.reads_neighbours():
            has_edges = any(file.kind == "edge" for file in task.files)
            self.watch = Watch(task.loader, keep, has_edges)
        self._stop = threading.Event()
        self._begun = perf_counter()
        # It forgets the task when rows are copied: then the store is its users' alone.
        self.thread = threading.Thread(
            target=self._run, args=([task],), daemon=True, name="graphzero-tuning"
        )
        self.thread.start()

    @classmethod
    def begin(cls, task: Task, orders: OrderKeeper) -> Tuning | None:
        """Begins it, if there is something to find out, and memory to do it in.

        Args:
            task: The loader and the budget; ``target`` is set here.
            orders: Finds copies, and says where one is to be made.
        """
        case, files = task.case, task.files
        plan = task.plan()
        if not plan.hot or not case.profile.batches:
            return None
        is_wanted = task.order is None and orders.is_wanted(case, plan, files)
        is_watched = task.reads_neighbours()
        if is_watched and not is_wanted:
            return None
        keep, num_bytes = task.finding_bytes(plan)
        if is_wanted:
            least, making = task.making_bytes(plan)
            if making < least:
                no_room(case.contents, least, making)
            else:
                target = orders.target(case, plan, files)
                if target is not None:
                    task = replace(task, target=target)
                    return cls(task, num_bytes + making, keep, making)
        return cls(task, num_bytes, keep) if task.leaves(num_bytes) and not is_watched else None

    @property
    def is_over(self) -> bool:
        """Whether it has come to an end."""
        return not self.thread.is_alive()

    def end(self) -> None:
        """Stops it, and waits for that."""
        self._stop.set()
        if self.watch is not None:
            self.watch.done.set()
        if self.thread is not threading.current_thread():  # which may be the last to know the store
            self.thread.join()

    def _check(self) -> None:
        if self._stop.is_set():
            raise Stopped

    def _run(self, tasks: list[Task]) -> None:
        path = tasks[0].case.contents.path
        try:
            self._find(tasks)
        except Stopped:
            pass
        except (FormatError, OSError) as error:
            log.warning("%s: rows are not put in order: %s", path, error)
        except Exception:  # a thread's error reaches no caller
            log.exception("%s: memory is used as before", path)
        return_freed_memory()

    def _find(self, tasks: list[Task]) -> None:
        task = self._watched(tasks) if self.watch is not None else self._sampled(tasks.pop())
        if task is not None and task.target is not None:
            plans = task.plan(self.num_bytes), task.plan()
            ranking = self.watch or Sampling(task.loader, task.reading, self._check)
            ranked = rank_to_copy(
                task.case, task.files, plans, ranking, task.target, self._making, self._check
            )
            # With another plan, neighbours that are in memory would be read anew.
            self.is_needless = ranked.all_stay or (self.watch is not None and not ranked.parts)
            if self.watch is not None:
                self.watch.end()
            if self.is_needless:
                return
            if ranked.parts:
                waiting, task = _Waiting(task), None
                del ranking
                return_freed_memory()
                if self._stop.wait(max(0.0, ranked.wait - (perf_counter() - self._begun))):
                    return
                make_copy(waiting.target, ranked, self._stop)
                task = waiting.ordered()
        if task is not None:
            order = task.order
            ranks = None if order is None else ranks_of(order.types, task.case.graph)
            plan = choose_plan(task.case, task.memory, task.files, ranks, self._check)
            self.result = task.tuned(plan)

    def _watched(self, tasks: list[Task]) -> Task | None:
        """The task with an epoch's own batches; None if its loader or store is gone."""
        assert self.watch is not None
        waiting = _Waiting(tasks.pop())
        self.watch.done.wait()
        self._check()
        task = waiting.task()
        if task is not None:
            self._begun = perf_counter()
            task.case.profile = self.watch.profile()
        return task

    def _sampled(self, task: Task) -> Task:
        """The task with more batches; counts which rows are used unless that is known."""
        found = profile(
            task.loader,
            task.reading,
            most=0 if task.order is not None else MOST_BATCHES,
            keep=costs.MAX_WINDOW,
            keep_seconds=_KEEP_SECONDS,
            keep_bytes=self._keep,
            keeps_edges=any(file.kind == "edge" for file in task.files),
            each=self._check,
        )
        size = found.accesses.batch_size(*bytes_of_batches(task.loader))
        batch = larger(task.case.batch, size)
        return replace(task, case=replace(task.case, profile=found, batch=batch))


class _Waiting:
    """A task while rows are watched or copied; it keeps neither loader nor store alive."""

    def __init__(self, task: Task) -> None:
        assert task.target is not None
        self.target = task.target
        case = task.case
        self._loader = weakref.ref(task.loader)
        self._contents, self._graph = weakref.ref(case.contents), weakref.ref(case.graph)
        self._case = case.profile, case.batch, case.baseline, case.disk
        self._task = task.memory, task.files

    def task(self) -> Task | None:
        """The task; None if its loader or store is gone."""
        loader, contents, graph = self._loader(), self._contents(), self._graph()
        if loader is None or contents is None or graph is None:
            return None
        case = Case(contents, graph, *self._case)
        return Task(loader, None, case, *self._task, order=None, target=self.target)

    def ordered(self) -> Task | None:
        """The task with the copy that there is now; None if its loader or store is gone."""
        task = self.task()
        if task is None:
            return None
        order = OwnOrder.open(self.target.path, task.case.contents)
        return replace(task, files=order.files(task.files), order=order, target=None)


def _room(plan: MemoryPlan) -> int:
    """Bytes that a plan leaves for rows and batches."""
    return plan.memory - plan.baseline - sum(plan.held.values())
