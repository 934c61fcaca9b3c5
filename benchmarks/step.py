"""A training step on one batch: PyG's models as they are, trimmed by PyG's own means, accelerated.

    python benchmarks/step.py --models GraphSAGE GCN GIN GAT
    python benchmarks/step.py --undirected --models GraphSAGE RGCN
    python benchmarks/step.py --typed --models HeteroConv to_hetero HGT

A graph in memory is sampled once, in a process of its own, so that the batch alone is in memory
then. Every step is a forward and a backward pass and Adam's update on that batch, in turn, after
which the peak of each one's memory is taken, in processes of their own too.
``products`` are the matrix products alone that GraphSAGE's step cannot do without.
"""

from __future__ import annotations

import argparse
import copy
import multiprocessing
import os
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GAT, GCN, GIN, GraphSAGE

import pyg_graphzero as gz
from harness.academic import academic
from harness.record import (
    by_dgl,
    in_turns,
    medians,
    parser,
    record,
    show,
    step_arguments,
    step_graph,
    widths,
    write,
)
from harness.timeline import with_peak
from harness.typed_models import BY_RELATION, LAYERS, NUM_RELATIONS, TYPED
from pyg_graphzero import _core
from pyg_graphzero.bench.process import memory
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.sampling.hops import SampledEdgeIndex, attach_hops
from pyg_graphzero.util.machine import machine

MODELS = {"GraphSAGE": GraphSAGE, "GCN": GCN, "GIN": GIN, "GAT": GAT}
_SEEDS = "paper"  # the type of nodes whose classes are learned
CONTESTANTS = ("stock", "trimmed", "accelerated", "products")
HEADS = 2  # of GAT and HGT


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("step", __doc__)
    step_arguments(made, rounds=7)
    made.add_argument("--link", action="store_true", help="seeds are edges, with a negative each")
    made.add_argument("--typed", action="store_true", help="papers, authors, institutions: --nodes")
    names = [*MODELS, *BY_RELATION, *TYPED]
    made.add_argument("--models", nargs="+", choices=names, default=list(MODELS))
    made.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    args = made.parse_args(argv)
    if any((model in TYPED) != args.typed for model in args.models):
        made.error(f"{', '.join(TYPED)} take --typed, other models do not")
    if args.typed and (args.link or args.undirected):
        made.error("--typed has nodes as seeds, and both directions already")
    if args.dgl is not None and (args.typed or args.link):
        made.error("--dgl takes part without --typed and --link")
    recycling = _core.Recycling(is_bounded=False)  # as while a loader lives
    results: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "batch.pt"
        _alone(_sample, path, args)
        batch = torch.load(path, weights_only=False)
        print(f"{machine()}")
        sizes = {"nodes": batch.num_nodes, "edges": batch.num_edges}
        print(f"{sizes['nodes']:,} nodes, {sizes['edges']:,} edges a batch")
        for model in args.models:
            works: dict[str, Callable[[], Any]] = {
                name: work
                for name in args.only
                if (work := _step(name, model, batch, args)) is not None
            }
            if args.dgl is not None:
                works["DGL"] = by_dgl(
                    args,
                    model,
                    HEADS,
                    Path(folder) / "batch.npz",
                    x=batch.x,
                    y=batch.y[: args.batch_size],
                    edge_index=batch.edge_index,
                    nodes=batch.num_sampled_nodes,
                    edges=batch.num_sampled_edges,
                )
            rounds = in_turns(works, args.rounds)
            works.clear()
            results[model] = {
                name: {
                    **medians(rounds[name]),
                    "peak_bytes": None
                    if name in ("products", "DGL")
                    else _alone(_peak, name, model, path, args),
                }
                for name in rounds
            }
            print(show(model, results[model]))
    del recycling
    write(args.json, record(args, argv, batch=sizes, results=results))


