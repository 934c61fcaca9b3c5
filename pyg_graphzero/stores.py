"""``gz.open`` and what it returns: a store, with PyG's FeatureStore and GraphStore over it."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, FeatureStore, GraphStore, TensorAttr
from torch_geometric.data.feature_store import _FieldStatus
from torch_geometric.data.graph_store import EdgeLayout
from typing_extensions import Self

from pyg_graphzero.arguments import as_row_index, as_tensor
from pyg_graphzero.budget import Division
from pyg_graphzero.column_writer import Column, create_column
from pyg_graphzero.columns import decoded, gather, look_up, permuted
from pyg_graphzero.contents import StoreContents
from pyg_graphzero.convert.csc import EdgeChunk
from pyg_graphzero.data import DiskData, DiskHeteroData
from pyg_graphzero.errors import ClosedStoreError, MissingAttributeError, ReadOnlyStoreError
from pyg_graphzero.ids import StringIds, lookup
from pyg_graphzero.info import info
from pyg_graphzero.schema import EdgeType, EdgeTypeSchema, NodeTypeSchema
from pyg_graphzero.verify import VerifyReport, verify
from pyg_graphzero.writer import StoreEditor

# PyG's group name for the edge attributes of a homogeneous graph.
HOMOGENEOUS_EDGES = (None, None)


def open(
    path: str | os.PathLike[str],
    mode: str = "r",
    *,
    keep_half: bool | Collection[str] = False,
    memory: int | str | None = None,
    processes: int = 1,
) -> Store:
    """Opens a store. Costs milliseconds and no memory, whatever the size.

    Args:
        path: The store's directory.
        mode: ``"r"``, or ``"r+"`` to add and remove columns through PyG's ``put_*`` and
            ``remove_*``; one process at a time may hold it so.
        keep_half: Attributes stored as float16 or bfloat16 for float32 that are left in half
            precision: names (``"x"``, ``"paper.x"``), or True for all.
        memory: What this process may keep in memory, in bytes or such as ``"8GB"`` (10⁹) and
            ``"8GiB"`` (2³⁰): what it takes already, and what the store's loaders take for rows,
            topologies and batches. What a model and its training take comes on top. None: what it
            takes already and four fifths of what the machine and its cgroups leave. Loaders keep
            what fits in memory and read the rest from disk, ahead and in large pieces; batches
            are the same.
        processes: How many processes of this machine share ``memory``, each with the store open:
            under torchrun, ``LOCAL_WORLD_SIZE``. Each gets its part; files that are held whole are
            in memory once for all, and counted so.

    Raises:
        MemoryBudgetError: Not even the tables that are always in memory fit into ``memory``. That
            a batch does not is said when a loader begins.
        FileNotFoundError: There is no store.
        FormatError: A file is damaged, cut short, or of another format version; an adopted file
            was moved or changed.
        BlockingIOError: ``"r+"`` while another process has it open so.

    Example:
        >>> import pyg_graphzero as gz
        >>> store = gz.open(example_store)
        >>> store.data().num_nodes
        4
    """
    return Store(path, mode, keep_half=keep_half, memory=memory, processes=processes)


class Store:
    """An opened store. Use as a context manager, or call ``close()``.

    Pickles by path. Tensors and data objects taken from it stay valid after ``close()``.

    Attributes:
        path: The store's directory.
        feature_store: PyG's ``FeatureStore`` over the attributes.
        graph_store: PyG's ``GraphStore`` over the topologies.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        mode: str = "r",
        *,
        keep_half: bool | Collection[str] = False,
        memory: int | str | None = None,
        processes: int = 1,
    ) -> None:
        if mode not in ("r", "r+"):
            raise ValueError(f"mode: found {mode!r}, expected 'r' or 'r+'")
        self.path = Path(os.path.abspath(path))
        self.mode = mode
        self.keep_half = keep_half
        self.memory = memory
        self.processes = processes
        self._open_contents: StoreContents | None = self._open()
        self._open_contents.check_budget()
        self._editor: StoreEditor | None = None
        # Those that are being written, by node type and name.
        self._columns: dict[tuple[str | None, str], Column] = {}
        if mode == "r+":
            self._editor = StoreEditor(self.path, self._open_contents.schema)
            # What another writer changed before this one had the lock.
            self._refresh()
        self.feature_store = DiskFeatureStore(self)
        self.graph_store = DiskGraphStore(self)

    def __reduce__(self) -> tuple[Any, ...]:
        remake = partial(
            Store, keep_half=self.keep_half, memory=self.memory, processes=self.processes
        )
        return remake, (self.path, "r")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def __repr__(self) -> str:
        if self._open_contents is None:
            return f"Store({str(self.path)!r}, closed)"
        nodes = sum(t.num_nodes for t in self._contents.schema.node_types)
        edges = sum(t.num_edges for t in self._contents.schema.edge_types)
        return f"Store({str(self.path)!r}, num_nodes={nodes}, num_edges={edges})"

    def _open(self) -> StoreContents:
        return StoreContents(self.path, self.keep_half, self.memory, self.processes)

    def _refresh(self) -> None:
        self._open_contents = self._open()
        if self._editor is not None:
            self._editor.use(self._open_contents.schema)

    @property
    def _contents(self) -> StoreContents:
        if self._open_contents is None:
            raise ClosedStoreError(f"{self.path}: the store was closed; open it again")
        return self._open_contents

    @property
    def closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._open_contents is None

    def close(self) -> None:
        """Lets go of the files. Tensors taken from the store stay valid.

        Columns that are being written stay unpublished, with what was committed of them.
        """
        for column in list(self._columns.values()):
            column._end("the store was closed; open it again, and create_column(resume=True)")
        self._open_contents = None
        self._editor = None

    @property
    def division(self) -> Division | None:
        """How the budget is divided; None before a loader has begun."""
        pager = self._contents.pager
        return None if pager is None else pager.division

    @property
    def is_hetero(self) -> bool:
        """Whether node and edge types have names."""
        return self._contents.schema.is_hetero

    @property
    def node_types(self) -> list[str | None]:
        """Names of the node types; ``[None]`` in a homogeneous store."""
        return [t.name for t in self._contents.schema.node_types]

    @property
    def edge_types(self) -> list[EdgeType | None]:
        """Names of the edge types; ``[None]`` in a homogeneous store."""
        return [t.name for t in self._contents.schema.edge_types]

    def num_nodes(self, node_type: str | None = None) -> int:
        """Number of nodes of a type; of all types if none is given for a heterogeneous store."""
        if node_type is None and self.is_hetero:
            return sum(t.num_nodes for t in self._contents.schema.node_types)
        return self._contents.node_type(node_type).num_nodes

    def num_edges(self, edge_type: EdgeType | None = None) -> int:
        """Number of edges of a type; of all types if none is given."""
        if edge_type is None:
            return sum(t.num_edges for t in self._contents.schema.edge_types)
        return self._contents.edge_type(edge_type).num_edges

    def data(self) -> DiskData | DiskHeteroData:
        """The graph as PyG ``Data`` or ``HeteroData`` whose tensors lie on disk."""
        contents = self._contents
        return (DiskHeteroData if contents.schema.is_hetero else DiskData)(contents)

    def ids(self, node_type: str | None = None) -> Tensor | StringIds:
        """The user's id of every row: ``int64 [num_nodes]`` or a sequence of strings."""
        record = self._contents.node_type(node_type)
        if record.ids is None:
            return torch.arange(record.num_nodes)
        if record.id_offsets is None:
            return self._contents.view(record.ids)
        offsets = self._contents.view(record.id_offsets)
        name = str(self.path / record.id_offsets)
        return StringIds(offsets, self._contents.view(record.ids), name)

    def lookup(self, ids: Any, node_type: str | None = None) -> Tensor:
        """Rows (``int64 [len(ids)]``) of the user's ids; an error names the first missing one."""
        record = self._contents.node_type(node_type)
        known = None if record.ids is None else self.ids(node_type)
        return lookup(known, ids, record.num_nodes)

    def verify(self, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
        """Reads everything against its checksums; see ``pyg_graphzero.verify.verify``."""
        return verify(self._contents.path, progress)

    def info(self) -> dict[str, Any]:
        """What the store holds, as plain dictionaries; see :func:`pyg_graphzero.info.info`."""
        return info(self._contents)

    def nodes_in_order(
        self, node_type: str | None = None, start: int = 0, stop: int | None = None
    ) -> Tensor:
        """Nodes in the order in which their rows lie on disk.

        Args:
            node_type: Whose; None in a homogeneous store.
            start: The first row.
            stop: Behind the last row; None: all. Both as in a slice.

        Returns:
            ``int64 [stop - start]``: the node of every row, which is its own number unless the
            store was optimized.
        """
        rows = range(self._contents.node_type(node_type).num_nodes)[start:stop]
        order = self._contents.order(node_type)
        if order is None:
            return torch.arange(rows.start, max(rows.start, rows.stop))
        return order[rows.start : rows.stop].to(torch.int64)

    def create_column(
        self,
        name: str,
        width: int | tuple[int, ...],
        *,
        node_type: str | None = None,
        dtype: torch.dtype = torch.float32,
        encoding: str | None = None,
        resume: bool = False,
        note: dict[str, Any] | None = None,
    ) -> Column:
        """Begins a node attribute that is written row by row, larger than memory if need be.

        The store must be open with ``mode="r+"``. Nobody sees the attribute before
        ``Column.publish()``. One of the same name that was begun before and never published is
        replaced.

        Args:
            name: Of the attribute.
            width: Items of a row, or the shape of one; ``()`` for one value.
            node_type: Whose; None in a homogeneous store.
            dtype: Of the rows that are given and read.
            encoding: ``"float16"`` or ``"bfloat16"``: store float32 so.
            resume: Go on with the column of that name that was begun before, if there is one:
                what was committed of it is written already.
            note: What to keep with the column until it is published (JSON); a resumed one must
                have the same.

        Raises:
            ReadOnlyStoreError: The store is open for reading.
            ValueError: The name is taken; or what is to be resumed has another shape, dtype,
                encoding or note.
            OSError: The disk is full or fails.
        """
        return create_column(self, name, width, node_type, dtype, encoding, resume, note)

    def _require_editor(self) -> StoreEditor:
        self._contents  # noqa: B018 - a closed store says so
        if self._editor is None:
            raise ReadOnlyStoreError(
                f"{self.path}: the store is open for reading; use gz.open(path, mode='r+')"
            )
        return self._editor

    def _edit(self, change: Callable[[StoreEditor], None]) -> None:
        """Applies one change to an open ``"r+"`` store and looks at the result."""
        editor = self._require_editor()
        try:
            change(editor)
        finally:
            self._refresh()  # also after a failure, which leaves the store as it was


@dataclass
class DiskTensorAttr(TensorAttr):
    """PyG's ``TensorAttr`` that also takes an ``ndarray`` index (PyG's compares it elementwise)."""

    def is_set(self, key: str) -> bool:
        """Whether ``key`` was given a value."""
        return getattr(self, key) is not _FieldStatus.UNSET

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> DiskTensorAttr:
        """One of these from what PyG's methods are called with, a plain ``TensorAttr`` included."""
        if len(args) == 1 and not kwargs and type(args[0]) is TensorAttr:
            return cls(args[0].group_name, args[0].attr_name, args[0].index)
        if args == (None,) and not kwargs:
            return cls(None)  # the group of a homogeneous store; PyG would return None
        return super().cast(*args, **kwargs)


class DiskFeatureStore(FeatureStore):
    """PyG's ``FeatureStore`` over a store's attributes.

    ``group_name`` is the node type (None in a homogeneous store) or, for edge attributes, the edge
    type (``(None, None)``); rows of edge attributes are numbered by original edge id.
    """

    def __init__(self, store: Store) -> None:
        super().__init__(tensor_attr_cls=DiskTensorAttr)
        self.__dict__["store"] = store

    def __reduce__(self) -> tuple[Any, ...]:
        return _feature_store, (self.store,)

    def _locate(self, attr: TensorAttr) -> NodeTypeSchema | EdgeTypeSchema:
        """The type that an attribute is of."""
        contents = self.store._contents
        group = attr.group_name
        if isinstance(group, (tuple, list)):
            name = None if tuple(group) == HOMOGENEOUS_EDGES else tuple(group)
            return contents.edge_type(name)
        return contents.node_type(group)

    def _find(self, attr: TensorAttr) -> tuple[NodeTypeSchema | EdgeTypeSchema, str]:
        record = self._locate(attr)
        files = dict(record.attrs)
        if isinstance(record, NodeTypeSchema):
            files.update(record.index_sets)
        if attr.attr_name not in files:
            raise MissingAttributeError(
                f"{self.store.path}: attribute {attr.attr_name!r} of {attr.group_name!r}: "
                f"expected one of {sorted(files)}"
            )
        return record, files[attr.attr_name]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        record, file = self._find(attr)
        contents = self.store._contents
        table = contents.rows(file)
        index = attr.index
        position: Tensor | None = None
        if isinstance(record, EdgeTypeSchema):
            position = contents.edge_position(record.name)
        elif attr.attr_name in record.attrs:
            if index is None:
                return contents.node_column(record.name, attr.attr_name)
            position = contents.rank(record.name)
        if index is None:
            return decoded(table) if position is None else gather(table, position)
        if isinstance(index, (slice, int)):
            if position is None:
                return table[index]
            rows = position[index].to(torch.int64)
            return table[int(rows)] if isinstance(index, int) else gather(table, rows)
        rows = as_row_index(index, table.size(0))
        return gather(table, rows if position is None else look_up(position, rows))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        try:
            _, file = self._find(attr)
        except MissingAttributeError:
            return None
        if attr.index is not None:
            return tuple(self._get_tensor(attr).shape)
        return tuple(self.store._contents.column(file).shape)

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        record = self._locate(attr)
        if isinstance(record, NodeTypeSchema):
            column = self.store._columns.get((record.name, attr.attr_name))
            if column is not None:
                column.put_tensor(tensor, attr.index)
                return True
        value = as_tensor(tensor, f"attribute {attr.attr_name!r}")
        if attr.index is not None:
            whole = self._get_tensor(DiskTensorAttr(attr.group_name, attr.attr_name, None)).clone()
            rows = attr.index
            if not isinstance(rows, (slice, int)):
                rows = as_row_index(rows, whole.size(0))
            whole[rows] = value.to(whole.dtype)
            value = whole

        def change(editor: StoreEditor) -> None:
            if isinstance(record, EdgeTypeSchema):
                ids = self.store._contents.edge_id(record.name)
                in_slots = value if ids is None else gather(value, ids.to(torch.int64))
                editor.put_edge_attr(record, attr.attr_name, in_slots)
                return
            order = self.store._contents.order(record.name)
            if order is not None and value.shape[:1] == order.shape:
                editor.put_node_attr(record, attr.attr_name, permuted(value, order))
            else:  # in order as it is, or about to be refused
                editor.put_node_attr(record, attr.attr_name, value)

        self.store._edit(change)
        return True

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        record, _ = self._find(attr)
        self.store._edit(lambda editor: editor.remove_attr(record, attr.attr_name))
        return True

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The node attributes, fresh objects each time (PyG's loaders write on them)."""
        return [
            DiskTensorAttr(group_name=t.name, attr_name=attr)
            for t in self.store._contents.schema.node_types
            for attr in t.attrs
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.store.path)!r})"


