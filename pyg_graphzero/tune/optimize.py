"""``gz.optimize``: rows and neighbours that training uses are copied in the order of their use.

A loader makes this copy by itself before its first epoch (`memory.making`), beside the store;
loaders that sample in the same way find it. docs/out-of-core.md says what is gained, and when.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pyg_graphzero.loader.nodes import NeighborLoader
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.budget import Budget
from pyg_graphzero.memory.keeper import hold_neighbours, keeper_of, read_neighbours
from pyg_graphzero.memory.making import (
    candidates,
    copies_of,
    copy_key,
    folder_for,
    make_copy,
    making_bytes,
    sampling_bytes,
)
from pyg_graphzero.memory.needs import Kind, Needs
from pyg_graphzero.memory.tables import Tables
from pyg_graphzero.memory.usage import Usage, count_accesses, sampled_uses
from pyg_graphzero.pyg.data import open_data
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.copies import CopyFolder, room_on_disk, usable_folders
from pyg_graphzero.store.opened import Opening
from pyg_graphzero.tune.seeds import choose_seeds
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.sizes import format_bytes
from pyg_graphzero.util.system import private_rss

# Rows that wait for their order, in memory: more is hardly faster.
_MOST_SLAB = 1 << 30


@dataclass
class OptimizeSummary(Shown):
    """The result of ``optimize``.

    Attributes:
        path: Directory of the copy.
        seeds: The seeds by name, or how many they are.
        num_batches: Batches that were counted.
        used: Nodes whose rows are copied, by node type.
        num_bytes: Size of the copy.
        seconds: How long it took.
    """

    path: Path
    seeds: str
    num_batches: int
    used: dict[str, int]
    num_bytes: int = 0
    seconds: float = 0.0

    def to_dict(self) -> dict[str, Any]:
        """All of it, for a log."""
        return asdict(self) | {"path": str(self.path)}

    def __str__(self) -> str:
        head = (
            f"{self.path}: {format_bytes(self.num_bytes)} in the order of their use by "
            f"{self.seeds}, {self.num_batches:,} batches counted, {self.seconds:.1f} s"
        )
        return "\n".join([head, *(f"  {n or 'nodes'}: {u:,} used" for n, u in self.used.items())])


def optimize(
    path: str | os.PathLike[str],
    *,
    seeds: Any,
    num_neighbors: Any,
    input_type: str | None = None,
    batch_size: int = 1024,
    memory: int | str | None = None,
    progress: bool | None = None,
    **options: Any,
) -> OptimizeSummary:
    """Copies rows and neighbours that training uses, in the order of their use, for loaders.

    Training makes this copy by itself before its first epoch; ``optimize`` makes it now.
    The store stays as it is. Loaders with these seeds, fan-out, batch size and options find the
    copy in the store's directory (or the user's cache, where that cannot be written to); others
    read the store. A kill at any instant leaves the copy that was there, or the new one, or none.

    Args:
        path: The store.
        seeds: The seeds of training: names of index sets or masks (``"train_idx"``, several with
            commas between them), a file of node ids (``.npy``, ``.pt``, or text with one in each
            line), or what loaders take as ``input_nodes``.
        num_neighbors: Fan-out of training, as loaders take it.
        input_type: Type of the seeds, in a heterogeneous store where several have such a set.
        batch_size: Seeds per batch of training.
        memory: Memory of the process, as :func:`pyg_graphzero.open` takes it. Two epochs are
            sampled in it if all neighbours fit, else neighbours are read, for one epoch.
        progress: Progress bars; None shows them in a terminal.
        **options: Further arguments of ``NeighborLoader`` that say how training samples.

    Raises:
        FileNotFoundError: There is no such store.
        ValueError: Seeds that are not there, a fan-out that does not fit, or no rows to copy.
        IndexError: A seed is not a node.
        TypeError: An option that ``NeighborLoader`` does not have.
        MemoryBudgetError: ``memory`` is too small for tables with an entry for every node.
        OSError: The disk is full, or nothing can be written beside the store and in the cache.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.data import Data
        >>> store = getfixture("tmp_path") / "wide"
        >>> graph = Data(x=torch.ones(3, 64), edge_index=torch.tensor([[0, 1], [1, 2]]))
        >>> _ = gz.convert(graph, store)
        >>> summary = gz.optimize(store, seeds=[2], num_neighbors=[1])
        >>> summary.used, summary.num_bytes
        ({'': 2}, 512)
    """
    begin = time.perf_counter()
    contents = StoreContents(Path(os.path.realpath(check_path(path, "path"))), Opening(memory))
    data = open_data(contents)
    chosen = choose_seeds(data, seeds, input_type)
    loader = NeighborLoader(
        data,
        num_neighbors,
        chosen.nodes if chosen.node_type is None else (chosen.node_type, chosen.nodes),
        batch_size=batch_size,
        edge_ids=False,
        **options,
    )
    keeper = keeper_of(contents)
    assert keeper is not None
    graph, needs = loader.graph_sampler.graph, keeper.needs_of(loader)
    if not candidates(needs):
        raise ValueError(
            f"{contents.path}: found no attribute of nodes with rows of more than "
            f"{costs.SMALL_ROW} bytes, expected one: smaller rows are not copied"
        )
    key, bars = copy_key(contents, needs), Progress(progress)
    assert key is not None  # there are seeds, and rows
    with bars.step("sampling", None, "batches") as bar:
        usage = _usage(loader, needs, keeper.tables, bar.update)
    parts = copies_of(contents, graph, needs, usage)
    folder = _folder(contents.path, key)
    summary = OptimizeSummary(
        folder.path / key,
        chosen.name,
        usage.num_batches,
        {part.name or "": part.order.numel() for part in parts if part.lists is None},
        sum(part.num_bytes for part in parts),
    )
    del usage, data, loader, keeper
    contents.keeper = None  # and with it packed neighbours
    if all(part.lists for part in parts):
        raise ValueError(
            f"{contents.path}: found no node with such rows in any batch, expected some"
        )
    found, needed = room_on_disk(folder.path, None), 2 * summary.num_bytes
    if found < needed:
        what = f"No space for a copy: found {found} bytes to spare, expected {needed}"
        raise OSError(errno.ENOSPC, what, str(summary.path))
    with bars.step("copying", summary.num_bytes) as bar:
        make_copy(folder, key, parts, contents.memory - private_rss(), bar.update, _MOST_SLAB)
    summary.seconds = time.perf_counter() - begin
    return summary


def _usage(
    loader: NeighborLoader[Any], needs: Needs, tables: Tables, each: Callable[[], object]
) -> Usage:
    """How batches use rows: by two epochs that are sampled in memory, or one that is read.

    Raises:
        MemoryBudgetError: There is no room for tables with an entry for every node, or for all
            neighbours where none may be read.
    """
    sampler, graph = loader.graph_sampler, loader.graph_sampler.graph
    contents = graph.contents
    budget = Budget(contents.memory, private_rss())
    budget.spend(costs.READER)
    budget.check(making_bytes(graph, lists=False), " for tables with an entry for every node")
    making = making_bytes(graph, lists=True)
    lists, whole = budget.left >= making, sampling_bytes(needs) + making
    if not sampler.may_read:
        budget.check(whole, " for tables and all neighbours, which method='labor' looks at")
    if budget.left >= whole:
        reading = hold_neighbours(sampler, needs, tables)
        return sampled_uses(loader, reading, lists=lists, each=each)
    bounds = sum(file.least_bytes for file in needs.of(Kind.BOUNDS))
    budget.spend(bounds + Usage.num_bytes(graph) + 2 * needs.batch.sampling)
    batch = needs.batch.reading
    together = budget.take(costs.TOGETHER_SHARE, batch, 1, costs.MAX_TOGETHER)
    window = together, together * batch
    reading = read_neighbours(contents, sampler, needs, tables, window, max(0, budget.left))
    return count_accesses(loader, reading=reading, each=each, lists=lists)


def _folder(store: Path, key: str) -> CopyFolder:
    """The folder for the copy; one that is there is removed."""
    for folder in usable_folders(store):
        if folder.find(key) is not None:
            with suppress(FileNotFoundError):  # a loader has removed it
                folder.remove(key)
    found = folder_for(store, key)
    if found is None:
        what = "Neither the store nor a cache can be written"
        raise PermissionError(errno.EACCES, what, str(store))
    return found
