"""``gz.report``: passes over nodes and edges, in bounded memory, and what the doctor says."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.reporting.edges import EdgePass
from pyg_graphzero.reporting.nodes import look_at_nodes
from pyg_graphzero.reporting.page import Report
from pyg_graphzero.tune.doctor import doctor
from pyg_graphzero.tune.seeds import ChosenSeeds, choose_seeds, training_set
from pyg_graphzero.util.arguments import check_count, check_path
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

# Bytes for each node: two marks, its splits and its class, beside two numbers: its component and
# its degree.
_NODE_BYTES = 5
# Seeds that are drawn where a store does not say which to train on.
_DRAWN = 1 << 16


def report(
    store: Store | str | os.PathLike[str],
    *,
    num_neighbors: Sequence[int] = (15, 10, 5),
    batch_size: int = 1024,
    seeds: Any = None,
    input_type: str | None = None,
    memory: int | str | None = None,
    out: str | os.PathLike[str] | None = None,
    seconds: float = 10.0,
    progress: bool | None = None,
) -> Report:
    """Looks at a store's graph, and says what of it may hurt training.

    Reads each topology and each node attribute once, front to back; then loads some batches.

    Args:
        store: A store or its path.
        num_neighbors: Fan-out by hop; batches are loaded after each hop of it.
        batch_size: Seeds per batch.
        seeds: Seeds of training, as :func:`pyg_graphzero.doctor` takes them.
        input_type: Type of the seeds, in a heterogeneous store where several have such a set.
        memory: Memory of the process, in bytes or such as ``"2GB"``, and the budget that
            training is planned for; half of the free memory by default, for training most of it.
        out: File for a page of HTML.
        seconds: How long to load batches, about.
        progress: Progress bars; None shows them in a terminal.

    Raises:
        FileNotFoundError: There is no such store, or no directory for ``out``.
        MemoryBudgetError: ``memory`` is too small for tables with some bytes for each node.
        ValueError: Seeds that are not there, or ``batch_size`` is no count.
        IndexError: A seed is not a node.

    Example:
        >>> import pyg_graphzero as gz
        >>> found = gz.report(example_store, num_neighbors=[2], seconds=0.1)
        >>> found.edges[0].duplicates, found.components.number
        (0, 2)
    """
    check_count("batch_size", batch_size)
    if out is not None and not Path(out).absolute().parent.is_dir():
        raise FileNotFoundError(2, "No such directory", str(Path(out).parent))
    bars = Progress(progress)
    found = Report(Path(os.path.abspath(check_path(store, "store"))))
    with Store(found.path) as own, Workspace(found.path, memory) as space:
        contents, schema = own.contents, own.contents.schema
        chosen = _seeds(found, own, seeds, input_type)
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
            found.edges = look.all()
        for nodes in found.nodes:
            nodes.isolated = look.isolated(nodes.name)
        found.components = look.components_with(chosen)
    del look, labels
    hops = 0 if chosen is None else len(num_neighbors)
    for fan_out in [list(num_neighbors[: n + 1]) for n in range(hops)]:
        assert chosen is not None
        try:
            said = doctor(
                found.path,
                num_neighbors=fan_out,
                batch_size=batch_size,
                seeds=chosen.nodes,
                input_type=chosen.node_type,
                memory=memory,
                seconds=seconds / hops,
            )
        except (ValueError, IndexError) as error:
            found.notes.append(f"fan-out {fan_out}: {error}")
            break
        found.batches.append(said)
    if out is not None:
        Path(out).write_text(found.html(), encoding="utf-8")
    return found


def _seeds(found: Report, store: Store, seeds: Any, input_type: str | None) -> ChosenSeeds | None:
    """Seeds that are meant, or some nodes; None and a note where a store does not say."""
    try:
        name = training_set(store.contents, input_type) if seeds is None else seeds
        if name is None and not store.is_hetero:
            generator = torch.Generator().manual_seed(0)
            drawn = torch.randint(max(1, store.num_nodes), (_DRAWN,), generator=generator)
            return replace(choose_seeds(store.data(), drawn.unique()), name="")
        return choose_seeds(store.data(), name, input_type)
    except (ValueError, IndexError) as error:
        if seeds is not None or input_type is not None:
            raise
        found.notes.append(f"no batches were sampled: {error}")
        return None
