"""Reads a model: its forward pass as steps that can be computed for some nodes at a time.

The model runs once, on a small graph of no store, and is recorded as accelerated models are
(:mod:`pyg_graphzero.nn.program`). Steps that look at more than a node's own row are refused here,
convolutions aside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.module import register_module_forward_pre_hook
from torch_geometric.nn import MessagePassing
from torch_geometric.nn.models.basic_gnn import BasicGNN

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.nn.accelerate import Forward, make_steps
from pyg_graphzero.nn.convs import Plan
from pyg_graphzero.nn.kinds import looks_at_all_nodes
from pyg_graphzero.nn.learn import Comparable
from pyg_graphzero.nn.program import Recorder, Step
from pyg_graphzero.nn.rules import Options, Space, Use, Value, is_free
from pyg_graphzero.nn.small import SmallGraph
from pyg_graphzero.nn.state import Before, fingerprint
from pyg_graphzero.sampling.hops import KEEPING, Hops, SampledEdgeIndex
from pyg_graphzero.store.schema import EdgeType

Row = tuple[torch.Size, torch.dtype]

# Every convolution is read, PyG's or not: its module says what it needs.
_OPTIONS = Options(may_cut_norms=False, local=(MessagePassing,), has_degrees=True)


@dataclass(frozen=True)
class Inputs:
    """The store's attributes that go into a model.

    Attributes:
        attrs: Names of the attributes, by the model's arguments: ``x`` of nodes, others of edges.
        rows: By argument: types of nodes, or of edges, that have it, shape and dtype of a row.
        edge_types: Edge types between the node types; ``[None]`` in a homogeneous store.
    """

    attrs: dict[str, str]
    rows: dict[str, dict[Any, Row]]
    edge_types: list[EdgeType | None]

    @property
    def is_hetero(self) -> bool:
        """Whether the model gets dictionaries by type."""
        return None not in self.rows["x"]


@dataclass
class Reading:
    """A model that was read.

    Attributes:
        name: Name of its class.
        modules: Its modules, by the numbers that steps have.
        steps: Its forward pass.
        attrs: Attributes of the store, by the value that they are.
        outputs: Values that it returns, by node type.
        graph: The small graph that it was recorded on.
        rows: Its rows there: of attributes and outputs.
        digest: Hash of all tensors that its functions made there.
    """

    name: str
    modules: list[torch.nn.Module]
    steps: list[Step]
    attrs: dict[Value, str]
    outputs: dict[str | None, Value]
    graph: SmallGraph
    rows: dict[Value, Tensor]
    digest: bytes

    def fingerprint(self, about: dict[str, Any]) -> str:
        """Tells one computation from another: weights, rows on the small graph, ``about``."""
        names = [step.name for step in self.steps], [type(m).__qualname__ for m in self.modules]
        digest = hashlib.sha256(f"{sorted(about.items())} {names}".encode())
        for module in self.modules:
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    _add(digest, tensor)
        digest.update(self.digest)
        return digest.hexdigest()[:12]


def _add(digest: Any, tensor: Tensor) -> None:
    flat = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    digest.update(flat.numpy().tobytes())


@contextmanager
def reading(
    model: torch.nn.Module,
    inputs: Inputs,
    head: Callable[[Tensor], Tensor] | None,
    device: torch.device,
) -> Iterator[Reading]:
    """Reads a model. Until the end of the context it is in the state that it is to run in.

    REQUIRES: gradients are off, and ``torch.inference_mode`` is.

    Dropout is off and running statistics are used; edges that a convolution has cached of the graph
    it was trained on are not.

    Args:
        model: The model.
        inputs: The attributes that go in.
        head: Applied to each of its results.
        device: Device of its parameters.

    Raises:
        ValueError: It cannot be run, or returns something else than rows of nodes.
        UnsupportedError: It cannot be computed layer by layer; names the reason.
    """
    if inputs.is_hetero and isinstance(model, BasicGNN):
        raise UnsupportedError(
            f"model: found {type(model).__name__} over a heterogeneous store, expected a model of "
            "(x_dict, edge_index_dict): of HeteroConv layers, or made by to_hetero"
        )
    reader = _Reader(model, inputs, device)
    if any(map(torch.nn.parameter.is_lazy, model.parameters())):
        reader.try_model(None)  # makes the parameters, which stay
    before = Before(list(model.modules()), device.type == "cuda")
    try:
        found = reader.read(head)
        for step in found.steps:
            if isinstance(step.about, Plan) and step.about.normalises:
                vars(found.modules[step.func])["normalize"] = False
        yield found
    finally:
        before.restore()


class _Reader:
    """Records a model on a small graph.

    Args:
        model: The model.
        inputs: The attributes that go in.
        device: Device of its parameters.
    """

    def __init__(self, model: torch.nn.Module, inputs: Inputs, device: torch.device) -> None:
        self._model = model
        self._inputs = inputs
        self._name = type(model).__name__
        self._names = {module: name for name, module in model.named_modules()}
        names, edge_types = inputs.rows["x"], inputs.edge_types
        hops = Hops(dict.fromkeys(names, (1, 1)), dict.fromkeys(edge_types, (0, 1)))
        shapes = [shape for by_type in inputs.rows.values() for shape, _ in by_type.values()]
        for tensor in (*model.parameters(), *model.buffers()):
            if not torch.nn.parameter.is_lazy(tensor):
                shapes.append(tensor.shape)
        taken = {size for shape in shapes for size in shape}
        self._small = SmallGraph(hops, taken, device)
        count = self._small.num_rows
        generator = torch.Generator().manual_seed(0)

        def rows_of(space: Space, row: Row) -> Tensor:
            shape, dtype = row
            # Numbers of nodes may be those of categories, of which there is one at least.
            rows = torch.full((count[space], *shape), int(space.of_edges), dtype=dtype)
            if dtype.is_floating_point:
                rows = torch.rand(rows.shape, generator=generator).to(dtype)
            return rows.to(device)

        self._rows = {
            name: {
                of: rows_of(Space(name != "x", of), row)
                for of, row in by_type.items()
                if Space(name != "x", of) in count
            }
            for name, by_type in inputs.rows.items()
        }
        self._edges = {
            name: SampledEdgeIndex.of(self._small.edge_index[name], self._small.hops, name)
            for name in edge_types
        }

    def _given(self, by_type: dict[Any, Any]) -> Any:
        """Tensors, or facts about these, as the model is given them."""
        return dict(by_type) if self._inputs.is_hetero else by_type[None]

    def try_model(self, head: Callable[[Tensor], Tensor] | None) -> Any:
        """Runs the model.

        Raises:
            UnsupportedError: A module that is called needs more than a hop has.
            ValueError: The model cannot be run.
        """
        of_types = "_dict" if self._inputs.is_hetero else ""
        given = {f"{name}{of_types}": self._given(rows) for name, rows in self._rows.items()}
        x = given.pop(f"x{of_types}")
        handle = register_module_forward_pre_hook(self._look)
        try:
            out = self._model(x, self._given(self._edges), **given)
            if head is None:
                return out
            return {k: head(v) for k, v in out.items()} if isinstance(out, dict) else head(out)
        except UnsupportedError:
            raise
        except Exception as error:
            rows = self._given({name: [*x.shape] for name, x in self._rows["x"].items()})
            raise ValueError(
                f"{self._name}: tried on rows {rows} with edges among them, found "
                f"{type(error).__name__}: {error}; expected rows of all nodes"
            ) from error
        finally:
            handle.remove()

    def _look(self, module: torch.nn.Module, args: Any) -> None:
        name = self._names.get(module)
        if name is None and isinstance(module, MessagePassing):
            raise UnsupportedError(
                f"{self._name}: found {type(module).__name__} that is none of its modules, "
                "expected layers to be attributes, or in a torch.nn.ModuleList, not in a plain list"
            )
        if looks_at_all_nodes(module):
            raise UnsupportedError(
                f"{self._where(module)}, which depends on all nodes at once, expected modules that "
                "depend on a node and its neighbours, such as BatchNorm with running statistics, "
                "or LayerNorm(mode='node')"
            )

    def _where(self, module: torch.nn.Module) -> str:
        name = self._names.get(module)
        where = f"{self._name}.{name}" if name else self._name
        return f"{where}: found {type(module).__name__}"

    def read(self, head: Callable[[Tensor], Tensor] | None) -> Reading:
        """Records the model, which is changed; the caller puts it back."""
        model = self._model
        for module in model.modules():
            module.training = False
            if getattr(module, "cached", False):
                vars(module).update(cached=False, _cached_edge_index=None, _cached_adj_t=None)
        modules = fingerprint(model)[1]
        recorder = Recorder(modules, _OPTIONS, self._small.num_rows, keeps_calls=True)
        attrs: dict[Value, str] = {}
        known: dict[Value, Tensor] = {}
        for argument, by_type in self._rows.items():
            for name, rows in by_type.items():
                value = recorder.track(rows, Space(argument != "x", name), False)
                attrs[value], known[value] = self._inputs.attrs[argument], rows.clone()
        make_steps(model)
        forward = model.forward = Forward(model, _OPTIONS)
        with Comparable(), forward.watched_by(recorder):
            out = self.try_model(head)
        digest = hashlib.sha256()
        for tensor in recorder.seen:
            if isinstance(tensor, Tensor):
                _add(digest, tensor)
        found = Reading(
            self._name, modules, recorder.steps, attrs, {},
            self._small, known, digest.digest(),
        )  # fmt: skip
        for step in found.steps:
            self._check(step, found)
        for tensor in out.values() if isinstance(out, dict) else [out]:
            value = self._output(tensor, recorder, found)
            found.outputs[value.space.name] = value
            known[value] = tensor
        if not found.outputs:
            raise ValueError(f"{self._name}: found no result, expected rows of nodes")
        return found

    def _check(self, step: Step, found: Reading) -> None:
        """Raises where a step looks at more than a node's own row and its in-edges."""
        if isinstance(step.func, int):
            module = found.modules[step.func]
            what = self._where(module)
            if step.use == Use.ALL:
                reason = step.about.what.removeprefix("whole batch: ")
                raise UnsupportedError(
                    f"{what} that needs all nodes at once ({reason}), expected convolutions of one "
                    "hop, by the given edges, over rows of nodes"
                )
            weight = step.call.get("edge_weight")
            if step.about.normalises and weight is not None and weight not in found.attrs:
                raise UnsupportedError(
                    f"{what} and weights that the model made itself, expected those of the store: "
                    "degrees are counted there. Normalise them beforehand and build the layer with "
                    "normalize=False"
                )
            return
        looks = step.use in (Use.ALL, Use.PICK) and bool(step.inputs)
        if any(isinstance(leaf, SampledEdgeIndex) for leaf in step.call[0]):
            looks = step.func not in KEEPING and not is_free(step.func)
        if looks:
            raise UnsupportedError(
                f"{self._name}: found {step.name}() of all rows, or of edges, expected functions "
                "that treat each node's row by itself, and convolutions (MessagePassing), which "
                "alone look at neighbours and edges"
            )

    def _output(self, tensor: Any, recorder: Recorder, found: Reading) -> Value:
        value = recorder.value_of(tensor)
        if (
            value is not None
            and not value.space.of_edges
            and not value.dim
            and value.space.name not in found.outputs
        ):
            return value
        said = type(tensor).__name__
        said = f"a tensor {list(tensor.shape)}" if isinstance(tensor, Tensor) else said
        sizes = self._small.num_rows.items()
        nodes = self._given({space.name: size for space, size in sizes if not space.of_edges})
        raise ValueError(
            f"{self._name}: found {said} as a result, expected one tensor [num_nodes, ...] "
            f"for a node type; tried on {nodes} nodes"
        )
