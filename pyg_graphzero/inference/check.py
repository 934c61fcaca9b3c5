"""A model's recorded steps, run on the graph that they were recorded on, and compared with it."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.inference.normalize import Degrees, Rule, inverse_root
from pyg_graphzero.inference.passes import Convolving, Task
from pyg_graphzero.inference.reader import Inputs, Reading
from pyg_graphzero.inference.schedule import Replay, Sweep
from pyg_graphzero.nn.learn import Comparable, RefusedError, agreed
from pyg_graphzero.nn.rules import Space, Value
from pyg_graphzero.store.schema import EdgeType

# Nodes of the first batch. In-edges end at a few nodes more.
_FIRST = 3


def check_sweeps(found: Reading, sweeps: list[Sweep], inputs: Inputs, device: torch.device) -> None:
    """Runs sweeps in two batches each.

    Raises:
        UnsupportedError: They do not make what the model made when it was read, but for rounding.
    """
    counts = found.graph.num_rows

    def roots_of(name: EdgeType | None, rule: Rule) -> Tensor:
        src, dst = found.graph.edge_index[name].cpu()
        weights = [
            found.rows[value].reshape(-1).cpu().float()
            for value, attr in found.attrs.items()
            if value.space == Space(True, name) and attr == inputs.edge_weight
        ]
        values = weights[0] if rule.is_weighted else torch.ones(len(src))
        degrees = torch.zeros(counts[Space(False, None if name is None else name[2])])
        rule.add(degrees, src, dst, values)
        return inverse_root(degrees)

    rows = {value: found.rows[value] for value in found.attrs}
    for sweep in sweeps:
        task = Task(sweep, {}, found.modules, found.normalised, Degrees(roots_of), device)
        stop = counts[Space(False, sweep.node_type)]
        with Comparable():
            parts = [_batch(found, task, rows, *ends) for ends in ((0, _FIRST), (_FIRST, stop))]
        rows.update(zip(sweep.outputs, map(torch.cat, zip(*parts, strict=True)), strict=True))
    for name, value in found.outputs.items():
        try:
            if value in rows:
                is_rounded = torch.is_autocast_enabled(device.type)
                agreed(found.rows[value].cpu(), rows[value].cpu(), is_rounded)
        except RefusedError as error:
            of = "" if name is None else f" of {name!r}"
            raise UnsupportedError(
                f"{found.name}: found other rows{of} when the steps of its forward pass were run "
                "again for some nodes of a small graph, expected those that it returned: steps "
                "that treat each node's row by itself, and do the same each time"
            ) from error


def _batch(
    found: Reading, task: Task, rows: dict[Value, Tensor], first: int, stop: int
) -> list[Tensor]:
    """Rows ``first`` to ``stop`` of a sweep's outputs: these nodes, and then all."""
    sweep, count = task.sweep, stop - first
    n_id = {
        space.name: torch.arange(size)
        for space, size in found.graph.num_rows.items()
        if not space.of_edges
    }
    n_id[sweep.node_type] = torch.cat((torch.arange(first, stop), n_id[sweep.node_type]))
    picked = {Space(False, name): ids for name, ids in n_id.items()}
    edges = {}
    for name in sweep.edge_types:
        src, dst = found.graph.edge_index[name]
        kept = picked[Space(True, name)] = ((dst >= first) & (dst < stop)).nonzero().view(-1)
        src, dst = src[kept], dst[kept] - first
        if name is None or name[0] == sweep.node_type:
            is_own = (src >= first) & (src < stop)
            src = torch.where(is_own, src - first, src + count)
        edges[name] = torch.stack((src, dst))
    given = {value: rows[value][first:stop] for value in sweep.own}
    for value in (*sweep.gathered, *sweep.of_edges):
        given[value] = rows[value][picked[value.space].to(rows[value].device)]
    given = {value: each.to(task.device) for value, each in given.items()}
    return Replay(sweep)(given, count, Convolving(task, count, n_id, edges))
