"""``store.data()``: PyG ``Data`` and ``HeteroData`` whose tensors lie on disk."""

from __future__ import annotations

import copy
from abc import abstractmethod
from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData
from torch_geometric.data.storage import (
    BaseStorage,
    EdgeStorage,
    GlobalStorage,
    NodeStorage,
    recursive_apply,
)
from typing_extensions import Self

from pyg_graphzero.pyg.lazy import LazyMapping, OnDemand, called, raw_items
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType


def contents_of(data: Any) -> StoreContents | None:
    """The opened files of the store that ``data`` is of; None if it is in memory."""
    contents: StoreContents | None = getattr(data, "__dict__", {}).get("_contents")
    return contents


def empty_like(data: Any) -> Any:
    """A graph in memory of the same class, for a batch; its constructor is not called."""
    cls: Any = data._plain if isinstance(data, _OnDisk) else type(data)
    out = _bare(cls)
    if cls in (Data, HeteroData):
        return out
    own = {k: v for k, v in data.__dict__.items() if k not in out.__dict__ and k != "_contents"}
    out.__dict__.update(own)
    return out


def _bare(cls: Any) -> Any:
    """A graph without attributes, as PyG's constructor makes it; that of ``cls`` is not called."""
    out = cls.__new__(cls)
    (HeteroData if issubclass(cls, HeteroData) else Data).__init__(out)
    return out


def node_storages(data: Any) -> dict[str | None, Any]:
    """The storages of node attributes by node type, of ``Data`` or ``HeteroData``."""
    return dict(data._node_store_dict) if isinstance(data, HeteroData) else {None: data._store}


def edge_storages(data: Any) -> dict[EdgeType | None, Any]:
    """The storages of edge attributes by edge type."""
    return dict(data._edge_store_dict) if isinstance(data, HeteroData) else {None: data._store}


class _DiskStorage(BaseStorage):
    """Shared by the storages of a store: the schema knows what PyG would guess from sizes."""

    def __contains__(self, key: object) -> bool:
        return key in self._mapping  # PyG's would build the value

    def __getattr__(self, key: str) -> Any:
        try:
            return super().__getattr__(key)
        except AttributeError:
            mapping = self.__dict__.get("_mapping")
            if key.startswith("_") or not isinstance(mapping, LazyMapping):
                raise
        raise AttributeError(str(mapping.missing(key)), name=key, obj=self)

    def __setitem__(self, key: str, value: Any) -> None:
        raw = self._mapping.raw(key)
        if isinstance(raw, OnDemand) and raw.is_built:
            raw = raw.value()
        if value is not None and value is raw:
            return  # what ``data.to("cpu")`` does: it is the store's still
        if _takes_memory(value):
            self._mapping.contents.tell_use(
                called(self._key, key),
                value.numel() * value.itemsize,
                "write it into the store, opened with mode='r+': feature_store.put_tensor(), or "
                "create_column() by rows",
            )
        super().__setitem__(key, value)

    def _pop_cache(self, key: str) -> None:
        # Called before a key is set or deleted by the user: from then on PyG's rules apply.
        self._mapping.levels.pop(key, None)
        super()._pop_cache(key)

    def __deepcopy__(self, memo: dict[int, Any] | None) -> Self:
        out: Self = super().__deepcopy__({} if memo is None else memo)
        out.__dict__.pop("_cached_attr", None)  # PyG's would be shared
        return out

    def to_dict(self) -> dict[str, Any]:
        """All values by key, built: a plain dictionary."""
        out = dict(self._mapping)
        if "_num_nodes" in self.__dict__:
            out["_num_nodes"] = self.__dict__["_num_nodes"]
        return out

    def map_anew(self, *args: str) -> None:
        """Maps files again and clones the rest, in a copy: a part of ``clone()``."""
        for key in self.keys(*args):
            anew = self._mapping.mapped_anew(key)
            if anew is None:
                self[key] = recursive_apply(self[key], lambda value: value.clone())
            else:
                self._mapping[key] = anew

    def to(self, device: Any, *args: str, non_blocking: bool = False) -> Self:
        """Moves attributes to a device; what is on disk is on the CPU already."""
        if torch.device(device).type == "cpu":
            return self.cpu(*args)
        out: Self = super().to(device, *args, non_blocking=non_blocking)
        return out

    def cpu(self, *args: str) -> Self:
        """Moves attributes to the CPU; what is on disk is there already."""
        keys = self._in_memory(args)
        return self.apply(lambda value: value.cpu(), *keys) if keys else self

    def share_memory_(self, *args: str) -> Self:
        """Moves attributes to shared memory; processes share what is on disk already."""
        keys = self._in_memory(args)
        return self.apply(lambda value: value.share_memory_(), *keys) if keys else self

    def _in_memory(self, args: tuple[str, ...]) -> list[str]:
        return [key for key in self.keys(*args) if not self._mapping.is_on_disk(key)]

    def is_node_attr(self, key: str) -> bool:
        level = self._mapping.levels.get(key)
        return super().is_node_attr(key) if level is None else level == "node"

    def is_edge_attr(self, key: str) -> bool:
        level = self._mapping.levels.get(key)
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
        if "num_edges" not in self and isinstance(edge_index, OnDemand):
            return edge_index.shape[1]
        return super().num_edges


