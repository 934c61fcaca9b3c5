"""What to do about a row that is not as it should be: stop there, or leave it out and say so."""

from __future__ import annotations

from ..errors import InputError

ON_ERROR = ("raise", "skip")
_SHOWN = 10


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

    def add(self, error: InputError) -> None:
        """A row that is left out.

        Raises:
            InputError: ``error``, unless rows are to be left out.
        """
        if not self.skip:
            raise error
        self.count += 1
        if len(self.first) < _SHOWN:
            self.first.append(str(error))
