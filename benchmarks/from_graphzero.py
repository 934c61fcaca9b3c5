"""GraphZero 0.2 and this package side by side, on the shape of GraphZero's own benchmark.

    python benchmarks/from_graphzero.py --dir /tmp/here --graphzero-path SITE_PACKAGES

Both packages read one graph from text and take turns, each in processes of its own: one process
converts; another opens, draws one hop of neighbours, walks, makes batches with their rows, and
trains the model of GraphZero's GraphSAGE script, which here is PyG's layer, accelerated, behind
``NeighborLoader``. Without ``--graphzero-path``, this package runs alone.
"""

from __future__ import annotations

import importlib
import shutil
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import Linear
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from harness.child import Task, Tell, answer
from harness.record import in_turns, medians, parser, record, sampling_arguments, show, write
from harness.run import CHILD, Run, play
from pyg_graphzero.util.machine import machine

HIDDEN, CLASSES = 64, 10
# Repetitions of operations that take little time.
_REPEAT = 50
_BIASED = 0.5, 2.0


class Sage(torch.nn.Module):
    """The model of GraphZero's script, by PyG's convolution.

    Args:
        dim: Width of the features.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.conv, self.classify = SAGEConv(dim, HIDDEN), Linear(HIDDEN, CLASSES)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        """Classes of all nodes."""
        return self.classify(self.conv(x, edge_index).relu())


class Ours:
    """This package and the operations that are measured.

    Args:
        folder: Directory of the text and of the files converted from it.
        options: ``nodes``, ``dim``, ``batch_size``, ``fanout`` (of one hop), ``walk_length`` in
            steps.

    Attributes:
        loader: An epoch: seeds, shuffled, with neighbours and the rows of all.
    """

    model: torch.nn.Module
    loader: DataLoader[Any]

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        self.folder, self.options = folder, options
        self.seeds = torch.randperm(options["nodes"])[: options["batch_size"]]

    def convert(self) -> None:
        """A store, its edges by both ends."""
        columns = ",".join(f"f{i}" for i in range(self.options["dim"]))
        sources = {
            "x": f"{self.folder / 'features.csv'}:{columns}",
            "y": f"{self.folder / 'labels.csv'}:y",
        }
        gz.convert(
            self.folder / "edges.csv", self.folder / "store", node_attrs=sources,
            both_directions=True, force=True, progress=False,
        )  # fmt: skip

    def open(self) -> None:
        """All that it has, mapped."""
        self.data = gz.open(self.folder / "store").data()
        self.x, self.y = self.data.x, self.data.y

    def prepare(self) -> None:
        """A sampler, walkers, a loader, the model and one line for it."""
        self.sampler = gz.sampler.NeighborSampler(self.data, self.options["fanout"])
        self.walkers = {pq: gz.sampler.RandomWalker(self.data, *pq) for pq in ((1.0, 1.0), _BIASED)}
        self.loader = gz.loader.NeighborLoader(
            self.data, self.options["fanout"], batch_size=self.options["batch_size"], shuffle=True
        )
        self.model = gz.nn.accelerate(Sage(self.options["dim"]))

    def fanout(self) -> object:
        """Drawn without replacement, along edges into a node."""
        return self.sampler.sample_from_nodes(NodeSamplerInput(None, self.seeds))

    def walk(self, p: float, q: float) -> object:
        """Along edges."""
        return self.walkers[p, q].walk(self.seeds, self.options["walk_length"])

    def loss(self, batch: Any) -> Tensor:
        """Cross-entropy of the seeds."""
        size = batch.batch_size
        return cross_entropy(self.model(batch.x, batch.edge_index)[:size], batch.y[:size])


class GraphZero(Ours):
    """GraphZero 0.2 does this work, as its documentation uses it."""

    def __init__(self, folder: Path, options: dict[str, Any]) -> None:
        super().__init__(folder, options)
        self.peer = importlib.import_module("graphzero")

    def convert(self) -> None:
        """Its three files."""
        kinds = self.peer.DataType
        self.peer.convert_csv_to_gl(f"{self.folder}/edges.csv", f"{self.folder}/graph.gl", True)
        for name, kind in (("features", kinds.FLOAT32), ("labels", kinds.INT64)):
            text = f"{self.folder}/{name}-bare.csv"
            self.peer.convert_csv_to_gd(text, f"{self.folder}/{name}.gd", kind)

    def open(self) -> None:
        """All of them, mapped."""
        self.graph = self.peer.Graph(f"{self.folder}/graph.gl")
        self.files = [
            self.peer.FeatureStore(f"{self.folder}/{each}.gd") for each in ("features", "labels")
        ]
        x, y = (torch.from_numpy(file.get_tensor()) for file in self.files)
        self.x, self.y = x, y.view(-1)

    def prepare(self) -> None:
        """The loader and the model of its script."""

        def gather(seeds: list[int]) -> tuple[Tensor, Tensor, Tensor]:
            (fanout,) = self.options["fanout"]
            drawn = torch.from_numpy(self.graph.batch_random_fanout(seeds, fanout))
            nodes = torch.tensor(seeds)
            return nodes, self.x[nodes], self.x[drawn]

        self.loader = DataLoader(
            range(self.options["nodes"]),  # type: ignore[arg-type]  # any sequence will do
            batch_size=self.options["batch_size"], shuffle=True, collate_fn=gather,
        )  # fmt: skip
        layers = Linear(2 * self.options["dim"], HIDDEN), Linear(HIDDEN, CLASSES)
        self.model = torch.nn.ModuleList(layers)

    def fanout(self) -> object:
        """Drawn without replacement."""
        return self.graph.batch_random_fanout(self.seeds.tolist(), *self.options["fanout"])

    def walk(self, p: float, q: float) -> object:
        """It counts nodes."""
        start, length = self.seeds.tolist(), self.options["walk_length"] + 1
        if p == q == 1:
            return self.graph.batch_random_walk_uniform(start, length)
        return self.graph.batch_random_walk(start, length, p, q)

    def loss(self, batch: Any) -> Tensor:
        """The mean of neighbours beside the seed's own row."""
        nodes, own, others = batch
        combine, classify = self.model.children()
        h = combine(torch.cat([own, others.mean(dim=1)], dim=1)).relu()
        return cross_entropy(classify(h), self.y[nodes])