class DiskGlobalStorage(_DiskStorage, GlobalStorage):
    """Node, edge and graph attributes of a homogeneous store."""


class DiskNodeStorage(_DiskStorage, NodeStorage):
    """Attributes of one node type."""


class DiskEdgeStorage(_DiskStorage, EdgeStorage):
    """Attributes of one edge type."""


class DiskGraphStorage(_DiskStorage):
    """Attributes of no type of a heterogeneous store."""


def _storage(cls: type, data: Any, contents: StoreContents, kind: str, name: Any = None) -> Any:
    out = cls(_parent=data)
    if kind in ("node", "edge"):
        out._key = name
    out._mapping = LazyMapping.of(contents, kind, name)
    return out


def _takes_memory(value: Any) -> bool:
    """Whether a tensor lies in memory that torch has allocated, and not in a file."""
    return (
        isinstance(value, Tensor)
        and value.layout == torch.strided
        and value.is_cpu
        and value.untyped_storage().resizable()
    )


def _shown(data: Any, plain: Any) -> str:
    """``data`` as PyG prints it, with ``OnDemand`` values shown by their shape."""
    for mine, other in zip(data.stores, plain.stores, strict=True):
        for key, value in raw_items(mine):
            if isinstance(value, OnDemand):
                value = torch.empty(value.shape, dtype=value.dtype, device="meta")
            other._mapping[key] = value
    return type(data).__name__ + repr(plain)[len(type(plain).__name__) :]


class _OnDisk:
    """Mixed into PyG's classes: what they do to all attributes is not done to those on disk.

    Without a store, as PyG makes them by the constructor, they are as ever.
    """

    stores: list[Any]
    _plain: type  # the class that this is of, but for the disk

    @classmethod
    def _of(cls, contents: StoreContents) -> Self:
        out: Self = _bare(cls)
        out.__dict__["_contents"] = contents
        out._fill(contents)
        return out

    @abstractmethod
    def _fill(self, contents: StoreContents) -> None:
        """Has it look at what is in the store."""

    @property
    def is_cuda(self) -> bool:
        """Whether an attribute was moved to a GPU. Builds nothing, unlike PyG's."""
        values = (v for s in self.stores for _, v in raw_items(s))
        return any(isinstance(v, Tensor) and v.is_cuda for v in values)

    def clone(self, *args: str) -> Self:
        """A copy with attributes of its own; those on disk are mapped again, not copied."""
        out: Self = copy.copy(self)
        for store in out.stores:
            if isinstance(store, _DiskStorage):
                store.map_anew(*args)
            else:
                store.apply(lambda value: value.clone(), *args)
        return out

    def to(self, device: Any, *args: str, non_blocking: bool = False) -> Self:
        """Moves attributes to a device; what is on disk is on the CPU already."""
        for store in self.stores:
            store.to(device, *args, non_blocking=non_blocking)
        return self

    def cpu(self, *args: str) -> Self:
        """Moves attributes to the CPU; what is on disk is there already."""
        return self.to("cpu", *args)

    def share_memory_(self, *args: str) -> Self:
        """Moves attributes to shared memory; processes share what is on disk already."""
        for store in self.stores:
            store.share_memory_(*args)
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        # The class may be one that was made for a user's own.
        return _blank, (self._plain,), dict(self.__dict__)


