"""Learning a forward pass: on copies of a model and a small graph, and then put to the test.

One copy is watched. Two more are run on the small graph, one as it is and one by the program. If
their outputs for the seeds differ, or the gradients of these, the model runs as it is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.nn import convs
from pyg_graphzero.nn.program import DivergedError, Program, Recorder
from pyg_graphzero.nn.small import SmallGraph, is_cuda, map_leaves, plain, tensors_in
from pyg_graphzero.nn.state import (
    LARGE,
    RandomState,
    RefusedError,
    Sharing,
    fingerprint,
    why_untouched,
)
from pyg_graphzero.sampling.hops import Hops, SampledEdgeIndex
from pyg_graphzero.sampling.inner_rows import InnerRows

# The Forward of accelerate.py, which imports this module.
Forward = Any
# Makes a tensor of another, given also the key under which it lies, if it lies under one.
Change = Callable[..., Tensor]

# Two computations of the same rows differ by no more than this, relatively.
_TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-3}
_ROUNDED = 5e-2  # to half precision on the way
# Share of a gradient's length that may differ; share of the longest one's that is rounding.
_GRADIENT, _NOISE = 5e-2, 1e-4


@dataclass(frozen=True)
class Refused:
    """A forward pass that runs as it is.

    Attributes:
        reason: The reason, in words.
        reduction: The loader's ``first_aggregation``, which the model cannot run with, if any.
    """

    reason: str
    reduction: str | None = None


def learn(forward: Forward, args: Any, kwargs: Any, hops: Hops) -> Program | Refused:
    """Learns what a model's forward pass does with rows.

    Args:
        forward: The model's forward pass.
        args: Arguments of a batch.
        kwargs: Named arguments of the batch.
        hops: Hops of the batch.
    """
    summed = [t for _, t in tensors_in((args, kwargs)) if isinstance(t, InnerRows)]
    reduction = summed[0].reduction if summed else None
    reason = why_untouched(forward.module)
    if reason is not None:
        return Refused(reason, reduction)
    before = RandomState(is_cuda((args, kwargs)))
    try:
        # checkpoint() would compute again the tensors that are saved for gradients here.
        saved = torch.autograd.graph.saved_tensors_hooks(_unchanged, _unchanged)
        with torch.inference_mode(False), saved:
            return _Lesson(forward, args, kwargs, hops).program()
    except (RefusedError, UnsupportedError) as error:
        return Refused(str(error), reduction)
    except DivergedError:
        return Refused("with fewer rows its forward pass takes another way", reduction)
    except Exception as error:
        # A model may do anything with a graph it was not made for.
        said = f"{type(error).__name__}: {error}"
        return Refused(f"on a small graph it raises {said}", reduction)
    finally:
        before.restore()
        # torch 2.4 would give weights cast here, without gradients, to runs with gradients.
        torch.clear_autocast_cache()


class _Lesson:
    """One forward pass, on a small graph.

    Args:
        forward: The model's forward pass.
        args: Arguments of a batch.
        kwargs: Named arguments of the batch.
        hops: Hops of the batch.
    """

    def __init__(self, forward: Forward, args: Any, kwargs: Any, hops: Hops) -> None:
        given = args, kwargs
        tensors = [tensor for _, tensor in tensors_in(given)]
        weights = [*forward.module.parameters(), *forward.module.buffers()]
        taken = {size for tensor in (*weights, *tensors) for size in tensor.shape}
        edges = next(tensor for tensor in tensors if isinstance(tensor, SampledEdgeIndex))
        self._forward = forward
        self._random = RandomState(is_cuda(given))
        self._device = edges.device.type
        self._small = SmallGraph(hops, taken, edges.device)
        self._given, self._rows = self._small.arguments(given, hops)
        pairs = zip(tensors_in(self._given), tensors, strict=True)
        self._summed = [(each, rows) for (_, each), rows in pairs if isinstance(rows, InnerRows)]

    def program(self) -> Program:
        """Learns the program.

        Raises:
            RefusedError: The model has to run as it is.
        """
        program = self._watched()
        try:
            # Gradients that are rounded, and mostly cancel out, differ by more than can be told.
            with torch.autocast(self._device, enabled=False):
                self._compare(program, _unrounded)
        except (RuntimeError, DivergedError):  # e.g. halves and floats, which autocast makes fit
            self._compare(program, _unchanged)
        return program

    def _run(
        self, run: Callable[[Forward, Any], Any], given: Any, change: Change
    ) -> tuple[Any, Any]:
        """Runs a copy of the model on arguments of its own.

        Args:
            run: Runs it.
            given: The arguments.
            change: Makes their tensors, and the copy's parameters and buffers.

        Returns:
            The result and the copy.
        """
        sharing = Sharing()
        try:
            copy = sharing.copied(self._forward, self._forward.module)
        except Exception as error:
            raise RefusedError(
                f"it cannot be copied, and is learned on a copy: {type(error).__name__}: {error}"
            ) from error
        for tensor in filter(_is_half, (*copy.module.parameters(), *copy.module.buffers())):
            tensor.data = change(tensor.data)
        self._random.restore()
        with sharing:
            return run(copy, map_leaves(given, change)), copy

    def _watched(self) -> Program:
        held: dict[str, Any] = {}  # a forward pass may write into its arguments

        def watch(copy: Forward, given: Any) -> Any:
            modules = fingerprint(copy.module)[1]
            recorder = Recorder(modules, copy.options, self._small.num_rows)
            held.update(recorder=recorder, given=given)
            for tensor, space in self._rows:
                recorder.track(tensor, space, False)
            with copy.watched_by(recorder):
                return copy.body(*given)

        tensors = [tensor for _, tensor in tensors_in(self._given)]
        versions = [tensor._version for tensor in tensors]
        with torch.no_grad():
            out, held["copy"] = self._run(watch, self._given, _unchanged)
        if versions != [tensor._version for tensor in tensors]:
            raise RefusedError("it writes to its arguments")
        recorder: Recorder = held["recorder"]
        summed = [(recorder.value_of(small), given.reduction) for small, given in self._summed]
        values = [recorder.value_of(tensor) for _, tensor in tensors_in(out)]
        held["others"] = map_leaves(out, lambda tensor, _: None)  # for kinds not looked into
        del out
        program = recorder.program(values, names_of(self._forward.module))
        if summed:
            reason = convs.why_not_summed(program, summed, self._small.hops.depth)
            if reason is not None:
                raise RefusedError(reason)
        return program

    def _compare(self, program: Program, change: Change) -> None:
        """Runs the model as it is and by the program, with tensors that were changed.

        Raises:
            RefusedError: The two runs differ.
        """
        with Comparable(self._forward.options.may_cut_norms):
            whole, its_copy = self._run(
                lambda copy, given: copy.body(*plain(given)), self._given, change
            )
            cut, copy = self._run(
                lambda copy, given: copy.run(
                    program, given, self._small.hops, fingerprint(copy.module)[1]
                ),
                self._small.with_sums(self._given, self._summed),
                change,
            )
        pairs = list(zip_longest(tensors_in(whole), tensors_in(cut), fillvalue=(None, None)))
        is_rounded = torch.is_autocast_enabled(self._device)
        outputs = [agreed(one, other, is_rounded) for (_, one), (_, other) in pairs]
        if torch.is_grad_enabled():
            ours = _gradients(copy, [other for _, other in outputs])
            theirs = _gradients(its_copy, [one for one, _ in outputs])
            program.idle = _idle(theirs, ours)


def _unchanged(tensor: Tensor, key: Any = None) -> Tensor:
    return tensor


def _is_half(tensor: Tensor) -> bool:
    return tensor.dtype in (torch.float16, torch.bfloat16) and tensor.nbytes <= LARGE


def _unrounded(tensor: Tensor, key: Any = None) -> Tensor:
    return tensor.float() if _is_half(tensor) else tensor


def names_of(model: torch.nn.Module) -> list[tuple[str, str]]:
    """Names and classes of a model's modules, by their numbers."""
    names = {module: name or "model" for name, module in model.named_modules()}
    return [(names[module], type(module).__name__) for module in fingerprint(model)[1]]


