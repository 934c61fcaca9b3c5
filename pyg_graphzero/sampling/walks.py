"""The edges that random walks go along: which types, and where a store has them by source."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType


def steps_of(
    there: list[EdgeType | None], metapath: Sequence[EdgeType] | None, reverse: bool
) -> list[EdgeType | None]:
    """The edge types of the steps: each begins where the one before ended.

    Raises:
        ValueError: They do not, or there is no such edge type.
    """
    if metapath is None and there != [None]:
        raise ValueError(
            f"metapath: found none, expected edge types of a heterogeneous graph: {there}"
        )
    given: Sequence[EdgeType | None] = there if metapath is None else metapath
    steps = [name and (name[0], name[1], name[2]) for name in given]
    if not steps:
        raise ValueError("metapath: found no edge type, expected one or more")
    for name in steps:
        if name not in there:
            raise ValueError(f"metapath: found {name}, expected some of {there}")
    for one, other in pairwise(steps):
        if one is None or other is None:
            continue
        end, begin = (one[0], other[2]) if reverse else (one[2], other[0])
        if end != begin:
            raise ValueError(
                f"metapath: found {other} after {one}, expected an edge type that "
                f"{'leads to' if reverse else 'begins at'} {end!r}"
            )
    return steps


def mirror_of(contents: StoreContents, name: EdgeType | None) -> EdgeType | None:
    """The edge type that has the same edges with both ends exchanged.

    Raises:
        UnsupportedError: There is none.
    """
    record = contents.edge_type(name)
    for other in contents.schema.edge_types:
        if other.num_edges != record.num_edges:
            continue
        is_swapped = name is None or other.name is None or other.name[::2] == name[::-1][::2]
        if is_swapped and contents.edge_prints(name) == contents.edge_prints(other.name)[::-1]:
            return other.name
    raise one_way(contents, name, "walks along edges that lead one way")


def one_way(contents: StoreContents, name: EdgeType | None, what: str) -> UnsupportedError:
    """The error where ``what`` needs edges by source, and the store has them by destination."""
    return contents.without_csr(name, what, "reverse=True walks against edges without")
