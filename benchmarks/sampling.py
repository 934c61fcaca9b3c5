"""The sampler alone, against stock PyG's, in one process, alternating, medians.

    python benchmarks/sampling.py --nodes 5000000 --edges 75000000

Three cases: the batches of a large training run, small batches where overhead rules, and a graph
with ten edge types. Threads are Python's, calling the sampler for whole batches side by side,
except where a row says that they share each batch, or that they are the engine's: those are the
workers of a loader, which looks up edge ids as well and makes batches; the graph has no features.
This engine's graph is a store in the page cache (warm); stock PyG holds the same one in memory and
samples with pyg-lib or torch-sparse, whichever is installed.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NeighborSampler as StockSampler
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from harness.record import OUT, in_turns, parser, record, write
from pyg_graphzero.bench.contestants import StockPyG
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.util.machine import machine

NUM_EDGE_TYPES = 10


@dataclass
class Case:
    """What is sampled.

    Attributes:
        fanout: Neighbours per hop.
        batch_size: Seeds per batch.
        batches: Batches per round; fewer where they are large.
        hetero: On the graph with types.
    """

    fanout: list[int]
    batch_size: int
    batches: int
    hetero: bool = False


CASES = {
    "[15, 10, 5], batch 1024": Case([15, 10, 5], 1024, 20),
    "[5, 5], batch 32": Case([5, 5], 32, 2000),
    f"[10, 5], batch 1024, {NUM_EDGE_TYPES} edge types": Case([10, 5], 1024, 20, hetero=True),
}


Work = Callable[[], int]


def sampled(sampler: Any, batches: list[torch.Tensor], node_type: str | None, threads: int) -> Work:
    """Makes all batches, some at a time; told is how many edges they have.

    Args:
        sampler: A PyG ``BaseSampler``.
        batches: Seeds of each batch.
        node_type: Type of the seeds.
        threads: How many batches are made at a time.
    """
    inputs = [NodeSamplerInput(None, nodes, input_type=node_type) for nodes in batches]
    run: Callable[..., Any] = map if threads == 1 else ThreadPoolExecutor(threads).map

    def edges(seeds: NodeSamplerInput) -> int:
        row = sampler.sample_from_nodes(seeds).row
        return sum(len(each) for each in (row.values() if isinstance(row, dict) else [row]))

    return lambda: sum(run(edges, inputs))


def contestants(case: Case, memory: Data | HeteroData, disk: Any) -> dict[str, Work]:
    """One per row of the table."""
    node_type = memory.node_types[0] if case.hetero else None
    num_nodes = memory[node_type].num_nodes if case.hetero else memory.num_nodes
    seeds = torch.randint(
        num_nodes, (case.batches, case.batch_size), generator=torch.Generator().manual_seed(1)
    )
    batches = list(seeds.unbind())
    ours, shared = (NeighborSampler(disk, case.fanout, num_threads=n) for n in (1, 2))
    rows = {
        "graphzero, 1 thread": sampled(ours, batches, node_type, 1),
        "graphzero, 2 threads": sampled(ours, batches, node_type, 2),
        "graphzero, 2 threads share each": sampled(shared, batches, node_type, 1),
    }
    for workers in (1, 2):
        loader = NeighborLoader(
            disk,
            case.fanout,
            input_nodes=(node_type, seeds.view(-1)) if case.hetero else seeds.view(-1),
            batch_size=case.batch_size,
            num_workers=workers,
            persistent_workers=True,
        )
        name = f"graphzero, {workers} of the engine"
        rows[name] = lambda loader=loader: sum(batch.num_edges for batch in loader)
    if StockPyG.missing() is None:
        stock = StockSampler(memory, case.fanout)
        few = batches[: max(4, case.batches // 4)]  # it is slow, and its batches are alike
        for threads, name in ((1, "stock, 1 thread"), (2, "stock, 2 threads")):
            rows[name] = sampled(stock, few, node_type, threads)
    return rows


def measure(name: str, rows: dict[str, Work], rounds: int) -> dict[str, Any]:
    """Runs a case, prints its table, and returns its figures."""
    found = in_turns(rows, rounds)

    def rates(each: str, per: str) -> list[float]:
        return [run["value"] / run[per] for run in found[each]]

    rate = {each: statistics.median(rates(each, "seconds")) for each in rows}
    print(f"\n{name:34} {'M edges/s':>10} {'min':>8} {'max':>8} {'per CPU second':>15}")
    for each in rows:
        around = (rate[each], min(rates(each, "seconds")), max(rates(each, "seconds")))
        figures = "{:10.1f} {:8.1f} {:8.1f}".format(*(value / 1e6 for value in around))
        per_cpu = statistics.median(rates(each, "cpu_seconds"))
        print(f"{each:34} {figures} {per_cpu / 1e6:15.1f}")
    scaling = rate["graphzero, 2 of the engine"] / rate["graphzero, 1 of the engine"]
    print(f"1 to 2 threads of the engine: {scaling:.2f}x")
    if "stock, 1 thread" in rate:
        ratio = rate["graphzero, 1 thread"] / rate["stock, 1 thread"]
        print(f"1 thread against {StockPyG.title()}: {ratio:.1f}x")
    return {each: {"edges_per_second": rates(each, "seconds")} for each in rows}


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("sampling", __doc__)
    made.add_argument("--nodes", type=int, default=1_000_000)
    made.add_argument("--edges", type=int, default=15_000_000)
    made.add_argument("--batches", type=int, help="of a round, by case if not given")
    made.add_argument("--rounds", type=int, default=5)
    made.add_argument("--dir", type=Path, default=OUT, help="where stores are made")
    args = made.parse_args(argv)

    print(machine())
    print(f"{args.nodes:,} nodes, {args.edges:,} edges; store warm in the page cache")
    torch.set_num_threads(1)  # where torch has threads, they are asked for
    args.dir.mkdir(parents=True, exist_ok=True)
    results = {}
    for hetero in (False, True):
        memory = (
            power_law_hetero(args.nodes, args.edges, 0, NUM_EDGE_TYPES)
            if hetero
            else power_law(args.nodes, args.edges, 0)
        )
        store = args.dir / ("sampling-typed" if hetero else "sampling")
        gz.convert(memory, store, force=True)
        disk = gz.open(store).data()
        for name, case in CASES.items():
            case = replace(case, batches=args.batches or case.batches)
            if case.hetero == hetero:
                results[name] = measure(name, contestants(case, memory, disk), args.rounds)
    write(args.json, record(args, argv, stock=StockPyG.title(), cache="warm", results=results))


if __name__ == "__main__":
    main()
