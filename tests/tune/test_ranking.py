"""What training will ask for, held against what a loader asks for."""

from __future__ import annotations

import chunks
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphs import heterogeneous, homogeneous
from pyg_graphzero import _core
from pyg_graphzero.loader import HGTLoader, NeighborLoader
from pyg_graphzero.memory.profile import AccessCounts
from pyg_graphzero.memory.ranking import RankedRows, count_accesses, rank_rows


def loader_of(data, num_neighbors, seeds, batch_size, **options):
    return NeighborLoader(data, num_neighbors, input_nodes=seeds, batch_size=batch_size, **options)


def test_all_neighbors_of_one_batch_are_counted_once():
    data = homogeneous()
    loader = loader_of(data, [-1, -1], torch.arange(0, 300, 7), 300)
    found = count_accesses(loader)
    batch = next(iter(loader))
    expected = torch.zeros(300, dtype=torch.int32)
    expected[batch.n_id] = 1
    assert torch.equal(found.counts[None], expected)
    assert found.num_batches == 1
    assert found.nodes_per_batch == {None: batch.n_id.numel()}
    assert found.max_nodes == {None: batch.n_id.numel()}
    assert found.edges_per_batch == {None: batch.edge_index.size(1)}


@pytest.mark.parametrize("num_threads", [1, 3])
def test_epochs_of_shuffled_seeds(num_threads):
    seeds = torch.arange(50, 100)
    loader = loader_of(homogeneous(), [0], seeds, 8)
    found = count_accesses(loader, epochs=2.5, num_threads=num_threads)
    assert found.num_batches == 7 + 7 + 4
    counts = found.counts[None]
    assert int(counts.sum()) == 125
    assert (counts[seeds] >= 2).all()
    assert (counts[seeds] <= 3).all()


def test_counts_do_not_depend_on_threads_but_on_the_seed():
    loader = loader_of(homogeneous(), [3, 2], torch.arange(100), 16)
    a, b, c = (
        count_accesses(loader, num_threads=n, seed=s).counts[None]
        for n, s in ((1, 0), (3, 0), (1, 1))
    )
    assert torch.equal(a, b)
    assert not torch.equal(a, c)


def test_it_leaves_torchs_generator_alone():
    loader = loader_of(homogeneous(), [3], torch.arange(30), 8)
    state = torch.random.get_rng_state()
    rank_rows(loader, count_accesses(loader))
    assert torch.equal(torch.random.get_rng_state(), state)


def test_heterogeneous_and_hgt():
    data = heterogeneous()
    seeds = ("paper", torch.arange(40))
    hgt = HGTLoader(data, [8, 8], input_nodes=seeds, batch_size=10)
    for loader in (loader_of(data, [2, 2], seeds, 10), hgt):
        found = count_accesses(loader)
        assert found.counts.keys() == {"paper", "author", "venue"}
        assert (found.counts["paper"][:40] >= 1).all()
        for name, counts in found.counts.items():
            assert int(counts.sum()) == round(found.nodes_per_batch[name] * found.num_batches)


def test_a_node_of_several_trees_is_counted_once_a_batch():
    found = count_accesses(loader_of(homogeneous(), [-1], torch.arange(100), 100, disjoint=True))
    assert int(found.counts[None].max()) == 1
    assert found.max_nodes[None] > int(found.counts[None].sum())


def test_times_of_seeds():
    data = homogeneous()
    data.time = torch.arange(data.num_edges)
    seeds, none = torch.arange(20), torch.full((20,), -1)
    loader = loader_of(data, [5], seeds, 20, time_attr="time", input_time=none)
    assert int(count_accesses(loader).counts[None].sum()) == 20


def test_time_is_up_after_one_batch():
    found = count_accesses(loader_of(homogeneous(), [3], torch.arange(300), 1), seconds=0.0)
    assert found.num_batches == 1


def test_no_seeds():
    loader = loader_of(homogeneous(), [3], torch.arange(0), 4)
    found = count_accesses(loader)
    assert (found.num_batches, found.nodes_per_batch) == (0, {None: 0.0})
    assert not found.counts[None].any()


def test_refusals():
    with pytest.raises(ValueError, match="epochs: found 0"):
        count_accesses(loader_of(homogeneous(), [3], torch.arange(3), 1), epochs=0)


@pytest.mark.parametrize("seconds", [None, 0.0])
def test_rows_in_the_order_of_their_use(seconds):
    data = heterogeneous()
    loader = loader_of(data, [3, 2], ("paper", torch.arange(40)), 10)
    found = count_accesses(loader, epochs=2, seconds=seconds)
    ranked = rank_rows(loader, found)
    assert found.num_batches == (1 if seconds == 0.0 else 8)
    assert ranked.keys() == {"paper", "author", "venue"}
    for name, rows in ranked.items():
        counts, first = found.counts[name], rows.order.long()
        assert len(first) == len(first.unique()) == rows.used
        assert set(counts.nonzero().view(-1).tolist()) <= set(first.tolist())
        hot = counts[first] > (1 if seconds == 0.0 else 4)
        assert (hot.int().diff() <= 0).all()
        assert (counts[first][hot].diff() <= 0).all()


