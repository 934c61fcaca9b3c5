"""``layerwise``: all layers over all nodes, with activations on disk."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import MissingAttributeError
from pyg_graphzero.inference.activations import Activations
from pyg_graphzero.inference.fused import Fusion
from pyg_graphzero.inference.hop import Inputs
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.inference.normalize import Normalization
from pyg_graphzero.inference.passes import LayerPass, Task, batch_edges
from pyg_graphzero.inference.stack import (
    Row,
    Stack,
    fingerprint,
    reachable,
    stack_of,
    tried_rows,
)
from pyg_graphzero.inference.summary import InferenceSummary, LayerSummary
from pyg_graphzero.inference.sums import SummedPass, can_sum
from pyg_graphzero.pyg.data import edge_storages, node_storages, open_data
from pyg_graphzero.pyg.lazy import OnDemand, raw_items
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.pyg.stores import open as open_store
from pyg_graphzero.store.column_writer import Column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.system import private_rss


def layerwise(
    model: torch.nn.Module | None,
    store: Store | str | os.PathLike[str],
    *,
    layers: Sequence[Callable[..., Any]] | None = None,
    input_attr: str = "x",
    out: str | Mapping[str, str] = "out",
    head: Callable[[Tensor], Tensor] | None = None,
    edge_weight: str | None = None,
    edge_attr: str | None = None,
    encoding: str | None = None,
    max_edges: int | None = None,
    num_workers: int = 2,
    device: torch.device | str | None = None,
    resume: bool = True,
    progress: bool | None = None,
) -> InferenceSummary:
    """Computes a model's output for every node of a store, all neighbours included.

    Layer by layer: each goes over all nodes once, in the order in which they lie on disk, and its
    activations are a column of the store, which the next layer reads. Memory is that of the store's
    budget (``gz.open(memory=)``), of the model and its messages, and 4 bytes a node where a layer
    normalises by degrees. What comes out equals ``model(x, edge_index)`` on the whole graph in eval
    mode, but for the order of sums.

    A run that was killed goes on with the layer that it was at: call it again with the same
    arguments. No reader sees its columns before all of them are done; those in between are removed
    then.

    Args:
        model: A PyG ``BasicGNN``; or, with ``layers=``, what they belong to (it is put into eval
            mode for the run), or None.
        store: The store, or its path. No other process may have it open for writing.
        layers: For other models, one callable for each hop, ``(x, edge_index) -> rows``: ``x`` are
            rows of the destination nodes, then of their neighbours, and as many rows as there are
            destinations are taken of what it returns. In a heterogeneous store ``(x_dict,
            edge_index_dict) -> dict``, such as ``HeteroConv``; it is called for one node type at a
            time, with the edges that end there.
        input_attr: The node attribute that goes in. Node types that lack it take no part.
        out: Name of the node attribute that comes out, for every node type the last layer gives; or
            names by node type, and only what these need is computed.
        head: Applied to the last layer's rows before they are stored, e.g. ``lambda h:
            h.argmax(-1)``.
        edge_weight: Edge attribute that layers are given as ``edge_weight`` (heterogeneous:
            ``edge_weight_dict``).
        edge_attr: Likewise, as ``edge_attr``.
        encoding: ``"float16"`` or ``"bfloat16"``: activations in between take half the disk.
            float16 ends at 65,504; larger numbers become that.
        max_edges: In-edges and nodes of a batch together; a node that has more is a batch alone.
            None: 262,144, fewer in a small budget. Layers may need memory for a message along each.
            Where a layer needs sums of its neighbours only: nodes of a batch.
        num_workers: Threads of the engine that make batches ahead.
        device: Where the layers run, and are already. None: where the model's parameters are.
        resume: Keep the layers that a run with the same model, arguments and inputs has finished.
        progress: Show a bar for each layer; None: when standard error is a terminal.

    Returns:
        Seconds, bytes and memory by layer.

    Raises:
        UnsupportedError: A layer needs more than one hop, or normalises over all nodes; says which.
        ValueError: An argument does not fit, a layer cannot be run, or the name ``out`` is taken.
        MissingAttributeError: No node type has ``input_attr``, or no edge type an edge attribute.
        MemoryBudgetError: The budget is too small for a batch; give ``max_edges``.
        StoreInUseError: Somebody else has the store open for writing.

    Example:
        >>> import pyg_graphzero as gz
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = GraphSAGE(4, 8, num_layers=2, out_channels=3)
        >>> summary = gz.inference.layerwise(model, example_store, out="h")
        >>> gz.open(example_store).data().h.shape
        torch.Size([4, 3])
    """
    if max_edges is not None and max_edges < 1:
        raise ValueError(f"max_edges: found {max_edges}, expected 1 or more")
    given = store if isinstance(store, Store) else None
    is_own = given is None or given.mode != "r+"
    path = store.path if isinstance(store, Store) else store
    memory = None if given is None else given.memory
    editor = open_store(path, "r+") if is_own else given
    assert editor is not None
    modules = Modules()
    try:
        run = _Run(
            editor, modules, Inputs(input_attr, edge_weight, edge_attr),
            _device_of(model, device), memory, max_edges, num_workers,
            Progress(progress),
        )  # fmt: skip
        if isinstance(model, torch.nn.Module):
            for module in model.modules():
                modules.add(module)
        with torch.no_grad():
            return run(stack_of(model, layers, editor.is_hetero, run.inputs, head), out,
                       encoding, resume)  # fmt: skip
    finally:
        modules.close()
        if is_own:
            editor.close()


def _device_of(model: Any, device: torch.device | str | None) -> torch.device:
    if device is not None:
        return torch.device(device)
    if isinstance(model, torch.nn.Module):
        for parameter in model.parameters():
            return parameter.device
    return torch.device("cpu")


@dataclass
class _Run:
    """One call of ``layerwise``: its store and settings."""

    store: Store
    modules: Modules
    inputs: Inputs
    device: torch.device
    memory: int | str | None
    max_edges: int | None
    num_workers: int
    progress: Progress

    def __call__(
        self,
        stack: Stack,
        out: str | Mapping[str, str],
        encoding: str | None,
        resume: bool,
    ) -> InferenceSummary:
        begun = perf_counter()
        contents = self.store.contents
        edge_types = list(self.store.edge_types)
        first_rows, edge_values = self._given_rows()
        rows = tried_rows(stack, edge_types, first_rows, edge_values, self.modules, self.device)
        names = self._names(out, rows[-1])
        wanted = _wanted(edge_types, rows, list(names))
        about = {
            "inputs": self.inputs,
            "encoding": encoding,
            "names": names,
            "files": sorted(self._files_read()),
        }
        run = fingerprint(stack, self.modules, about)
        made = Activations(self.store, names, run, wanted, encoding)
        made.clear(keeps_own=resume)
        first = made.first_missing()
        normalization = Normalization(contents, self.inputs)
        fusion = Fusion(normalization, stack)
        for module in list(self.modules):
            normalization.teach(module, self.modules)
            fusion.teach(module, self.modules)
        if all(self.store.num_nodes(node_type) for node_type in rows[0]):
            # Degrees are counted now: budgets are divided with them in memory.
            tried_rows(
                stack, edge_types, first_rows, edge_values, self.modules, self.device,
                before=lambda hop: setattr(normalization, "hop", hop),
            )  # fmt: skip
        summary = InferenceSummary(self.store.path, names)
        for number in range(1, len(stack.layers) + 1):
            for node_type in wanted[number - 1]:
                done = LayerSummary(
                    number, node_type, made.name(number, node_type),
                    self.store.num_nodes(node_type),
                )  # fmt: skip
                there = {(d.node_type, d.name) for d in made.drafts()}
                if number >= first and (node_type, done.name) not in there:
                    self._run(stack, made, rows, done, normalization)
                    # The next pass shares out what is left, also of rows that a cycle still holds.
                    gc.collect()
                summary.layers.append(done)
            # The layer before the last one stays until there is no need to do that again.
            if 1 < number < len(stack.layers) and not stack.keeps_all:
                made.remove_layer(number - 1)
        made.publish()
        for number in range(1, len(stack.layers)):
            made.remove_layer(number)
        summary.seconds = perf_counter() - begun
        return summary

    def _run(
        self,
        stack: Stack,
        made: Activations,
        rows: list[dict[str | None, Row]],
        done: LayerSummary,
        normalization: Normalization,
    ) -> None:
        """One layer over one node type, to its column."""
        number, node_type = done.layer, done.node_type
        begun = perf_counter()
        column = made.create(number, node_type, rows[number][node_type])
        inputs = self.inputs
        if number > 1:
            inputs = replace(inputs, attr=made.name(number - 1, node_type))
        is_last = number == len(stack.layers)
        earlier = (
            [made.name(layer, node_type) for layer in range(1, number)]
            if is_last and stack.keeps_all
            else []
        )
        names = reachable(self.store.edge_types, node_type, rows[number - 1])
        row_bytes = _bytes_of(rows[number][node_type])
        layer = stack.layers[number - 1]
        contents = StoreContents(self.store.path, memory=self.memory, drafts=made.drafts())
        contents.check_budget()
        task = Task(layer, inputs, normalization, self.device, earlier)
        step: LayerPass | SummedPass
        if node_type is None and can_sum(layer, contents, inputs, self.device):
            step = SummedPass(task, contents, row_bytes, self.max_edges)
        else:
            largest = max(_bytes_of(row) for row in rows[number - 1].values())
            room = contents.memory - private_rss()
            step = LayerPass(
                task, open_data(contents), node_type, names,
                max_edges=self.max_edges or batch_edges(room, row_bytes + largest),
                num_workers=self.num_workers,
            )  # fmt: skip
        title = f"layer {number}/{len(stack.layers)}"
        title += "" if node_type is None else f" {node_type}"
        with self.progress.step(title, done.num_rows, "nodes") as bar:
            self._write(step, column, done, bar)
        stats = step.stats()
        done.edges = stats.edges
        done.read_bytes = stats.read_bytes + stats.topology_bytes
        done.verdict = stats.verdict
        column.complete()
        done.seconds = perf_counter() - begun

    def _write(
        self, step: LayerPass | SummedPass, column: Column, done: LayerSummary, bar: Any
    ) -> None:
        """The rows of a pass, to their column."""
        for first, rows in step:
            column.write(first, rows)
            size = rows.numel() * rows.element_size()
            done.written_bytes += size if column.encoding is None else size // 2
            done.peak_memory = max(done.peak_memory, step.peak_memory, private_rss())
            bar.set_postfix_str(step.stats().verdict, refresh=False)
            bar.update(len(rows))

    def _given_rows(
        self,
    ) -> tuple[dict[str | None, Row], dict[str, dict[Any, Row]]]:
        """Shape and dtype of what the store has of the inputs: nodes by type, edges by option."""
        data = open_store(self.store.path).data()  # as passes open it, halves decoded
        nodes: dict[str | None, Row] = {}
        for name, kept in node_storages(data).items():
            row = _row_of(kept, self.inputs.attr)
            if row is not None and kept.is_node_attr(self.inputs.attr):
                nodes[name] = row
        if not nodes:
            raise MissingAttributeError(
                f"{self.store.path}: input_attr={self.inputs.attr!r}: found in no node type, "
                f"expected in one of {self.store.node_types}"
            )
        edges: dict[str, dict[Any, Row]] = {}
        for option in ("edge_weight", "edge_attr"):
            attr = getattr(self.inputs, option)
            if attr is None:
                continue
            found = {
                name: row
                for name, kept in edge_storages(data).items()
                if (row := _row_of(kept, attr)) is not None and kept.is_edge_attr(attr)
            }
            if not found:
                raise MissingAttributeError(
                    f"{self.store.path}: {option}={attr!r}: found in no edge type, expected in one "
                    f"of {self.store.edge_types}"
                )
            edges[option] = found
        return nodes, edges

    def _names(
        self, out: str | Mapping[str, str], rows: dict[str | None, Row]
    ) -> dict[str | None, str]:
        if isinstance(out, str):
            return dict.fromkeys(rows, out)
        for node_type in out:
            if node_type not in rows:
                raise ValueError(
                    f"out: found node type {node_type!r}, expected some of {list(rows)}: the last "
                    "layer gives rows of no other"
                )
        if not out:
            raise ValueError("out: found no names, expected one for a node type at least")
        return {node_type: out[node_type] for node_type in out}

    def _files_read(self) -> list[str]:
        """What tells the inputs' files from others of the same name."""
        schema = self.store.contents.schema
        files = [t.topology for t in schema.edge_types]
        files += [f for t in schema.node_types for a, f in t.attrs.items() if a == self.inputs.attr]
        files += [
            f for t in schema.edge_types for a, f in t.attrs.items() if a in self.inputs.of_edges
        ]
        return [f"{file} {schema.files.get(file, schema.adopted.get(file))}" for file in files]


def _wanted(
    edge_types: Sequence[Any], rows: list[dict[str | None, Row]], last: list[str | None]
) -> list[list[str | None]]:
    """For each layer, the node types whose rows later layers need, or the caller wants."""
    wanted = [last]
    for before in reversed(rows[1:-1]):
        needed = set(wanted[0])
        for node_type in wanted[0]:
            needed |= {
                None if name is None else name[0]
                for name in reachable(edge_types, node_type, before)
            }
        wanted.insert(0, [name for name in before if name in needed])
    return wanted


def _row_of(storage: Any, attr: str) -> Row | None:
    value = dict(raw_items(storage)).get(attr)
    if not isinstance(value, (Tensor, OnDemand)):
        return None
    return torch.Size(value.shape[1:]), value.dtype


def _bytes_of(row: Row) -> int:
    shape, dtype = row
    return shape.numel() * dtype.itemsize
