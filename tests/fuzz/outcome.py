"""Notes of a case, and the errors that count as answers."""

from __future__ import annotations

import os
from collections.abc import Callable

from pyg_graphzero.errors import GraphZeroError

_write: Callable[[str], object] = print


def note(text: str) -> None:
    """Tells what the case does next; shown of a case that goes wrong, also if it dies."""
    _write(text)


def notes_to(write: Callable[[str], object]) -> None:
    """Where notes go."""
    global _write
    _write = write


def is_documented(error: BaseException, *where: str | os.PathLike[str]) -> bool:
    """Whether an error is one that users are told of: the package's, or the system's of a file.

    Args:
        error: Error that was raised.
        *where: Directories; an ``OSError`` has to name a file in one of them.
    """
    if isinstance(error, GraphZeroError):
        return bool(str(error))
    text = str(error)
    return isinstance(error, OSError) and any(os.fspath(directory) in text for directory in where)
