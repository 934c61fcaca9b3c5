"""One contestant of ``out_of_core.py``: this script is its process.

A ``Task`` comes in as a line of JSON, events go out likewise: when it is ready, after every batch,
after every epoch.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from events import Tell, answer
from out_of_core_peers import GraphBolt, TunedMemmap
from out_of_core_task import Contestant, StoreFiles, Task
from torch_geometric.data import Data

from pyg_graphzero import open as open_store
from pyg_graphzero.bench.communities import check_rows
from pyg_graphzero.bench.synthetic import NUM_CLASSES
from pyg_graphzero.bench.training import Trainer
from pyg_graphzero.loader import NeighborLoader
from pyg_graphzero.util.machine import version


class Stock(Contestant):
    """PyG's own loader: features over ``np.memmap``, topology in RAM as it needs it."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        import torch_geometric.loader
        from torch_sparse import SparseTensor  # type: ignore[import-not-found]

        files = StoreFiles(Path(task.store))
        indptr, indices = files.contents.csc(None)
        # An adjacency in the order that PyG samples by: from edge_index it would be sorted anew,
        # which takes more memory than the limit allows.
        n = files.num_nodes
        adj_t = SparseTensor(
            rowptr=indptr.clone(),
            col=indices.to(torch.int64),
            sparse_sizes=(n, n),
            is_sorted=True,
            trust_data=True,
        )
        x = torch.from_numpy(files.memmap())
        data = Data(x=x, y=files.y.clone(), adj_t=adj_t, num_nodes=n)
        self.loader = torch_geometric.loader.NeighborLoader(
            data,
            num_neighbors=task.fanout,
            batch_size=task.batch_size,
            input_nodes=self.seeds,
            shuffle=True,
            num_workers=task.workers,
        )

    def epoch(self) -> Iterable[Any]:
        """The loader."""
        return self.loader

    def facts(self) -> dict[str, Any]:
        """What it samples with, which may be installed for it alone."""
        return {"torch_sparse": version("torch_sparse"), "pyg_lib": version("pyg_lib")}


class Ours(Contestant):
    """This package's loader, with the budget that the task names or the one it finds itself."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.store = open_store(task.store, memory=task.options.get("budget"))
        # Nobody here looks at e_id; loaders that can leave it out do.
        can = "edge_ids" in inspect.signature(NeighborLoader).parameters
        self._without: dict[str, Any] = {"edge_ids": False} if can else {}
        self.loader = NeighborLoader(
            self.store.data(),
            num_neighbors=task.fanout,
            batch_size=task.batch_size,
            input_nodes=self.seeds,
            shuffle=True,
            num_workers=task.workers,
            **self._without,
        )

    def epoch(self) -> Iterable[Any]:
        """The loader."""
        return self.loader

    def counts(self) -> dict[str, Any]:
        """All numbers of ``loader.stats()``."""
        stats = self.loader.stats()
        return {} if stats is None else numbers(stats.to_dict())

    def facts(self) -> dict[str, Any]:
        """The budget, and arguments that only some versions have."""
        return {"budget": self.task.options.get("budget"), **self._without}


def numbers(value: dict[str, Any]) -> dict[str, Any]:
    """The numeric fields; of those that are dicts themselves, likewise."""
    found: dict[str, Any] = {}
    for name, each in value.items():
        if isinstance(each, dict):
            found[name] = numbers(each)
        elif isinstance(each, (int, float)) and not isinstance(each, bool):
            found[name] = each
    return found


CONTESTANTS: dict[str, type[Contestant]] = {
    "stock": Stock,
    "ours": Ours,
    "memmap": TunedMemmap,
    "graphbolt": GraphBolt,
}


def serve(task: Task, tell: Tell) -> None:
    """Does the task, and tells about it."""
    torch.manual_seed(task.seed)
    start = time.perf_counter()
    contestant = CONTESTANTS[task.contestant](task)
    trainer = None
    if task.train:
        trainer = Trainer(Data(), None, len(task.fanout), NUM_CLASSES, task.trim)
    took = time.perf_counter() - start
    tell({"event": "ready", "seconds": took, "facts": contestant.facts()})
    for epoch in range(task.epochs):
        begin = last = time.perf_counter()
        batches = 0
        for batch in contestant.epoch():
            if epoch == 0 and batches == 0:
                check_rows(batch.n_id, batch.x)
            if trainer is not None:
                trainer.step(batch)
            now = time.perf_counter()
            batches += 1
            event = {"event": "batch", "epoch": epoch, "seconds": now - last}
            tell(event | {"nodes": batch.num_nodes, "edges": batch.num_edges})
            last = now
            if now - begin > task.seconds:
                break
        found = {"event": "epoch", "epoch": epoch, "seconds": last - begin, "batches": batches}
        tell(found | {"counts": contestant.counts()})
        if last - begin > task.seconds:
            break


if __name__ == "__main__":
    answer(lambda asked, tell: serve(Task(**asked), tell))
