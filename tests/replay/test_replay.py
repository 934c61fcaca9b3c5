"""The recording and the script have the same names, and the code does what is recorded."""

from __future__ import annotations

import pytest
from paging import paged

from replay import batches, run


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return batches.make_stores(tmp_path_factory.mktemp("stores"))


def test_the_recording_has_the_names_of_the_script():
    assert list(run.recorded()) == run.names()


@pytest.mark.parametrize("name", batches.QUICK)
def test_batches_are_what_they_were(stores, name):
    assert batches.replayed(name, stores) == run.recorded()[f"batches/{name}"]


@pytest.mark.parametrize("name", ["uniform", "temporal", "int8", "types", "links"])
def test_they_are_the_same_from_disk(stores, name):
    with paged():
        assert batches.replayed(name, stores) == run.recorded()[f"batches/{name}"]


@pytest.mark.long
def test_batches_and_stores(capsys):
    """Reads, and the batches made of them, wait for threads to rest: `make replay` has these."""
    names = [n for n in run.names() if not n.startswith(("reads/", run.OUT_OF_CORE))]
    assert run.main(names) == 0, capsys.readouterr().out
