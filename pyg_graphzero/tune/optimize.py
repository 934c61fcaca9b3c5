"""``gz.optimize``: rows that training samples often come first, next to those sampled with them.

Which these are is found out by sampling from the seeds at hand (``ranking``); then the store is
written again (``rewrite``). docs/out-of-core.md says what is gained by it, and when.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.loader.inputs import check_input_nodes
from pyg_graphzero.loader.neighbor import NeighborLoader
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.memory.ranking import count_accesses, rank_bytes, rank_rows
from pyg_graphzero.pyg.data import (
    DiskData,
    DiskHeteroData,
    contents_of,
    open_data,
)
from pyg_graphzero.pyg.lazy import raw_items
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.rewrite import Order, StoreRewriter
from pyg_graphzero.util.locks import StoreLock
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.system import free_memory, rss
from pyg_graphzero.util.workspace import Workspace

# Rows that are looked at by one call where all are.
_PIECE = 1 << 22


@dataclass
class OptimizeSummary:
    """What ``optimize`` found and did.

    Attributes:
        path: The store that was written.
        seeds: What was sampled from, and how many these are.
        num_neighbors: The fan-out.
        batch_size: Seeds per batch.
        epochs: How often each seed was sampled from for counting.
        num_batches: Batches that were counted.
        nodes_per_batch: Their mean number of nodes, by node type.
        used: Nodes that any of them had, by node type.
        hottest: By node type, the share of what batches use that the first 10%, 20% and 30% of the
            rows are.
        num_bytes: Size of the new store.
        seconds: How long it took.
    """

    path: Path
    seeds: str
    num_neighbors: Any
    batch_size: int
    epochs: float
    num_batches: int
    nodes_per_batch: dict[str, float]
    used: dict[str, int]
    hottest: dict[str, list[float]]
    num_bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a log."""
        return asdict(self) | {"path": str(self.path)}

    def __str__(self) -> str:
        lines = [
            f"{self.path}: ordered for {self.seeds}, {self.num_batches:,} batches counted, "
            f"{self.seconds:.1f} s"
        ]
        for name, mean in self.nodes_per_batch.items():
            shares = ", ".join(f"{100 * share:.0f}%" for share in self.hottest[name])
            lines.append(
                f"  {name or 'nodes'}: {mean:,.0f} a batch, {self.used[name]:,} used; "
                f"the first 10, 20, 30% of the rows are {shares} of what batches use"
            )
        return "\n".join(lines)


def optimize(
    path: str | os.PathLike[str],
    out: str | os.PathLike[str] | None = None,
    *,
    seeds: Any,
    num_neighbors: Any,
    input_type: str | None = None,
    batch_size: int = 1024,
    epochs: float = 2.0,
    memory: int | str | None = None,
    tmp: str | os.PathLike[str] | None = None,
    force: bool = False,
    progress: bool | None = None,
    seed: int = 0,
) -> OptimizeSummary:
    """Writes a store again so that what training samples often lies first, and together.

    Node ids, edge ids and batches stay what they are, bit by bit: only the order on disk changes.
    With other seeds or another fan-out than these the store is as correct, and slower.

    Args:
        path: The store, optimized before or not.
        out: The new store; None replaces ``path`` in one step, so that a kill at any instant leaves
            the old one or the new one.
        seeds: The seeds of training: names of index sets or masks (``"train_idx"``, several with
            commas between them), a file of node ids (``.npy``, ``.pt``, or text with one in each
            line), or what loaders take as ``input_nodes``.
        num_neighbors: Fan-out of training, as loaders take it.
        input_type: Of the seeds, in a heterogeneous store where several types have such a set.
        batch_size: Of training.
        epochs: How often each seed is sampled from for counting.
        memory: What the process may keep in memory, in bytes or such as ``"4GB"``; half of what is
            free by default.
        tmp: Directory for temporary files; beside the new store by default.
        force: Replace ``out`` if it is a store.
        progress: Progress bars; None shows them in a terminal.
        seed: Of the sampling that is counted.

    Raises:
        FileNotFoundError: There is no such store.
        ValueError: Seeds that are not there, a fan-out that does not fit, too little memory.
        IndexError: A seed is not a node.
        FileExistsError: ``out`` exists and ``force`` is not given.
        StoreInUseError: What is to be replaced is open for writing somewhere.
        OSError: Reading or writing failed; nothing is left behind.

    Example:
        >>> import pyg_graphzero as gz
        >>> new = getfixture("tmp_path") / "ordered"
        >>> summary = gz.optimize(example_store, new, seeds=[0, 1], num_neighbors=[2])
        >>> gz.open(new).data().x.tolist() == gz.open(example_store).data().x.tolist()
        True
    """
    begin = time.perf_counter()
    old = StoreContents(Path(os.path.realpath(path)))
    target = old.path if out is None else Path(os.path.realpath(out))
    in_place = target.exists() and target.samefile(old.path)
    if target.exists() and not in_place and not force:
        raise FileExistsError(errno.EEXIST, "File exists (force replaces it)", str(target))
    bars = Progress(progress)
    with ExitStack() as stack:
        lock: StoreLock | None = None
        if in_place:  # columns that somebody adds meanwhile would be lost
            lock = stack.enter_context(StoreLock(old.path))
            old = StoreContents(old.path)  # with what somebody added before
        space = stack.enter_context(Workspace(target, memory, tmp))
        space.left(_table_bytes(old))
        chosen = choose_seeds(open_data(old), seeds, input_type)
        record = {
            "seeds": chosen.name,
            "num_seeds": chosen.nodes.numel(),
            "num_neighbors": _plain(num_neighbors),
            "batch_size": batch_size,
            "epochs": epochs,
            "created": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        }
        sampling = _Sampling(old, chosen, num_neighbors, batch_size, space, bars)
        summary, orders = sampling.rank(epochs, seed, target)
        writer = StoreRewriter(
            target, old, orders, space, bars, force=force or in_place, replaced=lock
        )
        with writer:
            writer.write()
            writer.set_optimized(record)
            del sampling, orders
            writer.finish()
    summary.num_bytes = sum(f.stat().st_size for f in target.rglob("*") if f.is_file())
    summary.seconds = time.perf_counter() - begin
    return summary


