"""Rows written into a new column of a store against plain writes of as many bytes, alternating.

    python benchmarks/column_writer.py --nodes 4000000 --width 256

Each way writes the same float16 rows, in pieces as activations come, until they are durable; the
column is checksummed and published on the way. `encoded` is given float32 and rounds it. `nodes` is
given the rows by node, in another order than theirs on disk, in pieces of that order. `plain` is
pwrite(2) of 8 MiB at a time and one fdatasync(2).
"""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

import torch

import pyg_graphzero as gz
from harness.record import in_turns, parser, record, write
from pyg_graphzero.store.writer import StoreWriter
from pyg_graphzero.util.machine import machine, storage

WAYS = ("plain", "in order", "encoded", "nodes")


def write_plain(path: Path, rows: torch.Tensor, times: int) -> None:
    """The bytes of ``rows``, so many times, at the disk's speed."""
    view = memoryview(rows.view(torch.uint8).numpy().reshape(-1))
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    at = 0
    for _ in range(times):
        for begin in range(0, len(view), 8 << 20):
            at += os.pwrite(fd, view[begin : begin + (8 << 20)], at)
    os.fdatasync(fd)
    os.close(fd)


def write_column(store: Path, way: str, rows: torch.Tensor, times: int) -> None:
    """The same as a column."""
    encoded = way == "encoded"
    with gz.open(store, "r+") as opened:
        column = opened.create_column(
            "h",
            rows.shape[1],
            dtype=torch.float32 if encoded else torch.float16,
            encoding="float16" if encoded else None,
        )
        given = rows.float() if encoded else rows
        index = torch.randperm(len(rows), generator=torch.Generator().manual_seed(1))
        for piece in range(times):
            if way == "nodes":
                column.put_tensor(given, index=index + piece * len(rows))
            else:
                column.write(piece * len(rows), given)
        column.publish()
        opened.feature_store.remove_tensor(None, "h", None)


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("column_writer", __doc__)
    made.add_argument("--nodes", type=int, default=4_000_000)
    made.add_argument("--width", type=int, default=256)
    made.add_argument("--piece", type=int, default=50_000, help="rows of one call")
    made.add_argument("--rounds", type=int, default=3)
    made.add_argument("--dir", type=Path, default=None, help="on the disk to write to")
    args = made.parse_args(argv)

    times = args.nodes // args.piece
    rows = torch.randn(args.piece, args.width, generator=torch.Generator().manual_seed(0)).half()
    num_bytes = times * rows.nbytes
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
        store = Path(folder) / "store"
        with StoreWriter(store, is_hetero=False) as writer:
            writer.add_node_type(None, times * args.piece)
            writer.finish()
        disk = storage(store)
        plain = Path(folder) / "plain"

        def work(way: str) -> None:
            if way != "plain":
                return write_column(store, way, rows, times)
            plain.unlink(missing_ok=True)
            write_plain(plain, rows, times)

        ways = {way: lambda way=way: work(way) for way in WAYS}
        seconds = in_turns(ways, args.rounds, before=os.sync)

    print(f"{machine()}\n{disk}")
    print(f"{times * args.piece:,} rows of {args.width} float16, {num_bytes / 1e9:.2f} GB")
    print(f"{'':10} {'MB/s':>8} {'CPU s/GB':>9}")
    for way, runs in seconds.items():
        wall = statistics.median(run["seconds"] for run in runs)
        cpu = statistics.median(run["cpu_seconds"] for run in runs)
        print(f"{way:10} {num_bytes / wall / 1e6:8.0f} {cpu / num_bytes * 1e9:9.2f}")
    write(args.json, record(args, argv, storage=disk, bytes=num_bytes, seconds=seconds))


if __name__ == "__main__":
    main()
