"""Fixtures: small graphs, and the store they make."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from chunks import chunks  # noqa: F401  (a fixture)
from hypothesis import settings

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store

# A busy machine is no failure: what takes too long is for benchmarks to say.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def homo(tmp_path: Path):
    """A random homogeneous graph in memory and the store made of it."""
    data = homogeneous()
    return data, gz.open(write_store(data, tmp_path / "homo"))


@pytest.fixture
def hetero(tmp_path: Path):
    """A random heterogeneous graph in memory and the store made of it."""
    data = heterogeneous()
    return data, gz.open(write_store(data, tmp_path / "hetero"))


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(12345)
