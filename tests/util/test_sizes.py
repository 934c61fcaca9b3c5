"""Sizes as callers give them: taken as they are meant, or refused by the argument's name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pyg_graphzero as gz
from graphs import homogeneous
from pyg_graphzero.util.sizes import parse_size

NO_SIZES = [float("nan"), float("inf"), -float("inf"), True, np.True_, 10**400, 2**63, "nan", "9e9"]
NO_SIZES += ["1" + "0" * 400, "", "8 GB more", b"8GB", [1], 1j]
NOT_POSITIVE = [0, -1, 0.5, "0GB", -8e9]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "store"
    gz.convert(homogeneous(30, 60), path, progress=False)
    return path


@pytest.mark.parametrize("value", [*NO_SIZES, *NOT_POSITIVE], ids=lambda value: repr(value)[:12])
def test_a_budget_that_is_no_size(store: Path, value: Any) -> None:
    expected = "a positive size" if value in NOT_POSITIVE else "a size such as 4GB, 512MiB or bytes"
    for name in ("memory", "row_cache"):
        with pytest.raises(ValueError) as error:
            gz.open(store, **{name: value})
        others = "" if name == "memory" else "'auto', 'found', False or "
        assert str(error.value) == f"{name}={value!r}: expected {others}{expected}"
    with pytest.raises(ValueError) as error:
        gz.convert(np.array([[0], [1]]), store.with_name("other"), memory=value)
    assert str(error.value) == f"memory={value!r}: expected {expected}"
    assert not store.with_name("other").exists()


def test_sizes_that_are_taken(store: Path) -> None:
    for value in (8_000_000_000, 8e9, np.int64(8_000_000_000), np.float64(8e9), "8GB", " 8 gb"):
        assert parse_size(value, "memory") == 8_000_000_000
    assert parse_size("1.5GiB", "memory") == 3 << 29
    assert gz.open(store, memory=8e9).contents.memory == 8_000_000_000
