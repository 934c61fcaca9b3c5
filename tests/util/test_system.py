"""What is asked of the operating system."""

import ctypes

import numpy as np
import pytest
from systems import needs_linux

from pyg_graphzero.util import system
from spawned import spawn

MB = 1 << 20


def free_and_look(rank):
    """Frees 64 MB of malloc's own memory, of which something stays beside every piece."""
    blocks = [(np.ones(64 << 10, np.uint8), np.ones(1 << 10, np.uint8)) for _ in range(1024)]
    kept = [small for _, small in blocks]
    before = system.private_rss()
    del blocks
    assert system.private_rss() > before - 16 * MB  # malloc keeps most of it
    system.return_freed_memory()
    assert system.private_rss() < before - 48 * MB
    assert len(kept) == 1024


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc's malloc")
@needs_linux("/proc tells what memory is a process's own")
def test_freed_memory_is_given_back():
    spawn(free_and_look, (), 1)
