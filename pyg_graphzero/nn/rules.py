"""Rules for functions of torch: whether they use rows of nodes and edges one by one or together.

A rule looks at one call, in which some tensors have a row for each node (or edge), and says whether
a row of the result depends on the same row of these alone. A function without a rule is taken to
use all rows together.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import JumpingKnowledge


class Space(NamedTuple):
    """The nodes or edges that the rows of a tensor stand for.

    Attributes:
        of_edges: Whether rows stand for edges; else for nodes.
        name: Type of these nodes or edges; None in a homogeneous graph.
    """

    of_edges: bool
    name: Any


@dataclass(frozen=True)
class Options:
    """Facts that convolutions may rely on.

    Attributes:
        may_cut_norms: Whether norms over a batch may see fewer rows, as the user says.
        local: Classes of convolutions that look at a node and its in-edges alone, as the user says.
        has_degrees: Whether convolutions that normalise are given weights by degrees of the whole
            graph.
    """

    may_cut_norms: bool
    local: tuple[type, ...]
    has_degrees: bool = False


@dataclass(eq=False)
class Value:
    """A tensor of a forward pass with a row for each node or edge.

    Attributes:
        space: Nodes or edges that the rows stand for.
        dim: Dimension of the rows.
        is_made: Whether a step of the forward pass makes it; otherwise it comes with all rows.
        row: Shape and dtype of a row on the small graph.
        need: Hops of its rows that are used.
    """

    space: Space
    dim: int
    is_made: bool
    row: tuple[torch.Size, torch.dtype]
    need: int = 0


@dataclass(frozen=True)
class Call:
    """A call of a function.

    Attributes:
        func: The function.
        args: Arguments by position.
        kwargs: Arguments by name.
        tracked: Tensors with rows among the arguments, and their values.
        others: Other tensors among the arguments.
        num_rows: Number of rows of the tracked tensors.
        may_cut_norms: Whether the user lets norms over a batch see fewer rows.
    """

    func: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tracked: list[tuple[Tensor, Value]]
    others: list[Tensor]
    num_rows: int
    may_cut_norms: bool

    def argument(self, position: int, name: str, default: Any = None) -> Any:
        """An argument, given by position or by name."""
        return self.args[position] if len(self.args) > position else self.kwargs.get(name, default)

    @property
    def first(self) -> tuple[Tensor, Value]:
        """The first tensor with rows."""
        return self.tracked[0]

    def is_first(self) -> bool:
        """Whether the first argument is the only one with rows."""
        given = self.args[0] if self.args else self.kwargs.get("input")
        return len(self.tracked) == 1 and given is self.tracked[0][0]


class Use:
    """Ways in which a call uses rows."""

    ROWS = "rows"  # each row by itself
    PICK = "pick"  # some rows, by their numbers
    FREE = "free"  # does not look at rows
    ALL = "all"


Rule = Callable[[Call], str]


def _free(call: Call) -> str:
    return Use.FREE


def _move(call: Call) -> str:
    return Use.ROWS


def _elementwise(call: Call) -> str:
    ends = {tensor.dim() - value.dim for tensor, value in call.tracked}
    if len(ends) != 1:
        return Use.ALL
    end = ends.pop()
    if any(other.dim() >= end and other.size(-end) != 1 for other in call.others):
        return Use.ALL
    return Use.ROWS


def _product(call: Call) -> str:
    """Rule for a product of rows and a matrix."""
    if not call.is_first():
        return Use.ALL
    tensor, value = call.first
    return Use.ROWS if value.dim < tensor.dim() - 1 else Use.ALL


def _dims(call: Call, position: int, name: str, default: Any) -> list[int] | None:
    dims = call.argument(position, name, default)
    if dims is None or isinstance(dims, bool):
        return None
    dims = [dims] if isinstance(dims, int) else list(dims)
    if not dims or not all(isinstance(dim, int) for dim in dims):
        return None
    return [dim % call.first[0].dim() for dim in dims]


def _along(position: int, name: str = "dim", default: Any = None) -> Rule:
    """Rule for a function that works along dimensions; none of them may be that of the rows."""

    def rule(call: Call) -> str:
        if isinstance(call.argument(position, name), Tensor):
            return _elementwise(call)  # torch.max(a, b)
        if len(call.tracked) != 1:
            return Use.ALL
        dims = _dims(call, position, name, default)
        return Use.ALL if dims is None or call.first[1].dim in dims else Use.ROWS

    return rule


def _cat(call: Call) -> str:
    dims = _dims(call, 1, "dim", 0)
    same = all(value.dim == call.first[1].dim for _, value in call.tracked)
    if call.others or not same or dims is None or call.first[1].dim in dims:
        return Use.ALL
    return Use.ROWS


def _cell(call: Call) -> str:
    return Use.ROWS if all(value.dim == 0 for _, value in call.tracked) else Use.ALL


def _layer_norm(call: Call) -> str:
    shape = call.argument(1, "normalized_shape", ())
    tensor, value = call.first
    fits = call.is_first() and value.dim < tensor.dim() - len(tuple(shape))
    return Use.ROWS if fits else Use.ALL


def _batch_norm(call: Call) -> str:
    if call.argument(5, "training", False) and not call.may_cut_norms:
        return Use.ALL
    return Use.ROWS if call.is_first() and call.first[1].dim == 0 else Use.ALL


def _reshape(call: Call) -> str:
    sizes = [n for arg in call.args[1:] for n in (arg if isinstance(arg, tuple | list) else [arg])]
    _, value = call.first
    # A number of rows among the sizes would be wrong where there are fewer rows.
    return Use.ROWS if value.dim == 0 and call.num_rows not in sizes else Use.ALL


def _getitem(call: Call) -> str:
    index = call.args[1]
    _, value = call.first
    if not call.is_first():
        return Use.ALL
    if isinstance(index, Tensor):
        is_number = index.dtype in (torch.int64, torch.int32) and value.dim == 0
        return Use.PICK if is_number else Use.ALL
    item = _of_rows(call)
    return Use.ROWS if item == slice(None) or _is_prefix(item) else Use.ALL


def _of_rows(call: Call) -> Any:
    """The part of a subscript that is about rows; None where it is a tensor."""
    index = call.args[1]
    tensor, value = call.first
    items = list(index) if isinstance(index, tuple) else [index]
    if any(not isinstance(item, int | slice | type(None) | type(...)) for item in items):
        return None
    if ... in items:
        at = items.index(...)
        missing = tensor.dim() - sum(item is not None for item in items) + 1
        items[at : at + 1] = [slice(None)] * missing
    of_dims = [item for item in items if item is not None]
    return of_dims[value.dim] if value.dim < len(of_dims) else slice(None)


def takes_prefix(call: Call) -> bool:
    """Whether a call takes the first rows, ``tensor[:n]``."""
    return call.func is Tensor.__getitem__ and _of_rows(call) != slice(None)


def _is_prefix(item: Any) -> bool:
    return (
        isinstance(item, slice)
        and item.start in (None, 0)
        and item.step in (None, 1)
        and isinstance(item.stop, int)
        and item.stop >= 0
    )


def _index_select(call: Call) -> str:
    dims = _dims(call, 1, "dim", None)
    if not call.is_first() or dims is None:
        return Use.ALL
    return Use.PICK if call.first[1].dim in dims else Use.ROWS


def _size(call: Call) -> str:
    dims = _dims(call, 1, "dim", None)
    return Use.ALL if dims is None or call.first[1].dim in dims else Use.FREE


def _one_hot(call: Call) -> str:
    return Use.ROWS if call.argument(1, "num_classes", -1) != -1 else Use.ALL


_ELEMENTWISE = """
    abs add addcdiv addcmul atan ceil celu clamp clamp_max clamp_min clip clone contiguous cos cosh
    deg2rad detach div divide dropout elu eq erf erfc exp exp2 expm1 fill float_power floor
    floor_divide fmax fmin fmod ge gelu glu gt hardsigmoid hardswish hardtanh heaviside hypot
    isfinite isinf isnan le leaky_relu lerp log log10 log1p log2 logaddexp logical_and logical_not
    logical_or logical_xor logit logsigmoid lt masked_fill maximum minimum mish mul multiply
    nan_to_num ne neg negative ones_like positive pow prelu reciprocal relu relu6 remainder round
    rrelu rsqrt rsub selu sigmoid sign silu sin sinh softplus softshrink softsign sqrt square sub
    subtract tan tanh tanhshrink threshold true_divide trunc where xlogy zeros_like alpha_dropout
    to type type_as float double half bfloat16 long int bool cpu cuda requires_grad_
    __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__
    __rtruediv__ __itruediv__ __pow__ __rpow__ __ipow__ __neg__ __pos__ __abs__ __and__ __or__
    __xor__ __invert__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __floordiv__ __mod__
