"""Figures of the benchmarks, drawn without a display."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

MISSING = "charts left out: install pyg_graphzero[bench]"


def drawing(folder: Path, prefix: str) -> tuple[Any, Callable[[Any, str], None]] | None:
    """Matplotlib's ``Figure``, and what saves one as a PNG; None without matplotlib."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return None

    def save(figure: Any, name: str) -> None:
        FigureCanvasAgg(figure)
        figure.savefig(folder / f"{prefix}_{name}.png", dpi=90)

    return Figure, save
