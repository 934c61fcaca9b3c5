"""``layerwise``: a model's results for all nodes, with activations on disk."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from itertools import chain
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import MissingAttributeError
from pyg_graphzero.inference.activations import Activations
from pyg_graphzero.inference.check import check_sweeps
from pyg_graphzero.inference.normalize import inverse_roots
from pyg_graphzero.inference.passes import LayerPass, Own, Pass, RowPass, Task
from pyg_graphzero.inference.reader import Inputs, Reading, Row, reading
from pyg_graphzero.inference.schedule import Sweep, sweeps_of
from pyg_graphzero.inference.summary import InferenceSummary, LayerSummary
from pyg_graphzero.inference.sums import SummedPass, can_sum
from pyg_graphzero.nn.accelerate import check_model
from pyg_graphzero.nn.degrees import Rule
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.pyg.data import edge_storages, node_storages
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.shards.opened import ShardedStore
from pyg_graphzero.store.columns import SomeRows
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import Opening, RowFile
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.store.schema import TypeSchema
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.system import private_rss


def layerwise(
    model: torch.nn.Module,
    store: Store | str | os.PathLike[str],
    *,
    input_attr: str = "x",
    out: str | Mapping[str, str] = "out",
    head: Callable[[Tensor], Tensor] | None = None,
    edge_weight: str | None = None,
    edge_attr: str | None = None,
    encoding: str | None = None,
    max_edges: int | None = None,
    num_workers: int = 2,
    device: torch.device | str | None = None,
    progress: bool | None = None,
) -> InferenceSummary:
    """Computes a model's output for every node of a store, all neighbours included.

    Layer by layer: each goes over all nodes once, in the order in which they lie on disk, and its
    activations are a column of the store, which the next layer reads. Memory is that of the store's
    budget (``gz.open(memory=)``), of the model and its messages, and 4 bytes a node where a layer
    normalises by degrees. Results equal ``model(x, edge_index)`` on the whole graph in eval mode,
    but for the order of sums.

    A run that was killed goes on with the layer that it was at: call it again with the same
    arguments. No reader sees its columns before all of them are done; those in between are removed
    then.

    Args:
        model: Called once, on a small graph, with ``(x, edge_index)``; in a heterogeneous store
            with ``(x_dict, edge_index_dict)``. Its steps are read from that: convolutions of PyG,
            or subclasses of ``MessagePassing``, and functions of each node's row by itself between
            them. It is in eval mode for the run.
        store: The store, or its path. No other process may have it open for writing. Or one of
            ``gz.open_shards``, on every rank: each computes its own nodes, and its part has their
            results.
        input_attr: The node attribute that goes in. Node types that lack it take no part.
        out: Name of the node attribute that comes out, for every node type that the model returns;
            or names by node type, and only what these need is computed.
        head: Applied to the results before they are stored, e.g. ``lambda h: h.argmax(-1)``.
        edge_weight: Edge attribute that the model is given as ``edge_weight`` (heterogeneous:
            ``edge_weight_dict``).
        edge_attr: Edge attribute that it is given as ``edge_attr``.
        encoding: ``"float16"`` or ``"bfloat16"``: activations in between take half the disk.
            float16 ends at 65,504; larger numbers become that.
        max_edges: In-edges and nodes of a batch together; a node that has more is a batch alone.
            None: 262,144, fewer in a small budget. Layers may need memory for a message along each.
            Where a layer needs sums of its neighbours only: nodes of a batch.
        num_workers: Threads of the engine, each of which makes a whole batch ahead; 0: each is made
            when it is asked for, by as many threads as torch has.
        device: Where the model runs, and is already. None: where its parameters are.
        progress: Show a bar for each layer; None: when standard error is a terminal.

    Returns:
        Seconds, bytes and memory by layer.

    Raises:
        UnsupportedError: A step looks further than one hop, or at all nodes; says which.
        TypeError: ``model`` is no ``torch.nn.Module``.
        ValueError: An argument does not fit, the model cannot be run, or the name ``out`` is taken.
        MissingAttributeError: No node type has ``input_attr``, or no edge type an edge attribute.
        MemoryBudgetError: The budget is too small for a batch; give ``max_edges``.
        StoreInUseError: Another process has the store open for writing.

    Example:
        >>> import pyg_graphzero as gz
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = GraphSAGE(4, 8, num_layers=2, out_channels=3)
        >>> summary = gz.inference.layerwise(model, example_store, out="h")
        >>> gz.open(example_store).data().h.shape
        torch.Size([4, 3])
    """
    for what, count, least in (("max_edges", max_edges, 1), ("num_workers", num_workers, 0)):
        if count is not None and count < least:
            raise ValueError(f"{what}: found {count}, expected {least} or more")
    if encoding not in (None, "float16", "bfloat16"):
        raise ValueError(f"encoding={encoding!r}: expected 'float16', 'bfloat16' or None")
    check_model(model)
    store, first = check_path(store, "store"), next(model.parameters(), torch.empty(0))
    given = store if isinstance(store, Store) else None
    is_own = given is None or given.mode != "r+"
    shards = given if isinstance(given, ShardedStore) else None
    memory = None if given is None else given.how.memory
    editor = open_store(store if shards is None else shards.part, "r+") if is_own else given
    assert editor is not None
    try:
        place = first.device if device is None else torch.device(device)
        run = (_Run if shards is None else _ShardedRun)(
            editor, shards, place, memory, max_edges, num_workers, Progress(progress)
        )
        seen = shards or open_store(store)  # as passes open it, halves decoded
        inputs = _inputs_of(seen, input_attr, edge_weight, edge_attr)
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            reading(model, inputs, head, run.device) as found,
        ):
            return run(found, inputs, _names(out, found.outputs), encoding)
    finally:
        if is_own:
            editor.close()


@dataclass
class _Run:
    """One call of ``layerwise``: its store and settings."""

    store: Store
    shards: Any  # ShardedStore or None
    device: torch.device
    memory: int | str | None
    max_edges: int | None
    num_workers: int
    progress: Progress

    def __call__(
        self,
        found: Reading,
        inputs: Inputs,
        names: dict[str | None, str],
        encoding: str | None,
    ) -> InferenceSummary:
        begun = perf_counter()
        sweeps = sweeps_of(found, list(names), list(self.seen.node_types))
        _check_used(found, inputs)
        check_sweeps(found, sweeps, inputs, self.device)
        about = {
            "inputs": inputs.attrs,
            "encoding": encoding,
            "names": names,
            "files": self.files_read(inputs),
        }
        results = {found.outputs[name]: attr for name, attr in names.items()}
        fingerprint = found.fingerprint(about)
        made = Activations(self.store, sweeps, results, fingerprint, encoding, self.type_of)
        made.clear_others()
        left = self.left(made)
        weight = inputs.attrs.get("edge_weight")
        roots_of = cache(partial(inverse_roots, self.seen.contents, weight=weight))
        for step in (step for sweep in left for step in sweep.convs):
            if step.about.normalises:
                # Counted now: budgets are divided with them in memory.
                is_weighted = step.call.get("edge_weight") is not None
                roots_of(step.about.edge_type, Rule.of(found.modules[step.func], is_weighted))
        summary = InferenceSummary(self.store.path, names)
        for sweep in sweeps:
            columns = ", ".join(map(made.name, sweep.outputs))
            num_rows = self.store.num_nodes_of(self.type_of(sweep.node_type))
            done = LayerSummary(sweep.level, sweep.node_type, columns, num_rows)
            if sweep in left:
                read = {v: found.attrs.get(v) or made.name(v) for v in sweep.read}
                task = Task(sweep, read, found.modules, roots_of, self.device)
                self._sweep(task, made, done, sweeps[-1].level)
                # The next pass shares out what is left, also of rows that a cycle still holds.
                gc.collect()
                left.remove(sweep)
                if left:
                    made.remove_unread(left)
            summary.layers.append(done)
        made.publish()
        made.remove_unread([])
        summary.seconds = perf_counter() - begun
        return summary

    def _sweep(self, task: Task, made: Activations, done: LayerSummary, last: int) -> None:
        """One sweep, to its columns."""
        begun = perf_counter()
        sweep = task.sweep
        columns = [made.create(value) for value in sweep.outputs]
        how = Opening(memory=self.memory, row_cache=False, drafts=tuple(made.drafts()))
        title = f"layer {sweep.level}/{last}"
        title += "" if sweep.node_type is None else f" {sweep.node_type}"
        with (
            self.pass_of(task, StoreContents(self.store.path, how)) as step,
            self.progress.step(title, done.num_rows, "nodes") as bar,
        ):
            for first, parts in step:
                for column, rows in zip(columns, parts, strict=True):
                    column.write(first, rows)
                    size = rows.numel() * rows.element_size()
                    done.written_bytes += size if column.encoding is None else size // 2
                done.peak_memory = max(done.peak_memory, step.peak_memory, private_rss())
                bar.set_postfix_str(step.stats.verdict, refresh=False)
                bar.update(len(parts[0]))
            stats = step.stats
            done.edges = stats.edges
            done.read_bytes = stats.read_bytes + stats.topology_bytes
            done.verdict = stats.verdict
            for column in columns:
                column.complete()
        done.seconds = perf_counter() - begun

    @contextmanager
    def pass_of(self, task: Task, contents: StoreContents) -> Iterator[Pass]:
        """A sweep over the nodes of a store that has the columns made so far."""
        if not task.sweep.convs:
            yield RowPass(task, contents, self.max_edges)
        elif can_sum(task, contents):
            yield SummedPass(task, contents, self.max_edges)
        else:
            yield LayerPass(task, contents, self.max_edges, self.num_workers)

    @property
    def seen(self) -> Store:
        """The store as the model sees it."""
        return self.store

    def type_of(self, name: str | None) -> str | None:
        """A node type of that, as the store that is written to calls it."""
        return name

    def left(self, made: Activations) -> list[Sweep]:
        """The sweeps that are left to do."""
        return made.left()

    def files_read(self, inputs: Inputs) -> list[str]:
        """Tells the inputs' files from others of the same name."""
        schema, (x, *of_edges) = self.store.contents.schema, inputs.attrs.values()
        files = [t.topology for t in schema.edge_types]
        files += [f for t in schema.node_types for a, f in t.attrs.items() if a == x]
        files += [f for t in schema.edge_types for a, f in t.attrs.items() if a in of_edges]
        return sorted(f"{f} {schema.files.get(f, schema.adopted.get(f))}" for f in files)


