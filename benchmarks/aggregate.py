"""Sums over the neighbours of a sampled batch, against torch's and PyG's, in one run, alternating.

    python benchmarks/aggregate.py --nodes 5000000 --edges 73000000

The first two layers of a batch, trimmed to what the seeds need: means over neighbours, and
attention over four heads (products, softmax, weighted sum). ``few destinations`` is the same kernel
over the same edges, but with 64 destinations: it does little but read the rows, so that no other
can take much less.
"""

from __future__ import annotations

import argparse
import statistics
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch_geometric.sampler import NodeSamplerInput
from torch_geometric.utils import scatter, softmax

from harness.record import in_turns, parser, record, sampling_arguments, write
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.nn import ops
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.util.machine import machine

HEADS = 4
Work = Callable[..., Tensor]


@dataclass
class Layer:
    """Edges that a layer needs, of the shape that the operations want."""

    src: Tensor
    bounds: Tensor
    num_src: int

    def __post_init__(self) -> None:
        self.num_dst = len(self.bounds) - 1
        self.dst = torch.repeat_interleave(self.bounds.diff())
        self.degrees = self.bounds.diff().clamp(min=1)


def layers_of(args: argparse.Namespace) -> list[Layer]:
    """The first two layers of a batch."""
    data = power_law(args.nodes, args.edges, 0)
    seeds = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(1))
    sampler = NeighborSampler(data, args.fanout)
    made = sampler.sample_from_nodes(NodeSamplerInput(None, seeds[: args.batch_size]), key=1)
    nodes = torch.tensor(made.num_sampled_nodes).cumsum(0).tolist()
    edges = torch.tensor(made.num_sampled_edges).cumsum(0).tolist()
    found = []
    for layer in (1, 2):
        dst = made.col[: edges[-layer]]
        bounds = torch.searchsorted(dst, torch.arange(nodes[-layer - 1] + 1))
        found.append(Layer(made.row[: edges[-layer]].contiguous(), bounds, nodes[-layer]))
    return found


def means(layer: Layer, dtype: torch.dtype) -> dict[str, Work]:
    """Means over neighbours, of the rows."""
    shape = layer.num_dst, layer.num_src
    values = (1 / layer.degrees)[layer.dst].to(dtype)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # matrices of this kind are new
        matrix = torch.sparse_csr_tensor(
            layer.bounds, layer.src, values, shape, check_invariants=False
        )
    few = layer.bounds[torch.linspace(0, layer.num_dst, 65).long()]

    def index_add(x: Tensor) -> Tensor:
        sums = x.new_zeros(layer.num_dst, x.size(1))
        sums = sums.index_add(0, layer.dst, x.index_select(0, layer.src))
        return sums / layer.degrees.view(-1, 1)

    def segment_reduce(x: Tensor) -> Tensor:
        rows = x.index_select(0, layer.src)
        return torch.segment_reduce(rows, "mean", offsets=layer.bounds, initial=0)

    works: dict[str, Work] = {
        "ours": lambda x: ops.neighbor_sum(x, layer.src, layer.bounds, mean=True),
        "torch.sparse.mm": lambda x: torch.sparse.mm(matrix, x),
        "index_add": index_add,
        "segment_reduce": segment_reduce,
        "PyG's scatter": lambda x: scatter(
            x.index_select(0, layer.src), layer.dst, 0, layer.num_dst, "mean"
        ),
        "few destinations": lambda x: ops.neighbor_sum(x, layer.src, few),
    }
    if dtype not in (torch.float32, torch.float64):
        del works["torch.sparse.mm"]  # there is none
    return works


def attention(layer: Layer, dtype: torch.dtype) -> dict[str, Work]:
    """Attention of the first rows, which are the destinations, to all."""
    src, dst, bounds = layer.src, layer.dst, layer.bounds

    def ours(x: Tensor) -> Tensor:
        heads = x.view(len(x), HEADS, -1)
        scores = ops.neighbor_dot(heads[: layer.num_dst], heads, src, bounds)
        return ops.neighbor_sum(heads, src, bounds, ops.neighbor_softmax(scores, bounds)).flatten(1)

    def messages(x: Tensor) -> Tensor:
        heads = x.view(len(x), HEADS, -1)
        x_src = heads.index_select(0, src)
        scores = (heads.index_select(0, dst) * x_src).sum(-1)
        share = softmax(scores, dst, num_nodes=layer.num_dst)
        return scatter(x_src * share.unsqueeze(-1), dst, 0, layer.num_dst).flatten(1)

    return {"ours": ours, "PyG's scatter": messages}


def works_of(works: dict[str, Work], x: Tensor, is_trained: bool) -> dict[str, Callable[[], None]]:
    """What is timed: forward alone, or backward to the rows as well."""
    x = x.requires_grad_(is_trained)
    expected = works["ours"](x)
    grad = torch.randn(expected.shape).to(x.dtype)

    def trained(work: Work) -> None:
        torch.autograd.grad(work(x), x, grad)

    def applied(work: Work) -> None:
        work(x)

    made = {}
    for name, work in works.items():
        if name != "few destinations":
            is_half = x.dtype in (torch.bfloat16, torch.float16)
            close = {"rtol": 0.1, "atol": 1.0 if is_half else 1e-3}
            torch.testing.assert_close(work(x), expected, **close)
        elif is_trained:
            continue
        made[name] = lambda work=work: trained(work) if is_trained else applied(work)
    return made


def main(argv: list[str] | None = None) -> None:
    """Runs the comparison."""
    made = parser("aggregate", __doc__)
    sampling_arguments(made, 5_000_000, 73_000_000, [15, 10, 5], 1024)
    made.add_argument("--widths", type=int, nargs="+", default=[128, 256])
    made.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    made.add_argument("--rounds", type=int, default=11)
    args = made.parse_args(argv)

    print(machine())
    results = []
    for number, layer in enumerate(layers_of(args), 1):
        for width in args.widths:
            for dtype in (getattr(torch, name) for name in args.dtypes):
                x = torch.randn(layer.num_src, width).to(dtype)
                for what, make in (("mean", means), ("attention", attention)):
                    for is_trained in (False, True):
                        rounds = in_turns(works_of(make(layer, dtype), x, is_trained), args.rounds)
                        seconds = {
                            name: [each["seconds"] for each in runs]
                            for name, runs in rounds.items()
                        }
                        results.append(
                            {
                                "layer": number,
                                "destinations": layer.num_dst,
                                "sources": layer.num_src,
                                "edges": len(layer.src),
                                "width": width,
                                "dtype": str(dtype).removeprefix("torch."),
                                "what": what,
                                "backward": is_trained,
                                "seconds": seconds,
                            }
                        )
                        show(results[-1])
    write(args.json, record(args, argv, results=results))


def show(result: dict) -> None:
    """Prints medians, and how much longer each takes than ours."""
    way = "forward, backward" if result["backward"] else "forward"
    print(
        f"\nlayer {result['layer']}: {result['edges']:,} edges of {result['sources']:,} nodes to "
        f"{result['destinations']:,}; {result['what']}, {result['width']} {result['dtype']}, {way}"
    )
    median = {name: statistics.median(took) for name, took in result["seconds"].items()}
    for name, took in median.items():
        print(f"  {name:20} {took * 1e3:8.2f} ms {took / median['ours']:8.2f}x")


if __name__ == "__main__":
    main()
