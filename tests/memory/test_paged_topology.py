"""Loaders whose sampler reads its neighbours from a file, against the same ones over a map."""

from __future__ import annotations

import pickle

import pytest
import torch
from loader_kinds import LOADERS, graphs_of_loaders
from paging import paged
from same import assert_same

import pyg_graphzero as gz


def epoch(loader):
    torch.manual_seed(3)
    return list(loader)


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    folder = tmp_path_factory.mktemp("paged")
    for number, data in enumerate(graphs_of_loaders()):
        gz.convert(data, folder / str(number), both_directions=True, progress=False)
    return folder / "0", folder / "1"


@pytest.mark.parametrize("kind", LOADERS)
def test_batches_are_the_same_wherever_neighbours_are(paths, kind):
    """In memory, mapped, read, and mapped by a pickled loader again."""

    def loader(**arguments):
        return LOADERS[kind](*(gz.open(path).data() for path in paths), batch_size=30, **arguments)

    mapped = loader()
    expected = epoch(mapped)
    assert len(expected) > 1
    assert mapped.stats().topology_rows == 0
    if kind not in ("saint edges", "saint walks"):  # which draw by places of edges by source
        assert_same(epoch(LOADERS[kind](*graphs_of_loaders(), batch_size=30)), expected)
    for ahead in ({}, {"num_workers": 2, "prefetch_factor": 4}):
        read = loader(**ahead)
        with paged():
            assert_same(epoch(read), expected)
        stats = read.stats()
        assert stats.topology_rows >= stats.topology_hits >= 0
        assert stats.topology_reads > 0
        assert stats.topology_bytes >= stats.topology_useful_bytes > 0
    copy = pickle.loads(pickle.dumps(read))
    assert_same(epoch(copy), expected)
    assert copy.stats().topology_rows == 0
