"""Fixtures: stores that do not fit in a budget, and loaders that have copies made."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.bench.synthetic import power_law
from pyg_graphzero.memory import costs, keeper, making
from pyg_graphzero.util.disk import DiskSpeed


@pytest.fixture(scope="module")
def wide(built_once: Callable[..., Path]) -> Path:
    """A store whose neighbours alone, 96 MB, are more than a budget of 60 MB leaves."""

    def build(path: Path) -> None:
        generator = torch.Generator().manual_seed(0)
        dst = torch.arange(30_000).repeat_interleave(800)
        src = (torch.rand(len(dst), generator=generator) ** 3 * 30_000).long()
        x = torch.randn(30_000, 256, generator=generator)
        gz.convert(Data(x=x, edge_index=torch.stack([src, dst])), path)

    return built_once("wide", build)


@pytest.fixture
def exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """No clock and no disk has a say in what is decided."""
    disk = DiskSpeed("a disk", 75_000, 1.3e9, depth=128, direct=True, file_bytes=1 << 30)
    monkeypatch.setattr(keeper, "probe", lambda path: disk)
    monkeypatch.setattr(keeper, "rank_seconds", lambda epoch: math.inf)


@pytest.fixture
def eager(exact: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Copies are made however little is gained, and nothing is kept for other tests."""
    monkeypatch.setattr(making, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(making, "WORTH", 0.0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def neighbours_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Labels are held, and topologies are not, not even while a copy is made."""
    monkeypatch.setattr(costs, "HELD_SHARE", 0.04)
    monkeypatch.setattr(costs, "HELD_RANKED", 0.04)
    monkeypatch.setattr(keeper, "making_bytes", lambda graph, lists: 1 << 40)


@pytest.fixture
def info(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    """The log, with the reasons why no copy is made."""
    caplog.set_level("INFO", "pyg_graphzero")
    return caplog


@pytest.fixture(scope="module")
def skewed(built_once: Callable[..., Path]) -> Path:
    return built_once("skewed", lambda path: gz.convert(power_law(60_000, 600_000, 256), path))


@pytest.fixture
def store(skewed: Path, tmp_path: Path) -> Path:
    """A store of one's own."""
    return Path(shutil.copytree(skewed, tmp_path / "store"))
