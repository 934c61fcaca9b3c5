"""Fixtures: small graphs, and the store they make.

They import torch and the package themselves: with ``-n``, the process that only hands out tests
would wait for that before it starts the others.
"""

from __future__ import annotations

import gc
import multiprocessing.util
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Generator
from pathlib import Path

import preload
import pytest
from chunks import chunks  # noqa: F401  (a fixture)
from filelock import FileLock
from hypothesis import settings

# Torch multiplies sparse matrices by MKL, whose AVX-512 code for it ends the process on some Intel
# machines (torch 2.13, two threads; no store is needed for that).
os.environ.setdefault("MKL_ENABLE_INSTRUCTIONS", "AVX2")

# Ignored where a shell runs the tests behind it, and then by each process that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)

# A busy machine is no failure: what takes too long is for benchmarks to say.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


def pytest_configure(config: pytest.Config) -> None:
    """With ``-n``, files are not synced, to save time; test_power_loss.py checks the syncs."""
    if getattr(config.option, "numprocesses", None) and "LD_PRELOAD" not in os.environ:
        folder = tempfile.TemporaryDirectory()
        config.add_cleanup(folder.cleanup)
        source = Path(preload.__file__).with_name("no_sync.c")
        os.environ["LD_PRELOAD"] = str(preload.compiled(source, Path(folder.name)))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Generator[None, object, object]:
    """Says in the last line what was left out, and why: nothing that could have been installed."""
    result = yield
    reporter = session.config.pluginmanager.getplugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    reasons = Counter(str(each.longrepr[-1]).removeprefix("Skipped: ") for each in skipped)
    if reporter and not hasattr(session.config, "workerinput"):
        why = "; ".join(f"{count} × {reason}" for reason, count in reasons.most_common())
        reporter.write_line(f"{len(skipped)} tests skipped{': ' * bool(why)}{why}")
    return result


@pytest.fixture(autouse=True, scope="module")
def _imported_once() -> None:
    """Imports leave a million objects, and each of many collections would look at all of them.

    Tests import too: torch's compiler alone is half a million.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _batches_as_pygs() -> Generator[None, None, None]:
    """A model that one test accelerates changes no batch of another one."""
    from pyg_graphzero.sampling.hops import want_hops

    yield
    want_hops(False)


@pytest.fixture(scope="session")
def built_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """``built_once(name, build)``: what ``build(path)`` makes, once for all workers of a run.

    No test changes it.
    """
    folder = tmp_path_factory.getbasetemp()
    folder = folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder

    def built(name: str, build: Callable[[Path], object]) -> Path:
        path = folder / name
        with FileLock(folder / f"{name}.lock"):
            if not path.exists():
                build(path)
        return path

    return built


def _made(kind: str, path: Path, built_once: Callable[..., Path]):
    import graphs
    import pyg_graphzero as gz

    data = getattr(graphs, kind)()
    made = built_once(path.name, lambda to: graphs.write_store(data, to))
    return data, gz.open(shutil.copytree(made, path))


@pytest.fixture
def homo(tmp_path: Path, built_once: Callable[..., Path]):
    """A random homogeneous graph in memory and a store of it."""
    return _made("homogeneous", tmp_path / "homo", built_once)


@pytest.fixture
def data(homo):
    """The graph of ``homo``, in memory."""
    return homo[0]


@pytest.fixture
def store(homo):
    """The store of ``homo``."""
    return homo[1]


@pytest.fixture
def hetero(tmp_path: Path, built_once: Callable[..., Path]):
    """A random heterogeneous graph in memory and a store of it."""
    return _made("heterogeneous", tmp_path / "hetero", built_once)


@pytest.fixture
def in_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder where copies go: ``tmp_path / "store"`` cannot be written to."""
    from pyg_graphzero.memory import making

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    outside = lambda folder: tmp_path / "store" not in folder.parents  # noqa: E731
    monkeypatch.setattr(making, "is_writable", outside)
    return tmp_path / "cache"


@pytest.fixture
def nothing_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables with an entry for every edge, or rows for every node, that would be in memory."""
    for name in ("edge_index", "edge_position", "whole"):
        never = lambda *_: pytest.fail("something of the size of edge_index was built")  # noqa: E731
        monkeypatch.setattr(f"pyg_graphzero.store.contents.StoreContents.{name}", never)


@pytest.fixture(autouse=True)
def _seed() -> None:
    import torch

    # Without a device, torch.manual_seed() notes for three of them who has asked, with the stack.
    if torch.cuda.is_available():
        torch.manual_seed(12345)
    torch.default_generator.manual_seed(12345)


@pytest.fixture(autouse=True, scope="session")
def _temporary_files(tmp_path_factory: pytest.TempPathFactory) -> None:
    """PyG leaves a file for each kind of layer; here it goes with the rest."""
    multiprocessing.util.get_temp_dir()  # removed at exit: by then all of pytest's is gone
    os.environ["TMPDIR"] = tempfile.tempdir = str(tmp_path_factory.mktemp("tmp"))
