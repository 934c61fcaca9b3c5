"""What encoded features cost in accuracy: one model, real graphs, several seeds, every encoding.

    python benchmarks/accuracy.py
    python benchmarks/accuracy.py --data DIR  # and tolokers.npz, coauthor_physics.npz, if there

Trains the GraphSAGE of `examples/wordnet_sage.py` from stores that differ in ``features=`` alone,
with the same seeds. Scores are test accuracies, or the area under the ROC curve where there are two
classes. Prints a table; writes JSON with the machine.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any

import torch.nn.functional as F

import pyg_graphzero as gz
from pyg_graphzero.util.machine import machine
from real_graphs import NAMES, graphs, train

ENCODINGS = (None, "float16", "bfloat16", "int8")
EPOCHS = {"wordnet": 6, "tolokers": 20, "coauthor physics": 6}


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="directory with more graphs")
    parser.add_argument("--graphs", nargs="+", default=list(NAMES), choices=NAMES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--fanout", type=int, nargs="+", default=[5, 5])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/accuracy.json"))
    return parser.parse_args()


def main() -> None:
    """Trains everything and prints a table."""
    args = parse_args()
    given = {key: str(value) for key, value in vars(args).items() if key not in ("data", "json")}
    rows: list[dict[str, Any]] = []
    args.json.parent.mkdir(parents=True, exist_ok=True)
    for name, data in graphs(args.graphs, args.data):
        # Counts of words are small integers, which every encoding would keep as they are.
        data.x = F.normalize(data.x) if name == "coauthor physics" else data.x
        print(f"{name}: {data.num_nodes:,} nodes, {data.x.size(1)} features")
        print(f"{'features':10} {'MB':>7} {'relative RMSE':>14}  test score of each seed, mean")
        for encoding in ENCODINGS:
            with tempfile.TemporaryDirectory() as folder:
                store = Path(folder) / "store"
                summary = gz.convert(data, store, features=encoding, progress=False)
                loss = summary.nodes[None].losses.get("x")
                column = gz.open(store).info()["node_types"][0]["attrs"]["x"]
                disk = gz.open(store).data()
                scores = [train(disk, args, {}, seed, EPOCHS[name]) for seed in args.seeds]
            row = {
                "graph": name,
                "epochs": EPOCHS[name],
                "features": encoding or "float32",
                "bytes": column["bytes"],
                "relative_rmse": 0.0 if loss is None else loss.relative_rmse,
                "scores": scores,
                "mean": statistics.mean(scores),
            }
            rows.append(row)
            print(
                f"{row['features']:10} {row['bytes'] / 1e6:7.1f} {row['relative_rmse']:14.2%}  "
                f"{' '.join(f'{score:.4f}' for score in scores)}  {row['mean']:.4f}",
                flush=True,
            )
            document = {"machine": machine(), "arguments": given, "rows": rows}
            args.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
