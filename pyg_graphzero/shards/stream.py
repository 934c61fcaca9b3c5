"""``assign``: a part for each node, from passes over the edges in bounded memory.

Linear deterministic greedy (Stanton & Kliot 2012, "Streaming Graph Partitioning for Large
Distributed Graphs"), restreamed (Nishimura & Ugander 2013): a node goes where most of its
neighbours are, in proportion to the room that is left there. Nodes are taken by chunks, whose
members do not see each other's choice before the next pass. In-neighbours are looked up; of
out-neighbours a table counts where they are, since each votes for its own in-neighbours once it
has a part.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.store.columns import in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType

#: Its name, in place of the user's own assignment.
LDG = "ldg"
_PASSES = 3
# Nodes of a chunk at most, and edges that are looked at together.
_NODES, _EDGES = 1 << 12, 1 << 20
# Chunks of a type at least, where it has as many nodes.
_CHUNKS = 256
# Nodes of a part, of each type, beyond an equal share.
_SLACK = 1.02


def assign(contents: StoreContents, parts: int, room: int) -> dict[str | None, Tensor]:
    """The part of each node by type, ``int16 [num_nodes]``: the same store gives the same ones.

    Args:
        contents: The store.
        parts: How many parts.
        room: Bytes that the votes may take: 4 for each node and part.

    Raises:
        MemoryBudgetError: They take more.
        FormatError: The topology is damaged.
    """
    sizes = {t.name: t.num_nodes for t in contents.schema.node_types}
    needed = 4 * parts * sum(sizes.values())
    if needed > room:
        raise MemoryBudgetError(
            f"by='ldg': found room for {room / 1e6:,.0f} MB, expected {needed / 1e6:,.0f} MB: 4 "
            "bytes for each node and part; raise memory=, or divide by ranges"
        )
    found = {name: torch.full((count,), -1, dtype=torch.int16) for name, count in sizes.items()}
    ahead = {name: torch.zeros(count * parts, dtype=torch.int32) for name, count in sizes.items()}
    into: dict[str | None, list[EdgeType | None]] = {name: [] for name in sizes}
    for edges in contents.schema.edge_types:
        into[None if edges.name is None else edges.name[2]].append(edges.name)
    for _ in range(_PASSES):
        for name, count in sizes.items():
            most, loads = int(_SLACK * count / parts) + 1, torch.zeros(parts, dtype=torch.int64)
            step = max(1, min(_NODES, count // _CHUNKS))
            for first in range(0, count, step):
                own = found[name][first : first + step].to(torch.int64)
                # Votes of out-neighbours, then of in-neighbours.
                votes = ahead[name].view(count, parts)[first : first + len(own)].to(torch.float32)
                for edges, row, sources in _edges_into(contents, into[name], first, len(own)):
                    part = found[edges and edges[0]][sources].to(torch.int64)
                    known = part >= 0
                    at = row[known] * parts + part[known]
                    votes += at.bincount(minlength=votes.numel()).view_as(votes)
                chosen = _choose(votes, loads, most)
                loads += chosen.bincount(minlength=parts)
                found[name][first : first + len(own)] = chosen.to(torch.int16)
                for edges, row, sources in _edges_into(contents, into[name], first, len(own)):
                    table = ahead[edges and edges[0]]
                    for part, vote in ((own, -1), (chosen, 1)):
                        known = part[row] >= 0
                        at = sources[known] * parts + part[row][known]
                        table.index_add_(0, at, torch.full((len(at),), vote, dtype=torch.int32))
    return found


def _edges_into(
    contents: StoreContents, names: list[EdgeType | None], first: int, count: int
) -> Iterator[tuple[Any, Tensor, Tensor]]:
    """Edges of some types into nodes from ``first`` on: type, place of the node, sources."""
    for name in names:
        bounds, indices = contents.bounds(name, first, first + count), contents.csc(name)[1]
        for begin in range(int(bounds[0]), int(bounds[-1]), _EDGES):
            end = min(begin + _EDGES, int(bounds[-1]))
            row = torch.searchsorted(bounds, torch.arange(begin, end), right=True) - 1
            sources = in_memory(indices[begin:end], torch.int64)
            yield name, row, contents.checked_sources(name, sources)


def _choose(votes: Tensor, loads: Tensor, room: int) -> Tensor:
    """A part for each node of a chunk, so that none is above its room."""
    left = room - loads
    score = votes * (left.clamp(min=0) / room)
    best, part = score.max(1)
    part[best <= 0] = -1
    # Nodes with most to gain come first; the others of a part that is full go elsewhere.
    order = best.argsort(descending=True, stable=True)
    for each in range(len(loads)):
        mine = order[part[order] == each]
        part[mine[max(0, int(left[each])) :]] = -1
    left -= part[part >= 0].bincount(minlength=len(loads))
    stray = (part < 0).nonzero().view(-1)
    part[stray] = _spread(len(stray), left)
    return part


def _spread(count: int, left: Tensor) -> Tensor:
    """Parts for nodes that may go anywhere: those with most room, to one level."""
    ordered, parts = left.sort(descending=True, stable=True)
    number = torch.arange(1, len(left) + 1)
    # The level at which the first k parts have taken all of them, for the largest such k.
    levels = (ordered.cumsum(0) - count) / number
    k = max(1, int((ordered > levels).sum()))
    taken = (ordered[:k] - levels[k - 1]).clamp(min=0).ceil().to(torch.int64)
    return parts[:k].repeat_interleave(taken)[:count]
