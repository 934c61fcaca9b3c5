"""What memory is best used for, found out while an epoch is under way that began without that.

An epoch begins by what one batch shows, which is how large batches are. Then a thread samples more
of them, has rows put in order where that is worth it (:mod:`.own_order`), and tries other divisions
of the budget (:mod:`.planner`). The epoch goes on by what it found.
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

# Of what the budget leaves for rows, the share that batches may take that are kept to plan with;
# how long these are sampled, in seconds.
_KEEP_SHARE, _KEEP_SECONDS = 0.05, 2.0
# Bytes of a row's count.
_COUNT_BYTES = 2
# The share of batches that are kept while an epoch is watched; and of the rows that it may use.
_WATCH_KEEP, _WATCH_USED = 0.02, 0.5
# Between what is enough to put rows in order and what is not, so many amounts are tried.
_STEPS = 16


@dataclass(frozen=True)
class Tuned:
    """How a budget is to be divided.

    Attributes:
        loader: For whose batches.
        epoch: How many an epoch has.
        files: What they are read from.
        order: The copy of rows among that.
        batch: Size of one.
        plan: The division.
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
    """What is to be found out.

    Attributes:
        loader: For whom.
        reading: Where it finds neighbours.
        case: One of its batches, or some.
        memory: The budget.
        files: What is read from.
        order: The copy of rows among that.
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
        """The budget as it mostly is divided, with so many bytes less."""
        case = replace(self.case, baseline=self.case.baseline + beside)
        return case.divide(self.memory, self.files)

    def has_room(self, beside: int) -> bool:
        """Whether batches can be made with so many bytes less."""
        baseline = self.case.baseline + beside
        return least_memory(self.files, baseline, self.case.batch) <= self.memory

    def reads_neighbours(self, beside: int = 0) -> bool:
        """Whether batches wait for neighbours that are read, with so many bytes less."""
        return not neighbours_are_held(self.plan(beside), self.files)

    def leaves(self, num_bytes: int) -> bool:
        """Whether batches can be made beside that, and no neighbours are read for it."""
        if not self.has_room(num_bytes):
            return False
        return not self.reads_neighbours(num_bytes) or self.reads_neighbours()

    def finding_bytes(self, plan: MemoryPlan) -> tuple[int, int]:
        """Memory to find it out in.

        Args:
            plan: The budget as it mostly is divided.

        Returns:
            What batches may take that are kept, and that with all else but putting rows in order.
        """
        profile, is_watched = self.case.profile, self.reads_neighbours()
        share = _WATCH_KEEP if is_watched else _KEEP_SHARE
        keep = max(int(share * _room(plan)), sum(rows.nbytes for rows in profile.batches[0]))
        # A batch is sampled while another waits.
        sampling = 0 if is_watched else 2 * profile.accesses.sampling_bytes
        return keep, keep + sampling + _COUNT_BYTES * sum(self.case.graph.node_types.values())

    def making_bytes(self, plan: MemoryPlan) -> tuple[int, int]:
        """Memory to put rows in order in: the least that is worth a try, and what there is.

        Args:
            plan: The budget as it mostly is divided.
        """
        used = _WATCH_USED if self.reads_neighbours() else 1.0
        least, most = making_bytes(self.case.graph, _room(plan), used)
        _, beside = self.finding_bytes(plan)
        step = max(1, (most - least) // _STEPS)
        return least, next((n for n in range(most, 0, -step) if self.leaves(beside + n)), 0)

    def tuned(self, plan: MemoryPlan) -> Tuned:
        """What was found out."""
        path = None if self.order is None else self.order.path
        loader, epoch = weakref.ref(self.loader), self.case.profile.epoch
        return Tuned(loader, epoch, tuple(self.files), path, self.case.batch, plan)


class Tuning:
    """A thread that finds out how to divide a budget.

    Args:
        task: For what.
        num_bytes: Memory that it takes.
        keep: Of it, what batches may take.
        making: And what ranking and copying rows may.

    Attributes:
        thread: The thread.
        watch: Where an epoch's own batches are to be noted; None: more are sampled.
        num_bytes: As given.
        result: What it found; until then, and if it fails, what is known without.
        is_needless: All rows that are used stay in memory by the division that there is.
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
            task: What is to be found out; but for ``target``.
            orders: Where copies are.
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
        except Exception:  # of a thread that nobody waits for
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
            # To change what memory is used for, neighbours that it has would be read anew.
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
        """The same with an epoch's own batches; None if nobody trains any more."""
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
        """The same with more batches; which rows are used is counted unless that is known."""
        is_ranked = any(t.order is not None for t in task.case.contents.schema.node_types)
        found = profile(
            task.loader,
            task.reading,
            most=0 if is_ranked or task.order is not None else MOST_BATCHES,
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
    """A task while rows are watched or copied: it keeps nobody's loader and store alive."""

    def __init__(self, task: Task) -> None:
        assert task.target is not None
        self.target = task.target
        case = task.case
        self._loader = weakref.ref(task.loader)
        self._contents, self._graph = weakref.ref(case.contents), weakref.ref(case.graph)
        self._case = case.profile, case.batch, case.baseline, case.disk
        self._task = task.memory, task.files

    def task(self) -> Task | None:
        """The task; None if nobody waits for it."""
        loader, contents, graph = self._loader(), self._contents(), self._graph()
        if loader is None or contents is None or graph is None:
            return None
        case = Case(contents, graph, *self._case)
        return Task(loader, None, case, *self._task, order=None, target=self.target)

    def ordered(self) -> Task | None:
        """The same with the copy that there is now."""
        task = self.task()
        if task is None:
            return None
        order = OwnOrder.open(self.target.path, task.case.contents)
        return replace(task, files=order.files(task.files), order=order, target=None)


def _room(plan: MemoryPlan) -> int:
    """What a plan leaves for rows and batches."""
    return plan.memory - plan.baseline - sum(plan.held.values())
