"""Values of a storage on disk: tensors over mapped files, and tensors that are built on demand.

Tensors that PyG wants otherwise than the disk has them (``edge_index``, edge attributes, decoded
rows) are built when they are first asked for; the loaders never ask. A script's changes are its own
copy's alone, and travel with it when it is pickled; the rest travels as the path of the store.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data.storage import BaseStorage
from typing_extensions import Self

from pyg_graphzero.errors import MissingAttributeError, UnsupportedError
from pyg_graphzero.store.columns import EncodedRows, decoded, is_written
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeTypeSchema, NodeTypeSchema, TypeSchema

# Remedies for what takes much memory.
_BY_ROWS = (
    "gz.loader's loaders gather the rows of a batch without it; for some rows, "
    "store.feature_store.get_tensor(…, attr_name={!r}, index=…)"
)
_NO_EDGES = (
    "gz.loader's loaders sample without it; reverse edges, self-loops and sorting out duplicates "
    "are options of gz.convert(), and a split of edges is a mask over their numbers"
)

# The part of a store in a mapping: a homogeneous store, a type, or the attributes of the graph.
Origin = tuple[str, Any]


@dataclass(eq=False)
class OnDemand:
    """A tensor that is built at its first use.

    Attributes:
        shape: Its shape.
        dtype: Its dtype.
        build: Builds it.
        rows: Gathers without building read these: the same rows over the mapped file, by CSC
            slot if they are edges'; None where there is no such column.
        tell: Called with its bytes before it is built.
        is_remote: The rows lie in shards of several ranks, and are never built.
    """

    shape: list[int]
    dtype: torch.dtype
    build: Callable[[], Tensor]
    rows: Tensor | EncodedRows | None = None
    tell: Callable[[int], None] | None = None
    is_remote: bool = False
    _value: Tensor | None = field(default=None, init=False)
    _version: int = field(default=0, init=False)

    @property
    def is_built(self) -> bool:
        """Whether it was used, and so may have been changed."""
        return self._value is not None

    @property
    def stored(self) -> Tensor | EncodedRows | None:
        """``rows``, as long as it was not used."""
        return None if self.is_built else self.rows

    @property
    def is_changed(self) -> bool:
        """Whether it was written to in place."""
        return self._value is not None and is_written(self._value, self._version)

    @torch.inference_mode(False)  # what is built stays, and counts the writes to it
    def value(self) -> Tensor:
        """The tensor itself.

        Raises:
            DoesNotFitError: It is large, and the store was opened with ``strict=True``.
        """
        if self._value is None:
            if self.tell is not None:
                self.tell(prod(self.shape) * self.dtype.itemsize)
            self._value = self.build()
            self._version = self._value._version
        return self._value

    def copy(self) -> Tensor:
        """The tensor as it is now; one that was not used before is not kept either."""
        return self.build() if self._value is None else self._value

    def __deepcopy__(self, memo: dict[int, Any]) -> OnDemand:
        out = copy.copy(self)
        # A value that was built and not changed can be built again.
        out._value = copy.deepcopy(self._value, memo) if self.is_changed else None
        out._version = -1 if self.is_changed else 0
        return out

    def __repr__(self) -> str:
        return f"OnDemand({self.shape}, {self.dtype})"


class LazyMapping(MutableMapping[str, Any]):
    """The dictionary of a PyG storage: reading a key builds an ``OnDemand`` value.

    Not a ``dict``, whose values C code reads as they are.

    Args:
        contents: The store.
        origin: The part of the store.

    Attributes:
        levels: ``"node"``, ``"edge"`` or ``"other"`` by key, for what is as the store has it.
    """

    def __init__(self, contents: StoreContents, origin: Origin) -> None:
        self.contents = contents
        self.origin = origin
        self.levels: dict[str, str] = {}
        self._values: dict[str, Any] = {}

    @classmethod
    def of(cls, contents: StoreContents, kind: str, name: Any = None) -> Self:
        """All that a store has of a type."""
        out = cls(contents, (kind, name))
        for record in contents.schema.types:
            if kind in ("store", record.kind) and record.name == name:
                _fill_type(out, contents, record)
        if kind in ("store", "graph"):
            _fill_loose(out, contents, contents.schema.graph_attrs)
        return out

    def __getitem__(self, key: str) -> Any:
        if key not in self._values:
            raise self.missing(key)
        value = self._values[key]
        return value.value() if isinstance(value, OnDemand) else value

    def missing(self, key: str) -> MissingAttributeError:
        """The error for a key that is not there: it names the keys that are."""
        there = ", ".join(map(str, self)) or "none"
        where = called(self.origin[1], key)
        return MissingAttributeError(f"{where}: found no such attribute, expected one of {there}")

    def __setitem__(self, key: str, value: Any) -> None:
        self._values[key] = value

    def __delitem__(self, key: str) -> None:
        del self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __contains__(self, key: object) -> bool:
        return key in self._values  # the mixin's would build the value

    def __repr__(self) -> str:
        return repr(self._values)

    def put(self, key: str, value: Any, level: str) -> None:
        """Sets what the store has under a key."""
        self._values[key] = value
        self.levels[key] = level

    def raw(self, key: str) -> Any:
        """The value as it is, not built."""
        return self._values.get(key)

    def is_on_disk(self, key: str) -> bool:
        """Whether the value is the store's still, and takes no memory."""
        value = self._values[key]
        if isinstance(value, OnDemand):
            return not value.is_built
        return isinstance(value, Tensor) and self.contents.file_of(value) is not None

    def mapped_anew(self, key: str) -> Any:
        """The store's value for a copy that writes to this one do not show in; None for others."""
        value = self._values[key]
        if isinstance(value, OnDemand):
            return copy.deepcopy(value)
        return self.contents.copy_of(value) if isinstance(value, Tensor) else None

    def __copy__(self) -> LazyMapping:
        out = LazyMapping(self.contents, self.origin)
        out.levels.update(self.levels)
        out._values.update(self._values)
        return out

    def __deepcopy__(self, memo: dict[int, Any]) -> LazyMapping:
        out = copy.copy(self)
        for key, value in self._values.items():
            anew = None if id(value) in memo else self.mapped_anew(key)
            if anew is not None:
                memo[id(value)] = anew
            out._values[key] = copy.deepcopy(value, memo)
        return out

    def __reduce__(self) -> tuple[Any, ...]:
        packed = {key: self._packed(value) for key, value in self._values.items()}
        return _mapping_again, (self.contents, self.origin, packed, self.levels)

    def _packed(self, value: Any) -> tuple[str | None, Any]:
        """The file of a value that is the store's; "" for what is built again; None and others."""
        if isinstance(value, OnDemand):
            return (None, value.value()) if value.is_changed else ("", None)
        file = self.contents.file_of(value) if isinstance(value, Tensor) else None
        return file, value if file is None else None


