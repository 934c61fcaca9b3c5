"""Sampling speed of each mode, with uniform directional sampling as the unit.

    python benchmarks/modes.py --nodes 1000000 --edges 15000000

One thread, edges per second of what each mode draws (induced: of what it returns), medians of
alternating rounds over the same seeds. The graph is that of ``graphzero bench``, in memory.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch_geometric.sampler import NodeSamplerInput

from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.sampling.sampler import NeighborSampler
from pyg_graphzero.util.machine import machine

MODES = {
    "uniform, directional": {},
    "with replacement": {"replace": True},
    "disjoint": {"disjoint": True},
    "temporal, node times": {"time_attr": "time"},
    "temporal, edge times": {"time_attr": "edge_time"},
    "temporal, last": {"time_attr": "edge_time", "temporal_strategy": "last"},
    "weighted": {"weight_attr": "weight"},
    "weighted, with replacement": {"weight_attr": "weight", "replace": True},
    "bidirectional": {"subgraph_type": "bidirectional"},
    "induced": {"subgraph_type": "induced"},
    "disjoint, induced": {"disjoint": True, "subgraph_type": "induced"},
}


def main() -> None:
    """Runs the comparison."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=15_000_000)
    parser.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/modes.json"))
    args = parser.parse_args()

    data = power_law(args.nodes, args.edges, 0)
    data.time = torch.randint(0, 1000, (args.nodes,))
    data.edge_time = torch.randint(0, 1000, (args.edges,))
    data.weight = torch.rand(args.edges)
    samplers = {
        name: NeighborSampler(data, args.fanout, num_threads=1, **arguments)
        for name, arguments in MODES.items()
    }
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size].split(args.batch_size)
    late = torch.full((args.batch_size,), 900)
    rates: dict[str, list[float]] = {name: [] for name in MODES}
    for round_number in range(args.rounds + 1):  # the first round warms up
        for name, sampler in samplers.items():
            times = late if sampler.time_attr else None
            edges, start = 0, time.perf_counter()
            for chunk in seeds:
                out = sampler.sample_from_nodes(NodeSamplerInput(None, chunk, times), key=1)
                edges += out.row.numel()
            if round_number:
                rates[name].append(edges / (time.perf_counter() - start))
    unit = statistics.median(rates["uniform, directional"])
    print(f"{machine()}")
    print(f"{'':28} {'M edges/s':>10} {'slower than the unit':>22}")
    for name, rate in rates.items():
        median = statistics.median(rate)
        print(f"{name:28} {median / 1e6:10.1f} {unit / median:21.1f}x")
    args.json.parent.mkdir(parents=True, exist_ok=True)
    args.json.write_text(
        json.dumps(
            {
                "machine": machine(),
                "arguments": {k: str(v) for k, v in vars(args).items()},
                "edges_per_second": rates,
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
