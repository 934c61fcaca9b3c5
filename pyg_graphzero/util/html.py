"""Objects as notebooks show them: paragraphs and tables, their texts escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def paragraph(text: str) -> str:
    """Text as it is, its line breaks and blanks kept.

    Example:
        >>> paragraph("a < b")
        '<pre>a &lt; b</pre>'
    """
    return f"<pre>{escape(text)}</pre>"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of texts.

    Example:
        >>> table(["a"], [["<"]])
        '<table><tr><th>a</th></tr><tr><td>&lt;</td></tr></table>'
    """
    return f"<table>{_row('th', head)}{''.join(_row('td', row) for row in rows)}</table>"


def _row(tag: str, cells: Sequence[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"
