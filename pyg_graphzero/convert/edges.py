"""One edge list, from columns, arrays or memory: endpoints as ids, and the attributes.

An array of edges is ``[2, E]`` or ``[E, 2]``. An archive may hold it as ``edge_index``,
``row``/``col``, ``src``/``dst``, CSR (``indptr``/``indices``, rows are sources) or CSC
(``colptr``/``row``, columns are destinations), with any prefix such as ``adj_``; what SciPy's
``save_npz`` writes is understood too.

Several files of arrays follow one another, each with its part of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from pyg_graphzero.store.rows import (
    ChainRows,
    FileRows,
    Rows,
    describe,
)

from ..errors import InputError
from .arrays import (
    SUFFIXES,
    Reference,
    Table,
    as_table,
    id_column,
    in_memory,
    integers,
    load_all,
    only_rows,
    place_in,
)
from .bipartite import describe_two_kinds, two_kinds
from .chunks import PATH as CHUNKS
from .chunks import is_chunks, read_chunks
from .columns import Columns, Loaded, first_column, is_text_column, is_unnamed, select
from .compressed import ExpandedRows
from .dialect import Dialect
from .frames import FrameTable, is_frame
from .ids import IdColumn
from .lists import MatrixMarket, read_adjacency
from .options import Selection
from .paths import kind_suffix
from .plan import EdgeType, edge_label
from .sources import Inputs, in_files
from .sparse import coo, is_sparse, shape_of
from .spec import EdgeSpec
from .tensors import open_raw

_MATRIX = Path("<matrix>")
_TEXT_OPTIONS = ("src", "dst", "delimiter", "header")
LAYOUTS = ("2xE", "Ex2")
_WHOLE = ("edge_index", "edges", "edge_list")
_PAIRS = (("row", "col"), ("src", "dst"), ("source", "target"))
_COMPRESSED = (("indptr", "indices"), ("rowptr", "col"), ("colptr", "row"), ("crow", "col"))
_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("u", "v"))


@dataclass
class EdgeList:
    """Edges of one type before their ids are rows.

    Attributes:
        num_src, num_dst: Number of nodes, where the input says so (CSR, SciPy).
        names: Of the columns they are from; empty where these have none.
        nodes: The sources that have a line of their own, with edges or without.
        two_kinds: The edge type that they seem to be of, although none was given.
    """

    src: IdColumn
    dst: IdColumn
    attrs: dict[str, Loaded] = field(default_factory=dict)
    num_src: int | None = None
    num_dst: int | None = None
    notes: list[str] = field(default_factory=list)
    names: tuple[str, str] = ("", "")
    nodes: IdColumn | None = None
    two_kinds: EdgeType = None


def read_edges(
    spec: EdgeSpec, id_types: tuple[str, str], selection: Selection, inputs: Inputs
) -> EdgeList:
    """Read what ``spec`` describes.

    Args:
        spec: The edge type.
        id_types: ``"auto"``, ``"int"`` or ``"str"`` for source and destination.
        selection: Which attributes to take.
        inputs: Opens files.

    Raises:
        InputError: The input is not what it should be; names the place.
    """
    owner = edge_label(spec.type)
    wanted = {name: src for name, src in spec.attrs.items() if selection.wants(owner, name)}
    if is_frame(spec.file):
        return _read_columns(FrameTable(spec.file), spec, id_types, wanted, inputs)
    if in_files(spec.file):
        reference = inputs.reference(spec.file, spec.format)
        if reference.kind == "mtx":
            return _read_matrix(reference, spec, wanted, owner, selection, inputs)
        if reference.kind == "adjlist":
            return _read_lists(reference, spec, id_types, wanted, inputs)
        if reference.kind in ("text", "table"):
            columns = _open_columns(reference, spec, inputs)
            return _read_columns(columns, spec, id_types, wanted, inputs)
        _refuse_options(spec, _TEXT_OPTIONS, reference.path)
        parts = [_from_file(reference, path, spec, inputs) for path in reference.files]
        result = _edge_list(reference.files, parts, id_types)
    elif is_chunks(spec.file):
        _refuse_options(spec, _TEXT_OPTIONS, "an iterator of chunks")
        chunks = read_chunks(spec.file, inputs.space)
        ends = _Ends(chunks.pop("src"), chunks.pop("dst"))
        result = _edge_list([CHUNKS], [ends], id_types)
        for name, rows in chunks.items():
            if selection.wants(owner, name) and name not in wanted:
                result.attrs[name] = inputs.load(name, rows)
    elif is_sparse(spec.file):
        _refuse_options(spec, _TEXT_OPTIONS, "a sparse matrix")
        ends, values = _from_sparse(spec)
        result = _edge_list([_MATRIX], [ends], id_types)
        name = "edge_weight" if values is None or values.dim() == 1 else "edge_attr"
        if values is not None and name not in wanted and selection.wants(owner, name):
            result.attrs[name] = inputs.load(name, values)
    else:
        _refuse_options(spec, _TEXT_OPTIONS, "an array")
        result = _edge_list([Path("<edge_index>")], [_from_memory(spec, inputs)], id_types)
    for name, source in wanted.items():
        result.attrs[name] = inputs.load(name, source)
    return result


def _refuse_options(spec: EdgeSpec, options: Sequence[str], source: object) -> None:
    for option in options:
        if getattr(spec, option) is not None:
            raise ValueError(f"{option} is an option for delimited text, which {source} is not")


def _from_sparse(spec: EdgeSpec) -> tuple[_Ends, Any]:
    """Entries of a matrix as edges from their row to their column, and their values."""
    rows, columns, values = coo(spec.file, str(_MATRIX), "matrix")
    shape = shape_of(spec.file)
    if spec.type is None:
        _check_square(_MATRIX, shape)
    ends = as_table(rows, "rows"), as_table(columns, "columns")
    return _Ends(*ends, ("row", "column"), *shape), values


def _read_matrix(
    reference: Reference,
    spec: EdgeSpec,
    wanted: Mapping[str, Any],
    owner: str,
    selection: Selection,
    inputs: Inputs,
) -> EdgeList:
    _refuse_options(spec, _TEXT_OPTIONS, reference.path)
    matrix = MatrixMarket(reference.path)
    if len(reference.files) > 1:
        raise InputError(reference.files[1], "files", len(reference.files), "one matrix")
    if spec.type is None:
        _check_square(reference.path, matrix.shape)
    name = "edge_weight"
    takes = matrix.has_values and name not in wanted and selection.wants(owner, name)
    (src, dst), loaded = matrix.read(inputs, {name: 2} if takes else {})
    for attr, source in wanted.items():
        loaded[attr] = inputs.load(attr, source)
    if matrix.is_symmetric and spec.undirected is None:
        spec.undirected = True
    told = "entries stand for both directions, and are symmetric: the other one is added"
    notes = [f"{reference.path.name}: {told}"] if matrix.is_symmetric and spec.undirected else []
    return EdgeList(src, dst, loaded, *matrix.shape, notes)


def _read_lists(
    reference: Reference,
    spec: EdgeSpec,
    id_types: tuple[str, str],
    wanted: Mapping[str, Any],
    inputs: Inputs,
) -> EdgeList:
    _refuse_options(spec, _TEXT_OPTIONS, reference.path)
    src, dst, nodes = read_adjacency(reference.files, id_types[0], spec.comment, inputs)
    loaded = {attr: inputs.load(attr, source) for attr, source in wanted.items()}
    return EdgeList(src, dst, loaded, nodes=nodes)


def _check_square(path: Path, shape: tuple[int, int]) -> None:
    if shape[0] != shape[1]:
        hint = 'If they are two kinds of nodes, pass edge_type="user,to,item" (--edge-type).'
        found = f"{shape[0]} rows and {shape[1]} columns"
        raise InputError(path, "shape", found, "as many columns as rows", hint)


def _open_columns(reference: Reference, spec: EdgeSpec, inputs: Inputs) -> Columns:
    if reference.kind != "text":
        _refuse_options(spec, ("delimiter", "header"), reference.path)
    named = [column for column in (spec.src, spec.dst) if column is not None]
    return inputs.open_columns(
        reference, named, delimiter=spec.delimiter, header=spec.header, comment=spec.comment
    )


def _read_columns(
    dialect: Columns,
    spec: EdgeSpec,
    id_types: tuple[str, str],
    attrs: Mapping[str, Any],
    inputs: Inputs,
) -> EdgeList:
    if not isinstance(dialect, Dialect):
        _refuse_options(spec, ("delimiter", "header"), dialect.path)
    if dialect.num_columns < 2:
        where, expected, hint = "columns", "2 or more", ""
        if isinstance(dialect, Dialect):
            where = f"line {dialect.parts[0].skip_lines + 1}"
            expected = f"2 or more, separated by {dialect.delimiter!r}"
            hint = "Pass delimiter=... (--delimiter) if they are separated otherwise."
        raise InputError(dialect.path, where, "1 column", expected, hint)
    src, dst = _endpoint_columns(dialect, spec)
    own, external = split_own(dialect, attrs)
    ids = [
        (position, id_type == "str" or (id_type == "auto" and is_text_column(dialect, position)))
        for position, id_type in zip((src, dst), id_types, strict=True)
    ]
    columns, loaded = inputs.columns(dialect, own, ids)
    for name, source in external.items():
        loaded[name] = inputs.load(name, source)
    result = EdgeList(columns[0], columns[1], loaded)
    if dialect.names:
        result.names = dialect.names[src], dialect.names[dst]
    if spec.type is None:
        ends = result.src, result.dst
        relation = dialect.path.name.partition(".")[0]
        if relation == "stdin" or relation.startswith("<"):
            relation = "to"
        result.two_kinds = two_kinds(result.names, ends, relation)
        if result.two_kinds is not None:
            labels = dialect.label(src), dialect.label(dst)
            told = describe_two_kinds(labels, ends, result.two_kinds)
            result.notes.append(f"{dialect.path.name}: {told}")
    result.notes += untaken(dialect, {src, dst}.union(*own.values()))
    return result


def split_own(
    dialect: Columns, attrs: Mapping[str, Any]
) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """Attributes that are columns of this very file, by position, and the others.

    A list or a position means columns; a string does if it selects some, else it is a path.
    """
    own: dict[str, list[int]] = {}
    external: dict[str, Any] = {}
    for name, source in attrs.items():
        is_list = isinstance(source, list | tuple) and all(isinstance(x, str) for x in source)
        if isinstance(source, int) or is_list:
            own[name] = select(dialect, source)
            continue
        if isinstance(source, str):
            try:
                own[name] = select(dialect, source)
                continue
            except InputError:
                if kind_suffix(source.partition(":")[0]) not in SUFFIXES:
                    raise
        external[name] = source
    return own, external


def untaken(dialect: Columns, taken: set[int]) -> list[str]:
    """A note on columns that nobody asked for."""
    rest = [dialect.label(i) for i in range(dialect.num_columns) if i not in taken]
    return [f"{dialect.path.name}: columns not taken: {', '.join(rest[:8])}"] if rest else []


def _endpoint_columns(dialect: Columns, spec: EdgeSpec) -> tuple[int, int]:
    src, dst = spec.src, spec.dst
    # Row numbers that pandas wrote are no ids. Of two columns one may be an index that is.
    first = 1 if is_unnamed(dialect) and dialect.num_columns > 2 else 0
    if first == 0 and None in (src, dst):
        first_column(dialect, "src or dst, --src or --dst")
    if src is None and dst is None:
        lower = [name.lower() for name in dialect.names]
        for pair in _NAMES:
            for suffix in ("", "_id", "id"):
                names = [name + suffix for name in pair]
                if all(lower.count(name) == 1 for name in names):
                    return lower.index(names[0]), lower.index(names[1])
    found = (
        dialect.position(first if src is None else src),
        dialect.position(first + 1 if dst is None else dst),
    )
    if found[0] == found[1]:
        raise InputError(
            dialect.path, "columns", f"{dialect.label(found[0])} for both ends", "two columns"
        )
    return found


@dataclass(frozen=True)
class _Ends:
    """Both ends of the edges of one file, as tables of ids."""

    src: Table
    dst: Table
    names: tuple[str, str] = ("src", "dst")
    num_src: int | None = None
    num_dst: int | None = None


def _edge_list(files: Sequence[Path], ends: list[_Ends], id_types: tuple[str, str]) -> EdgeList:
    columns = []
    for side, id_type in zip(("src", "dst"), id_types, strict=True):
        tables: list[Table] = [getattr(each, side) for each in ends]
        name = ends[0].names[side == "dst"]
        if len(tables) == 1:
            columns.append(id_column(tables[0], files[0], _places(name), id_type == "str"))
            continue
        rows = [
            integers(only_rows(table, path), path, _places(name))
            for path, table in zip(files, tables, strict=True)
        ]
        whole = ChainRows(rows)
        where = place_in(files, whole, name + "[{}]")
        columns.append(id_column(whole, files[0].parent, where))
    if len(ends) > 1:
        return EdgeList(columns[0], columns[1])
    return EdgeList(columns[0], columns[1], num_src=ends[0].num_src, num_dst=ends[0].num_dst)


def _places(name: str) -> Callable[[int], str]:
    return lambda position: f"{name}[{position}]"


def _from_memory(spec: EdgeSpec, inputs: Inputs) -> _Ends:
    value = spec.file
    path = Path("<edge_index>")
    if isinstance(value, tuple) and len(value) == 2:
        src, dst = (as_table(part, "edge_index") for part in value)
        return _pair(src, dst, path)
    if isinstance(value, Mapping):
        return _from_members(in_memory(value, str(path)), None, path, spec, inputs)
    return _whole(as_table(value, "edge_index"), path, spec.edge_layout, inputs)


def _from_file(reference: Reference, path: Path, spec: EdgeSpec, inputs: Inputs) -> _Ends:
    if reference.kind == "bin":
        return _from_raw(open_raw(path, reference.member), path, spec, inputs)
    content = load_all(path, inputs.space.file)
    if isinstance(content, Mapping):
        return _from_members(content, reference.member, path, spec, inputs)
    if reference.member is not None:
        raise InputError(path, "member", "a single array", f"a member {reference.member!r}")
    return _whole(content, path, spec.edge_layout, inputs)


def _from_raw(rows: FileRows, path: Path, spec: EdgeSpec, inputs: Inputs) -> _Ends:
    """Raw rows of two ids each; or, being told so, all sources and then all destinations."""
    if len(rows.shape) == 1 and spec.edge_layout == "2xE":
        shape = (2, len(rows) // 2)
        if len(rows) % 2:
            raise InputError(path, "edges", f"{len(rows)} ids", "an even number, [2, E]")
        rows = FileRows(path, 0, shape, rows.dtype, rows.swapped)
    return _whole(rows, path, spec.edge_layout or "Ex2", inputs)


def _from_members(
    members: Mapping[str, Callable[[], Table]],
    member: str | None,
    path: Path,
    spec: EdgeSpec,
    inputs: Inputs,
) -> _Ends:
    names = _choose(members, member)
    missing = [name for name in names if name not in members]
    if missing or not names:
        raise InputError(
            path,
            "members",
            ", ".join(members) or "nothing",
            f"a member {missing[0]!r}" if missing else "edge_index, row/col or indptr/indices",
            "" if missing else f"Name them: {path.name}:SRC,DST.",
        )
    if not isinstance(spec.file, Reference):  # a dataset's own says what it takes
        inputs.take_members(path, [*names, "format", "shape"], members)
    tables = [members[name]() for name in names]
    if len(tables) == 1:
        return _whole(tables[0], path, spec.edge_layout, inputs)
    kind = _compression(names, members)
    if kind is None:
        result = _pair(tables[0], tables[1], path, (names[0], names[1]))
    else:
        result = _compressed(tables[0], tables[1], path, kind)
    if "format" in members and "shape" in members:  # SciPy's save_npz
        num_src, num_dst = only_rows(members["shape"](), path).read(0, 2).tolist()
        result = replace(result, num_src=num_src, num_dst=num_dst)
    return result


def _choose(members: Mapping[str, Any], member: str | None) -> list[str]:
    if member is not None:
        return [member] if member in members else member.split(",")
    for name in _WHOLE:
        if name in members:
            return [name]
    for pair in (*_COMPRESSED, *_PAIRS):
        found = [
            [name.removesuffix(pair[0]) + part for part in pair]
            for name in members
            if name.endswith(pair[0]) and name.removesuffix(pair[0]) + pair[1] in members
        ]
        # Features are often kept as another sparse matrix beside the adjacency.
        found.sort(key=lambda names: (names[0] != pair[0], not names[0].startswith("adj")))
        adjacency = [names for names in found if names[0] == pair[0] or names[0][:3] == "adj"]
        if adjacency or len(found) == 1:
            return (adjacency or found)[0]
    return list(members) if len(members) == 1 else []


def _compression(names: list[str], members: Mapping[str, Callable[[], Table]]) -> str | None:
    if names[0].endswith("colptr"):
        return "csc"
    if not any(names[0].endswith(pair[0]) for pair in _COMPRESSED):
        return None
    if "format" in members:
        value = members["format"]()
        word = value.item() if isinstance(value, np.ndarray) else describe(value)
        return word.decode() if isinstance(word, bytes) else str(word)
    return "csr"


def _whole(table: Table, path: Path, layout: str | None, inputs: Inputs) -> _Ends:
    """``[2, E]`` or ``[E, 2]``."""
    shape = tuple(table.shape)
    if len(shape) != 2 or 2 not in shape:
        raise InputError(path, "edges", f"shape {list(shape)}", "shape [2, E] or [E, 2]")
    if layout is None and shape == (2, 2):
        raise InputError(
            path,
            "edges",
            "shape [2, 2], which may be either",
            "to know whether it is [2, E] or [E, 2]",
            'Pass edge_layout="2xE" or "Ex2" (--edge-layout).',
        )
    if layout not in (None, *LAYOUTS):
        raise ValueError(f"edge_layout={layout!r}: expected one of {', '.join(LAYOUTS)}")
    if layout is None:
        layout = "2xE" if shape[0] == 2 else "Ex2"
    if shape[LAYOUTS.index(layout)] != 2:
        raise InputError(path, "edges", f"shape {list(shape)}", f"shape [{layout}]")
    ends: Sequence[Table]
    if isinstance(table, np.ndarray):
        ends = list(table if layout == "2xE" else table.T)
    else:
        ends = table.vectors(inputs.space.file) if layout == "2xE" else table.columns()
    return _pair(ends[0], ends[1], path)


def _pair(src: Table, dst: Table, path: Path, names: tuple[str, str] = ("src", "dst")) -> _Ends:
    if len(src) != len(dst):
        raise InputError(
            path, names[1], f"{len(dst)} values", f"{len(src)}, as many as {names[0]} has"
        )
    return _Ends(src, dst, names)


def _compressed(indptr: Table, indices: Table, path: Path, kind: str) -> _Ends:
    if kind not in ("csr", "csc"):
        raise InputError(path, "format", repr(kind), "csr, csc or coo")
    is_pointers = isinstance(indptr, Rows) and len(indptr.shape) == 1 and len(indptr)
    if not is_pointers or describe(indptr)[:3] not in ("int", "uin"):
        found = f"{indptr.dtype}, shape {list(indptr.shape)}"
        raise InputError(path, "indptr", found, f"0 ascending to {len(indices)}")
    pointers = integers(only_rows(indptr, path), path, _places("indptr"))
    rows = ExpandedRows(pointers, len(indices), path)
    if kind == "csr":
        return replace(_pair(rows, indices, path), num_src=len(pointers) - 1)
    return replace(_pair(indices, rows, path), num_dst=len(pointers) - 1)
