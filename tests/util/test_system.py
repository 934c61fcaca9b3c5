"""Requests to the operating system, such as the return of freed memory."""

import ctypes

import pytest
import pythons
from systems import needs_linux

# Frees 64 MB of malloc's own memory, of which something stays beside every piece.
FREED = """
    import numpy as np
    from pyg_graphzero.util import system

    MB = 1 << 20
    blocks = [(np.ones(64 << 10, np.uint8), np.ones(1 << 10, np.uint8)) for _ in range(1024)]
    kept = [small for _, small in blocks]
    before = system.private_rss()
    del blocks
    assert system.private_rss() > before - 16 * MB  # malloc keeps most of it
    system.return_freed_memory()
    assert system.private_rss() < before - 48 * MB
    assert len(kept) == 1024
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc's malloc")
@needs_linux("/proc tells what memory is a process's own")
def test_freed_memory_is_given_back():
    done = pythons.run(FREED)
    assert done.returncode == 0, done.stderr
