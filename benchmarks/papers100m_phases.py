"""The phases of ``papers100m.py`` that are this package's own: from the dataset to predictions."""

from __future__ import annotations

import dataclasses
import time
from itertools import count
from pathlib import Path
from typing import Any

import torch
from events import Tell
from papers100m_graph import MASKS, NUM_CLASSES, PapersGraph
from papers100m_task import Pace, Task, store_bytes
from torch import Tensor
from torch_geometric.data import Data
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.util.disk import probe

# Rows that are looked up after a conversion, and how far those of int8 may be off.
_CHECKED = 1000
_TOLERANCE = {"float32": 0.0, "float16": 2e-3, "int8": 3e-2}
# Of the batches, the first share is not steady yet: the budget is being filled.
_WARM_UP = 0.2
_LOOKS = 8  # at the accuracy on validation nodes


def convert(task: Task, tell: Tell) -> dict[str, Any]:
    """The dataset in a directory, or the synthetic graph as a stream, to a store."""
    store = Path(task.store)
    begin = time.perf_counter()
    if task.data is not None:
        gz.convert(task.data, store, features=task.encoding, memory=task.budget, progress=False)
    else:
        graph = task.graph
        graph.write(store, task.encoding, task.budget)
    seconds = time.perf_counter() - begin
    with gz.open(store) as opened:
        facts: dict[str, Any] = {
            "num_nodes": opened.num_nodes(),
            "num_edges": opened.info()["edge_types"][0]["num_edges"],
        }
        data = opened.data()
        facts["split"] = {mask: int(data[mask].sum()) for mask in MASKS.values()}
        if task.data is None:
            check_rows(graph, task.features, opened)
    return facts | {"seconds": seconds, "store_bytes": store_bytes(store)}


def check_rows(graph: PapersGraph, features: str, store: gz.Store) -> None:
    """Looks whether some rows are those of their nodes.

    Args:
        graph: What was written.
        features: How they are stored.
        store: Where.

    Raises:
        ValueError: One is not.
    """
    nodes = torch.randint(graph.num_nodes, (_CHECKED,))
    wanted = torch.empty(len(nodes), graph.num_features)
    graph.features().rows(nodes.numpy(), wanted.numpy())
    found = store.feature_store.get_tensor(group_name=None, attr_name="x", index=nodes)
    off = (found - wanted).abs().max(1).values
    worst = int(off.argmax())
    if off[worst] > _TOLERANCE[features]:
        raise ValueError(
            f"x[{int(nodes[worst])}]: found a value that is {float(off[worst]):.3g} off, expected "
            f"at most {_TOLERANCE[features]}"
        )


def optimize(task: Task, tell: Tell) -> dict[str, Any]:
    """The store again, in the order of its use in training; replaces it."""
    summary = gz.optimize(
        task.store,
        seeds=MASKS["train"],
        num_neighbors=task.fanout,
        batch_size=task.batch_size,
        memory=task.budget,
        progress=False,
        seed=task.seed,
    )
    found = summary.to_dict()
    found.pop("path")
    return found