class DiskGraphStore(GraphStore):
    """PyG's ``GraphStore`` over a store's topologies, held as CSC.

    ``csc()`` and ``csr()`` return the original edge id of every entry as the permutation; ``coo()``
    lists edges in the order of their ids. What is not CSC is built in memory.
    """

    def __init__(self, store: Store) -> None:
        super().__init__()
        self.__dict__["store"] = store

    def __reduce__(self) -> tuple[Any, ...]:
        return _graph_store, (self.store,)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """One CSC entry per edge type, with its size."""
        contents = self.store._contents
        return [
            EdgeAttr(
                edge_type=t.name,
                layout=EdgeLayout.CSC,
                is_sorted=True,
                size=(contents.topology(t.name).num_src, contents.topology(t.name).num_dst),
            )
            for t in contents.schema.edge_types
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        contents = self.store._contents
        if contents.schema.edge_type(edge_attr.edge_type) is None:
            return None
        if edge_attr.layout == EdgeLayout.COO:
            row, col = contents.edge_index(edge_attr.edge_type)
            return row, col
        if edge_attr.layout == EdgeLayout.CSR:
            row, col, _ = self._edge_to_layout(_csc_attr(self, edge_attr.edge_type), EdgeLayout.CSR)
            return row, col
        indptr, indices, _ = contents.user_csc(edge_attr.edge_type)
        return indices.to(torch.int64), indptr

    def _edge_to_layout(
        self, attr: EdgeAttr, layout: EdgeLayout, store: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        contents = self.store._contents
        if layout == EdgeLayout.COO:
            row, col = contents.edge_index(attr.edge_type)
            return row, col, None
        row, col, perm = super()._edge_to_layout(attr, layout, store)
        *_, slots = contents.user_csc(attr.edge_type)
        if slots is not None:
            perm = slots if perm is None else slots[perm]
        edge_id = contents.edge_id(attr.edge_type)
        if edge_id is not None:
            edge_id = edge_id.to(torch.int64)
            perm = edge_id if perm is None else edge_id[perm]
        return row, col, perm

    def _put_edge_index(self, edge_index: tuple[Any, Any], edge_attr: EdgeAttr) -> bool:
        name = edge_attr.edge_type
        contents = self.store._contents
        src_type, dst_type = (None, None) if name is None else (name[0], name[2])
        num_src = contents.node_type(src_type).num_nodes
        num_dst = contents.node_type(dst_type).num_nodes
        if edge_attr.size is not None and tuple(edge_attr.size) != (num_src, num_dst):
            raise ValueError(
                f"edge type {name!r}: size: found {tuple(edge_attr.size)}, expected "
                f"{(num_src, num_dst)}"
            )
        row, col = (as_tensor(part, "edge_index").to(torch.int64) for part in edge_index)
        if edge_attr.layout == EdgeLayout.CSR:
            row = torch.repeat_interleave(torch.arange(row.numel() - 1), row.diff())
        elif edge_attr.layout == EdgeLayout.CSC:
            col = torch.repeat_interleave(torch.arange(col.numel() - 1), col.diff())
        ends = (contents.rank(src_type), row), (contents.rank(dst_type), col)
        row, col = (ids if rank is None else look_up(rank, ids) for rank, ids in ends)
        chunk = EdgeChunk(row, col)
        self.store._edit(lambda editor: editor.put_edges(name, [chunk], num_src, num_dst))
        return True

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        self.store._contents.edge_type(edge_attr.edge_type)
        self.store._edit(lambda editor: editor.remove_edge_type(edge_attr.edge_type))
        return True

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.store.path)!r})"


def _csc_attr(graph_store: DiskGraphStore, edge_type: EdgeType | None) -> EdgeAttr:
    return next(a for a in graph_store.get_all_edge_attrs() if a.edge_type == edge_type)


def _feature_store(store: Store) -> DiskFeatureStore:
    return store.feature_store


def _graph_store(store: Store) -> DiskGraphStore:
    return store.graph_store
