"""Batches over a store in shards: the single store's, whatever the ranks do."""

from __future__ import annotations

import os
import pickle
import random
import signal
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest
import pythons
import torch
import torch.distributed as dist
from same import assert_same
from torch_geometric.data import HeteroData

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero.shards.fetcher import Fetcher
from pyg_graphzero.util.system import private_rss
from spawned import PATIENCE, run_ranks, two_ranks

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")


def loaders(data, first: int) -> list:
    """Loaders of all kinds around a rank's own seeds."""
    if "since" in data:
        return timed_loaders(data, first)
    common = {"batch_size": 8, "shuffle": True, "num_workers": 1}
    if isinstance(data, HeteroData):
        paper, cites = ("paper", torch.arange(first, 40)), data.edge_types[0]
        ends = torch.arange(2 * (10 + first)).view(2, -1)
        return [
            gz.loader.NeighborLoader(data, [4, 3], paper, **common),
            gz.loader.LinkNeighborLoader(data, [3, 2], (cites, ends), **common),
            gz.loader.HGTLoader(data, [6, 5], paper, **common),
        ]
    seeds, ends = torch.arange(first, 50), torch.arange(2 * (20 + first)).view(2, -1)
    alone = common | {"num_workers": 0}
    return [
        gz.loader.NeighborLoader(data, [5, 3], seeds, **common),
        gz.loader.NeighborLoader(data, [5, -1], seeds, disjoint=True, **alone),
        gz.loader.NeighborLoader(
            data, [3, 3], seeds, replace=True, subgraph_type="induced", edge_ids=False, **alone
        ),
        gz.loader.ShaDowKHopSampler(data, 2, 3, node_idx=seeds, **alone),
        gz.loader.LinkNeighborLoader(
            data, [3, 3], ends, neg_sampling="binary", transform=lambda batch: batch, **common
        ),
        gz.loader.LinkNeighborLoader(data, [3, 3], ends, exclude_seed_edges=True, **alone),
    ]


def timed_loaders(data, first: int) -> list:
    """Loaders that draw by times of nodes and of edges, and by weights."""
    seeds, ends = torch.arange(first, 40), torch.arange(2 * (20 + first)).view(2, -1)
    alone = {"batch_size": 8, "shuffle": True}
    timed = {"time_attr": "since", "input_time": 20 + seeds % 50, **alone}
    return [
        gz.loader.NeighborLoader(data, [5, 3], seeds, **timed),
        gz.loader.NeighborLoader(
            data, [3, 2], seeds, temporal_strategy="last", weight_attr="weight", **timed
        ),
        gz.loader.NeighborLoader(data, [4, 3], seeds, weight_attr="weight", **alone),
        gz.loader.LinkNeighborLoader(
            data, [3, 2], ends, edge_label_time=20 + ends[0], time_attr="born",
            neg_sampling="binary", **alone,
        ),
    ]  # fmt: skip


def with_times(data):
    """Nodes and edges have times, and edges weights, some of them 0."""
    made, count = data.clone(), data.num_edges
    made.since = torch.randint(0, 100, (count,))
    made.weight = torch.rand(count, dtype=torch.float64) * (torch.rand(count) < 0.9)
    made.born = torch.randint(0, 100, (data.num_nodes,))
    return made


def read_epochs(rank: int, *pairs: tuple[str, str]) -> None:
    """Ranks have different seeds, and so different numbers of batches; rank 0 maps no rows."""
    for store, shards in pairs:
        memory = None if rank else private_rss() + (256 << 20)
        with gz.open_shards(shards, memory=memory) as opened, gz.open(store) as single:
            assert (opened._exchange.reader is None) == (rank > 0)
            data, wanted = opened.data(), single.data()
            assert repr(data) == repr(wanted)
            for loader, other in zip(*(loaders(d, 13 * rank) for d in (data, wanted)), strict=True):
                for epoch in range(2):
                    torch.manual_seed(epoch)
                    batches = list(loader)
                    torch.manual_seed(epoch)
                    assert_same(batches, list(other))
            one = loaders(data, 0)[0]  # each rank alone, by a call
            torch.manual_seed(rank)
            batch = one([1, 2, 3])
            torch.manual_seed(rank)
            assert_same([batch], [loaders(wanted, 0)[0]([1, 2, 3])])
    dist.destroy_process_group()


def convert_encoded(data, path: Path) -> Path:
    """Rows of 16 bytes that stand for 64."""
    wide = data.clone()
    wide.x = torch.cat([data.x, data.x], 1)
    gz.convert(wide, path, features="int8", progress=False)
    return path


