"""Accuracy with encoded features: one model, real graphs, several seeds, every encoding.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py --features float32 --models stock accelerated norms-trimmed
    python benchmarks/accuracy.py --data DIR  # and tolokers.npz, coauthor_physics.npz, if there

Trains the GraphSAGE of `examples/wordnet_sage.py` from stores that differ in ``features=`` alone,
with the same seeds; and the same as PyG computes it, where that is asked for. Scores are test
accuracies, or the area under the ROC curve where there are two classes.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch.nn.functional as F

import pyg_graphzero as gz
from harness.real_graphs import arguments, graphs, scores
from harness.record import parser, record, write

ENCODINGS = ("float32", "float16", "bfloat16", "int8")
# Value of ``norms`` in ``gz.nn.accelerate``, by model; None trains the model without it.
MODELS = {"stock": None, "accelerated": "whole", "norms-trimmed": "trimmed"}
EPOCHS = {"wordnet": 6, "tolokers": 20, "coauthor physics": 6}


def main(argv: list[str] | None = None) -> None:
    """Trains everything and prints a table."""
    made = parser("accuracy", __doc__)
    arguments(made, hidden=64, fanout=[5, 5])
    made.add_argument("--features", nargs="+", choices=ENCODINGS, default=list(ENCODINGS))
    made.add_argument("--models", nargs="+", choices=MODELS, default=["accelerated"])
    made.add_argument("--epochs", type=int, help="by graph, if not given")
    args = made.parse_args(argv)
    rows: list[dict[str, Any]] = []
    for name, data in graphs(args.graphs, args.data):
        # Counts of words are small integers, which every encoding would keep as they are.
        data.x = F.normalize(data.x) if name == "coauthor physics" else data.x
        print(f"{name}: {data.num_nodes:,} nodes, {data.x.size(1)} features")
        print(
            f"{'features':9} {'model':13} {'MB':>6} {'relative RMSE':>14}  test score by seed, mean"
        )
        for encoding in args.features:
            with tempfile.TemporaryDirectory() as folder:
                store = Path(folder) / "store"
                features = None if encoding == "float32" else encoding
                summary = gz.convert(data, store, features=features, progress=False)
                column = summary.info["node_types"][0]["attrs"]["x"]
                disk = gz.open(store).data()
                epochs = args.epochs or EPOCHS[name]
                for model in args.models:
                    row = {
                        "graph": name,
                        "epochs": epochs,
                        "features": encoding,
                        "model": model,
                        "bytes": column["bytes"],
                        "relative_rmse": column.get("encoding", {}).get("relative_rmse", 0.0),
                        **scores(disk, args, {}, epochs, MODELS[model]),
                    }
                    rows.append(row)
                    print(
                        f"{encoding:9} {model:13} {row['bytes'] / 1e6:6.1f} "
                        f"{row['relative_rmse']:14.2%}  "
                        f"{' '.join(f'{score:.4f}' for score in row['scores'])}  {row['mean']:.4f}",
                        flush=True,
                    )
                    write(args.json, record(args, argv, rows=rows))


if __name__ == "__main__":
    main()
