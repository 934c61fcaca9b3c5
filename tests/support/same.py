"""Batches that are to be equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from differential import difference


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Asserts equal numbers of batches, with equal members in equal order, bit by bit."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        said = difference(a, b)
        assert not said, said