@pytest.mark.parametrize(
    ("ranks", "is_assigned", "topology"),
    [
        (2, True, "own"),
        *(
            pytest.param(*each, marks=pytest.mark.long)
            for each in [
                (1, False, "own"),
                (4, False, "own"),
                (4, True, "own"),
                (1, False, "whole"),
                (2, True, "whole"),
                (4, False, "whole"),
            ]
        ),
    ],
)
def test_batches_are_those_of_the_single_store(
    homo, hetero, tmp_path, ranks, is_assigned, topology
):
    encoded = gz.open(convert_encoded(homo[0], tmp_path / "encoded"))
    timed = gz.open(write_store(with_times(homo[0]), tmp_path / "timed"))
    pairs = []
    for number, store in enumerate((homo[1], hetero[1], encoded, timed)):
        types = [t.name for t in store.contents.schema.node_types]
        by = {name: torch.randint(ranks, (store.num_nodes_of(name),)) for name in types}
        shards = tmp_path / f"shards-{number}"
        gz.shard(store.path, shards, ranks, topology=topology, by=by if is_assigned else None)
        pairs.append((str(store.path), str(shards)))
    run_ranks(read_epochs, ranks, tmp_path, *pairs)


def keep_rows(rank: int, shards: str, wide: str, encoded: str) -> None:
    """Rows that a rank has once fetched do not travel in the next epoch, if there is room."""
    for memory, travels in (("4GB", False), (private_rss() + (64 << 20), True)):
        with gz.open_shards(shards, memory=memory) as opened:
            loader = gz.loader.NeighborLoader(opened.data(), [-1, -1], range(300), batch_size=50)
            received = [0]
            for _ in range(2):
                assert len(list(loader)) == 6
                opened.gather(None)  # what others ask for counts, too
                received.append(opened.exchanged.received)
            assert received[1] > 0
            assert (received[2] > received[1]) == travels
            assert (opened.exchanged.kept > 0) != travels
    with gz.open_shards(wide, memory=private_rss() + (64 << 20), timeout=60.0) as opened:
        loader = gz.loader.NeighborLoader(opened.data(), [-1], range(300), batch_size=300)
        with pytest.raises(gz.MemoryBudgetError, match="with rows of other ranks, expected"):
            list(loader)
    with gz.open_shards(shards, memory=None if rank else "1MB") as opened:
        loader = gz.loader.NeighborLoader(opened.data(), [2], range(300))
        if rank == 0:
            with pytest.raises(gz.MemoryBudgetError, match="are taken already"):
                list(loader)
        else:  # rank 0 serves its rows all the same
            assert len(list(loader)) == 300
    share_a_room(rank, wide, encoded)
    dist.destroy_process_group()


def share_a_room(rank: int, wide: str, encoded: str) -> None:
    """Rows of 80,000 bytes, and of 20,000 that stand for as many; 64 more are a row's numbers.

    A batch of 140 rows leaves room for 22 that are kept; decoded rows count beside stored ones.
    """
    key, theirs = ("node", None), torch.arange(150) + 150 * (1 - rank)
    with gz.open_shards(wide, timeout=60.0) as opened:
        fetcher = Fetcher(opened._exchange, 69_000_000, 16_000_000, "69MB")
        for numbers, num_kept in ((theirs[:10], 0), (theirs[:140], 10), (theirs[:140], 22)):
            before = opened.exchanged.kept
            tables, at = fetcher.fetch({key: numbers}, 1)[key]
            assert opened.exchanged.kept - before == num_kept
            assert torch.equal(tables["x"][at], numbers[:, None].expand(-1, 20_000).float())
    with gz.open_shards(encoded, timeout=60.0) as opened:
        exchange = opened._exchange
        assert Fetcher(exchange, 37_000_000, 0, "37MB").fetch({key: theirs}, 1)
        with pytest.raises(gz.MemoryBudgetError, match=r"=35MB: found 35 MB .*, expected 36 MB"):
            Fetcher(exchange, 35_000_000, 0, "35MB").fetch({key: theirs}, 1)


def test_rows_are_kept_within_the_budget(homo, tmp_path):
    gz.shard(homo[1].path, tmp_path / "shards", 2, topology="whole")
    wide = homo[0].clone()
    wide.x = torch.arange(300)[:, None].expand(-1, 20_000).float().contiguous()
    gz.shard(write_store(wide, tmp_path / "wide"), tmp_path / "wide-shards", 2)
    gz.convert(wide, tmp_path / "encoded", features="int8", progress=False)
    gz.shard(tmp_path / "encoded", tmp_path / "encoded-shards", 2)
    names = ("shards", "wide-shards", "encoded-shards")
    run_ranks(keep_rows, 2, tmp_path, *(str(tmp_path / name) for name in names))


