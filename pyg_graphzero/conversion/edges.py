"""One edge list, from columns, arrays or memory: endpoints as ids, and the attributes.

Several files of arrays follow one another, each with its part of the edges.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.arrays import (
    SUFFIXES,
    id_column,
    integers,
    only_rows,
    place_in,
)
from pyg_graphzero.conversion.columns import (
    Columns,
    Loaded,
    first_column,
    holds_ids,
    is_unnamed,
    select,
)
from pyg_graphzero.conversion.dialect import Dialect
from pyg_graphzero.conversion.ends import Ends, read_ends
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.names import (
    are_numbered,
    describe_two_kinds,
    ends_of,
    is_relation,
    two_kinds,
)
from pyg_graphzero.conversion.paths import kind_suffix
from pyg_graphzero.conversion.plan import edge_label
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spec import EdgeSpec, layout_of
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ChainRows

# PyG's name of what a relation of a knowledge graph becomes.
RELATION = "edge_type"
_TEXT_OPTIONS = ("src", "dst", "delimiter", "header")


@dataclass
class EdgeList:
    """Edges of one type before their ids are rows.

    Attributes:
        ends: Sources and destinations.
        attrs: Attributes by name.
        counts: Number of nodes of either, where the input says so (CSR, SciPy).
        names: Names of the columns of either; empty where these have none.
    """

    ends: list[IdColumn]
    attrs: dict[str, Loaded] = field(default_factory=dict)
    counts: tuple[int | None, int | None] = (None, None)
    names: tuple[str, str] = ("", "")

    @property
    def path(self) -> str | Path:
        """The input, for messages."""
        return self.ends[0].path

    def __len__(self) -> int:
        return len(self.ends[0])


def read_edges(spec: EdgeSpec, id_types: tuple[str, str], inputs: Inputs) -> EdgeList:
    """Read what ``spec`` describes.

    Args:
        spec: The edge type.
        id_types: ``"auto"``, ``"int"`` or ``"str"`` for source and destination.
        inputs: Opens files, and says which attributes to take.

    Raises:
        InputError: The input is not what it should be; names the place.
    """
    owner = edge_label(spec.type)
    wanted = {name: src for name, src in spec.attrs.items() if inputs.choices.wants(owner, name)}

    def takes(name: str) -> bool:
        """Whether an attribute that comes with the edges is taken, unasked."""
        return name not in wanted and inputs.choices.wants(owner, name)

    named = [column for column in (spec.src, spec.dst) if column is not None]
    table, reference = inputs.open(spec.file, "", named, spec.format, **layout_of(spec))
    if table is not None:
        result, wanted = _read_columns(table, spec, id_types, wanted, takes, inputs)
    else:
        _refuse_options(spec, _TEXT_OPTIONS, reference.path if reference.files else spec.name)
        parts, values = read_ends(spec, reference, inputs.space.file)
        result = _edge_list(parts, id_types)
        name = "edge_weight" if values is None or values.dim() == 1 else "edge_attr"
        if values is not None and takes(name):
            result.attrs[name] = inputs.load(name, values)
    for name, source in wanted.items():
        result.attrs[name] = inputs.load(name, source)
    return result


def _refuse_options(spec: EdgeSpec, options: Sequence[str], source: object) -> None:
    for option in options:
        if getattr(spec, option) is not None:
            raise ValueError(f"{option} is an option for delimited text, which {source} is not")


def _read_columns(
    dialect: Columns,
    spec: EdgeSpec,
    id_types: tuple[str, str],
    attrs: Mapping[str, Any],
    takes: Callable[[str], bool],
    inputs: Inputs,
) -> tuple[EdgeList, dict[str, Any]]:
    """Edges out of the columns of a table, and the attributes that are none of these."""
    if not isinstance(dialect, Dialect):
        _refuse_options(spec, ("delimiter", "header"), dialect.path)
    if dialect.num_columns < 2:
        where, expected, hint = "columns", "2 or more", ""
        if isinstance(dialect, Dialect):
            where = f"line {dialect.parts[0].skip_lines + 1}"
            expected = f"2 or more, separated by {dialect.delimiter!r}"
            hint = "Pass delimiter=... (--delimiter) if they are separated otherwise."
        raise InputError(dialect.path, where, "1 column", expected, hint)
    own, external = split_own(dialect, attrs)
    src, dst = _endpoint_columns(dialect, spec, {at for each in own.values() for at in each})
    ids = [
        (position, id_type == "str" or (id_type == "auto" and dialect.is_text(position)))
        for position, id_type in zip((src, dst), id_types, strict=True)
    ]
    third = _relation(dialect, src, dst)
    if third is not None and takes(RELATION) and [third] not in own.values():
        own[RELATION] = [third]
    result = EdgeList(*inputs.columns(dialect, own, ids))
    if dialect.names:
        result.names = dialect.names[src], dialect.names[dst]
    if spec.type is None:
        relation = dialect.path.name.partition(".")[0]
        if relation == "stdin" or relation.startswith("<"):
            relation = "to"
        kinds = two_kinds(result.names, relation)
        if kinds is not None:
            told = describe_two_kinds(result.names, kinds)
            inputs.choices.doubts.append(f"{dialect.path.name}: {told}")
            inputs.choices.note(inputs.choices.doubts[-1])
    note_untaken(dialect, {src, dst}.union(*own.values()), inputs)
    return result, external


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


def note_untaken(dialect: Columns, taken: set[int], inputs: Inputs) -> None:
    """Notes columns that were not asked for."""
    rest = [dialect.label(i) for i in range(dialect.num_columns) if i not in taken]
    if rest:
        inputs.choices.note(f"{dialect.path.name}: columns not taken: {', '.join(rest[:8])}")


def _endpoint_columns(columns: Columns, spec: EdgeSpec, taken: set[int]) -> list[int]:
    found = [None if end is None else columns.position(end) for end in (spec.src, spec.dst)]
    ends = [at for at in found if at is not None]
    # Row numbers that pandas wrote are no ids. One of two columns may be an index that is.
    first = 1 if is_unnamed(columns) and columns.num_columns > 2 else 0
    if not ends and _are_triples(columns):
        return [0, 2]
    if first == 0 and None in found:
        first_column(columns, "src or dst, --src or --dst")
    names = columns.names or ("",) * columns.num_columns
    in_order = [at if at is not None else first + end for end, at in enumerate(found)]
    holds = partial(holds_ids, columns)
    is_pair = columns.num_columns == 2 or all(holds(at) is not False for at in in_order)
    if are_numbered(columns.names) and is_pair:
        ends = in_order
    if len(ends) != 2:
        kinds = ("", "") if spec.type is None else (spec.type[0], spec.type[2])
        ends = ends_of(names, holds, found, taken | {*range(first)}, kinds)
    if len(ends) != 2:
        shown = [columns.label(at) for at in (ends if len(ends) > 2 else range(len(names)))]
        options = [str(each).strip("'") for each in (*shown, *shown)[:2]]
        hint = "Say which: src={0!r}, dst={1!r} (--src {0} --dst {1}).".format(*options)
        expected = "two of them that are the ends of edges, by their names and values"
        raise InputError(columns.path, "columns", ", ".join(shown[:12]), expected, hint)
    if ends[0] == ends[1]:
        raise InputError(
            columns.path, "columns", f"{columns.label(ends[0])} for both ends", "two columns"
        )
    return ends


def _are_triples(columns: Columns) -> bool:
    """Whether columns without names are those of a knowledge graph: head, relation and tail.

    Raises:
        InputError: They are text, and the last one rather is a relation than the second.
    """
    if columns.num_columns != 3 or not are_numbered(columns.names):
        return False
    is_text = [columns.is_text(at) for at in range(3)]
    if isinstance(columns, Dialect) and all(is_text):
        counts = [len({row[at] for row in columns.sample if len(row) == 3}) for at in range(3)]
        if 2 * counts[2] <= counts[1]:
            found = "three of text, of which the last has the fewest values"
            hint = "Say which are the ends: src=0, dst=1 (--src 0 --dst 1)."
            raise InputError(columns.path, "columns", found, "head, relation and tail", hint)
    return is_text[1] and is_text[0] == is_text[2]


def _relation(columns: Columns, src: int, dst: int) -> int | None:
    """The third column where it is text that names the relation between the other two."""
    rest = [at for at in range(columns.num_columns) if at not in (src, dst)]
    if len(rest) != 1 or is_unnamed(columns):
        return None
    is_text = [columns.is_text(at) for at in range(3)]
    is_between = are_numbered(columns.names) and rest == [1]
    is_called_so = bool(columns.names) and is_relation(columns.names[rest[0]])
    return rest[0] if is_text[rest[0]] and (all(is_text) or is_between or is_called_so) else None


def _edge_list(ends: list[Ends], id_types: tuple[str, str]) -> EdgeList:
    """Ends that follow one another as one list."""
    first, is_alone = ends[0], len(ends) == 1
    columns = []
    for side, name, id_type in zip((0, 1), first.names, id_types, strict=True):
        form, path, table = f"{name}[{{}}]", first.path, first.tables[side]
        if not is_alone:
            path, place = path.parent, form.format
            parts = [only_rows(each.tables[side], each.path) for each in ends]
            table = ChainRows(
                [integers(part, each.path, place) for part, each in zip(parts, ends, strict=True)]
            )
        where = place_in([each.path for each in ends], table, form)
        columns.append(id_column(table, path, where, id_type == "str"))
    return EdgeList(columns, counts=first.counts if is_alone else (None, None))
