"""The installed package: one OpenMP runtime, one module for every Python, types, a version."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

import pyg_graphzero as gz
from pyg_graphzero import _core

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def imported(built_once: Callable[..., Path]) -> dict[str, Any]:
    """Findings of a new process that has set torch's threads, then imported the package."""
    code = """if True:
        import json, sys, torch
        torch.set_num_threads(3)
        import torch_geometric.data, torch_geometric.loader, torch_geometric.nn
        of_pyg = set(sys.modules)  # pandas is among them, where it is installed
        spaces = {n: vars(m) for n, m in sys.modules.items() if n.startswith("torch_geometric")}
        classes = [c for space in spaces.values() for c in space.values() if isinstance(c, type)]
        spaces |= {str(c): vars(c) for c in classes if c.__module__ in spaces}
        before = {name: dict(space) for name, space in spaces.items()}
        from pyg_graphzero import _core
        import pyg_graphzero
        modules = [name for name in sys.modules if name not in of_pyg]
        patched = [name for name, space in spaces.items() if space != before[name]]
        sys.modules["lightning"] = sys.modules["pytorch_lightning"] = None  # as if not installed
        try:
            pyg_graphzero.loader.LightningNodeData(torch_geometric.data.Data(), loader="full")
        except ModuleNotFoundError as error:
            without_lightning = str(error)
        torch.randn(500, 500) @ torch.randn(500, 500)
        threads = _core.num_threads(), _core.num_threads(2)
        maps = open("/proc/self/maps").read()
        found = {"modules": modules, "threads": threads, "maps": maps, "patched": patched}
        print(json.dumps(found | {"without_lightning": without_lightning}))
    """

    def build(path: Path) -> None:
        path.write_bytes(subprocess.check_output([sys.executable, "-c", code]))

    return json.loads(built_once("imported.json", build).read_text())


def test_one_openmp_runtime_and_it_is_torchs(imported):
    runtimes = {
        line.split()[-1]
        for line in imported["maps"].splitlines()
        if re.search(r"lib(gomp|omp|iomp5)[-.\w]*\.so", line)
    }
    assert len(runtimes) == 1
    assert "torch" in runtimes.pop()


def test_torch_decides_the_number_of_threads(imported):
    assert imported["threads"] == [3, 2]


def test_importing_imports_nothing_optional(imported):
    """Lightning alone takes as long as torch."""
    assert not {"lightning", "matplotlib", "scipy", "pandas"} & set(imported["modules"])
    assert "pip install lightning" in imported["without_lightning"]


def test_importing_patches_nothing_of_pyg(imported):
    assert imported["patched"] == []


def test_completion_shows_public_names():
    """Completion of ``gz.`` offers public names, no modules that are loaded."""
    assert set(dir(gz)) == {*gz.__all__, "__version__"}
    assert len(dir(gz)) < 45
    for name in ("convert", "doctor", "info", "open", "optimize", "verify"):
        assert callable(getattr(gz, name))


@pytest.mark.long
def test_batches_have_the_type_of_the_graph(tmp_path):
    mypy = pytest.importorskip("mypy.api")
    script = tmp_path / "script.py"
    script.write_text(
        "import pyg_graphzero as gz\n"
        "class Mine: ...\n"
        "def train(mine: Mine, store: gz.Store) -> None:\n"
        "    for batch in gz.loader.NeighborLoader(mine, [2]):\n"
        "        reveal_type(batch)\n"
        "    for batch in gz.loader.LinkNeighborLoader(store.data(Mine), [2]):\n"
        "        reveal_type(batch)\n"
    )
    config = str(ROOT / "pyproject.toml")
    shown, errors, code = mypy.run(["--config-file", config, str(script)])
    assert (errors, code) == ("", 0), shown
    assert re.findall(r'script.py:(\d+): note: Revealed type is "script.Mine"', shown) == ["5", "7"]


def test_the_oldest_versions_are_those_that_are_declared():
    """``make test-oldest`` tries every declared lower bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = project["dependencies"] + project["optional-dependencies"]["test"]
    lowest = (re.match(r"([\w-]+)>=([\d.]+)", each) for each in declared)
    found = (
        re.match(r"([\w-]+)==([\d.]+)", line)
        for line in (ROOT / "constraints-oldest.txt").read_text().splitlines()
        if not line.startswith("#")
    )

    def versions(matches):
        return {each[1]: [*map(int, each[2].split(".")), 0, 0][:3] for each in matches}

    assert versions(found) == versions(lowest)


def test_one_module_for_every_python():
    assert _core.__file__.endswith(".abi3.so")


def test_the_module_does_not_link_libtorch():
    linked = subprocess.run(["ldd", _core.__file__], capture_output=True, text=True).stdout
    assert "libtorch" not in linked
    assert "libpython" not in linked


def test_the_engine_knows_no_python():
    for source in (ROOT / "csrc").rglob("*.[ch]*"):
        if source.parent.name != "bindings":
            assert not re.search(
                r"#include *[<\"](Python\.h|nanobind|torch|ATen)", source.read_text()
            )
        assert "#pragma omp" not in source.read_text()


def test_folders_of_the_engine_use_those_above_them():
    table = (ROOT / "CONTRIBUTING.md").read_text()
    folders = re.findall(r"^\| `csrc/(\w+)/`", table, re.MULTILINE)
    assert set(folders) == {path.name for path in (ROOT / "csrc").iterdir()}
    for source in (ROOT / "csrc").rglob("*.[ch]*"):
        for used in re.findall(r'#include "(\w+)/', source.read_text()):
            assert folders.index(used) <= folders.index(source.parent.name), (source, used)


def test_an_encoding_is_one_file_and_a_row_of_the_table():
    for source in (ROOT / "csrc").rglob("*.[ch]*"):
        if source.parent.name != "storage" or not source.name.startswith("encoding"):
            assert not re.search(r"Encoding::k|kInt8|kB?Float16\b", source.read_text()), source


def test_version_and_types():
    assert gz.__version__ == version("pyg_graphzero")
    package = Path(gz.__file__).parent
    assert (package / "py.typed").exists()
    assert (package / "_core.pyi").exists()
