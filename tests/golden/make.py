"""Writes the golden stores of all versions: ``python tests/golden/make.py [directory]``.

Committed once per format version and never written again; the test that makes them anew and
compares bytes shows that writers still write what was released.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from pyg_graphzero.store.csc import CscOptions, EdgeChunk
from pyg_graphzero.store.writer import StoreWriter

HERE = Path(__file__).parent

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
LIKES = ("author", "likes", "venue")
AUTHORS = ["Ada", "Émile", "", "李", "a b\tc"]


def make_hetero(path: Path) -> None:
    """Papers, authors and venues; papers 6 and 7 and all venues have no edge."""
    with StoreWriter(path, is_hetero=True) as store:
        store.add_node_type("paper", 8)
        store.add_node_type("author", len(AUTHORS))
        store.add_node_type("venue", 3)  # no features
        i = torch.arange(8)
        # 500 bytes a row, stored 512 apart.
        store.add_node_attr("paper", "x", i[:, None] + torch.arange(125) / 128)
        cube = i[:, None, None] * 6 + torch.arange(6).view(2, 3)
        store.add_node_attr("paper", "half", (cube / 4).to(torch.float16))
        store.add_node_attr("paper", "brain", (i * 1000.0).to(torch.bfloat16))
        store.add_node_attr("paper", "mask", i % 3 == 0)
        store.add_node_attr("paper", "nothing", torch.empty(8, 0))
        store.add_index_set("paper", "train_idx", torch.tensor([6, 0, 3]))
        store.add_node_ids("author", AUTHORS)
        # A triple edge, a self-loop, and an order that is not by destination.
        src = torch.tensor([1, 0, 0, 2, 0, 5, 4])
        dst = torch.tensor([3, 1, 1, 2, 1, 0, 3])
        columns = {"time": torch.arange(7, dtype=torch.int16) * 10}
        store.add_edge_type(CITES, [EdgeChunk(src, dst, columns)])
        # Sorted by destination already: no edge_id column.
        writes = EdgeChunk(torch.tensor([4, 0, 1]), torch.tensor([0, 2, 5]))
        store.add_edge_type(WRITES, [writes])
        store.add_edge_type(LIKES, [])
        store.add_graph_attr("scale", torch.tensor(0.5, dtype=torch.float64))
        store.add_graph_attr("title", "golden ✓")
        store.add_graph_attr("year", 2024)
        store.add_graph_attr("ratio", 0.1)
        store.finish()


def make_homogeneous(path: Path) -> None:
    """A ring of five with a sixth, isolated node; ids 10, 20 … 60."""
    with StoreWriter(path, is_hetero=False) as store:
        store.add_node_type(None, 6)
        store.add_node_attr(None, "x", torch.arange(12, dtype=torch.float32).view(6, 2))
        store.add_node_attr(None, "y", torch.arange(6, dtype=torch.uint8) % 2)
        store.add_node_ids(None, torch.arange(10, 70, 10))
        i = torch.arange(5)
        ring = EdgeChunk(i, (i + 1) % 5, {"edge_weight": i.to(torch.float64) / 8})
        store.add_edge_type(None, [ring])
        store.finish()


def make_ordered(path: Path) -> None:
    """The papers and authors of ``make_hetero`` as far as order matters; authors have none."""
    order = torch.tensor([3, 1, 0, 4, 2, 5, 6, 7], dtype=torch.int32)
    rank = torch.empty_like(order)
    rank[order.long()] = torch.arange(8, dtype=torch.int32)
    with StoreWriter(path, is_hetero=True) as store:
        store.add_node_type("paper", 8)
        store.add_node_type("author", len(AUTHORS))
        x = torch.arange(8)[:, None] + torch.arange(125) / 128
        store.add_node_attr("paper", "x", x[order.long()])
        store.add_node_attr("paper", "y", order.to(torch.float32), encoding="float16")
        store.add_node_order("paper", order, rank)
        store.add_index_set("paper", "train_idx", torch.tensor([6, 0, 3]))
        store.add_node_ids("paper", torch.arange(10, 90, 10))
        store.add_node_attr("author", "age", torch.arange(5))
        src = torch.tensor([1, 0, 0, 2, 0, 5, 4])
        dst = torch.tensor([3, 1, 1, 2, 1, 0, 3])
        columns = {"time": torch.arange(7, dtype=torch.int16) * 10}
        store.add_edge_type(CITES, [EdgeChunk(rank[src], rank[dst], columns)])
        store.add_edge_type(WRITES, [EdgeChunk(torch.tensor([4, 0, 1]), rank[[0, 2, 5]])])
        store.set_optimized({"seeds": "train_idx", "num_neighbors": [-1, -1]})
        store.finish()


def make_unnumbered(path: Path) -> None:
    """The edges of ``make_hetero``: those of papers in both directions, and none has an id."""
    with StoreWriter(path, is_hetero=True) as store:
        store.add_node_type("paper", 8)
        store.add_node_type("author", len(AUTHORS))
        store.add_node_attr("paper", "x", torch.arange(8.0)[:, None])
        src = torch.tensor([1, 0, 0, 2, 0, 5, 4])
        dst = torch.tensor([3, 1, 1, 2, 1, 0, 3])
        options = CscOptions(undirected=True, coalesce="first", edge_ids=False)
        store.add_edge_type(CITES, [EdgeChunk(src, dst)], options=options)
        writes = EdgeChunk(torch.tensor([4, 0, 1]), torch.tensor([0, 2, 5]))
        store.add_edge_type(WRITES, [writes])
        store.finish()


def make(directory: Path) -> None:
    """All stores, in ``directory``."""
    for version in ("v1", "v2", "v3"):
        (directory / version).mkdir(parents=True, exist_ok=True)
    make_hetero(directory / "v1" / "hetero")
    make_homogeneous(directory / "v1" / "homogeneous")
    make_ordered(directory / "v2" / "ordered")
    make_unnumbered(directory / "v3" / "unnumbered")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