def _blank(plain: type) -> Any:
    cls: Any = disk_class(plain)
    return cls.__new__(cls)


class DiskData(_OnDisk, Data):
    """A homogeneous store as PyG ``Data``.

    ``x``, ``y``, masks and every other node attribute are tensors over mapped files; writing to one
    in place changes this process's copy only. ``edge_index`` (``int64 [2, num_edges]``, in the
    order of original edge ids) is built in memory if it is used, and so are encoded attributes.
    """

    _plain = Data

    def _fill(self, contents: StoreContents) -> None:
        self.__dict__["_store"] = _storage(DiskGlobalStorage, self, contents, "store")

    def __repr__(self) -> str:
        return _shown(self, Data())


class DiskHeteroData(_OnDisk, HeteroData):
    """A heterogeneous store as PyG ``HeteroData``; see ``DiskData``."""

    _plain = HeteroData

    def _fill(self, contents: StoreContents) -> None:
        self.__dict__["_global_store"] = _storage(DiskGraphStorage, self, contents, "graph")
        for types, cls, kind, stores in (
            (contents.schema.node_types, DiskNodeStorage, "node", self._node_store_dict),
            (contents.schema.edge_types, DiskEdgeStorage, "edge", self._edge_store_dict),
        ):
            stores |= {t.name: _storage(cls, self, contents, kind, t.name) for t in types}

    def __getattr__(self, key: str) -> Any:
        try:
            return super().__getattr__(key)
        except AttributeError:
            if key.startswith("_") or "_contents" not in self.__dict__:
                raise
            storages = node_storages(self) | edge_storages(self)
            owners = [name for name, store in storages.items() if key in store]
            message = f"data.{key}: found no such attribute of the graph, expected " + (
                f"data[{owners[0]!r}].{key}: these types have it: {owners}"
                if owners
                else f"data[TYPE].{key}, TYPE one of {self.node_types + self.edge_types}"
            )
        raise AttributeError(message, name=key, obj=self)

    def __repr__(self) -> str:
        plain = HeteroData()
        for name in self.node_types:
            plain.get_node_store(name)
        for name in self.edge_types:
            plain.get_edge_store(*name)
        return _shown(self, plain)


@cache
def disk_class(plain: type) -> type[Any]:
    """The class of graphs on disk that is also ``plain``, of ``Data`` or ``HeteroData``."""
    disk: Any = DiskHeteroData if issubclass(plain, HeteroData) else DiskData
    if plain is disk._plain:
        return disk
    return type(f"Disk{plain.__name__}", (disk, plain), {"_plain": plain})


def open_data(contents: StoreContents, cls: type | None = None) -> Any:
    """The graph of a store, of the class ``cls`` too.

    Raises:
        TypeError: ``cls`` is not for a graph of this kind.
    """
    kind = HeteroData if contents.schema.is_hetero else Data
    if cls is None:
        cls = kind
    if not (isinstance(cls, type) and issubclass(cls, kind)):
        raise TypeError(f"cls: found {cls!r}, expected {kind.__name__} or a subclass of it")
    return disk_class(cls)._of(contents)
