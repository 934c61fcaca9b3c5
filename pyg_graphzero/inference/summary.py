"""Seconds, bytes and memory of a run of inference."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyg_graphzero.util.arguments import of_type
from pyg_graphzero.util.html import Shown


@dataclass
class LayerSummary:
    """One layer over the nodes of one type.

    Attributes:
        layer: Its number, from 1; 0 for rows that are computed before the first convolution.
        node_type: The type of those rows; None in a homogeneous store.
        name: The column they went to, or several, by commas.
        num_rows: All rows of the type.
        edges: Number of edges that messages went along.
        seconds: Wall time.
        read_bytes: From disk, of rows that the budget does not hold in memory; and of neighbours,
            where a layer needs sums of their rows only.
        written_bytes: To the column.
        peak_memory: The most this process had in memory that is no file's, seen between batches.
        verdict: The largest part of the wall time, ``LoaderStats.verdict``. ``"done before"``: by a
            run that was killed.
    """

    layer: int
    node_type: str | None
    name: str
    num_rows: int
    edges: int = 0
    seconds: float = 0.0
    read_bytes: int = 0
    written_bytes: int = 0
    peak_memory: int = 0
    verdict: str = "done before"

    def __str__(self) -> str:
        kind = "" if self.node_type is None else f" {self.node_type}"
        return (
            f"layer {self.layer}{kind}: {self.num_rows:,} rows, {self.edges:,} edges, "
            f"{self.seconds:.1f} s ({self.verdict}), {_bytes_of(self)}"
        )


@dataclass
class InferenceSummary(Shown):
    """Results of ``gz.inference.layerwise``, and its costs.

    Attributes:
        path: The store.
        names: The published column by node type.
        seconds: Wall time of all of it.
        layers: One for each layer and node type, in the order in which they were computed.

    Example:
        >>> print(InferenceSummary("graph", {None: "out"}, 2.5))
        graph: 'out' in 2.5 s, 0.0 MB read, 0.0 MB written, 0 MB of memory at most
    """

    path: str | Path
    names: dict[str | None, str]
    seconds: float = 0.0
    layers: list[LayerSummary] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The published column, where it has one name."""
        return next(iter(self.names.values()))

    @property
    def read_bytes(self) -> int:
        """Bytes that all layers read."""
        return sum(layer.read_bytes for layer in self.layers)

    @property
    def written_bytes(self) -> int:
        """Bytes that all layers wrote."""
        return sum(layer.written_bytes for layer in self.layers)

    @property
    def peak_memory(self) -> int:
        """The largest of all layers."""
        return max((layer.peak_memory for layer in self.layers), default=0)

    def __str__(self) -> str:
        names = ", ".join(f"{name!r}{of_type(node_type)}" for node_type, name in self.names.items())
        total = f"{self.path}: {names} in {self.seconds:.1f} s, {_bytes_of(self)}"
        return "\n  ".join([total, *map(str, self.layers)])


def _bytes_of(summary: LayerSummary | InferenceSummary) -> str:
    return (
        f"{summary.read_bytes / 1e6:,.1f} MB read, {summary.written_bytes / 1e6:,.1f} MB written, "
        f"{summary.peak_memory / 1e6:,.0f} MB of memory at most"
    )
