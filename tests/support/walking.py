"""Random walks by the definition, and over neighbours that are read from a file."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats

from pyg_graphzero._core import ColumnFile, DiskGather, PagedRows
from pyg_graphzero.sampler import RandomWalker


class PagedWalker(RandomWalker):
    """Nothing of the neighbours stays in memory, little is read at once."""

    def page(self, contents, topologies):
        reader = DiskGather(buffer_bytes=1 << 16)
        files = {t.path: (t.num_edges, ColumnFile.of_indices(t)) for t in topologies}
        rows = {path: PagedRows(*file, reader, group_bits=4) for path, file in files.items()}
        return rows, 20_000


def probabilities(
    data, at, before=None, p=1.0, q=1.0, weights=None, reverse=False, valid=slice(None)
):
    """Probability of each node to be next, by the definition, over the ``valid`` edges."""
    row, col = (data.edge_index.flip(0) if reverse else data.edge_index)[:, valid]
    weights = torch.ones(data.num_edges) if weights is None else weights
    out = torch.zeros(data.num_nodes, dtype=torch.float64)
    near = set() if before is None else set(col[row == before].tolist())
    for x, w in zip(col[row == at].tolist(), weights[valid][row == at].tolist(), strict=True):
        alpha = 1.0 if before is None else 1 / p if x == before else 1.0 if x in near else 1 / q
        out[x] += w * alpha
    return (out / out.sum()).numpy()


def check_counts(nodes, expected):
    """Nodes are next as often as expected, by χ²."""
    counts = np.bincount(nodes, minlength=len(expected))
    assert (counts[expected == 0] == 0).all()
    there = expected > 0
    assert there.sum() > 1
    assert stats.chisquare(counts[there], expected[there] * counts.sum()).pvalue > 1e-4
