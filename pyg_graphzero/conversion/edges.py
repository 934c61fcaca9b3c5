"""One edge list, from columns, arrays or memory: endpoints as ids, and the attributes.

Several files of arrays follow one another, each with its part of the edges.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.arrays import (
    SUFFIXES,
    Reference,
    Table,
    id_column,
    integers,
    only_rows,
    place_in,
)
from pyg_graphzero.conversion.bipartite import describe_two_kinds, two_kinds
from pyg_graphzero.conversion.chunks import PATH as CHUNKS
from pyg_graphzero.conversion.chunks import is_chunks, read_chunks
from pyg_graphzero.conversion.columns import (
    Columns,
    Loaded,
    first_column,
    is_text_column,
    is_unnamed,
    select,
)
from pyg_graphzero.conversion.dialect import Dialect
from pyg_graphzero.conversion.ends import (
    ARRAY,
    MATRIX,
    Ends,
    check_square,
    from_file,
    from_memory,
    from_sparse,
    places,
)
from pyg_graphzero.conversion.frames import FrameTable, is_frame
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.lists import MatrixMarket, read_adjacency
from pyg_graphzero.conversion.options import Selection
from pyg_graphzero.conversion.paths import kind_suffix
from pyg_graphzero.conversion.plan import EdgeType, edge_label
from pyg_graphzero.conversion.sources import Inputs, in_files
from pyg_graphzero.conversion.sparse import is_sparse
from pyg_graphzero.conversion.spec import EdgeSpec
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ChainRows

_TEXT_OPTIONS = ("src", "dst", "delimiter", "header")
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

    def takes(name: str) -> bool:
        """Whether an attribute that comes with the edges is taken, unasked."""
        return name not in wanted and selection.wants(owner, name)

    if is_frame(spec.file):
        return _read_columns(FrameTable(spec.file), spec, id_types, wanted, inputs)
    if in_files(spec.file):
        reference = inputs.reference(spec.file, spec.format)
        if reference.kind in ("text", "table"):
            columns = _open_columns(reference, spec, inputs)
            return _read_columns(columns, spec, id_types, wanted, inputs)
        _refuse_options(spec, _TEXT_OPTIONS, reference.path)
        if reference.kind == "mtx":
            result = _read_matrix(reference, spec, takes("edge_weight"), inputs)
        elif reference.kind == "adjlist":
            files = reference.files
            src, dst, nodes = read_adjacency(files, id_types[0], spec.comment, inputs)
            result = EdgeList(src, dst, nodes=nodes)
        else:
            parts = [from_file(reference, path, spec, inputs) for path in reference.files]
            result = _edge_list(reference.files, parts, id_types)
    elif is_chunks(spec.file):
        _refuse_options(spec, _TEXT_OPTIONS, "an iterator of chunks")
        chunks = read_chunks(spec.file, inputs.space)
        ends = Ends(chunks.pop("src"), chunks.pop("dst"))
        result = _edge_list([CHUNKS], [ends], id_types)
        result.attrs = {
            name: inputs.load(name, rows) for name, rows in chunks.items() if takes(name)
        }
    elif is_sparse(spec.file):
        _refuse_options(spec, _TEXT_OPTIONS, "a sparse matrix")
        ends, values = from_sparse(spec)
        result = _edge_list([MATRIX], [ends], id_types)
        name = "edge_weight" if values is None or values.dim() == 1 else "edge_attr"
        if values is not None and takes(name):
            result.attrs[name] = inputs.load(name, values)
    else:
        _refuse_options(spec, _TEXT_OPTIONS, "an array")
        result = _edge_list([ARRAY], [from_memory(spec, inputs)], id_types)
    for name, source in wanted.items():
        result.attrs[name] = inputs.load(name, source)
    return result


def _refuse_options(spec: EdgeSpec, options: Sequence[str], source: object) -> None:
    for option in options:
        if getattr(spec, option) is not None:
            raise ValueError(f"{option} is an option for delimited text, which {source} is not")


def _read_matrix(
    reference: Reference, spec: EdgeSpec, takes_weight: bool, inputs: Inputs
) -> EdgeList:
    matrix = MatrixMarket(reference.path)
    if len(reference.files) > 1:
        raise InputError(reference.files[1], "files", len(reference.files), "one matrix")
    if spec.type is None:
        check_square(reference.path, matrix.shape)
    takes = matrix.has_values and takes_weight
    (src, dst), loaded = matrix.read(inputs, {"edge_weight": 2} if takes else {})
    if matrix.is_symmetric and spec.undirected is None:
        spec.undirected = True
    told = "entries stand for both directions, and are symmetric: the other one is added"
    notes = [f"{reference.path.name}: {told}"] if matrix.is_symmetric and spec.undirected else []
    return EdgeList(src, dst, loaded, *matrix.shape, notes)


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


def _edge_list(files: Sequence[Path], ends: list[Ends], id_types: tuple[str, str]) -> EdgeList:
    columns = []
    for side, id_type in zip(("src", "dst"), id_types, strict=True):
        tables: list[Table] = [getattr(each, side) for each in ends]
        name = ends[0].names[side == "dst"]
        if len(tables) == 1:
            columns.append(id_column(tables[0], files[0], places(name), id_type == "str"))
            continue
        rows = [
            integers(only_rows(table, path), path, places(name))
            for path, table in zip(files, tables, strict=True)
        ]
        whole = ChainRows(rows)
        where = place_in(files, whole, name + "[{}]")
        columns.append(id_column(whole, files[0].parent, where))
    if len(ends) > 1:
        return EdgeList(columns[0], columns[1])
    return EdgeList(columns[0], columns[1], num_src=ends[0].num_src, num_dst=ends[0].num_dst)
