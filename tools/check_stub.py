"""Compares the committed `_core.pyi` with what the built module says; `--write` updates it."""

from __future__ import annotations

import difflib
import importlib.util
import sys
from pathlib import Path

import torch  # noqa: F401  (its OpenMP runtime first)
from nanobind.stubgen import StubGen

import pyg_graphzero._core as core

STUB = Path(__file__).resolve().parent.parent / "pyg_graphzero" / "_core.pyi"


def generate() -> str:
    """The stub of the module that is installed."""
    generator = StubGen(core)
    generator.put(core)
    return str(generator.get())


def main() -> int:
    """Exits 1 and prints the difference when the stub is stale."""
    assert importlib.util.find_spec("pyg_graphzero._core") is not None
    fresh = generate()
    if "--write" in sys.argv:
        STUB.write_text(fresh)
        return 0
    committed = STUB.read_text() if STUB.exists() else ""
    if committed == fresh:
        return 0
    sys.stderr.writelines(
        difflib.unified_diff(
            committed.splitlines(True), fresh.splitlines(True), "committed", "generated"
        )
    )
    print(f"{STUB.name} is stale: python tools/check_stub.py --write", file=sys.stderr)
    return 1


if __name__ == "__main__":
    raise SystemExit(main())
