"""Rows of an encoded column against rows of float32: gathered warm, in one run, alternating.

    python benchmarks/decode.py --rows 1000000 --dim 128

Writes one table in every encoding, reads it into the page cache, and gathers the same random rows
of each in turn, into memory that is used again, as loaders do. Prints medians and writes JSON with
the machine in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

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


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--gather", type=int, default=200_000, help="rows of one gather")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=41)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/decode.json"))
    args = parser.parse_args()

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(args.rows, args.dim, generator=generator)
    index = torch.randint(args.rows, (args.gather,), generator=generator)
    ids = engine_array(index)
    out = engine_array(torch.zeros(args.gather, args.dim * 4, dtype=torch.uint8))
    tables, strides = {}, {}
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("float32", *ENCODINGS):
            path = str(Path(folder) / name)
            started = time.process_time()
            value = x if name == "float32" else ColumnEncoder(ArrayRows(x), name, "x")
            write_column(path, value)
            wrote = time.process_time() - started
            column = _core.Column.open(path)
            tables[name] = row_table(column_rows(column, view_column(column)))
            strides[name] = column.row_stride
            view_column(column).sum()  # into the page cache
            print(f"{name}: written at {x.nbytes / wrote / 1e9:.2f} GB of float32 per CPU second")
        for round_number in range(args.rounds + 1):  # the first round warms up
            for name, table in tables.items():
                started = time.perf_counter()
                _core.gather_rows(table, ids, out, args.threads)
                if round_number:
                    times.setdefault(name, []).append(time.perf_counter() - started)
        tables.clear()

    print(f"{machine()}")
    print(
        f"{args.rows:,} rows of {args.dim}, {args.gather:,} gathered, {args.threads} threads, warm"
    )
    print(f"{'':10} {'bytes/row':>10} {'M rows/s':>10} {'against float32':>16}")
    median = {name: statistics.median(took) for name, took in times.items()}
    for name, took in median.items():
        print(
            f"{name:10} {strides[name]:10} {args.gather / took / 1e6:10.2f} "
            f"{median['float32'] / took:15.2f}x"
        )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    given = {key: str(value) for key, value in vars(args).items()}
    document = {"machine": machine(), "arguments": given, "cache": "warm"}
    document |= {"bytes_per_row": strides, "seconds_per_gather": times}
    args.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
