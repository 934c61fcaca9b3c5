"""Tests of what one system alone has."""

import pytest

from pyg_graphzero import _core


def needs_linux(why: str) -> pytest.MarkDecorator:
    """Skips a test, or all of a module, where the engine is built for another system."""
    return pytest.mark.skipif(_core.system != "linux", reason=f"needs Linux: {why}")
