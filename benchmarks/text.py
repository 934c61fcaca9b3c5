"""Delimited text: from the file to rows on disk, to node ids, and to a store.

    python benchmarks/text.py --edges 10000000 --kind dense

Edges per second of CPU time and of wall time for each step, best of ``--repeat``. "parse" reads the
text into the spool, "plan" also settles the ids, "edges" reads all edges as the builder does, and
"store" is the whole of ``gz.convert``.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv

import pyg_graphzero as gz
from harness.record import in_turns, parser, record, write
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


def main(argv: list[str] | None = None) -> None:
    """Measures one kind of file."""
    made = parser("text", __doc__)
    made.add_argument("--kind", choices=KINDS, default="dense")
    made.add_argument("--edges", type=int, default=10_000_000)
    made.add_argument("--nodes", type=int, default=2_000_000)
    made.add_argument("--ids", choices=["auto", "dense", "map"], default="auto")
    made.add_argument("--memory", help="the budget; half of what is free by default")
    made.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    made.add_argument("--repeat", type=int, default=3)
    args = made.parse_args(argv)

    attrs = {"w": "w", "t": "t"} if args.kind == "weighted" else {}
    spec = GraphSpec({None: NodeSpec(ids=args.ids)}, [EdgeSpec(attrs=attrs)])
    with tempfile.TemporaryDirectory(dir=args.dir) as folder:
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
        runs = in_turns(steps, args.repeat)
        size = path.stat().st_size / args.edges
    rates = {
        name: {per: args.edges / min(run[per] for run in found) for per in found[0]}
        for name, found in runs.items()
    }
    for name, found in rates.items():
        print(f"{name:6} {found['cpu_seconds'] / 1e6:8.2f} M edges per CPU second")
    write(args.json, record(args, argv, bytes_per_edge=size, cache="warm", edges_per=rates))


if __name__ == "__main__":
    main()
