"""What encoded features cost in accuracy: one model, one graph, several seeds, every encoding.

    python benchmarks/accuracy.py

Trains the GraphSAGE of `examples/wordnet_sage.py` on Open English WordNet from stores that differ
in ``features=`` alone, with the same seeds. Prints test accuracies; writes JSON with the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import pyg_graphzero as gz
from pyg_graphzero.bench.machine import machine

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))

from wordnet_sage import train_mini_batch

from wordnet import load_graph

ENCODINGS = (None, "float16", "bfloat16", "int8")


def parse_args() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--hidden", type=int, default=64)
    parser.add_argument("--fanout", type=int, nargs="+", default=[5, 5])
    parser.add_argument("--batch-size", type=int, default=512)
    parser.add_argument("--json", type=Path, default=Path("benchmarks/out/accuracy.json"))
    args = parser.parse_args()
    args.workers = 0
    return args


def main() -> None:
    """Trains everything and prints a table."""
    args = parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        data = load_graph()
        print(f"{'features':10} {'MB':>7} {'relative RMSE':>14}  test accuracy of each seed, mean")
        for encoding in ENCODINGS:
            store = Path(folder) / str(encoding)
            summary = gz.convert(data, store, features=encoding)
            loss = summary.nodes[None].losses.get("x")
            column = gz.open(store).info()["node_types"][0]["attrs"]["x"]
            scores = []
            for seed in args.seeds:
                args.seed = seed
                with contextlib.redirect_stdout(io.StringIO()):
                    disk = gz.open(store).data()
                    scores.append(train_mini_batch(gz.loader.NeighborLoader, disk, args))
            row = {
                "features": encoding or "float32",
                "bytes": column["bytes"],
                "relative_rmse": 0.0 if loss is None else loss.relative_rmse,
                "test_accuracy": scores,
                "mean": statistics.mean(scores),
            }
            rows.append(row)
            print(
                f"{row['features']:10} {row['bytes'] / 1e6:7.1f} {row['relative_rmse']:14.2%}  "
                f"{' '.join(f'{score:.4f}' for score in scores)}  {row['mean']:.4f}",
                flush=True,
            )
    args.json.parent.mkdir(parents=True, exist_ok=True)
    given = {key: str(value) for key, value in vars(args).items()}
    document = {"machine": machine(), "arguments": given, "rows": rows}
    args.json.write_text(json.dumps(document, indent=1))


if __name__ == "__main__":
    main()
