"""Runs the documentation's commands and code as they stand there."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from itertools import count
from pathlib import Path

import pytest
import torch
from documents import GUIDE, ROOT, read_blocks, run, text_of
from layouts import citations, ogb_npz
from torch_geometric.data import Data

import pyg_graphzero as gz
from graphs import write_store

doctor = importlib.import_module("pyg_graphzero.tune.doctor")  # gz.doctor is the function


def my_graph(directory: Path) -> None:
    """Makes the store of the page about the first steps, which all other pages use."""
    names: dict[str, object] = {}
    for block in read_blocks(GUIDE[0], text_of(GUIDE[0])):
        run(block, names)
        if "graphzero convert" in block.text:
            return


def ogbn_papers100m(directory: Path) -> None:
    """The dataset's directory in small, as it is after download."""
    ogb_npz(directory / "ogbn_papers100M", citations(num_classes=172, width=128))


NEED_MY_GRAPH = (
    *("benchmarks", "inference", "loading", "multi-process", "out-of-core", "report"),
    *("subgraphs", "train-faster", "walks"),
)
# Pages whose blocks run in a directory that is prepared for them.
PREPARED = {f"docs/{page}.md": my_graph for page in NEED_MY_GRAPH}
PREPARED["docs/papers100m.md"] = ogbn_papers100m
PAGES = ["README.md", *sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))]


def test_the_api_page_lists_the_public_names_alone():
    modules = (gz, gz.disk, gz.inference, gz.loader, gz.nn, gz.rag, gz.sampler)
    public = {"pyg_graphzero.errors", "pyg_graphzero.nn.ops"}
    for module in modules:
        for name in module.__all__:
            value = getattr(module, name)
            is_error = isinstance(value, type) and issubclass(value, Exception)
            if not is_error and not inspect.ismodule(value):
                public.add(f"{module.__name__}.{name}")
    assert set(re.findall(r"^::: (\S+)$", text_of("docs/api.md"), re.M)) == public


@pytest.fixture(autouse=True)
def _nothing_takes_seconds(tmp_path, monkeypatch):
    """No disk is known, one is measured in no time, and a clock moves on whenever it is read."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(doctor, "probe", lambda path, **_: gz.disk.probe(path, seconds=0.02))
    monkeypatch.setattr(doctor, "perf_counter", count().__next__)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """The directory in which a reader tries what a page shows."""
    directory = tmp_path / "page"
    directory.mkdir()
    monkeypatch.chdir(directory)
    for name in ("examples", "benchmarks"):  # pages are read at the root of the repository
        (directory / name).symlink_to(ROOT / name)
    return directory


# They start processes that import torch.
LONG = {"docs/multi-process.md", "docs/papers100m.md"}


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=[pytest.mark.long] * (page in LONG)) for page in PAGES]
)
def test_page(page, desk):
    blocks = read_blocks(page, text_of(page))
    if page in PREPARED:
        PREPARED[page](desk)
    names: dict[str, object] = {}
    for block in blocks:
        run(block, names)


def test_no_page_of_the_guide_overwrites_a_file_of_the_first():
    """Whoever goes back to it would find another graph."""
    writing = r'(?:np\.savez?\("([\w.]+)"|Path\("([\w.]+)"\)\.write)'
    first, *others = ({max(each) for each in re.findall(writing, text_of(page))} for page in GUIDE)
    assert {"edges.csv", "features.npy"} <= first
    assert not any(first & other for other in others)


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page):
    folders = "benchmarks|csrc|docs|examples|pyg_graphzero|tests|tools"
    named = re.findall(rf"(?:\.\./|(?<![\w/]))((?:{folders})/[\w./*-]*\w)", text_of(page))
    for name in named:
        assert any(ROOT.glob(f"{name}*")), f"{page}: {name}"


PACKAGE = ROOT / "pyg_graphzero"
# An example of a store that is not there.
NOT_RUN = {"store/ids.py"}
FILES = {str(path.relative_to(PACKAGE)): path for path in sorted(PACKAGE.rglob("*.py"))}
WITH_EXAMPLES = [file for file, path in FILES.items() if ">>> " in path.read_text()]


@pytest.mark.parametrize("file", sorted({*WITH_EXAMPLES} - NOT_RUN))
def test_docstring_examples(file, tmp_path, request):
    edge_index = torch.tensor([[0, 1, 2, 0], [1, 2, 0, 2]])
    store = write_store(Data(x=torch.eye(4), edge_index=edge_index), tmp_path / "store")
    name = f"pyg_graphzero/{file}".removesuffix(".py").removesuffix("/__init__")
    module = importlib.import_module(name.replace("/", "."))
    results = doctest.testmod(
        module, extraglobs={"example_store": store, "getfixture": request.getfixturevalue}
    )
    assert results.attempted > 0
    assert results.failed == 0
