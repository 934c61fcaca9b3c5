"""Sampling speed of each mode, with uniform directional sampling as the unit.

    python benchmarks/modes.py --nodes 1000000 --edges 15000000

One thread, edges per second of what each mode draws (induced: of what it returns), medians of
alternating rounds over the same seeds. The graph is that of ``graphzero bench``, in memory.
"""

from __future__ import annotations

import statistics

import torch
from torch_geometric.sampler import NodeSamplerInput

from harness.record import in_turns, parser, record, sampling_arguments, write
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.sampling.neighbor import NeighborSampler
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


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("modes", __doc__)
    sampling_arguments(made, 1_000_000, 15_000_000, [15, 10, 5], 1024)
    made.add_argument("--batches", type=int, default=5)
    made.add_argument("--rounds", type=int, default=5)
    args = made.parse_args(argv)

    data = power_law(args.nodes, args.edges, 0)
    data.time = torch.randint(0, 1000, (args.nodes,))
    data.edge_time = torch.randint(0, 1000, (args.edges,))
    data.weight = torch.rand(args.edges)
    seeds = torch.randperm(args.nodes)[: args.batches * args.batch_size].split(args.batch_size)
    late = torch.full((args.batch_size,), 900)

    def edges_of(sampler: NeighborSampler) -> int:
        times = late if sampler.time_attr else None
        out = (sampler.sample_from_nodes(NodeSamplerInput(None, s, times), key=1) for s in seeds)
        return sum(each.row.numel() for each in out)

    samplers = {
        name: NeighborSampler(data, args.fanout, num_threads=1, **arguments)
        for name, arguments in MODES.items()
    }
    works = {name: lambda s=sampler: edges_of(s) for name, sampler in samplers.items()}
    rates = {
        name: [each["value"] / each["seconds"] for each in runs]
        for name, runs in in_turns(works, args.rounds).items()
    }
    unit = statistics.median(rates["uniform, directional"])
    print(f"{machine()}")
    print(f"{'':28} {'M edges/s':>10} {'slower than the unit':>22}")
    for name, rate in rates.items():
        median = statistics.median(rate)
        print(f"{name:28} {median / 1e6:10.1f} {unit / median:21.1f}x")
    write(args.json, record(args, argv, edges_per_second=rates))


if __name__ == "__main__":
    main()
