"""``store.data()``: PyG ``Data`` and ``HeteroData`` whose tensors lie on disk.

Node attributes are tensors over mapped files. What PyG wants in another order than the disk has it
(``edge_index``, edge attributes, everything in an optimized store) is built when it is first asked
for; the loaders never ask.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import BaseStorage, EdgeStorage, GlobalStorage, NodeStorage

from pyg_graphzero.columns import EncodedRows, decoded
from pyg_graphzero.contents import StoreContents
from pyg_graphzero.schema import EdgeType


class OnDemand:
    """A tensor that is built at its first use.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        rows: What to gather from without building: the same rows over the mapped file, by CSC
            slot if they are edges'; None where there is no such column.
        rank: For nodes, the row of every one in ``rows``; None where it is the node's number.
    """

    def __init__(
        self,
        shape: list[int],
        dtype: torch.dtype,
        build: Callable[[], Tensor],
        rows: Tensor | EncodedRows | None = None,
        rank: Tensor | None = None,
    ) -> None:
        self.shape = shape
        self.dtype = dtype
        self.rows = rows
        self.rank = rank
        self._build = build
        self._value: Tensor | None = None
        self._version = 0

    @property
    def is_built(self) -> bool:
        """Whether somebody has used it, and so may have changed it."""
        return self._value is not None

    @property
    def is_changed(self) -> bool:
        """Whether somebody has written to it in place."""
        return self._value is not None and self._value._version > self._version

    def value(self) -> Tensor:
        """The tensor itself."""
        if self._value is None:
            self._value = self._build()
            self._version = self._value._version
        return self._value

    def copy(self) -> Tensor:
        """The tensor as it is now; one that was not used before is not kept either."""
        return self._build() if self._value is None else self._value


class LazyMapping(dict[str, Any]):
    """The dictionary of a PyG storage: reading a key builds an ``OnDemand`` value."""

    def __getitem__(self, key: str) -> Any:
        value = super().__getitem__(key)
        return value.value() if isinstance(value, OnDemand) else value

    def get(self, key: str, default: Any = None) -> Any:
        """The built value of ``key``, or ``default``."""
        return self[key] if key in self else default  # noqa: SIM401 - dict.get builds nothing

    def values(self) -> Iterator[Any]:  # type: ignore[override]
        """All values, built."""
        return (self[key] for key in self)

    def items(self) -> Iterator[tuple[str, Any]]:  # type: ignore[override]
        """All pairs, values built."""
        return ((key, self[key]) for key in self)

    def raw(self, key: str) -> Any:
        """The value as it is, not built."""
        return super().get(key)

    def raw_items(self) -> Iterator[tuple[str, Any]]:
        """All pairs, nothing built."""
        return iter(super().items())

    def __copy__(self) -> LazyMapping:
        return LazyMapping(super().items())


def raw_items(storage: BaseStorage) -> list[tuple[str, Any]]:
    """The items of any PyG storage, ``OnDemand`` values not built."""
    mapping = storage._mapping
    if isinstance(mapping, LazyMapping):
        return list(mapping.raw_items())
    return list(mapping.items())


def node_storages(data: Any) -> dict[str | None, Any]:
    """The storages of node attributes by node type, of ``Data`` or ``HeteroData``."""
    return {None: data._store} if isinstance(data, Data) else dict(data._node_store_dict)


def edge_storages(data: Any) -> dict[EdgeType | None, Any]:
    """The storages of edge attributes by edge type."""
    return {None: data._store} if isinstance(data, Data) else dict(data._edge_store_dict)


class _DiskStorage(BaseStorage):
    """What the storages of a store share: the schema knows what PyG would guess from sizes."""

    def _init_disk(self) -> None:
        self.__dict__["_mapping"] = LazyMapping()
        self.__dict__["_levels"] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._mapping  # PyG's would build the value

    def _put(self, key: str, value: Any, level: str) -> None:
        self._mapping[key] = value
        self._levels[key] = level

    def _pop_cache(self, key: str) -> None:
        # Called before a key is set or deleted by the user: from then on PyG's rules apply.
        self._levels.pop(key, None)
        super()._pop_cache(key)

    def __copy__(self) -> Any:
        out = super().__copy__()
        out.__dict__["_levels"] = dict(self._levels)
        return out

    def is_node_attr(self, key: str) -> bool:
        level = self._levels.get(key)
        return super().is_node_attr(key) if level is None else level == "node"

    def is_edge_attr(self, key: str) -> bool:
        level = self._levels.get(key)
        return super().is_edge_attr(key) if level is None else level == "edge"

    def _width(self, key: str) -> int | None:
        """Features per row of an attribute that is not built; None if it is not such a one."""
        value = self._mapping.raw(key)
        if not isinstance(value, OnDemand):
            return None
        return 1 if len(value.shape) == 1 else value.shape[-1]

    @property
    def num_node_features(self) -> int:
        width = self._width("x")
        return super().num_node_features if width is None else width

    @property
    def num_edge_features(self) -> int:
        width = self._width("edge_attr")
        return super().num_edge_features if width is None else width

    @property
    def num_edges(self) -> int:
        edge_index = self._mapping.raw("edge_index")
        if isinstance(edge_index, OnDemand):
            return edge_index.shape[1]
        return super().num_edges


class DiskGlobalStorage(_DiskStorage, GlobalStorage):
    """Node, edge and graph attributes of a homogeneous store."""


class DiskNodeStorage(_DiskStorage, NodeStorage):
    """Attributes of one node type."""


class DiskEdgeStorage(_DiskStorage, EdgeStorage):
    """Attributes of one edge type."""


class _DiskDataMixin:
    """Holding on to the store's files, pickling by path, printing without building."""

    def _changes(self) -> list[tuple[int, dict[str, Any], list[str]]]:
        """Per storage: what the user set or wrote to, and the keys that are gone."""
        fresh = type(self)(self.__dict__["_contents"])  # type: ignore[call-arg]
        changes = []
        for i, (mine, theirs) in enumerate(zip(self.stores, fresh.stores, strict=True)):  # type: ignore[attr-defined]
            before = dict(raw_items(theirs))
            now = dict(raw_items(mine))
            touched = {k: v for k, v in now.items() if k not in before or _differs(v, before[k])}
            values = {k: v.value() if isinstance(v, OnDemand) else v for k, v in touched.items()}
            changes.append((i, values, [k for k in before if k not in now]))
        return changes

    @property
    def is_cuda(self) -> bool:
        """Whether an attribute was moved to a GPU. Builds nothing, unlike PyG's."""
        values = (v for s in self.stores for _, v in raw_items(s))  # type: ignore[attr-defined]
        return any(isinstance(v, Tensor) and v.is_cuda for v in values)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopen, (type(self), self.__dict__["_contents"], self._changes())

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        # The views are shared: the files never change, and a copy of them could exceed RAM.
        return self.__copy__()  # type: ignore[attr-defined]


