"""``gz.report``: passes over nodes and edges, in bounded memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from torch import Tensor

from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.reporting.edges import EdgePass
from pyg_graphzero.reporting.nodes import look_at_nodes
from pyg_graphzero.reporting.page import Report
from pyg_graphzero.tune.seeds import ChosenSeeds, choose_seeds, training_set
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

# Bytes for each node: two marks, its splits and its class, beside two numbers: its component and
# its degree.
_NODE_BYTES = 5


def report(
    store: Store | str | os.PathLike[str],
    *,
    seeds: Any = None,
    input_type: str | None = None,
    memory: int | str | None = None,
    out: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Report:
    """Looks at a store's graph, and says what of it may hurt training.

    Reads each topology and each node attribute once, front to back.

    Args:
        store: A store or its path.
        seeds: Seeds of training, as :func:`pyg_graphzero.doctor` takes them; None takes
            ``train_idx`` or ``train_mask`` if there is one.
        input_type: Type of the seeds, in a heterogeneous store where several have such a set.
        memory: Memory of the process, in bytes or such as ``"2GB"``; half of the free memory by
            default.
        out: File for a page of HTML.
        progress: Progress bars; None shows them in a terminal.

    Raises:
        FileNotFoundError: There is no such store.
        MemoryBudgetError: ``memory`` is too small for tables with some bytes for each node.
        ValueError: Seeds that are not there.
        IndexError: A seed is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> found = gz.report(example_store)
        >>> found.edges[0].duplicates, found.components.number
        (0, 1)
    """
    bars = Progress(progress)
    found = Report(store.path if isinstance(store, Store) else Path(os.path.abspath(store)))
    with Store(found.path) as own, Workspace(found.path, memory) as space:
        contents, schema = own.contents, own.contents.schema
        chosen = _seeds(own, seeds, input_type)
        num_nodes = sum(each.num_nodes for each in schema.node_types)
        held = 0 if chosen is None else 2 * chosen.nodes.nbytes
        space.left(held + (_NODE_BYTES + (8 if num_nodes < 1 << 31 else 16)) * num_nodes)
        labels: dict[str | None, Tensor] = {}
        with bars.step("reading nodes", None) as bar:
            for record in schema.node_types:
                nodes, classes = look_at_nodes(contents, record, bar.update)
                found.nodes.append(nodes)
                labels |= {} if classes is None else {record.name: classes}
        num_edges = sum(each.num_edges for each in schema.edge_types)
        with bars.step("reading edges", num_edges, "edges") as bar:
            look = EdgePass(contents, labels, bar.update)
            found.edges = [look.look(each.name) for each in schema.edge_types]
        for nodes in found.nodes:
            nodes.isolated = look.isolated(nodes.name)
        found.components = look.components_with(chosen)
    if out is not None:
        Path(out).write_text(found.html(), encoding="utf-8")
    return found


def _seeds(store: Store, seeds: Any, input_type: str | None) -> ChosenSeeds | None:
    """Seeds that are meant; None where a store does not say which to train on."""
    name = seeds if seeds is not None else training_set(store.contents, input_type)
    try:
        return None if name is None else choose_seeds(store.data(), name, input_type)
    except ValueError:  # several types have such a set, or it is none
        if seeds is None:
            return None
        raise
