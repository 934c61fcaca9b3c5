"""Plain sums and means over neighbours as one product of a sparse matrix and rows.

Given ``edge_index``, a convolution copies a row for each edge and then adds the copies up: most of
its time, and memory for a message along each edge. Given a sparse matrix, PyG's convolutions of
this kind multiply instead. So edges are made a matrix where a convolution is about to send messages
along them: by then it has done everything else that it does with edges, such as counting them, and
it does not matter whether they are the batch's own.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import (
    GCNConv,
    LGConv,
    MessagePassing,
)
from torch_geometric.utils.sparse import index2ptr

from pyg_graphzero.inference.hop import is_grouped
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.inference.normalize import Normalization
from pyg_graphzero.inference.stack import Stack
from pyg_graphzero.nn.kinds import is_plain

# Those that do not look at rows again once messages have come.
_ENDS_WITH_MESSAGES = (GCNConv, LGConv)
_DTYPES = (torch.float32, torch.float64)
_DEVICES = ("cpu", "cuda")


class Fusion:
    """Has convolutions multiply where they can.

    Args:
        normalization: Knows the batch under way; None: there is none.
        stack: The layers.
    """

    def __init__(self, normalization: Normalization | None, stack: Stack) -> None:
        self._normalization = normalization
        self._stack = stack

    def teach(self, module: torch.nn.Module, modules: Modules) -> None:
        """Has a convolution that sums or averages rows do so, until ``modules`` is closed."""
        if not isinstance(module, MessagePassing) or not is_plain(module):
            return
        is_cut = module in self._stack.cut and type(module) in _ENDS_WITH_MESSAGES

        def give(module: Any, inputs: tuple[Any, Any, dict[str, Any]]) -> Any:
            edge_index, size, values = inputs
            if size is not None:
                return None
            x = values["x"]
            src, dst = x if isinstance(x, (tuple, list)) else (x, x)
            num_dst = len(src if dst is None else dst)
            if is_cut:
                hop = None if self._normalization is None else self._normalization.hop
                assert hop is not None
                num_dst = hop.num_dst
            matrix = adjacency(edge_index, values.get("edge_weight"), src, num_dst)
            return None if matrix is None else (matrix, None, values)

        modules.until_closed(module.register_propagate_forward_pre_hook(give))


def adjacency(edge_index: Any, weight: Tensor | None, x: Tensor, num_dst: int) -> Tensor | None:
    """The matrix that, times ``x``, sums what comes along edges.

    Args:
        edge_index: ``[2, num_edges]``. Best grouped by ascending destination, as batches of a
            ``SweepLoader`` are; otherwise they are sorted.
        weight: One number an edge; None: ones.
        x: What it will be multiplied with, ``[num_src, width]``.
        num_dst: How many rows it shall have.

    Returns:
        CSR, ``[num_dst, num_src]``; None where edges are to be left as they are: there are none,
        they are no plain ``int64`` tensor, they lead to rows that are not there (PyG says so best),
        or the product would not be of the same dtype, have a gradient, or not exist.
    """
    if (
        type(edge_index) is not Tensor
        or edge_index.layout != torch.strided
        or edge_index.dtype != torch.int64
    ):
        return None
    num_edges = edge_index.size(1)
    if (
        num_edges == 0
        or x.dim() != 2
        or x.dtype not in _DTYPES
        or (torch.is_grad_enabled() and x.requires_grad)
        or x.device.type not in _DEVICES
        or torch.is_autocast_enabled(x.device.type)
    ):
        return None
    if weight is not None and (
        weight.numel() != num_edges
        or (torch.is_grad_enabled() and weight.requires_grad)
        or torch.promote_types(weight.dtype, x.dtype) != x.dtype
    ):
        return None
    src, dst = edge_index
    values = x.new_ones(num_edges) if weight is None else weight.reshape(-1).to(x.dtype)
    if not is_grouped(dst):
        dst, order = dst.sort(stable=True)
        src, values = src[order], values[order]
    least, most = (int(end) for end in src.aminmax())
    if min(least, int(dst[0])) < 0 or most >= len(x) or int(dst[-1]) >= num_dst:
        return None
    return _matrix(index2ptr(dst, num_dst), src.contiguous(), values.contiguous(), len(x))


def _matrix(ends: Tensor, src: Tensor, values: Tensor, num_src: int) -> Tensor:
    with warnings.catch_warnings():
        # Said once in a process, of what PyG is built upon.
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta", UserWarning)
        return torch.sparse_csr_tensor(
            ends,
            src,
            values,
            size=(len(ends) - 1, num_src),
            # They would refuse two edges between the same nodes.
            check_invariants=False,
        )