def agreed(whole: Tensor | None, cut: Tensor | None, is_rounded: bool) -> tuple[Tensor, Tensor]:
    """The rows that both tensors have.

    Raises:
        RefusedError: These rows differ by more than rounding.
    """
    differs = RefusedError("with fewer rows its outputs are others")
    if whole is None or cut is None or whole.dim() != cut.dim():
        raise differs
    whole = whole[tuple(map(slice, cut.shape))]
    error = _ROUNDED if is_rounded else _TOLERANCE.get(whole.dtype, _ROUNDED)
    error = error if whole.is_floating_point() else 0.0
    try:
        torch.testing.assert_close(cut, whole, rtol=error, atol=error, equal_nan=True)
    except AssertionError:
        raise differs from None
    return whole, cut


def _gradients(copy: Forward, outputs: list[Tensor]) -> list[Tensor | None]:
    """Gradients of a sum of outputs, by parameter; None if it has none, or is large."""
    parameters = list(copy.module.parameters())
    wanted = [p for p in parameters if p.requires_grad and p.nbytes <= LARGE]
    loss: Any = 0
    for out in outputs:
        if out.requires_grad and out.is_floating_point():
            waves = torch.arange(1, out.numel() + 1, device=out.device, dtype=torch.float32).sin()
            loss = loss + (out * waves.view_as(out).to(out.dtype)).float().sum()
    if not wanted or not isinstance(loss, Tensor):
        return []
    found = iter(torch.autograd.grad(loss, wanted, allow_unused=True))
    return [next(found) if p.requires_grad and p.nbytes <= LARGE else None for p in parameters]


def _idle(whole: list[Tensor | None], cut: list[Tensor | None]) -> list[int]:
    """Numbers of parameters whose gradient is zero as a whole, and missing where rows are cut.

    Raises:
        RefusedError: Another gradient differs.
    """
    lengths = [0.0 if grad is None else float(grad.float().norm()) for grad in whole]
    noise = _NOISE * max(lengths, default=0)
    idle = []
    for number, (one, other) in enumerate(zip_longest(whole, cut)):
        if one is not None and other is not None:
            error = float((one.float() - other.float()).norm())
            if error > _GRADIENT * lengths[number] + noise:
                raise RefusedError("with fewer rows its gradients are others")
        elif one is not None and not lengths[number]:
            idle.append(number)
        elif one is not other:
            raise RefusedError("with fewer rows a gradient is missing, or is there")
    return idle


class Comparable(TorchFunctionMode):
    """Nothing is dropped in this thread, so that runs over fewer rows can be compared.

    Args:
        skips_norms: Whether nothing is normalised over a batch either.
    """

    def __init__(self, skips_norms: bool = False) -> None:
        super().__init__()
        own = torch.ops.pyg_graphzero.dropout.default
        drops = (F.dropout, own, F.dropout1d, F.alpha_dropout, F.feature_alpha_dropout)
        self._skipped = (*drops, F.batch_norm) if skips_norms else drops

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        training = args[2] if len(args) > 2 else kwargs.get("training", True)
        if func in self._skipped and (func is not F.dropout or training):
            rows: Tensor = args[0] if args else kwargs["input"]
            return rows.clone()
        return func(*args, **kwargs)
