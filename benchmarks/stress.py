"""Loaders within random budgets: no setting may hang, exceed its budget by much, or change a batch.

    python benchmarks/stress.py --rounds 200

Each round draws a budget, batch size, fan-out, number of workers, windows, what stays in memory,
which reader reads, how far the epoch goes, and whether another loader of the store is under way; it
compares every batch with the one from memory. A round that takes longer than ``--patience`` seconds
ends the run with the stacks of all threads. Prints one JSON line.
"""

from __future__ import annotations

import faulthandler
import json
import os
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.record import parser
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.util.system import private_rss

_NODES, _EDGES, _WIDTH = 60_000, 3_000_000, 256


def make(folder: Path) -> Path:
    """A store of 90 MB."""
    generator = torch.Generator().manual_seed(0)
    src = (torch.rand(_EDGES, generator=generator) ** 3 * _NODES).long()
    dst = torch.randint(_NODES, (_EDGES,), generator=generator)
    data = Data(x=torch.randn(_NODES, _WIDTH, generator=generator), y=torch.arange(_NODES))
    data.edge_index = torch.stack([src, dst])
    data.train_idx = torch.arange(0, _NODES, 15)
    gz.convert(data, folder / "store")
    return folder / "store"


def loader_of(store: gz.Store, draw: random.Random, workers: int, options: dict) -> object:
    return gz.loader.NeighborLoader(
        store.data(), options["fanout"], input_nodes=store.data().train_idx, shuffle=True,
        batch_size=options["batch_size"], num_workers=workers, edge_ids=options["edge_ids"],
        prefetch_factor=draw.randint(1, 4) if workers else None,
        generator=torch.Generator().manual_seed(options["seed"]),
    )  # fmt: skip


def one(path: Path, draw: random.Random) -> str:
    """One round; what became of it."""
    options = {
        "seed": draw.randrange(1000),
        "fanout": [draw.randint(1, 12) for _ in range(draw.randint(1, 3))],
        "batch_size": draw.choice([1, 7, 64, 300, 1000, 4000]),
        "edge_ids": draw.random() < 0.5,
    }
    os.environ["GRAPHZERO_READER"] = draw.choice(["uring", "pool"])
    room = int(draw.uniform(36, 110) * 1e6)
    if draw.random() < 0.5:
        sampled = {"num_neighbors": options["fanout"], "batch_size": options["batch_size"]}
        gz.optimize(path, seeds="train_idx", progress=False, **sampled)
    store = gz.open(path, memory=private_rss() + room)
    loader = loader_of(store, draw, draw.randint(0, 4), options)
    keeper = keeper_of(store.contents)
    try:
        files = keeper.residence_for(loader)
    except gz.MemoryBudgetError:
        return "refused"
    plan = replace(
        files.plan,
        window=draw.choice([1, 2, 5, 64]),
        windows=int(files.plan.windows * draw.random()),
    )
    keeper.current = Residence(
        store.contents, plan, files.needs, files.merge_gap, files.copy, files.packed
    )
    expected = loader_of(gz.open(path), draw, 0, options)
    stop = draw.choice([3, 40, 10**9])
    reference = iter(expected)
    other = iter(loader_of(store, draw, 1, options)) if draw.random() < 0.3 else None
    for number, batch in enumerate(loader):
        same = next(reference)
        for key, value in same.items():
            if isinstance(value, torch.Tensor) and not torch.equal(value, batch[key]):
                raise AssertionError(f"{key} of batch {number} differs: {options}, {plan}")
        if other is not None and number % 3 == 0:
            next(other, None)
        if number >= stop:
            break
    outcome = "whole" if plan.is_whole else "from disk"
    return f"{outcome}, topology too" if files.topologies else outcome


def main(argv: list[str] | None = None) -> None:
    """Runs the rounds and prints what became of them."""
    made = parser("stress", __doc__, json=False)
    made.add_argument("--rounds", type=int, default=100)
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--patience", type=float, default=120)
    args = made.parse_args(argv)
    draw = random.Random(args.seed)
    outcomes: Counter[str] = Counter()
    longest = 0.0
    with tempfile.TemporaryDirectory() as folder:
        path = make(Path(folder))
        for _ in range(args.rounds):
            begun = time.perf_counter()
            faulthandler.dump_traceback_later(args.patience, exit=True, file=sys.__stderr__)
            outcomes[one(path, draw)] += 1
            faulthandler.cancel_dump_traceback_later()
            longest = max(longest, time.perf_counter() - begun)
    print(json.dumps({"rounds": args.rounds, **outcomes, "longest seconds": round(longest, 1)}))


if __name__ == "__main__":
    main()