def _differs(value: Any, original: Any) -> bool:
    if isinstance(value, OnDemand):
        return value.is_changed
    if value is not original:
        return not isinstance(value, (int, str, float, bool)) or value != original
    # In-place writes to a shared view live in this process only.
    return isinstance(value, Tensor) and value._version > 0


def _reopen(
    cls: type, contents: StoreContents, changes: list[tuple[int, dict[str, Any], list[str]]]
) -> Any:
    data = cls(contents)
    stores = data.stores
    for i, values, gone in changes:
        for key in gone:
            del stores[i][key]
        for key, value in values.items():
            stores[i][key] = value
    return data


def _fill_nodes(storage: _DiskStorage, contents: StoreContents, name: str | None) -> None:
    record, rank = contents.node_type(name), contents.rank(name)
    for attr, file in record.attrs.items():
        rows = contents.rows(file)
        value: Any = rows
        if rank is not None or isinstance(rows, EncodedRows):
            build = partial(contents.node_column, name, attr)
            value = OnDemand(list(rows.shape), rows.dtype, build, rows, rank)
        storage._put(attr, value, "node")
    for index, file in record.index_sets.items():
        storage._put(index, contents.view(file), "other")
    for key, value in _loose(contents, record.others):
        storage._put(key, value, "other")
    storage._put("num_nodes", record.num_nodes, "other")


