"""Directories that are being written.

Each is locked by its writer, so that one left behind by a killed process can be told from one in
use.
"""

from __future__ import annotations

import glob
import secrets
import shutil
from pathlib import Path

from pyg_graphzero import _core

LOCK_FILE = "lock"


def make_scratch(target: Path, kind: str) -> tuple[Path, _core.LockFile]:
    """A fresh sibling directory of ``target``, and the lock that says its writer lives.

    Args:
        target: What is being made.
        kind: What the directory is for, ``"partial"`` (the store) or ``"scratch"``.
    """
    while True:
        scratch = target.with_name(f".{target.name}.{kind}-{secrets.token_hex(4)}")
        scratch.mkdir()
        try:
            lock = _core.LockFile.acquire(str(scratch / LOCK_FILE))
        except (FileNotFoundError, BlockingIOError):
            continue  # another writer saw it unlocked and removes it
        except OSError:
            shutil.rmtree(scratch, ignore_errors=True)
            raise
        if (scratch / LOCK_FILE).exists():
            return scratch, lock


def remove_abandoned(target: Path, kind: str) -> None:
    """Deletes such directories whose writer died: nobody holds their lock any more."""
    for scratch in list(target.parent.glob(f".{glob.escape(target.name)}.{kind}-*")):
        try:
            lock = _core.LockFile.acquire(str(scratch / LOCK_FILE))
        except OSError:
            continue
        shutil.rmtree(scratch, ignore_errors=True)
        del lock
