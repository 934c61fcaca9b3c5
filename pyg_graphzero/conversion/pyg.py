"""PyG ``Data`` and ``HeteroData`` to a plan: every attribute finds its level, none is dropped."""

from __future__ import annotations

import codecs
import warnings
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.data import DataEdgeAttr, DataTensorAttr
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from pyg_graphzero.conversion.arrays import as_array, as_table, integers, only_rows
from pyg_graphzero.conversion.files import is_index_name
from pyg_graphzero.conversion.options import Dtypes, Selection
from pyg_graphzero.conversion.plan import (
    Array,
    EdgeOptions,
    EdgePlan,
    EdgeType,
    GraphPlan,
    NodePlan,
    NodeType,
    edge_label,
    stream,
)
from pyg_graphzero.conversion.sparse import coo
from pyg_graphzero.conversion.tensors import load_torch
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, MappedRows, Rows
from pyg_graphzero.util.reading import reading

_STRUCTURE = frozenset({"edge_index", "adj_t", "num_nodes", "num_edges"})
_SCALARS = (bool, int, float, str)
# Names that leave no doubt: with another number of rows they are a mistake, not the graph's.
_LEVELS = {"x": "node", "pos": "node", "edge_attr": "edge", "edge_weight": "edge"}


def _as_named_by(function: Any, package: str) -> Any:
    """What pickles of another NumPy call ``function``: 2 moved it from ``numpy.core``."""

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
    # What pickled NumPy arrays name.
    np.ndarray,
    np.dtype,
    *(type(np.dtype(kind)) for kind in "?bBhHiIlLqQefd"),
    codecs.encode,  # of bytes, such as those of a scalar; torch 2.4 has it not allowed yet
    *_NUMPY,
    *(_as_named_by(each, package) for each in _NUMPY for package in ("numpy.core", "numpy._core")),
]


