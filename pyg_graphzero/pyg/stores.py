"""``gz.open`` and what it returns: a store, with PyG's FeatureStore and GraphStore over it."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar, overload

import torch
from torch import Tensor
from typing_extensions import Self

from pyg_graphzero.errors import MissingAttributeError
from pyg_graphzero.pyg.data import open_data
from pyg_graphzero.pyg.edges import DiskGraphStore
from pyg_graphzero.pyg.features import DiskFeatureStore
from pyg_graphzero.store.column_writer import Column, create_column, end_columns
from pyg_graphzero.store.handle import StoreHandle
from pyg_graphzero.store.ids import StringIds, lookup
from pyg_graphzero.store.info import Info
from pyg_graphzero.store.info import info as info_of
from pyg_graphzero.store.manifest import Manifest, is_sharded, stores_in
from pyg_graphzero.store.opened import Opening
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.store.verify import VerifyReport, verify
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.html import outline

Graph = TypeVar("Graph")


def open(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    memory: int | str | None = None,
    processes: int = 1,
    strict: bool = False,
    row_cache: int | str | bool = "auto",
) -> Store:
    """Opens a store. Costs milliseconds and no memory, whatever the size.

    Args:
        path: The store's directory.
        mode: ``"r"``, or ``"r+"`` to add and remove columns through PyG's ``put_*`` and
            ``remove_*``; one process at a time may hold it so.
        memory: Memory of this process, in bytes or such as ``"8GB"`` (10⁹) and ``"8GiB"`` (2³⁰):
            all that it takes already, and rows, topologies and batches of the store's loaders. The
            memory of a model and its training comes on top. None: all that the process takes
            already, and four fifths of what the machine and its cgroups leave. Loaders keep
            what fits in memory and read the rest from disk, ahead and in large pieces; batches
            are the same.
        processes: How many processes of this machine share ``memory``, each with the store open:
            under torchrun, ``LOCAL_WORLD_SIZE``. Each gets its part; files that are held whole are
            in memory once for all, and counted so.
        strict: Bringing a large part of the store into memory (more than a tenth of the
            budget: ``data.edge_index``, a transform) is a ``DoesNotFitError``, not a
            ``MemoryUseWarning``.
        row_cache: ``"auto"``: where rows do not fit and reading them takes long, rows that training
            uses are written once more in the order of their use, in the store's directory or the
            user's cache, before the first batch (or before the second epoch, where neighbours do
            not fit either); later runs with the same seeds read them there. A size such as
            ``"20GB"`` limits the bytes written; with ``"found"`` loaders read a copy that is there
            and make none, with False they do neither. ``graphzero clean`` removes it.

    Raises:
        FileNotFoundError: There is no store.
        FormatError: A file is damaged, cut short, or of another format version; an adopted file
            was moved or changed.
        StoreInUseError: ``"r+"`` while it is open so elsewhere; it is a BlockingIOError.

    Example:
        >>> import pyg_graphzero as gz
        >>> store = gz.open(example_store)
        >>> store.data().num_nodes
        4
    """
    return Store(path, mode, Opening(memory, processes, strict, row_cache))


def info(path: str | os.PathLike[str]) -> Info:
    """The contents of a store, as plain dictionaries; ``graphzero info`` prints the same.

    A store in shards has how it is divided, and under ``"stores"`` the contents of its shards that
    are there, by name.

    Args:
        path: The store's directory, or one with shards.

    Raises:
        FileNotFoundError: There is no store.
        FormatError: A file is damaged, cut short, or of another format version.

    Example:
        >>> import pyg_graphzero as gz
        >>> found = gz.info(example_store)
        >>> found["node_types"][0]["num_nodes"], found["edge_types"][0]["num_edges"]
        (4, 4)
    """
    directory = Path(check_path(path, "path"))
    if is_sharded(directory):
        stores = {store.name: info(store) for store in stores_in(directory)}
        facts = asdict(Manifest.load(directory))
        return Info({"path": str(path)} | facts | {"stores": stores})
    with open(path) as store:
        return store.info()


class Store(StoreHandle):
    """An opened store. Use as a context manager, or call ``close()``.

    Pickles by path. Tensors and data objects taken from it stay valid after ``close()``.
    """

    @property
    def feature_store(self) -> DiskFeatureStore:
        """PyG's ``FeatureStore`` over the attributes."""
        return DiskFeatureStore(self)

    @property
    def graph_store(self) -> DiskGraphStore:
        """PyG's ``GraphStore`` over the topologies."""
        return DiskGraphStore(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self.closed:
            return f"Store({str(self.path)!r}, closed)"
        numbered = all(t.edge_ids for t in self.contents.schema.edge_types)
        ids = "" if numbered else ", edge_ids=False"
        counts = f"num_nodes={self.num_nodes}, num_edges={self.num_edges}"
        return f"Store({str(self.path)!r}, {counts}{ids})"

    def _repr_html_(self) -> str:
        return outline(repr(self) if self.closed else str(self.info()))

    def __fspath__(self) -> str:
        """The store's directory: a function that takes the path of a store takes the store too."""
        return str(self.path)

    def close(self) -> None:
        """Lets go of the files. Tensors taken from the store stay valid.

        Columns that are being written and not published are removed.
        """
        end_columns(self)
        super().close()

    @property
    def memory_plan(self) -> Any:
        """How the budget is divided (a ``MemoryPlan``); None before a loader begins."""
        keeper = self.contents.keeper
        return None if keeper is None or keeper.current is None else keeper.current.plan

    @property
    def is_hetero(self) -> bool:
        """Whether node and edge types have names."""
        return self.contents.schema.is_hetero

    @property
    def node_types(self) -> list[str | None]:
        """Names of the node types; ``[None]`` in a homogeneous store."""
        return [t.name for t in self.contents.schema.node_types]

    @property
    def edge_types(self) -> list[EdgeType | None]:
        """Names of the edge types; ``[None]`` in a homogeneous store."""
        return [t.name for t in self.contents.schema.edge_types]

    @property
    def num_nodes(self) -> int:
        """Number of nodes, of all types together."""
        return sum(t.num_nodes for t in self.contents.schema.node_types)

    @property
    def num_edges(self) -> int:
        """Number of edges, of all types together."""
        return sum(t.num_edges for t in self.contents.schema.edge_types)

    def num_nodes_of(self, node_type: str | None) -> int:
        """Number of nodes of one type; None is the one of a homogeneous store."""
        return self.contents.node_type(node_type).num_nodes

    def num_edges_of(self, edge_type: EdgeType | None) -> int:
        """Number of edges of one type; None is the one of a homogeneous store."""
        return self.contents.edge_type(edge_type).num_edges

    @overload
    def data(self, cls: None = None) -> Any: ...

    @overload
    def data(self, cls: type[Graph]) -> Graph: ...

    def data(self, cls: type | None = None) -> Any:
        """The graph as PyG ``Data`` or ``HeteroData`` whose tensors lie on disk.

        Args:
            cls: A subclass of these that it should be of too, for its methods; its constructor
                is not called. Batches of the loaders are then of this class.

        Raises:
            TypeError: ``cls`` is no such class.
        """
        return open_data(self.contents, cls)

    def ids(self, node_type: str | None = None) -> Tensor | StringIds:
        """The user's id of every row: integers ``[num_nodes]`` or a sequence of strings.

        Integers are ``int64``; ``uint64`` where one is 2^63 or more, such as a hash.
        """
        record = self.contents.node_type(node_type)
        if record.ids is None:
            return torch.arange(record.num_nodes)
        if record.id_offsets is None:
            return self.contents.view(record.ids)
        return self._words(record.ids, record.id_offsets)

    def categories(self, attr: str, of: str | EdgeType | None = None) -> StringIds:
        """The names of the values 0, 1 … of an attribute that was text: a sequence of strings.

        Args:
            attr: The attribute of nodes or, if these have none of that name, of edges.
            of: The node or edge type; None in a homogeneous store.

        Raises:
            MissingAttributeError: There is no such attribute, or its values have no names.
        """
        records = [each for each in self.contents.schema.types if each.name == of]
        for record in records:
            if attr in record.categories:
                return self._words(record.categories[attr], record.category_offsets[attr])
        there = [name for record in records for name in record.categories]
        raise MissingAttributeError(
            f"{self.path}: categories of {attr!r}{'' if of is None else f' of {of}'}: found none, "
            f"expected an attribute that was text: {there}"
        )

    def _words(self, file: str, offsets: str) -> StringIds:
        view = self.contents.view
        return StringIds(view(offsets), view(file), str(self.path / offsets))

    def lookup(self, ids: Any, node_type: str | None = None) -> Tensor:
        """Rows (``int64 [len(ids)]``) of the user's ids; an error names the first missing one."""
        record = self.contents.node_type(node_type)
        known = None if record.ids is None else self.ids(node_type)
        return lookup(known, ids, record.num_nodes)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Reads everything against its checksums; see ``pyg_graphzero.store.verify.verify``."""
        return verify(self.contents.path, progress)

    def info(self) -> Info:
        """The contents of the store, as plain dictionaries; see :func:`.info.info`."""
        return info_of(self.contents)

    def create_column(
        self,
        name: str,
        width: int | tuple[int, ...],
        *,
        node_type: str | None = None,
        dtype: torch.dtype = torch.float32,
        encoding: str | None = None,
    ) -> Column:
        """Begins a node attribute that is written row by row, larger than memory if need be.

        The store must be open with ``mode="r+"``. The attribute is not seen before
        ``Column.publish()``. One of the same name that was begun before and never published is
        removed.

        Args:
            name: The attribute.
            width: Items of a row, or the shape of one; ``()`` for one value.
            node_type: The node type; None in a homogeneous store.
            dtype: Dtype of the rows that are given and read.
            encoding: ``"float16"`` or ``"bfloat16"``: store float32 so.

        Raises:
            ReadOnlyStoreError: The store is open for reading.
            ValueError: The name is taken, or width, dtype or encoding is none.
            OSError: The disk is full or fails.
        """
        with self.turn:
            return create_column(self, name, width, node_type, dtype, encoding)

    def create_csr(self, edge_type: EdgeType | None = None) -> None:
        """Writes the edges once more, sorted by source, for walks along them.

        A store has the in-neighbours of every node; walks from source to destination need its
        out-neighbours. An undirected graph needs none for that. The disk has as much again as the
        topology takes, and 4 bytes an edge. The store must be open with ``mode="r+"``.

        Args:
            edge_type: The edge type; None: all of them.

        Raises:
            ReadOnlyStoreError: The store is open for reading.
            MissingAttributeError: There is no such edge type.
            OSError: The disk is full or fails: the store is as it was, unless the message says
                that the new content is in place, and may not outlast a power failure.
        """
        names = self.edge_types if edge_type is None else [edge_type]
        for name in names:
            self.contents.edge_type(name)
        self.edit(lambda editor: editor.create_csr(names))


def check_store(store: Any) -> Store:
    """Returns ``store``.

    Raises:
        TypeError: It is another object, such as the store's data.
    """
    if not isinstance(store, Store):
        raise TypeError(f"store: found {type(store).__name__}, expected what gz.open() returns")
    return store