def _plain(num_neighbors: Any) -> Any:
    """A fan-out as JSON has it."""
    if isinstance(num_neighbors, Mapping):
        return {
            ",".join(key) if isinstance(key, tuple) else str(key): list(value)
            for key, value in num_neighbors.items()
        }
    return list(num_neighbors)


def _table_bytes(contents: StoreContents) -> int:
    """Memory for what has an entry for every node: while rows are ranked, or by their order."""
    return sum(rank_bytes(t.num_nodes) + 4 * t.num_nodes for t in contents.schema.node_types)


@dataclass
class ChosenSeeds:
    """Seeds, and what they are called.

    Attributes:
        name: Names, file, or how many.
        node_type: Their type.
        nodes: ``int64 [num_seeds]``.
    """

    name: str
    node_type: str | None
    nodes: Tensor


def choose_seeds(
    data: DiskData | DiskHeteroData, seeds: Any, input_type: str | None = None
) -> ChosenSeeds:
    """The seeds that are meant; see ``optimize``.

    Raises:
        ValueError: Names that no node type has, or several; no seeds.
        IndexError: A seed is not a node.
    """
    if isinstance(seeds, str | os.PathLike):
        name, node_type, nodes = _named(data, os.fspath(seeds), input_type)
    else:
        if isinstance(data, DiskHeteroData) and input_type is not None:
            seeds = (input_type, seeds)
        found = check_input_nodes(data, seeds)
        node_type, nodes = found if isinstance(data, DiskHeteroData) else (None, found)
        name = ""
    if nodes is None:
        nodes = torch.arange(int((data if node_type is None else data[node_type]).num_nodes))
    if nodes.dtype == torch.bool:
        nodes = nodes.nonzero().view(-1)
    if nodes.numel() == 0:
        raise ValueError(f"seeds: found none in {name or 'what was given'}, expected at least one")
    return ChosenSeeds(name or f"{nodes.numel():,} nodes", node_type, nodes)


def _named(
    data: DiskData | DiskHeteroData, names: str, input_type: str | None
) -> tuple[str, str | None, Tensor]:
    types = list(data._node_store_dict) if isinstance(data, DiskHeteroData) else [None]
    if input_type is not None and input_type not in types:
        raise ValueError(f"input_type: found {input_type!r}, expected one of {types}")
    wanted = [name.strip() for name in names.split(",") if name.strip()]
    having = {t: _sets(data, t) for t in types if input_type in (None, t)}
    fitting = [t for t, sets in having.items() if wanted and all(name in sets for name in wanted)]
    if len(fitting) > 1:
        raise ValueError(f"seeds={names!r}: found in {fitting}, expected an input_type")
    if fitting:
        found = [_ids(having[fitting[0]][name]) for name in wanted]
        return names, fitting[0], torch.cat(found).unique() if len(found) > 1 else found[0]
    file = Path(names)
    if not file.is_file():
        there = sorted({name for sets in having.values() for name in sets})
        raise ValueError(
            f"seeds={names!r}: found no such index set, mask or file; there are: "
            f"{', '.join(there) or 'none'}"
        )
    if len(having) > 1:
        raise ValueError(f"seeds={names!r}: found a file, expected an input_type with it")
    (node_type,) = having
    ids = _read_ids(file)
    nodes = check_input_nodes(data, ids if node_type is None else (node_type, ids))
    return str(file), node_type, nodes if node_type is None else nodes[1]


