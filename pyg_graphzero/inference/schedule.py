"""Sweeps over a store: which steps of a model each of them has, and what it reads and writes.

See docs/dev/models.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.utils._pytree import tree_unflatten

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.inference.reader import Reading, Row
from pyg_graphzero.nn.convs import Plan
from pyg_graphzero.nn.program import Step
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.store.schema import EdgeType

# Computes a convolution's results from rows by value.
Convolve = Callable[[Step, dict[Value, Tensor]], dict[Value, Tensor]]


@dataclass(eq=False)
class Sweep:
    """Values of one level over the nodes of one type.

    Attributes:
        level: Number of convolutions between them and the store's attributes.
        node_type: Type of the nodes; None in a homogeneous store.
        outputs: Values that are stored.
        steps: Steps that make them, in the order of the forward pass.
        gathered: Node values that neighbours' rows are read of, and the nodes' own.
        own: Node values that the nodes' own rows are read of.
        of_edges: Edge values that are read.
        edge_types: Types of the edges that convolutions look at.
    """

    level: int
    node_type: str | None
    outputs: list[Value]
    steps: list[Step] = field(default_factory=list)
    gathered: list[Value] = field(default_factory=list)
    own: list[Value] = field(default_factory=list)
    of_edges: list[Value] = field(default_factory=list)
    edge_types: list[EdgeType | None] = field(default_factory=list)

    @property
    def read(self) -> list[Value]:
        """All values that are read."""
        return [*self.gathered, *self.own, *self.of_edges]

    @property
    def row_bytes(self) -> int:
        """Bytes of a node's rows that come out."""
        return sum(bytes_of(value.row) for value in self.outputs)

    @property
    def convs(self) -> list[Step]:
        """Its convolutions."""
        return [step for step in self.steps if isinstance(step.about, Plan)]


def bytes_of(row: Row) -> int:
    """Bytes of a row."""
    shape, dtype = row
    return shape.numel() * dtype.itemsize


def sweeps_of(reading: Reading, wanted: list[str | None], node_types: list[Any]) -> list[Sweep]:
    """The sweeps that make a model's results, in the order in which they are made.

    Args:
        reading: The model.
        wanted: Node types of the results.
        node_types: All node types, in the order of the store.

    Raises:
        UnsupportedError: A step takes rows that are none of the store's.
    """
    return _Schedule(reading).sweeps([reading.outputs[name] for name in wanted], node_types)


