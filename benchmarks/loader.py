"""Sampling and loading against stock PyG, in one run, alternating, medians.

    python benchmarks/loader.py --nodes 5000000 --edges 73000000 --dim 128

A power-law graph with a fixed seed is made and converted; the store then lies in the page cache
(warm). Stock PyG holds the same graph in memory and samples with pyg-lib or torch-sparse, whichever
is installed. Prints a table and writes JSON with the machine in it.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch_geometric.loader
import torch_geometric.typing
from torch_geometric.data import Data
from torch_geometric.sampler import NeighborSampler as StockSampler
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from pyg_graphzero.sampler import NeighborSampler


def power_law(num_nodes: int, num_edges: int, dim: int) -> Data:
    """Skewed in-degrees: destinations follow u^3 over a random order of the nodes."""
    generator = torch.Generator().manual_seed(0)
    order = torch.randperm(num_nodes, generator=generator)
    dst = order[(torch.rand(num_edges, generator=generator) ** 3 * num_nodes).long()]
    src = torch.randint(0, num_nodes, (num_edges,), generator=generator)
    return Data(
        x=torch.randn(num_nodes, dim, generator=generator),
        y=torch.randint(0, 172, (num_nodes,), generator=generator),
        edge_index=torch.stack([src, dst]),
        num_nodes=num_nodes,
    )


def stock_backend() -> str:
    """What gives stock PyG a sampler here."""
    if torch_geometric.typing.WITH_PYG_LIB:
        return "pyg-lib"
    if torch_geometric.typing.WITH_TORCH_SPARSE:
        return "torch-sparse"
    return "none"


def seconds(work: Callable[[], int]) -> float:
    """Wall seconds per batch of ``work``, which returns how many batches it made."""
    start = time.perf_counter()
    batches = work()
    return (time.perf_counter() - start) / batches


def memory() -> dict[str, int]:
    """RssAnon, RssFile and RssShmem of this process in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    found = (line.split() for line in lines if line.startswith("Rss"))
    return {name.rstrip(":"): int(kb) // 1024 for name, kb, _ in found}


def machine() -> dict[str, Any]:
    """CPU, cores and RAM."""
    cpu = [
        line.split(":")[1].strip()
        for line in Path("/proc/cpuinfo").read_text().splitlines()
        if line.startswith("model name")
    ]
    ram = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": cpu[0] if cpu else platform.processor(),
        "cores": os.cpu_count(),
        "ram_gib": round(ram / 2**30, 1),
        "torch": torch.__version__,
        "torch_geometric": torch_geometric.__version__,
        "stock_backend": stock_backend(),
    }


def contestants(
    data: Data, disk: Data, fanout: list[int], batch_size: int, seeds: torch.Tensor, batches: int
) -> dict[str, Callable[[], int]]:
    """One callable per row of the table; each makes batches and returns how many."""
    chunks = seeds.split(batch_size)[:batches]

    def sampling(sampler: Any) -> Callable[[], int]:
        def work() -> int:
            for chunk in chunks:
                sampler.sample_from_nodes(NodeSamplerInput(None, chunk))
            return len(chunks)

        return work

    def loading(cls: Any, graph: Any, workers: int) -> Callable[[], int]:
        def work() -> int:
            loader = cls(
                graph,
                fanout,
                input_nodes=seeds[: batches * batch_size],
                batch_size=batch_size,
                num_workers=workers,
                shuffle=True,
            )
            return sum(1 for _ in loader)

        return work

    ours = gz.loader.NeighborLoader
    rows = {
        "sample graphzero 1 thread": sampling(NeighborSampler(disk, fanout, num_threads=1)),
        "sample graphzero 2 threads": sampling(NeighborSampler(disk, fanout, num_threads=2)),
        "load graphzero 0 workers": loading(ours, disk, 0),
        "load graphzero 2 workers": loading(ours, disk, 2),
    }
    if stock_backend() != "none":
        stock = torch_geometric.loader.NeighborLoader
        rows["sample stock"] = sampling(StockSampler(data, fanout))
        rows["load stock 0 workers"] = loading(stock, data, 0)
        rows["load stock 2 workers"] = loading(stock, data, 2)
    return rows


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=15_000_000)
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--store", type=Path, default=Path("benchmarks/out/loader"))
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/loader.json"))
    args = parser.parse_args()

    args.store.parent.mkdir(parents=True, exist_ok=True)
    data = power_law(args.nodes, args.edges, args.dim)
    gz.convert(data, args.store, force=True)
    opened = time.perf_counter()
    disk = gz.open(args.store).data()
    opened = time.perf_counter() - opened
    for value in (disk.x, disk.y):  # into the page cache
        value.sum()
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size]

    probe = NeighborSampler(disk, args.fanout).sample_from_nodes(
        NodeSamplerInput(None, seeds[: args.batch_size])
    )
    rows = contestants(data, disk, args.fanout, args.batch_size, seeds, args.batches)
    times: dict[str, list[float]] = {name: [] for name in rows}
    for round_number in range(args.rounds + 1):  # the first round warms up
        for name, work in rows.items():
            took = seconds(work)
            if round_number:
                times[name].append(took)

    medians = {name: statistics.median(took) for name, took in times.items()}
    print(f"{machine()}")
    print(
        f"{args.nodes:,} nodes, {args.edges:,} edges, {args.dim} float32, fan-out {args.fanout}, "
        f"batch {args.batch_size}: {probe.row.numel():,} edges and {probe.node.numel():,} nodes "
        f"a batch; store warm in the page cache; opened in {1e3 * opened:.1f} ms"
    )
    print(f"{'':28} {'batches/s':>10} {'min':>8} {'max':>8} {'M edges/s':>10}")
    for name, median in medians.items():
        low, high = 1 / max(times[name]), 1 / min(times[name])
        edges = probe.row.numel() / median / 1e6
        print(f"{name:28} {1 / median:10.1f} {low:8.1f} {high:8.1f} {edges:10.1f}")
    if "sample stock" in medians:
        sampling = medians["sample stock"] / medians["sample graphzero 1 thread"]
        best = {
            side: min(v for k, v in medians.items() if k.startswith(f"load {side}"))
            for side in ("stock", "graphzero")
        }
        print(f"sampling, 1 thread, against {stock_backend()}: {sampling:.1f}x")
        print(f"loading, best of 0/2 workers: {best['stock'] / best['graphzero']:.1f}x")
    args.json.write_text(
        json.dumps(
            {
                "machine": machine(),
                "arguments": {k: str(v) for k, v in vars(args).items()},
                "cache": "warm",
                "memory_mb": memory(),
                "edges_per_batch": probe.row.numel(),
                "nodes_per_batch": probe.node.numel(),
                "open_seconds": opened,
                "seconds_per_batch": times,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
