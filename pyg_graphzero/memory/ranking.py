"""The order in which rows and neighbour lists should lie, by how batches use them.

Degrees tell little where seeds are clustered (``docs/out-of-core.md``, "Order"); what the sampler
itself reaches from the seeds at hand is what will be gathered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.store.columns import engine_array
from pyg_graphzero.store.copies import GROUP_BITS

#: How often each of the first rows in an order is used, and how many these are, again and again.
Uses = tuple[tuple[float, int], ...]
#: Rows that more than this many batches of two epochs use are ordered by how many these are; the
#: others by what they are used with. See "The copy" in benchmarks/NOTES.md.
HOT = 4
# Rows are listed by numbers of 32 bits.
_MOST_ROWS = 1 << 31
# Rows that are looked at by one call where all are.
_PIECE = 1 << 17
# Rows that are told apart by their uses are in this many steps.
_STEPS = 32
# Uses of a group, in halves of a power of two, are numbered from 1: the last is 2 ** 15.
_LEVELS, _ZERO_LEVEL = 63, 32


class RankedRows:
    """Rows that are used, in the order in which they should lie.

    Args:
        num_rows: How many rows there are, used or not; none is ranked where they are 2 ** 31.

    Attributes:
        used: How many are used.
    """

    def __init__(self, num_rows: int) -> None:
        num_rows = num_rows if num_rows < _MOST_ROWS else 0
        self.used = 0
        # Memory that is never written to is not taken.
        self._list = torch.empty(num_rows, dtype=torch.int32)
        self._bits = torch.zeros(-(-num_rows // 8), dtype=torch.uint8)

    @property
    def order(self) -> Tensor:
        """The rows: ``int32 [used]``."""
        return self._list[: self.used]

    def add(self, rows: Tensor) -> None:
        """Puts those of some rows (``int64``) behind the others that are not there yet."""
        if self._list.numel() > 0:
            arrays = engine_array(rows), engine_array(self._bits), engine_array(self._list)
            self.used = _core.add_rows(*arrays, self.used)

    def rank(self, counts: Tensor, hot: int) -> None:
        """First what is used most, then what is used together.

        Rows that more than ``hot`` batches used come first, by how many these were; equals, and
        then the others, as they were added; then those that are counted and were not.

        Args:
            counts: ``int16 [num_rows]``, how many batches used each row.
            hot: Counts above this are told apart.
        """
        for begin in range(0, len(counts), _PIECE):
            self.add(counts[begin : begin + _PIECE].nonzero().view(-1).add_(begin))
        if self.used > 0:
            _core.hottest_first(engine_array(counts), engine_array(self.order), hot)


def hot_above(epochs: float) -> int:
    """Number of batches in the counted epochs: rows that more batches have come first."""
    return max(1, round(HOT * epochs / 2))


def uses_of(counts: Tensor, order: Tensor, hot: int) -> Uses:
    """How often ranked rows are used, from the first on: means of steps of the order.

    Args:
        counts: How many batches used each row.
        order: The rows, by :meth:`RankedRows.rank`.
        hot: The count that :meth:`RankedRows.rank` was given.
    """

    def uses(rows: Tensor) -> Iterator[Tensor]:
        return (counts[piece.to(torch.int64)] for piece in rows.split(_PIECE))

    num_hot = sum(int((each > hot).sum()) for each in uses(order))
    steps = [*order[:num_hot].chunk(_STEPS), order[num_hot:]]
    return tuple(
        (sum(int(each.sum()) for each in uses(step)) / step.numel(), step.numel())
        for step in steps
        if step.numel() > 0
    )


def rank_lists(
    bounds: Callable[[int, int], Tensor], expanded: Tensor, num_edges: int
) -> tuple[Tensor, Uses]:
    """The groups of neighbours that batches draw from, those first that they draw from most.

    Args:
        bounds: Returns ``indptr[begin : end + 1]`` of an edge type, ``int64``.
        expanded: ``int16 [num_dst]``, how many batches drew neighbours of each node.
        num_edges: Number of neighbours. The last ones that make no whole group are left out.

    Returns:
        The groups, ``int32``, and how often they are used, as :func:`uses_of` says it.
    """
    size, num_groups = 1 << GROUP_BITS, num_edges >> GROUP_BITS
    levels = torch.zeros(num_groups + 1, dtype=torch.int16)
    at, carry = 0, 0.0  # the group that the last piece ended in, and its uses until then
    for begin in range(0, len(expanded), _PIECE):
        uses = expanded[begin : begin + _PIECE].to(torch.float64)
        ends = bounds(begin, begin + len(uses))
        sizes = ends.diff()
        # A batch draws from some groups only of a longer list.
        uses *= (size / sizes.clamp(min=size)) * (sizes > 0)
        first, last = ends[:-1] >> GROUP_BITS, (ends[1:] - 1).clamp(min=0) >> GROUP_BITS
        steps = torch.zeros(int(last[-1]) - at + 2, dtype=torch.float64)
        is_some = uses > 0
        steps.index_add_(0, first[is_some] - at, uses[is_some])
        steps.index_add_(0, last[is_some] + 1 - at, -uses[is_some])
        found = steps.cumsum(0)[:-1]
        found[0] += carry
        levels[at : at + len(found)] = _levels(found)[: num_groups + 1 - at]
        at, carry = int(last[-1]), float(found[-1])
    levels = levels[:num_groups]
    ranked = RankedRows(num_groups)
    ranked.rank(levels, 0)
    counts = [
        torch.bincount(piece.to(torch.int64), minlength=_LEVELS + 1)
        for piece in levels.split(_PIECE)
    ]
    by_level = torch.stack(counts).sum(0).tolist()
    uses_by_level = [
        (2.0 ** ((level - _ZERO_LEVEL) / 2), by_level[level]) for level in range(_LEVELS, 0, -1)
    ]
    return ranked.order, tuple((uses, groups) for uses, groups in uses_by_level if groups > 0)


def _levels(uses: Tensor) -> Tensor:
    """Uses in halves of a power of two; 0 where there are none."""
    # Sums of others that cancel leave a rest, which is no use.
    found = (2 * uses.clamp(min=1e-9).log2()).round_().add_(_ZERO_LEVEL).clamp_(1, _LEVELS)
    return found.mul_(uses > 1e-6).to(torch.int16)
