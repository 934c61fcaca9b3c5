"""A PyG model that computes what the seeds of a batch need, and nothing else."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import JumpingKnowledge, MessagePassing

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.nn import convs
from pyg_graphzero.nn.program import DivergedError, Program, Recorder, Runner
from pyg_graphzero.nn.small import (
    AmbiguousError,
    SmallGraph,
    hops_in,
    map_tensors,
    plain,
    space_of,
    tensors_in,
)
from pyg_graphzero.sampling.ahead import InnerRows
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex, want_hops

Model = TypeVar("Model", bound=torch.nn.Module)

# Two computations of the same rows differ by no more than this, relatively.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_ROUNDED = 5e-2  # to half precision on the way
_running = threading.local()


@dataclass(frozen=True)
class Options:
    """What a user allows.

    Attributes:
        may_cut_norms: Norms over a batch see fewer rows.
        local: Convolutions that look at a node and its in-edges alone.
    """

    may_cut_norms: bool
    local: tuple[type, ...]


@dataclass(frozen=True)
class Refused:
    """A forward pass that runs as it is.

    Attributes:
        reason: Why.
        ahead: What its batches were loaded with, which it cannot do at all with; None: nothing.
    """

    reason: str
    ahead: str | None = None


class Forward:
    """The ``forward`` of a model that was accelerated.

    Args:
        module: The model.
        options: What its user allows.
    """

    def __init__(self, module: torch.nn.Module, options: Options) -> None:
        self.module = module
        self.options = options
        self.own = _own_forward(module)
        self.learned: dict[Any, Program | Refused] = {}
        self.num_stock = 0

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._stock)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learned": {}}

    def _stock(self, *args: Any, **kwargs: Any) -> Any:
        if self.own is not None:
            return self.own(*args, **kwargs)
        return type(self.module).forward(self.module, *args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model."""
        hops = hops_in((args, kwargs)) if _watching() is None else None
        if hops is None:
            return self._body(args, kwargs)
        if any(map(torch.nn.parameter.is_lazy, self.module.parameters())):
            if any(isinstance(tensor, InnerRows) for _, tensor in tensors_in((args, kwargs))):
                raise UnsupportedError(
                    "model: found lazy layers (-1) and a batch loaded with ahead; run the model "
                    "once on a batch of a loader without ahead, which makes their parameters"
                )
            return self._as_it_is(args, kwargs)
        try:
            key = self._key(args, kwargs, hops)
            learned = self.learned.get(key)
            if learned is None:
                learned = self.learned[key] = self._learn(args, kwargs, hops)
        except AmbiguousError:
            return self._as_it_is(args, kwargs)
        if isinstance(learned, Refused):
            if learned.ahead is not None:
                raise UnsupportedError(
                    f"x: found features loaded with ahead={learned.ahead!r}; {learned.reason}; "
                    "otherwise load batches for this model without ahead"
                )
            return self._as_it_is(args, kwargs)
        states = _random_states(args, kwargs)
        try:
            return _run(self, learned, args, kwargs, hops)
        except DivergedError:
            self.learned[key] = Refused("forward does not do the same for every batch")
            _set_random_states(states)
            return self._as_it_is(args, kwargs)

    def _as_it_is(self, args: Any, kwargs: Any) -> Any:
        self.num_stock += 1
        return self._body(plain(args), plain(kwargs))

    def _body(self, args: Any, kwargs: Any) -> Any:
        """The model's own forward pass."""
        if isinstance(self.module, MessagePassing) and self.own is None:
            return ConvForward(self.module)(*args, **kwargs)
        return self._stock(*args, **kwargs)

    def _key(self, args: Any, kwargs: Any, hops: Hops) -> Any:
        """What tells one way through the model from another, before it is gone."""
        tensors = list(tensors_in((args, kwargs)))
        kinds = [
            (
                key,
                tensor.dtype,
                tensor.dim(),
                tensor.device.type,
                space_of(tensor, key, hops),
                getattr(tensor, "reduction", None),
            )
            for key, tensor in tensors
        ]
        return (
            tuple(kinds),
            tuple(_flags(args)),
            tuple((name, *_flags(value)) for name, value in kwargs.items()),
            tuple(module.training for module in self.module.modules()),
            hops.depth,
            tuple(name for name, counts in hops.nodes.items() if counts[0]),
            torch.is_grad_enabled(),
            any(torch.is_autocast_enabled(name) for name in {t.device.type for _, t in tensors}),
        )

    def _learn(self, args: Any, kwargs: Any, hops: Hops) -> Program | Refused:
        """Watches the model on a small graph, and tries what was learned there."""
        module = self.module
        taken = {
            size
            for tensor in (
                *module.parameters(),
                *module.buffers(),
                *(tensor for _, tensor in tensors_in((args, kwargs))),
            )
            for size in tensor.shape
        }
        device = next(
            tensor.device
            for _, tensor in tensors_in((args, kwargs))
            if isinstance(tensor, SampledEdgeIndex)
        )
        small = SmallGraph(hops, taken, device)
        (small_args, small_kwargs), rows = small.arguments((args, kwargs), hops)
        both = zip(tensors_in((small_args, small_kwargs)), tensors_in((args, kwargs)), strict=True)
        summed = [(each, given) for (_, each), (_, given) in both if isinstance(given, InnerRows)]
        ahead = summed[0][1].reduction if summed else None
        fewer_args, fewer_kwargs = small.taken_ahead((small_args, small_kwargs), summed)
        states = _random_states(args, kwargs)
        buffers = [(buffer, buffer.clone()) for buffer in module.buffers()]

        def restored(run: Any) -> Any:
            try:
                return run()
            finally:
                _set_random_states(states)
                # torch 2.4 would give what was cast here, without gradients, to runs with them.
                torch.clear_autocast_cache()
                with torch.no_grad():
                    for buffer, value in buffers:
                        buffer.copy_(value)

        recorder = Recorder(small.num_rows, self.options.may_cut_norms)
        for tensor, space in rows:
            recorder.track(tensor, space, False, 0)

        def watch() -> tuple[Any, Program]:
            with _watched(self, recorder), recorder:
                out = self._body(small_args, small_kwargs)
            return out, recorder.finish([tensor for _, tensor in tensors_in(out)])

        try:
            with torch.no_grad():
                _, program = restored(watch)
        except Exception as error:  # whatever a model does with a graph that is none of its own
            return Refused(f"on a small graph it raises {type(error).__name__}: {error}", ahead)
        if ahead is not None:
            values = [(recorder.value_of(small), given.reduction) for small, given in summed]
            names = {module: name or "model" for name, module in module.named_modules()}
            reason = convs.why_not_ahead(program, values, hops.depth, names)
            if reason is not None:
                return Refused(reason, ahead)
        if not any(step.about is not None and step.about.is_trimmed for step in program.steps):
            return program
        try:
            with torch.no_grad(), _Comparable(self.options.may_cut_norms):
                expected = restored(lambda: self._body(plain(small_args), plain(small_kwargs)))
                found = restored(lambda: _run(self, program, fewer_args, fewer_kwargs, small.hops))
        except Exception as error:
            return Refused(
                f"with fewer rows it raises {type(error).__name__}: {str(error) or 'diverged'}",
                ahead,
            )
        pairs = list(zip_longest(tensors_in(expected), tensors_in(found), fillvalue=(None, None)))
        is_rounded = torch.is_autocast_enabled(device.type)
        if not all(_agree(whole, cut, is_rounded) for (_, whole), (_, cut) in pairs):
            return Refused("with fewer rows its outputs are others", ahead)
        return program


