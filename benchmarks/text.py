"""Delimited text: from the file to rows on disk, to node ids, and to a store.

Prints a JSON object: edges per second of CPU time and of wall time for each step, best of
``--repeat``. "parse" reads the text into the spool, "plan" also settles the ids, "edges" reads all
edges as the builder does, and "store" is the whole of ``gz.convert``.

    python benchmarks/text.py --edges 10000000 --kind dense
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

import pyg_graphzero as gz
from pyg_graphzero.convert import text
from pyg_graphzero.convert.blocks import Places
from pyg_graphzero.convert.dialect import sniff
from pyg_graphzero.convert.faults import Faults
from pyg_graphzero.convert.files import plan_files
from pyg_graphzero.convert.options import Dtypes, Selection
from pyg_graphzero.convert.plan import EdgeOptions
from pyg_graphzero.convert.sources import Inputs
from pyg_graphzero.convert.spec import EdgeSpec, GraphSpec, NodeSpec
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

KINDS = ("dense", "sparse", "text", "weighted")
_WRITTEN_AT_ONCE = 1 << 20


def write_edges(path: Path, kind: str, num_edges: int, num_nodes: int) -> None:
    """A file of random edges; their ids are rows, 62-bit numbers or words."""
    rng = np.random.default_rng(0)
    names = np.arange(num_nodes) if kind != "sparse" else rng.integers(0, 1 << 62, num_nodes)
    header = ["src", "dst"] + (["w", "t"] if kind == "weighted" else [])
    types = [pa.string() if kind == "text" else pa.int64()] * 2
    schema = pa.schema(zip(header, [*types, pa.float64(), pa.int64()], strict=False))
    options = pacsv.WriteOptions(quoting_style="none")
    with pacsv.CSVWriter(str(path), schema, write_options=options) as writer:
        for begin in range(0, num_edges, _WRITTEN_AT_ONCE):
            count = min(_WRITTEN_AT_ONCE, num_edges - begin)
            columns = [pa.array(names[rng.integers(0, num_nodes, count)]) for _ in range(2)]
            if kind == "text":
                words = [pc.cast(column, pa.string()) for column in columns]
                columns = [pc.binary_join_element_wise("user_", word, "") for word in words]
            if kind == "weighted":
                columns += [pa.array(rng.random(count)), pa.array(rng.integers(0, 1 << 31, count))]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


@contextmanager
def opened(out: Path, memory: str | None) -> Iterator[Inputs]:
    """What a conversion reads through."""
    with Workspace(out, memory) as space:
        yield Inputs(Path(), out, Dtypes(None, None), Progress(False), space, Faults())


def main() -> None:
    """Measures one kind of file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", choices=KINDS, default="dense")
    parser.add_argument("--edges", type=int, default=10_000_000)
    parser.add_argument("--nodes", type=int, default=2_000_000)
    parser.add_argument("--ids", choices=["auto", "dense", "map"], default="auto")
    parser.add_argument("--memory", help="the budget; half of what is free by default")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--repeat", type=int, default=3)
    args = parser.parse_args()

    attrs = {"w": "w", "t": "t"} if args.kind == "weighted" else {}
    spec = GraphSpec({None: NodeSpec(ids=args.ids)}, [EdgeSpec(attrs=attrs)])
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        path, out = Path(folder) / "edges.csv", Path(folder) / "store"
        write_edges(path, args.kind, args.edges, args.nodes)
        spec.edges[0].file = path

        def parse() -> None:
            kind = text.TEXT if args.kind == "text" else text.ID
            columns = {0: text.Column(kind), 1: text.Column(kind)}
            for _ in text.read(Places(sniff([path])), columns, Faults(), Progress(False)):
                pass

        def plan(read: bool) -> None:
            with opened(out, args.memory) as inputs:
                graph = plan_files(spec, EdgeOptions(), Selection(None, ()), inputs)
                for _ in graph.edges[None].chunks() if read else ():
                    pass

        def store() -> None:
            gz.convert(
                path,
                out,
                edge_attrs=attrs,
                ids=args.ids,
                memory=args.memory,
                force=True,
                progress=False,
            )

        steps: dict[str, Callable[[], None]] = {
            "parse": parse,
            "plan": lambda: plan(read=False),
            "edges": lambda: plan(read=True),
            "store": store,
        }
        rates = {name: measure(step, args.edges, args.repeat) for name, step in steps.items()}
        size = path.stat().st_size
    print(
        json.dumps(
            {
                "kind": args.kind,
                "ids": args.ids,
                "edges": args.edges,
                "nodes": args.nodes,
                "bytes_per_edge": round(size / args.edges, 1),
                "memory": args.memory,
                "cores": len(os.sched_getaffinity(0)),
                "machine": platform.processor() or platform.machine(),
                "cache": "warm",
                "edges_per_second": rates,
            },
            indent=2,
        )
    )


def measure(step: Callable[[], None], num_edges: int, repeat: int) -> dict[str, int]:
    """Edges per second of CPU time and of wall time, the best of ``repeat`` runs."""
    cpu, wall = [], []
    for _ in range(repeat):
        started = time.process_time(), time.perf_counter()
        step()
        cpu.append(time.process_time() - started[0])
        wall.append(time.perf_counter() - started[1])
    return {"cpu": round(num_edges / min(cpu)), "wall": round(num_edges / min(wall))}


if __name__ == "__main__":
    main()
