"""What ``graphzero doctor`` predicts, against what the loader then does.

    python benchmarks/doctor.py --nodes 1000000 --edges 15000000

Every case is a process of its own: a budget of what the process takes at its beginning and some
room, rows in some precision. It asks the doctor, then runs two epochs of a ``NeighborLoader`` whose
consumer does nothing: the first one fills memory, the second one is compared. The
disk is read past the page cache, so its state does not matter. The graph is that of
``graphzero bench``.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyg_graphzero as gz
from harness.record import OUT, flags, parser, record, sampling_arguments, write
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.util.system import private_rss

QUANTITIES = ("rows", "hits", "reads", "read_bytes", "useful_bytes")


def compare(store: Path, room: int, fanout: list[int], batch_size: int, workers: int) -> Any:
    """One case: prediction and fact of an epoch."""
    sampling: dict[str, Any] = {"num_neighbors": fanout, "batch_size": batch_size}
    sampling |= {"edge_ids": False}
    found = gz.doctor(store, memory=private_rss() + room, seconds=20.0, refresh=True, **sampling)
    opened = gz.open(store, memory=private_rss() + found.division.memory - found.division.baseline)
    data = opened.data()
    loader = gz.loader.NeighborLoader(
        data, input_nodes=data.train_mask, shuffle=True, num_workers=workers, **sampling
    )
    for _ in range(2):
        for _ in loader:
            pass
    predicted, fact = found.epoch, loader.stats()
    epoch = {
        key: {"predicted": getattr(predicted, key), "fact": getattr(fact, key)}
        for key in QUANTITIES
    }
    return {
        "fits": found.fits,
        "window": found.division.window,
        "disk": str(found.disk),
        "load": os.getloadavg()[0],
        "epoch": epoch | {"binds": predicted.binds, "verdict": fact.verdict},
        "advice": {each.change: each.disk_time for each in found.advice},
    }


def main(argv: list[str] | None = None) -> None:
    """Runs all cases and prints the ratios of fact to prediction."""
    made = parser("doctor", __doc__)
    sampling_arguments(made, 1_000_000, 15_000_000, [10, 5], 512)
    made.add_argument("--width", type=int, default=128, help="of the features")
    made.add_argument("--workers", type=int, default=1)
    made.add_argument("--room", type=int, nargs="+", default=[250, 350, 450], help="MB")
    made.add_argument("--features", nargs="+", default=["float32", "float16", "int8"])
    made.add_argument("--dir", type=Path, default=OUT / "doctor", help="where stores are made")
    made.add_argument("--case", nargs=2, metavar=("STORE", "MB"), help=argparse.SUPPRESS)
    args = made.parse_args(argv)
    if args.case:
        store, room = Path(args.case[0]), int(args.case[1]) * 1_000_000
        print(json.dumps(compare(store, room, args.fanout, args.batch_size, args.workers)))
        return

    args.dir.mkdir(parents=True, exist_ok=True)
    results = []
    print(f"{'':22}" + "".join(f"{name:>13}" for name in QUANTITIES) + "   fact ÷ prediction")
    for features in args.features:
        store = args.dir / f"{args.nodes}-{args.edges}-{args.width}-{features}"
        if not store.exists():
            encoding = {} if features == "float32" else {"features": features}
            gz.convert(power_law(args.nodes, args.edges, args.width), store, **encoding)
        for room in args.room:
            sampling = {name: getattr(args, name) for name in ("fanout", "batch_size", "workers")}
            command = [sys.executable, __file__, *flags(case=[store, room], **sampling)]
            # What the disk was measured as is this case's own: nobody else measures it meanwhile.
            own = os.environ | {"XDG_CACHE_HOME": str(args.dir)}
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=own)
            case = {"features": features, "room_mb": room, **json.loads(done.stdout)}
            results.append(case)
            if case["fits"]:
                print(f"{features}, {room} MB: fits")
                continue
            pairs = [case["epoch"][key] for key in QUANTITIES]
            ratios = [pair["fact"] / (pair["predicted"] or 1) for pair in pairs]
            cells = "".join(f"{ratio:>13.2f}" for ratio in ratios)
            print(f"{f'{features}, {room} MB':22}{cells}", flush=True)
    del args.case
    write(args.json, record(args, argv, cases=results))


if __name__ == "__main__":
    main()
