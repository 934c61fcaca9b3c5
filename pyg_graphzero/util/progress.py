"""Progress bars for steps that take longer than a couple of seconds: in terminals and notebooks."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tqdm import TqdmWarning
from tqdm import tqdm as plain_bar

_DELAY_SECONDS = 2.0


class Progress:
    """Shows one bar per slow step.

    Args:
        show: ``True`` always (as soon as a step is slow), ``False`` never, ``None`` when standard
            error is a terminal, or this is a notebook.
    """

    def __init__(self, show: bool | None = None) -> None:
        self.enabled = sys.stderr.isatty() or _in_notebook() if show is None else show

    def say(self, line: str) -> None:
        """A line on standard error, where bars are shown."""
        if self.enabled:
            print(line, file=sys.stderr)

    @contextmanager
    def step(self, title: str, total: int | None, unit: str = "B") -> Iterator[Any]:
        """A bar with ``.update(n)``, gone when the step is over.

        Args:
            title: The step's name.
            total: Amount of work, in ``unit``; ``None`` if unknown.
            unit: The unit that is counted: bytes or ``"edges"``.
        """
        tqdm = _kind_of_bar() if self.enabled else plain_bar
        bar = tqdm(
            total=total,
            desc=title,
            unit=unit,
            unit_scale=True,
            delay=_DELAY_SECONDS,
            leave=False,
            file=sys.stderr,
            disable=not self.enabled,
        )
        try:
            yield bar
        finally:
            bar.close()


def _kind_of_bar() -> Any:
    """A bar such as this place has: a widget, or text where there are no widgets."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)  # that there are none
        from tqdm.auto import tqdm
    return tqdm


def _in_notebook() -> bool:
    """Whether a kernel runs this, by the rule of ``tqdm.auto``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return shell is not None and "IPKernelApp" in shell.config
