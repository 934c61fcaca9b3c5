"""The phases of ``papers100m.py``, from the dataset to predictions: this is their process."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path
from typing import Any

import torch
from papers100m_graph import MASKS, NUM_CLASSES, PapersGraph
from papers100m_shape import shape
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from harness.child import Pace, Task, Tell
from harness.peers import compete_alone
from pyg_graphzero.bench.training import Trainer, graph_sage
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.util.sizes import folder_bytes

# Encodings of the features as ``gz.convert(features=...)`` has them.
ENCODINGS = {"float32": None, "float16": "float16", "int8": "int8"}
# Share of the batches, the first ones, that is not steady yet: the budget is being filled.
_WARM_UP = 0.2
_LOOKS = 8  # at the accuracy on validation nodes


def model_file(task: Task) -> Path:
    """Where training leaves its model."""
    return Path(task.store).with_name("model.pt")


def serve(task: Task, tell: Tell) -> None:
    """One phase."""
    torch.manual_seed(task.seed)
    tell({"event": "found", "found": PHASES[task.do](task, tell)})


def convert(task: Task, tell: Tell) -> dict[str, Any]:
    """The dataset in a directory, or the synthetic graph as a stream, to a store."""
    store, source, features = Path(task.store), task.options["data"], task.options["features"]
    directed = task.options["directed"]
    begin = time.perf_counter()
    if source is not None:
        given: dict[str, Any] = {"features": ENCODINGS[features], "memory": task.budget}
        if not directed:
            given |= {"undirected": True, "coalesce": "first", "edge_ids": False}
        gz.convert(source, store, progress=False, **given)
    else:
        graph = PapersGraph.of(task.options["scale"], task.seed, directed)
        graph.write(store, ENCODINGS[features], task.budget)
    seconds = time.perf_counter() - begin
    with gz.open(store) as opened:
        facts: dict[str, Any] = {
            "num_nodes": opened.num_nodes,
            "num_edges": opened.info()["edge_types"][0]["num_edges"],
        }
        data = opened.data()
        facts["split"] = {mask: int(data[mask].sum()) for mask in MASKS.values()}
    return facts | {"seconds": seconds, "store_bytes": folder_bytes(store)}


def optimize(task: Task, tell: Tell) -> dict[str, Any]:
    """The rows that training uses, copied in the order of their use."""
    summary = gz.optimize(
        task.store,
        seeds=MASKS["train"],
        num_neighbors=task.fanout,
        batch_size=task.batch_size,
        memory=task.budget,
        progress=False,
    )
    found = summary.to_dict()
    found.pop("path")
    return found


def train(task: Task, tell: Tell) -> dict[str, Any]:
    """GraphSAGE on sampled batches within the budget, for some hundred of them."""
    begin = time.perf_counter()
    store = gz.open(task.store, memory=task.budget)
    data = store.data()
    options = {"shuffle": True, "drop_last": True, "num_workers": task.workers}
    loader = loader_of(task, data, data[MASKS["train"]], **options)
    next(iter(loader))  # the first loader that begins decides what stays in memory
    first = time.perf_counter() - begin
    # Before the batches that are kept: those of an accelerated model know their hops.
    width = store.feature_store.get_tensor_size(group_name=None, attr_name="x")[1]
    net = graph_sage(Data(), len(task.fanout), NUM_CLASSES, task.hidden, width)
    trainer = Trainer(net, task.model)
    looks = validation(task, data)
    tell({"event": "ready", "seconds": 0.0, "facts": {"epoch_batches": len(loader)}})
    pace = Pace(task, tell)
    warm_up = max(1, int(_WARM_UP * min(task.batches, len(loader))))
    every = max(1, task.batches // _LOOKS)
    curve: list[dict[str, Any]] = []
    steady: list[tuple[LoaderStats, float]] = []
    looking = 0.0
    wanted = True
    while wanted:  # epochs
        marks: list[tuple[LoaderStats, float]] = []
        for number, batch in enumerate(loader, 1):
            loss = trainer.step(batch)
            wanted = pace.batch(batch.num_nodes, batch.num_edges)
            if number in (warm_up, len(loader)) or not wanted:
                stats = loader.stats()
                assert stats is not None
                marks.append((dataclasses.replace(stats), looking))
            if pace.batches % every == 0 or not wanted:
                begin = time.perf_counter()
                accuracy = share_found(trainer.model, looks)
                looking += time.perf_counter() - begin
                point = {"batch": pace.batches, "seconds": pace.elapsed}
                curve.append(point | {"loss": float(loss), "val_accuracy": accuracy})
            if not wanted:
                break
        # An epoch that ended before it was steady says less than the one before it.
        steady = marks if len(marks) > 1 else steady or marks
    torch.save(trainer.model.state_dict(), model_file(task))
    found = {"batches": pace.batches, "seconds": pace.elapsed, "curve": curve}
    return found | {"steady": steady_state(steady), "first_batch_of_all_seconds": first}


def loader_of(task: Task, data: Any, nodes: Tensor, **options: Any) -> gz.loader.NeighborLoader:
    """Batches, with the first layer's means where the model is one that takes them."""
    return gz.loader.NeighborLoader(
        data,
        task.fanout,
        input_nodes=nodes,
        batch_size=task.batch_size,
        edge_ids=False,
        first_aggregation="mean" if task.model == "accelerated" else None,
        **options,
    )


