"""PyG ``Data`` and ``HeteroData`` to a specification: every attribute finds its level."""

from __future__ import annotations

import codecs
import warnings
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from pyg_graphzero.conversion.array_files import load_torch
from pyg_graphzero.conversion.arrays import as_array, as_table, only_rows
from pyg_graphzero.conversion.names import is_index_name
from pyg_graphzero.conversion.plan import Array, EdgeType, NodeType, edge_label
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.sparse import coo
from pyg_graphzero.conversion.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.csc import CscOptions
from pyg_graphzero.store.rows import Rows, describe
from pyg_graphzero.util.reading import reading

_STRUCTURE = frozenset({"edge_index", "adj_t", "num_nodes", "num_edges"})
_SCALARS = (bool, int, float, str)
# Names that leave no doubt: with another number of rows they are a mistake, not the graph's.
_LEVELS = {"x": "node", "pos": "node", "edge_attr": "edge", "edge_weight": "edge"}


def _as_named_by(function: Any, package: str) -> Any:
    """``function`` by its name in pickles of another NumPy: 2 moved it from ``numpy.core``."""

    def alias(*args: Any) -> Any:
        return function(*args)

    alias.__module__ = f"{package}.multiarray"
    alias.__name__ = alias.__qualname__ = function.__name__
    return alias


_NUMPY = (np.empty(0).__reduce__()[0], np.float64(0).__reduce__()[0])
_SAFE = [
    Data,
    HeteroData,
    DataEdgeAttr,
    DataTensorAttr,
    TensorAttr,
    EdgeAttr,
    EdgeLayout,
    BaseStorage,
    EdgeStorage,
    GlobalStorage,
    NodeStorage,
    # Classes that pickled NumPy arrays name.
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"),
    codecs.encode,  # of bytes, such as those of a scalar; torch 2.4 has it not allowed yet
    *_NUMPY,
    *(_as_named_by(each, package) for each in _NUMPY for package in ("numpy.core", "numpy._core")),
]


def load_safely(path: Path) -> Any:
    """A file that ``torch.save`` wrote: tensors, NumPy arrays, plain values and PyG's containers.

    Nothing else is unpickled.

    Raises:
        InputError: The file is damaged or holds other objects.
    """
    with safe_globals():
        return load_torch(path, "tensors, Data or HeteroData")


def load_pyg(path: Path) -> Data | HeteroData | None:
    """The ``Data`` or ``HeteroData`` in a file; ``None`` if it holds something else.

    It may be saved by itself, or as ``InMemoryDataset.save`` and its predecessors do: with slices
    that tell several graphs apart, as an object or as a dict and the class to make of it.

    Raises:
        InputError: The file is damaged, holds other objects, or more than one graph.
    """
    value = load_safely(path)
    if isinstance(value, tuple) and len(value) in (2, 3):
        with reading(path, "file", "a graph, slices and its class"):
            _refuse_several(path, value[1])
            if isinstance(value[0], dict):
                kind = value[2] if len(value) == 3 else Data
                return kind.from_dict(value[0])
        value = value[0]
    return value if isinstance(value, Data | HeteroData) else None


def _refuse_several(path: Path, slices: Any) -> None:
    if isinstance(slices, dict):
        for value in slices.values():
            _refuse_several(path, value)
    elif isinstance(slices, torch.Tensor) and len(slices) > 2:
        raise InputError(path, "dataset", f"{len(slices) - 1} graphs", "one, which a store holds")


def safe_globals() -> AbstractContextManager[Any]:
    """Has ``torch.load(weights_only=True)`` take PyG's classes, and nothing else."""
    if hasattr(torch.serialization, "safe_globals"):
        return torch.serialization.safe_globals(_SAFE)
    torch.serialization.add_safe_globals(_SAFE)  # torch 2.4
    return nullcontext()


