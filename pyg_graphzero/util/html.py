"""Results as notebooks show them: the lines that are printed, as rows of a table."""

from __future__ import annotations

import re
from html import escape


class Shown:
    """A result whose printed lines are ``name: value``, indented below what they belong to."""

    def _repr_html_(self) -> str:
        return outline(str(self))


def outline(text: str) -> str:
    """Lines as a table: the name, up to a colon or a gap of two blanks, and behind it the value.

    Example:
        >>> outline("a: <").count("<td"), "&lt;" in outline("a: <")
        (2, True)
    """
    return f"<table>{''.join(map(_row, text.splitlines()))}</table>"


def _row(line: str) -> str:
    name, *value = re.split(r": | {2,}", line.strip(), maxsplit=1)
    indent = (len(line) - len(line.lstrip())) / 2
    left = f'colspan="{2 - len(value)}" style="text-align:left;padding-left:{indent:g}em"'
    right = "".join(f'<td style="text-align:left">{escape(each.strip())}</td>' for each in value)
    return f"<tr><td {left}>{escape(name)}</td>{right}</tr>"
