"""``store.data()`` does what PyG's ``Data`` and ``HeteroData`` in memory do, and copies no file."""

from __future__ import annotations

import copy
import pickle
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch_geometric.transforms as T
from convert_support import converted
from torch import Tensor
from torch.nn import Parameter
from torch_geometric.data import Batch, Data, HeteroData
from torch_geometric.loader import DataLoader, DynamicBatchSampler

import pyg_graphzero as gz
from graphs import heterogeneous, homogeneous, write_store
from pyg_graphzero.loader import NeighborLoader

WRITES = ("author", "writes", "paper")


class Named(Data):
    """A subclass such as scripts define: a method, and a constructor with an argument."""

    def __init__(self, title: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.title = title

    def __inc__(self, key: str, value: Any, *args: Any, **kwargs: Any) -> Any:
        return 1000 if key == "train_idx" else super().__inc__(key, value, *args, **kwargs)

    def initial(self) -> str:
        return self.title[0]


class NamedHetero(HeteroData):
    def papers(self) -> int:
        return self["paper"].num_nodes


def titled() -> Data:
    data = homogeneous()
    data.title = "graph"
    return data


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A homogeneous store and a heterogeneous one."""
    root = tmp_path_factory.mktemp("stores")
    write_store(titled(), root / "homogeneous")
    write_store(heterogeneous(), root / "heterogeneous")
    return {name: root / name for name in ("homogeneous", "heterogeneous")}


# Everything PyG does to a graph -------------------------------------------------------------------


def torch_copy(data: Any) -> Any:
    return pickle.loads(pickle.dumps(data))


def then(change: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """The graph itself, after a change."""

    def changed(data: Any) -> Any:
        change(data)
        return data

    return changed


def dynamic(data: Any) -> Any:
    graphs = [data, data]
    return next(iter(DataLoader(graphs, batch_sampler=DynamicBatchSampler(graphs, 10_000))))


EITHER: dict[str, Callable[[Any], Any]] = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": torch_copy,
    "clone": lambda d: d.clone(),
    "cpu": lambda d: d.cpu(),
    "to": lambda d: d.to("cpu"),
    "contiguous": lambda d: d.contiguous(),
    "detach": lambda d: d.detach(),
    "share_memory_": lambda d: d.share_memory_(),
    "apply": lambda d: d.apply(lambda v: v + v),
    "validate": lambda d: d.validate(),
    "is_undirected": lambda d: d.is_undirected(),
    "has_isolated_nodes": lambda d: d.has_isolated_nodes(),
    "has_self_loops": lambda d: d.has_self_loops(),
    "coalesce": lambda d: (d.is_coalesced(), d.coalesce()),
    "sort": lambda d: (d.is_sorted(), d.sort(sort_by_row=False)),
    "keys": lambda d: set(d.keys()),
    "attributes": lambda d: (set(d.node_attrs()), set(d.edge_attrs())),
    "sizes": lambda d: (d.size(), d.num_nodes, d.num_edges, d.num_features, d.num_edge_features),
    "to_dict": lambda d: d.to_dict(),
    "from_dict": lambda d: type(d).from_dict(d.to_dict()),
    "to_namedtuple": lambda d: len(d.to_namedtuple()) > 0,
    "Batch": lambda d: Batch.from_data_list([d, d]),
    "DataLoader": lambda d: next(iter(DataLoader([d, d], batch_size=2))),
    "DynamicBatchSampler": dynamic,
    "generate_ids": then(lambda d: d.generate_ids()),
    "snapshot": lambda d: d.snapshot(0, 2, "y"),
    "None": then(lambda d: setattr(d, "missing", None)),
    "ToUndirected": T.ToUndirected(),
    "AddSelfLoops": T.AddSelfLoops(),
    "RemoveSelfLoops": T.RemoveSelfLoops(),
    "RemoveDuplicatedEdges": T.RemoveDuplicatedEdges(),
    "RemoveIsolatedNodes": T.RemoveIsolatedNodes(),
    "NormalizeFeatures": T.NormalizeFeatures(),
    "RandomNodeSplit": T.RandomNodeSplit(num_val=10, num_test=10),
    "ToSparseTensor": T.ToSparseTensor(layout=torch.sparse_csr),
    "ToDevice": T.ToDevice("cpu"),
}
HOMOGENEOUS: dict[str, Callable[[Any], Any]] = {
    "to_data_list": lambda d: Batch.from_data_list([d, d]).to_data_list(),
    "subgraph": lambda d: d.subgraph(torch.arange(100)),
    "subgraph of a mask": lambda d: d.subgraph(torch.arange(300) < 50),
    "edge_subgraph": lambda d: d.edge_subgraph(torch.arange(100)),
    "to_heterogeneous": lambda d: d.to_heterogeneous(),
    "dict": lambda d: (dict(iter(d)), dict(d("x", "y"))),
    "update": lambda d: d.update({"x": torch.ones(300, 2)}),
    "update of another": lambda d: Data().update(d.to_dict()),
    "Data": lambda d: (Data(**d.to_dict()).num_edges, Data(**d.to_dict())),
    "its own class": lambda d: (type(d)(**d.to_dict()), type(d)(), type(d)().stores_as(d)),
    "pop": then(lambda d: d._store.pop("x")),
    "del": then(lambda d: delattr(d, "x")),
    "in": lambda d: ("x" in d, "z" in d, hasattr(d, "adj")),
    "levels": lambda d: [d.is_node_attr(k) for k in ("x", "edge_attr", "train_idx")],
    "RandomLinkSplit": T.RandomLinkSplit(),
    "IndexToMask": T.IndexToMask("train_idx"),
    "LocalDegreeProfile": T.LocalDegreeProfile(),
}
HETEROGENEOUS: dict[str, Callable[[Any], Any]] = {
    "subgraph": lambda d: d.subgraph({"paper": torch.arange(50)}),
    "to_homogeneous": lambda d: d.to_homogeneous(),
    "node_type_subgraph": lambda d: d.node_type_subgraph(["paper", "author"]),
    "edge_type_subgraph": lambda d: d.edge_type_subgraph([WRITES]),
    "rename": lambda d: (d.rename("paper", "text"), torch_copy(d)),
    "metadata": lambda d: d.metadata(),
    "collect": lambda d: (d.x_dict, d.collect("edge_attr")),
    "set_value_dict": lambda d: d.set_value_dict("z", {"paper": torch.ones(3)}),
    "del": then(lambda d: d.__delitem__("venue")),
    "HeteroData": lambda d: (HeteroData(d.to_dict()), HeteroData().update(d)),
    "storages": lambda d: [
        dict(f(d["paper"]))
        for f in (torch_copy, lambda s: s.clone(), lambda s: s.to("cpu"), copy.deepcopy)
    ],
    "RandomLinkSplit": T.RandomLinkSplit(
        edge_types=[WRITES], rev_edge_types=[("paper", "rev_writes", "author")]
    ),
    "AddMetaPaths": T.AddMetaPaths([[WRITES, ("paper", "rev_writes", "author")]]),
}


def plain(value: Any) -> Any:
    """A value that can be compared, without ``num_nodes``, which PyG counts by rows."""
    if isinstance(value, (Data, HeteroData)):
        return [(s._key, plain({k: v for k, v in s.items() if k[0] != "_"})) for s in value.stores]
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items() if k not in ("num_nodes", "_num_nodes")}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def assert_same(got: Any, want: Any) -> None:
    if isinstance(want, dict):
        assert set(got) == set(want)
        for key in want:
            assert_same(got[key], want[key])
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same(a, b)
    elif isinstance(want, Tensor):
        assert (got.dtype, got.shape, got.layout) == (want.dtype, want.shape, want.layout)
        if want.layout != torch.strided:
            got, want = got.to_dense(), want.to_dense()
        assert torch.allclose(got, want, equal_nan=True)
    else:
        assert type(got) is type(want)
        assert got == want


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    ("kind", "what"),
    [("homogeneous", w) for w in (*EITHER, *HOMOGENEOUS)]
    + [("heterogeneous", w) for w in (*EITHER, *HETEROGENEOUS)],
)
def test_functions_of_pyg_agree_on_a_store_and_in_memory(paths, kind, what):
    typed = HETEROGENEOUS, heterogeneous
    own, graph = typed if kind == "heterogeneous" else (HOMOGENEOUS, titled)
    function = (EITHER | own)[what]
    results = []
    for data in (gz.open(paths[kind]).data(), graph()):
        for seed in (torch.manual_seed, np.random.seed, random.seed):
            seed(0)
        results.append(plain(function(data)))
    assert_same(*results)


@pytest.mark.parametrize("kind", ["homogeneous", "heterogeneous"])
@pytest.mark.parametrize(
    "what",
    ["copy", "deepcopy", "pickle", "clone", "cpu", "to", "share_memory_", "ToDevice", "keys"],
)
def test_copies_and_moves_build_nothing(paths, kind, what, nothing_is_built):
    EITHER[what](gz.open(paths[kind]).data())


def test_errors_of_missing_attributes_name_the_existing_ones(paths):
    data = gz.open(paths["homogeneous"]).data()
    with pytest.raises(
        AttributeError, match=r"^data\.test_mask: found no .* one of x, y, "
    ) as error:
        _ = data.test_mask
    assert (error.value.name, "train_idx" in str(error.value)) == ("test_mask", True)
    with pytest.raises(
        gz.MissingAttributeError, match=r"^data\.test_mask: found no such attribute"
    ):
        data["test_mask"]
    assert not hasattr(data, "test_mask")
    assert getattr(data, "test_mask", None) is None
    assert data.get("test_mask") is None
    data.test_mask = data.y > 0
    assert data.test_mask.dtype == torch.bool
    del data.train_idx
    with pytest.raises(AttributeError, match=r"^data\.train_idx: .*, expected one of x, y, "):
        _ = data.train_idx


def test_errors_of_missing_attributes_name_the_types(paths):
    data = gz.open(paths["heterogeneous"]).data()
    with pytest.raises(
        AttributeError, match=r"^data\['paper'\]\.z: found no such attribute, expected"
    ):
        _ = data["paper"].z
    with pytest.raises(AttributeError, match=r"^data\.train_mask: .* data\['paper'\]\.train_mask"):
        _ = data.train_mask
    with pytest.raises(AttributeError, match=r"^data\.z: .* TYPE one of \['paper', 'author'"):
        _ = data.z
    assert set(data.x_dict) == {name for name in data.node_types if "x" in data[name]}


# Copies -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("separate", [copy.deepcopy, torch_copy, lambda d: d.clone()])
def test_a_copy_is_its_own(paths, separate):
    """Changes before the copy are in both; later ones are in one, and in its loader's batches."""
    want = titled()
    data = gz.open(paths["homogeneous"]).data()
    data.x[3] = 7.0
    data.edge_index[:, 0] = 5
    data.name = ["mine"]
    again = separate(data)
    want.x[3] = 7.0
    want.edge_index[:, 0] = 5
    for each in (data, again):
        assert torch.equal(each.x, want.x)
        assert torch.equal(each.edge_index, want.edge_index)
    again.x[4] = -1.0
    again.y.zero_()
    again.edge_index[:, 1] = 6
    again.train_mask.fill_(True)
    again.name.append("yours")
    data.x[5] = -2.0
    assert torch.equal(data.x[:5], want.x[:5])
    assert torch.equal(data.y, want.y)
    assert torch.equal(data.edge_index, want.edge_index)
    assert torch.equal(data.train_mask, want.train_mask)
    assert data.name == ["mine"]
    assert torch.equal(again.x[5:], want.x[5:])
    assert again.x[3:5, 0].tolist() == [7, -1]
    assert gz.open(paths["homogeneous"]).data().x[3].tolist() == titled().x[3].tolist()
    for each, value in ((data, float(want.x[4, 0])), (again, -1.0)):
        loader = NeighborLoader(each, [0], input_nodes=torch.tensor([4]))
        assert next(iter(loader)).x[0, 0].item() == value


def test_a_deep_copy_maps_the_files(paths):
    data = gz.open(paths["homogeneous"]).data()
    again, third = copy.deepcopy(data), data.clone()
    for attr in ("x", "y", "train_idx"):
        assert len({d[attr].data_ptr() for d in (data, again, third)}) == 3
    contents = data.__dict__["_contents"]
    assert contents.file_of(again.x) == contents.file_of(third.x) == contents.file_of(data.x)
    again.x[0] = 1
    assert contents.file_of(again.x) is None
    # Only what was written to is written to in a copy's copy.
    assert len(pickle.dumps(third)) < 2000 < len(pickle.dumps(copy.deepcopy(again)))


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("shape", [(), (0,), (50,), (50, 3), (0, 4), (50, 2, 3)], ids=str)
def test_deep_copies_of_written_views(tmp_path, dtype, shape):
    gz.convert(
        Data(z=torch.ones(shape, dtype=dtype), num_nodes=9, edge_index=torch.tensor([[0], [1]])),
        tmp_path / "s", progress=False,
    )  # fmt: skip
    data = gz.open(tmp_path / "s").data()
    if shape and shape[0]:
        data.z[7] = 0
    else:
        data.z.zero_()
    again = copy.deepcopy(data)
    assert torch.equal(again.z, data.z)
    data.z.fill_(0)
    assert again.z.numel() == 0 or not shape or again.z.view(-1)[0]


def test_types_that_were_added_deleted_and_renamed_travel(paths):
    data = gz.open(paths["heterogeneous"]).data()
    memory = heterogeneous()
    for d in (data, memory):
        d["paper", "rev_in", "paper"].edge_index = torch.tensor([[1, 2], [3, 4]])
        d["club"].x = torch.ones(4, 2)
        del d["venue"]
        del d["paper", "in", "venue"]
        del d["venue", "hosts", "author"]
        d["paper"].y = d["paper"].y + 1
        del d["author"].x
        d["author"].num_nodes = 120
        d["author"].age = torch.arange(120)
    again = torch_copy(data)
    assert again.metadata() == data.metadata() == memory.metadata()
    assert_same(plain(again), plain(memory))
    assert torch.equal(again["paper"].y, memory["paper"].y)
    for d in (data, again):
        loader = NeighborLoader(d, [4], input_nodes=("paper", torch.arange(20)), batch_size=20)
        batch = next(iter(loader))
        n_id = batch["author"].n_id
        assert torch.equal(batch["author"].age, n_id)
        assert torch.equal(batch["paper"].y, memory["paper"].y[batch["paper"].n_id])


def test_levels_travel(tmp_path):
    """Where there are as many nodes as edges, sizes do not tell which are which."""
    memory = Data(
        x=torch.arange(6.0), w=torch.rand(6), edge_index=torch.arange(6).repeat(2, 1), num_nodes=6
    )
    data = converted(memory, tmp_path / "s")
    levels = [data.is_node_attr("w"), data.is_edge_attr("w")]
    data.w[0] = 9.0
    data.to("cpu").contiguous()
    for each in (data, torch_copy(data), copy.deepcopy(data), copy.copy(data)):
        assert [each.is_node_attr("w"), each.is_edge_attr("w")] == levels
        assert float(each.w[0]) == 9


# Classes ------------------------------------------------------------------------------------------


def test_classes_of_scripts(paths):
    store = gz.open(paths["homogeneous"])
    data = store.data(cls=Named)
    assert isinstance(data, Named)
    assert type(data).__name__ == "DiskNamed"
    assert repr(data).startswith("DiskNamed(x=[300, 8]")
    for each in (data, copy.copy(data), copy.deepcopy(data), torch_copy(data)):
        assert isinstance(each, Named)
        assert each.initial() == "g"
        assert torch.equal(each.x, titled().x)
    for source in (data, Named("graph", **homogeneous().to_dict())):
        batch = next(iter(NeighborLoader(source, [2], batch_size=4)))
        assert type(batch) is Named
        assert batch.initial() == "g"
    two = Batch.from_data_list([data, data])
    assert two.train_idx[50] == data.train_idx[0] + 1000
    hetero = gz.open(paths["heterogeneous"]).data(cls=NamedHetero)
    assert hetero.papers() == torch_copy(hetero).papers() == 200
    batch = next(iter(NeighborLoader(hetero, [2], input_nodes="paper", batch_size=4)))
    assert type(batch) is NamedHetero
    assert batch.papers() == batch["paper"].n_id.numel()


def test_classes_that_are_not_for_it(paths):
    store = gz.open(paths["homogeneous"])
    for cls in (NamedHetero, dict, Data(), "Data"):
        with pytest.raises(TypeError, match="expected Data or a subclass of it"):
            store.data(cls=cls)


def test_values_of_lazy_mappings_do_not_leak(paths):
    data = gz.open(paths["homogeneous"]).data()
    mapping = data._store._mapping
    assert Data(**mapping).num_edges == dict(mapping)["edge_index"].size(1) == 3000
    assert isinstance(copy.copy(mapping).pop("edge_index"), Tensor)
    assert "OnDemand" in repr(gz.open(paths["homogeneous"]).data()._store)


# torch.inference_mode -----------------------------------------------------------------------------


def test_writes_under_inference_mode_count(paths):
    data = gz.open(paths["homogeneous"]).data()
    with torch.inference_mode():
        data.x[4] = 3.0
        data.y[4] = 3
        loader = NeighborLoader(data, [0], input_nodes=torch.tensor([4]))
        batch = next(iter(loader))
        assert batch.x[0].tolist() == [3.0] * 8
        assert torch_copy(data).x[4].tolist() == [3.0] * 8
    assert torch_copy(data).y[4] == 3
    assert next(iter(loader)).x[0].tolist() == [3.0] * 8
    # Tensors built in inference mode can be trained with afterwards.
    assert not data.x.is_inference()
    data.x.requires_grad_().sum().backward()


def test_rows_decoded_under_inference_mode_are_no_inference_tensors(tmp_path):
    gz.convert(homogeneous(), tmp_path / "s", features="float16", progress=False)
    data = gz.open(tmp_path / "s").data()
    with torch.inference_mode():
        assert not data.x.is_inference()
    data.x += 1


def test_inference_tensors_of_a_script(paths):
    data = gz.open(paths["homogeneous"]).data()
    with torch.inference_mode():
        data.x = torch.zeros(300, 2)
    data.extra = data.x + 1
    batch = next(iter(NeighborLoader(data, [2], batch_size=10)))
    assert batch.x.shape[1] == 2
    again = torch_copy(data)
    assert torch.equal(again.x, data.x)
    assert torch.equal(copy.deepcopy(data).x, data.x)


# Training attributes ------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("on_disk", [True, False])
def test_gradients_of_attributes(paths, workers, on_disk):
    memory = titled()
    data = gz.open(paths["homogeneous"]).data() if on_disk else memory
    data.x = Parameter(torch.randn(300, 4))
    data.edge_attr = Parameter(torch.rand(3000))
    loader = NeighborLoader(data, [4, 3], batch_size=64, num_workers=workers)
    optimizer = torch.optim.SGD([data.x, data.edge_attr], lr=0.5)
    for _ in range(2):
        for batch in loader:
            # Values are those after the last step, however far ahead batches are made.
            assert torch.equal(batch.x, data.x[batch.n_id])
            assert torch.equal(batch.edge_attr, data.edge_attr[batch.e_id])
            optimizer.zero_grad()
            (batch.x.sum() + 2 * batch.edge_attr.sum()).backward()
            count = torch.bincount(batch.n_id, minlength=300)
            assert torch.equal(data.x.grad, count.float()[:, None].expand(300, 4))
            assert data.edge_attr.grad.sum() == 2 * batch.e_id.numel()
            optimizer.step()


def test_attributes_that_are_trained_from_now_on(paths):
    data = gz.open(paths["homogeneous"]).data()
    loader = NeighborLoader(data, [2], batch_size=300)
    assert not next(iter(loader)).x.requires_grad
    data.x.requires_grad_()
    next(iter(loader)).x.sum().backward()
    assert data.x.grad.sum() == 8 * 300
    embedding = torch.nn.Embedding(120, 5)
    hetero = gz.open(paths["heterogeneous"]).data()
    hetero["author"].x = embedding.weight
    batch = next(iter(NeighborLoader(hetero, [5], input_nodes="paper", batch_size=50)))
    batch["author"].x.sum().backward()
    assert embedding.weight.grad.sum() == batch["author"].x.numel()
