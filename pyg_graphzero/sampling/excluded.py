"""Seed edges that are no messages of their own batch: which, by edge type and direction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.sampling.graph import SampledGraph
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.schema import EdgeType

# Edge types as the engine numbers them, with the sources, destinations and times of some edges.
Excluded = list[tuple[int, Any, Any, Any]]


def excluded_types(
    graph: SampledGraph, name: EdgeType | None, value: Any
) -> list[tuple[EdgeType | None, bool]]:
    """The edge types of which a batch's seed edges are no messages.

    Args:
        graph: The graph.
        name: The seeds' edge type.
        value: ``exclude_seed_edges``: False, True, ``"reverse"``, or the reverse of each edge type.

    Returns:
        Each with whether its edges run against the seeds.

    Raises:
        ValueError: It is none of these, or the seeds' type has no reverse.
    """
    if isinstance(value, bool):
        return [(name, False)] if value and name in graph.edge_types else []
    if isinstance(value, Mapping) and name is not None:
        reverse = value.get(name)
        if reverse not in graph.edge_types or (reverse and name[::2] != reverse[::-2]):
            raise ValueError(
                f"exclude_seed_edges: found {reverse} as the reverse of {name}, expected one of "
                f"{graph.edge_types} between the same types"
            )
    elif value == "reverse":
        reverse = _reverse_of(graph, name)
    else:
        raise ValueError(
            f"exclude_seed_edges: found {value!r}, expected False, True, 'reverse', or, of a graph "
            "with types, a dict from an edge type to its reverse"
        )
    return [*excluded_types(graph, name, True), (reverse, True)]


def _reverse_of(graph: SampledGraph, name: EdgeType | None) -> EdgeType | None:
    """By PyG's names, where types have some."""
    if name is None:
        return None
    src, relation, dst = name
    renamed = relation[4:] if relation.startswith("rev_") else f"rev_{relation}"
    candidates = [(dst, renamed, src)] + ([name] if src == dst else [])
    for candidate in candidates:
        if candidate in graph.edge_types:
            return candidate
    raise ValueError(
        f"exclude_seed_edges='reverse': found no {candidates[0]} among {graph.edge_types}, "
        f"expected the reverse of {name}; name it: exclude_seed_edges={{{name}: (…)}}"
    )


def excluded_edges(
    graph: SampledGraph,
    types: Sequence[tuple[EdgeType | None, bool]],
    row: Tensor,
    col: Tensor,
    times: Tensor | None,
) -> Excluded:
    """Seed edges as the engine leaves them out.

    Args:
        graph: The graph.
        types: See :func:`excluded_types`.
        row: Sources of the seed edges, ``int64 [n]``.
        col: Their destinations.
        times: Comparable times of the seed edges, where edges have times; or None.
    """
    pairs: dict[EdgeType | None, list[Tensor]] = {}
    for name, against in types:
        ends = [col, row] if against != graph.backward else [row, col]
        pairs.setdefault(name, []).append(torch.stack(ends if times is None else [*ends, times]))
    found: Excluded = []
    for name, parts in pairs.items():
        src, dst, *at = map(engine_array, torch.cat(parts, dim=1))
        found.append((graph.edge_types.index(name), src, dst, at[0] if at else None))
    return found
