"""Loaders with the arguments people give them, beside stock PyG's: batches a second, in memory.

    PYTHONPATH=/a/build/of/pyg-lib python benchmarks/beside_pyg.py --workers 0 2

Each round goes over ``--batches`` batches with both loaders, in turn. Stock's workers stay from
round to round. Stock PyG is left out without pyg-lib, and where that has no such sampler.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
import torch_geometric.loader
from torch_geometric.data import Data, HeteroData
from torch_geometric.typing import WITH_PYG_LIB

import pyg_graphzero.loader
from harness.record import in_turns, parser, record, sampling_arguments, show, write
from pyg_graphzero.bench.synthetic import power_law, power_law_hetero
from pyg_graphzero.util.machine import machine

# Name in the table: loader, whether its graph has types, and arguments beside the usual ones.
CASES: dict[str, tuple[str, bool, dict[str, Any]]] = {
    "as it is": ("NeighborLoader", False, {}),
    "batches of 32": ("NeighborLoader", False, {"batch_size": 32}),
    "batches of one": ("NeighborLoader", False, {"batch_size": 1}),
    "all neighbours of two hops": (
        "NeighborLoader", False, {"num_neighbors": [-1, -1], "batch_size": 64},
    ),
    "with replacement": ("NeighborLoader", False, {"replace": True}),
    "disjoint": ("NeighborLoader", False, {"disjoint": True}),
    "temporal": ("NeighborLoader", False, {"time_attr": "time"}),
    "weighted": ("NeighborLoader", False, {"weight_attr": "weight"}),
    "bidirectional": ("NeighborLoader", False, {"subgraph_type": "bidirectional"}),
    "induced": ("NeighborLoader", False, {"subgraph_type": "induced"}),
    "links, a negative each": ("LinkNeighborLoader", False, {"neg_sampling": "binary"}),
    "ten edge types": ("NeighborLoader", True, {}),
    "ten edge types, batches of 32": ("NeighborLoader", True, {"batch_size": 32}),
}  # fmt: skip
_LATE = 900


def graphs(num_nodes: int, num_edges: int, dim: int) -> tuple[Data, HeteroData]:
    """The graphs of all cases, sorted by destination as stock PyG wants times to be."""
    plain = power_law(num_nodes, num_edges, dim)
    plain.edge_index = plain.edge_index[:, plain.edge_index[1].argsort()]
    plain.time = torch.randint(0, 1000, (num_nodes,))
    plain.weight = torch.rand(num_edges) + 0.1
    return plain, power_law_hetero(num_nodes, num_edges, dim, 10)


def loader_of(
    module: Any, case: str, data: tuple[Data, HeteroData], workers: int, args: Any
) -> Any:
    """A case's loader, ours or stock's."""
    name, is_typed, more = CASES[case]
    graph = data[is_typed]
    given: dict[str, Any] = {
        "num_neighbors": args.fanout, "batch_size": args.batch_size, "num_workers": workers,
        "persistent_workers": workers > 0,
    } | more  # fmt: skip
    count = args.batches * given["batch_size"]
    if name == "LinkNeighborLoader":
        given["batch_size"] //= 4
        given["edge_label_index"] = graph.edge_index[:, : count // 4]
    else:
        of = graph["n0"] if is_typed else graph
        seeds = torch.randperm(of.num_nodes)[:count]
        given["input_nodes"] = ("n0", seeds) if is_typed else seeds
    if "time_attr" in given:
        given["input_time"] = torch.full((len(seeds),), _LATE)
    return getattr(module, name)(graph, **given)


def epoch(loader: Iterable[Any]) -> dict[str, int]:
    """Goes over all batches."""
    return {"batches": sum(1 for _ in loader)}


def compare(
    case: str, data: tuple[Data, HeteroData], workers: int, args: Any
) -> dict[str, list[float]]:
    """Batches a second of both, round by round."""
    gc.collect()  # or workers would end those of the last case, which are not theirs
    both = {"ours": pyg_graphzero.loader}
    if WITH_PYG_LIB:
        both["stock"] = torch_geometric.loader
    works = {}
    for name, module in both.items():
        loader = loader_of(module, case, data, workers, args)
        try:
            next(iter(loader))
        except ImportError:  # pyg-lib does not have it
            continue
        works[name] = partial(epoch, loader)
    return {
        name: [each["batches"] / each["seconds"] for each in runs]
        for name, runs in in_turns(works, args.rounds).items()
    }


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("beside_pyg", __doc__)
    sampling_arguments(made, 1_000_000, 15_000_000, [10, 5])
    made.add_argument("--workers", type=int, nargs="+", default=[0, 2])
    made.add_argument("--batches", type=int, default=24)
    made.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES))
    args = made.parse_args(argv)
    torch.manual_seed(0)
    data = graphs(args.nodes, args.edges, args.dim)
    found, table = [], {}
    for case in args.cases:
        for workers in args.workers:
            rates = compare(case, data, workers, args)
            found.append({"case": case, "workers": workers, "batches_per_second": rates})
            row = {name: statistics.median(each) for name, each in rates.items()}
            table[f"{case}, {workers} workers"] = row
            print(case, workers, row, flush=True)
    print(machine())
    print(show("batches a second", table))
    write(args.json, record(args, argv, results=found))


if __name__ == "__main__":
    main()