def _agree(whole: Tensor | None, cut: Tensor | None, is_rounded: bool) -> bool:
    """Whether one output is the first rows of the other; or would be, but for rounding."""
    if whole is None or cut is None or whole.dim() != cut.dim() or whole.dtype != cut.dtype:
        return False
    for dim, size in enumerate(cut.shape):
        if size > whole.size(dim):
            return False
        whole = whole.narrow(dim, 0, size)
    if not whole.is_floating_point():
        return torch.equal(whole, cut)
    error = _ROUNDED if is_rounded else _TOLERANCE.get(whole.dtype, _ROUNDED)
    return torch.allclose(whole, cut, rtol=error, atol=error, equal_nan=True)


def _run(forward: Forward, program: Program, args: Any, kwargs: Any, hops: Hops) -> Any:
    runner = Runner(program, hops)
    with _watched(forward, runner), runner:
        out = forward._body(args, kwargs)
    runner.finish()
    values = iter(program.outputs)

    def cut(tensor: Tensor, key: Any) -> Tensor:
        value = next(values, None)
        if value is None or tensor.dim() <= value.dim:
            return tensor
        return runner.cut(tensor, value, value.need if value.space.of_edges else 0)

    return map_tensors(out, cut)


class ConvForward:
    """The ``forward`` of a convolution, or of what else is one step, of an accelerated model.

    Args:
        module: Which.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self.module = module

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(self._stock)

    def _stock(self, *args: Any, **kwargs: Any) -> Any:
        return type(self.module).forward(self.module, *args, **kwargs)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the module."""
        watching = _watching()
        if watching is None or watching.is_paused:
            if torch._C._current_graph_task_id() != -1 and hops_in((args, kwargs)) is not None:
                raise UnsupportedError(
                    f"{type(self.module).__name__}: found a part of an accelerated model under "
                    "checkpoint(), expected the whole of it: checkpoint(model, ...)"
                )
            return self._stock(*plain(args), **plain(kwargs))
        options = _running.forward.options

        def step() -> Any:
            given = self.module, self._stock, args, kwargs
            if isinstance(self.module, JumpingKnowledge):
                return convs.whole(watching, *given)
            if isinstance(watching, Recorder):
                return convs.record(watching, *given, options.local, options.may_cut_norms)
            return convs.run(watching, *given)

        return watching.paused(step)


