"""Features of a batch whose loader took the first aggregation.

Features have no gradient, so sums over neighbours in a model's first layer are known before
the model is. A loader with ``first_aggregation`` adds them up while it gathers: a batch then has
rows of its inner nodes (nodes that were sampled before the last hop) and a sum for each of these.
It has no rows of the last hop.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.sampling.hops import KEEPING
from pyg_graphzero.store.schema import EdgeType

#: Aggregations that a loader may take.
REDUCTIONS = ("sum", "mean")

# Functions that return the same rows, in other memory; their sums go along.
_KEEPING = KEEPING | {Tensor.record_stream, Tensor.float}
# Types of facts about a tensor that do not depend on its numbers.
_FACTS = (bool, int, str, torch.Size, torch.dtype, torch.device, torch.layout, type(None))


class InnerRows(Tensor):
    """``x`` of a batch with first sums: ``[num_inner_nodes, num_features]``, and sums beside it.

    It can be moved and measured. Computing with it raises ``UnsupportedError``: an
    accelerated model takes it (``pyg_graphzero.nn.accelerate``), another one would miss the rows of
    the last hop.

    Attributes:
        sums: By edge type (None in a homogeneous graph): for each inner node that these edges lead
            to, the sum or mean of the rows of its sources.
        reduction: ``"sum"`` or ``"mean"``.
        node_type: Node type of the rows; None in a homogeneous graph.
    """

    sums: dict[EdgeType | None, Tensor]
    reduction: str
    node_type: str | None

    @staticmethod
    def of(
        rows: Tensor, sums: dict[EdgeType | None, Tensor], reduction: str, node_type: str | None
    ) -> InnerRows:
        """Rows of inner nodes with the given sums."""
        out = rows.as_subclass(InnerRows)
        out.sums, out.reduction, out.node_type = sums, reduction, node_type
        return out

    @property
    def rows(self) -> Tensor:
        """Rows of the inner nodes, as a plain tensor."""
        with torch._C.DisableTorchFunctionSubclass():
            return self.as_subclass(Tensor)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in _KEEPING and isinstance(args[0], InnerRows):
            me = args[0]
            made = [func(each, *args[1:], **kwargs) for each in (me.rows, *me.sums.values())]
            if made[0] is None:
                return None
            return cls.of(
                made[0], dict(zip(me.sums, made[1:], strict=True)), me.reduction, me.node_type
            )
        if func is Tensor.size and args[1:] == (-2,):  # so PyG's convolutions count nodes
            raise _refusal(func, (*args, *kwargs.values()))
        try:
            with torch._C.DisableTorchFunctionSubclass():
                out = func(*args, **kwargs)
        except (IndexError, RuntimeError) as error:
            raise _refusal(func, (*args, *kwargs.values())) from error
        if not isinstance(out, _FACTS):
            raise _refusal(func, (*args, *kwargs.values()))
        return out

    def __deepcopy__(self, memo: Any) -> Any:
        out = memo[id(self)] = self.clone()
        return out

    def __reduce_ex__(self, protocol: Any) -> Any:
        return InnerRows.of, (self.rows, self.sums, self.reduction, self.node_type)


def _refusal(func: Any, args: Any) -> UnsupportedError:
    reduction = next((arg.reduction for arg in args if isinstance(arg, InnerRows)), "sum")
    name = getattr(func, "__name__", str(func))
    if name == "__get__":
        name = getattr(getattr(func, "__self__", None), "__name__", name)
    return UnsupportedError(
        f"x: found {name!r} of the features of a batch loaded with "
        f"first_aggregation={reduction!r}, which have no rows of the last hop; expected a model "
        "from gz.nn.accelerate() whose first layer takes their sums, or a loader without "
        "first_aggregation (x.rows are those of the other hops)"
    )