class _ShardedRun(_Run):
    """One call over shards: ``store`` is this rank's part, to whose nodes columns are added.

    All ranks go from one sweep to the next together: leaving the shards of a sweep, each waits for
    the others, so that activations are whole when they are read, and there until all have read
    them. A sweep that one rank has left is run by all: others would wait for it.
    """

    @property
    def seen(self) -> Store:
        """The store that was divided."""
        shards: ShardedStore = self.shards
        return shards

    def type_of(self, name: str | None) -> str:
        """The type of a rank's own nodes."""
        return f"own:{name or 'node'}"

    def left(self, made: Activations) -> list[Sweep]:
        """The sweeps that a rank has left to do; an error of one is raised on all."""
        found: Any = None
        try:
            found = [made.sweeps.index(sweep) for sweep in made.left()]
        except ValueError as error:
            found = str(error)
        everyone = self.shards.gather(found)
        for rank, each in enumerate(everyone):
            if isinstance(each, str):
                raise ValueError(f"rank {rank}: {each}")
        return [made.sweeps[number] for number in sorted(set(chain(*everyone)))]

    def files_read(self, inputs: Inputs) -> list[str]:
        """Tells the divided store's files from others: alike on all ranks."""
        return [self.shards.source]

    @contextmanager
    def pass_of(self, task: Task, part: StoreContents) -> Iterator[Pass]:
        """A sweep over this rank's nodes."""
        sweep = task.sweep
        nodes = self.shards.nodes(sweep.node_type)
        attrs = part.node_type(self.type_of(sweep.node_type)).attrs
        whole = self.shards.contents

        def rows(attr: str) -> Rows:
            if attr in attrs:
                return RowFile(part, attrs[attr])
            return SomeRows(whole.rows(whole.node_type(sweep.node_type).attrs[attr]), nodes)

        own = Own(nodes, rows)
        if not sweep.convs:
            yield RowPass(task, part, self.max_edges, own)
            return
        gathered: dict[str | None, set[str]] = {}
        for value in sweep.gathered:
            gathered.setdefault(value.space.name, set()).add(task.columns[value])
        with self.shards.again(part.how.drafts, gathered) as opened:
            yield LayerPass(task, opened.contents, self.max_edges, self.num_workers, own)


