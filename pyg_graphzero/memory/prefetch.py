"""Files that are to be in memory, read into the page cache at the disk's full speed.

A mapped file is read page by page as it is touched, at some ten thousand pages a second, by a disk
that reads a gigabyte a second in a row. So a store that fits is read once, from front to back,
while the first batches are made.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.util.system import prefetch

# Bytes that the disk is asked for at once.
_PIECE = 8 << 20


def prefetch_files(contents: StoreContents, files: Collection[str]) -> threading.Thread:
    """Has columns and topologies of a store read; see :func:`prefetch_all`."""
    paths = [contents.column(file).path for file in contents.columns if file in files]
    for t in contents.schema.edge_types:
        if t.topology in files:
            paths.append(contents.topology(t.name).path)
    return prefetch_all([Path(path) for path in paths])


def prefetch_all(paths: Sequence[Path]) -> threading.Thread:
    """Starts a thread that reads files into the page cache, one after the other.

    A file that cannot be opened is left out: opening it for use raises the error.
    """
    thread = threading.Thread(
        target=_prefetch, args=(paths,), daemon=True, name="graphzero-prefetch"
    )
    thread.start()
    return thread


def _prefetch(paths: Sequence[Path]) -> None:
    for path in paths:
        with suppress(OSError):
            prefetch(path, _PIECE)
