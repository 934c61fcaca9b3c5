"""Rows of an encoded column against rows of float32: gathered warm, in one run, alternating.

    python benchmarks/decode.py --rows 1000000 --dim 128

Writes one table in every encoding, reads it into the page cache, and gathers the same random rows
of each in turn, into memory that is used again, as loaders do.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from harness.record import in_turns, parser, record, write
from pyg_graphzero import _core
from pyg_graphzero.store.columns import (
    column_rows,
    engine_array,
    row_table,
    view_column,
    write_column,
)
from pyg_graphzero.store.encoding import ENCODINGS, ColumnEncoder
from pyg_graphzero.store.rows import ArrayRows
from pyg_graphzero.util.machine import machine


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("decode", __doc__)
    made.add_argument("--rows", type=int, default=1_000_000)
    made.add_argument("--dim", type=int, default=128)
    made.add_argument("--gather", type=int, default=200_000, help="rows of one gather")
    made.add_argument("--threads", type=int, default=1)
    made.add_argument("--rounds", type=int, default=41)
    args = made.parse_args(argv)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(args.rows, args.dim, generator=generator)
    index = torch.randint(args.rows, (args.gather,), generator=generator)
    ids = engine_array(index)
    out = engine_array(torch.zeros(args.gather, args.dim * 4, dtype=torch.uint8))
    works: dict[str, Callable[[], object]] = {}
    strides = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("float32", *ENCODINGS):
            path = str(Path(folder) / name)
            started = time.process_time()
            value = x if name == "float32" else ColumnEncoder(ArrayRows(x), name, "x")
            write_column(path, value)
            wrote = time.process_time() - started
            column = _core.Column.open(path)
            table = row_table(column_rows(column, view_column(column)))
            works[name] = lambda t=table: _core.gather_rows(t, ids, out, args.threads)
            strides[name] = column.row_stride
            view_column(column).sum()  # into the page cache
            print(f"{name}: written at {x.nbytes / wrote / 1e9:.2f} GB of float32 per CPU second")
        rounds = in_turns(works, args.rounds)
        works.clear()

    print(f"{machine()}")
    print(f"{args.rows:,} rows of {args.dim}, {args.gather:,} gathered, warm")
    print(f"{'':10} {'bytes/row':>10} {'M rows/s':>10} {'against float32':>16}")
    times = {name: [each["seconds"] for each in runs] for name, runs in rounds.items()}
    median = {name: statistics.median(took) for name, took in times.items()}
    for name, took in median.items():
        print(
            f"{name:10} {strides[name]:10} {args.gather / took / 1e6:10.2f} "
            f"{median['float32'] / took:15.2f}x"
        )
    found = {"cache": "warm", "bytes_per_row": strides, "seconds_per_gather": times}
    write(args.json, record(args, argv, **found))


if __name__ == "__main__":
    main()