def _inputs_of(store: Store, attr: str, edge_weight: str | None, edge_attr: str | None) -> Inputs:
    """The attributes that go in, as the store has them."""
    given = {"x": attr, "edge_weight": edge_weight, "edge_attr": edge_attr}
    attrs = {argument: wanted for argument, wanted in given.items() if wanted is not None}
    rows = {argument: _rows_of(store, argument, wanted) for argument, wanted in attrs.items()}
    nodes = rows["x"].keys()
    types: list[Any] = [None] if None in nodes else list(store.edge_types)
    between = [name for name in types if name is None or {name[0], name[2]} <= nodes]
    return Inputs(attrs, rows, between)


def _rows_of(store: Store, argument: str, attr: str) -> dict[Any, Row]:
    """Shape and dtype of an attribute's rows, by the types of nodes or edges that have it."""
    of_nodes = argument == "x"
    storages = node_storages if of_nodes else edge_storages
    found: dict[Any, Row] = {}
    for name, kept in storages(store.data()).items():
        value = dict(raw_items(kept)).get(attr)
        is_of_level = kept.is_node_attr if of_nodes else kept.is_edge_attr
        if isinstance(value, Tensor | OnDemand) and is_of_level(attr):
            found[name] = torch.Size(value.shape[1:]), value.dtype
    if not found:
        schema = store.contents.schema
        types: Sequence[TypeSchema] = schema.node_types if of_nodes else schema.edge_types
        names = sorted({attr for each in types for attr in each.attrs})
        expected = f"one of {', '.join(names)}" if names else "an attribute, and there are none"
        option, level = ("input_attr", "node") if of_nodes else (argument, "edge")
        raise MissingAttributeError(
            f"{store.path}: {option}={attr!r}: found in no {level} type, expected {expected}"
        )
    return found


def _names(
    out: str | Mapping[str, str], found: Mapping[str | None, Value]
) -> dict[str | None, str]:
    if isinstance(out, str):
        return dict.fromkeys(found, out)
    for node_type in out:
        if node_type not in found:
            raise ValueError(
                f"out: found node type {node_type!r}, expected some of {list(found)}: the model "
                "returns rows of no other"
            )
    if not out:
        raise ValueError("out: found no names, expected one for a node type at least")
    return {node_type: out[node_type] for node_type in out}


def _check_used(found: Reading, inputs: Inputs) -> None:
    """Raises where edges have attributes that the model does not look at."""
    read = {found.attrs.get(value) for step in found.steps for _, value in step.inputs}
    for option, attr in inputs.attrs.items():
        if option != "x" and attr not in read:
            raise ValueError(f"{option}={attr!r}: {found.name} takes none; leave it out")
