"""The exceptions of the package: one base, each also the builtin that Python users catch."""

from __future__ import annotations

import os


class GraphZeroError(Exception):
    """Base of every error this package raises on its own account."""


class FormatError(GraphZeroError, ValueError):
    """A file of a store contradicts the format.

    Attributes:
        path: The file.
        field: The header field or part that is wrong.
    """

    def __init__(self, message: str, path: str = "", field: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.field = field

    @classmethod
    def of(
        cls, path: str | os.PathLike[str], field: str, found: object, expected: object
    ) -> FormatError:
        """Builds the message every format error has: file, field, found, expected."""
        name = os.fspath(path)
        return cls(f"{name}: {field}: found {found}, expected {expected}", name, field)


class InputError(GraphZeroError, ValueError):
    """Input of a conversion cannot be taken as it is.

    Args:
        path: The file or object.
        where: Row, column, member or attribute.
        found: The value that is there.
        expected: The value that should be there.
        hint: The nearest fix, a full sentence.
    """

    def __init__(
        self, path: object, where: object, found: object, expected: object, hint: str = ""
    ) -> None:
        self.path = str(path)
        self.where = str(where)
        message = f"{path}: {where}: found {found}, expected {expected}"
        super().__init__(f"{message}. {hint}" if hint else message)


class MemoryBudgetError(GraphZeroError, ValueError):
    """A budget of memory is too small; the message names the least that works."""


class ClosedStoreError(GraphZeroError, ValueError):
    """The store was closed; tensors taken from it before stay valid."""


class ReadOnlyStoreError(GraphZeroError, PermissionError):
    """The store was not opened for writing."""


class MissingAttributeError(GraphZeroError, KeyError):
    """The store has no such attribute, node type, edge type or id."""

    def __str__(self) -> str:
        # KeyError would show the message as a quoted repr.
        return str(self.args[0]) if self.args else ""


class DoesNotFitError(GraphZeroError, MemoryError):
    """All of something would have to be in memory, and is too large; the message says what else."""


class MemoryUseWarning(UserWarning):
    """A large part of a store is about to be in memory; the message says what to do instead.

    Said once for each attribute of an opened store. ``gz.open(strict=True)`` raises
    ``DoesNotFitError`` in its place.
    """


class InputWarning(UserWarning):
    """A conversion did as it was told, and the input looks as if that is not what was meant."""


class UnsupportedError(GraphZeroError, ValueError):
    """The package cannot do this; the message says what to use instead."""


class MissingEdgeIdsError(UnsupportedError):
    """Something needs the ids of edges, and the store was converted without them."""


class StoreInUseError(GraphZeroError, BlockingIOError):
    """Another process has the store open for writing."""


class RankLostError(GraphZeroError, ConnectionError):
    """Rows of another rank's shard cannot be fetched: it ended, or does not answer."""


class StoreReplacedError(GraphZeroError, OSError):
    """The store that was opened for writing is no longer at its path."""
