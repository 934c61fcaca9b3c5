"""Iterating on after an exception from outside: Ctrl-C, or one that a signal handler raises.

Python runs signal handlers between its own instructions. So an exception may strike after a call
has returned and before the result is stored, and the result would be lost. It cannot strike within
one call of a C function, nor between plain stores and the ``return`` behind them. Therefore an item
is taken from an iterator by one C call, ``deque.extend(islice(iterator, 1))``, and removed from the
deque by a plain store.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

Item = TypeVar("Item")
Made = TypeVar("Made")


class Steady(Iterator[Made], Generic[Item, Made]):
    """Makes something of each item; none is lost and none comes twice, whatever strikes.

    An item stays here until its result is returned. Iterating on after an exception gives the
    result that would have come without it.

    Args:
        items: To be taken one by one.
    """

    def __init__(self, items: Iterable[Item]) -> None:
        self._items = iter(items)
        self._held: deque[Item] = deque()

    @abstractmethod
    def _make(self, item: Item) -> Made | None:
        """Makes an item, the same each time it is asked; None passes it over."""

    def _take(self) -> None:
        """Takes the next item, if there is one."""
        self._held.extend(islice(self._items, 1))

    def __next__(self) -> Made:
        while True:
            nothing: deque[Item] = deque()
            if not self._held:
                self._take()
            if not self._held:
                raise StopIteration
            made = self._make(self._held[0])
            self._held = nothing
            if made is not None:
                return made


def is_struck(error: BaseException) -> bool:
    """Whether a signal handler raised an exception, and not the code that it went through.

    An error that is no ``Exception`` (``KeyboardInterrupt``, ``SystemExit``) counts as raised by a
    handler. A handler is recognised by its argument, the frame that it was called from.
    """
    if not isinstance(error, Exception):
        return True
    trace, outer = error.__traceback__, None
    while trace is not None:
        frame = trace.tb_frame
        if outer is not None and any(_has(value, outer) for value in frame.f_locals.values()):
            return True
        trace, outer = trace.tb_next, frame
    return False


def _has(value: Any, frame: Any) -> bool:
    """Whether a local is a frame, or the ``*args`` that it is among."""
    return value is frame or (isinstance(value, tuple) and any(v is frame for v in value))