def _sets(data: DiskData | DiskHeteroData, node_type: str | None) -> dict[str, Any]:
    """Index sets and masks of a node type, by name; nothing is built."""
    contents = contents_of(data)
    assert contents is not None
    record = contents.node_type(node_type)
    items = dict(raw_items(data._store if node_type is None else data[node_type]))
    masks = [n for n in record.attrs if items[n].dtype == torch.bool and len(items[n].shape) == 1]
    return {name: items[name] for name in (*record.index_sets, *masks)}


def _ids(value: Any) -> Tensor:
    value = value if isinstance(value, Tensor) else value.copy()
    return value.nonzero().view(-1) if value.dtype == torch.bool else value


def _read_ids(file: Path) -> Tensor:
    try:
        if file.suffix == ".npy":
            return torch.from_numpy(np.load(file))
        if file.suffix in (".pt", ".pth"):
            return torch.as_tensor(torch.load(file, weights_only=True))
        return torch.from_numpy(np.loadtxt(file, dtype=np.int64, ndmin=1))
    except (ValueError, TypeError, OSError) as error:
        raise ValueError(
            f"{file}: found no node ids ({error}), expected .npy, .pt, or text with one in each "
            "line"
        ) from None


class _Sampling:
    """Samples from the seeds, and ranks the rows by what it finds."""

    def __init__(
        self,
        old: StoreContents,
        seeds: ChosenSeeds,
        num_neighbors: Any,
        batch_size: int,
        space: Workspace,
        bars: Progress,
    ) -> None:
        self._old = old
        self._seeds = seeds
        self._num_neighbors = num_neighbors
        self._batch_size = batch_size
        self._space = space
        self._bars = bars

    def rank(
        self, epochs: float, seed: int, target: Path
    ) -> tuple[OptimizeSummary, dict[str | None, Order]]:
        """What was found, and the order of every node type whose rows should move."""
        seeds = self._seeds
        loader = NeighborLoader(
            open_data(self._old),
            self._num_neighbors,
            seeds.nodes if seeds.node_type is None else (seeds.node_type, seeds.nodes),
            batch_size=self._batch_size,
            edge_ids=False,
        )
        self._warm()
        with self._bars.step("sampling", None, "batches") as bar:

            def each() -> None:
                bar.update()
                self._forget()

            found = count_accesses(loader, epochs=epochs, seed=seed, each=each)
            ranked = rank_rows(loader, found, epochs=epochs, seed=seed, each=each)
        self._forget(always=True)
        summary = OptimizeSummary(
            target,
            seeds.name,
            _plain(self._num_neighbors),
            self._batch_size,
            epochs,
            found.num_batches,
            {name or "": mean for name, mean in found.nodes_per_batch.items()},
            {},
            {},
        )
        orders: dict[str | None, Order] = {}
        for name in list(ranked):
            counts, order = found.counts.pop(name), ranked.pop(name).whole()
            summary.used[name or ""] = int((counts > 0).sum())
            summary.hottest[name or ""] = _shares(counts, order)
            # A type that nothing was sampled of stays as it is.
            if not _is_identity(order):
                orders[name] = Order.of(order)
        return summary, orders

    def _warm(self) -> None:
        """Has topologies in the page cache, if they fit: sampling would ask for page after page."""
        files = [edge_type.topology for edge_type in self._old.schema.edge_types]
        if 2 * sum(self._old.schema.files[file].bytes for file in files) <= free_memory():
            prefetch_all([self._old.path / file for file in files]).join()

    def _forget(self, always: bool = False) -> None:
        """Lets go of the topology's pages beyond the budget; the kernel may keep them."""
        if always or rss() > self._space.memory:
            for edge_type in self._old.schema.edge_types:
                self._old.topology(edge_type.name).forget_pages()


def _shares(counts: Tensor, order: Tensor) -> list[float]:
    """What part of all uses the first 10%, 20% and 30% of the rows have."""
    total = int(counts.sum())
    firsts = [order[: order.numel() * percent // 100] for percent in (10, 20, 30)]
    return [
        sum(int(counts[part.to(torch.int64)].sum()) for part in first.split(_PIECE)) / max(total, 1)
        for first in firsts
    ]


def _is_identity(order: Tensor) -> bool:
    return all(
        bool((part == torch.arange(i * _PIECE, i * _PIECE + len(part), dtype=part.dtype)).all())
        for i, part in enumerate(order.split(_PIECE))
    )
