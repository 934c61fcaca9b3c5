"""Random loaders: the same batches in memory and on disk, and by the definition what PyG yields.

``python tests/fuzz/run.py loaders 5000:6000`` runs other cases.
"""

from __future__ import annotations

from collections import Counter
from concurrent.futures import ProcessPoolExecutor

import pytest
from differential import HAS_PYG_LIB, WAYS, Graphs, compare_with_disk, compare_with_pyg

from spawned import forked

CASES = 40
PARTS = [0, 1, 2, *(pytest.param(part, marks=pytest.mark.long) for part in (3, 4))]


@pytest.fixture(scope="module")
def graphs(tmp_path_factory):
    return Graphs(tmp_path_factory.mktemp("differential"))


@pytest.fixture(scope="module")
def spawned():
    with ProcessPoolExecutor(1, forked()) as process:
        yield lambda call, *args: process.submit(call, *args).result(timeout=120)


def cases(part):
    return range(part * CASES, (part + 1) * CASES)


@pytest.mark.parametrize("part", PARTS)
def test_memory_and_disk(graphs, spawned, part):
    shown = Counter()
    for seed in cases(part):
        shown.update(compare_with_disk(seed, graphs, spawned))
    assert shown["batches"] > 0.5 * CASES, shown
    assert shown["refused"] < 0.2 * CASES, shown
    kinds = ("plain", "encoded", "paged", "stores", *WAYS)
    assert all(shown[kind] for kind in kinds), shown


@pytest.mark.skipif(not HAS_PYG_LIB, reason="pyg-lib is not installed: stock PyG cannot sample")
@pytest.mark.parametrize("part", PARTS)
def test_memory_and_pyg(graphs, part):
    shown = Counter()
    for seed in cases(part):
        shown.update(compare_with_pyg(seed, graphs))
    assert shown["determined"] + shown["drawn"] > 0.3 * CASES, shown
    assert shown["determined"] > 0.05 * CASES, shown
