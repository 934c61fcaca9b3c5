"""The record of a run: what was asked for, on which machine, when, and what was found."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data

from pyg_graphzero.bench.entrant import ENVIRONMENT
from pyg_graphzero.bench.process import Clock
from pyg_graphzero.bench.synthetic import NUM_CLASSES, power_law
from pyg_graphzero.bench.table import markdown, number
from pyg_graphzero.bench.training import MODELS
from pyg_graphzero.util.machine import machine, storage

OUT = Path("benchmarks/out")
# Arguments that name places of this machine, which mean nothing elsewhere.
_PLACES = ("dir", "data", "out", "json", "stock_path", "graphzero_path")


def parser(script: str, doc: str, json: bool = True) -> argparse.ArgumentParser:
    """A script's arguments.

    Args:
        script: Its name.
        doc: Its docstring, which is the help.
        json: Whether it has an option for where its record goes.
    """
    made = argparse.ArgumentParser(
        prog=f"{script}.py", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.set_defaults(script=script)
    if json:
        made.add_argument("--json", type=Path, default=OUT / f"{script}.json", help="the record")
    return made


def sampling_arguments(
    made: argparse.ArgumentParser,
    nodes: int,
    edges: int,
    fanout: list[int],
    batch_size: int = 1024,
    rounds: int = 3,
    dim: int = 128,
) -> None:
    """A synthetic graph (``dim`` is 0: without features), batches of it, rounds to measure."""
    made.add_argument("--nodes", type=int, default=nodes)
    made.add_argument("--edges", type=int, default=edges)
    made.add_argument("--fanout", type=int, nargs="+", default=fanout)
    made.add_argument("--batch-size", type=int, default=batch_size)
    made.add_argument("--rounds", type=int, default=rounds)
    if dim:
        made.add_argument("--dim", type=int, default=dim, help="of the features")


def step_arguments(made: argparse.ArgumentParser, rounds: int) -> None:
    """A synthetic graph, batches of it, and a model of which steps are measured."""
    sampling_arguments(made, 5_000_000, 75_000_000, [15, 10, 5], rounds=rounds)
    made.add_argument("--undirected", action="store_true", help="every edge both ways")
    made.add_argument("--hidden", type=int, default=256, help="width of the model")
    made.add_argument("--dgl", help="a Python that has DGL, whose layers take part")
    made.add_argument("--dropout", type=float, default=0.0, help="between its layers")
    made.add_argument(
        "--autocast", action="store_true", help="products in bfloat16; DGL's stay in float32"
    )


def step_graph(args: argparse.Namespace, dim: int) -> Data:
    """The graph of these arguments."""
    data = power_law(args.nodes, args.edges, dim)
    if args.undirected:
        data.edge_index = torch.cat((data.edge_index, data.edge_index.flip(0)), 1)
    return data


def widths(args: argparse.Namespace) -> list[int]:
    """Widths of a model's features, of its hidden layers and of its classes."""
    return [args.dim, *[args.hidden] * (len(args.fanout) - 1), NUM_CLASSES]


def by_dgl(
    args: argparse.Namespace, model: str, heads: int, path: Path, **arrays: Any
) -> Callable[[], dict[str, float]]:
    """Training by DGL in a process of its own each time, which says how long it took.

    Args:
        args: Has ``dgl``, a Python that has DGL.
        model: See ``dgl_peer.py``.
        heads: Number of attention heads.
        path: Where what it reads is written.
        arrays: A batch, or a graph.
    """
    np.savez(path, widths=widths(args), heads=heads, dropout=args.dropout, **arrays)
    words = [args.dgl, str(Path(__file__).with_name("dgl_peer.py")), str(path), model]
    return lambda: json.loads(subprocess.check_output(words, text=True))


def limited_arguments(made: argparse.ArgumentParser, training_memory: str) -> None:
    """Adds the arguments of scripts that train in processes under a limit on memory."""
    folder_arguments(made)
    made.add_argument("--fanout", type=int, nargs="+", default=[15, 10, 5])
    made.add_argument("--batch-size", type=int, default=1024)
    made.add_argument(
        "--training-memory",
        default=training_memory,
        help="of the limit, what is left for a model and its training",
    )
    made.add_argument("--model", choices=MODELS, default="trimmed", help="how it is computed")
    made.add_argument("--stock-path", help="added to PYTHONPATH of stock PyG, for torch-sparse")
    made.add_argument("--seed", type=int, default=0)
    made.add_argument("--out", type=Path, default=OUT, help="where the record and charts go")
    made.add_argument("--name", default=made.get_default("script"), help="of these")


def folder_arguments(made: argparse.ArgumentParser) -> None:
    """Where graphs are made, and how cold what is measured begins."""
    made.add_argument("--dir", type=Path, required=True, help="where everything is made")
    made.add_argument("--keep", action="store_true", help="leave what is made for the next run")
    made.add_argument(
        "--drop-caches",
        action=argparse.BooleanOptionalAction,
        default=os.geteuid() == 0,
        help="empty all of the machine's page cache before each run, not the files' pages alone",
    )


def record(args: argparse.Namespace, argv: list[str] | None = None, **more: Any) -> dict[str, Any]:
    """A record: the command, the date, the machine and the settings, then further fields.

    Args:
        args: The arguments; ``dir``, if there is one, says which disk it is about.
        argv: Command line that was parsed; the one of this process by default.
        more: Further fields.
    """
    given = {name: value for name, value in vars(args).items() if name != "script"}
    places = {str(given[name]): f"<{name}>" for name in _PLACES if given.get(name) is not None}
    words = sys.argv[1:] if argv is None else argv
    shown = [f"benchmarks/{args.script}.py", *(places.get(word, word) for word in words)]
    found = {
        "command": shlex.join(["python", *shown]),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine(),
        "environment": ENVIRONMENT,
        "settings": {name: value for name, value in given.items() if name not in _PLACES}
        | {"threads": torch.get_num_threads()},
    }
    if given.get("dir") is not None:
        found["storage"] = storage(args.dir)
    return found | more


def write(path: Path, document: dict[str, Any]) -> None:
    """Writes a record."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document, indent=1) + "\n")


def in_turns(
    works: Mapping[str, Callable[[], Any]], rounds: int
) -> dict[str, list[dict[str, float]]]:
    """Calls all of some functions in every round: what drifts, drifts for all.

    Args:
        works: By name.
        rounds: How many are timed; one more, before these, only warms up.

    Returns:
        For each its rounds: ``seconds`` and ``cpu_seconds``, and the figures of a dict that it
        returned, which may be these two of another process.
    """
    found: dict[str, list[dict[str, float]]] = {name: [] for name in works}
    for turn in range(rounds + 1):
        for name, work in works.items():
            with Clock() as clock:
                value = work()
            if turn:
                taken = {"seconds": clock.seconds, "cpu_seconds": clock.cpu_seconds}
                found[name].append(taken | (value if isinstance(value, dict) else {}))
    return found


def medians(rounds: list[dict[str, float]], per: int = 1) -> dict[str, float]:
    """The median of each figure, divided by ``per``."""
    return {key: median(each[key] for each in rounds) / per for key in rounds[0]}


def show(title: str, found: Mapping[str, Mapping[str, Any]]) -> str:
    """A table of the numbers that each has, by name."""
    values = [item for each in found.values() for item in each.items()]
    columns = dict.fromkeys(name for name, value in values if isinstance(value, (int, float)))
    rows = []
    for name, each in found.items():
        cells = (each.get(column) for column in columns)
        rows.append([name, *("" if cell is None else number(cell) for cell in cells)])
    return markdown(title, ["", *columns], rows)
