"""Which rows of the files that do not fit stay in memory: those that are sampled most often."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pyg_graphzero.memory.plan import FileSize, MemoryPlan
from pyg_graphzero.memory.profile import AccessCounts, top_rows
from pyg_graphzero.store.contents import StoreContents

_PAGE = 4096
_ITEM_BYTES = 8


def choose_hot_rows(
    contents: StoreContents, files: Iterable[FileSize], plan: MemoryPlan, accesses: AccessCounts
) -> dict[str, Tensor | int]:
    """Which rows of each file stay in memory, or which groups of small ones.

    A number stands for the first so many: where rows lie in the order of their use, or where it is
    not known how often each is used.
    """
    owners: dict[str, str | None] = {}
    for t in contents.schema.node_types:
        owners |= dict.fromkeys([*t.attrs.values(), *([t.order] if t.order else [])], t.name)
    chosen: dict[str, Tensor | int] = {}
    for file in files:
        if file.name not in plan.hot:
            continue
        bits = group_bits_of(file.row_bytes)
        count = plan.hot[file.name] // max(1, file.row_bytes << bits)
        if count == 0:
            chosen[file.name] = 0
        elif file.name in owners and contents.order(owners[file.name]) is None:
            chosen[file.name] = accesses.hottest(owners[file.name], count, bits)
        elif file.kind == "indices":
            chosen[file.name] = _pages_of(contents, file.name, accesses, count, bits)
        else:
            chosen[file.name] = count
    return chosen


def _pages_of(
    contents: StoreContents, file: str, accesses: AccessCounts, count: int, bits: int
) -> Tensor | int:
    """Where the neighbours of those nodes lie that are in many batches; or the first pages."""
    edge_type = next(t for t in contents.schema.edge_types if t.topology == file)
    dst = None if edge_type.name is None else edge_type.name[2]
    if contents.order(dst) is not None or dst not in accesses.counts:
        return count
    counts = accesses.counts[dst]
    nodes = counts.nonzero().view(-1)
    pages = torch.zeros((edge_type.num_edges >> bits) + 1, dtype=torch.int32)
    at = contents.bounds_at(edge_type.name, nodes) >> bits
    pages.index_add_(0, at, counts[nodes].to(torch.int32))
    return top_rows(pages[: -(-edge_type.num_edges >> bits)], count)


def group_bits_of(row_bytes: int) -> int:
    """How many rows are kept or not together: a page full where they are items of a few bytes."""
    return max(0, (_PAGE // max(1, row_bytes)).bit_length() - 1) if row_bytes <= _ITEM_BYTES else 0