def _alone(work: Callable[..., Any], *given: Any) -> Any:
    """The result of ``work`` in a process of its own."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, *given).result()


def _sample(path: Path, args: argparse.Namespace) -> None:
    """Samples a batch into a file."""
    data: Any
    if args.typed:
        data = academic(args.nodes // 2, 0)
    else:
        data = step_graph(args, 0)
        relations = torch.randint(NUM_RELATIONS, (args.edges,))
        data.edge_type = relations.repeat(data.num_edges // args.edges)
    options = {"batch_size": args.batch_size, "shuffle": True}
    loader: Any
    if args.link:
        loader = gz.loader.LinkNeighborLoader(data, args.fanout, neg_sampling="triplet", **options)
    else:
        seeds = _SEEDS if args.typed else None
        loader = gz.loader.NeighborLoader(data, args.fanout, input_nodes=seeds, **options)
    batch = next(iter(loader))
    if args.link:
        batch.batch_size = batch.num_sampled_nodes[0]
    for store in batch.node_stores:  # here, for a graph that fits into memory without them alone
        store.x = torch.randn(len(store.n_id), args.dim)
    for store in batch.stores:
        for name in ("train_mask", "n_id", "e_id", "input_id"):
            if name in store:
                del store[name]
        if "edge_index" in store:
            store.edge_index = torch.as_tensor(store.edge_index).as_subclass(Tensor)
    torch.save(batch, path)


def _step(name: str, model: str, batch: Any, args: argparse.Namespace) -> Callable[[], None] | None:
    """A function that does one training step; None where the contestant cannot run the model."""
    if name == "products":
        return _products(batch, args) if model == "GraphSAGE" else None
    if (name, model) == ("trimmed", "to_hetero"):
        return None
    torch.manual_seed(0)
    if name == "accelerated":  # edges that know their hops
        batch = copy.copy(batch)
        attach_hops(batch)
    if model in MODELS:
        options = {"dropout": args.dropout} | ({"heads": HEADS} if model == "GAT" else {})
        net = MODELS[model](args.dim, args.hidden, len(args.fanout), NUM_CLASSES, **options)
    else:
        net = LAYERS[model](widths(args), batch.metadata() if args.typed else None, HEADS)
    names = ["x", "edge_index", *["edge_type"] * (model in BY_RELATION)]
    autocast = torch.autocast("cpu", torch.bfloat16, enabled=args.autocast)
    trainer = Trainer(net, name, _SEEDS if args.typed else None, names, autocast)

    def step() -> None:
        for store in batch.edge_stores:
            if isinstance(store.edge_index, SampledEdgeIndex):
                store.edge_index.made.clear()  # as in a batch that was not seen before
        trainer.step(batch)

    return step


def _products(batch: Any, args: argparse.Namespace) -> Callable[[], None]:
    depth = len(args.fanout)
    rows = [sum(batch.num_sampled_nodes[: depth - layer]) for layer in range(depth)]
    tensors = [
        (
            torch.randn(count, 2 * ins, requires_grad=layer > 0),
            torch.randn(2 * ins, outs, requires_grad=True),
            torch.randn(count, outs),
        )
        for layer, (count, (ins, outs)) in enumerate(zip(rows, pairwise(widths(args)), strict=True))
    ]

    def step() -> None:
        for x, weight, gradient in tensors:
            with torch.autocast("cpu", torch.bfloat16, enabled=args.autocast):
                out = x @ weight
            out.backward(gradient.to(out.dtype))

    return step


def _peak(name: str, model: str, path: Path, args: argparse.Namespace) -> int:
    """The most bytes of memory that steps take beside the batch."""
    recycling = _core.Recycling(is_bounded=False)
    step = _step(name, model, torch.load(path, weights_only=False), args)
    assert step is not None
    before = memory(os.getpid())["own"]
    peak = with_peak(lambda: [step() for _ in range(2)])[1] - before
    del recycling
    return peak


if __name__ == "__main__":
    main()
