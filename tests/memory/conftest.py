"""Fixtures: what does not fit in a budget."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch_geometric.data import Data

import pyg_graphzero as gz


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
