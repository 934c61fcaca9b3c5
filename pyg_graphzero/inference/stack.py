"""The layers of a model, each as a function of one hop."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.inference.hop import Hop, Inputs
from pyg_graphzero.inference.modules import Modules
from pyg_graphzero.nn.kinds import BIPARTITE
from pyg_graphzero.store.schema import EdgeType

Row = tuple[torch.Size, torch.dtype]


@dataclass(frozen=True)
class Layer:
    """One pass over the graph.

    Attributes:
        name: What errors call it.
        function: Rows of a hop's destinations first, ``[num_dst or more, ...]``; None where it
            gives nothing for their type.
        conv: All that looks at edges, given the rows that went in; None where that is not known.
    """

    name: str
    function: Callable[[Hop], Tensor | None]
    conv: MessagePassing | None = None

    def __call__(self, hop: Hop) -> Tensor | None:
        """Rows of the destinations, ``[num_dst, ...]``, or None.

        Raises:
            ValueError: The function returns something else.
        """
        out = self.function(hop)
        if out is None:
            return None
        if not isinstance(out, Tensor) or out.dim() == 0 or out.size(0) < hop.num_dst:
            found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ValueError(
                f"{self.name}: found {found} for {hop.num_dst} destination nodes, expected a "
                "tensor with a row for each of them first"
            )
        return out[: hop.num_dst]


@dataclass(frozen=True)
class Stack:
    """The layers of a model.

    Attributes:
        layers: From the first to the last.
        model: What they belong to; None where they come alone.
        keeps_all: The last layer wants what all earlier ones made of the destinations.
        cut: Convolutions of whose rows nobody uses more than those of the destinations.
        parts: Callables whose code belongs to what is computed.
    """

    layers: list[Layer]
    model: torch.nn.Module | None
    keeps_all: bool = False
    cut: frozenset[torch.nn.Module] = frozenset()
    parts: tuple[Any, ...] = ()


def stack_of(
    model: Any,
    layers: Sequence[Callable[..., Any]] | None,
    is_hetero: bool,
    inputs: Inputs,
    head: Callable[[Tensor], Tensor] | None = None,
) -> Stack:
    """The layers of a PyG ``BasicGNN``, or those that are given.

    Args:
        model: The model.
        layers: Its layers, where it is no ``BasicGNN``.
        is_hetero: Whether they are to take dictionaries by type.
        inputs: What they take.
        head: Is applied to the rows of the last one.

    Raises:
        TypeError: It is neither.
        ValueError: There are no layers, or edge attributes that the model does not take.
        UnsupportedError: A homogeneous model over a heterogeneous store.
    """
    if model is not None and not isinstance(model, torch.nn.Module):
        raise TypeError(
            f"model: found {type(model).__name__}, expected a torch.nn.Module (None with layers=)"
        )
    if layers is not None:
        layers = list(layers)
        if not layers or not all(callable(layer) for layer in layers):
            raise ValueError(f"layers: found {layers}, expected a list of callables, one a hop")
        for i, layer in enumerate(layers):
            if is_hetero and isinstance(layer, torch.fx.GraphModule):
                raise UnsupportedError(
                    f"layers[{i}]: found a GraphModule such as to_hetero makes, which wants edges "
                    "of all types at once, expected a HeteroConv or a callable of (x_dict, "
                    "edge_index_dict): they get those that end in one node type at a time"
                )
        made = [
            Layer(f"layers[{i}]", _hetero(f, inputs))
            if is_hetero
            else Layer(
                f"layers[{i}]",
                _homogeneous(f, inputs),
                f if isinstance(f, MessagePassing) else None,
            )
            for i, f in enumerate(layers)
        ]
        return Stack(_headed(made, head), model, parts=(*layers, head))
    if not isinstance(model, BasicGNN):
        form = "(x_dict, edge_index_dict)" if is_hetero else "(x, edge_index)"
        raise TypeError(
            f"model: found {type(model).__name__}, expected a BasicGNN (GraphSAGE, GCN, GAT, GIN, "
            f"PNA, EdgeCNN), or its layers beside it: layers=[...], callables of {form}"
            + ("; to_hetero is not taken: build the layers of HeteroConv" if is_hetero else "")
        )
    if is_hetero:
        raise UnsupportedError(
            f"model: found {type(model).__name__} over a heterogeneous store, expected "
            "layers=[...]: HeteroConv modules, or callables of (x_dict, edge_index_dict)"
        )
    for option, name, is_taken in (
        ("edge_weight", inputs.edge_weight, model.supports_edge_weight),
        ("edge_attr", inputs.edge_attr, model.supports_edge_attr),
    ):
        if name is not None and not is_taken:
            raise ValueError(f"{option}={name!r}: {type(model).__name__} takes none; leave it out")
    count = len(model.convs)
    made = [
        Layer(
            f"{type(model).__name__}.convs[{i}]", _conv_of(model, i, i == count - 1), model.convs[i]
        )
        for i in range(count)
    ]
    return Stack(
        _headed(made, head), model, hasattr(model, "jk"), frozenset(model.convs), parts=(head,)
    )


def _headed(layers: list[Layer], head: Callable[[Tensor], Tensor] | None) -> list[Layer]:
    """The layers, and what is made of the last one's rows before they are stored."""
    if head is None:
        return layers
    last = layers[-1]

    def run(hop: Hop) -> Tensor | None:
        rows = last(hop)
        return None if rows is None else head(rows)

    return [*layers[:-1], Layer(f"head of {last.name}", run, last.conv)]


