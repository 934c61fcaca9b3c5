"""Tables of nodes that say whose each row is: joined by their id column, whatever their order.

Rows of other tables are the nodes' in the order of the store. That is said in a note where ids are
not rows, and refused where a column tells that the order is another.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.conversion.columns import Columns, Loaded, holds_ids, select
from pyg_graphzero.conversion.ids import IdColumn, IdSpace
from pyg_graphzero.conversion.options import Fill, fill_hint, filled_dtype
from pyg_graphzero.conversion.sources import Inputs
from pyg_graphzero.conversion.spool import RowSpool
from pyg_graphzero.errors import InputError
from pyg_graphzero.store import rows as store_rows
from pyg_graphzero.store.rows import MadeRows, Rows

# Names of a column of node ids, besides those of columns of the edges and of the node table.
ID_NAMES = frozenset(
    f"{word}{end}" for word in ("node", "vertex") for end in ("", "_id", "id", "s", "_ids")
) | {"id", "ids", "nid", "n_id"}
# Rows of a file that are nearer than that are read together.
_NEAR_BYTES = 64 << 10
# Columns that were not asked for and that are looked into, whether they hold ids.
_MOST_LOOKED_AT = 3


@dataclass(frozen=True)
class OfNodes:
    """An attribute of nodes.

    Attributes:
        loaded: Its rows.
        ids: The node of each row; None if they are in the order of the nodes.
        others: Columns of its table that may be ids by their values: label, and how to read one.
        member: Columns asked for; None where there is no table, or it has no others.
    """

    loaded: Loaded
    ids: IdColumn | None = None
    others: tuple[tuple[str, Callable[[], IdColumn]], ...] = ()
    member: str | None = None


def load_of_nodes(
    inputs: Inputs, name: str, source: Any, id_names: Collection[str], is_text: bool | None
) -> OfNodes:
    """An attribute (:meth:`.Inputs.load`), with the node of each row where a table has ids.

    Args:
        inputs: Opens sources.
        name: The attribute.
        source: Array, tensor, or path with an optional member: columns of a table, all but the
            id column and an index where it names none.
        id_names: Names that the nodes' ids have elsewhere.
        is_text: Whether ids are text; None to go by the table.

    Raises:
        InputError: The table has several columns that are called so, or no other.
    """
    columns, reference = inputs.open(source, name)
    member = reference.member
    if columns is None:
        return OfNodes(inputs.load(name, source))
    asked = [] if member is None else select(columns, member)
    position = _id_position(columns, (id_names, ID_NAMES, columns.index), asked)
    taken = asked or [each for each in columns.data if each != position]
    if not taken:
        raise InputError(columns.path, "columns", "ids and nothing else", f"a column for {name!r}")
    if position is not None:
        is_text = columns.is_text(position) if is_text is None else is_text
        ids, loaded = inputs.columns(columns, {name: taken}, [(position, is_text)])
        return OfNodes(loaded[name], ids[0])
    loaded = inputs.columns(columns, {name: taken}, [])[1]
    rest = sorted({*range(columns.num_columns)} - {*taken})

    def read(position: int) -> IdColumn:
        return inputs.columns(columns, {}, [(position, bool(is_text))])[0][0]

    looked_at = [each for each in rest if holds_ids(columns, each)]
    if not is_text:
        looked_at = [each for each in looked_at if not columns.is_text(each)]
    others = tuple((columns.label(each), partial(read, each)) for each in looked_at)
    return OfNodes(loaded[name], None, others[:_MOST_LOOKED_AT], member if rest else None)


def _id_position(
    columns: Columns, id_names: Iterable[Collection[str]], asked: list[int]
) -> int | None:
    lower = [name.lower() for name in columns.names]
    for names in id_names:
        known = {name.lower() for name in names}
        found = [each for each, name in enumerate(lower) if name in known and each not in asked]
        if len(found) > 1:
            shown = ", ".join(map(columns.label, found))
            hint = "Keep one of them in the table, under that name."
            raise InputError(columns.path, "columns", shown, "one column of node ids", hint)
        if found:
            return found[0]
    return None


def in_node_order(
    found: OfNodes, name: str, space: IdSpace, fill: Fill | None, note: Callable[[str], object]
) -> Loaded:
    """The rows of an attribute, one for each node in the order of the store.

    Args:
        found: The attribute.
        name: The name of the attribute.
        space: The nodes.
        fill: Value of nodes that the table does not have.
        note: Told how many these are.

    Raises:
        InputError: A node is not in the table and ``fill`` is None, an id is there twice or is
            none of a node, or the table's rows are in another order and it does not say which.
    """
    if found.ids is None:
        _check_order(found, name, space)
        return found.loaded
    space.take(8 * space.num_rows, space.num_rows)
    order = _order(found.ids, space)
    if order is None:
        return found.loaded
    missing = order < 0
    if fill is None and bool(missing.any()):
        others = int(missing.sum()) - 1
        node = f"no row for node {space.id_of(int(missing.int().argmax()))}"
        hint = fill_hint(name, found.loaded.rows.dtype.is_floating_point)
        found_ = f"{node} and {others} others" if others else node
        raise InputError(found.loaded.path, name, found_, "a row for every node", hint)
    if bool(missing.any()):
        told = f"{int(missing.sum())} of {space.num_rows} nodes have no row in"
        note(f"{name}: {told} {found.loaded.path}, and get {fill}")
    rows = found.loaded.rows
    none = torch.empty((0, *rows.shape[1:]), dtype=rows.dtype)
    spool = RowSpool(space.workspace, "joined", none)
    for slab in rows.slabs():
        spool.append(slab)
    dtype = rows.dtype if not bool(missing.any()) else filled_dtype(rows.dtype, fill, name)
    where = found.loaded.where

    def place(row: int) -> str:
        return where(int(order[row])) if order[row] >= 0 else f"row {row}"

    return replace(found.loaded, rows=_ordered(spool.finish(), order, dtype, fill), where=place)


def _order(ids: IdColumn, space: IdSpace) -> Tensor | None:
    """The position of each node's id in a column, -1 where it is not there.

    None if the column is the nodes in their order.
    """
    order = torch.full((space.num_rows,), -1, dtype=torch.int64)
    is_same, begin = len(ids) == space.num_rows, 0
    for slab in space.rows_of(ids).slabs(max(1, store_rows.SLAB_BYTES // 8)):
        at = torch.arange(begin, begin + len(slab))
        is_same = is_same and bool((slab == at).all())
        nodes = slab.long()
        again = order[nodes] >= 0
        order[nodes] = at
        again |= order[nodes] != at
        if bool(again.any()):
            first, second = int(at[again][0]), int(order[nodes][again][0])
            raise ids.fail(max(first, second), "every id once")
        begin += len(slab)
    return None if is_same else order


def _check_order(found: OfNodes, name: str, space: IdSpace) -> None:
    """Refuse a table of several columns whose rows are, or may be, in another order."""
    if found.member is None:
        return
    wrong = ""
    for label, read in found.others:
        is_same = _is_order(read, space)
        if is_same:
            return
        wrong = label if is_same is False else wrong
    if not wrong and (space.ids is None or space.table is not None):
        return
    path, column = found.loaded.path, wrong.strip("'") or "ID"
    given = f"--nodes {path} --node-id {column} --node-attr {name}={found.member}"
    raise InputError(
        path,
        f"column {wrong}" if wrong else name,
        "the ids of all nodes, in another order than theirs"
        if wrong
        else "rows whose order nothing tells, since ids are not rows",
        f"rows of {name!r} in the order of the nodes, or a column with their ids, called 'id'",
        f"Call it 'id' in the header, or pass the table as that of the nodes ({given}).",
    )


def _is_order(read: Callable[[], IdColumn], space: IdSpace) -> bool | None:
    """Whether a column is the nodes in their order; None if it is not every node once."""
    try:
        ids = read()
        alike = ids.is_unsigned == space.is_unsigned and not (space.ids is None and ids.is_text)
        if len(ids) != space.num_rows or not alike:
            return None
        return _order(ids, space) is None
    except InputError:  # the column holds no ids, and the user has not asked for it
        return None


def _ordered(base: Rows, order: Tensor, dtype: torch.dtype, fill: Fill | None) -> Rows:
    """Rows of another table in an order of their own.

    Args:
        base: The rows that are read, anywhere.
        order: For each row the one that it is in ``base``; -1 if it is not there.
        dtype: Dtype of the result.
        fill: Value of rows that are not there.
    """

    def make(begin: int, end: int) -> Tensor:
        wanted = order[begin:end]
        shape = (end - begin, *base.shape[1:])
        out = torch.full(shape, 0 if fill is None else fill, dtype=dtype)
        places = (wanted >= 0).nonzero().view(-1)
        rows, at = wanted[places].sort()
        places = places[at]
        for first, last in _windows(rows, max(1, base.row_bytes)):
            start = int(rows[first])
            part = base.read(start, int(rows[last - 1]) + 1)
            out[places[first:last]] = part[rows[first:last] - start].to(dtype)
        return out

    return MadeRows((len(order), *base.shape[1:]), dtype, make)


def _windows(rows: Tensor, width: int) -> Iterator[tuple[int, int]]:
    """Parts of ascending rows of ``width`` bytes that are read at once."""
    if len(rows):
        window = rows // max(1, store_rows.SLAB_BYTES // width)
        cut = (rows.diff() > max(1, _NEAR_BYTES // width)) | (window.diff() != 0)
        yield from pairwise([0, *(cut.nonzero().view(-1) + 1).tolist(), len(rows)])
