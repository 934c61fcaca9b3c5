"""Data that is wrong behind a valid header, and files cut short while they are open.

Nothing may crash or read outside its arrays; what the checksums know, ``verify`` names.
"""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import textwrap
from pathlib import Path

import chunks
import pytest
import pythons
import torch
from paging import paged
from store_files import overwrite, set_field
from torch_geometric.data import Data
from torch_geometric.sampler import NodeSamplerInput

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero import FormatError
from pyg_graphzero.sampling.neighbor import NeighborSampler
from pyg_graphzero.store.verify import verify

X = "node/x.gd"
TOPOLOGY = "edge/topology.gl"
INDPTR, INDICES = 4096, 8192


def alive(script: str, *arguments: object) -> None:
    """Runs a script in a process of its own, which comes to its end."""
    done = pythons.run(script, *arguments, timeout=400)
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr


def sample_all(store: Path, fanout: int) -> None:
    sampler = NeighborSampler(gz.open(store).data(), [fanout, fanout])
    sampler.sample_from_nodes(NodeSamplerInput(None, torch.arange(50)))


@pytest.mark.parametrize("fanout", [-1, 2])
@pytest.mark.parametrize("value", [-1, 201, 2**63 - 1], ids=["minus1", "201", "max"])
@pytest.mark.parametrize("at", [0, 20, 50])
def test_damaged_indptr(store, fanout, value, at):
    overwrite(store / TOPOLOGY, INDPTR + 8 * at, struct.pack("<q", value))
    with pytest.raises(FormatError, match=r"found a range outside the edges, expected 0 <=") as e:
        sample_all(store, fanout)
    assert e.value.path == str(store / TOPOLOGY)
    assert e.value.field in (f"indptr[{at}]", f"indptr[{at - 1}]")


@pytest.mark.parametrize("fanout", [-1, 4])
def test_damaged_indices(store, fanout):
    overwrite(store / TOPOLOGY, INDICES, b"\xff\xff\xff\xff" * 200)
    words = "indices: found node 4294967295, expected 0 <= node < 50; run `graphzero verify`"
    with pytest.raises(FormatError, match=f"{store / TOPOLOGY}: {words}"):
        sample_all(store, fanout)
    with pytest.raises(FormatError, match="indices: found something else, expected 0 <= node < 50"):
        _ = gz.open(store).data().edge_index


def test_damaged_edge_ids_by_which_rows_are_written(store):
    overwrite(store / "edge/edge_id.gd", 4096, struct.pack("<I", 5000))
    features = gz.open(store, "r+").feature_store
    with pytest.raises(FormatError, match=r"edge_id\.gd"):
        features.put_tensor(torch.arange(200.0), attr_name="e", group_name=(None, None), index=None)


def test_garbage_edge_ids(store):
    path = store / "edge/edge_id.gd"
    for garbage in (b"\xff" * 800, struct.pack("<200i", *[7] * 200), os.urandom(800)):
        overwrite(path, 4096, garbage)
        with pytest.raises(
            FormatError, match=r"edge ids that repeat|found -?[0-9]+, expected 0 <="
        ) as caught:
            _ = gz.open(store).data().edge_index
        assert caught.value.path == str(path)


@pytest.mark.parametrize("value", [-1, 200, 2**31 - 1])
@pytest.mark.parametrize("is_paged", [False, True], ids=["mapped", "paged"])
def test_batches_have_no_edge_ids_that_are_none(store, value, is_paged):
    path = store / "edge/edge_id.gd"
    overwrite(path, 4096 + 4 * 100, struct.pack("<i", value))
    loader = gz.loader.NeighborLoader(gz.open(store).data(), [-1], batch_size=50)
    with paged(is_paged), pytest.raises(FormatError, match=f"found {value}, expected 0 <= id") as e:
        next(iter(loader))
    assert e.value.path == str(path)


@pytest.mark.parametrize(
    ("at", "value"), [(0, -1), (0, 5), (3, -9), (3, 2**40), (50, 2**62), (50, -1), (20, 10)]
)
def test_damaged_string_ids(store, at, value):
    overwrite(store / "node/id_offsets.gd", 4096 + 8 * at, struct.pack("<q", value))

    def use():
        ids = gz.open(store).ids()
        assert len([ids[i] for i in range(50)]) == len(list(ids[torch.arange(50)]))

    with pytest.raises(FormatError, match=r"id_offsets.gd: string ids: found") as caught:
        use()
    assert caught.value.path == str(store / "node/id_offsets.gd")
    with pytest.raises(FormatError, match=r"id_offsets.gd: string ids: found"):
        gz.open(store).lookup(["n3"])


def test_string_ids_that_are_no_text(store):
    overwrite(store / "node/ids.gd", 4096, b"\xff\xfe")
    ids = gz.open(store).ids()
    assert ids[1] == "n1"
    with pytest.raises(FormatError, match="string ids: found"):
        _ = ids[0]
    with pytest.raises(FormatError, match="string ids: found"):
        list(ids)