def _conv_of(model: Any, number: int, is_last: bool) -> Callable[[Hop], Tensor]:
    """What ``BasicGNN.forward`` does around one convolution; dropout is off."""
    conv, norm = model.convs[number], model.norms[number]

    def run(hop: Hop) -> Tensor:
        x: Any = hop.x[None]
        if type(conv) in BIPARTITE:
            x = (x, x[: hop.num_dst])
        values = {}
        if model.supports_edge_weight:
            values["edge_weight"] = hop.edge_weight.get(None)
        if model.supports_edge_attr:
            values["edge_attr"] = hop.edge_attr.get(None)
        x = conv(x, hop.edge_index[None], **values)[: hop.num_dst]
        if not is_last or model.jk_mode is not None:
            if model.act is not None and model.act_first:
                x = model.act(x)
            x = norm(x)
            if model.act is not None and not model.act_first:
                x = model.act(x)
        if is_last and hasattr(model, "jk"):
            x = model.jk([*hop.earlier, x])
        if is_last and hasattr(model, "lin"):
            x = model.lin(x)
        out: Tensor = x
        return out

    return run


def _homogeneous(layer: Callable[..., Any], inputs: Inputs) -> Callable[[Hop], Any]:
    def run(hop: Hop) -> Any:
        values = {}
        if inputs.edge_weight is not None:
            values["edge_weight"] = hop.edge_weight[None]
        if inputs.edge_attr is not None:
            values["edge_attr"] = hop.edge_attr[None]
        x: Any = hop.x[None]
        if type(layer) in BIPARTITE:
            x = (x, x[: hop.num_dst])
        return layer(x, hop.edge_index[None], **values)

    return run


def _hetero(layer: Callable[..., Any], inputs: Inputs) -> Callable[[Hop], Any]:
    def run(hop: Hop) -> Any:
        values = {}
        if inputs.edge_weight is not None:
            values["edge_weight_dict"] = hop.edge_weight
        if inputs.edge_attr is not None:
            values["edge_attr_dict"] = hop.edge_attr
        out = layer(hop.x, hop.edge_index, **values)
        if not isinstance(out, dict):
            raise ValueError(f"found {type(out).__name__}, expected a dict of rows by node type")
        return out.get(hop.node_type)

    return run


