"""Fixtures: what does not fit in a budget, and what has its rows copied."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory import own_order, pager, planner
from pyg_graphzero.util.disk import DiskSpeed


@pytest.fixture(scope="module")
def wide(built_once: Callable[..., Path]) -> Path:
    """A store whose neighbours alone, 96 MB, are more than a budget of 60 MB leaves."""

    def build(path: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        dst = torch.arange(30_000).repeat_interleave(800)
        src = (torch.rand(len(dst), generator=generator) ** 3 * 30_000).long()
        x = torch.randn(30_000, 16, generator=generator)
        gz.convert(Data(x=x, edge_index=torch.stack([src, dst])), path)

    return built_once("wide", build)


@pytest.fixture
def eager(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Rows are put in order however little is gained, and nothing is kept for other tests."""
    monkeypatch.setattr(own_order, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(own_order, "WORTH", float("inf"))
    # The choice depends on the disk: on some, fewer bytes are not what is fastest.
    disk = DiskSpeed("a disk", 75_000, 1.3e9, depth=128, direct=True, file_bytes=1 << 30)
    monkeypatch.setattr(pager, "probe", lambda path: disk)
    # Or a busy machine tries fewer plans, and ranks by fewer batches.
    monkeypatch.setattr(planner, "SECONDS", float("inf"))
    monkeypatch.setattr(own_order, "_RANK_SHARE", float("inf"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def skewed(built_once: Callable[..., Path]) -> Path:
    return built_once("skewed", lambda path: gz.convert(power_law(60_000, 600_000, 256), path))


@pytest.fixture
def store(skewed: Path, tmp_path: Path) -> Path:
    """A store of one's own."""
    return Path(shutil.copytree(skewed, tmp_path / "store"))
