"""How fast float32 rows are encoded: gigabytes of float32 per second of CPU time.

    python benchmarks/encode.py

Of rows in memory, one thread; int8's two passes apart. Prints medians and writes JSON with the
machine in it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch

from pyg_graphzero import _core
from pyg_graphzero.store.encoding import ENCODINGS
from pyg_graphzero.util.machine import machine


def main() -> None:
    """Measures every encoding at every width."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dims", type=int, nargs="+", default=[4, 16, 100, 128, 768])
    parser.add_argument("--slab-mib", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/encode.json"))
    args = parser.parse_args()

    rates: dict[str, dict[str, float]] = {}
    for dim in args.dims:
        rows = (args.slab_mib << 20) // (4 * dim)
        x = torch.randn(rows, dim, generator=torch.Generator().manual_seed(0)).numpy()

        def rate(work: Callable[[], object], num_bytes: int = x.nbytes) -> float:
            work()
            seconds = []
            for _ in range(args.rounds):
                started = time.process_time()
                work()
                seconds.append(time.process_time() - started)
            return num_bytes / statistics.median(seconds) / 1e9

        found = rates[str(dim)] = {}
        for name, dtype in ENCODINGS.items():
            encoder = _core.RowEncoder(name, dim)
            out = torch.empty(rows, dim * dtype.itemsize, dtype=torch.uint8).numpy()
            if name == "int8":
                found["int8, ranges"] = rate(lambda e=encoder, x=x: e.profile(x, 1))
                encoder.fit()
            found[name] = rate(lambda e=encoder, x=x, out=out: e.encode(x, out, 1))
        print(f"{dim:4} columns: " + ", ".join(f"{k} {v:.2f} GB/s" for k, v in found.items()))

    args.json.parent.mkdir(parents=True, exist_ok=True)
    given = {key: str(value) for key, value in vars(args).items()}
    document = {"machine": machine(), "arguments": given, "gb_of_float32_per_cpu_second": rates}
    args.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