def load(task: Task, tell: Tell) -> dict[str, Any]:
    """Epochs of loading without training: by GraphBolt's scheme, or by this package's loader."""
    compete_alone(task, tell, lambda batch: None)
    return {}


def validation(task: Task, data: Any) -> list[Any]:
    """Batches of validation nodes, sampled once, that are kept to look at again and again."""
    nodes = data[MASKS["valid"]].nonzero().view(-1)
    nodes = nodes[torch.randperm(len(nodes))[: task.options["eval_nodes"]]]
    return list(loader_of(task, data, nodes))


def steady_state(marks: list[tuple[LoaderStats, float]]) -> dict[str, Any] | None:
    """A loader's counts between two marks; None if there are not two.

    Args:
        marks: Counts of an epoch at two moments, and the seconds that were not training by then.
    """
    (first, before), (last, after) = marks[0], marks[-1]
    if last.batches == first.batches:
        return None
    counts = last.since(first)
    counts.elapsed -= after - before
    return counts.to_dict()


def infer(task: Task, tell: Tell) -> dict[str, Any]:
    """Classes of all nodes, layer by layer over the whole graph; how many are right is told."""
    with gz.open(task.store, mode="r+", memory=task.budget) as store:
        # Not by data.x, which would decode all rows.
        width = store.feature_store.get_tensor_size(group_name=None, attr_name="x")[1]
        model = GraphSAGE(width, task.hidden, len(task.fanout), NUM_CLASSES)
        trained = model_file(task).exists()
        if trained:
            model.load_state_dict(torch.load(model_file(task), weights_only=True))
        model.eval()
        # Under another limit it is done anew: a name that is not taken yet.
        taken = store.data().keys()
        out = next(name for i in count() if (name := f"class_{i}") not in taken)
        begin = time.perf_counter()
        summary = gz.inference.layerwise(
            model,
            store,
            out=out,
            head=classes,
            encoding="float16",
            num_workers=task.workers,
            progress=False,
        )
        seconds = time.perf_counter() - begin
        data = store.data()
        found: dict[str, Any] = {"seconds": seconds, "trained": trained, "out": out}
        for name, mask in MASKS.items():
            nodes = data[mask].nonzero().view(-1)
            right = (data[out][nodes].long() == data.y[nodes]).float().mean()
            found[f"{name}_accuracy"] = float(right)
        layers = [dataclasses.asdict(each) for each in summary.layers]
        return found | {"num_nodes": store.num_nodes, "layers": layers}


def classes(rows: Tensor) -> Tensor:
    """The class of each row of logits, in as few bytes as hold it."""
    return rows.argmax(-1).to(torch.uint8)


@torch.no_grad()
def share_found(model: torch.nn.Module, batches: Iterable[Any]) -> float:
    """Share of the seeds of some batches whose class a model finds."""
    right = total = 0
    model.eval()
    for batch in batches:
        found = model(batch.x.float(), batch.edge_index)[: batch.batch_size].argmax(-1)
        right += int((found == batch.y[: batch.batch_size].view(-1)).sum())
        total += batch.batch_size
    model.train()
    return right / max(1, total)


PHASES: dict[str, Callable[[Task, Tell], dict[str, Any]]] = {
    "convert": convert,
    "optimize": optimize,
    "shape": shape,
    "train": train,
    "graphbolt": load,
    "load": load,
    "infer": infer,
}