def load_safely(path: Path) -> Any:
    """What ``torch.save`` wrote: tensors, NumPy arrays, plain values and PyG's containers.

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


def plan_pyg(
    data: Data | HeteroData,
    options: EdgeOptions,
    selection: Selection,
    dtypes: Dtypes,
    path: Path | None = None,
) -> GraphPlan:
    """Everything ``data`` holds.

    Args:
        data: The graph.
        options: How its edges become a CSC.
        selection: Which attributes to take.
        dtypes: Dtypes asked for.
        path: The file that it was loaded from and is mapped to, if any.

    A tensor with a row per node or per edge is an attribute of theirs; a 1-D integer tensor of
    nodes that is called ``…idx`` or ``…index`` is an index set; any other tensor, number or
    string of a ``Data`` belongs to the graph.

    Raises:
        InputError: Something cannot be stored, or the edges point beyond the nodes.
    """
    kind = "HeteroData" if isinstance(data, HeteroData) else "Data"
    name = kind if path is None else f"{path}: {kind}"
    reader = _Reader(options, selection, dtypes, path, name)
    with nullcontext() if path is None else reading(path, "file", f"a whole {kind}"):
        return reader.hetero(data) if isinstance(data, HeteroData) else reader.homogeneous(data)


class _Reader:
    def __init__(
        self,
        options: EdgeOptions,
        selection: Selection,
        dtypes: Dtypes,
        path: Path | None,
        name: str,
    ) -> None:
        self._path = path
        self._name = name
        self._options = options
        # Labels of pairs of nodes have a row per edge only while edges stay as they are.
        self._breaks_pairs = options != EdgeOptions()
        self._selection = selection
        self._dtypes = dtypes

    def homogeneous(self, data: Data) -> GraphPlan:
        plan = GraphPlan(is_hetero=False)
        store, where = data._store, self._name
        src, dst, columns = self._edges(store, where)
        num_nodes = _num_nodes(store)
        if num_nodes is None:
            num_nodes = _beyond(src, dst)
            plan.notes.append(f"num_nodes is not set: {num_nodes} by the edges")
        node = plan.nodes[None] = NodePlan(num_nodes)
        self._attrs(store, "", where, plan.graph_attrs, node, len(src), columns)
        self._add_edges(plan, None, src, dst, columns, where)
        return plan

    def hetero(self, data: HeteroData) -> GraphPlan:
        plan = GraphPlan(is_hetero=True)
        found: dict[EdgeType, tuple[Rows, Rows, dict[str, Rows], dict[str, Any]]] = {}
        ends: dict[NodeType, list[Rows]] = {}
        for edge_type in data.edge_types:
            where = f"{self._name}[{edge_type}]"
            others: dict[str, Any] = {}
            src, dst, columns = self._edges(data[edge_type], where)
            owner = edge_label(edge_type)
            self._attrs(data[edge_type], owner, where, others, None, len(src), columns)
            found[edge_type] = (src, dst, columns, others)
            for node_type, rows in ((edge_type[0], src), (edge_type[2], dst)):
                ends.setdefault(node_type, []).append(rows)
        for node_type in dict.fromkeys([*data.node_types, *ends]):
            known = _num_nodes(data[node_type]) if node_type in data.node_types else None
            if known is None:
                known = _beyond(*ends.get(node_type, []))
                plan.notes.append(f"num_nodes of {node_type!r} is not set: {known} by the edges")
            node = plan.nodes[node_type] = NodePlan(known)
            if node_type in data.node_types:
                where = f"{self._name}[{node_type!r}]"
                self._attrs(data[node_type], node_type, where, node.others, node)
        for edge_type, (src, dst, columns, others) in found.items():
            self._add_edges(plan, edge_type, src, dst, columns, f"{self._name}[{edge_type}]")
            plan.edges[edge_type].others = others
        self._attrs(data._global_store, "", self._name, plan.graph_attrs)
        return plan

    def _attrs(
        self,
        store: BaseStorage,
        owner: str,
        where: str,
        others: dict[str, Any],
        node: NodePlan | None = None,
        num_edges: int | None = None,
        columns: dict[str, Rows] | None = None,
    ) -> None:
        """Has every attribute find its level: nodes, edges, or the type (or graph) as a whole."""
        num_nodes = -1 if node is None else node.num_nodes
        # A graph without types has anything; a type has what is of its nodes or edges.
        is_graph = (node is None) == (num_edges is None)
        for name, value in store.items():
            if name in _STRUCTURE or value is None or not self._selection.wants(owner, name):
                continue
            if isinstance(value, _SCALARS):
                others[name] = value
                continue
            array = self._array(value, where, name)
            level = _level(name, array, num_nodes, -1 if num_edges is None else num_edges)
            paired = _is_paired(store, name)
            if node is not None and level == "node":
                node.attrs[name] = self._cast(where, name, array)
            elif node is not None and level == "set":
                node.index_sets[name] = array
            elif columns is not None and level == "edge" and not (paired and self._breaks_pairs):
                columns[name] = self._cast(where, name, array)
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

    def _cast(self, where: str, name: str, array: Array) -> Rows:
        def fail(row: int, found: str, expected: str) -> InputError:
            return InputError(where, f"{name}[{row}]", found, expected)

        rows = only_rows(as_table(array, name, self._path), Path(where))
        return self._dtypes.cast(name, rows, fail, is_exact=True)

    def _edges(self, store: BaseStorage, where: str) -> tuple[Rows, Rows, dict[str, Rows]]:
        """Endpoints, and the values of a sparse matrix as the attribute they stand for."""
        value: Any = store.get("edge_index") if "edge_index" in store else None
        if value is not None:
            if not isinstance(value, torch.Tensor | np.ndarray):
                raise InputError(where, "edge_index", type(value).__name__, "a tensor [2, E]")
            index = as_array(value, "edge_index")
            if index.ndim != 2 or index.shape[0] != 2:
                raise InputError(
                    where, "edge_index", f"shape {list(index.shape)}", "shape [2, num_edges]"
                )
            return self._ids(index[0], where), self._ids(index[1], where), {}
        if store.get("adj_t") is not None:
            dst, src, weight = coo(store["adj_t"], where, "adj_t")
            name = "edge_weight" if weight is None or weight.ndim == 1 else "edge_attr"
            owner = edge_label(getattr(store, "_key", None))
            if weight is None or name in store or not self._selection.wants(owner, name):
                return self._ids(src, where), self._ids(dst, where), {}
            column = self._cast(where, name, weight)
            return self._ids(src, where), self._ids(dst, where), {name: column}
        empty = ArrayRows(torch.empty(0, dtype=torch.int64))
        return empty, empty, {}

    def _ids(self, ends: Array, where: str) -> Rows:
        rows = only_rows(as_table(ends, "edge_index", self._path), Path(where))
        if rows.dtype.is_floating_point or rows.dtype == torch.bool:
            raise InputError(where, "edge_index", str(rows.dtype).removeprefix("torch."), "int64")
        return integers(rows, where, "edge_index[{}]".format)

    def _add_edges(
        self,
        plan: GraphPlan,
        edge_type: EdgeType,
        src: Rows,
        dst: Rows,
        columns: dict[str, Rows],
        where: str,
    ) -> None:
        src_type, dst_type = plan.endpoints(edge_type)
        src = _inside(src, plan.nodes[src_type].num_nodes, 0, where)
        dst = _inside(dst, plan.nodes[dst_type].num_nodes, 1, where)
        plan.edges[edge_type] = EdgePlan(stream(src, dst, columns), len(src), self._options)


def _inside(rows: Rows, num_nodes: int, end: int, where: str) -> Rows:
    """``rows``; reading one that is no node raises."""

    def check(slab: Tensor, begin: int) -> Tensor:
        bad = (slab < 0) | (slab >= num_nodes)
        if bool(bad.any()):
            at = int(bad.nonzero()[0])
            raise InputError(
                where,
                f"edge_index[{end}, {begin + at}]",
                int(slab[at]),
                f"a node of 0…{num_nodes - 1}",
                "Set num_nodes if there are more nodes than that.",
            )
        return slab

    return MappedRows(rows, rows.shape, rows.dtype, check)


def _level(name: str, array: Array, num_nodes: int, num_edges: int) -> str:
    """What an attribute is of: ``"node"``, ``"edge"``, an index ``"set"``, or the ``"graph"``."""
    if array.ndim == 0:
        return "graph"
    # As in PyG, rows of `…_index` matrices run along the last dimension: never one per node.
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
    """What PyG takes for the number of nodes, unless it only guesses by the edges."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            found = store.num_nodes
        except UserWarning:
            return None
    return None if found is None else int(found)


def _beyond(*rows: Rows) -> int:
    return max((int(slab.max()) + 1 for each in rows for slab in each.slabs()), default=0)


def _unstorable(where: str, name: str, found: str, expected: str) -> InputError:
    return InputError(
        where, name, found, expected, f"Leave it out with skip=[{name!r}] (--skip {name})."
    )
