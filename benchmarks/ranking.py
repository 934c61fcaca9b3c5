"""Which order of rows misses a cache least, and is read in fewest pieces, by simulation.

    python benchmarks/ranking.py

A graph with communities and hubs, whose seeds lie in some of the communities, in a fraction of the
size of ogbn-papers100M with a batch in proportion. Every order is made from sampled epochs, and
tried on another one: the first rows are in memory, the others are read for a window of batches at a
time, merged as the engine would. Told are misses as a share of the rows asked for; reads, bytes and
the time they take on a disk of 75,000 random reads a second and 1.3 GB/s, for each batch.
"""

from __future__ import annotations

import argparse
import json
from functools import cache
from itertools import islice
from tempfile import NamedTemporaryFile

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data

from harness.record import parser, record, write
from pyg_graphzero import _core
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.memory.ranking import RankedRows
from pyg_graphzero.memory.usage import count_accesses, number_by_first_touch

ROW_BYTES, GAP, MOST = 512, 16 << 10, 512 << 10
READS_PER_SECOND, BYTES_PER_SECOND = 75_000, 1.3e9


def clustered(
    num_nodes: int, degree: int, size: int, inside: float, local: bool, seed: int
) -> Data:
    """Communities of about ``size`` nodes, hubs in each and of all.

    Nodes are numbered at random, or, if ``local``, community by community.
    """
    rng = np.random.default_rng(seed)
    count = num_nodes // size
    ends = np.sort(rng.integers(0, num_nodes, count - 1))
    ends = np.concatenate([[0], ends, [num_nodes]])
    community = np.searchsorted(ends, np.arange(num_nodes), side="right") - 1
    num_edges = num_nodes * degree
    dst = (num_nodes * rng.random(num_edges) ** 1.5).astype(np.int64)
    first, last = ends[community[dst]], ends[community[dst] + 1]
    near = first + ((last - first) * rng.random(num_edges) ** 2.5).astype(np.int64)
    hubs = rng.permutation(num_nodes)
    far = hubs[(num_nodes * rng.random(num_edges) ** 5).astype(np.int64)]
    src = np.where(rng.random(num_edges) < inside, near, far)
    chosen = rng.random(count) < 0.06
    is_seed = chosen[np.minimum(community, count - 1)] & (rng.random(num_nodes) < 0.35)
    number = np.arange(num_nodes) if local else rng.permutation(num_nodes)
    dst = number[dst]
    mask = torch.zeros(num_nodes, dtype=torch.bool)
    mask[torch.from_numpy(number[is_seed])] = True
    edge_index = torch.from_numpy(np.stack([number[src], dst]))
    return Data(edge_index=edge_index, num_nodes=num_nodes, train_mask=mask)


def ranks(loader: NeighborLoader, args: argparse.Namespace) -> dict[str, Tensor]:
    """The row of every node in the orders that are compared."""
    graph = loader.graph_sampler.graph
    num_nodes = graph.node_types[None]
    counts = count_accesses(loader, epochs=args.epochs, seed=args.seed).counts[None]
    _, indices = graph.csc(None)
    degree = torch.bincount(indices.to(torch.int64), minlength=num_nodes)
    found = {
        "as it is": torch.arange(num_nodes),
        "degree": degree.argsort(descending=True, stable=True).argsort(),
        "count": counts.argsort(descending=True, stable=True).argsort(),
    }
    for batch in args.touch:
        touched = torch.empty(0)
        if batch > 0:
            touched = number_by_first_touch(loader, size=batch, seed=args.seed)[None].order
        for hot in args.hot:
            rows = RankedRows(num_nodes)
            rows.add(touched.to(torch.int64))
            rows.rank(counts, hot)
            rows.add(torch.arange(num_nodes))  # rows that are not used follow
            rest = f"by first touch, {batch} seeds a batch" if batch else "as it was"
            found[f"count > {hot}, then {rest}"] = rows.order.argsort()
    return found


@cache
def _forecast(num_rows: int) -> _core.ReadForecast:
    """What is read of a column, by a file that is one hole."""
    size = 4096 + num_rows * ROW_BYTES
    with NamedTemporaryFile() as file:
        file.truncate(size)
        shape = [num_rows, ROW_BYTES]
        column = _core.Column.adopt(file.name, "uint8", shape, size, 4096, ROW_BYTES)
        return _core.ReadForecast(column, merge_gap=GAP, max_read=MOST)


def tried(rank: Tensor, batches: list[Tensor], shares: list[int], windows: list[int]) -> dict:
    """What an order costs, for every size of the cache and of the window."""
    num_rows, found = rank.numel(), {}
    rows = [rank[nodes].to(torch.int64) for nodes in batches]
    asked = sum(r.numel() for r in rows)
    for share in shares:
        first = num_rows * share // 100
        cold = [r[r >= first].contiguous() for r in rows]
        entry: dict[str, float] = {"misses": round(sum(c.numel() for c in cold) / asked, 4)}
        for window in windows:
            reads = size = 0
            for begin in range(0, len(cold), window):
                read = _forecast(num_rows).read(cold[begin : begin + window], 1 << 62).stats
                reads += read.reads
                size += read.bytes
            seconds = max(reads / READS_PER_SECOND, size / BYTES_PER_SECOND)
            entry[f"window {window}"] = {
                "reads": round(reads / len(cold), 1),
                "KB": round(size / len(cold) / 1e3, 1),
                "ms": round(1e3 * seconds / len(cold), 3),
            }
        found[f"cache {share}%"] = entry
    return found


def main(argv: list[str] | None = None) -> None:
    """Makes the orders and tries each."""
    made = parser("ranking", __doc__)
    made.add_argument("--nodes", type=int, default=1_000_000)
    made.add_argument("--degree", type=int, default=15)
    made.add_argument("--community", type=int, default=500)
    made.add_argument("--inside", type=float, default=0.7, help="share of edges inside of one")
    made.add_argument("--local", action="store_true", help="communities are numbered in turn")
    made.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    made.add_argument("--batch-size", type=int, default=16)
    made.add_argument("--epochs", type=float, default=2.0)
    made.add_argument("--batches", type=int, default=192)
    made.add_argument("--cache", type=int, nargs="+", default=[10, 20, 30])
    made.add_argument("--window", type=int, nargs="+", default=[4, 16, 64])
    made.add_argument("--hot", type=int, nargs="+", default=[0, 4, 8])
    made.add_argument("--touch", type=int, nargs="+", default=[0, 128])
    made.add_argument("--seed", type=int, default=0)
    args = made.parse_args(argv)

    data = clustered(args.nodes, args.degree, args.community, args.inside, args.local, args.seed)
    seeds = data.train_mask.nonzero().view(-1)
    loader = NeighborLoader(
        data, args.fanout, input_nodes=seeds, batch_size=args.batch_size, shuffle=True
    )
    torch.manual_seed(args.seed + 1)
    batches = [batch.n_id for batch in islice(loader, args.batches)]
    size = round(sum(b.numel() for b in batches) / len(batches))
    print(f"{seeds.numel():,} seeds, {size:,} nodes a batch")
    found = {}
    for name, rank in ranks(loader, args).items():
        found[name] = tried(rank, batches, args.cache, args.window)
        print(json.dumps({name: found[name]}), flush=True)
    write(args.json, record(args, argv, seeds=seeds.numel(), nodes_per_batch=size, orders=found))


if __name__ == "__main__":
    main()
