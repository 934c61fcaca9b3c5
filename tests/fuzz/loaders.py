"""Random loaders: the same batches in memory and on disk; see ``tests/support/differential.py``."""

from __future__ import annotations

import logging
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "support"))

from differential import HAS_PYG_LIB, Graphs, compare_with_disk, compare_with_pyg

_graphs: Graphs | None = None


def setup(directory: Path) -> None:
    """Makes the graphs."""
    global _graphs
    logging.disable(logging.WARNING)  # that tiny stores do not fit in memory
    directory.mkdir(exist_ok=True)
    _graphs = Graphs(directory)


def case(seed: int, directory: Path) -> str | None:
    assert _graphs is not None
    compare_with_disk(seed, _graphs)
    if HAS_PYG_LIB:
        compare_with_pyg(seed, _graphs)
    return None
