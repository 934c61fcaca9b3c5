"""Processes of a test: they end within a time, or the test fails and none is left."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

# For the environment of processes whose memory is looked at: large blocks go back when freed.
# glibc alone raises this threshold as it goes, and then keeps up to 64 MB of what is freed.
EXACT_MALLOC = ("MALLOC_MMAP_THRESHOLD_", str(1 << 20))

PATIENCE = 120.0  # seconds; each of these ends within ten on an idle machine


def forked() -> Any:
    """Processes forked from one that imports torch and PyG once, and has done nothing else.

    They leave without the end of the interpreter: a test that is about it calls ``pythons.end``.
    """
    context = torch.multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "torch_geometric.nn", "pyg_graphzero"])
    return context


def spawn(
    function: Callable[..., None], args: tuple[Any, ...], size: int, method: str = "spawn"
) -> None:
    """Calls ``function(rank, *args)`` in ``size`` new processes and waits for them.

    ``torch.multiprocessing.start_processes`` alone waits for ever for one that hangs, and Python
    at its exit once more.
    """
    context = torch.multiprocessing.start_processes(
        function, args, nprocs=size, join=False, start_method=method
    )
    end = time.monotonic() + PATIENCE
    try:
        while not context.join(timeout=1.0):  # raises what a rank has raised
            if time.monotonic() > end:
                pytest.fail(f"{size} processes did not end within {PATIENCE:.0f} s")
    finally:
        for process in context.processes:
            process.kill()


def run_ranks(task: Callable[..., None], ranks: int, folder: Path, *args: object) -> None:
    """Runs ``task(rank, …)`` in a process for each rank of a group."""
    forked()
    spawn(_join_group, (task, ranks, f"file://{folder}/ranks", args), ranks, "forkserver")


@contextmanager
def two_ranks(task: Callable[..., None], place: Path, *args: object) -> Iterator[list[Any]]:
    """Processes of two ranks, which may be killed; none is left."""
    of_both = (task, 2, f"file://{place}", args)
    ranks = [forked().Process(target=_join_group, args=(rank, *of_both)) for rank in range(2)]
    try:
        for process in ranks:
            process.start()
        yield ranks
    finally:
        for process in ranks:
            process.kill()


def _join_group(rank: int, task: Callable[..., None], ranks: int, place: str, args: Any) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=place, rank=rank, world_size=ranks)
    task(rank, *args)