@chunks.both
class TestVerify:
    @pytest.fixture
    def big(self, tmp_path):
        """A column of 3.2 MB: blocks 0 to 3, the last one short."""
        return write_store(Data(x=torch.arange(800_000.0).view(50_000, 16)), tmp_path / "big")

    def test_good(self, big):
        seen: list[tuple[int, int]] = []
        report = gz.open(big).verify(lambda done, total: seen.append((done, total)))
        size = sum((big / name).stat().st_size for name in (X, TOPOLOGY))
        assert (report.ok, report.files, report.blocks, report.bytes) == (True, 2, 5, size)
        assert str(report) == f"2 files, 5 blocks, {size:,} bytes: all good"
        assert [done for done, _ in seen] == sorted(done for done, _ in seen)
        assert seen[-1] == (size, size)

    @pytest.mark.parametrize(
        ("at", "block", "size"),
        [
            (4096, 0, 1 << 20),
            (4096 + (1 << 20), 1, 1 << 20),
            (4096 + 3_199_999, 3, 57_344),
            (4096 + 3_200_500, 3, 57_344),  # padding behind the rows
        ],
    )
    def test_one_bit(self, big, at, block, size):
        raw = (big / X).read_bytes()
        overwrite(big / X, at, bytes([raw[at] ^ 1]))
        (line,) = gz.open(big).verify().bad
        offset = 4096 + (block << 20)
        place = re.escape(f"{big / X}: block {block} (offset {offset}, {size} bytes): ")
        assert re.fullmatch(place + "found 0x[0-9a-f]{16}, expected 0x[0-9a-f]{16}", line)

    def test_the_checksum_table(self, big):
        size = (big / X).stat().st_size
        overwrite(big / X, size - 32, b"\0" * 8)
        bad = gz.open(big).verify().bad
        assert len(bad) == 2
        assert bad[0].startswith(f"{big / X}: block 0 (offset 4096, 1048576 bytes): found 0x")
        assert bad[0].endswith(", expected 0x0000000000000000")
        assert bad[1].startswith(f"{big / X}: checksum table: found 0x")

    def test_the_hash_of_the_table(self, big):
        set_field(big / X, "checksums_hash", 1)
        report = verify(big)
        assert [line.split(": found")[0] for line in report.bad] == [f"{big / X}: header_hash"]

    def test_headers_and_missing_files(self, store):
        opened = gz.open(store)
        overwrite(store / X, 100, b"\1")
        os.truncate(store / TOPOLOGY, 5000)
        (store / "node/y.gd").unlink()
        bad = "\n".join(sorted(opened.verify().bad))
        assert f"{store / TOPOLOGY}: file size: found 5000 bytes, expected" in bad
        assert f"{store / X}: header_hash: found" in bad
        assert f"{store / 'node/y.gd'}: file: found nothing, expected" in bad
        assert bad.count("\n") == 2


# Code that walks over neighbourhoods one after the other, and the engine's own samplers. Behind
# its `yield` a walk goes on with what it has mapped before.
WALKS = """
    import torch, pyg_graphzero as gz
    from pyg_graphzero.store.columns import gather
    from pyg_graphzero.inference.normalize import inverse_roots
    from pyg_graphzero.nn.degrees import Rule
    from pyg_graphzero.inference.sweep import SweepLoader, runs_of

    NODES = torch.arange(50)

    def weighted(store, **more):
        data = store.data()
        gz.loader.NeighborLoader(data, [2], weight_attr="weight", **more)

    def temporal(store):
        gz.loader.NeighborLoader(
            store.data(), [2], time_attr="y", input_time=NODES, batch_size=50
        )

    def edge_times(store):
        data = store.data()
        data.time = torch.arange(200).flip(0)
        gz.loader.NeighborLoader(data, [2], time_attr="time", input_time=NODES, batch_size=50)

    def links(store, **more):
        for batch in gz.loader.LinkNeighborLoader(store.data(), [2], batch_size=50, **more):
            pass

    def non_edges(store):
        links(store, edge_label_index=torch.stack([NODES, NODES]), neg_sampling="binary",
              options=gz.SamplingOptions(exclude_edges=True))

    def swept(store):
        data = store.data()
        runs = runs_of(store.contents, [None], range(50), 40)
        for batch in SweepLoader(data, None, range(50), runs, 0):
            pass

    def rows(store):
        x = store.data().x
        yield
        gather(x, NODES, 4)

    def batches(store):
        loader = gz.loader.NeighborLoader(store.data(), [3, 3], batch_size=10)
        for batch in loader:
            pass
        yield
        for batch in loader:
            pass

    def first_batches(store):
        loader = gz.loader.NeighborLoader(store.data(), [3, 3], batch_size=10)
        yield
        for batch in loader:
            pass

    def first_view(store):
        yield
        store.data()

    OPENED = {
        "rows": rows,
        "batches": batches,
        "first batches": first_batches,
        "first view": first_view,
    }
    WALKS = {
        "edge_index": lambda store: store.data().edge_index,
        "coo": lambda store: store.graph_store.coo(),
        "csr": lambda store: store.graph_store.csr(),
        "csc": lambda store: store.graph_store.csc(),
        "weighted": weighted,
        "temporal": temporal,
        "edge times": edge_times,
        "links": links,
        "links as stored": lambda store: links(
            store, options=gz.SamplingOptions(seed_order="store")
        ),
        "non-edges": non_edges,
        "sweep": swept,
        "degrees": lambda store: inverse_roots(store.contents, None, Rule(False, 1.0, False)),
        "loops": lambda store: inverse_roots(store.contents, None, Rule(True, 1.0, False)),
        "create_csr": lambda store: gz.open(store.path, "r+").create_csr(),
    }
"""


