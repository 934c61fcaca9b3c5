"""A model's forward pass as a list of steps, learned from one run and repeated with fewer rows.

A copy of the model is run on a small graph and watched through torch's function modes: every call
of a function, and of a convolution, is a step. From the last step back to the first, it then
follows how many hops of rows each step has to make for the seeds. Later the model itself is run,
and its tensors are cut to these hops before each step.

A forward pass may leave rows elsewhere than in its result. Tensors that are still alive when the
result is gone show this: such rows are made for all nodes.
"""

from __future__ import annotations

import gc
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_unflatten

from pyg_graphzero.nn.large import FASTER
from pyg_graphzero.nn.rules import (
    Call,
    Options,
    Space,
    Use,
    Value,
    dim_after,
    keeps_order,
    looks_at_arguments,
    row_dim,
    takes_prefix,
    use_of,
)
from pyg_graphzero.sampling.hops import ALL, Hops, SampledEdgeIndex
from pyg_graphzero.sampling.inner_rows import InnerRows

_NO_SIZE = -2
# Place of a tensor among the arguments of a call, lists and dictionaries in them taken apart; its
# name and that of its type among those of a module.
Path = Any


class DivergedError(Exception):
    """A forward pass took another way than the one that was learned."""


@dataclass
class Step:
    """One call of a function or module.

    Attributes:
        func: The function; the number of a convolution, which is called whole.
        inputs: Tensors with rows among its arguments.
        use: Its use of their rows, one of :class:`Use`.
        outputs: Results that have rows.
        reach: Hops that a module looks further than its outputs, by input; empty for a function.
        about: Plan of a module's computation.
        paths: Places of all tensors among the arguments of a function.
        shape: Arguments of a function that changes dimensions.
        call: Its arguments, with values in place of rows, if they are recorded: those of a function
            taken apart, and their structure; those of a module by name.
        writes: Places of rows among these that a function writes to.
    """

    func: Any
    inputs: list[tuple[Path, Value]]
    use: str
    outputs: list[Value]
    reach: list[int] = field(default_factory=list)
    about: Any = None
    paths: tuple[Path, ...] = ()
    shape: Any = None
    call: Any = None
    writes: tuple[Path, ...] = ()

    @property
    def name(self) -> str:
        """Name of the function."""
        name = getattr(self.func, "__name__", str(self.func))
        owner = getattr(getattr(self.func, "__self__", None), "__name__", None)
        return f"{owner} of a tensor" if name == "__get__" and owner else name

    @property
    def need(self) -> int:
        """Hops of its outputs that later steps use."""
        return max((value.need for value in self.outputs), default=0)

    def wanted(self, number: int) -> int:
        """Hops of input ``number`` that this step needs."""
        if self.use == Use.ALL:
            return ALL
        if self.use == Use.ROWS:
            return min(ALL, self.need + (self.reach[number] if self.reach else 0))
        return 0


@dataclass
class Program:
    """The steps of a forward pass.

    Attributes:
        steps: The steps, in order.
        outputs: Tensors that the model returns, ``None`` for one without rows.
        kept: Rows that it leaves elsewhere than in its result.
        names: Names and classes of the model's modules, by their numbers.
        idle: Numbers of parameters that only rows of other nodes depend on: their gradient is
            zero.
    """

    steps: list[Step]
    outputs: list[Value | None]
    kept: list[Value] = field(default_factory=list)
    names: list[tuple[str, str]] = field(default_factory=list)
    idle: list[int] = field(default_factory=list)

    def name(self, step: Step) -> str:
        """Name of a step's function, or of its module."""
        return self.names[step.func][0] if isinstance(step.func, int) else step.name

    def settle(self) -> None:
        """Finds out how many hops of every step are used."""
        for kept in self.kept:
            kept.need = ALL
        for value in self.outputs:
            if value is not None:
                value.need = ALL if value.space.of_edges else value.need
        for step in reversed(self.steps):
            need = step.need
            for value in step.outputs:
                value.need = need
            for number, (_, value) in enumerate(step.inputs):
                value.need = max(value.need, step.wanted(number))


def _places(leaves: list[Any]) -> tuple[int, ...]:
    return tuple(at for at, leaf in enumerate(leaves) if isinstance(leaf, Tensor))