def _mapping_again(
    contents: StoreContents,
    origin: Origin,
    packed: dict[str, tuple[str | None, Any]],
    levels: dict[str, str],
) -> LazyMapping:
    out, stored = LazyMapping(contents, origin), LazyMapping.of(contents, *origin)
    for key, (file, value) in packed.items():
        out[key] = value if file is None else contents.view(file) if file else stored.raw(key)
    out.levels = levels
    return out


def raw_items(storage: BaseStorage) -> list[tuple[str, Any]]:
    """The items of any PyG storage, ``OnDemand`` values not built."""
    mapping = storage._mapping
    if isinstance(mapping, LazyMapping):
        return [(key, mapping.raw(key)) for key in mapping]
    return list(mapping.items())


def _fill_type(mapping: LazyMapping, contents: StoreContents, record: TypeSchema) -> None:
    name, level, is_moved = record.name, record.kind, False
    if isinstance(record, EdgeTypeSchema):
        is_moved = record.edge_id is not None
        build: Callable[[], Tensor] = partial(contents.edge_index, record.name)
        shape = [2, record.num_edges]
        tell = partial(contents.tell_use, called(name, "edge_index"), instead=_NO_EDGES)
        mapping.put("edge_index", OnDemand(shape, torch.int64, build, tell=tell), level)
    shards = contents.shards
    for attr in record.attrs if shards is None else shards.attrs((level, name), record.attrs):
        if attr not in record.attrs:
            mapping.put(attr, _in_shards(contents, (level, name), attr), level)
            continue
        rows = contents.rows(record.attrs[attr])
        value: Any = rows
        if is_moved or isinstance(rows, EncodedRows):
            build = partial(contents.whole, record, attr)
            tell = partial(contents.tell_use, called(name, attr), instead=_BY_ROWS.format(attr))
            value = OnDemand(list(rows.shape), rows.dtype, build, rows, tell)
        mapping.put(attr, value, level)
    if isinstance(record, NodeTypeSchema):
        for index, file in record.index_sets.items():
            mapping.put(index, contents.view(file), "other")
    _fill_loose(mapping, contents, record.others)
    if isinstance(record, NodeTypeSchema):
        mapping.put("num_nodes", record.num_nodes, "other")


def _in_shards(contents: StoreContents, key: tuple[str, Any], attr: str) -> OnDemand:
    """An attribute whose rows only batches have."""

    def build() -> Tensor:
        raise UnsupportedError(
            f"{contents.path}: {called(key[1], attr)}: found rows in shards, expected an attribute "
            "that every rank has whole; batches of gz.loader.NeighborLoader and "
            "LinkNeighborLoader have the rows of their nodes"
        )

    shape, dtype = contents.shards.kind(key, attr)
    return OnDemand(shape, dtype, build, is_remote=True)


def _fill_loose(mapping: LazyMapping, contents: StoreContents, entries: dict[str, Any]) -> None:
    """Attributes without a row per node or edge."""
    for key, entry in entries.items():
        if "file" in entry:
            mapping.put(key, decoded(contents.rows(entry["file"])), "other")
        else:
            mapping.put(key, entry["value"], "other")


def called(name: Any, key: str) -> str:
    """A user's name of an attribute of a type; of a homogeneous graph, if that is None."""
    return f"data.{key}" if name is None else f"data[{name!r}].{key}"
