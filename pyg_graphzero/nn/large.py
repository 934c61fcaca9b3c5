"""Functions of torch that take long on large tensors of the CPU, computed in another way.

torch makes each result in memory that malloc fetches from the kernel and gives back. For tens of
megabytes, the page faults take as long as many functions do. Dropout of torch draws on one core.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from pyg_graphzero.nn import operators
from pyg_graphzero.nn.ops import dropout


def _is_large(rows: Tensor, size: int) -> bool:
    return rows.device.type == "cpu" and rows.is_floating_point() and size >= operators.LARGE


def _relu(input: Tensor, inplace: bool = False) -> Tensor:
    if inplace or not _is_large(input, input.nbytes):
        return F.relu(input, inplace)
    return operators.relu(input)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    are_matrices = input.dim() == weight.dim() == 2 and (bias is None or bias.dim() == 1)
    if not are_matrices or not _is_large(input, len(input) * len(weight) * input.itemsize):
        return F.linear(input, weight, bias)
    if torch.is_autocast_enabled("cpu") and input.dtype != torch.float64:
        dtype = torch.get_autocast_dtype("cpu")
        input, weight = input.to(dtype), weight.to(dtype)
        bias = None if bias is None else bias.to(dtype)
    if weight.dtype != input.dtype or (bias is not None and bias.dtype != input.dtype):
        return F.linear(input, weight, bias)  # says what does not fit
    return operators.product(input, weight, bias)


#: Faster function to call in place of a function of torch.
FASTER: dict[Any, Callable[..., Any]] = {
    F.dropout: dropout,
    F.relu: _relu,
    torch.relu: _relu,
    Tensor.relu: _relu,
    F.linear: _linear,
}