class Watching(TorchFunctionMode, ABC):
    """Sees every function of torch that a forward pass calls, and modules that are called whole.

    Args:
        modules: All modules of the model.
        options: Facts that the forward pass may rely on.
    """

    def __init__(self, modules: list[torch.nn.Module], options: Options) -> None:
        super().__init__()
        self.options = options
        self.is_paused = False  # calls are no steps just now
        self.numbers = {id(module): number for number, module in enumerate(modules)}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.is_paused:
            return FASTER.get(func, func)(*args, **kwargs)
        return self.function(func, args, kwargs)

    @abstractmethod
    def function(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function of torch."""

    def call_of(self, step: Step, args: Any, kwargs: Any, leaves: list[Any], num_rows: int) -> Call:
        """A call of a step's function as rules look at it: with its arguments, taken apart too."""
        rows = dict(step.inputs)
        others = [leaves[at] for at in step.paths if at not in rows]
        tracked = [(leaves[at], value) for at, value in step.inputs]
        may_cut_norms = self.options.may_cut_norms
        return Call(step.func, args, kwargs, tracked, others, num_rows, may_cut_norms)


class Recorder(Watching):
    """Writes down the steps of a forward pass.

    Args:
        modules: All modules of the model.
        options: Facts that the forward pass may rely on.
        num_rows: Number of rows of each space in this run; no other dimension has that size.
        keeps_calls: Whether the arguments of steps are recorded, so that each can be called again
            by itself. Then a tensor that a step writes to has another value from there on, and
            steps that return their argument are left out.
    """

    def __init__(
        self, modules: list[torch.nn.Module], options: Options, num_rows: dict[Space, int],
        keeps_calls: bool = False,
    ) -> None:  # fmt: skip
        super().__init__(modules, options)
        self.num_rows = num_rows
        self.keeps_calls = keeps_calls
        self.spaces = {count: space for space, count in num_rows.items()}
        self.steps: list[Step] = []
        self._values: dict[int, Value] = {}
        self.seen: list[Any] = []  # results, alive so that no two tensors have one id()

    def track(self, tensor: Tensor, space: Space, is_made: bool, dim: int = 0) -> Value:
        """Follows the rows of a tensor, along a dimension, from now on."""
        self.seen.append(tensor)
        row = tensor.shape[:dim] + tensor.shape[dim + 1 :], tensor.dtype
        value = self._values[id(tensor)] = Value(space, dim, is_made, row)
        return value

    def value_of(self, tensor: Any) -> Value | None:
        """The value of a tensor; tracks one that came from elsewhere with all rows."""
        if not isinstance(tensor, Tensor):
            return None
        found = self._values.get(id(tensor))
        if found is None and tensor.dim() and not isinstance(tensor, SampledEdgeIndex):
            for size in tensor.shape:
                dim = row_dim(tensor, size)
                if size in self.spaces and dim is not None:
                    return self.track(tensor, self.spaces[size], False, dim)
        return found

    def function(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function and writes it down."""
        leaves, structure = tree_flatten((args, kwargs))
        places = _places(leaves)
        found = {at: self.value_of(leaves[at]) for at in places}
        rows = {at: value for at, value in found.items() if value is not None}
        taken_apart = ([rows.get(at, leaf) for at, leaf in enumerate(leaves)], structure)
        step = Step(func, [*rows.items()], Use.FREE, [], paths=places)
        step.call = taken_apart if self.keeps_calls else None
        if not rows:
            out = func(*args, **kwargs)
            self.seen.append(out)
            self.steps.append(step)
            return out
        space = step.inputs[0][1].space
        call = self.call_of(step, args, kwargs, leaves, self.num_rows[space])
        step.use = use_of(call) if all(v.space == space for v in rows.values()) else Use.ALL
        if self.keeps_calls and step.use == Use.ROWS and takes_prefix(call):
            step.use = Use.ALL  # in another run there are more rows
        versions = {at: leaves[at]._version for at in rows} if self.keeps_calls else {}
        out = func(*args, **kwargs)
        step.writes = tuple(at for at, count in versions.items() if leaves[at]._version != count)
        written = [leaves[at] for at in step.writes]
        if any(map(self._has_views, written)):
            step.use = Use.ALL
        for tensor in written:
            self._values.pop(id(tensor), None)
        outputs = self._outputs(out, call) if step.use == Use.ROWS else []
        if outputs is None:
            step.use = Use.ALL
        self.seen.append(out)
        step.outputs = outputs or []
        step.shape = (args[1:], kwargs) if keeps_order(func) else None
        known = rows.values()
        if not (self.keeps_calls and outputs and all(value in known for value in outputs)):
            self.steps.append(step)
        return out

    def _has_views(self, tensor: Tensor) -> bool:
        """Whether other tensors with rows lie in the same memory."""
        memory = tensor.untyped_storage().data_ptr()
        return any(
            other is not tensor
            and isinstance(other, Tensor)
            and id(other) in self._values
            and other.untyped_storage().data_ptr() == memory
            for other in self.seen
        )

    def _outputs(self, out: Any, call: Call) -> list[Value] | None:
        """Values of the results of a call that works row by row; None if one has no rows."""
        tensors = list(out) if isinstance(out, tuple | list) else [out]
        (_, value), found = call.first, []
        for item in tensors:
            if not isinstance(item, Tensor):
                return None
            known = self._values.get(id(item))
            if known is not None:  # in place
                found.append(known)
                continue
            dim = dim_after(call, item)
            if dim is None:
                return None
            found.append(self.track(item, value.space, True, dim))
        return found

    def module(self, step: Step, outputs: list[tuple[Tensor, Space]]) -> None:
        """Writes down a module that was called whole.

        Args:
            step: The call.
            outputs: Results with a row for each node or edge of a space, and that space.
        """
        is_made = step.use == Use.ROWS
        made = [self.track(tensor, space, is_made) for tensor, space in outputs]
        step.outputs = made if is_made else []
        step.call = step.call if self.keeps_calls else None
        self.steps.append(step)

    def program(self, outputs: list[Value | None], names: list[tuple[str, str]]) -> Program:
        """The program that was written down.

        REQUIRES: the caller has let go of the model's result.

        Args:
            outputs: Values of the tensors that the model returned; None for one without rows.
            names: Names and classes of the model's modules, by their numbers.
        """
        made = [
            (weakref.ref(tensor), self._values[id(tensor)])
            for tensor in self.seen
            if isinstance(tensor, Tensor) and id(tensor) in self._values
        ]
        self.seen.clear()
        self._values.clear()
        if any(ref() is not None and value.is_made for ref, value in made):
            gc.collect()  # garbage that refers to itself keeps nothing
        kept = [value for ref, value in made if ref() is not None and value.is_made]
        program = Program(self.steps, outputs, kept, names)
        program.settle()
        return program


class Runner(Watching):
    """Has a forward pass make only the rows that are needed.

    Args:
        modules: All modules of the model.
        options: Facts that the forward pass may rely on.
        program: The program that was learned.
        hops: Hops of the batch at hand.
    """

    def __init__(
        self, modules: list[torch.nn.Module], options: Options, program: Program, hops: Hops
    ) -> None:
        super().__init__(modules, options)
        self._program = program
        self._made: dict[int, Value] = {}
        self._at = 0
        self.hops = hops

    def _next(self, func: Any) -> Step:
        if self._at == len(self._program.steps) or self._program.steps[self._at].func != func:
            raise DivergedError
        self._at += 1
        return self._program.steps[self._at - 1]

    def next_module(self, module: torch.nn.Module) -> Step:
        """The next step, which calls ``module``.

        Raises:
            DivergedError: The next step is another one.
        """
        return self._next(self.numbers.get(id(module)))

    def expect(self, tensor: Any, value: Value) -> None:
        """Checks that a tensor is the one that an earlier step made for ``value``.

        Raises:
            DivergedError: It is another tensor.
        """
        if value.is_made and self._made.get(id(tensor)) is not value:
            raise DivergedError

    def made(self, tensors: Sequence[Any], values: Sequence[Value]) -> None:
        """Notes the results of a step."""
        if len(tensors) != len(values):
            raise DivergedError
        for tensor, value in zip(tensors, values, strict=True):
            self._made[id(tensor)] = value

    def count(self, value: Value, hop: int) -> int:
        """Number of rows of nodes or edges within ``hop`` hops."""
        space = value.space
        count = self.hops.num_edges if space.of_edges else self.hops.num_nodes
        return count(space.name, hop)

    def cut(self, tensor: Tensor, value: Value, hop: int) -> Tensor:
        """The rows of a tensor within ``hop`` hops, which come first."""
        count = self.count(value, hop)
        tensor = tensor.rows if isinstance(tensor, InnerRows) else tensor
        return tensor.narrow(value.dim, 0, count) if tensor.size(value.dim) > count else tensor

    def function(self, func: Any, args: Any, kwargs: Any) -> Any:
        """Calls a function with no more rows than it needs."""
        step = self._next(func)
        leaves, structure = tree_flatten((args, kwargs))
        if step.paths != _places(leaves):
            raise DivergedError
        for at, value in step.inputs:
            self.expect(leaves[at], value)
        if step.use != Use.ALL and step.inputs and looks_at_arguments(func):
            # A size among the arguments is no number of rows: on the small graph it was none.
            self._check(step, self.call_of(step, args, kwargs, leaves, _NO_SIZE))
        if step.inputs and step.use != Use.FREE:
            for number, (at, value) in enumerate(step.inputs):
                leaves[at] = self.cut(leaves[at], value, step.wanted(number))
            args, kwargs = tree_unflatten(leaves, structure)
        out = FASTER.get(func, func)(*args, **kwargs)
        if step.outputs:
            self.made(out if isinstance(out, tuple | list) else (out,), step.outputs)
        return out

    def _check(self, step: Step, call: Call) -> None:
        """Raises where arguments make another use of rows than those of the small graph did."""
        if use_of(call) != step.use:
            raise DivergedError
        if step.shape is not None and step.shape != (call.args[1:], call.kwargs):
            raise DivergedError
        if step.use == Use.PICK:
            for index in call.others:
                if index.numel():
                    least, most = index.aminmax()
                    if int(least) < 0 or int(most) >= self.count(call.first[1], 0):
                        raise DivergedError  # not the number of a seed

    def finish(self, outputs: list[Tensor]) -> None:
        """Checks that all steps were run, and that the results are those of the program.

        Raises:
            DivergedError: Steps are left, or a result is another.
        """
        if self._at != len(self._program.steps) or len(outputs) != len(self._program.outputs):
            raise DivergedError
        for tensor, value in zip(outputs, self._program.outputs, strict=True):
            if value is not None:
                self.expect(tensor, value)
