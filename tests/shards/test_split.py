"""Shards of a store: together they have all of it, and each is written without the others."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import graphzero
from torch_geometric.data import Data

import pyg_graphzero as gz
from pyg_graphzero.store.columns import decoded
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.manifest import Manifest
from pyg_graphzero.util.system import rss

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
STORES = ("hetero", "homogeneous")


def golden(name: str, tmp_path: Path) -> StoreContents:
    shutil.copytree(GOLDEN, tmp_path / "golden")  # adopted rows lie beside the stores
    return StoreContents(tmp_path / "golden" / name)


@pytest.mark.parametrize("topology", ["own", "whole"])
@pytest.mark.parametrize("name", STORES)
def test_every_machine_has_what_is_not_divided(tmp_path, name, topology):
    whole = golden(name, tmp_path)
    gz.shard(whole.path, tmp_path / "shards", 2, topology=topology)
    assert gz.verify(tmp_path / "shards").ok
    beside = StoreContents(tmp_path / "shards" / "whole")
    parts = [StoreContents(tmp_path / "shards" / f"part-{part}") for part in range(2)]
    for record in whole.schema.node_types:
        kept = beside.node_type(record.name)
        own = Manifest.load(tmp_path / "shards").of(record.name).own
        for attr, file in record.attrs.items():
            wanted = decoded(whole.rows(file))
            if whole.column(file).row_bytes <= 8:
                assert torch.equal(decoded(beside.rows(kept.attrs[attr])), wanted)
            else:
                assert attr not in kept.attrs
                rows = [decoded(part.rows(part.node_type(own).attrs[attr])) for part in parts]
                assert torch.equal(torch.cat(rows), wanted)
        assert kept.index_sets == record.index_sets
        assert kept.ids == record.ids
    assert beside.schema.graph_attrs == whole.schema.graph_attrs
    assert not beside.schema.adopted
    for record in whole.schema.edge_types:
        assert torch.equal(beside.bounds(record.name), whole.bounds(record.name))
        if topology == "whole":
            assert beside.edge_type(record.name) == record
            assert torch.equal(beside.edge_index(record.name), whole.edge_index(record.name))
            continue
        with pytest.raises(gz.UnsupportedError, match="found neighbours in shards"):
            beside.edge_index(record.name)
    if topology == "own":  # it is a store, and no loader mistakes it for one with neighbours
        types = [t.name for t in whole.schema.node_types if t.num_nodes]
        data = gz.open(beside.path).data()
        seeds = [0] if types[0] is None else (types[0], [0])
        with pytest.raises(ValueError, match="found neighbours in shards"):
            gz.loader.NeighborLoader(data, [2], seeds)([0])


def same_files(here: Path, there: Path, names: str) -> None:
    for file in here.rglob(names):
        assert file.read_bytes() == (there / file.relative_to(here)).read_bytes()


def test_a_part_is_written_alone_and_is_the_same(store, tmp_path):
    numbers = torch.randint(4, (store.num_nodes,))
    np.savetxt(tmp_path / "graph.part.4", numbers.numpy(), fmt="%d")
    summary = gz.shard(store.path, tmp_path / "all", 4, by=tmp_path / "graph.part.4")
    src, dst = numbers[store.data().edge_index]
    for part, found in enumerate(summary.stores[1:]):
        assert sum(found.nodes.values()) == int((numbers == part).sum())
        assert sum(found.edges.values()) == int((dst == part).sum())
        assert sum(found.away.values()) == int(((dst == part) & (src != part)).sum())
    for part in (2, 0):
        gz.shard(store.path, tmp_path / "some", 4, by=numbers, part=part)
    assert sorted(gz.info(tmp_path / "some")["stores"]) == ["part-0", "part-2", "whole"]
    same_files(tmp_path / "some", tmp_path / "all", "*.*")
    with pytest.raises(FileExistsError, match="other shards"):
        gz.shard(store.path, tmp_path / "some", 4, part=1)
    gz.shard(store.path, tmp_path / "some", 2, part=1, force=True)
    assert Manifest.load(tmp_path / "some").parts == 2


def test_memory_is_bounded_by_a_slab_not_by_a_part(store, tmp_path, monkeypatch):
    """Slabs of a few rows, chunks of a few edges: the parts are the same."""
    gz.shard(store.path, tmp_path / "large", 2, by=torch.arange(store.num_nodes) % 2)
    monkeypatch.setattr("pyg_graphzero.store.rows.SLAB_BYTES", 100)
    monkeypatch.setattr("pyg_graphzero.shards.split._EDGES_AT_ONCE", 7)
    monkeypatch.setattr("pyg_graphzero.shards.split._NODES_AT_ONCE", 7)
    gz.shard(store.path, tmp_path / "small", 2, by=torch.arange(store.num_nodes) % 2)
    same_files(tmp_path / "small", tmp_path / "large", "*.g?")


def test_parts_by_a_stream_hold_communities_together(tmp_path):
    """Eight communities whose nodes are scattered over the ids, in four parts of equal size."""
    generator = torch.Generator().manual_seed(1)
    community = torch.randint(8, (4000,), generator=generator)
    members = [(community == each).nonzero().view(-1) for each in range(8)]
    ends = []
    for own in members:
        ends.append(own[torch.randint(len(own), (2, 4 * len(own)), generator=generator)])
    ends.append(torch.randint(4000, (2, 1600), generator=generator))
    gz.convert(Data(edge_index=torch.cat(ends, 1), num_nodes=4000), tmp_path / "graph")
    away = {}
    for by in (None, "ldg"):
        summary = gz.shard(tmp_path / "graph", tmp_path / str(by), 4, by=by, progress=False)
        parts = summary.stores[1:]
        away[by] = sum(sum(part.away.values()) for part in parts)
        assert max(sum(part.nodes.values()) for part in parts) <= 1.05 * 1000
    assert away["ldg"] < 0.7 * away[None]
    again = gz.shard(tmp_path / "graph", tmp_path / "again", 4, by="ldg", part=2)
    assert again.stores[1].nodes == parts[2].nodes  # another machine finds the same ones
    assert Manifest.load(tmp_path / "again") == Manifest.load(tmp_path / "ldg")
    memory = rss() + (200 << 20)
    with pytest.raises(gz.MemoryBudgetError, match="by='ldg': found room for"):
        gz.shard(tmp_path / "graph", tmp_path / "small", 30000, by="ldg", memory=memory)


def test_parts_by_a_stream_of_many_types(hetero, tmp_path):
    _, store = hetero
    summary = gz.shard(store.path, tmp_path / "shards", 3, by={"paper": "ldg"})
    counts = [part.nodes for part in summary.stores[1:]]
    assert sum(each["paper"] for each in counts) == store.num_nodes_of("paper")
    assert max(each["paper"] for each in counts) <= 1.02 * store.num_nodes_of("paper") / 3 + 1


def test_command_line(hetero, tmp_path):
    _, store = hetero
    np.save(tmp_path / "parts.npy", np.arange(store.num_nodes_of("paper")) % 2)
    command = ["shard", store.path, "-o", tmp_path / "out", "--json"]
    result = graphzero(*command, "--part", "1/2", "--by", f"paper={tmp_path / 'parts.npy'}")
    assert [each["name"] for each in json.loads(result.stdout)["stores"]] == ["whole", "part-1"]
    result = graphzero("info", tmp_path / "out")
    assert "a store in 2 parts, topology: own" in result.output
    assert "own:paper" in result.output
    graphzero("verify", tmp_path / "out")
    for part in ([], *(["--part", each] for each in ("1", "x/2", "2/2"))):
        graphzero(*command, *part, code=2)


def test_refusals(store, tmp_path):
    out, count = tmp_path / "shards", store.num_nodes
    for arguments, message in (
        ({"parts": 0}, "parts: found 0"),
        ({"part": 2}, "part: found 2, expected 0 to 1"),
        ({"topology": "none"}, "topology: found 'none', expected one of own, whole"),
        ({"by": "nothing"}, "by nothing: found neither 'ldg', nor a file, nor one of"),
        ({"by": torch.zeros(3)}, r"parts of nodes: shape: found torch.float32 \[3\]"),
        ({"by": torch.full((count,), 2)}, "numbers: found 2 to 2, expected 0 to 1"),
    ):
        with pytest.raises(ValueError, match=message):
            gz.shard(store.path, out, **({"parts": 2} | arguments))
    assert not out.exists()
    gz.shard(store.path, out, 2)
    with pytest.raises(FileNotFoundError, match="a store in shards"):
        gz.open(out)
    document = json.loads((out / "shards.json").read_text())
    (out / "shards.json").write_text(json.dumps(document | {"parts": 3}))
    with pytest.raises(gz.FormatError, match="checksum"):
        gz.verify(out)
    (out / "part-0" / "store.json").unlink()
    (out / "shards.json").write_text(json.dumps(document))
    assert not gz.verify(out).ok


@pytest.mark.parametrize("topology", ["own", "whole"])
def test_names_of_categories(tmp_path, topology):
    contents = golden("hetero", tmp_path)
    types = [*contents.schema.node_types, *contents.schema.edge_types]
    named = [(t, attr) for t in types for attr in t.categories]
    assert named
    gz.shard(contents.path, tmp_path / "shards", 2, topology=topology)
    manifest = Manifest.load(tmp_path / "shards")
    with gz.open(contents.path) as store:
        for record, attr in named:
            expected = list(store.categories(attr, record.name))
            in_parts = record in contents.schema.edge_types and topology == "own"
            for folder in ["part-0", "part-1"] if in_parts else ["whole"]:
                owner = manifest.own_edges(record.name) if in_parts else record.name
                with gz.open(tmp_path / "shards" / folder) as part:
                    assert list(part.categories(attr, owner)) == expected
