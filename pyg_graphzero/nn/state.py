"""A model as it stands: its settings, its copy, and its state put back.

A program (``program.py``) holds for one fingerprint of a model: classes of its layers, their modes,
hooks and settings. It is learned on a copy, so that learning changes nothing of the model.
"""

from __future__ import annotations

import copy
import functools
import random
from collections import OrderedDict
from types import FunctionType, MethodType
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader, Dataset
from torch_geometric.data import FeatureStore, GraphStore
from torch_geometric.data.data import BaseData
from torch_geometric.nn import MessagePassing

from pyg_graphzero.nn.kinds import HOOKS, STEP_HOOKS
from pyg_graphzero.nn.small import tensors_in

Copied = TypeVar("Copied")

#: Bytes of a tensor above which a copy of a model shares it, and may not write to it.
LARGE = 16 << 20

_GLOBAL_HOOKS = tuple(getattr(torch.nn.modules.module, f"_global{name}") for name in HOOKS)

_SETTINGS = frozenset((bool, int, float, str))
_SIZED = frozenset((dict, OrderedDict, list, tuple))
_CONTAINERS = frozenset((list, dict, set))
_FUNCTIONS = frozenset((FunctionType, MethodType))
# Objects that are as large as a graph; a forward pass reads them.
_DATA = (BaseData, FeatureStore, GraphStore, Dataset, DataLoader)


def fingerprint(model: torch.nn.Module) -> tuple[tuple[Any, ...], list[torch.nn.Module]]:
    """Facts about a model that a program rests on, and the modules that it numbers.

    Two passes of one fingerprint have the same modules in the same places: of the same classes, in
    the same modes, with the same hooks; convolutions with the same settings.
    """
    found: list[Any] = []
    for hooks in _GLOBAL_HOOKS:
        if hooks:
            found.extend(map(id, hooks.values()))
    modules = [model]
    for module in modules:  # grows
        own = module.__dict__
        found += module.__class__, own["training"], own.get("forward")
        for name in HOOKS:
            if own[name]:
                found.extend(map(id, own[name].values()))
        children = own["_modules"]
        if children:
            modules.extend([child for child in children.values() if child is not None])
        if isinstance(module, MessagePassing):
            for value in own.values():
                kind = value.__class__
                if kind in _SETTINGS:
                    found.append(value)
                elif kind in _SIZED:
                    found.append(len(value))
                elif kind in _FUNCTIONS:
                    found.append(id(value))
    return tuple(found), modules


def why_untouched(model: torch.nn.Module) -> str | None:
    """Why a model runs as it is, whatever its forward pass does; None: no reason.

    A hook, or a step that one object has of its own, is to see all rows of a batch, and none of
    another graph; and a function may refer to a model of which there is now a copy.
    """
    for hooks in _GLOBAL_HOOKS:
        for hook in hooks.values():
            if not _is_of_torch(hook):
                return f"{_name_of(hook)} is a hook of all modules, and sees all rows"
    for name, module in model.named_modules():
        where = name or "model"
        for key, value in vars(module).items():
            # Hooks of the model itself see its arguments and its result.
            is_hooked = key in HOOKS and module is not model
            is_hooked |= isinstance(module, MessagePassing) and key in STEP_HOOKS
            for hook in value.values() if is_hooked else ():
                if not _is_of_torch(hook):
                    return f"{where} has a hook, {_name_of(hook)}, that sees all rows"
            is_function = type(value) in (*_FUNCTIONS, functools.partial)
            if not is_function or not hasattr(type(module), key) or _is_of_torch(value):
                continue
            if getattr(value, "__self__", None) is not module:
                return f"{where} has a {key} of its own, {_name_of(value)}"
        if isinstance(module, MessagePassing) and module.explain:
            return f"{where} is being explained"
    return None


def _is_of_torch(function: Any) -> bool:
    while isinstance(function, functools.partial):
        function = function.func
    function = getattr(function, "__func__", function)
    module = getattr(function, "__module__", None) or type(function).__module__
    return str(module).split(".")[0] in ("torch", "torch_geometric")


def _name_of(function: Any) -> str:
    return getattr(function, "__qualname__", type(function).__name__)


