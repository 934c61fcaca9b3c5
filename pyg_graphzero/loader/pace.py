"""Whether the next batch had better be prepared while the consumer is busy with this one."""

from __future__ import annotations

from math import inf
from time import perf_counter

# Factor on the estimated time of one thread for a batch, with each batch that several threads made:
# after a slow first try there is another.
_FADE = 0.98


class Pace:
    """Compares a consumer's time for a batch with what one thread takes to make one.

    A consumer that takes longer finds its batch ready. One that does not is served sooner if all
    threads make its batch when it asks. Decides about speed alone.
    """

    def __init__(self) -> None:
        self._delivered: float | None = None
        self._own = 0.0
        self._alone = inf

    def asked(self) -> None:
        """The consumer wants a batch."""
        if self._delivered is not None:
            self._own, self._delivered = perf_counter() - self._delivered, None

    def delivered(self) -> None:
        """The consumer has one."""
        self._delivered = perf_counter()

    def pays(self, seconds: float, threads: int) -> bool:
        """Whether one thread would be done before the consumer asks again.

        Args:
            seconds: Time that the last batch took.
            threads: Number of threads that made it together; 1 where it was prepared.
        """
        most = seconds * threads  # one alone would not take longer
        self._alone = most if threads == 1 else min(self._alone * _FADE, most)
        return self._own > self._alone