def accelerate(
    model: Model, *, norms: str = "whole", local: tuple[type[torch.nn.Module], ...] = ()
) -> Model:
    """Has a PyG model compute what the seeds of a batch need, and nothing else.

    The model stays the same object with the same parameters, and is trained by the same loop. Given
    ``x`` and ``edge_index`` of a batch of ``pyg_graphzero.loader``, it returns rows of the seeds
    alone (``[num_seeds, ...]``, the first of those that it returned before), equal but for the
    order of sums; gradients likewise. Given anything else it does what it did, and where it cannot
    tell what is needed (``explain`` says so) it returns all rows as before: a loop that cuts the
    result, ``[:batch.batch_size]``, goes on doing so.

    Layers are trimmed to the hops that the next ones need (PyG's ``trim_to_layer``, found by
    itself), and the convolutions that ``explain`` names so add rows up without a message for each
    edge.

    Args:
        model: Any ``torch.nn.Module`` with convolutions; those it may not trim it leaves.
        norms: ``"whole"``: layers before a norm over the batch (``BatchNorm`` in training) are
            computed for all nodes, as before. ``"trimmed"``: its statistics are those of the
            rows that are needed, which changes results.
        local: Classes of convolutions, not PyG's, whose rows depend on a node and its in-edges
            alone: they are trimmed too.

    Returns:
        ``model``.

    Raises:
        TypeError: It is no ``torch.nn.Module``.
        ValueError: ``norms`` is something else.
        UnsupportedError: A TorchScript module.

    Warns:
        UserWarning: There is no convolution in it.

    Example:
        >>> model = gz.nn.accelerate(GraphSAGE(8, 16, num_layers=2, out_channels=3))
        >>> batch = next(iter(gz.loader.NeighborLoader(data, [4, 4], batch_size=10)))
        >>> model(batch.x, batch.edge_index).shape
        torch.Size([10, 3])
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: found {type(model).__name__}, expected a torch.nn.Module")
    if norms not in ("whole", "trimmed"):
        raise ValueError(f"norms={norms!r}: expected 'whole' or 'trimmed'")
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_torchdynamo_orig_callable"):
        raise UnsupportedError(
            f"model: found a {type(model).__name__}, expected the module it was made from"
        )
    if not any(isinstance(module, MessagePassing) for module in model.modules()):
        warnings.warn(
            f"model: found no convolution of PyG (MessagePassing) in {type(model).__name__}, so "
            "there is none to accelerate; layers in a plain list are not found, those in a "
            "torch.nn.ModuleList are",
            stacklevel=2,
        )
    want_hops()
    for module in model.modules():
        is_step = convs.is_whole_module(module) and _own_forward(module) is None
        if module is not model and is_step:
            module.forward = ConvForward(module)
    model.forward = Forward(model, Options(norms == "trimmed", tuple(local)))
    return model


def _own_forward(module: torch.nn.Module) -> Any:
    """What somebody gave this one object as ``forward``; None: it has that of its class."""
    found = vars(module).get("forward")
    if isinstance(found, Forward):
        return found.own
    return None if isinstance(found, ConvForward) else found


def _watching() -> Recorder | Runner | None:
    return getattr(_running, "watching", None)


@contextmanager
def _watched(forward: Forward, watching: Recorder | Runner) -> Iterator[None]:
    _running.forward, _running.watching = forward, watching
    try:
        yield
    finally:
        _running.forward = _running.watching = None


class _Comparable(torch.overrides.TorchFunctionMode):
    """Nothing is dropped in this thread, so that runs over fewer rows can be compared.

    Args:
        skips_norms: Nor is anything normalised over a batch.
    """

    def __init__(self, skips_norms: bool) -> None:
        super().__init__()
        own = torch.ops.pyg_graphzero.dropout.default
        drops = (F.dropout, own, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout)
        self._skipped = (*drops, F.batch_norm) if skips_norms else drops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in self._skipped:
            rows: Tensor = args[0] if args else (kwargs or {})["input"]
            return rows.clone()
        return func(*args, **(kwargs or {}))


def _flags(obj: Any) -> Iterator[Any]:
    if isinstance(obj, dict):
        for key, value in obj.items():
            yield key
            yield from _flags(value)
    elif isinstance(obj, list | tuple):
        for item in obj:
            yield from _flags(item)
    elif obj is None or isinstance(obj, bool | str):
        yield obj
    else:
        yield type(obj)


def _random_states(args: Any, kwargs: Any) -> list[Tensor]:
    states = [torch.get_rng_state()]
    if any(tensor.is_cuda for _, tensor in tensors_in((args, kwargs))):
        states.append(torch.cuda.get_rng_state())
    return states


def _set_random_states(states: list[Tensor]) -> None:
    torch.set_rng_state(states[0])
    if len(states) > 1:
        torch.cuda.set_rng_state(states[1])
