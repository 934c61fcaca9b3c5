"""Training by DGL's layers, in an environment that has DGL and not this package.

    PYTHON dgl_peer.py ARRAYS.npz MODEL

Prints what the second epoch of DGL GraphBolt took, as a line of JSON; or the second step, where the
arrays are those of a batch. That is cut into DGL's blocks first, as its samplers give them, which
is not timed.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any

import dgl
import dgl.graphbolt as gb
import dgl.nn as dglnn
import numpy as np
import torch
import torch.nn.functional as F


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


def step_of(batch: Mapping[str, np.ndarray], model: Model) -> Callable[[], int]:
    """A training step on a batch."""
    blocks = blocks_of(batch, len(model.layers))
    for block in blocks:
        block.create_formats_()
    x, y = torch.from_numpy(batch["x"]), torch.from_numpy(batch["y"])
    optimizer = torch.optim.Adam(model.parameters())

    def step() -> int:
        optimizer.zero_grad()
        F.cross_entropy(model(blocks, x), y).backward()
        optimizer.step()
        return len(x)

    return step


def epoch_of(graph: Mapping[str, np.ndarray], model: Model) -> Callable[[], int]:
    """An epoch of GraphBolt's batches."""
    indptr, indices, x, y, seeds = (
        torch.from_numpy(graph[name]) for name in ("indptr", "indices", "x", "y", "seeds")
    )
    features = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(x)})
    items = gb.ItemSet((seeds, y[seeds]), names=("seed_nodes", "labels"))
    batches = gb.ItemSampler(items, batch_size=int(graph["batch_size"]), shuffle=True)
    # The last of its fan-outs is that of the seeds.
    fanout = graph["fanout"][::-1].tolist()
    batches = batches.sample_neighbor(gb.fused_csc_sampling_graph(indptr, indices), fanout)
    batches = batches.fetch_feature(features, node_feature_keys=["x"])
    loader = gb.DataLoader(batches, num_workers=0)
    optimizer = torch.optim.Adam(model.parameters())

    def epoch() -> int:
        nodes = 0
        for batch in loader:
            optimizer.zero_grad()
            x = batch.node_features["x"]
            F.cross_entropy(model(batch.blocks, x), batch.labels).backward()
            optimizer.step()
            nodes += len(x)
        return nodes

    return epoch


def main() -> None:
    path, kind = sys.argv[1:]
    arrays = np.load(path)
    model = Model(kind, arrays["widths"].tolist(), int(arrays["heads"]), float(arrays["dropout"]))
    work = (epoch_of if "indptr" in arrays else step_of)(arrays, model)
    work()
    began, used = time.perf_counter(), time.process_time()
    found = {"nodes": work()}
    taken = {"seconds": time.perf_counter() - began, "cpu_seconds": time.process_time() - used}
    print(json.dumps(found | taken), flush=True)


if __name__ == "__main__":
    main()