class _Schedule:
    def __init__(self, reading: Reading) -> None:
        self._reading = reading
        self._maker = {value: step for step in reading.steps for value in step.outputs}
        self._places = {id(step): place for place, step in enumerate(reading.steps)}
        self._level: dict[Value, int] = dict.fromkeys(reading.attrs, 0)
        self._gathered: set[Value] = set()
        for step in reading.steps:
            for value in step.outputs:
                level = 0
                for each, reach in self._inputs(step, value):
                    is_gathered = reach > 0 and not each.space.of_edges
                    level = max(level, self._level.get(each, 0) + is_gathered)
                    if is_gathered:
                        self._gathered.add(each)
                self._level[value] = level
        self._sweeps: dict[tuple[int, str | None], Sweep] = {}

    def _inputs(self, step: Step, made: Value) -> list[tuple[Value, int]]:
        """Values that a step needs for one of its results, and the hops it looks at them beyond."""
        if not step.reach:
            return [(value, 0) for _, value in step.inputs]
        if "edge_index_dict" not in step.call:
            pairs = zip(step.inputs, step.reach, strict=True)
            return [(value, min(reach, 1)) for (_, value), reach in pairs]
        to = made.space.name
        from_ = {name[0] for name in _edge_types(step, made)}
        return [
            (value, int(name in from_)) for (_, name), value in step.inputs if name in from_ | {to}
        ]

    def sweeps(self, outputs: list[Value], node_types: list[Any]) -> list[Sweep]:
        for value in outputs:
            self._demand(value)
        for level in range(max(self._level[value] for value in outputs), -1, -1):
            for sweep in [each for each in self._sweeps.values() if each.level == level]:
                self._fill(sweep)
        order = {name: place for place, name in enumerate(node_types)}
        return sorted(self._sweeps.values(), key=lambda s: (s.level, order[s.node_type]))

    def _maker_of(self, value: Value) -> Step:
        step = self._maker.get(value)
        if step is None:
            raise UnsupportedError(
                f"{self._reading.name}: found a tensor {list(value.row[0])} a row for all "
                f"{'edges' if value.space.of_edges else 'nodes'} that the model made itself, or "
                "keeps, expected rows of the attributes it is given"
            )
        return step

    def _demand(self, value: Value) -> None:
        key = self._level[value], value.space.name
        sweep = self._sweeps.setdefault(key, Sweep(*key, []))
        if value.dim:
            raise UnsupportedError(
                f"{self._reading.name}: found rows along dimension {value.dim} between two "
                "convolutions, expected them along the first"
            )
        if value not in sweep.outputs:
            sweep.outputs.append(value)

    def _fill(self, sweep: Sweep) -> None:
        """Finds the steps of a sweep, and asks other sweeps for their inputs."""
        steps: dict[int, Step] = {}
        gathered: dict[Value, None] = {}
        own: dict[Value, None] = {}
        of_edges: dict[Value, None] = {}
        edge_types: dict[Any, None] = {}
        ahead = [(value, 0) for value in reversed(sweep.outputs)]
        seen: set[tuple[Value, int]] = set()
        while ahead:
            value, reach = ahead.pop()
            if (value, reach) in seen:
                continue
            seen.add((value, reach))
            if value in self._reading.attrs:
                kept = of_edges if value.space.of_edges else gathered if reach else own
                kept[value] = None
            elif not value.space.of_edges and self._is_read(value, sweep):
                (gathered if reach else own)[value] = None
                self._demand(value)
            else:
                step = self._maker_of(value)
                steps[self._places[id(step)]] = step
                ahead += self._inputs(step, value)
                if isinstance(step.about, Plan):
                    edge_types.update(dict.fromkeys(_edge_types(step, value)))
        sweep.steps = [steps[place] for place in sorted(steps)]
        sweep.gathered, sweep.of_edges, sweep.edge_types = [*gathered], [*of_edges], [*edge_types]
        sweep.own = [value for value in own if value not in gathered]

    def _is_read(self, value: Value, sweep: Sweep) -> bool:
        """Whether a sweep reads a value; what functions make of others is computed again."""
        is_convolved = isinstance(self._maker_of(value).about, Plan)
        return self._level[value] < sweep.level and (value in self._gathered or is_convolved)


def _edge_types(step: Step, made: Value) -> list[Any]:
    """Types of the edges that a convolution looks at for one of its results."""
    by_type = step.call.get("edge_index_dict")
    if by_type is None:
        return [step.about.edge_type]
    return [name for name in by_type if name[2] == made.space.name]


class Replay:
    """Computes a sweep's values for some of its nodes.

    Args:
        sweep: The sweep.
    """

    def __init__(self, sweep: Sweep) -> None:
        self.sweep = sweep
        self._dropped: list[set[Value]] = []
        used = set(sweep.outputs)
        for step in reversed(sweep.steps):  # values that no later step takes
            self._dropped.insert(0, {value for _, value in step.inputs} - used)
            used |= self._dropped[0]

    def __call__(self, rows: dict[Value, Tensor], count: int, convolve: Convolve) -> list[Tensor]:
        """The rows of each output, on the CPU.

        Args:
            rows: Rows of the values that are read, those of the sweep's nodes first. Is changed.
            count: How many nodes of the sweep there are.
            convolve: Computes convolutions.
        """

        def own(value: Value) -> Tensor:
            found = rows[value]
            if value.space.of_edges or found.size(value.dim) <= count:
                return found
            return found.narrow(value.dim, 0, count)

        for step, dropped in zip(self.sweep.steps, self._dropped, strict=True):
            if isinstance(step.about, Plan):
                rows.update(convolve(step, rows))
            else:
                leaves, structure = [*step.call[0]], step.call[1]
                for at, value in step.inputs:
                    leaves[at] = own(value).clone() if at in step.writes else own(value)
                args, kwargs = tree_unflatten(leaves, structure)
                out = step.func(*args, **kwargs)
                made = out if isinstance(out, list | tuple) else (out,)
                rows.update(zip(step.outputs, made, strict=True))
            for value in dropped:
                rows.pop(value, None)
        return [own(value).cpu() for value in self.sweep.outputs]