"""
_FREE = (
    "dim ndimension is_floating_point is_complex is_signed element_size get_device is_contiguous"
)
_FREE_PROPERTIES = """
    ndim dtype device layout is_cuda is_cpu is_sparse is_quantized is_meta is_nested is_leaf names
    requires_grad grad_fn is_mkldnn is_xpu is_mps
"""
_ALONG_SECOND = """
    sum mean prod max min amax amin aminmax std var median logsumexp softmax log_softmax argmax
    argmin any all cumsum cumprod unbind softmin sort argsort flip
"""
# Position of the argument that gives the dimension, and its default.
_ALONG: dict[str, tuple[int, Any]] = {
    **dict.fromkeys(_ALONG_SECOND.split(), (1, None)),
    "norm": (2, None),
    "vector_norm": (2, None),
    "normalize": (2, 1),
    "topk": (2, -1),
    "chunk": (2, 0),
    "split": (2, 0),
    "tensor_split": (2, 0),
}
_RESHAPES = ("view", "reshape", "flatten", "unflatten")
_MOVES = ("unsqueeze", "squeeze", "transpose", "permute", "movedim", "swapaxes")


def _rules() -> dict[Any, Rule]:
    found: dict[Any, Rule] = {}

    def add(names: Iterable[str], rule: Rule, *places: Any) -> None:
        for name in names:
            for place in places or (torch, Tensor, F):
                for spelled in (name, name + "_"):
                    func = getattr(place, spelled, None)
                    if callable(func):
                        found.setdefault(func, rule)

    for name, (position, default) in _ALONG.items():
        add([name], _along(position, default=default), torch, Tensor, F, torch.linalg)
    found[torch.linalg.vector_norm] = found[torch.linalg.norm] = _along(2)
    add(["linear"], _product, F)
    add(["matmul", "mm", "__matmul__"], _product)
    add(["cat", "concat", "concatenate"], _cat, torch)
    add(["stack", "gru_cell", "lstm_cell", "rnn_tanh_cell", "rnn_relu_cell"], _cell, torch)
    found[JumpingKnowledge.forward] = _cell
    add(["layer_norm", "rms_norm"], _layer_norm)
    add(["batch_norm"], _batch_norm, F)
    add(_RESHAPES, _reshape)
    add(_MOVES, _move)
    add(["__getitem__"], _getitem, Tensor)
    add(["index_select"], _index_select)
    add(["embedding"], lambda call: Use.ROWS if call.is_first() else Use.ALL, F)
    add(["one_hot"], _one_hot, F)
    add(["size"], _size, Tensor)
    add(_FREE.split(), _free, Tensor)
    add(_ELEMENTWISE.split(), _elementwise)
    for name in _FREE_PROPERTIES.split():
        getter = getattr(getattr(Tensor, name, None), "__get__", None)
        if getter is not None:
            found[getter] = _free
    return found


RULES = _rules()


def use_of(call: Call) -> str:
    """The way in which a call uses the rows that it is given, one of :class:`Use`."""
    rule = RULES.get(call.func)
    return Use.ALL if rule is None else rule(call)


def row_dim(tensor: Tensor, num_rows: int) -> int | None:
    """The one dimension with ``num_rows`` entries; None if there is none, or several."""
    dims = [dim for dim, size in enumerate(tensor.shape) if size == num_rows]
    return dims[0] if len(dims) == 1 else None


def looks_at_arguments(func: Any) -> bool:
    """Whether a function's rule depends on more than the shapes of tensors."""
    return RULES.get(func) not in (None, _elementwise, _free)


def is_free(func: Any) -> bool:
    """Whether a function never looks at rows."""
    return RULES.get(func) is _free


def keeps_order(func: Any) -> bool:
    """Whether a function divides a tensor into other dimensions, or puts these in another order."""
    return RULES.get(func) in (_reshape, _move)


def dim_after(call: Call, out: Tensor) -> int | None:
    """The dimension of a call's result along which rows lie; None if it is not known."""
    dim = row_dim(out, call.num_rows)
    if dim is None:  # tensor[:n], of rows along the first dimension
        is_prefix = takes_prefix(call) and isinstance(call.args[1], slice)
        return 0 if is_prefix and call.first[1].dim == 0 else None
    is_mixed = math.prod(out.shape[:dim]) != 1 or out.numel() != call.first[0].numel()
    return None if RULES.get(call.func) is _reshape and is_mixed else dim
