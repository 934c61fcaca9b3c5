"""Cold rows a second out of a feature file: the engine's readers against memory maps.

    python benchmarks/reader.py --gigabytes 6 --dir /somewhere/on/the/disk

A window of batches misses a share of the rows of a stretch of the file; all get their rows, in
batches of their own. Before every measurement the file leaves the page cache. Each round measures
the disk first, and every contestant is held against what that allows: the larger of reads / IOPS
and bytes / bandwidth of the engine's plan.
"""

from __future__ import annotations

import argparse
import mmap
import os
import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.record import OUT, drop_caches_argument, parser, record, write
from harness.run import begin
from pyg_graphzero import _core
from pyg_graphzero.bench.process import Clock, memory
from pyg_graphzero.util.machine import machine

ROW_BYTES = 512


def make_file(path: Path, rows: int) -> None:
    """Rows that differ, without waiting for a random number for each byte."""
    rng = np.random.default_rng(0)
    block = rng.integers(0, 256, (1 << 17, ROW_BYTES), dtype=np.uint8)
    with path.open("wb") as file:
        for start in range(0, rows, len(block)):
            part = block[: rows - start]
            part[:, :8] = np.arange(start, start + len(part))[:, None].view(np.uint8)
            file.write(part.tobytes())
        file.flush()
        os.fsync(file.fileno())


@dataclass
class Window:
    """What one round reads: rows for several batches, and where they go."""

    lists: list[Tensor]
    outs: list[Tensor]
    merge_gap: int
    max_read: int

    def check(self) -> None:
        """Every row begins with its number."""
        for rows, out in zip(self.lists, self.outs, strict=True):
            assert torch.equal(out[:, :8].contiguous().view(torch.int64).flatten(), rows)
            out.zero_()


Contestant = Callable[[Window], "_core.ReadStats | None"]


def planned(reader: str, column: _core.ColumnFile, depth: int, threads: int) -> Contestant:
    """The engine: one planned read for the whole window."""
    disk = _core.DiskGather(reader, depth=depth, num_threads=threads)

    def work(window: Window) -> _core.ReadStats:
        return disk.gather(
            column,
            window.lists,
            window.outs,
            merge_gap=window.merge_gap,
            max_read=window.max_read,
        )

    return work


def mapped(path: Path, advice: int, threads: int) -> Contestant:
    """Rows out of a map, batches shared out to threads."""

    def work(window: Window) -> None:
        with path.open("rb") as file:
            view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)
        view.madvise(advice)
        table = _core.RowTable(torch.frombuffer(view, dtype=torch.uint8).view(-1, ROW_BYTES))
        with ThreadPoolExecutor(threads) as pool:
            copies = [
                pool.submit(_core.gather_rows, table, rows, out, 1)
                for rows, out in zip(window.lists, window.outs, strict=True)
            ]
        for copy in copies:
            copy.result()

    return work


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("reader", __doc__)
    made.add_argument("--gigabytes", type=float, default=6)
    made.add_argument("--dir", type=Path, default=OUT)
    made.add_argument("--densities", type=float, nargs="+", default=[0.01, 0.05, 0.2, 0.5])
    made.add_argument("--rows", type=int, default=400_000, help="rows wanted at most")
    made.add_argument("--batches", type=int, default=8, help="batches in a window")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--threads", type=int, default=0, help="0: as many as torch uses")
    made.add_argument("--depth", type=int, default=128)
    made.add_argument("--merge-gap", type=int, default=0, help="0: what the probe says")
    made.add_argument("--max-read", type=int, default=512 << 10)
    made.add_argument("--maps", action=argparse.BooleanOptionalAction, default=True)
    drop_caches_argument(made)
    args = made.parse_args(argv)

    total = int(args.gigabytes * 1e9) // ROW_BYTES
    args.dir.mkdir(parents=True, exist_ok=True)
    path = args.dir / "reader.bin"
    make_file(path, total)
    try:
        results = compare(args, path, total)
    finally:
        path.unlink()
    write(args.json, record(args, argv, **results))


