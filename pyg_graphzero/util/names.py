"""The names of a store's files: where they may lead, which is nowhere but into the store.

A store may come from somebody else. Whatever is opened, written or removed because something in a
store names it goes through :func:`locate`.
"""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

from pyg_graphzero.errors import FormatError

COLUMN, TOPOLOGY = ".gd", ".gl"
_MISSING = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG)


def check_name(value: Any, document: Path, where: str, ends: tuple[str, ...] = ("",)) -> str:
    """``value``, which ``document`` has at ``where``, if it is the name of a file inside a store.

    Args:
        value: What is there.
        document: The file that names it.
        where: In which member.
        ends: What the name must end in: columns and topologies are told by that from all else that
            is in a store.

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


def locate(store: Path, name: str, *, folder: bool = False) -> Path:
    """Where what is called ``name`` lies in a store; it need not be there.

    Args:
        store: The store's directory.
        name: A name that was checked, or one of the package's own.
        folder: It is a directory, not a file.

    Raises:
        FormatError: It is no regular file (or directory), or a symbolic link lies on the way.
    """
    path = os.fspath(store)
    mode = stat.S_IFDIR
    for part in name.split("/"):
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
        except OSError as error:
            if error.errno in _MISSING:
                return store / name
            raise
        if stat.S_ISLNK(mode):
            raise FormatError.of(
                path,
                "file",
                f"a symbolic link to {os.readlink(path)!r}",
                "none inside a store; `cp -rL` makes a copy that has what links lead to",
            )
    if not (stat.S_ISDIR(mode) if folder else stat.S_ISREG(mode)):
        expected = "a directory" if folder else "a regular file"
        raise FormatError.of(path, "file", stat.filemode(mode), expected)
    return store / name
