"""Every text on the page of common errors is raised, by what its entry is about."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from documents import read_blocks, text_of
from torch_geometric.data import Data

import pyg_graphzero as gz

PAGE = "docs/errors.md"
GRAPH = Data(x=torch.randn(3, 4), edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]))
FEW_IDS = "".join(f"{i % 7 + 1},{i * 37 % 900 + 1}\n" for i in range(60))


def convert(source: object, **options: Any) -> None:
    """To a store that is not there yet."""
    gz.convert(source, "new", progress=False, **options)


def text(content: str, name: str = "edges.csv") -> str:
    """A file that an entry names."""
    Path(name).write_text(content)
    return name


def of_no_row() -> None:
    np.save("x.npy", np.zeros((2, 4), np.float32))
    convert(text("src,dst\n0,1\n1,2\n2,0\n"), node_attrs={"x": "x.npy"})


def cut_short() -> None:
    file = Path("my_graph/node/x.gd")
    file.write_bytes(file.read_bytes()[:-5])
    gz.open("my_graph")


def in_use() -> None:
    with gz.open("my_graph", "r+"):
        gz.open("my_graph", "r+")


def much_in_memory() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pyg_graphzero.store.contents._LARGE_SHARE", 1e-9)
        return gz.open("my_graph", memory="2GB").data().edge_index


def seeds(wanted: list[int]) -> gz.loader.NeighborLoader:
    data = gz.open("my_graph").data()
    return gz.loader.NeighborLoader(data, [2], input_nodes=torch.tensor(wanted))


RAISES: dict[str, Callable[[], Any]] = {
    "A column that is not there": lambda: convert(text("src,dst\n0,1\n"), edge_attrs=["weight"]),
    "An id that has no row": of_no_row,
    "An edge to a node that is not in the table": lambda: convert(
        text("src,dst\n10,20\n20,30\n"), nodes=text("id\n10\n20\n", "people.csv")
    ),
    "Two kinds of nodes in one file": lambda: convert(
        text("userId,movieId\n" + FEW_IDS, "ratings.csv")
    ),
    "No store there": lambda: gz.open("nowhere"),
    "Not a store": lambda: (Path("empty").mkdir(), gz.open("empty")),
    "A file that was cut short": cut_short,
    "Another handle writes to it": in_use,
    "An attribute that is not there": lambda: gz.open("my_graph").data().train_mask,
    "A seed that is no node": lambda: list(seeds([0, 5])),
    "Seeds that optimize or doctor does not find": lambda: gz.optimize(
        "my_graph", seeds="train_mask", num_neighbors=[2]
    ),
    "A budget below what Python takes": lambda: next(
        iter(gz.loader.NeighborLoader(gz.open("my_graph", memory="1MB"), [2]))
    ),
    "Something large is about to be in memory": much_in_memory,
}


def entries() -> Iterator[tuple[str, str]]:
    """Titles, and the text that is shown under each."""
    page = text_of(PAGE)
    lines = page.splitlines()
    for block in read_blocks(PAGE, page):
        above = (line for line in reversed(lines[: block.line - 1]) if line.startswith("### "))
        yield next(above).removeprefix("### "), " ".join(block.text.split())


def test_every_entry_has_a_text_that_is_raised():
    titles = [title for title, _ in entries()]
    assert titles == list(RAISES) == re.findall(r"^### (.*)", text_of(PAGE), re.MULTILINE)


@pytest.mark.parametrize(("title", "shown"), [*entries()])
def test_an_entry(title, shown, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gz.convert(GRAPH, "my_graph", progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(Exception) as caught:
            RAISES[title]()
    found = " ".join(f"{type(caught.value).__name__}: {caught.value}".split())
    pattern = ".*".join(re.escape(part.strip()) for part in shown.split("…"))
    assert re.fullmatch(pattern, found), found
