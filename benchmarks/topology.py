"""What sampling reads where no neighbour is in memory: windows of batches against one at a time.

    python benchmarks/topology.py --nodes 2000000 --edges 30000000 --dir /somewhere/on/the/disk

A power-law graph is converted; then a loader samples it, cold before every measurement, over the
map and over pages of which none stays in memory.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import torch

import pyg_graphzero as gz
from harness.record import OUT, parser, record, sampling_arguments, write
from pyg_graphzero.bench.page_cache import drop
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory.keeper import keeper_of
from pyg_graphzero.memory.needs import Kind, Needs, files_of
from pyg_graphzero.memory.plan import MemoryPlan
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.util.disk import probe
from pyg_graphzero.util.machine import machine


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("topology", __doc__)
    sampling_arguments(made, 2_000_000, 30_000_000, [15, 10, 5], 1024)
    made.add_argument("--batches", type=int, default=32)
    made.add_argument("--windows", type=int, nargs="+", default=[1, 4, 16])
    made.add_argument("--workers", type=int, default=2)
    made.add_argument("--dir", type=Path, default=OUT)
    args = made.parse_args(argv)

    path = args.dir / f"topology-{args.nodes}-{args.edges}"
    args.dir.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        gz.convert(power_law(args.nodes, args.edges, 0), path, progress=False)
    speed = probe(path)
    print(machine())
    print(speed)
    records = [measure(args, path, window, speed.merge_gap) for window in [0, *args.windows]]
    cache = "cold before every measurement (posix_fadvise)"
    found = {"cache": cache, "merge_gap": speed.merge_gap, "measurements": records}
    write(args.json, record(args, argv, **found))


def measure(args: argparse.Namespace, path: Path, window: int, merge_gap: int) -> dict[str, Any]:
    """One epoch over pages; window 0: over the map."""
    torch.manual_seed(0)
    store = gz.open(path)
    loader = gz.loader.NeighborLoader(
        store.data(),
        args.fanout,
        input_nodes=torch.randperm(args.nodes)[: args.batches * args.batch_size],
        batch_size=args.batch_size,
        num_workers=args.workers,
        prefetch_factor=-(-2 * max(window, 1) // args.workers),
        shuffle=True,
    )
    if window > 0:
        needs = Needs(tuple(files_of(loader)))
        paged = {file.name: 0 for file in needs.of(Kind.NEIGHBOURS)}
        plan = MemoryPlan(0, 0, {}, paged, topology_window=window, topology_windows=64 << 20)
        keeper_of(store.contents).current = Residence(store.contents, plan, needs, merge_gap)
    drop(path.rglob("*.gl"))
    with Clock() as clock:
        edges = sum(batch.edge_index.size(1) for batch in loader)
    stats = loader.stats()
    record = {
        "window": window,
        "batches": stats.batches,
        "edges_per_batch": edges / stats.batches,
        "reads_per_batch": stats.topology_reads / stats.batches,
        "bytes_per_batch": stats.topology_bytes / stats.batches,
        "useful_bytes_per_batch": stats.topology_useful_bytes / stats.batches,
        "batches_per_second": stats.batches / clock.seconds,
        "cpu_seconds_per_batch": clock.cpu_seconds / stats.batches,
    }
    name = f"windows of {window}" if window else "the map"
    read, useful = record["bytes_per_batch"] / 1e6, record["useful_bytes_per_batch"] / 1e6
    print(
        f"{name:14} {record['edges_per_batch']:9,.0f} edges  {record['reads_per_batch']:8,.0f} "
        f"reads  {read:7.1f} MB ({useful:.2f} useful)  {record['batches_per_second']:6.2f} "
        f"batches/s  {1e3 * record['cpu_seconds_per_batch']:.0f} ms CPU a batch"
    )
    return record


if __name__ == "__main__":
    main()
