"""Damaged stores: whatever is done with one, it is refused, or what comes out is right."""

from __future__ import annotations

import random
import re
import shutil
from pathlib import Path
from typing import Any

import torch
from bases import BASES, HETEROGENEOUS, make_all
from damage import GUIDES, Damage, Vandal
from operations import LOADING, OPERATIONS, SPARSE, Found, Subject
from outcome import is_documented, note
from torch import Tensor

VARIANTS = 6
_shared = Path()
_expected: dict[str, Found] = {}


def setup(directory: Path) -> None:
    """Makes the good stores."""
    global _shared
    _shared = directory
    torch.set_num_threads(2)
    make_all(directory)


def case(seed: int, directory: Path) -> str | None:
    rng = random.Random(f"stores {seed}")
    base = rng.choice(list(BASES))
    operation = rng.choices(list(OPERATIONS), list(OPERATIONS.values()))[0]
    variant = rng.randrange(VARIANTS)
    is_paged, num_workers = rng.random() < 0.5, rng.choice([0, 0, 2])
    if base == "wide":  # where every node is counted, it takes 16 GB
        operation, is_paged = rng.choice(SPARSE), False
    name = operation.__name__
    note(f"{base}, {name} {variant}, paged: {is_paged}, workers: {num_workers}")
    expected = expect(base, operation, variant, directory)
    root = directory / "a"
    shutil.copytree(_shared / base, root)
    done = Vandal(root, rng)()

    def late() -> None:
        for do in done.late:
            do()

    is_hetero = base in HETEROGENEOUS
    subject = Subject(root / "store", variant, is_hetero, late, is_paged, num_workers)
    guides = stems_of(done) & {"train_idx", "train_mask"}
    subject.knows_nodes = not (guides or done.is_sealed)
    try:
        found = operation(subject)
    except Exception as error:
        if not (is_documented(error, directory) or is_answer(error, done)):
            raise
        note(f"{type(error).__name__}: {error}")
        if not done.touched:
            raise AssertionError("refused though nothing is wrong") from error
        return type(error).__name__
    assert not done.refused, "opened though a header, a size or a checksum is wrong"
    if name == "verify":
        assert not (found["is good"] and done.is_found), "damage that verify does not see"
        return None
    compare(found, expected, done)
    if operation in LOADING and done.touched and not done.late and base != "wide":
        again(operation, subject, found, directory)
    return None


def again(operation: Any, before: Subject, found: Found, directory: Path) -> None:
    """Reads a damaged store from disk if it was mapped before, and the other way round."""
    subject = Subject(before.path, before.variant, before.is_hetero, is_paged=not before.is_paged)
    subject.knows_nodes = before.knows_nodes
    try:
        other = operation(subject)
    except Exception as error:
        if not (is_documented(error, directory) or isinstance(error, IndexError)):
            raise
        return  # one reads more of a file than the other
    assert found.keys() == other.keys(), f"{set(found) ^ set(other)}"
    for key, value in found.items():
        assert same(value, other[key]), f"{key}: paged and mapped differ"


def expect(base: str, operation: Any, variant: int, directory: Path) -> Found:
    """An operation's result on a good store, in memory and one by one; worked out once."""
    name = f"{base}-{operation.__name__}-{variant}"
    if name not in _expected:
        file = _shared / f"{name}.pt"
        if not file.exists():
            root = directory / "good"
            shutil.copytree(_shared / base, root)
            found = operation(Subject(root / "store", variant, base in HETEROGENEOUS))
            torch.save(found, directory / file.name)
            (directory / file.name).rename(file)
            shutil.rmtree(root)
        _expected[name] = torch.load(file, weights_only=False)
    return _expected[name]


def is_answer(error: Exception, done: Damage) -> bool:
    """Whether an error that has no class of ours is one that this damage may lead to.

    A store that was changed and sealed is another store, which may lack what is asked of it; nodes
    of a damaged set are an argument that is wrong.
    """
    text = str(error)
    stems = stems_of(done)
    if isinstance(error, AttributeError):
        return done.is_sealed and "no such attribute" in text
    # A weight that is none is told by its edge, times that are none by their dtype.
    if isinstance(error, ValueError | TypeError):
        return bool(done.is_sealed or stems & {"weight", "time"}) and "found" in text
    is_argument = bool(stems & {"train_idx", "train_mask"})
    return isinstance(error, IndexError) and is_argument and "found" in text


def stems_of(done: Damage) -> set[str]:
    """Stems of the files that were touched, without the numbers that edits add."""
    return {re.sub(r"-\d+$", "", Path(name).stem) for name in done.touched}


def compare(found: Found, expected: Found, done: Damage) -> None:
    """Results are those of the good store wherever nothing that they come from was damaged."""
    stems = stems_of(done)
    if "store" in stems or stems & GUIDES:
        return
    assert found.keys() == expected.keys(), f"{set(found) ^ set(expected)}"
    for key, value in found.items():
        if key.rsplit("/", 1)[-1] in stems or "h2" in key or (key == "features" and "x" in stems):
            continue
        assert same(value, expected[key]), f"{key}: silently another value"


def same(a: Any, b: Any) -> bool:
    if isinstance(a, Tensor):
        if not isinstance(b, Tensor) or a.shape != b.shape or a.dtype != b.dtype:
            return False
        return torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    return bool(a == b) or a is b
