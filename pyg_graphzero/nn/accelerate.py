"""A PyG model that computes what the seeds of a batch need, and nothing else."""

from __future__ import annotations

import inspect
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.utils._pytree import tree_flatten
from torch_geometric.nn import JumpingKnowledge, MessagePassing

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.loader.first_aggregation import suit
from pyg_graphzero.nn import convs
from pyg_graphzero.nn.learn import Refused, learn
from pyg_graphzero.nn.program import DivergedError, Program, Recorder, Runner
from pyg_graphzero.nn.rules import Options
from pyg_graphzero.nn.small import (
    AmbiguousError,
    hops_in,
    is_cuda,
    map_leaves,
    plain,
    space_of,
    tensors_in,
)
from pyg_graphzero.nn.state import Before, fingerprint
from pyg_graphzero.sampling.hops import Hops, want_hops
from pyg_graphzero.sampling.inner_rows import InnerRows

Model = TypeVar("Model", bound=torch.nn.Module)

# Ways through a model that are learned; with more of them, the model runs as it is.
_MOST_WAYS = 64
_TOO_MANY = Refused("it is changed again and again, or called in ever new ways")
_running = threading.local()


class ConvForward:
    """The ``forward`` of a module that is one step of an accelerated model: a convolution, mostly.

    Args:
        module: The module.
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
        way: Any = convs.record if isinstance(watching, Recorder) else convs.run
        watching.is_paused = True  # calls within the module are no steps
        try:
            if isinstance(self.module, JumpingKnowledge):
                return watching.function(type(self.module).forward, (self.module, *args), kwargs)
            return way(watching, self.module, self._stock, args, kwargs)
        finally:
            watching.is_paused = False


class Forward(ConvForward):
    """The ``forward`` of a model that was accelerated.

    Args:
        module: The model.
        options: Permissions of its user.
    """

    def __init__(self, module: torch.nn.Module, options: Options) -> None:
        super().__init__(module)
        self.options = options
        self.own = _own_forward(module)
        self.learned: dict[Any, Program | Refused] = {}
        self.num_stock = 0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "learned": {}}

    def _stock(self, *args: Any, **kwargs: Any) -> Any:
        return (self.own or super()._stock)(*args, **kwargs)

    @torch.compiler.disable  # type: ignore[untyped-decorator]
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the model."""
        hops = hops_in((args, kwargs)) if _watching() is None else None
        if hops is None:
            return self.body(args, kwargs)
        is_lazy = any(map(torch.nn.parameter.is_lazy, self.module.parameters()))
        if is_lazy and any(isinstance(t, InnerRows) for _, t in tensors_in((args, kwargs))):
            raise UnsupportedError(
                "model: found lazy layers (-1) and a batch loaded with first_aggregation; run the "
                "model once on a batch without, which makes their parameters"
            )
        if is_lazy or _is_transformed() or torch._C._is_tracing():
            return self._as_it_is(args, kwargs)
        try:
            way = self._key(args, kwargs, hops)
            facts, modules = fingerprint(self.module)
            if (facts, way) not in self.learned and make_steps(self.module):  # a layer was replaced
                facts, modules = fingerprint(self.module)
            key = facts, way
            if key not in self.learned and len(self.learned) < _MOST_WAYS:
                self.learned[key] = learn(self, args, kwargs, hops)
            learned = self.learned.get(key, _TOO_MANY)
        except AmbiguousError:
            return self._as_it_is(args, kwargs)
        if isinstance(learned, Refused):
            if learned.reduction is not None:
                raise UnsupportedError(
                    f"x: found features loaded with first_aggregation={learned.reduction!r}; "
                    f"{learned.reason}; otherwise load batches for this model without"
                )
            return self._as_it_is(args, kwargs)
        before = Before(modules, is_cuda((args, kwargs)))
        given = map_leaves((args, kwargs), lambda tensor, _: tensor)
        try:
            return self.run(learned, (args, kwargs), hops, modules)
        except DivergedError:
            self.learned[key] = Refused("forward does not do the same for every batch")
            before.restore()
            return self._as_it_is(*given)

    def can_run(self, *args: Any) -> bool:
        """Whether the model computes by a program what seeds need of such arguments."""
        hops = hops_in(args)
        return hops is not None and isinstance(learn(self, args, {}, hops), Program)

    def _as_it_is(self, args: Any, kwargs: Any) -> Any:
        self.num_stock += 1
        return self.body(plain(args), plain(kwargs))

    def body(self, args: Any, kwargs: Any) -> Any:
        """The model's own forward pass."""
        if isinstance(self.module, MessagePassing) and self.own is None:
            return ConvForward(self.module)(*args, **kwargs)
        return self._stock(*args, **kwargs)

    @contextmanager
    def watched_by(self, watching: Recorder | Runner) -> Iterator[None]:
        """Within it, this thread's functions and convolutions are steps of a program."""
        _running.watching = watching
        try:
            with watching:
                yield
        finally:
            _running.watching = None

    def run(self, program: Program, given: Any, hops: Hops, modules: list[torch.nn.Module]) -> Any:
        """Runs the model's forward pass with no more rows than it needs.

        Raises:
            DivergedError: The forward pass takes another way than the program.
        """
        runner = Runner(modules, self.options, program, hops)
        with self.watched_by(runner):
            out = self.body(*given)
        runner.finish([tensor for _, tensor in tensors_in(out)])
        values = iter(program.outputs)
        idle: list[torch.nn.Parameter] = []
        if program.idle and torch.is_grad_enabled():
            parameters = list(self.module.parameters())
            idle = [parameters[number] for number in program.idle]

        def cut(tensor: Tensor, key: Any) -> Tensor:
            value = next(values, None)
            if value is not None and tensor.dim() > value.dim:
                tensor = runner.cut(tensor, value, value.need if value.space.of_edges else 0)
            if idle and tensor.requires_grad:  # a gradient of zero, which is not missing
                tensor = tensor + torch.cat([p.flatten()[:0] for p in idle]).sum().to(tensor)
            return tensor

        return map_leaves(out, cut)

    def _key(self, args: Any, kwargs: Any, hops: Hops) -> Any:
        """Key of the way that arguments take through the model, known before the model runs."""
        tensors = list(tensors_in((args, kwargs)))
        leaves, structure = tree_flatten((args, kwargs))
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
            tuple(leaf if isinstance(leaf, bool | str | None) else type(leaf) for leaf in leaves),
            str(structure),
            hops.depth,
            tuple(name for name, counts in hops.nodes.items() if counts[0]),
            torch.is_grad_enabled(),
            any(torch.is_autocast_enabled(name) for name in {t.device.type for _, t in tensors}),
        )


