"""The names of a store's files: where they may lead, which is nowhere but into the store.

A store may come from a stranger. Each file that is opened, written or removed because something in
a store names it goes through :func:`locate`.
"""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyg_graphzero.errors import FormatError

COLUMN, TOPOLOGY = ".gd", ".gl"
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)
_WRITE_BITS = stat.S_IWGRP | stat.S_IWOTH


def check_name(value: Any, document: Path, where: str, ends: tuple[str, ...] = ("",)) -> str:
    """``value``, which ``document`` has at ``where``, if it is the name of a file inside a store.

    Args:
        value: The value to check.
        document: The file that names it.
        where: The member of the document that has it.
        ends: Endings that the name may have: they tell columns and topologies from all else in a
            store.

    Raises:
        FormatError: It is anything else.
    """
    parts = value.split("/") if isinstance(value, str) and "\0" not in value else [""]
    is_inside = all(part not in ("", ".", "..") for part in parts)
    if not is_inside or not value.endswith(ends):
        kind = "" if ends == ("",) else f" that ends in {' or '.join(ends)}"
        expected = f"a file path inside the store{kind}"
        raise FormatError.of(document, where, repr(value)[:60], expected)
    return str(value)


@dataclass(frozen=True)
class Trust:
    """Users that may have made the file or folder at a path.

    Attributes:
        users: Ids of users, one of whom is to own it.
        writable: Bits of its permissions: besides its owner, these may write to it.
    """

    users: frozenset[int]
    writable: int = 0

    def check(self, path: str, status: os.stat_result) -> None:
        """Raises FormatError if another user has made it, or can put something else there."""
        if status.st_uid not in self.users:
            expected = " or ".join(map(str, sorted(self.users)))
            expected += "; it is left alone: `chown` it, or remove it"
            raise FormatError.of(path, "owner", f"user {status.st_uid}", expected)
        is_shared = stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & _WRITE_BITS & ~self.writable and not is_shared:
            found, expected = stat.filemode(status.st_mode), "a mode that lets no others write"
            raise FormatError.of(path, "permissions", found, f"{expected}: `chmod go-w` it")


def locate(root: Path, name: str, *, folder: bool = False, trust: Trust | None = None) -> Path:
    """The path of ``name`` in a store; there need not be a file.

    All files of a store are opened, written and removed at such paths only.

    Args:
        root: The store's directory, or another one that the package keeps files in.
        name: A name that was checked, or one of the package's own.
        folder: It is a directory, not a file.
        trust: Users that may have made it, and all on the way there from ``root``; None: anyone.

    Raises:
        FormatError: It is no regular file (or directory), or a symbolic link lies on the way, or
            it is another user's.
    """
    path = os.fspath(root)
    mode = stat.S_IFDIR
    if trust is not None and os.path.exists(path):
        trust.check(path, os.stat(path))
    for part in name.split("/"):
        path = f"{path}/{part}"
        try:
            status = os.lstat(path)
        except OSError as error:
            if error.errno in _MISSING:
                return root / name
            raise
        mode = status.st_mode
        if stat.S_ISLNK(mode):
            raise FormatError.of(
                path,
                "file",
                f"a symbolic link to {os.readlink(path)!r}",
                "none inside a store; `cp -rL` makes a copy that has what links lead to",
            )
        if trust is not None:
            trust.check(path, status)
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        expected = "a directory" if folder else "a regular file"
        raise FormatError.of(path, "file", stat.filemode(mode), expected)
    return root / name
