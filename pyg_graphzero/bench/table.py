"""Tables and numbers as text."""

from __future__ import annotations

from dataclasses import dataclass


def number(value: float) -> str:
    """Three digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


@dataclass
class Table:
    """A table of strings; the first two columns are names, the rest numbers.

    Attributes:
        title: One line.
        header: Names of the columns.
        rows: A string for each column.
    """

    title: str
    header: list[str]
    rows: list[list[str]]

    def text(self) -> str:
        """Padded, for a terminal."""
        lines = [self.header, *self.rows]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        padded = [
            "  ".join(
                cell.ljust(width) if i < 2 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join([self.title, *padded])

    def markdown(self) -> str:
        """The table in Markdown."""
        rule = ["---" if i < 2 else "--:" for i in range(len(self.header))]
        lines = [f"| {' | '.join(line)} |" for line in [self.header, rule, *self.rows]]
        return "\n".join([f"**{self.title}**", "", *lines])
