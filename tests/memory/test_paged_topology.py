"""Loaders whose sampler reads its neighbours from a file, against the same ones over a map."""

from __future__ import annotations

import pickle

import pytest
import torch
from loader_kinds import LOADERS, graphs_of_loaders
from read_neighbours import in_pages
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
    for num_workers, share in ((0, 0.5), (2, 0.0), (2, 1.0)):
        ahead = {"prefetch_factor": 4} if num_workers else {}
        paged = in_pages(loader(num_workers=num_workers, **ahead), share)
        assert_same(epoch(paged), expected)
        stats = paged.stats()
        assert stats.topology_rows >= stats.topology_hits >= 0
        assert stats.topology_reads > 0
        assert stats.topology_bytes >= stats.topology_useful_bytes > 0
    copy = pickle.loads(pickle.dumps(paged))
    assert_same(epoch(copy), expected)
    assert copy.stats().topology_rows == 0
