"""Writes the golden stores: ``python tests/golden/make.py [directory]``.

They have everything that a store may have. Stores of a released format are never written again; the
test that makes them anew and compares bytes shows that writers still write what was released.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

from pyg_graphzero.store.csc import CscOptions, EdgeChunk
from pyg_graphzero.store.rows import ArrayRows, FileRows
from pyg_graphzero.store.writer import StoreWriter

HERE = Path(__file__).parent

CITES = ("paper", "cites", "paper")
WRITES = ("author", "writes", "paper")
LIKES = ("author", "likes", "venue")
RATES = ("author", "rates", "venue")
NEAR = ("venue", "near", "venue")
AUTHORS = ["Ada", "Émile", "", "李", "a b\tc"]


def make_hetero(path: Path) -> None:
    """Papers, authors and venues; papers 6 and 7 have no edge."""
    with StoreWriter(path, is_hetero=True) as store:
        store.add_node_type("paper", 8)
        store.add_node_type("author", len(AUTHORS))
        store.add_node_type("venue", 3)  # no features
        hashes = torch.tensor([-1, 5, -(1 << 63)]).view(torch.uint64)  # 2^64 − 1, 5, 2^63
        store.add_node_ids("venue", ArrayRows(hashes))
        i = torch.arange(8)
        # 500 bytes a row, stored 512 apart.
        store.add_node_attr("paper", "x", i[:, None] + torch.arange(125) / 128)
        cube = i[:, None, None] * 6 + torch.arange(6).view(2, 3)
        store.add_node_attr("paper", "half", (cube / 4).to(torch.float16))
        store.add_node_attr("paper", "brain", (i * 1000.0).to(torch.bfloat16))
        store.add_node_attr("paper", "mask", i % 3 == 0)
        store.add_node_attr("paper", "nothing", torch.empty(8, 0))
        store.add_node_attr("paper", "topic", torch.tensor([1, 0, -1, 2, 1, 1, 0, -1]))
        store.add_categories("paper", "topic", ["", "Käse", "李"])
        store.add_index_set("paper", "train_idx", torch.tensor([6, 0, 3]))
        store.add_node_ids("author", AUTHORS)
        square = torch.arange(5)[:, None] * torch.tensor([1.0, -0.5, 0.0])
        for encoding in ("float16", "bfloat16", "int8"):
            store.add_node_attr("author", f"by {encoding}", square, encoding=encoding)
        # A triple edge, a self-loop, and an order that is not by destination.
        src = torch.tensor([1, 0, 0, 2, 0, 5, 4])
        dst = torch.tensor([3, 1, 1, 2, 1, 0, 3])
        columns = {"time": torch.arange(7, dtype=torch.int16) * 10}
        columns["why"] = torch.tensor([0, 1, 1, 0, 1, 0, 0])
        store.add_edge_type(CITES, [EdgeChunk(src, dst, columns)])
        store.add_categories(CITES, "why", ["extends", "refutes"], of_edges=True)
        # Sorted by destination already: no edge_id column.
        writes = EdgeChunk(torch.tensor([4, 0, 1]), torch.tensor([0, 2, 5]))
        store.add_edge_type(WRITES, [writes])
        store.add_edge_type(LIKES, [])
        # Sorted by time, and in both directions.
        columns = {"when": torch.tensor([5, 3, 4, 1, 3, 2])}
        rates = EdgeChunk(
            torch.tensor([0, 1, 2, 0, 3, 4]), torch.tensor([1, 1, 1, 0, 1, 0]), columns
        )
        by_time = CscOptions(bipartite=True, time_attr="when")
        store.add_edge_type(RATES, [rates], options=by_time, both_directions=True)
        # Without ids; the edges of the input, then the reverse ones.
        near = EdgeChunk(torch.tensor([2, 2, 1]), torch.tensor([0, 0, 0]))
        options = CscOptions(undirected=True, coalesce="first", edge_ids=False)
        store.add_edge_type(NEAR, [near], options=options, both_directions=True)
        store.add_graph_attr("pairs", torch.tensor([[1, 0], [3, 2]]), CITES)
        store.add_graph_attr("country", "Iceland", "venue")
        store.add_graph_attr("scale", torch.tensor(0.5, dtype=torch.float64))
        store.add_graph_attr("title", "golden ✓")
        store.add_graph_attr("year", 2024)
        store.add_graph_attr("ratio", 0.1)
        store.finish()


def make_homogeneous(path: Path) -> None:
    """A ring of five with a sixth, isolated node; ids 10, 20 … 60; rows in a file beside it."""
    rows = path.with_name("rows.bin")
    rows.write_bytes(bytes(16) + torch.arange(18, dtype=torch.int16).numpy().tobytes())
    with StoreWriter(path, is_hetero=False) as store:
        store.add_node_type(None, 6)
        store.add_node_attr(None, "x", torch.arange(12, dtype=torch.float32).view(6, 2))
        store.add_node_attr(None, "y", torch.arange(6, dtype=torch.uint8) % 2)
        store.adopt_node_attr(None, "z", FileRows(rows, 16, (6, 3), torch.int16))
        store.add_node_ids(None, torch.arange(10, 70, 10))
        i = torch.arange(5)
        ring = EdgeChunk(i, (i + 1) % 5, {"edge_weight": i.to(torch.float64) / 8})
        store.add_edge_type(None, [ring])
        store.finish()


def make(directory: Path) -> None:
    """All stores, in ``directory``."""
    (directory / "v1").mkdir(parents=True, exist_ok=True)
    make_hetero(directory / "v1" / "hetero")
    make_homogeneous(directory / "v1" / "homogeneous")


if __name__ == "__main__":
    make(Path(sys.argv[1]) if len(sys.argv) > 1 else HERE)
