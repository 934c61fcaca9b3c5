"""Fixtures: a store to damage."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from store_files import make_store


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes."""
    return make_store(tmp_path_factory.mktemp("pristine") / "store")


@pytest.fixture
def store(pristine: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(pristine, tmp_path / "store"))