def pyg_spec(data: Data | HeteroData, inputs: Inputs, path: Path | None = None) -> GraphSpec:
    """Everything ``data`` holds.

    Args:
        data: The graph.
        inputs: Says how its edges become a CSC, and which attributes to take.
        path: The file that it was loaded from and is mapped to, if any.

    A tensor with a row per node or per edge is an attribute of theirs; a 1-D integer tensor of
    nodes that is called ``…idx`` or ``…index`` is an index set; any other tensor, number or
    string of a ``Data`` belongs to the graph.

    Raises:
        InputError: Something cannot be stored.
    """
    kind = "HeteroData" if isinstance(data, HeteroData) else "Data"
    name = kind if path is None else f"{path}: {kind}"
    spec = GraphSpec({}, [], name, f"PyG {kind}", is_exact=True)
    reader = _Reader(spec, inputs, path)
    with nullcontext() if path is None else reading(path, "file", f"a whole {kind}"):
        if isinstance(data, HeteroData):
            reader.hetero(data)
        else:
            reader.homogeneous(data)
    return spec


class _Reader:
    def __init__(self, spec: GraphSpec, inputs: Inputs, path: Path | None) -> None:
        self._spec = spec
        # Labels of pairs of nodes have a row per edge only while edges stay as they are.
        self._breaks_pairs = inputs.options != CscOptions()
        self._wants = inputs.choices.wants
        self._path = path

    def homogeneous(self, data: Data) -> None:
        store, spec = data.stores[0], self._spec
        edge = self._edges(store, None, str(spec.name))
        node = self._node(store, None, edge.file)
        self._attrs(store, "", str(spec.name), spec.graph_attrs, node, edge)

    def hetero(self, data: HeteroData) -> None:
        name = self._spec.name
        ends: dict[NodeType, list[Rows]] = {}
        for edge_type in data.edge_types:
            where = f"{name}[{edge_type}]"
            edge = self._edges(data[edge_type], edge_type, where)
            self._attrs(data[edge_type], edge_label(edge_type), where, edge.others, None, edge)
            for kind, rows in zip((edge_type[0], edge_type[2]), edge.file, strict=True):
                ends.setdefault(kind, []).append(rows)
        for kind in dict.fromkeys([*data.node_types, *ends]):
            store = data[kind] if kind in data.node_types else None
            node = self._node(store, kind, ends.get(kind, ()))
            if store is not None:
                self._attrs(store, str(kind), f"{name}[{kind!r}]", node.others, node)
        self._attrs(data.stores[0], "", str(name), self._spec.graph_attrs)

    def _node(self, store: BaseStorage | None, kind: NodeType, ends: Iterable[Rows]) -> NodeSpec:
        count = None if store is None else _num_nodes(store)
        if count is None:
            count = max((int(slab.max()) + 1 for rows in ends for slab in rows.slabs()), default=0)
            named = "num_nodes" if kind is None else f"num_nodes of {kind!r}"
            self._spec.notes.append(f"{named} is not set: {count} by the edges")
        node = NodeSpec(num_nodes=count, ids="dense", sets=set())
        self._spec.nodes[kind] = node
        return node

    def _attrs(
        self,
        store: BaseStorage,
        owner: str,
        where: str,
        others: dict[str, Any],
        node: NodeSpec | None = None,
        edge: EdgeSpec | None = None,
    ) -> None:
        """Has every attribute find its level: nodes, edges, or the type (or graph) as a whole."""
        num_nodes = -1 if node is None or node.num_nodes is None else node.num_nodes
        num_edges = -1 if edge is None else len(edge.file[0])
        # A graph without types has anything; a type has what is of its nodes or edges.
        is_graph = (node is None) == (edge is None)
        for name, value in store.items():
            if name in _STRUCTURE or value is None or not self._wants(owner, name):
                continue
            if isinstance(value, _SCALARS):
                others[name] = value
                continue
            array = self._array(value, where, name)
            level = _level(name, array, num_nodes, num_edges)
            paired = _is_paired(store, name)
            if node is not None and level in ("node", "set"):
                node.attrs[name] = self._rows(array, where, name)
                node.sets = {*(node.sets or ()), name} if level == "set" else node.sets
            elif edge is not None and level == "edge" and not (paired and self._breaks_pairs):
                edge.attrs[name] = self._rows(array, where, name)
            elif paired or (is_graph and (node is None or name not in _LEVELS)):
                others[name] = array
            else:
                kind = "edge" if node is None else _LEVELS.get(name, "node") if is_graph else "node"
                expected = f"{num_edges if kind == 'edge' else num_nodes} rows, one per {kind}"
                raise _unstorable(where, name, f"shape {list(array.shape)}", expected)

    def _array(self, value: Any, where: str, name: str) -> Array:
        if not isinstance(value, torch.Tensor | np.ndarray):
            raise _unstorable(where, name, type(value).__name__, "a tensor")
        try:
            array = as_array(value, name)
        except InputError as error:
            found = f"a tensor of layout {getattr(value, 'layout', '?')}"
            raise _unstorable(where, name, found, "a dense tensor") from error
        kind = array.dtype.is_complex if isinstance(array, torch.Tensor) else array.dtype.kind
        if kind is True or (isinstance(kind, str) and kind not in "biuf"):
            raise _unstorable(where, name, str(array.dtype), "numbers or booleans")
        return array

    def _rows(self, array: Array, where: str, name: str) -> Rows:
        return only_rows(as_table(array, name, self._path), Path(where))

    def _edges(self, store: BaseStorage, edge_type: EdgeType, where: str) -> EdgeSpec:
        """Endpoints, and the values of a sparse matrix as the attribute they stand for."""
        ends: Any = torch.empty((2, 0), dtype=torch.int64)
        edge = EdgeSpec(edge_type, name=Path(where))
        self._spec.edges.append(edge)
        if store.get("edge_index") is not None:
            ends = store["edge_index"]
            if not isinstance(ends, torch.Tensor | np.ndarray):
                raise InputError(where, "edge_index", type(ends).__name__, "a tensor [2, E]")
            ends = as_array(ends, "edge_index")
            if ends.ndim != 2 or ends.shape[0] != 2:
                found = f"shape {list(ends.shape)}"
                raise InputError(where, "edge_index", found, "shape [2, num_edges]")
        elif store.get("adj_t") is not None:
            dst, src, weight = coo(store["adj_t"], where, "adj_t")
            ends = src, dst
            name = "edge_weight" if weight is None or weight.ndim == 1 else "edge_attr"
            wants = name not in store and self._wants(edge_label(edge_type), name)
            if weight is not None and wants:
                edge.attrs[name] = self._rows(weight, where, name)
        edge.file = tuple(self._rows(ends[side], where, "edge_index") for side in (0, 1))
        if edge.file[0].dtype.is_floating_point or edge.file[0].dtype == torch.bool:
            raise InputError(where, "edge_index", describe(edge.file[0]), "int64")
        return edge