def leave_early(rank: int, shards: str) -> None:
    """Rank 0 breaks out of an epoch, and evaluates alone while the other has closed."""
    with gz.open_shards(shards) as opened:
        loader = loaders(opened.data(), 0)[0]
        for number, _ in enumerate(loader):
            if rank == 0 and number == 2:
                break
        if rank == 0:
            assert len(list(loader)) == len(loader)
    dist.destroy_process_group()
    pythons.end()


def test_a_rank_breaks_out_of_an_epoch_and_goes_on_alone(homo, tmp_path):
    gz.shard(homo[1].path, tmp_path / "shards", 2, topology="whole")
    run_ranks(leave_early, 2, tmp_path, str(tmp_path / "shards"))


def lose_a_rank(rank: int, shards: str, how: str) -> None:
    # A rank that raises says so; the others are missed, and slow ones would be, too.
    opened = gz.open_shards(shards, timeout=50.0 if how == "raises" else 5.0)
    loader = loaders(opened.data(), 0)[0]
    for number, _ in enumerate(loader if rank == 1 else ()):
        if number == 3:
            break
    if rank == 1 and how == "raises":
        with pytest.raises(KeyError), opened:
            raise KeyError
        os._exit(0)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP if how == "stops" else signal.SIGKILL)
    begin = time.monotonic()
    what = "rank 1 has ended early" if how == "raises" else ""
    with pytest.raises(gz.RankLostError, match=f"rank 0 of 2: cannot exchange rows.*{what}"):
        sum(len(list(loader)) for _ in range(10000))
    assert time.monotonic() - begin < 60
    opened.close()  # ends at once: there is none to wait for
    os._exit(0)


@pytest.mark.parametrize(
    "how",
    ["raises", *(pytest.param(each, marks=pytest.mark.long) for each in ("is killed", "stops"))],
)
def test_a_lost_rank_is_an_error_for_the_others(homo, tmp_path, how):
    gz.shard(homo[1].path, tmp_path / "shards", 2, topology="whole")
    with two_ranks(lose_a_rank, tmp_path / "ranks", str(tmp_path / "shards"), how) as ranks:
        ranks[0].join(PATIENCE)
        assert ranks[0].exitcode == 0


class Wakes:
    """Lets a process go on while the interpreter ends."""

    def __init__(self, process: int) -> None:
        self._wake, self._wait = partial(os.kill, process, signal.SIGCONT), partial(time.sleep, 2)

    def __del__(self) -> None:
        self._wake()
        self._wait()


def raise_beside_a_stopped_rank(rank: int, shards: str) -> None:
    opened = gz.open_shards(shards, timeout=60.0)
    processes = opened.gather(os.getpid())
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(PATIENCE)
    while psutil.Process(processes[1]).status() != psutil.STATUS_STOPPED:
        time.sleep(0.01)
    sys.wakes = Wakes(processes[1])  # the interpreter lets go of it at its end
    raise KeyError("mine")


def to_the_end(rank: int, *arguments: str) -> None:
    try:
        raise_beside_a_stopped_rank(rank, *arguments)
    except KeyError:
        pythons.end(3)
    finally:
        os._exit(4)


def test_an_error_beside_a_rank_that_does_not_answer_ends_the_process(homo, tmp_path):
    gz.shard(homo[1].path, tmp_path / "shards", 2)
    with two_ranks(to_the_end, tmp_path / "ranks", str(tmp_path / "shards")) as ranks:
        ranks[0].join(PATIENCE)
        assert ranks[0].exitcode == 1  # 3 is the interpreter's own end


def train_on(rank: int, shards: str, store: str, folder: str) -> None:
    """Checks each batch against the single store's; notes how far it is, and goes on from there."""
    try:
        with gz.open_shards(shards, timeout=20.0) as opened, gz.open(store) as single:
            loader, other = (
                gz.loader.NeighborLoader(
                    data, [4, 3], torch.arange(rank, 300, 2), batch_size=4,
                    generator=torch.Generator().manual_seed(5),
                )
                for data in (opened.data(), single.data())
            )  # fmt: skip
            notes = Path(folder) / f"rank-{rank}"
            done = int(notes.read_text()) if notes.exists() else 0
            for each in (loader, other):
                each.load_state_dict({"generator": each.generator.get_state(), "num_batches": done})
            for batch, wanted in zip(loader, other, strict=True):
                assert_same([batch], [wanted])
                done += 1
                time.sleep(0.01)  # a step, so that a kill falls within the epoch
                notes.with_suffix(".new").write_text(str(done))
                notes.with_suffix(".new").replace(notes)
    except gz.RankLostError:
        os._exit(3)
    os._exit(0)


