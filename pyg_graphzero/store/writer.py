"""Writing stores: the only way one comes into being.

A new store is written to a sibling directory, synced, and renamed into place: a kill at any instant
leaves the old store or none. How an existing one changes is in :mod:`pyg_graphzero.store.editor`.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor
from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.store import schema
from pyg_graphzero.store.adopted import adopt
from pyg_graphzero.store.columns import write_column
from pyg_graphzero.store.csc import (
    BuildRoom,
    Csc,
    CscOptions,
    EdgeChunk,
    build_csc,
    edge_slices,
)
from pyg_graphzero.store.encoding import ColumnEncoder, EncodingLoss
from pyg_graphzero.store.ids import text_bytes
from pyg_graphzero.store.rows import ArrayRows, FileRows, Rows
from pyg_graphzero.store.schema import (
    EdgeType,
    EdgeTypeSchema,
    FileRecord,
    NodeTypeSchema,
    StoreSchema,
    TypeSchema,
    safe_name,
)
from pyg_graphzero.util.arguments import as_tensor, check_index_set, of_type
from pyg_graphzero.util.locks import StoreLock, make_scratch, remove_abandoned
from pyg_graphzero.util.names import COLUMN, TOPOLOGY, locate
from pyg_graphzero.util.workspace import Workspace


class FileSet:
    """Writes column and topology files of one store and records them in its schema.

    Files whose writing failed are not recorded: they go with a new store's directory, or by
    :func:`.leftovers.sweep`.
    """

    def __init__(self, directory: Path, store: StoreSchema) -> None:
        self.directory = directory
        self.schema = store
        self._placed: set[Path] = set()

    def place(self, folder: str, name: str, suffix: str) -> Path:
        """The path of a file that is about to be created, which no other call has given."""
        locate(self.directory, folder, folder=True).mkdir(exist_ok=True)
        paths = (self.directory / file for file in _file_names(folder, name, suffix))
        path = next(p for p in paths if p not in self._placed and not os.path.lexists(p))
        self._placed.add(path)
        return path

    def add(self, path: Path, loss: EncodingLoss | None = None) -> str:
        """Records a file that is written and synced; ``loss`` is what encoding has cost."""
        file = path.relative_to(self.directory).as_posix()
        cost = None if loss is None else asdict(loss)
        self.schema.files[file] = FileRecord(path.stat().st_size, schema.header_hash(path), cost)
        return file

    def column(
        self,
        folder: str,
        name: str,
        value: Tensor | Rows | ColumnEncoder,
        progress: Callable[[int], object] | None = None,
    ) -> str:
        """Writes and syncs a column; see ``StoreWriter.add_node_attr``."""
        path = self.place(folder, name, COLUMN)
        write_column(path, value, progress)
        return self.add(path, value.loss() if isinstance(value, ColumnEncoder) else None)

    @property
    def room(self) -> BuildRoom:
        """Room to sort edges in, where nothing says how much: half of the memory that is free."""
        return BuildRoom(Workspace(self.directory).room, self.directory)

    def csr(self, record: EdgeTypeSchema, room: BuildRoom | None = None) -> None:
        """Writes and syncs the edges of a type once more, by source; see ``Store.create_csr``."""
        topology = _core.Topology.open(str(self.directory / record.topology))
        chunks = (EdgeChunk(rows, sources) for sources, rows in edge_slices(topology))
        names = {"topology": "csr", "edge_id": "csr_slot"}
        csc = build_csc(
            chunks,
            topology.num_dst,
            topology.num_src,
            lambda name, suffix: self.place(record.folder, names[name], suffix),
            room or self.room,
            record.num_edges,
            CscOptions(edge_ids=record.edge_ids),
        )
        record.csr = self.add(csc.topology)
        record.csr_slot = None if csc.edge_id is None else self.add(csc.edge_id)

    def sync_folders(self) -> None:
        """Has the names of all files on the device."""
        for name in {Path(f).parent.as_posix() for f in self.schema.files}:
            _core.sync_directory(str(self.directory / name))


def _file_names(folder: str, name: str, suffix: str) -> Iterator[str]:
    """Names for a file, the best first."""
    stem = f"{folder}/{safe_name(name)}"
    yield stem + suffix
    for number in itertools.count(2):
        yield f"{stem}-{number}{suffix}"


def check_target(path: Path, force: bool) -> None:
    """Refuses a place where no store may be written.

    Raises:
        FileExistsError: It exists and ``force`` is not given, or is not a store.
        FileNotFoundError: There is no such directory to write it in.
    """
    if path.exists() and not force:
        raise FileExistsError(17, "File exists (force=True or --force replaces it)", str(path))
    if path.exists() and not (path / schema.SCHEMA_FILE).exists():
        raise FileExistsError(17, "Exists and is not a store, so it is not replaced", str(path))
    if not path.parent.is_dir():
        raise FileNotFoundError(2, "No such directory", str(path.parent))


class StoreWriter:
    """Writes a new store, all or nothing. Use as a context manager.

    Args:
        path: The store's directory; its parent must exist.
        is_hetero: Whether types have names. Homogeneous stores use ``None`` for both.
        force: Replace an existing store (open readers of it keep reading the old one).

    Raises:
        FileExistsError: ``path`` exists and ``force`` is not given, or is not a store.
        StoreInUseError: The store that is to be replaced is open for writing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        is_hetero: bool,
        force: bool = False,
    ) -> None:
        self._target = Path(os.path.realpath(path))  # a link stays, what it leads to is replaced
        self._force = force
        self._replaced: StoreLock | None = None  # on the store that is to be replaced
        check_target(self._target, force)
        if self._target.exists():
            # From now on: columns that are added meanwhile would be lost.
            self._replaced = StoreLock(self._target)
        remove_abandoned(self._target, "partial")
        self._lock: _core.LockFile | None
        self._scratch, self._lock = make_scratch(self._target, "partial")
        self._schema = StoreSchema(
            is_hetero=is_hetero, created_by=f"pyg_graphzero {version('pyg_graphzero')}"
        )
        self._files = FileSet(self._scratch, self._schema)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.abort()

    def _node_type(self, name: str | None) -> NodeTypeSchema:
        return next(t for t in self._schema.node_types if t.name == name)

    def _edge_type(self, name: EdgeType | None) -> EdgeTypeSchema:
        return next(t for t in self._schema.edge_types if t.name == name)

    def add_node_type(self, name: str | None, num_nodes: int) -> None:
        """Declares a node type; ``name`` is None in a homogeneous store."""
        self._schema.node_types.append(NodeTypeSchema(name, int(num_nodes)))

    def add_node_attr(
        self,
        node_type: str | None,
        attr: str,
        value: Any,
        progress: Callable[[int], object] | None = None,
        encoding: str | None = None,
    ) -> None:
        """Writes a node column.

        Args:
            node_type: The node type it belongs to.
            attr: Its name.
            value: Tensor, array or rows ``[num_nodes, ...]`` of any stored dtype.
            progress: Called with the number of bytes of each piece read or written; see
                :func:`pyg_graphzero.store.encoding.work_bytes` for how many they are.
            encoding: ``"float16"``, ``"bfloat16"`` or ``"int8"``, to be decoded to ``float32``.
        """
        record = self._node_type(node_type)
        what = f"node attribute {attr!r}{of_type(node_type)}"
        rows = checked_rows(value, record.num_nodes, what)
        if encoding is not None:
            table = rows if isinstance(rows, Rows) else ArrayRows(rows)
            rows = ColumnEncoder(table, encoding, what, progress)
        record.attrs[attr] = self._files.column(record.folder, attr, rows, progress)

    def adopt_node_attr(self, node_type: str | None, attr: str, rows: FileRows) -> None:
        """Refers to the rows of a node column where they are."""
        record = self._node_type(node_type)
        checked_rows(rows, record.num_nodes, f"node attribute {attr!r}{of_type(node_type)}")
        names, adopted = _file_names(record.folder, attr, ".adopted"), self._schema.adopted
        record.attrs[attr] = next(name for name in names if name not in adopted)
        adopted[record.attrs[attr]] = adopt(self._target, rows)

    def add_index_set(self, node_type: str | None, name: str, index: Any) -> None:
        """Writes a named list of node ids, e.g. ``train_idx``: integers ``[any]``."""
        record = self._node_type(node_type)
        tensor = check_index_set(as_tensor(index, name), record.num_nodes, name)
        record.index_sets[name] = self._files.column(record.folder, name, tensor)

    def add_node_ids(self, node_type: str | None, ids: Any) -> None:
        """Writes the user's id of every row: integers ``[num_nodes]`` (also as rows), or strings.

        Integers are ``int64``, or rows of ``uint64``.
        """
        record, what = self._node_type(node_type), f"ids of {node_type!r}"
        if isinstance(ids, Tensor) or (isinstance(ids, np.ndarray) and ids.dtype.kind in "iu"):
            ids = ArrayRows(as_tensor(ids, what).to(torch.int64))
        if isinstance(ids, Rows):
            rows = checked_rows(ids, record.num_nodes, what)
            record.ids = self._files.column(record.folder, "ids", rows)
            return
        record.ids, record.id_offsets = self._words(
            record, ("ids", "id_offsets"), ids, what, record.num_nodes
        )

    def add_categories(self, owner: Any, attr: str, names: Any, of_edges: bool = False) -> None:
        """Writes names of the values 0, 1 … of an attribute that was written before: strings.

        Args:
            owner: The node type, or the edge type.
            attr: Its attribute.
            names: One for each value.
            of_edges: Whether ``owner`` is an edge type, as None may be.
        """
        record = self._edge_type(owner) if of_edges else self._node_type(owner)
        files = (f"{attr}_categories", f"{attr}_category_offsets")
        record.categories[attr], record.category_offsets[attr] = self._words(
            record, files, names, f"categories of {attr!r}"
        )

    def _words(
        self,
        record: TypeSchema,
        names: tuple[str, str],
        words: Any,
        what: str,
        count: int | None = None,
    ) -> tuple[str, str]:
        """Writes strings, ``count`` of them: files of their bytes and of offsets."""
        texts = pa.array(words, type=pa.large_string())
        if texts.null_count:
            raise ValueError(f"{what}: found a missing value, expected a string in every row")
        offsets, text = text_bytes(texts)
        if count is not None:
            checked_rows(offsets[1:], count, what)
        file = self._files.column(record.folder, names[0], text)
        return file, self._files.column(record.folder, names[1], offsets)

    def add_edge_type(
        self,
        edge_type: EdgeType | None,
        chunks: Iterable[EdgeChunk],
        num_edges: int | None = None,
        options: CscOptions | None = None,
        room: BuildRoom | None = None,
        both_directions: bool = False,
    ) -> Csc:
        """Writes the topology and the columns of a stream of edges, sorted by destination.

        Args:
            edge_type: None in a homogeneous store.
            chunks: The edges, by rows of their node types.
            num_edges: At least as many as the stream has; None if unknown.
            options: Changes to the edges.
            room: Room to sort in; by default half of the memory that is free.
            both_directions: Write them sorted by source, too.

        Raises:
            IndexError: Names the first edge whose id is not a node.
        """
        src = self._node_type(None if edge_type is None else edge_type[0])
        dst = self._node_type(None if edge_type is None else edge_type[2])
        options = options or CscOptions(bipartite=src is not dst)
        record = EdgeTypeSchema(edge_type, 0, "", edge_ids=options.edge_ids)
        csc = build_csc(
            chunks,
            src.num_nodes,
            dst.num_nodes,
            partial(self._files.place, record.folder),
            room or self._files.room,
            num_edges,
            options,
        )
        record.num_edges, record.time_order = csc.num_edges, csc.time_order
        record.topology = self._files.add(csc.topology)
        record.edge_id = None if csc.edge_id is None else self._files.add(csc.edge_id)
        record.attrs = {attr: self._files.add(path) for attr, path in csc.columns.items()}
        if both_directions:
            self._files.csr(record, None if room is None else room.again())
        self._schema.edge_types.append(record)
        return csc

    def add_bounds(self, record: EdgeTypeSchema, topology: _core.Topology) -> None:
        """Adds an edge type of another store without its neighbours, ids and attributes.

        Args:
            record: The edge type there.
            topology: Where its neighbourhoods begin.
        """
        path = self._files.place(record.folder, "topology", TOPOLOGY)
        topology.write_bounds(str(path))
        file, ids = self._files.add(path), record.edge_ids
        self._schema.edge_types.append(
            EdgeTypeSchema(record.name, record.num_edges, file, edge_ids=ids)
        )

    def add_graph_attr(self, attr: str, value: Any, owner: str | EdgeType | None = None) -> None:
        """Stores a tensor of any shape, or a number, string, bool or None.

        Args:
            attr: Its name.
            value: The tensor or value.
            owner: The node or edge type that it belongs to as a whole; None for the graph.
        """
        entries, folder = self._schema.graph_attrs, "graph"
        if owner is not None:
            named = self._node_type(owner) if isinstance(owner, str) else self._edge_type(owner)
            entries, folder = named.others, named.folder
        if isinstance(value, (Tensor, np.ndarray)):
            tensor = as_tensor(value, f"attribute {attr!r} of {owner or 'the graph'}")
            entries[attr] = {"file": self._files.column(folder, attr, tensor)}
        elif isinstance(value, (str, bool, int, float)) or value is None:
            entries[attr] = {"value": value}
        else:
            raise TypeError(
                f"graph attribute {attr!r}: found {type(value).__name__}, expected a tensor, "
                "number, string or bool"
            )

    def copy(
        self, source: Path, store: StoreSchema, progress: Callable[[int], object] | None = None
    ) -> None:
        """Copies the files that ``store`` names from the store at ``source``, and takes its types.

        Args:
            source: Directory of the other store.
            store: Its schema, or a part of that, without adopted rows. REQUIRES that nothing was
                added.
            progress: Called with the number of bytes of each file.
        """
        for file in schema.named_files(store):
            path = self._scratch / file
            locate(self._scratch, Path(file).parent.as_posix(), folder=True).mkdir(exist_ok=True)
            shutil.copyfile(locate(source, file), path)
            with open(path, "rb+") as copied:
                os.fsync(copied.fileno())
            self._schema.files[file] = store.files[file]
            if progress is not None:
                progress(store.files[file].bytes)
        self._schema.node_types, self._schema.edge_types = store.node_types, store.edge_types
        self._schema.graph_attrs = store.graph_attrs

    def finish(self) -> None:
        """Syncs everything, writes `store.json` last, and moves the store into place."""
        self._files.sync_folders()
        schema.dump(self._schema, self._scratch / schema.SCHEMA_FILE)
        # The lock stays held, and its file stays: without it another writer of the same store would
        # take this directory for an abandoned one.
        self._publish()
        self._lock = None
        # After an exchange the scratch name holds the store that was replaced, locked as it was.
        shutil.rmtree(self._scratch, ignore_errors=True)
        self._release()

    def _publish(self) -> None:
        """Moves the store into place; one that is there is replaced only under its lock."""
        if self._replaced is None or not self._replaced.is_in_place():
            self._release()
            try:
                _core.publish_directory(str(self._scratch), str(self._target), False)
            except FileExistsError:
                if not self._force:
                    raise
                schema.load(self._target)  # what has come there meanwhile is a store
                self._replaced = StoreLock(self._target)
            else:
                return
        _core.publish_directory(str(self._scratch), str(self._target), True)

    def _release(self) -> None:
        if self._replaced is not None:
            self._replaced.release()
            self._replaced = None

    def abort(self) -> None:
        """Removes what was written; does nothing after finish()."""
        if self._lock is not None:
            # Should publishing have failed half-way, the name may hold the store that was there.
            if self._lock.is_in_place():
                shutil.rmtree(self._scratch, ignore_errors=True)
            self._lock = None
        self._release()


def checked_rows(value: Any, count: int, what: str) -> Any:
    """``value`` as a tensor, or the rows that it is; with as many as there should be."""
    rows = value if isinstance(value, Rows) else as_tensor(value, what)
    if len(rows.shape) == 0 or rows.shape[0] != count:
        raise ValueError(f"{what}: found shape {list(rows.shape)}, expected {count} rows")
    return rows