def _is_transformed() -> bool:
    """Whether torch.func, or differentiation forward, has its own view of tensors."""
    return (
        torch._C._are_functorch_transforms_active() or torch.autograd.forward_ad._current_level >= 0
    )


def accelerate(
    model: Model, *, norms: str = "whole", local: tuple[type, ...] = (), loader: Any = None
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
        model: Any ``torch.nn.Module`` with convolutions; those that may not be trimmed stay whole.
        norms: ``"whole"``: layers before a norm over the batch (``BatchNorm`` in training) are
            computed for all nodes, as before. ``"trimmed"``: its statistics are those of the
            rows that are needed, which changes results.
        local: Classes of convolutions, not PyG's, whose rows depend on a node and its in-edges
            alone: they are trimmed too.
        loader: A loader of this package whose batches train the model, called as
            ``model(x, edge_index)`` (dictionaries of both by type): where the first layer takes
            the mean or sum of neighbours' features, ``loader.first_aggregation`` is set to that;
            where it does not, or the batches do not allow it, to None.

    Returns:
        ``model``.

    Raises:
        TypeError: ``model`` is no ``torch.nn.Module``, or ``loader`` none of this package.
        ValueError: ``norms`` is neither ``"whole"`` nor ``"trimmed"``.
        UnsupportedError: ``model`` is a TorchScript or compiled module.

    Warns:
        UserWarning: ``model`` has no convolution.

    Example:
        >>> import torch, pyg_graphzero as gz
        >>> from torch_geometric.nn import GraphSAGE
        >>> model = gz.nn.accelerate(GraphSAGE(4, 16, num_layers=2, out_channels=3))
        >>> seeds = torch.tensor([2])
        >>> (batch,) = gz.loader.NeighborLoader(gz.open(example_store), [4, 4], seeds)
        >>> model(batch.x, batch.edge_index).shape
        torch.Size([1, 3])
    """
    check_model(model)
    if norms not in ("whole", "trimmed"):
        raise ValueError(f"norms={norms!r}: expected 'whole' or 'trimmed'")
    if isinstance(local, type) or not all(isinstance(each, type) for each in local):
        raise TypeError(f"local: found {local!r}, expected a tuple of classes, such as (MyConv,)")
    if not any(isinstance(module, MessagePassing) for module in model.modules()):
        warnings.warn(
            f"model: found no convolution of PyG (MessagePassing) in {type(model).__name__}, so "
            "there is none to accelerate; layers in a plain list are not found, those in a "
            "torch.nn.ModuleList are",
            stacklevel=2,
        )
    want_hops()
    make_steps(model)
    forward = model.forward = Forward(model, Options(norms == "trimmed", tuple(local)))
    if loader is not None:
        suit(loader, forward.can_run, next(model.parameters(), torch.empty(0)).device)
    return model


def check_model(model: Any) -> None:
    """Refuses models that cannot be recorded.

    Raises:
        TypeError: ``model`` is no ``torch.nn.Module``.
        UnsupportedError: ``model`` is a TorchScript or compiled module.
    """
    if not isinstance(model, torch.nn.Module):
        raise TypeError(f"model: found {type(model).__name__}, expected a torch.nn.Module")
    if isinstance(model, torch.jit.ScriptModule) or hasattr(model, "_torchdynamo_orig_callable"):
        raise UnsupportedError(
            f"model: found a {type(model).__name__}, expected the module it was made from"
        )


def make_steps(model: torch.nn.Module) -> bool:
    """Makes each convolution a step; returns whether one of them was not a step before."""
    new = [
        module
        for module in model.modules()
        if module is not model
        and isinstance(module, MessagePassing | JumpingKnowledge)
        and vars(module).get("forward") is None
    ]
    for module in new:
        module.forward = ConvForward(module)
    return bool(new)


def _own_forward(module: torch.nn.Module) -> Any:
    """The ``forward`` that was set on this one object; None if it has that of its class."""
    found = vars(module).get("forward")
    if isinstance(found, Forward):
        return found.own
    return None if isinstance(found, ConvForward) else found


def _watching() -> Recorder | Runner | None:
    return getattr(_running, "watching", None)