def try_layer(layer: Layer, hop: Hop, modules: Modules) -> Row | None:
    """What a layer makes of rows, found by running it on three nodes of no store.

    Returns:
        Shape and dtype of a row; None where it gives nothing for the hop's node type.

    Raises:
        UnsupportedError: The layer needs more than one hop has.
        ValueError: It cannot be run, or returns something else than rows.
    """
    try:
        with modules.watching(layer.name):
            out = layer(hop)
    except UnsupportedError:
        raise
    except Exception as error:
        rows = {name: [*x.shape] for name, x in hop.x.items()}
        what = rows if hop.node_type is not None else rows[None]
        raise ValueError(
            f"{layer.name}: tried on zeros {what} with edges among them, found "
            f"{type(error).__name__}: {error}; expected rows of the destination nodes"
        ) from error
    return None if out is None else (out.shape[1:], out.dtype)


def fingerprint(stack: Stack, modules: Modules, about: dict[str, Any]) -> str:
    """Tells one computation from another: code and settings of modules, weights, arguments.

    Numbers that plain functions refer to, other than by modules they call, are not looked at.
    """
    digest = hashlib.sha256(repr(sorted(about.items())).encode())
    for part in stack.parts:
        digest.update(repr(_code(part)).encode())
    for module in modules:
        settings = {
            k: v
            for k, v in vars(module).items()
            if isinstance(v, (bool, int, float, str)) and k not in ("training", "cached")
        }
        digest.update(repr((type(module).__qualname__, sorted(settings.items()))).encode())
        _add_tensors(digest, [*module._parameters.items(), *module._buffers.items()])
    if stack.model is not None:
        _add_tensors(digest, list(stack.model.state_dict().items()))
    return digest.hexdigest()[:12]


def _add_tensors(digest: Any, tensors: Sequence[tuple[str, Any]]) -> None:
    for name, value in tensors:
        if isinstance(value, Tensor):
            digest.update(f"{name} {value.dtype} {list(value.shape)}".encode())
            flat = value.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().tobytes())


def _code(function: Any) -> Any:
    """What a plain function does, as far as its own code says."""
    code = function if isinstance(function, CodeType) else getattr(function, "__code__", None)
    if code is None:
        return type(function).__qualname__
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, code.co_names, constants


def tried_rows(
    stack: Stack,
    edge_types: Sequence[EdgeType | None],
    rows: dict[str | None, Row],
    edge_values: dict[str, dict[EdgeType | None, Row]],
    modules: Modules,
    device: torch.device,
    before: Callable[[Hop], Any] | None = None,
) -> list[dict[str | None, Row]]:
    """Tries every layer, and tells what goes into each and what comes out of the last.

    Args:
        stack: The layers.
        edge_types: Of the store.
        rows: What goes into the first layer, by node type; of the types that have it.
        edge_values: See ``Hop.tried``.
        modules: What the layers call is added to these.
        device: Where.
        before: Called with each hop.

    Returns:
        One dict more than there are layers.

    Raises:
        ValueError: A layer cannot be run, or gives nothing.
    """
    found = [rows]
    for number, layer in enumerate(stack.layers):
        out: dict[str | None, Row] = {}
        for node_type in found[-1]:
            names = reachable(edge_types, node_type, found[-1])
            values = {
                key: {name: row for name, row in by_type.items() if name in names}
                for key, by_type in edge_values.items()
            }
            hop = Hop.tried(node_type, found[-1], names, values, device)
            if stack.keeps_all and number == len(stack.layers) - 1:
                hop.earlier = [
                    torch.zeros(hop.num_dst, *shape[node_type][0], device=device)
                    for shape in found[1:]
                ]
            if before is not None:
                before(hop)
            row = try_layer(layer, hop, modules)
            if row is not None:
                out[node_type] = row
        if not out:
            raise ValueError(
                f"{layer.name}: found rows for none of the node types {list(found[-1])}, expected "
                "some: do the names of its edge types agree with the store's?"
            )
        found.append(out)
    return found


def reachable(
    edge_types: Sequence[EdgeType | None], node_type: str | None, sources: Any
) -> list[EdgeType | None]:
    """The edge types that end in a node type and begin where there are rows."""
    if node_type is None:
        return [None]
    return [
        name
        for name in edge_types
        if name is not None and name[2] == node_type and name[0] in sources
    ]
