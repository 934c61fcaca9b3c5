"""Rows that stay in memory of files that do not fit: how many, and which are likely."""

from __future__ import annotations

from collections.abc import Iterable

from torch import Tensor

from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import FileSize, MemoryPlan
from pyg_graphzero.memory.profile import AccessCounts
from pyg_graphzero.store.contents import StoreContents

# Items of a few bytes are kept by groups of this many bytes: the neighbours of a few nodes, one of
# which may be in many batches. A page of 4 KiB has those of 35 nodes, so that all pages are alike.
_GROUP_BYTES = 256
_ITEM_BYTES = 8
# A frame of csrc/gather/row_cache.h has the number of its group in this many bits.
_GROUP_BITS = 31


def groups_kept(files: Iterable[FileSize], plan: MemoryPlan) -> dict[str, int]:
    """How many rows of each file stay in memory, or groups of small ones."""
    kept = {}
    for file in files:
        if file.name in plan.hot:
            each = file.row_bytes << group_bits_of(file.row_bytes, file.num_rows)
            frame = 0 if file.is_ranked else costs.FRAME
            kept[file.name] = plan.hot[file.name] // max(1, each + frame)
    return kept


def likely_groups(
    contents: StoreContents, files: Iterable[FileSize], plan: MemoryPlan, accesses: AccessCounts
) -> dict[str, Tensor]:
    """Rows that batches use most often, of node files that have frames: ``int64`` by file."""
    owners: dict[str, str | None] = {}
    for t in contents.schema.node_types:
        owners |= dict.fromkeys(t.attrs.values(), t.name)
    likely: dict[str, Tensor] = {}
    for file in files:
        count = groups_kept([file], plan).get(file.name, 0)
        if count > 0 and file.name in owners and not file.is_ranked:
            bits = group_bits_of(file.row_bytes, file.num_rows)
            likely[file.name] = accesses.hottest(owners[file.name], count, bits)
    return likely


def group_bits_of(row_bytes: int, num_rows: int) -> int:
    """How many rows are kept or not together: several where they are items of a few bytes."""
    few = (_GROUP_BYTES // max(1, row_bytes)).bit_length() - 1 if row_bytes <= _ITEM_BYTES else 0
    return max(few, num_rows.bit_length() - _GROUP_BITS, 0)
