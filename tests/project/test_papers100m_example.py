"""The papers100M example: it learns, goes on where it was ended, and agrees between ranks."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import layouts
import numpy as np
import pytest
import torch
from torch_geometric.data import HeteroData

import pyg_graphzero as gz
from graphs import write_store
from pyg_graphzero_cli import main

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
CLASSES = 4
OPTIONS = ["--epochs", "3", "--batch-size", "32", "--fan_out", "5,4,3"]
OPTIONS += ["--hidden_channels", "16", "--dropout", "0.2"]
OPTIONS += ["--lr", "0.01", "--device", "cpu"]
SPLIT = {"train": 701, "valid": 151, "test": 301}  # odd: two ranks cannot have equal shares


@pytest.fixture(scope="module")
def raw(tmp_path_factory) -> Path:
    """OGB's directory of a graph whose edges are mostly among nodes of one class."""
    rng = np.random.default_rng(0)
    n = 2000
    y = rng.integers(0, CLASSES, n)
    edges = rng.integers(0, n, (2, 40_000))
    edges = edges[:, (y[edges[0]] == y[edges[1]]) | (rng.random(40_000) < 0.1)]
    x = rng.normal(0, 1.5, (n, 8)).astype(np.float32)
    x[:, :CLASSES] += np.eye(CLASSES, dtype=np.float32)[y]
    ends = np.cumsum(list(SPLIT.values()))
    parts = np.split(rng.permutation(n), ends)[:-1]
    known = np.isin(np.arange(n), np.concatenate(parts))
    graph = layouts.Graph(
        {"paper": n}, {("paper", "cites", "paper"): edges}, {"paper": x}, np.where(known, y, -1),
        rng.integers(1990, 2020, n), dict(zip(SPLIT, map(np.sort, parts), strict=True)),
    )  # fmt: skip
    return layouts.ogb_npz(tmp_path_factory.mktemp("raw") / "ogbn_papers100M", graph)


