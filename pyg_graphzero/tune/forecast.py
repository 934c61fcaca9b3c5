"""How long an epoch will take, from what it will read and how fast its batches are made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter

import torch

from pyg_graphzero import _core
from pyg_graphzero.memory.rates import Rates
from pyg_graphzero.memory.simulate import Case, Simulation, Window
from pyg_graphzero.store.columns import engine_array, row_table

# The table that a copy is timed with: larger than caches are.
_TIMED_BYTES = 64 << 20
_TIMED_ROWS = 20_000

#: What an epoch may be bound by.
RANDOM_READS = "disk (random reads)"
BANDWIDTH = "disk (bandwidth)"
SAMPLING = "CPU (sampling)"
GATHERING = "CPU (gathering)"
TRAINING = "training"


@dataclass
class Forecast(Rates):
    """One epoch, in the terms of :class:`~pyg_graphzero.loader.stats.LoaderStats`.

    Attributes:
        binds: What decides it: ``"disk (random reads)"``, ``"disk (bandwidth)"``,
            ``"CPU (sampling)"``, ``"CPU (gathering)"`` or ``"training"``.
    """

    binds: str = SAMPLING


# What is counted of the reads of an epoch.
_COUNTS = ("rows", "hits", "reads", "bytes", "useful_bytes")


@dataclass(frozen=True)
class Pace:
    """How fast batches are made and used.

    Attributes:
        num_workers: Threads of the loader.
        gather: Seconds to gather one batch, on one thread.
        train: Seconds the consumer takes for one batch.
    """

    num_workers: int
    gather: float
    train: float


def forecast(case: Case, simulation: Simulation, pace: Pace, is_first: bool = False) -> Forecast:
    """One epoch, from what was rehearsed of it.

    Args:
        case: What was rehearsed with.
        simulation: What is read.
        pace: Of the loader and the consumer.
        is_first: The epoch that begins with an empty memory; rehearsed ``with_first``.
    """
    profile = case.profile
    epoch, sampled = profile.epoch, max(1, len(profile.batches))
    scale = epoch / sampled
    sample = profile.sample * scale
    found = Forecast(
        batches=epoch, nodes=round(profile.nodes * scale), edges=round(profile.edges * scale),
        sample=sample, gather=pace.gather * epoch,
    )  # fmt: skip
    steady = simulation.steady
    if simulation.plan.is_whole or not steady or epoch == 0:
        threads = pace.num_workers or torch.get_num_threads()
        cpu = (sample + found.gather) / threads
        found.elapsed = max(cpu, pace.train * epoch)
        found.binds = _cpu_bound(found) if cpu >= pace.train * epoch else TRAINING
        return found
    batches = sum(window.count for window in steady)
    counts = _counts(steady, epoch)
    planning = sum(w.planning for w in steady) * epoch / batches
    if is_first:
        counts = _with_fills(simulation, counts)
    found.rows, found.hits = round(counts["rows"]), round(counts["hits"])
    found.reads, found.read_bytes = round(counts["reads"]), round(counts["bytes"])
    found.useful_bytes = round(counts["useful_bytes"])
    reading = case.disk.seconds(found.reads, found.read_bytes)
    streaming = found.read_bytes / case.disk.bytes_per_second
    found.read = planning + reading
    threads = max(1, pace.num_workers)
    cpu, train = (sample + found.gather) / threads, pace.train * epoch
    # While one window trains, the next is read and a third sampled; the first one waits for each
    # stage in turn.
    windows = max(1.0, epoch / (batches / len(steady)))
    slowest = max(found.read, cpu, train)
    first = (sample / threads + found.read + max(found.gather / threads, train)) / windows
    found.elapsed = first + (windows - 1) / windows * slowest
    if slowest == found.read:
        found.binds = RANDOM_READS if reading >= 2 * streaming else BANDWIDTH
    else:
        found.binds = _cpu_bound(found) if slowest == cpu else TRAINING
    return found


def _cpu_bound(found: Forecast) -> str:
    return SAMPLING if found.sample >= found.gather else GATHERING


def _counts(windows: Sequence[Window], batches: float) -> dict[str, float]:
    """What is read for so many batches, if each needs what those of these windows do."""
    each = batches / sum(window.count for window in windows)
    return {name: sum(getattr(w.read, name) for w in windows) * each for name in _COUNTS}


def _with_fills(simulation: Simulation, steady: dict[str, float]) -> dict[str, float]:
    """A first epoch's counts: a steady one's, and what is read once to stay in memory."""
    batches = sum(window.count for window in simulation.first)
    later = _counts(simulation.steady, batches)
    extra = {name: n - later[name] for name, n in _counts(simulation.first, batches).items()}
    filled = -extra["hits"]  # a row that is filled in was a hit less
    seen, whole = simulation.fills
    if filled <= 0 or seen <= 0:
        return steady
    return {name: count + extra[name] * max(1.0, whole / seen) for name, count in steady.items()}


def gather_seconds(num_rows: int, row_bytes: int) -> float:
    """What one thread takes to copy one row of so many out of memory into a batch."""
    table = torch.ones(
        (min(num_rows, _TIMED_BYTES // max(1, row_bytes)), row_bytes), dtype=torch.uint8
    )
    rows = row_table(table)
    if rows is None:  # no rows, or rows of no bytes
        return 0.0
    generator = torch.Generator().manual_seed(0)
    index = engine_array(torch.randint(len(table), (_TIMED_ROWS,), generator=generator))
    out = engine_array(torch.empty((_TIMED_ROWS, row_bytes), dtype=torch.uint8))
    took = []
    for _ in range(6):  # the first one makes the memory that is written to
        begun = perf_counter()
        _core.gather_rows(rows, index, out, 1)
        took.append(perf_counter() - begun)
    return min(took) / _TIMED_ROWS  # other work on the machine only slows it down
