"""Training by two ranks: weights do not depend on where the rows and the edges lie."""

from __future__ import annotations

import pytest
import torch
import torch.distributed as dist
import torch.nn.functional as F
from test_exchange import run
from torch.nn.parallel import DistributedDataParallel
from torch_geometric.nn import GraphSAGE

import pyg_graphzero as gz

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def trained(rank: int, store: gz.Store) -> dict[str, torch.Tensor]:
    """The weights after two epochs."""
    data = store.data()
    torch.manual_seed(0)
    ddp = DistributedDataParallel(GraphSAGE(data.num_features, 16, 2, int(data.y.max()) + 1))
    optimizer = torch.optim.Adam(ddp.parameters(), lr=0.01)
    torch.manual_seed(rank + 1)
    loader = gz.loader.NeighborLoader(
        data, [4, 3], torch.arange(rank, 200, 2), batch_size=16, shuffle=True, num_workers=1
    )
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            out = ddp(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
            optimizer.step()
    return ddp.module.state_dict()


def train_over_each(rank: int, store: str, *shards: str) -> None:
    with gz.open(store) as opened:
        wanted = trained(rank, opened)
    for path in shards:
        with gz.open_shards(path, timeout=60.0) as opened:
            weights = trained(rank, opened)
            assert opened.exchanged.received > 0
        assert weights.keys() == wanted.keys()
        for name, weight in weights.items():
            assert torch.equal(weight, wanted[name]), name
    dist.destroy_process_group()


def test_weights_are_those_of_the_replicated_store(homo, tmp_path):
    """Bit for bit, with the features in shards, and with the edges in shards, too."""
    paths = [str(tmp_path / topology) for topology in ("whole", "own")]
    for path, topology in zip(paths, ("whole", "own"), strict=True):
        gz.shard(homo[1].path, path, 2, topology=topology)
    run(train_over_each, 2, tmp_path, str(homo[1].path), *paths)
