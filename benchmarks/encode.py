"""How fast float32 rows are encoded: gigabytes of float32 per second of CPU time.

    python benchmarks/encode.py

Of rows in memory, one thread; int8's two passes apart.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable

import torch

from harness.record import in_turns, parser, record, write
from pyg_graphzero import _core
from pyg_graphzero.store.encoding import ENCODINGS


def main(argv: list[str] | None = None) -> None:
    """Measures every encoding at every width."""
    made = parser("encode", __doc__)
    made.add_argument("--dims", type=int, nargs="+", default=[4, 16, 100, 128, 768])
    made.add_argument("--slab-mib", type=int, default=32)
    made.add_argument("--rounds", type=int, default=7)
    args = made.parse_args(argv)

    rates: dict[str, dict[str, float]] = {}
    for dim in args.dims:
        rows = (args.slab_mib << 20) // (4 * dim)
        x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0)).numpy()
        works: dict[str, Callable[[], object]] = {}
        for name, dtype in ENCODINGS.items():
            encoder = _core.RowEncoder(_core.Encoding[name], dim)
            out = torch.empty(rows, dim * dtype.itemsize, dtype=torch.uint8).numpy()
            if name == "int8":
                encoder.profile(x, 1)
                encoder.fit()
                ranges = _core.RowEncoder(_core.Encoding[name], dim)
                works["int8, ranges"] = lambda e=ranges, x=x: e.profile(x, 1)
            works[name] = lambda e=encoder, x=x, out=out: e.encode(x, out, 1)
        rates[str(dim)] = found = {
            name: x.nbytes / statistics.median(each["cpu_seconds"] for each in runs) / 1e9
            for name, runs in in_turns(works, args.rounds).items()
        }
        print(f"{dim:4} columns: " + ", ".join(f"{k} {v:.2f} GB/s" for k, v in found.items()))
    write(args.json, record(args, argv, gb_of_float32_per_cpu_second=rates))


if __name__ == "__main__":
    main()
