"""A model's recorded steps, run on the graph that they were recorded on, and compared with it."""

from __future__ import annotations

import torch
from torch import Tensor

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.inference.passes import Convolving, Task
from pyg_graphzero.inference.reader import Inputs, Reading
from pyg_graphzero.inference.schedule import Replay, Sweep
from pyg_graphzero.nn.degrees import Rule
from pyg_graphzero.nn.learn import Comparable, agreed
from pyg_graphzero.nn.rules import Space, Value
from pyg_graphzero.nn.state import RefusedError
from pyg_graphzero.store.schema import EdgeType

# Nodes of the smaller batch. In-edges end at a few nodes more.
_FEW = 3


def check_sweeps(found: Reading, sweeps: list[Sweep], inputs: Inputs, device: torch.device) -> None:
    """Runs sweeps for all nodes, and for a few.

    Raises:
        UnsupportedError: They do not make what the model made when it was read, or make other rows
            for a few nodes than for all, but for rounding.
    """
    counts = found.graph.num_rows

    def roots_of(name: EdgeType | None, rule: Rule) -> Tensor:
        src, dst = found.graph.edge_index[name].cpu()
        weights = [
            found.rows[value].reshape(-1).cpu().float()
            for value, attr in found.attrs.items()
            if value.space == Space(True, name) and attr == inputs.attrs.get("edge_weight")
        ]
        values = weights[0] if rule.is_weighted else torch.ones(len(src))
        num_dst = counts[Space(False, None if name is None else name[2])]
        return rule.roots(src, dst, values, num_dst)

    rows = {value: found.rows[value] for value in found.attrs}
    pairs: list[tuple[Tensor, Tensor]] = []
    for sweep in sweeps:
        task = Task(sweep, {}, found.modules, roots_of, device)
        count = counts[Space(False, sweep.node_type)]
        with Comparable():
            made, few = (_batch(found, task, rows, stop) for stop in (count, _FEW))
        rows.update(zip(sweep.outputs, made, strict=True))
        pairs += zip(made, few, strict=True)
    pairs += ((found.rows[v].cpu(), rows[v]) for v in found.outputs.values() if v in rows)
    for one, other in pairs:
        try:
            agreed(one, other, torch.is_autocast_enabled(device.type))
        except RefusedError as error:
            raise UnsupportedError(
                f"{found.name}: found other rows when the steps of its forward pass were run again "
                "for some nodes of a small graph, expected those that it returned: steps that "
                "treat each node's row by itself, and do the same each time"
            ) from error


def _batch(found: Reading, task: Task, rows: dict[Value, Tensor], stop: int) -> list[Tensor]:
    """The first rows of a sweep's outputs."""
    sweep, device = task.sweep, task.device
    n_id = {
        space.name: torch.arange(size)
        for space, size in found.graph.num_rows.items()
        if not space.of_edges
    }
    given = {value: rows[value].to(device) for value in sweep.gathered}
    given |= {value: rows[value][:stop].to(device) for value in sweep.own}
    edges = {}
    for name in sweep.edge_types:
        edge_index = found.graph.edge_index[name]  # by ascending destination
        edges[name] = edge_index[:, edge_index[1] < stop]
    for value in sweep.of_edges:
        given[value] = rows[value][: edges[value.space.name].size(1)].to(device)
    return Replay(sweep)(given, stop, Convolving(task, stop, n_id, edges))