@pytest.fixture(scope="module")
def store(raw, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("papers") / "store"
    gz.convert(raw, path, progress=False)
    return path


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    sys.path.insert(0, str(EXAMPLES))
    try:
        yield importlib.import_module("papers100m_sage")
    finally:
        sys.path.remove(str(EXAMPLES))


@pytest.fixture(autouse=True)
def _own_signal_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in handlers.items():
        signal.signal(number, handler)


def files(folder: Path) -> list[str]:
    """The options that have a run write its checkpoint and its log there."""
    return ["--checkpoint", str(folder / "c.pt"), "--loss-log", str(folder / "log.jsonl")]


def losses(log: Path) -> dict[tuple[int, int], float]:
    """Losses in a log by epoch and batch; the last line counts where a batch has several."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return {(line["epoch"], line["batch"]): line["loss"] for line in lines}


def parameters(checkpoint: Path) -> torch.Tensor:
    model = torch.load(checkpoint, weights_only=True)["model"]
    return torch.cat([value.view(-1) for value in model.values()])


@pytest.fixture(scope="module")
def whole(script, store, tmp_path_factory) -> Path:
    """Where a run that nothing interrupted left its log and its checkpoint."""
    folder = tmp_path_factory.mktemp("whole")
    script.main([str(store), *OPTIONS, *files(folder)])
    return folder


def at_step(script: ModuleType, number: int, act: Callable[[], None]) -> Callable[..., object]:
    """The script's ``forward``, which acts in one step of training."""
    plain, steps = script.forward, iter(range(1, 10**6))

    def forward(model, batch):
        if model.training and next(steps) == number:
            act()
        return plain(model, batch)

    return forward


def test_learns_and_says_how_well(script, store, capsys):
    training = script.main([str(store), *OPTIONS, "--memory", "3GB"])
    out = capsys.readouterr().out
    found = re.findall(r"epoch +(\d)  loss (\d\.\d+)  val (0\.\d+) of (\d+)  test 0\.", out)
    assert [int(line[0]) for line in found] == [1, 2, 3]
    assert float(found[-1][1]) < float(found[0][1])
    assert all(int(line[3]) == SPLIT["valid"] for line in found)
    score, count = re.search(r"test accuracy (0\.\d+) of (\d+)", out).groups()
    assert int(count) == SPLIT["test"]
    assert float(score) > 0.5  # by chance 0.25
    assert re.search(r"-bound$", out.splitlines()[0])
    # How much it is depends on what else the process has in memory: its parts and its bound do not.
    used = re.search(
        r"memory: (\d+\.\d\d) GB at most, (\d+\.\d\d) of its own \(RssAnon\) and (\d+\.\d\d) of "
        r"files \(RssFile\), in 1 process\(es\); the budget of 3\.00 GB was kept\n", out
    )  # fmt: skip
    most, own, of_files = map(float, used.groups())
    assert 0 < own <= most <= 3
    assert most == pytest.approx(own + of_files, abs=0.0151)  # each rounded
    assert set(training.data.keys()) <= {"x", "y", "edge_index", "num_nodes"}


def test_goes_on_after_a_signal_as_if_there_had_been_none(
    script, store, whole, tmp_path, monkeypatch, capsys
):
    command = [str(store), *OPTIONS, *files(tmp_path), "--num-workers", "0"]
    steps = len(losses(whole / "log.jsonl")) // 3
    for number, step in ((signal.SIGTERM, 5), (signal.SIGINT, steps - 5), (signal.SIGTERM, 7)):
        stop = at_step(script, step, lambda n=number: os.kill(os.getpid(), n))
        monkeypatch.setattr(script, "forward", stop)
        with pytest.raises(SystemExit) as end:
            script.main(command)
        monkeypatch.undo()
        assert end.value.code == 128 + number
    assert len(losses(tmp_path / "log.jsonl")) == steps + 7
    script.main(command)
    assert f"goes on in epoch 2 after {7} batches" in capsys.readouterr().out
    assert losses(tmp_path / "log.jsonl") == losses(whole / "log.jsonl")
    assert torch.equal(parameters(tmp_path / "c.pt"), parameters(whole / "c.pt"))


def test_a_checkpoint_of_another_run_is_refused(script, store, whole):
    options = ["--checkpoint", str(whole / "c.pt"), "--batch-size", "64"]
    with pytest.raises(SystemExit, match="batch_size=32, expected 64; change it back"):
        script.main([str(store), *OPTIONS, *options])


@pytest.mark.long
def test_classifies_every_node(script, store, whole, tmp_path, capsys):
    copy = tmp_path / "store"
    shutil.copytree(store, copy)
    options = ["--checkpoint", str(whole / "c.pt"), "--inference", "layerwise"]
    command = [str(copy), *OPTIONS, *options]
    script.main([*command, "--memory", "3GB"])
    training = script.main(command)  # the results of an earlier run do not hinder it
    out = capsys.readouterr().out
    data = gz.open(copy).data()
    with torch.no_grad():
        logits = training.model.eval()(data.x, data.edge_index)
    right = data.prediction.long() == logits.argmax(1)
    # Activations in between are in half precision.
    assert right.float().mean() > 0.99
    for split in ("val", "test"):
        mask = data[f"{split}_mask"]
        score = (data.prediction[mask] == data.y[mask]).float().mean()
        assert out.count(f"{split} accuracy {score:.4f} of {int(mask.sum())}, all") == 2
    assert "neighbours sampled" not in out


def test_converts_where_there_is_no_store(script, raw, tmp_path, capsys):
    path = tmp_path / "new store"
    script.main(
        [str(path), "--dataset_dir", str(raw), "--features", "int8", *OPTIONS, "--memory", "2GB"]
    )
    assert "test accuracy" in capsys.readouterr().out
    (nodes,) = gz.open(path).info()["node_types"]
    assert nodes["attrs"]["x"]["encoding"]["encoding"] == "int8"
    with pytest.raises(SystemExit, match=r"found features as int8, expected --features float16"):
        script.main([str(path), "--features", "float16", *OPTIONS])


def test_says_what_is_wrong_with_a_store(script, raw, store, tmp_path):
    with pytest.raises(
        SystemExit,
        match=r"graphzero convert .* -o NEW_STORE --und.* --no-edge-ids --features float16",
    ):
        script.main([str(raw), "--features", "float16"])
    with pytest.raises(
        SystemExit, match=r"found no store, and no dataset in --dataset_dir data. Name"
    ):
        script.main([str(tmp_path / "none")])
    data = HeteroData()
    data["paper"].x = torch.zeros(3, 2)
    data["paper", "cites", "paper"].edge_index = torch.tensor([[0, 1], [1, 2]])
    hetero = write_store(data, tmp_path / "hetero")
    with pytest.raises(SystemExit, match="expected a homogeneous store"):
        script.main([str(hetero)])
    memory = gz.open(store).data()
    memory.y[memory.val_mask.nonzero()[3]] = -1
    memory.edge_index  # noqa: B018 - built before it is written
    bad = write_store(memory, tmp_path / "bad")
    with pytest.raises(SystemExit, match=r"y\[\d+\]: found -1, expected a class.*val split"):
        script.main([str(bad)])


def test_does_not_convert_in_several_processes(script, raw, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "0")
    args = script.parse_args([str(tmp_path / "none"), "--dataset_dir", str(raw)])
    with pytest.raises(SystemExit, match=r"Convert before torchrun:\n  graphzero convert") as error:
        script.open_store(args, 2)
    words = shlex.split(str(error.value).splitlines()[-1])
    typed = main.commands["convert"].make_context("convert", words[2:]).params
    assert (typed["source"], typed["out"]) == (str(raw), tmp_path / "none")
    assert (typed["undirected"], typed["coalesce"], typed["no_edge_ids"]) == (True, "first", True)


# Several processes ------------------------------------------------------------------------------

# Runs the script, notes the seeds of a rank's training, and sends the second rank a signal in one
# of its steps.
DRIVER = """
    import os, signal, sys
    import torch
    examples, out, step, *command = sys.argv[1:]
    sys.path.insert(0, examples)
    import papers100m_sage as script

    rank, plain = os.environ["RANK"], script.forward
    seeds, neighbours = [], []

    def forward(model, batch):
        if model.training:
            seeds.append(batch.n_id[: batch.batch_size])
            neighbours.append(batch.n_id[batch.batch_size :])
            if len(seeds) == int(step) and rank == "1":
                os.kill(os.getpid(), signal.SIGTERM)
        return plain(model, batch)

    script.forward = forward
    try:
        training = script.main(command)
    except SystemExit as end:
        os.write(1, f"ended: {end.code}\\n".encode())  # one write: two ranks share the pipe
    else:
        values = torch.cat([p.detach().view(-1) for p in training.model.parameters()])
        torch.save((seeds, neighbours, values), f"{out}/rank{rank}.pt")
"""


def run_ranks(folder: Path, command: list[str], step: int = 0) -> str:
    """Lines that two ranks of the script print; one gets a signal in this step (0: none)."""
    driver = folder / "driver.py"
    driver.write_text(textwrap.dedent(DRIVER))
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    with subprocess.Popen(
        [sys.executable, *launch, driver, EXAMPLES, folder, str(step), *command],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
        env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
    ) as process:  # fmt: skip
        try:
            out, err = process.communicate(timeout=180)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == 0, out + err
    return out


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="torch without gloo",
)
@pytest.mark.long
def test_two_ranks(script, store, tmp_path):
    folders = [tmp_path / name for name in ("whole", "parts")]
    for folder in folders:
        folder.mkdir()

    def command(folder: Path) -> list[str]:
        return [str(store), *OPTIONS, *files(folder), "--memory", "3GB"]

    said = run_ranks(folders[0], command(folders[0]))
    one, two = (torch.load(folders[0] / f"rank{rank}.pt") for rank in range(2))
    assert torch.equal(one[2], two[2])
    assert len(one[0]) == len(two[0]) == 3 * -(-SPLIT["train"] // 64)
    steps = len(one[0]) // 3
    train = gz.open(store).data().train_mask.nonzero().view(-1)
    for epoch in range(3):
        part = slice(epoch * steps, (epoch + 1) * steps)
        seeds = torch.cat([*one[0][part], *two[0][part]])
        assert len(seeds) == len(train) + 1  # one is there twice
        assert torch.equal(seeds.unique(), train)
    assert not torch.equal(one[1][0], two[1][0])
    found = re.findall(r"loss (\d\.\d+)  val 0\.\d+ of (\d+)", said)
    assert float(found[-1][0]) < float(found[0][0])
    assert {int(count) for _, count in found} == {SPLIT["valid"]}
    assert f" of {SPLIT['test']}," in said
    assert "in 2 process(es); the budget of 3.00 GB was kept" in said

    # Only one rank gets the signal; both write what they have, and go on from it.
    said = run_ranks(folders[1], command(folders[1]), steps + 3)
    assert said.count(f"ended: {128 + signal.SIGTERM}") == 2
    assert "goes on in epoch 2 after 3 batches" in run_ranks(folders[1], command(folders[1]))
    assert losses(folders[1] / "log.jsonl") == losses(folders[0] / "log.jsonl")
    assert torch.equal(torch.load(folders[1] / "rank1.pt")[2], one[2])

    with pytest.raises(SystemExit, match="made with ranks=2, expected 1"):
        script.main(command(folders[1]))


@pytest.mark.skipif(
    not torch.distributed.is_available() or not torch.distributed.is_gloo_available(),
    reason="torch without gloo",
)
@pytest.mark.long
@pytest.mark.parametrize("topology", ["own", "whole"])
def test_two_ranks_over_shards(script, store, tmp_path, topology):
    """Ranks over shards learn the same weights, bit for bit, as over the store that each has."""
    shards = tmp_path / "shards"
    gz.shard(store, shards, 2, topology=topology, progress=False)
    options = [*OPTIONS, "--epochs", "1", "--use-gat", "--num-layers", "3"]
    for name, path, more in (
        ("single", store, []),
        ("divided", shards, ["--inference", "layerwise"]),
    ):
        folder = tmp_path / name
        folder.mkdir()
        said = run_ranks(folder, [str(path), *options, *more, *files(folder)])
    assert torch.equal(*(parameters(tmp_path / name / "c.pt") for name in ("single", "divided")))
    assert losses(tmp_path / "single" / "log.jsonl") == losses(tmp_path / "divided" / "log.jsonl")
    assert re.search(rf"test accuracy 0\.\d+ of {SPLIT['test']}, all neighbours", said)