@pytest.mark.parametrize("value", [50, 2**28 + 7, 2**32 - 1, None])
def test_damage_that_must_not_be_walked_along(store, value):
    """Sources that are none, and bounds that rise, by what 64 bits hold of their differences.

    It crashed; PyG's conversion to CSR writes where the indices say.
    """
    if value is None:
        bounds = struct.pack("<2q", 6 * 10**18, -6 * 10**18)
        overwrite(store / TOPOLOGY, INDPTR + 8 * 30, bounds)
    else:
        overwrite(store / TOPOLOGY, INDICES + 4 * 70, struct.pack("<I", value))
    script = """
        import sys
        part, *names = sys.argv[2:]
        for name in names or WALKS:
            try:
                WALKS[name](gz.open(sys.argv[1]))
            except gz.FormatError as error:
                assert f"topology.gl: {part}" in str(error), (name, error)
            else:
                raise AssertionError(name)
        print("alive")
    """
    others = ["coo", "csc", "csr", "create_csr", "temporal", "links"]
    which = ["indptr"] if value is None else ["indices", *others]
    alive(textwrap.dedent(WALKS) + textwrap.dedent(script), store, *which)


def test_files_that_are_cut_while_they_are_open(store):
    """An error that names the file, whoever reads it; in a process of its own, which must live."""
    edges = gz.open(store).contents.edge_type(None)
    walks = ["csc", "csr", "coo", "edge_index", "weighted", "temporal", "sweep", "degrees", "loops"]
    cuts = {
        edges.topology: [*walks, "first batches"],
        edges.attrs["weight"]: ["weighted"],
        edges.edge_id: ["links", "edge_index", "edge times", "batches"],
        X: ["rows", "batches", "first view"],
    }
    script = """
        import json, os, shutil, sys
        path, cuts = sys.argv[1], json.loads(sys.argv[2])
        for file, names in cuts.items():
            for name in names:
                copy = f"{path}.{name}.{file.replace('/', '.')}"
                shutil.copytree(path, copy)
                store = gz.open(copy)
                begun = OPENED[name](store) if name in OPENED else None
                store.data() if begun is None else next(begun)
                os.truncate(os.path.join(copy, file), 4096)
                try:
                    WALKS[name](store) if begun is None else list(begun)
                except (OSError, gz.FormatError) as error:
                    assert os.path.join(copy, file) in str(error), (file, name, error)
                else:
                    raise AssertionError((file, name))
        print("alive")
    """
    alive(textwrap.dedent(WALKS) + textwrap.dedent(script), store, json.dumps(cuts))


def test_handlers_that_were_installed_after_ours(tmp_path):
    """torch's in its workers, faulthandler's: ours is there again; what is not ours is theirs."""
    write_store(Data(x=torch.ones(5000, 100)), tmp_path / "big")
    script = """
        import faulthandler, os, sys
        import torch
        import pyg_graphzero as gz
        from pyg_graphzero.store.columns import gather

        x = gz.open(sys.argv[1]).data().x

        class Rows(torch.utils.data.Dataset):
            def __len__(self):
                return 1

            def __getitem__(self, i):
                return gather(x, torch.arange(5000)).sum()

        gather(x, torch.arange(9))  # the guard is there before there are workers
        os.truncate(os.path.join(sys.argv[1], "node/x.gd"), 4096 * 100)
        for call in (
            lambda: list(torch.utils.data.DataLoader(Rows(), num_workers=1)),
            lambda: faulthandler.enable() or Rows()[0],
        ):
            try:
                call()
            except OSError as error:
                assert "was truncated" in str(error), error
            else:
                raise AssertionError("nothing was raised")
        print("alive", flush=True)
        torch.set_num_threads(1)
        x.sum()
    """
    done = pythons.run(script, tmp_path / "big")
    assert (done.returncode, done.stdout) == (-signal.SIGBUS, "alive\n"), done.stderr
    assert done.stderr.count("Fatal Python error: Bus error") == 1