class RandomState:
    """States of the generators that a forward pass may draw from.

    Args:
        is_cuda: Whether it may draw on a GPU.
    """

    def __init__(self, is_cuda: bool) -> None:
        self._torch = torch.get_rng_state()
        self._cuda = torch.cuda.get_rng_state() if is_cuda else None
        self._python, self._numpy = random.getstate(), np.random.get_state()

    def restore(self) -> None:
        """Puts them back."""
        torch.set_rng_state(self._torch)
        if self._cuda is not None:
            torch.cuda.set_rng_state(self._cuda)
        random.setstate(self._python)
        np.random.set_state(self._numpy)


class Before:
    """The state of a model, and of random numbers, before a forward pass, to be put back.

    Attributes of its modules, containers among these, and contents of buffers: large ones aside,
    which no program writes to.

    Args:
        modules: All of the model's.
        is_cuda: Whether the forward pass may draw on a GPU.
    """

    def __init__(self, modules: list[torch.nn.Module], is_cuda: bool) -> None:
        self.random = RandomState(is_cuda)
        self._attributes: list[tuple[Any, Any]] = []
        self._contents: list[tuple[Tensor, Tensor]] = []
        for module in modules:
            own = module.__dict__
            self._attributes.append((own, own.copy()))
            for value in own.values():
                if value.__class__ in _CONTAINERS:
                    self._attributes.append((value, value.copy()))
            buffers = own["_buffers"]
            if buffers:
                self._contents += [
                    (buffer, buffer.clone())
                    for buffer in buffers.values()
                    if buffer is not None and not _is_large(buffer)
                ]

    def restore(self) -> None:
        """Puts it back."""
        self.random.restore()
        for now, before in self._attributes:
            if isinstance(now, list):
                now[:] = before
            elif isinstance(now, set):
                now &= before
                now |= before
            else:
                for name in [name for name in now if name not in before]:
                    del now[name]
                now.update(before)
        with torch.no_grad():
            for buffer, content in self._contents:
                if torch.is_inference_mode_enabled() or not buffer.is_inference():
                    buffer.copy_(content)  # others cannot have been written to


def _is_large(tensor: Tensor) -> bool:
    return tensor.layout == torch.strided and tensor.nbytes > LARGE


class RefusedError(Exception):
    """A model does something else than was recorded of it, or may not be tried."""


class Sharing(TorchDispatchMode):
    """Copies of a model share its parameters and its large tensors, and write to none of these."""

    def __init__(self) -> None:
        super().__init__()
        self._shared: set[int] = set()

    def copied(self, holder: Copied, model: torch.nn.Module) -> Copied:
        """A copy of an object that refers to a model, and of the model.

        Raises:
            Exception: Any that copying raises.
        """
        memo: dict[int, Any] = {}
        for module in model.modules():
            for value in vars(module).values():
                if isinstance(value, _DATA):
                    memo[id(value)] = value
                    continue
                for _, tensor in tensors_in(value):
                    if type(tensor) in (Tensor, torch.nn.Parameter):
                        memo[id(tensor)] = self._copy_of(tensor)
        return copy.deepcopy(holder, memo)

    def _copy_of(self, tensor: Tensor) -> Tensor:
        is_parameter = isinstance(tensor, torch.nn.Parameter)
        out = tensor.detach()  # results of earlier passes cannot be copied otherwise
        if not is_parameter and not _is_large(tensor):
            out = out.clone()
        elif tensor.layout == torch.strided:
            self._shared.add(tensor.untyped_storage().data_ptr())
        # A leaf of its own: it gets no gradient of the model's, and has none of its hooks.
        of = tensor.requires_grad
        return torch.nn.Parameter(out, of) if is_parameter else out.requires_grad_(of)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        arguments = func._schema.arguments
        given = dict(zip((each.name for each in arguments), args, strict=False)) | kwargs
        written = [
            given.get(each.name)
            for each in arguments
            if each.alias_info is not None and each.alias_info.is_write
        ]
        for _, tensor in tensors_in(written):
            is_dense = tensor.layout == torch.strided
            if is_dense and tensor.untyped_storage().data_ptr() in self._shared:
                raise RefusedError(
                    f"it writes to its own parameters, or to a large tensor ({func})"
                )
        return func(*args, **kwargs)
