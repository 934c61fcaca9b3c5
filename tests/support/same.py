"""Batches that are to be equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch


def assert_same(found: Sequence[Any], expected: Sequence[Any]) -> None:
    """Asserts equal numbers of batches, with equal members in equal order, bit by bit."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        for mine, theirs in zip(a.stores, b.stores, strict=True):
            assert list(mine.keys()) == list(theirs.keys())
            for key, value in mine.items():
                if isinstance(value, torch.Tensor):
                    assert torch.equal(value, theirs[key]), key
                else:
                    assert value == theirs[key], key
