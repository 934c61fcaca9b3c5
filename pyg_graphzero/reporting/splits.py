"""Splits of edges: masks of edges, and pairs of nodes, compared with the edges to train on."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from zlib import crc32

import torch
from torch import Tensor

from pyg_graphzero.reporting.components import PIECE
from pyg_graphzero.reporting.nodes import ROLES, SplitReport, columns_of, role_bit, time_of
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeTypeSchema

_PAIRS = re.compile(r"((train|val|test)[a-z]*_)?(pos_)?edge(_label)?_index")
#: Pairs of ends that are compared, about; of a larger graph those whose hash is low.
COMPARED = 1 << 20
_TRAIN, _SEEDS = 1, 1 << len(ROLES)
_FACTORS = (-0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15)  # SplitMix64's


@dataclass
class EdgeSplitReport(SplitReport):
    """Masks of edges, and pairs of nodes such as ``val_edge_index`` and ``edge_label_index``.

    Attributes:
        leaks: By role, edges and pairs that training has too, in whatever direction, and of the
            same time where edges have times; not those that are in both splits themselves.
            ``seeds`` are pairs of ``edge_label_index``.
    """

    leaks: dict[str, int] = field(default_factory=dict)


class EdgeSplits:
    """The splits of one edge type.

    Args:
        contents: The store.
        record: The edge type.
        share: Share of the pairs of ends that are compared.
    """

    def __init__(self, contents: StoreContents, record: EdgeTypeSchema, share: float) -> None:
        columns = columns_of(contents, record, lambda count: None)
        loose = contents.schema.graph_attrs if record.name is None else record.others
        self.found, self._time = EdgeSplitReport(), time_of(columns)
        self.relation = "" if record.name is None else record.name[1].removeprefix("rev_")
        masks = [(role_bit(name), each) for name, each in columns.items()]
        self._masks = {bit: each for bit, each in masks if bit and each.dtype == torch.bool}
        # Between two nodes there may be edges of several times, of which pairs say nothing.
        self._pairs = {
            name: contents.view(each["file"])
            for name, each in loose.items()
            if "file" in each and _PAIRS.fullmatch(name) and self._time is None
        }
        self.share, self.is_split = share, bool(self._masks or self._pairs)
        self.keys: list[tuple[Tensor, Tensor]] = []
        for first in range(0, record.num_edges if self._masks else 0, PIECE):
            self.found.count(self._marks(first, min(PIECE, record.num_edges - first)))
        if self._masks and self._time is not None:
            self.found.count_late(self._time, lambda at: self._marks(at.start, at.stop - at.start))

    def _marks(self, first: int, count: int) -> Tensor:
        """The roles of some edges; without a mask for training, all others are to train on."""
        marks = torch.zeros(count, dtype=torch.uint8)
        for bit, column in self._masks.items():
            marks |= (bit * column.read(first, count)[:, 0]).to(torch.uint8)
        return marks if _TRAIN in self._masks else torch.where(marks == 0, _TRAIN, marks)

    def add(self, src: Tensor, dst: Tensor, first: int, is_inside: Tensor) -> None:
        """Edges from slot ``first`` on, by ends of all types' nodes (``int64``)."""
        count, time = len(is_inside), None
        if self._time is not None:
            time = self._time.read(first, count)[is_inside, 0].double().view(torch.int64)
        self._add(src, dst, self._marks(first, count)[is_inside], time)

    def add_pairs(self, starts: Tensor) -> None:
        """Pairs of nodes; ``int64 [2, 1]``: where their types begin among the nodes of all."""
        for name, pairs in self._pairs.items():
            for part in pairs.split(PIECE, dim=1) if pairs.dim() == 2 else ():
                src, dst = part.to(torch.int64) + starts
                self._add(src, dst, torch.full_like(src, role_bit(name) or _SEEDS), None)

    def _add(self, src: Tensor, dst: Tensor, marks: Tensor, time: Tensor | None) -> None:
        keys = _mixed(torch.minimum(src, dst) + crc32(self.relation.encode()))
        keys = _mixed(keys.add_(torch.maximum(src, dst)))
        keys = keys if time is None else _mixed(keys.add_(time))
        chosen = (keys.double() < self.share * 2.0**63) & (marks > 0)
        self.keys.append((keys[chosen], marks[chosen].to(torch.uint8)))


def count_leaks(splits: Iterable[EdgeSplits]) -> None:
    """Edges and pairs that training has too, among the types of one relation."""
    splits = [each for each in splits if each.keys]
    parts = [[torch.cat(each) for each in zip(*split.keys, strict=True)] for split in splits]
    train = [keys[marks & _TRAIN > 0] for keys, marks in parts]
    for split, (keys, marks) in zip(splits, parts, strict=True):
        for bit, role in enumerate((*ROLES[1:], "seeds"), 1):
            own = keys[(marks >> bit & 1 > 0) & (marks & _TRAIN == 0)]
            leaks = int(torch.isin(own, torch.cat(train)).count_nonzero())
            split.found.leaks[role] = round(leaks / split.share)


def _mixed(values: Tensor) -> Tensor:
    """Hashes of ``int64``, 0 or more, in place (Steele, Lea, Flood 2014)."""
    for shift, factor in zip((30, 27), _FACTORS, strict=True):
        values.bitwise_xor_(values >> shift).mul_(factor)
    return values.bitwise_xor_(values >> 31)
