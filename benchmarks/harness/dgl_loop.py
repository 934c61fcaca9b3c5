"""Epochs of DGL GraphBolt with DGL's layers, in an environment that has DGL and not this package.

    PYTHON dgl_loop.py FOLDER

Each line of the input asks for an epoch; a line of JSON says what it took. The folder has the
graph, features and seeds as arrays, and ``settings.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import dgl.graphbolt as gb
import numpy as np
import torch
import torch.nn.functional as F
from dgl_step import Model, measure


def main() -> None:
    folder = Path(sys.argv[1])
    arrays = {path.stem: torch.from_numpy(np.load(path)) for path in folder.glob("*.npy")}
    settings = json.loads((folder / "settings.json").read_text())
    graph = gb.fused_csc_sampling_graph(arrays["indptr"], arrays["indices"])
    features = gb.BasicFeatureStore({("node", None, "x"): gb.TorchBasedFeature(arrays["x"])})
    seeds = arrays["seeds"]
    items = gb.ItemSet((seeds, arrays["y"][seeds]), names=("seed_nodes", "labels"))
    batches = gb.ItemSampler(items, batch_size=settings["batch_size"], shuffle=True)
    # The last of its fan-outs is that of the seeds.
    batches = batches.sample_neighbor(graph, settings["fanout"][::-1])
    batches = batches.fetch_feature(features, node_feature_keys=["x"])
    loader = gb.DataLoader(batches, num_workers=0)
    model = Model("GraphSAGE", settings["widths"], 1, settings["dropout"])
    optimizer = torch.optim.Adam(model.parameters())

    def epoch() -> dict[str, int]:
        nodes = 0
        for batch in loader:
            optimizer.zero_grad()
            x = batch.node_features["x"]
            F.cross_entropy(model(batch.blocks, x), batch.labels).backward()
            optimizer.step()
            nodes += len(x)
        return {"nodes": nodes}

    for _ in sys.stdin:
        measure(epoch)


if __name__ == "__main__":
    main()
