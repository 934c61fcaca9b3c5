"""What scripts that measure accuracy share: the score is what it says, and training learns."""

from __future__ import annotations

import argparse

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import real_graphs


class Given:
    """A model whose logits are given."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def eval(self) -> None:
        """As modules have it."""


def scored(logits, y, monkeypatch) -> float:
    monkeypatch.setattr(real_graphs, "forward", lambda model, batch: model.logits[batch.n_id])
    parts = torch.arange(len(y)).split(7)
    loader = [Data(n_id=part, y=y[part], batch_size=len(part)) for part in parts]
    return real_graphs.score(Given(logits), loader)


def test_scores(monkeypatch):
    logits = torch.randn(40, 2)
    y = torch.randint(0, 2, (40,))
    margin = logits[:, 1] - logits[:, 0]
    pairs = margin[y == 1][:, None] > margin[y == 0][None]
    assert scored(logits, y, monkeypatch) == pytest.approx(float(pairs.double().mean()))
    logits, y = torch.randn(40, 3), torch.randint(0, 3, (40,))
    expected = np.mean(logits.argmax(1).numpy() == y.numpy())
    assert scored(logits, y, monkeypatch) == pytest.approx(float(expected))


def test_training_learns_and_is_reproducible():
    y = torch.randint(0, 3, (300,))
    x = torch.nn.functional.one_hot(y, 3) + 0.1 * torch.randn(300, 3)
    mask = torch.arange(300) < 200
    edge_index = torch.randint(0, 300, (2, 600))
    data = Data(x=x, y=y, edge_index=edge_index, train_mask=mask, test_mask=~mask)
    args = argparse.Namespace(hidden=16, fanout=[3, 3], batch_size=32)
    scores = [real_graphs.train(data, args, {}, seed=0, epochs=8) for _ in range(2)]
    assert scores[0] > 0.8
    assert scores[0] == scores[1]


def test_graphs_that_are_not_there_are_left_out(tmp_path):
    assert list(real_graphs.graphs(["tolokers", "coauthor physics"], tmp_path)) == []
    assert list(real_graphs.graphs(["tolokers"], None)) == []