def _level(name: str, array: Array, num_nodes: int, num_edges: int) -> str:
    """The level of an attribute: ``"node"``, ``"edge"``, an index ``"set"``, or the ``"graph"``."""
    if array.ndim == 0:
        return "graph"
    # PyG has rows of `…_index` matrices along the last dimension: never one per node.
    whole = array.ndim == 1 or "index" not in name
    is_node = whole and len(array) == num_nodes
    is_edge = whole and len(array) == num_edges
    if is_node and is_edge:
        return "edge" if "edge" in name else "node"
    if is_node or is_edge:
        return "node" if is_node else "edge"
    if array.ndim == 1 and is_index_name(name) and "edge" not in name:
        integer = array.dtype in (torch.int64, torch.int32, np.dtype("int64"), np.dtype("int32"))
        if integer and (not len(array) or (array.min() >= 0 and array.max() < num_nodes)):
            return "set"
    return "graph"


def _is_paired(store: Any, name: str) -> bool:
    """Whether an attribute is pairs of nodes as in ``edge_label_index``, or goes with such pairs.

    They are what ``RandomLinkSplit`` and link loaders add: seeds, with labels and times.
    """
    stems = [key.removesuffix("_index") for key in store.keys() if key.endswith("_index")]  # noqa: SIM118
    return any(stem != "edge" and name.startswith(stem) for stem in stems)


def _num_nodes(store: Any) -> int | None:
    """The number of nodes that PyG finds, unless it only guesses by the edges."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = store.num_nodes
        except UserWarning:
            return None
    return None if found is None else int(found)


def _unstorable(where: str, name: str, found: str, expected: str) -> InputError:
    return InputError(
        where, name, found, expected, f"Leave it out with skip=[{name!r}] (--skip {name})."
    )
