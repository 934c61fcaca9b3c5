"""Results for all nodes over a store in shards: each rank computes its own, the single store's."""

from __future__ import annotations

import os
import signal
from itertools import cycle
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch_geometric.data import HeteroData
from torch_geometric.nn import GraphSAGE, to_hetero

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.shards.fetcher import Fetcher
from pyg_graphzero.store.column_writer import Column
from spawned import PATIENCE, run_ranks, two_ranks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def model_of(data) -> torch.nn.Module:
    torch.manual_seed(7)
    if hasattr(data, "node_types"):
        sage = GraphSAGE((-1, -1), 8, num_layers=2, out_channels=3)
        made = to_hetero(sage, data.metadata())
        with torch.no_grad():
            made(data.x_dict, data.edge_index_dict)
        return made
    return GraphSAGE(8, 8, num_layers=2, out_channels=3)


def with_features(data: HeteroData) -> HeteroData:
    """The types that have some, as float32."""
    found = data.edge_type_subgraph([n for n in data.edge_types if "venue" not in n])
    found["author"].x = found["author"].x.float()
    return found


def infer(rank: int, shards: str, kept: str) -> None:
    model = model_of(torch.load(kept, weights_only=False))  # one of to_hetero() does not unpickle
    with gz.open_shards(shards) as opened:
        with pytest.raises(ValueError, match=r"rank 1: .*x"):
            gz.inference.layerwise(model, opened, out="x" if rank else "fresh", progress=False)
        sizes = cycle([1, 3, 2])  # it goes by the largest batch until then
        Fetcher.together = property(lambda self: next(sizes))
        gz.inference.layerwise(model, opened, out="h", max_edges=200, progress=False)
    with gz.open_shards(shards) as opened:  # where batches have the results
        data = opened.data()
        name = opened.node_types[0]
        seeds = torch.as_tensor(opened.nodes(name))
        (batch,) = gz.loader.NeighborLoader(
            data, [2], seeds if name is None else (name, seeds), batch_size=len(seeds)
        )
        found = batch.h if name is None else batch[name].h
        expected = torch.load(f"{kept}.out")[seeds]
        torch.testing.assert_close(found[: len(seeds)], expected, atol=1e-5, rtol=1e-4)
    dist.destroy_process_group()


@pytest.mark.parametrize(
    ("kind", "topology"),
    [("homo", "own"), *(pytest.param(*each, marks=pytest.mark.long) for each in [
        ("homo", "whole"), ("hetero", "own"), ("hetero", "whole")
    ])],
)  # fmt: skip
def test_each_rank_computes_its_own_nodes(kind, topology, request, tmp_path: Path):
    data, store = request.getfixturevalue(kind)
    if kind == "hetero":
        data = with_features(data)
        store = gz.open(write_store(data, tmp_path / "featured"))
    model, name = model_of(data), store.node_types[0]
    gz.shard(store.path, tmp_path / "shards", 2, topology=topology, by={
        name: torch.arange(store.num_nodes_of(name)) % 2
    })  # fmt: skip
    gz.inference.layerwise(model, store, out="h", progress=False)
    with gz.open(store.path) as again:
        whole = again.data()
        torch.save(whole.h if name is None else whole[name].h, tmp_path / "graph.out")
    torch.save(data, tmp_path / "graph")
    run_ranks(infer, 2, tmp_path, str(tmp_path / "shards"), str(tmp_path / "graph"))


def lose_a_rank(rank: int, shards: str) -> None:
    """Rank 1 is killed in its second layer."""
    columns, write = [], Column.write

    def written(column: Column, *rows: object) -> None:
        if column not in columns:
            columns.append(column)
        if rank == 1 and len(columns) == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        write(column, *rows)

    Column.write = written
    try:
        opened = gz.open_shards(shards, timeout=30.0)
        gz.inference.layerwise(model_of(None), opened, out="h", max_edges=200, progress=False)
    except gz.RankLostError:
        os._exit(3)


def go_on(rank: int, shards: str, kept: str) -> None:
    model = model_of(torch.load(kept, weights_only=False))
    with gz.open_shards(shards) as opened:
        summary = gz.inference.layerwise(model, opened, out="h", max_edges=200, progress=False)
        nodes = torch.as_tensor(opened.nodes())
        found = gz.open(opened.part).data()["own:node"].h
    assert [layer.verdict == "done before" for layer in summary.layers] == [True, False]
    torch.testing.assert_close(found, torch.load(f"{kept}.out")[nodes], atol=1e-5, rtol=1e-4)
    dist.destroy_process_group()


@pytest.mark.long
def test_it_goes_on_after_a_kill(data, store, tmp_path: Path):
    gz.shard(store.path, tmp_path / "shards", 2)
    gz.inference.layerwise(model_of(data), store, out="h", progress=False)
    torch.save(gz.open(store.path).data().h, tmp_path / "graph.out")
    torch.save(data, tmp_path / "graph")
    with two_ranks(lose_a_rank, tmp_path / "lost", str(tmp_path / "shards")) as ranks:
        for process in ranks:
            process.join(PATIENCE)
        assert [process.exitcode for process in ranks] == [3, -signal.SIGKILL]
    run_ranks(go_on, 2, tmp_path, str(tmp_path / "shards"), str(tmp_path / "graph"))
