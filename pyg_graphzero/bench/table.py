"""Tables and numbers as text."""

from __future__ import annotations


def number(value: float) -> str:
    """Three digits that count, or all before the point."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def markdown(title: str, header: list[str], rows: list[list[str]]) -> str:
    """Markdown, padded for terminals; the first two columns are names, the rest numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]

    def line(cells: list[str]) -> str:
        padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
        padded[:2] = [cell.ljust(width) for cell, width in zip(cells[:2], widths, strict=False)]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * width if i < 2 else "-" * (width - 1) + ":" for i, width in enumerate(widths)]
    return "\n".join([f"**{title}**", "", *map(line, [header, rule, *rows])])
