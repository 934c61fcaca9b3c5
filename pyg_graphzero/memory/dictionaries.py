"""Columns of few different values (labels, masks) that memory holds in a bit to a byte a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.store.columns import row_table, view_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.system import drop_pages

_FIRST_ROWS = 1 << 18


class Dictionaries:
    """Dictionaries of a store's columns, made when they are first asked for and kept.

    Attributes:
        made: Dictionary by file; None where a column has too many values.
    """

    def __init__(self) -> None:
        self.made: dict[str, _core.Dictionary | None] = {}

    def sizes(self, contents: StoreContents, files: Sequence[FileSize]) -> list[FileSize]:
        """The store's files, with the sizes of their dictionaries where they have one."""
        return [self._size(contents, file) for file in files]

    def held(self, held: Mapping[str, int]) -> dict[str, _core.Dictionary]:
        """Dictionaries of the files that are in memory whole."""
        return {name: made for name in held if (made := self.made.get(name)) is not None}

    def _size(self, contents: StoreContents, file: FileSize) -> FileSize:
        is_rows = file.kind in ("node", "edge") and file.row_bytes <= costs.DICTIONARY_ROW
        if not is_rows or file.num_bytes < costs.LEAST_DICTIONARY:
            return file
        if file.name not in self.made:
            made = _read(contents.column(file.name))
            is_less = made is not None and made.num_bytes < file.held_bytes
            self.made[file.name] = made if is_less else None
        found = self.made[file.name]
        return file if found is None else replace(file, packed_bytes=found.num_bytes)


def _read(column: _core.Column) -> _core.Dictionary | None:
    """Reads the column, unless its beginning has too many values already."""
    if column.encoding is not None:
        return None
    view = view_column(column)
    begins = _dictionary(view[:_FIRST_ROWS])
    if begins is None or len(view) <= _FIRST_ROWS:
        return begins
    prefetch_all([Path(column.path)]).join()
    made = _dictionary(view)
    del view  # and with it the map, or the pages would stay
    drop_pages(Path(column.path))
    return made


def _dictionary(view: Tensor) -> _core.Dictionary | None:
    rows = row_table(view)
    return None if rows is None else _core.Dictionary.of(rows)
