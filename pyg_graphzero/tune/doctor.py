"""``graphzero doctor``: loads batches for some seconds, and says what binds and what would help.

The loader is one that trains, under the budget that is asked about; no model does. Nothing is
written: a copy of used rows is read where there is one, and none is made.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from pyg_graphzero._core import Encoding
from pyg_graphzero.loader.nodes import NeighborLoader
from pyg_graphzero.loader.stats import LoaderStats
from pyg_graphzero.memory.needs import Kind, Need
from pyg_graphzero.memory.plan import MemoryPlan, divide
from pyg_graphzero.memory.residence import Residence
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import ONLY_FOUND, Opening
from pyg_graphzero.tune.diagnosis import Advice, Diagnosis
from pyg_graphzero.tune.seeds import choose_seeds, training_set
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.disk import probe
from pyg_graphzero.util.machine import machine
from pyg_graphzero.util.system import free_memory

# A change is worth a line if this share more of what is read from stays in memory.
_WORTH = 0.02
# Budgets to compare with, as multiples.
_MORE = (1.5, 2)
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
    """Loads batches for some seconds, and says what binds an epoch and what would help.

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
        seconds: How long to load, about. Batches of the first half fill memory, and are not
            counted.
        refresh: Measure the disk again, even if its speed is remembered.
        **options: Further arguments of ``NeighborLoader``. ``num_workers`` is the number of
            torch's threads by default.

    Raises:
        FileNotFoundError: There is no such store.
        MemoryBudgetError: The budget is too small for one batch.
        ValueError: Seeds that are not there, a fan-out that does not fit, or no positive number of
            seconds.
        IndexError: A seed is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> found = gz.doctor(example_store, num_neighbors=[2], seconds=0.1)
        >>> found.fits, found.loaded.reads, found.advice
        (True, 0, [])
    """
    if not seconds > 0:
        raise ValueError(f"seconds: found {seconds!r}, expected a positive number")
    path = Path(os.path.abspath(check_path(store, "store")))
    how = store.how if isinstance(store, Store) else Opening()
    if memory is not None:
        how = replace(how, memory=memory, processes=1)
    if how.row_cache is not False:
        how = replace(how, row_cache=ONLY_FOUND)
    options = {"num_workers": torch.get_num_threads(), "shuffle": True} | options
    disk = probe(path, seconds=2.0, refresh=refresh)
    with Store(path, how=how) as own:
        contents, data = own.contents, own.data()
        if seeds is None:
            seeds = training_set(contents, input_type)
        chosen, free = choose_seeds(data, seeds, input_type), free_memory()
        nodes = chosen.nodes if chosen.node_type is None else (chosen.node_type, chosen.nodes)
        loader = NeighborLoader(
            data, num_neighbors, nodes, batch_size=batch_size, edge_ids=edge_ids, **options
        )
        loaded, files = _load(loader, seconds), loader.files()
        assert files is not None
        found = Diagnosis(
            path=path,
            machine=machine(),
            free_memory=free,
            disk=disk,
            files=list(files.needs.files),
            seeds=chosen.name,
            num_seeds=len(loader.dataset),
            num_neighbors=list(num_neighbors)
            if isinstance(num_neighbors, tuple)
            else num_neighbors,
            batch_size=loader.batch_size,
            num_batches=loader.epoch_length(),
            memory_plan=files.plan,
            loaded=loaded,
        )
        if not found.fits:
            found.notes = _notes(found, files, how)
            found.advice = _advise(contents, files) if found.is_disk_bound else []
        return found


def _load(loader: Any, seconds: float) -> LoaderStats:
    """Stats of one epoch's batches that come in the second half of some seconds.

    There is one at least, unless an epoch has none.
    """
    begun = perf_counter()
    found = none = LoaderStats(loader.num_workers)
    while True:
        before = none
        for _ in loader:
            took = perf_counter() - begun
            if took < seconds / 2:
                before = replace(loader.stats())
            elif took >= seconds:
                break
        stats = loader.stats()
        found = max(found, stats.since(before), key=lambda each: each.batches)
        if stats.batches == 0 or (found.batches > 0 and perf_counter() - begun >= seconds):
            return found


def _notes(found: Diagnosis, files: Residence, how: Opening) -> list[str]:
    notes, window = [], found.memory_plan.window_of(found.num_batches)
    if found.loaded.batches < min(window, found.num_batches):
        notes.append(
            f"{found.loaded.batches} batches were loaded in time, fewer than the {window} that "
            "rows are read for at once (seconds= or --seconds gives it longer)"
        )
    if files.copy is None and how.row_cache is not False:
        notes.append(
            "there is no copy of the rows that are used, in the order of their use; where reading "
            "takes long, training makes one, and graphzero optimize makes it now"
        )
    if found.disk.doubt:
        notes.append(f"the disk's speed is in doubt: {found.disk.doubt}")
    return notes


def _advise(contents: StoreContents, files: Residence) -> list[Advice]:
    """The share of all files that stays in memory after each change that could help."""
    needs, plan = files.needs, files.plan
    advice: list[Advice] = []

    def try_out(
        change: str, memory: int = plan.memory, files: Sequence[Need] = needs.files
    ) -> None:
        after = divide(memory, plan.baseline, replace(needs, files=tuple(files)))
        kept = _kept(after, files)
        if kept >= _kept(plan, needs.files) + _WORTH:
            advice.append(Advice(change, kept, sum(file.num_bytes for file in files)))

    for encoding in (Encoding.float16, Encoding.int8):
        smaller = tuple(_encoded(contents, file, encoding.item_bytes) for file in needs.files)
        name = encoding.name
        if smaller != needs.files:
            try_out(f"{name} rows (convert --features {name})", files=smaller)
    ids = {edges.edge_id for edges in contents.schema.edge_types}
    without = tuple(file for file in needs.files if file.name not in ids)
    if without != needs.files:
        try_out("edge_ids=False in the loader, if e_id is not used", files=without)
    for factor in _MORE:
        more = int(factor * plan.memory)
        try_out(f"memory={more / 1e9:.3g}GB (x{factor})", memory=more)
    return sorted(advice, key=lambda each: -each.kept)


def _kept(plan: MemoryPlan, files: Sequence[Need]) -> float:
    """Share of the bytes of files that stays in memory by a plan."""
    kept = sum(f.num_bytes if f.name in plan.held else plan.hot[f.name] for f in files)
    return kept / max(1, sum(f.num_bytes for f in files))


def _encoded(contents: StoreContents, file: Need, item: int) -> Need:
    """A file of node attributes, were its numbers stored in ``item`` bytes each."""
    if file.kind is not Kind.ROWS:
        return file
    column = contents.column(file.name)
    now = _FLOATS.get(column.dtype)
    if now is None or now <= item or len(column.shape) < 2:
        return file
    return replace(file, row_bytes=file.row_bytes // now * item)
