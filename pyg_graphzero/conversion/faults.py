"""What to do about a row that is not as it should be: stop there, or leave it out and say so."""

from __future__ import annotations

from collections.abc import Callable

from pyg_graphzero.errors import InputError

ON_ERROR = ("raise", "skip")
SHOWN = 10

# Naming the line of a fault means counting those before it, so an error is made when it is shown.
MakeError = Callable[[], InputError]


class Faults:
    """The faulty rows of one conversion.

    Args:
        on_error: ``"raise"`` the first one, or ``"skip"`` and count them.

    Attributes:
        count: Rows left out.
        first: What was wrong with the first ten of them.
    """

    def __init__(self, on_error: str = "raise") -> None:
        if on_error not in ON_ERROR:
            raise ValueError(f"on_error={on_error!r}: expected one of {', '.join(ON_ERROR)}")
        self.skip = on_error == "skip"
        self.count = 0
        self.first: list[str] = []

    def add(self, *errors: MakeError, count: int = 1) -> None:
        """Rows that are left out.

        Args:
            errors: Make the errors of the first :data:`SHOWN` of them, or of all.
            count: How many rows there are.

        Raises:
            InputError: The first one, unless rows are to be left out.
        """
        if count and not self.skip:
            raise errors[0]()
        self.count += count
        self.first += [str(make()) for make in errors[: SHOWN - len(self.first)]]
