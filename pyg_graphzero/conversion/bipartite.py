"""Whether the two id columns of an edge list name two kinds of nodes.

Read as one kind, user 7 and movie 7 would be the same node, and nothing in the result would tell.
"""

from __future__ import annotations

import re

from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.names import are_of_one_kind, kind_of

# Ends of one kind have ids of one range, or nearly so.
_RANGES_DIFFER = 1.5
_FEW = 1000  # ids whose range tells nothing


def two_kinds(
    names: tuple[str, str], ends: tuple[IdColumn, IdColumn], relation: str
) -> tuple[str, str, str] | None:
    """The edge type that the columns seem to be of; None if both hold the same kind of nodes.

    They do not if their names say different things, or if they say nothing and one column's ids
    range much farther.

    Args:
        names: Of the columns; empty where they have none.
        ends: Their ids.
        relation: What to call the edges.
    """
    if are_of_one_kind(names):
        return None
    kinds = [kind_of(name) for name in names]
    relation = "_".join(re.findall(r"\w+", relation)) or "to"
    if all(kinds):
        return None if kinds[0] == kinds[1] else (kinds[0], relation, kinds[1])
    if any(column.is_text or len(column) < _FEW for column in ends):
        return None
    spans = sorted(high - min(low, 1) for low, high in (column.range for column in ends))
    if spans[1] <= _RANGES_DIFFER * max(spans[0], 1):
        return None
    return kinds[0] or "source", relation, kinds[1] or "target"


def describe_two_kinds(
    labels: tuple[str, str], ends: tuple[IdColumn, IdColumn], edge_type: tuple[str, str, str]
) -> str:
    """What to say about it: columns, ranges, and how to keep the kinds apart."""
    shown = [
        f"{label} ({column.range[0]}…{column.range[1]})" if not column.is_text else label
        for label, column in zip(labels, ends, strict=True)
    ]
    option = ",".join(edge_type)
    return (
        f"columns {shown[0]} and {shown[1]} look like two kinds of nodes, and an id that is in "
        f"both is one node here; to keep them apart, pass edge_type={edge_type} "
        f"(--edge-type {option})"
    )
