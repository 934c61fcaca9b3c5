"""A budget of memory while it is divided among its uses."""

from __future__ import annotations

import sys
from math import ceil

from pyg_graphzero.errors import MemoryBudgetError


class Budget:
    """A budget from which parts are taken. The share of each part is in :mod:`.costs`.

    Args:
        memory: The budget, in bytes.
        taken: Bytes that the process holds already.

    Attributes:
        left: Bytes that are not taken yet; below 0 if there was too little.

    Example:
        >>> budget = Budget(1000, taken=200)
        >>> budget.spend(100), budget.take(0.5, each=30, most=20), budget.left
        (100, 11, 370)
    """

    def __init__(self, memory: int, taken: int) -> None:
        self.memory = memory
        self.taken = taken
        self.left = memory - taken

    def spend(self, num_bytes: int) -> int:
        """Takes ``num_bytes``, whether they are there or not, and returns them."""
        self.left -= num_bytes
        return num_bytes

    def take(
        self,
        share: float,
        each: int = 1,
        least: int = 0,
        most: int = sys.maxsize,
        of: int | None = None,
    ) -> int:
        """Takes room for things of ``each`` bytes, and returns their number.

        Args:
            share: Share of ``of`` that the things may take together.
            each: Bytes of one thing.
            least: Their lowest number, whether there is room or not.
            most: Their highest number.
            of: Bytes to take the share of; None: those that are left.
        """
        count = how_many(self.left if of is None else of, share, each, least, most)
        self.spend(count * each)
        return count

    def check(self, needed: int, what: str = "", why: str = "", sharers: int = 1) -> None:
        """Raises an error if fewer bytes are left than needed.

        Args:
            needed: Bytes.
            what: Purpose of the bytes for the message, as in " to add up neighbours".
            why: Reason for the message why more are needed than one may expect.
            sharers: Processes that have a budget of this size each.

        Raises:
            MemoryBudgetError: Fewer are left; names the budget that would do.
        """
        if self.left >= needed:
            return
        least = self.memory - self.left + needed
        whose = "" if sharers == 1 else f" for each of {sharers} processes"
        raise MemoryBudgetError(
            f"memory: found {self.memory // 10**6:,} MB{whose}, expected {ceil(least / 1e6):,} MB "
            f"or more{what}: {self.taken / 1e6:,.0f} MB are taken already{why}"
        )


def how_many(
    room: int, share: float, each: int = 1, least: int = 0, most: int = sys.maxsize
) -> int:
    """How many things of ``each`` bytes a share of some room is enough for, within bounds."""
    return max(least, min(most, int(share * max(0, room)) // max(1, each)))