def test_what_was_counted_before_is_not_counted_again():
    loader = loader_of(homogeneous(), [3], torch.arange(40), 10)
    before = AccessCounts.of(loader.graph_sampler.graph, torch.int16)
    assert count_accesses(loader, epochs=0.5, found=before) is before
    assert before.num_batches == 2
    count_accesses(loader, epochs=2, found=before)
    assert before.num_batches == 8
    counts = before.counts[None].clone()
    count_accesses(loader, epochs=2, found=before)
    assert before.num_batches == 8
    assert torch.equal(before.counts[None], counts)


@settings(max_examples=50)
@given(counts=st.lists(st.integers(0, 5), max_size=30), size=st.integers(0, 40))
def test_the_hottest(counts, size):
    numbers = torch.tensor(counts, dtype=torch.int32)
    found = AccessCounts({None: numbers}).hottest(None, size)
    best = np.argsort(-np.array(counts, dtype=int), kind="stable")[:size].tolist()
    assert found.tolist() == sorted(row for row in best if counts[row] > 0)


@settings(max_examples=50)
@given(lists=st.lists(st.lists(st.integers(0, 19), max_size=12), max_size=8))
def test_kernels_against_their_definition(lists):
    counts = np.zeros(20, np.int32)
    narrow, wide = np.full(20, -1, np.int32), np.full(20, -1)
    met = [(np.zeros(3, np.uint8), narrow, 0), (np.zeros(3, np.uint8), wide, 0)]
    for rows in lists:
        array = np.array(rows, np.int64)
        _core.count_rows(array, counts)
        met = [(bits, list_, _core.add_rows(array, bits, list_, n)) for bits, list_, n in met]
    assert counts.tolist() == [sum(row in rows for rows in lists) for row in range(20)]
    order = list(dict.fromkeys(row for rows in lists for row in rows))
    assert [n for *_, n in met] == [len(order)] * 2
    assert narrow.tolist() == wide.tolist() == order + [-1] * (20 - len(order))


@chunks.both
@pytest.mark.parametrize("dtype", [torch.int16, torch.int32])
@settings(max_examples=50)
@given(
    counts=st.lists(st.integers(0, 5), max_size=30), hot=st.integers(0, 4), seed=st.integers(0, 99)
)
def test_rows_by_use_and_touch(dtype, counts, hot, seed):
    """What many batches used by how many; what others used by first touch; the rest as it lay."""
    touched = np.random.default_rng(seed).permutation(np.flatnonzero(counts))
    touched = touched[: len(touched) - seed % 3]  # some were not met when touches were noted
    rows = [*touched, *(row for row in np.flatnonzero(counts) if row not in touched)]
    expected = sorted((r for r in rows if counts[r] > hot), key=lambda r: -counts[r])
    expected += [r for r in rows if counts[r] <= hot]
    found = RankedRows(len(counts))
    found.add(torch.from_numpy(touched))
    found.rank(torch.tensor(counts, dtype=dtype), hot)
    assert found.order.tolist() == expected
    assert found.used == len(rows)
    wide = torch.tensor(rows, dtype=torch.int64).numpy()
    _core.hottest_first(np.array(counts, np.int32), wide, hot)
    assert wide.tolist() == expected[: len(rows)]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: _core.count_rows(np.zeros(1, np.int64), np.zeros(2)), "counts: expected int16 or"),
        (
            lambda: _core.hottest_first(np.zeros(2, np.int32), np.zeros(2, np.int16), 0),
            "list: expected int32 or int64",
        ),
    ],
)
def test_kernels_refuse_other_numbers(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_kernels_refuse_rows_that_are_not_there():
    for row in (-1, 20):
        rows = np.array([0, row])
        for call in (
            lambda rows=rows: _core.count_rows(rows, np.zeros(20, np.int32)),
            lambda rows=rows: _core.add_rows(rows, np.zeros(3, np.uint8), np.full(20, -1), 0),
            lambda rows=rows: _core.RowOrder(np.arange(3, dtype=np.int32), 20).ranks(rows),
            lambda rows=rows: _core.hottest_first(np.zeros(20, np.int32), rows.copy(), 0),
        ):
            with pytest.raises(IndexError, match=f"found row {row}, expected 0 <= row < 20"):
                call()


def test_a_part_of_an_epoch_is_rounded_up():
    found = count_accesses(loader_of(homogeneous(), [0], torch.arange(10), 4), epochs=0.55)
    assert found.nodes_per_batch == {None: 3.0}
    assert found.num_batches == 2
