"""Docstrings as the API page needs them.

The sources write PyG's dialect: ``Example:`` and Sphinx roles. mkdocstrings knows ``Examples:``,
and would show a role as it is typed.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^Example:$", re.MULTILINE)
_ROLE = re.compile(r":\w+:`~?([\w.]+)`")


class Dialect(griffe.Extension):
    """Rewrites every docstring when it is read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Called by griffe for every module, class, function and attribute."""
        if obj.docstring is not None:
            text = _EXAMPLE.sub("Examples:", obj.docstring.value)
            obj.docstring.value = _ROLE.sub(r"``\1``", text)
