"""Topologies that this process has packed in memory of its own, in place of the files' maps."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from pyg_graphzero import _core
from pyg_graphzero.memory.files import bounds_of
from pyg_graphzero.memory.plan import FileSize
from pyg_graphzero.sampling.graph import SampledGraph, Unmapped
from pyg_graphzero.store.schema import EdgeType
from pyg_graphzero.util.system import drop_pages


class PackedTopologies:
    """Packed topologies of a store, each made when it is first asked for.

    Attributes:
        made: Bounds and neighbours by edge type.
    """

    def __init__(self) -> None:
        self.made: dict[EdgeType | None, Unmapped] = {}

    def there(self, graph: SampledGraph) -> dict[EdgeType | None, Unmapped]:
        """Packed topologies of a graph that are in memory now."""
        return {name: self.made[name] for name in graph.edge_types if name in self.made}

    def hold(
        self, graph: SampledGraph, files: Sequence[FileSize], held: Collection[str]
    ) -> dict[EdgeType | None, Unmapped]:
        """Packs topologies of a graph that are held and take less so; gives up its others.

        Args:
            graph: The graph.
            files: Files that loaders read from.
            held: Names of the files among them that are in memory whole.

        Raises:
            FormatError: A topology is damaged.
        """
        wanted = {file.name for file in files if file.is_packed and file.name in held}
        found: dict[EdgeType | None, Unmapped] = {}
        for i, name in enumerate(graph.edge_types):
            if not graph.on_disk(name):
                continue
            before = self.made.pop(name, Unmapped())
            assert graph.contents is not None
            topology = graph.contents.topology(name)
            bounds = packed = None
            if bounds_of(i) in wanted:
                bounds = before.bounds or _core.PackedBounds(topology)
            if graph.contents.edge_type(name).topology in wanted:
                packed = before.packed or _core.PackedSources(topology)
            if bounds is None and packed is None:
                continue
            found[name] = Unmapped(bounds=bounds, packed=packed)
            if found[name] != before:
                topology.forget_pages()
                to = topology.indices_offset if packed is None else 0
                drop_pages(Path(topology.path), 0, to)
        self.made |= found
        return found
