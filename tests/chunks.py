"""Chunks of loops over much data, made tiny: a few rows reach the second one, and the last.

A module or class of tests says ``pytestmark = chunks.both`` and runs twice.
"""

from __future__ import annotations

from importlib import import_module

import pytest

# By module: its constants that say how much is done at once, and what they are made.
TINY: dict[str, dict[str, int]] = {
    "columns": {"_DECODED_ROWS": 3, "_WRITE_BYTES": 64},
}

both = pytest.mark.parametrize("chunks", ["usual", "tiny"], indirect=True)


@pytest.fixture(autouse=True)
def chunks(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """As they are; or tiny, where a test asks for both."""
    if getattr(request, "param", "usual") == "tiny":
        for module, constants in TINY.items():
            for name, value in constants.items():
                monkeypatch.setattr(import_module(f"pyg_graphzero.{module}"), name, value)
