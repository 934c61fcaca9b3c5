"""What a run of ``papers100m.py`` takes on the disk, phase by phase, before it begins."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from papers100m_graph import NUM_EDGES, NUM_FEATURES, NUM_NODES

from pyg_graphzero.util.sizes import format_bytes

ITEM_BYTES = {"float32": 4, "float16": 2, "int8": 1}
# Of a node: its label, three masks; of an optimized store also its row, and the node of its row.
_NODE_BYTES, _ORDER_BYTES = 8 + 3, 4 + 4
# An edge in a store; while edges are sorted its destination and number besides, and its number
# again on its way into a file that then turns out to be superfluous.
_EDGE_BYTES, _SORTED_BYTES = 4, 12 + 4
# Text takes about so much for a feature and an edge.
_TEXT_FEATURE, _TEXT_EDGE = 12, 18


class DiskError(ValueError):
    """A run would take more disk than there is, or than it may take."""


def needs(
    phases: Sequence[str],
    scale: float,
    features: str,
    hidden: int,
    layout: str,
    graphzero_scale: float,
) -> dict[str, int]:
    """Bytes that lie on the disk at most in each phase.

    Args:
        phases: In their order.
        scale: Of the graph.
        features: How they are stored.
        hidden: Width of the activations that inference keeps, in float16.
        layout: ``stream``; ``ogb``, files that are made first; or ``data``, which are there.
        graphzero_scale: Of the graph that goes through text.
    """
    nodes, edges = scale * NUM_NODES, scale * NUM_EDGES
    rows = nodes * NUM_FEATURES * ITEM_BYTES[features]
    store = rows + edges * _EDGE_BYTES + nodes * _NODE_BYTES
    raw = nodes * (4 * NUM_FEATURES + 12) + edges * 16 if layout == "ogb" else 0
    sorting = edges * (_EDGE_BYTES + _SORTED_BYTES)
    share = graphzero_scale
    text = share * (NUM_NODES * NUM_FEATURES * _TEXT_FEATURE + NUM_EDGES * _TEXT_EDGE)
    peer = text + share * (NUM_NODES * NUM_FEATURES * 4 + NUM_EDGES * 8)
    found: dict[str, int] = {}
    for phase in phases:
        # Edges that came in order of their destination have numbers of their own after that.
        optimized = store + edges * _EDGE_BYTES + nodes * _ORDER_BYTES
        # The reader of files writes rows first, the stream edges.
        most = {
            "convert": raw + (max(sorting, store) if layout == "stream" else rows + sorting),
            # The old store, the new one, and edges that are being sorted or rows on their way.
            "optimize": store + optimized + max(edges * _SORTED_BYTES, rows),
            "train": store,
            # Those of the last layer and of the one that is being made.
            "infer": store + 2 * nodes * hidden * 2,
            "stock": store + edges * 8,
            "graphzero": store + peer,
        }
        found[phase] = int(most[phase])
        if phase == "optimize":
            store = optimized
    return found


def check(found: dict[str, int], folder: Path, most: int) -> None:
    """Refuses a run that does not fit.

    Raises:
        DiskError: Says what each phase takes, and what would take less.
    """
    free = shutil.disk_usage(folder).free
    phase = max(found, key=found.__getitem__)
    if found[phase] <= min(free, most):
        return
    raise DiskError(
        f"disk: found {format_bytes(free)} free and --max-disk {format_bytes(most)}, expected "
        f"{format_bytes(found[phase])} for {phase!r} (at most, each: {listed(found)}). "
        "--features int8 takes least and a smaller --scale less; optimize writes the store twice, "
        "infer two layers of --hidden: leave a phase out of --phases, or raise --max-disk"
    )


def listed(found: dict[str, int]) -> str:
    """What each phase takes, for a reader."""
    return ", ".join(f"{name} {format_bytes(size)}" for name, size in found.items())
