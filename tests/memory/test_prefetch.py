"""Files that fit are read into memory from front to back."""

import os
import sys
import time

import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.page_cache import drop, resident_bytes
from pyg_graphzero.memory.prefetch import prefetch_all
from pyg_graphzero.util.disk import READER_BYTES


def test_a_store_that_fits_is_read_when_a_loader_begins(tmp_path):
    edge_index = torch.randint(1000, (2, 5000), generator=torch.Generator().manual_seed(0))
    gz.convert(Data(x=torch.ones(20_000, 256), edge_index=edge_index), tmp_path / "store")
    file = tmp_path / "store" / "node" / "x.gd"
    drop([file])
    store = gz.open(tmp_path / "store")
    if resident_bytes([file]) > file.stat().st_size // 2:
        return  # a filesystem that has nothing but memory
    next(iter(gz.loader.NeighborLoader(store.data(), [2], input_nodes=torch.arange(9))))
    for _ in range(3000):
        if resident_bytes([file]) == file.stat().st_size:
            break
        time.sleep(0.01)
    assert resident_bytes([file]) == file.stat().st_size


def test_files_that_cannot_be_opened_are_left_out(tmp_path):
    here = tmp_path / "here"
    here.write_bytes(os.urandom(1 << 20))
    thread = prefetch_all([tmp_path / "gone", here])
    thread.join(60)
    assert not thread.is_alive()


def test_bounds_of_neighbourhoods_are_read_though_neighbours_do_not_fit(tmp_path, monkeypatch):
    num_nodes = 1_000_000
    edges = torch.randint(num_nodes, (2, 5_000_000), generator=torch.Generator().manual_seed(0))
    gz.convert(Data(x=torch.ones(num_nodes, 16), edge_index=edges), tmp_path / "store")
    file = tmp_path / "store" / "edge" / "topology.gl"
    drop([file])
    if resident_bytes([file]) > file.stat().st_size // 2:
        return  # a filesystem that has nothing but memory
    for module in ("store.contents", "memory.keeper"):
        monkeypatch.setattr(sys.modules[f"pyg_graphzero.{module}"], "private_rss", lambda: 0)
    store = gz.open(tmp_path / "store", memory=READER_BYTES + 12_000_000)
    next(iter(gz.loader.NeighborLoader(store.data(), [2], input_nodes=torch.arange(9))))
    assert "edge/topology.gl" in store.memory_plan.hot
    resident = resident_bytes([file])
    assert 8 * num_nodes < resident < file.stat().st_size - 4_000_000
