"""Damaged input of every kind that ``convert`` takes.

It ends in a store that holds what a plain reader finds in the same files, or in an error of the
package that names a file; and what was there beside the input is there afterwards.
"""

from __future__ import annotations

import random
import resource
import warnings
from pathlib import Path
from typing import Any

import input_kinds as kinds
import input_layouts
import numpy as np
from input_kinds import Graph, Input, Kind
from mutate import mutate
from outcome import note

import pyg_graphzero as gz
from pyg_graphzero.errors import GraphZeroError, MemoryBudgetError

KINDS: list[Kind] = [kinds.text, kinds.text, kinds.npy, kinds.npz]
KINDS += [kinds.table, kinds.table, kinds.torch_file, input_layouts.layout, input_layouts.layout]
KINDS += [input_layouts.specification]
# A damaged number of nodes may ask for a large store: it is an answer that there is no room.
_LARGEST_FILE = 256 << 20


def setup(directory: Path) -> None:
    """Nothing to share, but a limit: see :data:`_LARGEST_FILE`."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_LARGEST_FILE, resource.RLIM_INFINITY))


def case(seed: int, directory: Path) -> str | None:
    """One input, converted; most often damaged before, sometimes after it was adopted."""
    rng = random.Random(seed)
    kind = rng.choice(KINDS)
    found = kind(rng, directory)
    late = "adopt" in found.options and rng.random() < 0.5
    if not late and rng.random() < 0.95:
        damage(found, rng)
    note(f"{kind.__name__}: {found.source} {found.options}")
    before = {*directory.rglob("*")}
    out = directory / "store"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # NumPy's, of headers that Python 2 wrote
        try:
            gz.convert(found.source, out, **found.options)
            if late:
                damage(found, rng)
            with gz.open(out) as store:
                data = store.data()
                if not late:
                    check(found.read(), store, data)
        except GraphZeroError as error:
            names_place(error, found, directory)
            if not out.exists():
                assert {*directory.rglob("*")} == before
            return type(error).__name__
    return None


def damage(found: Input, rng: random.Random) -> None:
    """Damages one of the files, inside or outside of its compression."""
    path = rng.choice(found.files)
    if path in found.repack and rng.random() < 0.6:
        found.repack[path](rng)
    elif path.exists():
        path.write_bytes(mutate(path.read_bytes(), rng))


def names_place(error: GraphZeroError, found: Input, directory: Path) -> None:
    """An error of the input says which file."""
    if isinstance(error, MemoryBudgetError):  # of a graph as large as the file says it is
        return
    named = any(path.name in str(error) for path in found.files)
    assert named or str(directory) in str(error), f"no file in {error!r}"


def check(expected: Graph, store: gz.Store, data: Any) -> None:
    """The store holds what a plain reader has found."""
    for edge_type, (src, dst, attrs) in expected.edges.items():
        part = data if edge_type is None else data[edge_type]
        ends = (None, None) if edge_type is None else (edge_type[0], edge_type[2])
        rows = part.edge_index.numpy()
        for row, end, ids in zip(rows, ends, (src, dst), strict=True):
            names = store.ids(end)
            shown = names[row] if isinstance(names, np.ndarray) else [names[int(i)] for i in row]
            same(shown, ids, f"ends of {edge_type}")
        for name, value in attrs.items():
            same(part[name].numpy(), value, f"{name} of {edge_type}")
    for node_type, attrs in expected.nodes.items():
        for name, value in attrs.items():
            same((data if node_type is None else data[node_type])[name].numpy(), value, name)


def same(found: Any, expected: Any, name: str) -> None:
    found, expected = np.asarray(found), np.asarray(expected)
    if found.dtype.kind in "biuf" and expected.dtype.kind in "biuf":
        expected = expected.astype(found.dtype)
    if expected.ndim == 2 and found.ndim == 1:
        expected = expected[:, 0]
    equal = found.shape == expected.shape and (found == expected) | (found != found)
    assert np.all(equal), f"{name}: stored\n{found!r}\nread\n{expected!r}"
