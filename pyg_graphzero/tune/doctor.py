"""``graphzero doctor``: what training on a store will be like on this machine, and what would help.

Measures the disk, samples some batches, and rehearses their reads under the budget that is asked
about. Nothing is written, and no features are read.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pyg_graphzero import _core
from pyg_graphzero._core import Encoding
from pyg_graphzero.loader.neighbor import NeighborLoader
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.making import (
    copies_of,
    copy_key,
    find_copy,
    is_worth_copying,
    seconds_of_epoch,
)
from pyg_graphzero.memory.needs import Kind, Need, Needs, files_of, needs_of
from pyg_graphzero.memory.plan import MemoryPlan, divide
from pyg_graphzero.memory.tables import Tables
from pyg_graphzero.memory.usage import Usage
from pyg_graphzero.memory.used_copy import Copied, UsedCopy
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import Opening
from pyg_graphzero.tune.diagnosis import Advice, Diagnosis
from pyg_graphzero.tune.forecast import Forecast, forecast
from pyg_graphzero.tune.rehearsal import Ranks, Sampled, ranks_of, rehearse
from pyg_graphzero.tune.seeds import choose_seeds, training_set
from pyg_graphzero.util.disk import DiskSpeed, probe
from pyg_graphzero.util.machine import machine
from pyg_graphzero.util.sizes import format_bytes
from pyg_graphzero.util.system import free_memory, private_rss

# A change is worth a line if it saves a twentieth of the disk's time.
_WORTH = 1.05
# Share of the free memory that sampled batches may take.
_KEPT_SHARE = 0.2
# Budgets to compare with, as multiples.
_MORE = (1.5, 2)
# Windows that are rehearsed, where batches are many enough.
_WINDOWS = 2
_FLOATS = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def doctor(
    store: Store | str | os.PathLike[str],
    *,
    num_neighbors: Any = (15, 10, 5),
    batch_size: int = 1024,
    seeds: Any = None,
    input_type: str | None = None,
    memory: int | str | None = None,
    edge_ids: bool = True,
    seconds: float = 10.0,
    refresh: bool = False,
    **options: Any,
) -> Diagnosis:
    """Predicts what an epoch of training reads, what binds it, and what would help.

    Args:
        store: A store or its path.
        num_neighbors: Fan-out, as loaders take it.
        batch_size: Seeds per batch.
        seeds: The name of an index set or mask of the store, a file of node ids, or what loaders
            take as ``input_nodes``, as :func:`pyg_graphzero.tune.optimize` takes them; None takes
            ``train_idx`` or ``train_mask`` if there is one, else all nodes.
        input_type: Type of the seeds, in a heterogeneous store where several have such a set.
        memory: The budget, as :func:`pyg_graphzero.open` takes it.
        edge_ids: Batches have ``e_id``, as by default.
        seconds: How long to sample, about; more is more exact.
        refresh: Measure the disk again, even if its speed is remembered.
        **options: Further arguments of ``NeighborLoader`` that say how it samples.

    Raises:
        FileNotFoundError: There is no such store.
        MemoryBudgetError: The budget is too small for one batch.
        ValueError: Seeds that are not there, or a fan-out that does not fit.
        IndexError: A seed is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> found = gz.doctor(example_store, num_neighbors=[2], seconds=0.1)
        >>> found.fits, found.epoch.reads, found.advice
        (True, 0, [])
    """
    path = Path(os.path.abspath(store))
    how = store.how if isinstance(store, Store) else Opening()
    if memory is not None:
        how = replace(how, memory=memory, processes=1)
    disk = probe(path, seconds=2.0, refresh=refresh)
    with Store(path, how=how) as own:
        contents, data = own.contents, own.data()
        if seeds is None:
            seeds = training_set(contents, input_type)
        if seeds is None and input_type is None and own.is_hetero:
            raise ValueError(
                "seeds: found neither train_idx nor train_mask, expected the name of a set, or an "
                f"input_type of {own.node_types}"
            )
        chosen = choose_seeds(data, seeds, input_type)
        nodes = chosen.nodes if chosen.node_type is None else (chosen.node_type, chosen.nodes)
        loader = NeighborLoader(
            data, num_neighbors, nodes, batch_size=batch_size, edge_ids=edge_ids, **options
        )
        return _Examination(contents, loader, disk, seconds).diagnose(chosen.name, num_neighbors)


class _Examination:
    """Samples a loader's batches once, and predicts epochs with these and with other settings."""

    def __init__(
        self, contents: StoreContents, loader: Any, disk: DiskSpeed, seconds: float
    ) -> None:
        self.contents = contents
        self.loader = loader
        self.seconds = seconds
        self.disk = disk
        self.free = free_memory()
        self.baseline = private_rss()
        files = files_of(loader)
        self.sampled = Sampled.of(
            loader,
            _WINDOWS * costs.MAX_WINDOW,
            seconds,
            max(64 << 20, int(_KEPT_SHARE * self.free)),
            keeps_edges=any(file.kind is Kind.EDGES for file in files),
        )
        self.needs = replace(needs_of(loader), batch=self.sampled.size)
        self.ranks: Ranks | None = None  # where rows lie that are copied in the order of their use
        self.is_to_copy = False
        if not self._plan(contents.memory, self.needs).is_whole:
            self.needs = Tables().sizes(contents, self.needs)
            key = copy_key(contents, self.needs)
            copy = None if key is None else find_copy(contents, key)
            if copy is None and key is not None:
                copy = self._copy_to_make()
                self.is_to_copy = copy is not None
            if copy is not None:
                copy = copy.suited(contents.memory, self.baseline, self.needs)
                self.needs = copy.applied_to(self.needs)
                self.ranks = ranks_of(copy, self.sampled)

    def _copy_to_make(self) -> UsedCopy | None:
        """The copy that a loader would have made, without its rows; None if it would not."""
        contents, graph = self.contents, self.loader.graph_sampler.graph
        plan = self._plan(contents.memory, self.needs)
        seconds = seconds_of_epoch(self.needs, graph, plan, self.disk)
        if not is_worth_copying(self.needs, seconds, self.disk):
            return None
        usage = Usage.sampled(self.loader, None, lists=False, seconds=self.seconds / 4)
        copied = {}
        for part in copies_of(contents, graph, self.needs, usage):
            order = _core.RowOrder(engine_array(part.order), graph.node_types[part.name])
            for file in part.sources:
                copied[file] = Copied(contents.column(file), order, part.uses)
        return UsedCopy(contents.path, copied)

    def _plan(self, memory: int, needs: Needs) -> MemoryPlan:
        return divide(memory, self.baseline, needs)

    def _epoch(self, plan: MemoryPlan, needs: Needs) -> Forecast:
        windows = rehearse(self.sampled, plan, needs.files, self.disk, self.ranks)
        return forecast(self.sampled, windows, self.disk)

    def diagnose(self, seeds: str, num_neighbors: Any) -> Diagnosis:
        """Everything, in words and numbers."""
        memory = self.contents.memory
        memory_plan = self._plan(memory, self.needs)
        epoch = self._epoch(memory_plan, self.needs)
        found = Diagnosis(
            path=self.contents.path,
            machine=machine(),
            free_memory=self.free,
            disk=self.disk,
            files=list(self.needs.files),
            seeds=seeds,
            num_seeds=len(self.loader.dataset),
            num_neighbors=list(num_neighbors)
            if isinstance(num_neighbors, tuple)
            else num_neighbors,
            batch_size=self.loader.batch_size,
            batch_bytes=self.needs.batch.whole,
            sampled_batches=len(self.sampled.batches),
            memory_plan=memory_plan,
            epoch=epoch,
        )
        found.notes = self._notes(found)
        if not found.fits and epoch.disk_seconds > 0:
            found.advice = self._advise(memory, epoch.disk_seconds)
        return found

    def _notes(self, found: Diagnosis) -> list[str]:
        notes, memory_plan, sampled = [], found.memory_plan, self.sampled
        window = memory_plan.window_of(sampled.epoch)
        for file in self.needs.of(Kind.NEIGHBOURS):
            if file.name in memory_plan.hot:
                notes.append(
                    f"{file.name} does not fit: {format_bytes(memory_plan.hot[file.name])} of "
                    f"{format_bytes(file.num_bytes)} may stay in memory, and what sampling reads "
                    "of it is not in these figures"
                )
        if not memory_plan.is_whole and len(sampled.batches) < min(window, sampled.epoch):
            notes.append(
                f"{len(sampled.batches)} batches were sampled in time, fewer than the {window} of "
                "a window: reads will be fewer than said (seconds= or --seconds gives it longer)"
            )
        if self.is_to_copy:
            notes.append(
                "the epoch reads by a copy of the rows that are used, in the order of their use: "
                "training makes it before its first epoch, or behind that where neighbours are "
                "read, if the disk has room (gz.open(row_cache=False) forbids it)"
            )
        if not memory_plan.is_whole and found.disk.doubt:
            notes.append(f"the disk's speed is in doubt: {found.disk.doubt}")
        return notes

    def _advise(self, memory: int, now: float) -> list[Advice]:
        """The epoch after each change that could help; ``now`` is its disk time without."""
        advice: list[Advice] = []

        def try_out(
            change: str, memory: int = memory, files: Sequence[Need] = self.needs.files
        ) -> None:
            needs = replace(self.needs, files=tuple(files))
            after = self._epoch(self._plan(memory, needs), needs)
            if now >= _WORTH * after.disk_seconds:
                advice.append(Advice(change, after, after.disk_seconds / now))

        files = self.needs.files
        for encoding in (Encoding.float16, Encoding.int8):
            smaller = tuple(_encoded(self.contents, file, encoding.item_bytes) for file in files)
            name = encoding.name
            if smaller != files:
                try_out(f"{name} rows (convert --features {name})", files=smaller)
        without = tuple(file for file in files if not _is_edge_id(self.contents, file))
        if without != files:
            try_out("edge_ids=False in the loader, if e_id is not used", files=without)
        for factor in _MORE:
            try_out(
                f"memory={factor * memory / 1e9:.3g}GB (x{factor})", memory=int(factor * memory)
            )
        return sorted(advice, key=lambda each: each.disk_time)


def _encoded(contents: StoreContents, file: Need, item: int) -> Need:
    """A file of node attributes, were its numbers stored in ``item`` bytes each."""
    if file.kind is not Kind.ROWS:
        return file
    column = contents.column(file.name)
    now = _FLOATS.get(column.dtype)
    if now is None or now <= item or len(column.shape) < 2:
        return file
    return replace(file, row_bytes=file.row_bytes // now * item)


def _is_edge_id(contents: StoreContents, file: Need) -> bool:
    return any(file.name == t.edge_id for t in contents.schema.edge_types)
