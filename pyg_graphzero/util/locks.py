"""Locks on directories: one writer at a time for a store, and for a store in the making.

The lock is that of the operating system on a file called ``lock``, so that it ends with its holder:
a directory left behind by a killed process can be told from one in use.
"""

from __future__ import annotations

import errno
import gc
import glob
import os
import secrets
import shutil
from pathlib import Path

from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.errors import StoreInUseError, StoreReplacedError
from pyg_graphzero.util.names import locate
from pyg_graphzero.util.system import lock_holder

LOCK_FILE = "lock"


class StoreLock:
    """The right to change the store at a path. Use as a context manager, or call ``release()``.

    A writer that replaces a store holds it too, so that no changes go to a store that is being
    deleted.

    Args:
        store: The store's directory.

    Raises:
        StoreInUseError: Another handle holds it; says which process.
        FormatError: The lock is no regular file.
        FileNotFoundError: There is no such directory.
    """

    def __init__(self, store: Path) -> None:
        self.store = store
        path = locate(store, LOCK_FILE)
        self._lock: _core.LockFile | None = None
        was_refused = False
        while self._lock is None:
            try:
                lock = _core.LockFile.acquire(str(path))
            except BlockingIOError:
                if was_refused:
                    raise StoreInUseError(
                        errno.EAGAIN, f"the store is open for writing {_holder(path)}", str(path)
                    ) from None
                was_refused = True
                gc.collect()  # a handle that is garbage may hold it
                continue
            if lock.is_in_place():  # else the store was replaced between open and lock
                self._lock = lock

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.release()

    def release(self) -> None:
        """Lets others have it."""
        self._lock = None

    def is_in_place(self) -> bool:
        """Whether the store that is locked is still the one at the path."""
        return self._lock is not None and self._lock.is_in_place()

    def check(self) -> None:
        """Raises StoreReplacedError if what is at the path by now is another store, or nothing."""
        if not self.is_in_place():
            raise StoreReplacedError(
                errno.ESTALE,
                "the store was moved, deleted or replaced while it was open for writing, and is "
                "not written to; open it again",
                str(self.store),
            )


def _holder(lock: Path) -> str:
    """Which process holds a lock, as far as the system says."""
    found = lock_holder(lock)
    if found is None:
        return "by another process"
    pid, command = found
    if pid == os.getpid():
        return "in this process: close the handle that has it first"
    return f"by process {pid} ({command[:80]})"


def make_scratch(target: Path, kind: str, mode: int = 0o777) -> tuple[Path, _core.LockFile]:
    """A fresh sibling directory of ``target``, and the lock that says its writer lives.

    Args:
        target: The store that is being made.
        kind: Use of the directory, ``"partial"`` (the store) or ``"scratch"``.
        mode: Permissions of the directory.
    """
    while True:
        scratch = _scratch_name(target, kind)
        scratch.mkdir(mode)
        try:
            lock = _core.LockFile.acquire(str(scratch / LOCK_FILE))
        except (FileNotFoundError, BlockingIOError):
            continue  # another writer saw it unlocked and removes it
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        if lock.is_in_place():
            return scratch, lock


def remove_abandoned(target: Path, kind: str) -> None:
    """Deletes scratch directories of ``target`` whose writer died, which shows in a free lock."""
    for scratch in list(target.parent.glob(f".{glob.escape(target.name)}.{kind}-*")):
        remove_if_abandoned(scratch)


def remove_if_abandoned(scratch: Path) -> bool:
    """Deletes a directory of :func:`make_scratch` if its writer died; returns whether it did."""
    if scratch.is_symlink():
        return False  # no writer made it, and it may lead anywhere
    try:
        lock = _core.LockFile.acquire(str(scratch / LOCK_FILE))
    except (OSError, ValueError):
        return False
    shutil.rmtree(scratch, ignore_errors=True)
    del lock
    return True


def remove_as_scratch(target: Path, kind: str) -> None:
    """Deletes a directory. Once it is not whole, it is a scratch directory, whose writer may die.

    Raises:
        OSError: It cannot be deleted, or another process deletes it.
    """
    lock = _core.LockFile.acquire(str(target / LOCK_FILE))
    scratch = target.rename(_scratch_name(target, kind))
    shutil.rmtree(scratch)
    del lock


def _scratch_name(target: Path, kind: str) -> Path:
    return target.with_name(f".{target.name}.{kind}-{secrets.token_hex(4)}")
