"""Progress bars: where they are shown, and where not."""

from __future__ import annotations

import sys
from types import ModuleType, SimpleNamespace

import pytest
import tqdm
import tqdm.auto

from pyg_graphzero.util.progress import Progress


def kernel(monkeypatch, config):
    ipython = ModuleType("IPython")
    ipython.get_ipython = lambda: SimpleNamespace(config=config)
    monkeypatch.setitem(sys.modules, "IPython", ipython)


def test_bars_are_shown_in_notebooks(monkeypatch):
    assert not Progress().enabled  # no terminal
    kernel(monkeypatch, {"IPKernelApp": {}})
    assert Progress().enabled
    assert not Progress(False).enabled
    kernel(monkeypatch, {"TerminalIPythonApp": {}})
    assert not Progress().enabled


@pytest.mark.parametrize(("show", "module"), [(True, tqdm.auto), (False, tqdm)])
def test_a_bar_is_such_as_its_place_has(show, module):
    with Progress(show).step("title", 10) as bar:
        assert type(bar) is module.tqdm
        assert bar.disable is not show
        bar.update(3)
        assert bar.n == (3 if show else 0)
