"""A training step of DGL's layers on a batch, in an environment that has DGL and not this package.

    PYTHON dgl_step.py BATCH.npz MODEL

The batch is cut into DGL's blocks first, as its samplers give them; that is not timed. Prints what
the second step took as a line of JSON.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import dgl
import dgl.nn as dglnn
import numpy as np
import torch
import torch.nn.functional as F


def measure(work: Callable[[], dict[str, int]]) -> None:
    """Prints what ``work`` returns, its seconds and its CPU seconds as a line of JSON."""
    began, used = time.perf_counter(), time.process_time()
    found = work()
    taken = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    print(json.dumps(found | taken), flush=True)


def blocks_of(batch: Mapping[str, np.ndarray], depth: int) -> list[Any]:
    """From the leaves to the seeds."""
    nodes, edges = np.cumsum(batch["nodes"]), np.cumsum(batch["edges"])
    src, dst = torch.from_numpy(batch["edge_index"])
    made = []
    for hop in range(depth, 0, -1):
        count = edges[hop - 1]
        made.append(
            dgl.create_block(
                (src[:count], dst[:count]),
                num_src_nodes=int(nodes[hop]),
                num_dst_nodes=int(nodes[hop - 1]),
            )
        )
    return made


class Model(torch.nn.Module):
    """Layers with ReLU between them."""

    def __init__(self, kind: str, widths: list[int], heads: int, dropout: float) -> None:
        super().__init__()
        self.dropout = dropout
        self.layers = torch.nn.ModuleList()
        for number, (ins, outs) in enumerate(itertools.pairwise(widths)):
            if kind == "GraphSAGE":
                layer = dglnn.SAGEConv(ins, outs, "mean")
            elif kind == "GCN":
                layer = dglnn.GraphConv(ins, outs, norm="both", allow_zero_in_degree=True)
            elif kind == "GIN":
                layer = dglnn.GINConv(
                    torch.nn.Sequential(
                        torch.nn.Linear(ins, outs), torch.nn.ReLU(), torch.nn.Linear(outs, outs)
                    )
                )
            else:
                last = number == len(widths) - 2
                layer = dglnn.GATConv(
                    ins, outs if last else outs // heads, heads, allow_zero_in_degree=True
                )
            self.layers.append(layer)

    def forward(self, blocks: list[Any], x: torch.Tensor) -> torch.Tensor:
        """Scores of the seeds."""
        for number, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, x)
            last = number == len(blocks) - 1
            if x.dim() == 3:
                x = x.mean(1) if last else x.flatten(1)
            x = x if last else F.dropout(F.relu(x), self.dropout)
        return x


def main() -> None:
    path, kind = sys.argv[1:]
    batch = np.load(path)
    widths = [int(width) for width in batch["widths"]]
    blocks = blocks_of(batch, len(widths) - 1)
    for block in blocks:
        block.create_formats_()
    x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"])
    model = Model(kind, widths, int(batch["heads"]), float(batch["dropout"]))
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> dict[str, int]:
        optimizer.zero_grad()
        F.cross_entropy(model(blocks, x), y).backward()
        optimizer.step()
        return {}

    step()
    measure(step)


if __name__ == "__main__":
    main()