def _fill_edges(storage: _DiskStorage, contents: StoreContents, name: EdgeType | None) -> None:
    record = contents.edge_type(name)
    storage._put(
        "edge_index",
        OnDemand([2, record.num_edges], torch.int64, lambda: contents.edge_index(name)),
        "edge",
    )
    for attr, file in record.attrs.items():
        rows = contents.rows(file)
        value: Any = rows
        if record.edge_id is not None or isinstance(rows, EncodedRows):
            value = OnDemand(
                list(rows.shape),
                rows.dtype if isinstance(rows, Tensor) else torch.float32,
                lambda attr=attr: contents.edge_column(name, attr),  # type: ignore[misc]
                rows,
            )
        storage._put(attr, value, "edge")
    for key, value in _loose(contents, record.others):
        storage._put(key, value, "other")


def _loose(contents: StoreContents, entries: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What has no row per node or edge."""
    for key, entry in entries.items():
        yield key, decoded(contents.rows(entry["file"])) if "file" in entry else entry["value"]


def _shown(data: Any, plain: Any) -> str:
    """``data`` as PyG prints it, with ``OnDemand`` values shown by their shape."""
    for mine, other in zip(data.stores, plain.stores, strict=True):
        for key, value in raw_items(mine):
            if isinstance(value, OnDemand):
                value = torch.empty(value.shape, dtype=value.dtype, device="meta")
            other._mapping[key] = value
    return type(data).__name__ + repr(plain)[len(type(plain).__name__) :]


class DiskData(_DiskDataMixin, Data):
    """A homogeneous store as PyG ``Data``.

    ``x``, ``y``, masks and every other node attribute are tensors over mapped files; writing to one
    in place changes this process's copy only. ``edge_index`` (``int64 [2, num_edges]``, in the
    order of original edge ids) is built in memory if it is used, and so are node attributes that
    lie on disk in another order (see ``graphzero optimize``) or encoded.
    """

    def __init__(self, contents: StoreContents) -> None:
        super().__init__()
        self.__dict__["_contents"] = contents
        storage = DiskGlobalStorage(_parent=self)
        storage._init_disk()
        _fill_nodes(storage, contents, None)
        for edge_type in contents.schema.edge_types:
            _fill_edges(storage, contents, edge_type.name)
        for key, value in _loose(contents, contents.schema.graph_attrs):
            storage._put(key, value, "other")
        self.__dict__["_store"] = storage

    def __repr__(self) -> str:
        return _shown(self, Data())


class DiskHeteroData(_DiskDataMixin, HeteroData):
    """A heterogeneous store as PyG ``HeteroData``; see ``DiskData``."""

    def __init__(self, contents: StoreContents) -> None:
        super().__init__()
        self.__dict__["_contents"] = contents
        for node_type in contents.schema.node_types:
            nodes = DiskNodeStorage(_parent=self, _key=node_type.name)
            nodes._init_disk()
            _fill_nodes(nodes, contents, node_type.name)
            self._node_store_dict[node_type.name] = nodes
        for edge_type in contents.schema.edge_types:
            edges = DiskEdgeStorage(_parent=self, _key=edge_type.name)
            edges._init_disk()
            _fill_edges(edges, contents, edge_type.name)
            self._edge_store_dict[edge_type.name] = edges
        for key, value in _loose(contents, contents.schema.graph_attrs):
            self._global_store[key] = value

    def __repr__(self) -> str:
        plain = HeteroData()
        for name in self.node_types:
            plain[name]
        for name in self.edge_types:
            plain[name]
        return _shown(self, plain)