def train(task: Task, tell: Tell) -> dict[str, Any]:
    """GraphSAGE on sampled batches within the budget, for some hundred of them."""
    torch.manual_seed(task.seed)
    disk = probe(task.store, refresh=True)
    store = gz.open(task.store, memory=task.budget)
    data = store.data()
    loader = gz.loader.NeighborLoader(
        data,
        task.fanout,
        input_nodes=data[MASKS["train"]],
        batch_size=task.batch_size,
        shuffle=True,
        drop_last=True,
        num_workers=task.workers,
        edge_ids=False,
    )
    next(iter(loader))  # the first loader that begins decides what stays in memory
    looks = validation(task, data)
    trainer = Trainer(Data(), None, len(task.fanout), NUM_CLASSES, True, task.hidden)
    tell({"event": "ready", "seconds": 0.0, "facts": {"batches_per_epoch": len(loader)}})
    pace = Pace(task, tell)
    warm_up = max(1, int(_WARM_UP * min(task.batches, len(loader))))
    every = max(1, task.batches // _LOOKS)
    curve: list[dict[str, Any]] = []
    steady: list[tuple[LoaderStats, float]] = []
    looking = loss = 0.0
    wanted = True
    while wanted:  # epochs
        marks: list[tuple[LoaderStats, float]] = []
        for number, batch in enumerate(loader, 1):
            loss = trainer.step(batch)
            wanted = pace.batch(batch.num_nodes, batch.num_edges, loss=loss)
            if number in (warm_up, len(loader)) or not wanted:
                stats = loader.stats()
                assert stats is not None
                marks.append((dataclasses.replace(stats), looking))
            if pace.batches % every == 0 or not wanted:
                begin = time.perf_counter()
                accuracy = trainer.accuracy(looks)
                looking += time.perf_counter() - begin
                point = {"batch": pace.batches, "seconds": pace.elapsed}
                curve.append(point | {"loss": loss, "val_accuracy": accuracy})
            if not wanted:
                break
        # An epoch that ended before it was steady says less than the one before it.
        steady = marks if len(marks) > 1 else steady or marks
    torch.save(trainer.model.state_dict(), task.model)
    found = {"batches": pace.batches, "seconds": pace.elapsed, "curve": curve}
    found["epoch_batches"] = len(loader)
    return found | {"steady": steady_state(steady, len(loader), disk)}


def validation(task: Task, data: Any) -> list[Any]:
    """Batches of validation nodes, sampled once, that are kept to look at again and again."""
    nodes = data[MASKS["valid"]].nonzero().view(-1)
    nodes = nodes[torch.randperm(len(nodes))[: task.options.get("eval_nodes", 2048)]]
    return list(
        gz.loader.NeighborLoader(
            data, task.fanout, input_nodes=nodes, batch_size=task.batch_size, edge_ids=False
        )
    )


def steady_state(
    marks: list[tuple[LoaderStats, float]], epoch_batches: int, disk: Any
) -> dict[str, Any] | None:
    """What the batches between two marks took; None if there are not two.

    Args:
        marks: Counts of an epoch at two moments, and the seconds that were not training by then.
        epoch_batches: Batches of an epoch.
        disk: What a probe of it found.
    """
    (first, before), (last, after) = marks[0], marks[-1]
    if last.batches == first.batches:
        return None
    names = [each.name for each in dataclasses.fields(LoaderStats)]
    spent = {name: getattr(last, name) - getattr(first, name) for name in names}
    counts = LoaderStats(**spent | {"num_workers": last.num_workers})
    counts.elapsed -= after - before
    reads = counts.reads + counts.topology_reads
    num_bytes = counts.read_bytes + counts.topology_bytes
    ideal = max(reads / disk.random_iops, num_bytes / disk.bytes_per_second)
    reading = counts.read + counts.topology_read
    per_batch = counts.elapsed / counts.batches
    return {
        "counts": counts.to_dict(),
        "seconds_per_batch": per_batch,
        "epoch_seconds": per_batch * epoch_batches,
        "disk": {"iops": disk.random_iops, "bytes_per_second": disk.bytes_per_second},
        "reading_seconds": reading,
        "ideal_seconds": ideal,
        "device_use": ideal / reading if reading else None,
        "device_busy": ideal / counts.elapsed if counts.elapsed else None,
        "stall_share": counts.stall / counts.elapsed if counts.elapsed else None,
    }


def infer(task: Task, tell: Tell) -> dict[str, Any]:
    """Classes of all nodes, layer by layer over the whole graph; how many are right is told."""
    torch.manual_seed(task.seed)
    with gz.open(task.store, mode="r+", memory=task.budget) as store:
        # Not by data.x, which would decode all rows.
        width = store.feature_store.get_tensor_size(group_name=None, attr_name="x")[1]
        model = GraphSAGE(width, task.hidden, len(task.fanout), NUM_CLASSES)
        trained = task.model.exists()
        if trained:
            load_model(model, torch.load(task.model, weights_only=True))
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
        return found | {"num_nodes": store.num_nodes(), "layers": layers}


def classes(rows: Tensor) -> Tensor:
    """The class of each row of logits, in as few bytes as hold it."""
    return rows.argmax(-1).to(torch.uint8)


def load_model(model: torch.nn.Module, state: dict[str, Tensor]) -> None:
    """Weights of training, of the same width.

    Raises:
        ValueError: They are of another width.
    """
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        raise ValueError(f"the trained model is another one, --hidden differs: {error}") from error
