"""The loaders with what else lives around a PyTorch DataLoader."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.distributed
import torch.nn.functional as F
from torch.utils.data import BatchSampler, SequentialSampler
from torch.utils.data.distributed import DistributedSampler
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import CachedLoader, PrefetchLoader, ZipLoader
from torch_geometric.nn import GraphSAGE
from torch_geometric.testing import get_random_tensor_frame

import pyg_graphzero as gz
from graphs import check_rows
from pyg_graphzero.loader import LinkNeighborLoader, NeighborLoader


def ids(loader) -> list[int]:
    return [i for batch in loader for i in batch.input_id.tolist()]


# Attributes that are no tensors ------------------------------------------------------------------


def test_tensor_frames() -> None:
    """Rows of pytorch-frame's tables, which RelBench's graphs have in place of ``x``."""
    graph = HeteroData()
    for name, count in ("user", 40), ("sale", 90):
        graph[name].tf = get_random_tensor_frame(count)
        graph[name].time = torch.arange(count)
    graph["sale", "by", "user"].edge_index = torch.stack(
        [torch.arange(90), torch.randint(40, (90,))]
    )
    loader = NeighborLoader(
        graph, [5, 5], ("user", torch.arange(40)), input_time=torch.full((40,), 50),
        time_attr="time", batch_size=16,
    )  # fmt: skip
    for batch in loader:
        for name in graph.node_types:
            rows, whole = batch[name].tf, graph[name].tf
            assert rows.num_rows == batch[name].num_nodes
            for kind, values in whole.feat_dict.items():
                assert torch.equal(rows.feat_dict[kind], values[batch[name].n_id])


# Samplers and generators ------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_custom_sampler(store, workers):
    d = store.data()
    nodes = torch.arange(100, 150)
    kwargs = {"sampler": range(49, -1, -1), "batch_size": 16, "num_workers": workers}
    loader = NeighborLoader(d, [3], input_nodes=nodes, **kwargs)
    assert ids(loader) == list(range(49, -1, -1))
    assert torch.equal(torch.cat([b.n_id[: b.batch_size] for b in loader]), nodes.flip(0))
    assert ids(LinkNeighborLoader(d, [3], **kwargs)) == list(range(49, -1, -1))


@pytest.mark.parametrize("workers", [0, 2])
def test_custom_batch_sampler(data, store, workers):
    batches = [[0, 3, 3], [1], list(range(40, 50))]
    loader = NeighborLoader(
        store.data(), [4], input_nodes=data.train_idx, batch_sampler=batches, num_workers=workers
    )
    assert len(loader) == 3
    assert [b.input_id.tolist() for b in loader] == batches
    for batch, index in zip(loader, batches, strict=True):
        assert torch.equal(batch.n_id[: batch.batch_size], data.train_idx[index])
    sampler = BatchSampler(SequentialSampler(range(50)), 20, drop_last=True)
    loader = NeighborLoader(store.data(), [4], input_nodes=data.train_idx, batch_sampler=sampler)
    assert [b.batch_size for b in loader] == [20, 20]
    links = LinkNeighborLoader(store.data(), [2], batch_sampler=[[7, 8], [7]], num_workers=workers)
    assert [b.input_id.numel() for b in links] == [2, 1]


@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_generator(store, kind):
    """The generator given decides the order and the draws; torch's own is left alone."""

    def epoch(seed):
        loader = kind(
            store.data(), [3], batch_size=100, shuffle=True,
            generator=torch.Generator().manual_seed(seed),
        )  # fmt: skip
        return [(b.input_id, b.n_id, b.e_id) for b in loader]

    before = torch.get_rng_state()
    first = epoch(3)
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(77)
    again, other = epoch(3), epoch(4)
    for a, b in zip(first, again, strict=True):
        assert all(torch.equal(x, y) for x, y in zip(a, b, strict=True))
    assert not torch.equal(first[0][0], other[0][0])


# PyG's loaders around a loader ------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
def test_prefetch_loader(store, workers):
    loader = NeighborLoader(store.data(), [4], batch_size=64, shuffle=True, num_workers=workers)
    torch.manual_seed(1)
    want = list(loader)
    torch.manual_seed(1)
    prefetched = PrefetchLoader(loader, device=torch.device("cpu"))
    assert len(prefetched) == len(want)
    for a, b in zip(prefetched, want, strict=True):
        assert torch.equal(a.e_id, b.e_id)
        assert torch.equal(a.x, b.x)


def test_cached_loader(data, store):
    loader = NeighborLoader(store.data(), [4], batch_size=64)
    keep = CachedLoader(loader, transform=lambda b: Data(n_id=b.n_id, edge_index=b.edge_index))
    first, second = list(keep), list(keep)
    assert all(a is b for a, b in zip(first, second, strict=True))
    assert set(first[0].to_dict()) == {"n_id", "edge_index"}
    keep.clear()
    again = list(keep)
    assert not torch.equal(again[0].n_id, first[0].n_id)  # drawn anew
    assert torch.equal(torch.cat([b.n_id[:64] for b in again[:4]]), torch.arange(256))
    model = GraphSAGE(8, 8, 2, 3).eval()
    with torch.no_grad():
        full = NeighborLoader(store.data(), [-1], batch_size=64)
        got = model.inference(full, cache=True)
        assert torch.allclose(got, model(data.x, data.edge_index), atol=1e-5)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("per_worker", [False, True])
