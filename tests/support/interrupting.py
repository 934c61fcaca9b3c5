"""Exceptions that strike a consumer from outside, at chosen moments or at random ones."""

from __future__ import annotations

import os
import random
import signal
import sys
import threading
from contextlib import contextmanager

import pyg_graphzero

PACKAGE = os.path.dirname(pyg_graphzero.__file__)


class Struck(BaseException):
    """Stands for ``KeyboardInterrupt``."""


class Alarm(Exception):
    """An ``Exception``, as many signal handlers raise."""


class At:
    """Strikes once, at a moment of those at which Python looks for signals.

    Python looks for signals where one of its functions begins, and where a function of C has
    returned and its result is not kept yet.

    Args:
        moment: Number of the moment.
        function: Moments are counted from the beginning of a function of this name.
        folder: Moments in files below it count.
    """

    def __init__(self, moment: int, function: str | None = None, folder: str = PACKAGE) -> None:
        self.left = moment
        self._folder = folder
        self._function = function

    def __enter__(self) -> At:
        sys.setprofile(self._see)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(None)

    def _see(self, frame, event, arg) -> None:
        inside = frame.f_code.co_filename.startswith(self._folder)
        if event not in ("call", "c_return") or not inside:
            return
        if self._function not in (None, frame.f_code.co_name):
            return
        self._function = None
        self.left -= 1
        if self.left < 0:
            sys.setprofile(None)
            raise Struck


@contextmanager
def on_alarm(handler):
    """Calls ``handler`` when an alarm rings; none does afterwards."""
    before = signal.signal(signal.SIGALRM, handler)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def struck_everywhere(make, first: int = 0, stride: int = 1):
    """An epoch of which each call but the first is struck once, each at another moment.

    Returns:
        The batches, and how many calls were struck.
    """
    iterator = iter(make())
    found, strikes, moment = [next(iterator)], 0, first
    while True:
        try:
            with At(moment):
                for batch in iterator:
                    found.append(batch)
                    break
                else:
                    return found, strikes
        except Struck:
            strikes += 1
        moment += stride


def struck_by_signals(make, seed: int, longest: float = 0.003):
    """An epoch under signals at random moments; the batches, and how many signals struck."""
    chance = random.Random(seed)
    iterator = iter(make())
    found, strikes = [], 0

    def handler(number, frame):
        raise chance.choice((Struck, Alarm, KeyboardInterrupt))

    with on_alarm(handler):
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-5, longest))
                for batch in iterator:
                    found.append(batch)
                signal.setitimer(signal.ITIMER_REAL, 0)
                return found, strikes
            except (Struck, Alarm, KeyboardInterrupt):
                strikes += 1


def taken_by_threads(iterator) -> list:
    """Batches of an iterator that four threads share, in any order."""
    found: list = []
    threads = [threading.Thread(target=lambda: found.extend(iterator)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def struck_often(make, check, seed: int, longest: float = 0.003) -> None:
    """Epochs under signals until four have struck, however quick an epoch is; each is checked."""
    strikes = 0
    for each in range(seed, seed + 40):
        found, struck = struck_by_signals(make, each, longest)
        check(found)
        strikes += struck
        if strikes > 3:
            return
    raise AssertionError(f"{strikes} signals struck in 40 epochs")
