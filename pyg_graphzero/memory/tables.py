"""Tables in memory that stand for files of a store: packed topologies, and dictionaries."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.memory import costs
from pyg_graphzero.memory.needs import Kind, Need, Needs, bounds_of
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.sampling.graph import SampledGraph, Unmapped
from pyg_graphzero.store.columns import row_table, view_column
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.system import drop_pages

_FIRST_ROWS = 1 << 18


class Tables:
    """Tables of a store, each made when it is first asked for and kept for the next plan.

    Attributes:
        packed: Bounds and neighbours by edge type.
        dictionaries: Columns of few different values (labels, masks) in a bit to a byte a row, by
            file; None where a column has too many.
    """

    def __init__(self) -> None:
        self.packed: dict[EdgeType | None, Unmapped] = {}
        self.dictionaries: dict[str, _core.Dictionary | None] = {}

    def sizes(self, contents: StoreContents, needs: Needs) -> Needs:
        """The needs with the sizes of dictionaries, where columns have one."""
        return replace(needs, files=tuple(self._size(contents, file) for file in needs.files))

    @property
    def dictionary_bytes(self) -> int:
        """Bytes of all dictionaries."""
        return sum(made.num_bytes for made in self.dictionaries.values() if made is not None)

    def held(self, held: Collection[str]) -> dict[str, _core.Dictionary]:
        """Dictionaries of the files that are in memory whole."""
        return {name: made for name in held if (made := self.dictionaries.get(name)) is not None}

    def pack(
        self, graph: SampledGraph, needs: Needs, held: Collection[str]
    ) -> dict[EdgeType | None, Unmapped]:
        """Packs topologies of a graph that are held and take less so; gives up its others.

        Args:
            graph: The graph.
            needs: The needs of a loader.
            held: Names of the files among them that are in memory whole.

        Raises:
            FormatError: A topology is damaged.
        """
        wanted = {file.name for file in needs.files if file.is_packed and file.name in held}
        found: dict[EdgeType | None, Unmapped] = {}
        for i, name in enumerate(graph.edge_types):
            if not graph.on_disk(name):
                continue
            assert graph.contents is not None
            topology, before = graph.contents.topology(name), self.packed.pop(name, Unmapped())
            bounds = packed = None
            if bounds_of(i) in wanted:
                bounds = before.bounds or _core.PackedBounds(topology)
            if graph.contents.edge_type(name).topology in wanted:
                packed = before.packed or _core.PackedSources(topology)
            if bounds or packed:
                found[name] = Unmapped(bounds=bounds, packed=packed)
            if found.get(name, before) != before:
                topology.forget_pages()
                to = topology.indices_offset if packed is None else 0
                drop_pages(Path(topology.path), 0, to)
        self.packed |= found
        return found

    def _size(self, contents: StoreContents, file: Need) -> Need:
        is_rows = file.kind in (Kind.ROWS, Kind.EDGES) and file.row_bytes <= costs.DICTIONARY_ROW
        if not is_rows or file.num_bytes < costs.LEAST_DICTIONARY:
            return file
        if file.name not in self.dictionaries:
            made = _read(contents.column(file.name))
            is_less = made is not None and made.num_bytes < file.held_bytes
            self.dictionaries[file.name] = made if is_less else None
        found = self.dictionaries[file.name]
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
