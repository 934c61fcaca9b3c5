"""Reading a large part of a store into memory gives a warning, or an error."""

from __future__ import annotations

import copy
import pickle
import re
import warnings
from pathlib import Path

import pytest
import torch
import torch_geometric.transforms as T
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.loader import NeighborLoader

NODES, EDGES, WIDTH = 5_000, 100_000, 64  # 1.3 MB of features, 1.6 MB of edge_index


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("strict")
    generator = torch.Generator().manual_seed(0)
    edges = torch.randint(0, NODES, (2, EDGES), generator=generator)
    memory = Data(x=torch.ones(NODES, WIDTH), y=torch.arange(NODES), edge_index=edges)
    gz.convert(memory, root / "s", features="float16", progress=False)
    return root / "s"


@pytest.fixture(autouse=True)
def _small_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """A large part is 1 MB of a budget that this process fits in."""
    monkeypatch.setattr("pyg_graphzero.store.contents._LARGE_SHARE", 0.0005)


def opened(path: Path, strict: bool = False) -> gz.Store:
    return gz.open(path, memory="2GB", strict=strict)


TAKES = {
    "edge_index": (lambda d: d.edge_index, "data.edge_index", "options of gz.convert"),
    "x": (lambda d: d.x, "data.x", r"get_tensor\(…, attr_name='x', index=…\)"),
    "to_dict": (lambda d: d.to_dict(), "data.x", "loaders gather the rows"),
    "ToUndirected": (T.ToUndirected(), "data.edge_index", "loaders sample without it"),
    "RandomLinkSplit": (T.RandomLinkSplit(), "data.edge_index", "a split of edges is a mask"),
    "detach": (lambda d: d.detach("x"), "data.x", "loaders gather"),
    "a tensor": (lambda d: d.update({"z": torch.zeros(NODES, 64)}), "data.z", "put_tensor"),
}


@pytest.mark.parametrize("what", TAKES)
def test_strict_is_an_error(path, what):
    take, name, instead = TAKES[what]
    data = opened(path, strict=True).data()
    for each in (data, copy.copy(data), copy.deepcopy(data), pickle.loads(pickle.dumps(data))):
        with pytest.raises(gz.DoesNotFitError, match=instead) as caught:
            take(each)
        text = str(caught.value)
        assert text.startswith(f"{path}: {name}: found ")
        words = r"found [12] MB to be in memory, expected at most a tenth .* of 2,000 MB"
        assert re.search(words, text)
        assert isinstance(caught.value, MemoryError)
        assert not each._store._mapping.raw("edge_index").is_built


@pytest.mark.parametrize("what", TAKES)
def test_otherwise_it_is_said_once(path, what):
    take, name, instead = TAKES[what]
    store = opened(path)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        take(store.data())
    (told,) = [w for w in caught if f": {name}: " in str(w.message)]
    assert told.category is gz.MemoryUseWarning
    assert re.search(instead, str(told.message))
    assert "gz.open(strict=True) makes this an error" in str(told.message)
    assert {w.filename for w in caught} == {__file__}  # where the script does it
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take(store.data())


def test_strict_allows_uses_that_take_no_memory(path):
    store = opened(path, strict=True)
    data = store.data()
    for each in (data, data.clone(), data.to("cpu"), copy.deepcopy(data)):
        each.y[:10] = 0
        each.small = torch.zeros(100)
        assert each.num_edges == EDGES
        assert store.feature_store.get_tensor(None, "x", torch.tensor([1])).shape == (1, WIDTH)
        loader = NeighborLoader(each, [2], input_nodes=torch.arange(10), batch_size=5)
        assert [batch.batch_size for batch in loader] == [5, 5]
    mapped = torch.from_file(str(path / "node/y.gd"), size=(path / "node/y.gd").stat().st_size,
                             dtype=torch.uint8, shared=True)  # fmt: skip
    data.mapped = mapped
    assert store.how.strict
    assert pickle.loads(pickle.dumps(store)).how.strict


@pytest.mark.parametrize("of_edges", [False, True])
def test_a_whole_attribute_that_does_not_fit(tmp_path, monkeypatch, of_edges):
    """Encoded rows of nodes, and edges that have another order on disk, are built in memory."""
    edges = torch.tensor([[0, 1, 2, 0], [2, 1, 0, 1]])
    memory = Data(x=torch.ones(3, 8), weight=torch.arange(4.0), edge_index=edges)
    gz.convert(memory, tmp_path / "s", features="float16", progress=False)
    store, attr, size = gz.open(tmp_path / "s"), *(("weight", 16) if of_edges else ("x", 96))
    group = (None, None) if of_edges else None
    whole = {
        "data": lambda: store.data()[attr],
        "feature store": lambda: store.feature_store.get_tensor(group, attr, None),
    }
    for take in whole.values():
        assert torch.equal(take(), memory[attr])
    monkeypatch.setattr("pyg_graphzero.store.contents.free_memory", lambda: size - 1)
    for take in whole.values():
        with pytest.raises(gz.DoesNotFitError) as caught:
            take()
        assert str(caught.value).startswith(
            f"{store.path}: attribute {attr!r}: found {size - 1} bytes of memory free, expected "
            f"{size} for all rows; read some: store.feature_store.get_tensor("
        )