@pytest.mark.parametrize(
    "kills", [1, pytest.param(int(os.environ.get("KILLS", 50)), marks=pytest.mark.long)]
)
@pytest.mark.parametrize("topology", ["own", pytest.param("whole", marks=pytest.mark.long)])
def test_ranks_are_killed_at_any_instant_and_start_again(homo, tmp_path, kills, topology):
    """No hang, no wrong batch; and the epoch goes on where each rank was."""
    store = homo[1].path
    gz.shard(store, tmp_path / "shards", 2, topology=topology)
    arguments = str(tmp_path / "shards"), str(store), str(tmp_path)
    instants, lost = random.Random(3), 0
    for number in range(10 * kills):
        with two_ranks(train_on, tmp_path / f"ranks-{number}", *arguments) as ranks:
            if lost < kills:
                victim = instants.randrange(2)
                wait_for(tmp_path, ranks, instants.uniform(0.0, 0.3))
                ranks[victim].kill()
            for process in ranks:
                process.join(PATIENCE)
            codes = [process.exitcode for process in ranks]
        lost += -signal.SIGKILL in codes
        assert set(codes) <= {0, 3, -signal.SIGKILL}, codes  # a wrong batch is 1
        if codes == [0, 0]:
            for rank in range(2):
                assert (tmp_path / f"rank-{rank}").read_text() == "38"
                (tmp_path / f"rank-{rank}").unlink()
            if lost >= kills:
                return
    pytest.fail(f"{lost} of {kills} ranks were killed in {10 * kills} starts")


def wait_for(folder: Path, ranks: list, seconds: float) -> None:
    """Waits until a batch is made, and then as long."""
    before = [note.stat().st_mtime_ns for note in folder.glob("rank-?")]
    while [note.stat().st_mtime_ns for note in folder.glob("rank-?")] == before:
        if not all(process.is_alive() for process in ranks):
            return
        time.sleep(0.01)
    time.sleep(seconds)


def refuse(rank: int, shards: str) -> None:
    mine = Path(shards)
    for path, message in (
        (mine / "three", "found 3 parts, expected 2"),
        (mine / str(rank), "source: found .* on rank 1"),
        (mine / ("whole" if rank else "missing"), "rank 0: FileNotFoundError"),
        (mine / ("own" if rank else "whole"), "topology: found 'own' on rank 1"),
    ):
        with pytest.raises(ValueError, match=message):
            gz.open_shards(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyg_graphzero.shards.opened.version", lambda name: f"1.{rank}")
        with pytest.raises(ValueError, match=r"version: found '1\.1' on rank 1, expected '1\.0'"):
            gz.open_shards(mine / "0")
    with gz.open_shards(mine / "0", timeout=30.0) as opened:
        data = opened.data()
        for use in (
            lambda: data.x,
            lambda: pickle.dumps(data),
            lambda: pickle.dumps(opened),
        ):
            with pytest.raises(gz.UnsupportedError, match="in shards"):
                use()
        with pytest.raises(
            gz.UnsupportedError, match=r"first_aggregation='mean': found data.x in shards"
        ):
            gz.loader.NeighborLoader(data, [2], [0], first_aggregation="mean")([0])
    with gz.open_shards(mine / "own", timeout=30.0) as opened:
        data, ends = opened.data(), torch.arange(4).view(2, 2)
        excluded = gz.SamplingOptions(exclude_edges=True)
        for use in (
            lambda: data.edge_index,
            lambda: data.edge_attr,
            lambda: opened.graph_store.get_edge_index(*opened.graph_store.get_all_edge_attrs()),
            lambda: gz.loader.LinkNeighborLoader(data, [2])([0]),
            lambda: gz.loader.LinkNeighborLoader(
                data, [2], ends, neg_sampling="binary", options=excluded
            )([0]),
            lambda: gz.loader.GraphSAINTRandomWalkSampler(data, 2, 2)([0]),
        ):
            with pytest.raises((gz.UnsupportedError, ValueError), match="in shards"):
                use()
    dist.destroy_process_group()


def test_refusals_are_the_same_on_every_rank(homo, tmp_path):
    with pytest.raises(ValueError, match="found no process group"):
        gz.open_shards(tmp_path)
    store, shards = homo[1], tmp_path / "all"
    shards.mkdir()
    gz.shard(store.path, shards / "own", 2)
    gz.shard(store.path, shards / "three", 3, topology="whole")
    gz.shard(store.path, shards / "0", 2, topology="whole")
    gz.shard(store.path, shards / "whole", 2, topology="whole")
    with gz.open(store.path, mode="r+") as other:
        other.feature_store.put_tensor(torch.ones(store.num_nodes, 4), None, "z", None)
    gz.shard(store.path, shards / "1", 2, topology="whole")
    run_ranks(refuse, 2, tmp_path, str(shards))