def test_zip_loader(data, store, workers, per_worker):
    d = store.data()
    nodes = NeighborLoader(d, [3, 2], input_nodes=data.train_idx)
    links = LinkNeighborLoader(d, [2], edge_label_index=data.edge_index[:, :80])
    loader = ZipLoader(
        [nodes, links], filter_per_worker=per_worker, batch_size=16, num_workers=workers
    )
    assert len(loader) == 4  # the shorter one's
    for k, (a, b) in enumerate(loader):
        own = slice(16 * k, min(16 * k + 16, 50))
        assert torch.equal(a.n_id[: a.batch_size], data.train_idx[own])
        assert torch.equal(b.n_id[b.edge_label_index], data.edge_index[:, own])
        for batch in (a, b):
            check_rows(batch, data)


# Several processes ------------------------------------------------------------------------------


def test_distributed_sampler(data, store):
    seen = []
    for rank in range(2):
        sampler = DistributedSampler(range(50), num_replicas=2, rank=rank, shuffle=True, seed=3)
        loader = NeighborLoader(
            store.data(), [3], input_nodes=data.train_idx, batch_size=10, sampler=sampler
        )
        sampler.set_epoch(0)
        first = ids(loader)
        sampler.set_epoch(1)
        assert ids(loader) != first
        sampler.set_epoch(0)
        assert ids(loader) == first
        seen += first
    assert sorted(seen) == list(range(50))


# Lightning --------------------------------------------------------------------------------------


def lightning():
    import lightning.pytorch as found  # slow, and only some tests need it

    return found


def trainer(**kwargs):
    return lightning().Trainer(
        accelerator="cpu", devices=1, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, **kwargs,
    )  # fmt: skip


def node_model():
    class Model(lightning().LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = GraphSAGE(8, 16, 2, 5)
            self.seen: dict[str, list] = {k: [] for k in ("train", "val", "test", "pred")}

        def see(self, part, batch):
            self.seen[part].append(batch.n_id[: batch.batch_size])
            return self.net(batch.x, batch.edge_index)[: batch.batch_size]

        def training_step(self, batch, _):
            return F.cross_entropy(self.see("train", batch), batch.y[: batch.batch_size])

        def validation_step(self, batch, _):
            self.see("val", batch)

        def test_step(self, batch, number):
            self.see("test", batch)

        def predict_step(self, batch, _):
            return self.see("pred", batch)

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=0.01)

    return Model()


lightning_warns = pytest.mark.filterwarnings("ignore")  # Lightning's own, about settings


@lightning_warns
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("own", [True, False])
def test_lightning_trains_and_evaluates(store, workers, own):
    """With loaders of ours, and with the sampler that its data module makes; in inference mode."""
    lightning()
    d = store.data()
    parts = {"train": d.train_mask, "val": d.train_mask, "test": ~d.train_mask, "pred": d.train_idx}
    options = {"num_neighbors": [5, 3], "batch_size": 64, "num_workers": workers}
    module = gz.loader.LightningNodeData(
        d, pin_memory=False, **options,
        **{f"input_{part}_nodes": nodes for part, nodes in parts.items()},
    )  # fmt: skip
    for part, run in zip(parts, ("fit", "validate", "test", "predict"), strict=True):
        nodes, model = parts[part], node_model()
        source = NeighborLoader(d, input_nodes=nodes, **options) if own else module
        getattr(trainer(max_epochs=1, num_sanity_val_steps=0), run)(model, source)
        got = torch.cat(model.seen[part])
        nodes = nodes.nonzero().view(-1) if nodes.dtype == torch.bool else nodes
        assert torch.equal(got.sort().values if part == "train" else got, nodes)


@lightning_warns
@pytest.mark.parametrize("kind", [NeighborLoader, LinkNeighborLoader])
def test_lightning_loaders_made_in_a_hook(data, store, kind):
    """In its hooks Lightning wraps constructors to remember their arguments."""
    seen = []

    class Module(lightning().LightningDataModule):
        def predict_dataloader(self):
            return kind(store.data(), [3], batch_size=500)

    class Model(lightning().LightningModule):
        def predict_step(self, batch, _):
            assert torch.equal(batch.x, data.x[batch.n_id])
            seen.append(batch.input_id)

    trainer().predict(Model(), Module())
    assert torch.cat(seen).unique().numel() == (300 if kind is NeighborLoader else 3000)


@lightning_warns
def test_lightning_adds_a_distributed_sampler(data, store):
    """Lightning's DDP strategy calls a loader's class again with the arguments it had."""
    lightning()
    try:
        from lightning.pytorch.utilities.data import _update_dataloader
    except ImportError:
        from pytorch_lightning.utilities.data import _update_dataloader
    d = store.data()
    loaders = (
        (NeighborLoader, {"input_nodes": data.train_idx}, 50),
        (LinkNeighborLoader, {"edge_label_index": data.edge_index[:, :60]}, 60),
        (LinkNeighborLoader, {}, 3000),
    )
    for kind, seeds, size in loaders:
        loader = kind(d, [3, 2], batch_size=8, **seeds)
        seen = []
        for rank in range(2):
            sampler = DistributedSampler(loader.dataset, 2, rank, shuffle=False)
            again = _update_dataloader(loader, sampler)
            assert type(again) is kind
            seen += ids(again)
        assert sorted(seen) == list(range(size))


# Tools ------------------------------------------------------------------------------------------


@pytest.mark.skipif(torch.cuda.is_available(), reason="for machines without a GPU")
def test_pin_memory_without_a_gpu_is_what_torch_makes_of_it(store):

    def warned(loader) -> tuple[list, list[str]]:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            batches = list(loader)
        return batches, sorted({str(w.message) for w in caught})

    _, want = warned(torch.utils.data.DataLoader(range(4), pin_memory=True))
    batches, got = warned(NeighborLoader(store.data(), [3], batch_size=100, pin_memory=True))
    assert got == want
    assert len(batches) == 3
    assert not batches[0].x.is_pinned()
