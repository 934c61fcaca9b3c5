"""Tables of a PostgreSQL server, fetched by ADBC: the tests start one of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from convert_support import edges_of, refused
from documents import read_blocks, run, text_of

import pyg_graphzero as gz
from pyg_graphzero.util.workspace import Workspace

adbc = pytest.importorskip("adbc_driver_postgresql.dbapi")

NUM_EDGES = 5000


@pytest.fixture(scope="module")
def server():
    """A server in a folder of its own, reached by the environment; it refuses to run as root."""
    # Debian has the programs in no PATH.
    initdb = shutil.which("initdb") or next(Path("/usr/lib/postgresql").glob("*/bin/initdb"), None)
    if initdb is None:
        pytest.skip("no PostgreSQL server is installed")
    bin, is_root = Path(initdb).resolve().parent, os.geteuid() == 0
    folder = Path(tempfile.mkdtemp(prefix="pg", dir="/tmp"))  # the tests' own is closed to others
    who = {"user": "nobody"} if is_root else {}
    if is_root:
        shutil.chown(folder, "nobody")
    data = folder / "data"
    settings = f"-k {folder} -c listen_addresses='' -c fsync=off"

    def call(program, *arguments):
        command = [bin / program, "-D", data, *arguments]
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, timeout=120, **who
        )
        assert done.returncode == 0, done.stdout + done.stderr

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PGHOST", str(folder))
        patch.setenv("PGUSER", "tests")
        patch.setenv("PGDATABASE", "postgres")
        try:
            call("initdb", "--username=tests", "--auth=trust", "--encoding=UTF8", "--no-sync")
            call("pg_ctl", "--wait", f"--log={folder / 'log'}", "-o", settings, "start")
            yield
            call("pg_ctl", "--mode=immediate", "stop")
        finally:
            shutil.rmtree(folder)


def cursor_of(query: str, stack: ExitStack) -> object:
    """A cursor with a connection of its own, which hands its rows over in small batches."""
    connection = stack.enter_context(adbc.connect("postgresql://"))
    cursor = stack.enter_context(connection.cursor())
    cursor.adbc_statement.set_options(**{"adbc.postgresql.batch_size_hint_bytes": 4096})
    cursor.execute(query)
    return cursor


@pytest.fixture
def opened():
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def written(server, opened):
    """Payments and accounts, as they went into the database."""
    rng = np.random.default_rng(0)
    ids = 7 * rng.permutation(300) + 3
    payments = pa.table(
        {
            "payer": rng.choice(ids, NUM_EDGES),
            "payee": rng.choice(ids, NUM_EDGES),
            "amount": rng.normal(size=NUM_EDGES),
            "number": np.arange(NUM_EDGES),
        }
    )
    x = rng.normal(size=(300, 3)).astype(np.float32)
    accounts = pa.table(
        {
            "account": ids,
            "x": pa.FixedSizeListArray.from_arrays(x.ravel(), 3).cast(pa.list_(pa.float32())),
            "country": [("at", "ch", "de")[each % 3] for each in range(300)],
        }
    )
    with adbc.connect("postgresql://") as connection, connection.cursor() as cursor:
        cursor.adbc_ingest("paid", payments, mode="replace")
        cursor.adbc_ingest("accounts", accounts, mode="replace")
        connection.commit()
    return payments, accounts


@pytest.mark.parametrize("in_memory", [True, False])
def test_tables_arrive_as_they_were_written(tmp_path, monkeypatch, written, opened, in_memory):
    payments, accounts = written
    monkeypatch.setattr(Workspace, "hold", lambda space, size: in_memory)
    summary = gz.convert(
        cursor_of("SELECT * FROM paid ORDER BY number", opened),
        tmp_path / "s",
        edge_attrs=["amount"],
        nodes=cursor_of("SELECT account, x, country FROM accounts", opened),
        node_attrs={"x": "x", "y": "country"},
    )
    assert summary.num_edges == NUM_EDGES
    columns = payments.select(["payer", "payee", "amount"]).to_pydict()
    assert edges_of(tmp_path / "s", None, "amount") == [*zip(*columns.values(), strict=True)]
    store = gz.open(tmp_path / "s")
    nodes = accounts.to_pydict()
    assert store.ids().tolist() == nodes["account"]
    assert store.data().x.tolist() == nodes["x"]
    names = store.categories("y")
    assert [names[code] for code in store.data().y.tolist()] == nodes["country"]


@pytest.mark.parametrize(
    ("columns", "attrs", "message"),
    [
        ("payer, payee, amount::numeric AS w", ["w"], r"'w'.* CAST\(w AS DOUBLE PRECISION\)"),
        ("payer, gen_random_uuid() AS payee", [], r"'payee'.*uuid.* CAST\(payee AS .* TEXT"),
        ("payer::numeric, payee::numeric", [], r"'payer'.*numeric.* CAST\(payer AS BIGINT\)"),
        ("payer, NULLIF(payee, payee) AS payee", [], "row 0, column 'payee': found null"),
    ],
)
def test_types_that_are_none_of_ours(tmp_path, written, opened, columns, attrs, message):
    cursor = cursor_of(f"SELECT {columns} FROM paid", opened)
    refused(cursor, tmp_path / "s", message, edge_attrs=attrs)


def test_the_page(tmp_path, monkeypatch, server):
    monkeypatch.chdir(tmp_path)
    page = "docs/convert.md"
    blocks = [each for each in read_blocks(page, text_of(page)) if "postgresql" in each.text]
    assert blocks
    for block in blocks:
        run(block, {"gz": gz})
    (path,) = (each.parent for each in tmp_path.glob("*/store.json"))
    assert gz.open(path).num_edges == 2