CONTESTANTS = {"ours": Ours, "GraphZero 0.2": GraphZero}


def serve(task: Task, tell: Tell) -> None:
    """One contestant: its conversion, or all else."""
    torch.manual_seed(task.seed)
    name, _, what = task.do.partition(": ")
    contestant = CONTESTANTS[name](Path(task.options["folder"]), task.options)
    if what == "convert":
        tell({"event": "found", "found": {"convert": seconds(contestant.convert)}})
        return
    found = {"open": seconds(contestant.open)}
    contestant.prepare()
    found["fanout"] = seconds(contestant.fanout, _REPEAT)
    found["walk"] = seconds(lambda: contestant.walk(1.0, 1.0), _REPEAT)
    found["biased walk"] = seconds(lambda: contestant.walk(*_BIASED), 3)
    found["batch"] = seconds(lambda: sum(1 for _ in contestant.loader), 3)
    found["batch"] /= len(contestant.loader)
    optimizer = torch.optim.Adam(contestant.model.parameters(), lr=0.01)

    def epoch() -> None:
        for batch in contestant.loader:
            optimizer.zero_grad()
            contestant.loss(batch).backward()
            optimizer.step()

    found["epoch"] = seconds(epoch, 3)
    tell({"event": "found", "found": found})


def seconds(work: Callable[[], object], times: int = 0) -> float:
    """Seconds of one call of ``work``; the median of the later calls where ``times`` is given."""
    taken = []
    for _ in range(times + 1):
        begin = time.perf_counter()
        work()
        taken.append(time.perf_counter() - begin)
    return statistics.median(taken[1:] or taken)


# The parent #######################################################################################


def write_text(folder: Path, nodes: int, edges: int, dim: int) -> None:
    """A graph with uniformly random edges, as text; for GraphZero without a header."""
    generator = torch.Generator().manual_seed(0)
    ends = torch.randint(nodes, (edges, 2), generator=generator)
    rows = torch.randn(nodes, dim, generator=generator)
    labels = torch.randint(CLASSES, (nodes,), generator=generator)
    lines = {
        "edges": [f"{s},{t}" for s, t in ends.tolist()],
        "features": [
            ",".join([str(node), *(f"{value:.4f}" for value in row)])
            for node, row in enumerate(rows.tolist())
        ],
        "labels": [f"{node},{label}" for node, label in enumerate(labels.tolist())],
    }
    columns = ",".join(f"f{i}" for i in range(dim))
    for name, header in (("edges", "src,dst"), ("features", f"id,{columns}"), ("labels", "id,y")):
        text = "\n".join(lines[name]) + "\n"
        (folder / f"{name}.csv").write_text(f"{header}\n{text}")
        (folder / f"{name}-bare.csv").write_text(text)


def main(argv: list[str] | None = None) -> None:
    """Writes the graph, lets both run, and prints the table."""
    made = parser("from_graphzero", __doc__)
    made.add_argument("--dir", type=Path, required=True, help="where everything is made")
    sampling_arguments(made, 50_000, 200_000, [5], dim=32)
    made.add_argument("--walk-length", type=int, default=20, help="steps")
    made.add_argument("--graphzero-path", help="where GraphZero 0.2 is installed")
    args = made.parse_args(argv)
    folder = args.dir / "from-graphzero"
    folder.mkdir(parents=True)
    options = {name: getattr(args, name) for name in
               ("nodes", "dim", "batch_size", "fanout", "walk_length")}  # fmt: skip
    options["folder"] = str(folder)
    names = list(CONTESTANTS) if args.graphzero_path else ["ours"]

    def both(name: str) -> dict[str, float]:
        """Conversion and use by a contestant."""
        found: dict[str, float] = {}
        for what in ("convert", "use"):
            task = Task(f"{name}: {what}", str(folder), options=options)
            path = args.graphzero_path if name == "GraphZero 0.2" else None
            run = Run(task.do, name, task, cold=False, path=path)
            result = play(run, Path(__file__), drop_caches=False)
            if result["error"]:
                raise SystemExit(f"{task.do}: {result['error']}")
            found |= result["found"] | {f"peak of {what}": result["peak"]["anon_and_file"]}
        return found

    try:
        write_text(folder, args.nodes, args.edges, args.dim)
        rounds = in_turns({name: partial(both, name) for name in names}, args.rounds)
    finally:
        shutil.rmtree(folder)
    figures = {name: medians(each) for name, each in rounds.items()}
    write(args.json, record(args, argv, medians=figures))
    print(machine())
    print(show("seconds, bytes", figures))


if __name__ == "__main__":
    answer(serve) if sys.argv[1:] == [CHILD] else main()