def compare(args: argparse.Namespace, path: Path, total: int) -> dict[str, Any]:
    """Every contestant at every density, and the table of it."""
    threads = _core.num_threads(args.threads)
    column = _core.ColumnFile.open(str(path), 0, total, ROW_BYTES, ROW_BYTES)
    readers = ["pool"] if _core.uring_refusal() else ["uring", "pool"]
    contestants = {name: planned(name, column, args.depth, threads) for name in readers}
    if args.maps:
        contestants["mmap MADV_RANDOM"] = mapped(path, mmap.MADV_RANDOM, 2 * threads)
        contestants["mmap default"] = mapped(path, mmap.MADV_NORMAL, 2 * threads)
    print(f"{machine()}")
    print(
        f"{total:,} rows of {ROW_BYTES} bytes, {threads} threads (maps: {2 * threads}), depth "
        f"{args.depth}, {'direct' if column.direct else 'buffered'} reads"
    )
    print(
        f"{'':26} {'K rows/s':>9} {'min':>8} {'max':>8} {'reads':>8} {'MB':>7} {'time':>7} "
        f"{'of ideal':>8} {'CPU s':>6}"
    )
    records: list[dict[str, Any]] = []
    generator = torch.Generator().manual_seed(0)
    for density in args.densities:
        rows = min(args.rows, int(total * density))
        stretch = int(rows / density)
        for round_number in range(args.rounds):
            # Another stretch each round: what the host has cached of the last one does not count.
            start = int(torch.randint(total - stretch + 1, (), generator=generator))
            wanted = start + torch.randperm(stretch, generator=generator)[:rows]
            lists = [part.clone() for part in wanted.chunk(args.batches)]
            outs = [torch.zeros(len(part), ROW_BYTES, dtype=torch.uint8) for part in lists]
            cold = begin([path], True, args.drop_caches)["by"]
            disk = _core.probe_disk(str(path), 0.6, args.depth)
            gap = args.merge_gap or int(disk.bytes_per_second / disk.random_iops)
            window = Window(lists, outs, gap, args.max_read)
            plan = None
            for name, contestant in contestants.items():
                begin([path], True, args.drop_caches)
                with Clock() as clock:
                    plan = contestant(window) or plan  # maps are held against the engine's plan
                window.check()
                assert plan is not None
                ideal = max(plan.reads / disk.random_iops, plan.bytes / disk.bytes_per_second)
                records.append(
                    {
                        "contestant": name,
                        "density": density,
                        "round": round_number,
                        "rows": rows,
                        "seconds": clock.seconds,
                        "cpu_seconds": clock.cpu_seconds,
                        "ideal_seconds": ideal,
                        "reads": plan.reads,
                        "bytes": plan.bytes,
                        "useful_bytes": plan.useful_bytes,
                        "read_seconds": plan.seconds,
                        "merge_gap": gap,
                        "random_iops": disk.random_iops,
                        "bytes_per_second": disk.bytes_per_second,
                        "direct": disk.direct,
                        "cold_by": cold,
                    }
                )
        report([r for r in records if r["density"] == density])
    return {
        "cache": "cold before every measurement",
        "memory": memory(os.getpid()),
        "uring_refusal": _core.uring_refusal(),
        "measurements": records,
    }


def report(records: list[dict[str, Any]]) -> None:
    """One line for each contestant at one density."""
    first = records[0]
    iops = statistics.median(r["random_iops"] for r in records)
    bandwidth = statistics.median(r["bytes_per_second"] for r in records)
    print(
        f"{first['density']:.0%} of the rows wanted: {first['rows']:,} rows; the disk: "
        f"{iops:,.0f} IOPS, {bandwidth / 1e6:,.0f} MB/s"
    )
    for name in dict.fromkeys(r["contestant"] for r in records):
        own = [r for r in records if r["contestant"] == name]
        rates = [r["rows"] / r["seconds"] / 1e3 for r in own]
        reads = f"{own[0]['reads']:8,} {own[0]['bytes'] / 1e6:7,.0f}"
        if name.startswith("mmap"):
            reads = " " * len(reads)
        seconds = statistics.median(r["seconds"] for r in own)
        ratio = statistics.median(r["seconds"] / r["ideal_seconds"] for r in own)
        cpu = statistics.median(r["cpu_seconds"] for r in own)
        print(
            f"  {name:24} {statistics.median(rates):9,.0f} {min(rates):8,.0f} {max(rates):8,.0f} "
            f"{reads} {seconds:6.2f}s {ratio:7.2f}x {cpu:6.2f}"
        )


if __name__ == "__main__":
    main()
