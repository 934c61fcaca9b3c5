"""Files that fit are read into memory from front to back."""

import os
import time

import pythons
import torch
from torch_geometric.data import Data

import pyg_graphzero as gz
from harness.page_cache import drop, resident_bytes
from pyg_graphzero.memory.prefetch import prefetch_all


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


def test_a_process_ends_while_neighbours_are_read_ahead():
    code = """
        from types import SimpleNamespace as Named
        import numpy as np
        from pyg_graphzero import _core
        from pyg_graphzero.memory.residence import Residence

        class Endless:
            def load(self, group, max_rows):
                _core.count_rows(rows, counts)  # in the engine, for some time
                return group, None

        class Files(Named):
            preload = Residence.preload

        rows, counts = np.zeros(1 << 25, np.int64), np.zeros(1, np.int16)
        files = Files(topologies={None: Endless()})
        files.preload()
    """
    done = pythons.run(code)
    assert (done.returncode, done.stderr) == (0, "")
