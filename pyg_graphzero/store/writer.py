"""Writing stores: the only way one comes into being.

A new store is written to a sibling directory, synced, and renamed into place: a kill at any instant
leaves the old store or none. How an existing one changes is in :mod:`pyg_graphzero.store.editor`.
"""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
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
from pyg_graphzero.store.rows import ArrayRows, FileRows, Rows
from pyg_graphzero.store.schema import (
    EdgeType,
    EdgeTypeSchema,
    FileRecord,
    NodeTypeSchema,
    StoreSchema,
    safe_name,
)
from pyg_graphzero.util.arguments import as_tensor, check_index_set, of_type
from pyg_graphzero.util.locks import StoreLock, make_scratch, remove_abandoned
from pyg_graphzero.util.names import COLUMN, locate
from pyg_graphzero.util.workspace import Workspace


class FileSet:
    """Writes column and topology files of one store and records them in its schema."""

    def __init__(self, directory: Path, store: StoreSchema) -> None:
        self.directory = directory
        self.schema = store

    def place(self, folder: str, name: str, suffix: str, taken: Collection[Path] = ()) -> Path:
        """The path of a file that is about to be created, which neither is there nor is taken."""
        locate(self.directory, folder, folder=True).mkdir(exist_ok=True)
        paths = (self.directory / file for file in _file_names(folder, name, suffix))
        return next(path for path in paths if path not in taken and not os.path.lexists(path))

    def add(self, path: Path, loss: EncodingLoss | None = None) -> str:
        """Records a file that is written and synced; ``loss`` is what encoding has cost."""
        file = path.relative_to(self.directory).as_posix()
        cost = None if loss is None else loss.to_dict()
        self.schema.files[file] = FileRecord(path.stat().st_size, schema.header_hash(path), cost)
        return file

    @contextmanager
    def _placing(self, folder: str) -> Iterator[Callable[[str, str], Path]]:
        """Hands out paths in ``folder``; should writing fail, none of them is left."""
        placed: list[Path] = []

        def place(name: str, suffix: str) -> Path:
            placed.append(self.place(folder, name, suffix, placed))
            return placed[-1]

        try:
            yield place
        except BaseException:
            for path in placed:
                path.unlink(missing_ok=True)
            raise

    def column(
        self,
        folder: str,
        name: str,
        value: Tensor | Rows | ColumnEncoder,
        progress: Callable[[int], object] | None = None,
    ) -> str:
        """Writes and syncs a column; see ``StoreWriter.add_node_attr``."""
        with self._placing(folder) as place:
            path = place(name, COLUMN)
            write_column(path, value, progress)
        return self.add(path, value.loss() if isinstance(value, ColumnEncoder) else None)

    def copy(self, source: Path, file: str, record: FileRecord) -> None:
        """Copies and syncs a file of the store at ``source``."""
        path = self.directory / file
        locate(self.directory, Path(file).parent.as_posix(), folder=True).mkdir(exist_ok=True)
        shutil.copyfile(locate(source, file), path)
        with open(path, "rb+") as copied:
            os.fsync(copied.fileno())
        self.schema.files[file] = record

    def words(
        self, folder: str, names: tuple[str, str], words: Any, what: str, count: int | None = None
    ) -> tuple[str, str]:
        """Writes and syncs strings, ``count`` of them: files of their bytes and of offsets."""
        offsets, text = _encode_strings(words, what)
        if count is not None:
            checked_rows(offsets[1:], count, what)
        columns = zip(names, (text, offsets), strict=True)
        found = [self.column(folder, name, torch.from_numpy(value)) for name, value in columns]
        return found[0], found[1]

    def adopt(self, folder: str, name: str, store: Path, rows: FileRows) -> str:
        """Refers to rows in a file that is not the store's; returns the name they have here."""
        names = _file_names(folder, name, ".adopted")
        file = next(file for file in names if file not in self.schema.adopted)
        self.schema.adopted[file] = adopt(store, rows)
        return file

    def edges(
        self,
        name: EdgeType | None,
        chunks: Iterable[EdgeChunk],
        num_src: int,
        num_dst: int,
        num_edges: int | None = None,
        options: CscOptions | None = None,
        room: BuildRoom | None = None,
    ) -> tuple[EdgeTypeSchema, Csc]:
        """Writes and syncs the files of an edge type; see ``StoreWriter.add_edge_type``."""
        room = room or BuildRoom(Workspace(self.directory).room, self.directory)
        record = EdgeTypeSchema(name, 0, "", edge_ids=options is None or options.edge_ids)
        with self._placing(record.folder) as place:
            csc = build_csc(chunks, num_src, num_dst, place, room, num_edges, options)
        record.num_edges, record.time_order = csc.num_edges, csc.time_order
        record.topology = self.add(csc.topology)
        record.edge_id = None if csc.edge_id is None else self.add(csc.edge_id)
        record.attrs = {attr: self.add(path) for attr, path in csc.columns.items()}
        return record, csc

    def bounds(self, record: EdgeTypeSchema, topology: _core.Topology) -> EdgeTypeSchema:
        """Writes and syncs where neighbourhoods begin; see ``StoreWriter.add_bounds``."""
        with self._placing(record.folder) as place:
            path = place("topology", ".gl")
            topology.write_bounds(str(path))
        return EdgeTypeSchema(
            record.name, record.num_edges, self.add(path), edge_ids=record.edge_ids
        )

    def csr(self, record: EdgeTypeSchema, room: BuildRoom | None = None) -> None:
        """Writes and syncs the edges of a type once more, by source; see ``Store.create_csr``."""
        room = room or BuildRoom(Workspace(self.directory).room, self.directory)
        topology = _core.Topology.open(str(self.directory / record.topology))
        chunks = (EdgeChunk(rows, sources) for sources, rows in edge_slices(topology))
        names = {"topology": "csr", "edge_id": "csr_slot"}
        with self._placing(record.folder) as place:
            csc = build_csc(
                chunks,
                topology.num_dst,
                topology.num_src,
                lambda name, suffix: place(names[name], suffix),
                room,
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
        StoreInUseError: Somebody has the store that is to be replaced open for writing.
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
        node_type = self._schema.node_type(name)
        if node_type is None:
            raise KeyError(f"node type {name!r} was not added")
        return node_type

    def _edge_type(self, name: EdgeType | None) -> EdgeTypeSchema:
        edge_type = self._schema.edge_type(name)
        if edge_type is None:
            raise KeyError(f"edge type {name!r} was not added")
        return edge_type

    def _check_new(self, what: str, name: object, there: object) -> None:
        if (name is None) == self._schema.is_hetero:
            raise ValueError(f"{what} in a store with is_hetero={self._schema.is_hetero}")
        if there is not None:
            raise ValueError(f"{what} was added before")

    def add_node_type(self, name: str | None, num_nodes: int) -> None:
        """Declares a node type; ``name`` is None in a homogeneous store."""
        self._check_new(f"node type {name!r}", name, self._schema.node_type(name))
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
        record.attrs[attr] = self._files.adopt(record.folder, attr, self._target, rows)

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
        record.ids, record.id_offsets = self._files.words(
            record.folder, ("ids", "id_offsets"), ids, what, record.num_nodes
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
        record.categories[attr], record.category_offsets[attr] = self._files.words(
            record.folder, files, names, f"categories of {attr!r}"
        )

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
        self._check_new(f"edge type {edge_type!r}", edge_type, self._schema.edge_type(edge_type))
        src = self._node_type(None if edge_type is None else edge_type[0])
        dst = self._node_type(None if edge_type is None else edge_type[2])
        options = options or CscOptions(bipartite=src is not dst)
        record, csc = self._files.edges(
            edge_type, chunks, src.num_nodes, dst.num_nodes, num_edges, options, room
        )
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
        self._schema.edge_types.append(self._files.bounds(record, topology))

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
            self._files.copy(source, file, store.files[file])
            if progress is not None:
                progress(store.files[file].bytes)
        self._schema.node_types, self._schema.edge_types = store.node_types, store.edge_types
        self._schema.graph_attrs = store.graph_attrs

    def finish(self) -> None:
        """Syncs everything, writes `store.json` last, and moves the store into place."""
        if self._lock is None:
            raise ValueError("the writer was finished or aborted before")
        if not self._schema.is_hetero and self._schema.node_type(None) is None:
            raise ValueError("a homogeneous store needs its node type: add_node_type(None, n)")
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


def _encode_strings(words: Any, what: str) -> tuple[np.ndarray, np.ndarray]:
    """Strings as ``int64 [n + 1]`` offsets into UTF-8 bytes."""
    import pyarrow as pa

    texts = pa.array(words, type=pa.large_string())
    if texts.null_count:
        raise ValueError(f"{what}: found a missing value, expected a string in every row")
    if len(texts) == 0:
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offsets, data = texts.buffers()
    first = texts.offset
    bounds = np.frombuffer(offsets, np.int64)[first : first + len(texts) + 1]
    text = np.zeros(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    return bounds - bounds[0], text[bounds[0] : bounds[-1]]
