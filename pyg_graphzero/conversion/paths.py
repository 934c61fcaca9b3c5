"""From what the user calls an input to the files it consists of, and what kind of files they are.

An input is a file, several, a glob pattern or a directory. Its files follow one another in the
order of their paths, as if they were one.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeGuard

from pyg_graphzero.errors import InputError

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
LIST_SUFFIXES = (".mtx", ".nt")

_COMPRESSIBLE = (*TEXT_SUFFIXES, *LIST_SUFFIXES)

AnyPath = str | os.PathLike[str]


def kind_suffix(path: AnyPath) -> str:
    """The suffix that tells what a file holds: ``.csv`` of ``edges.csv`` and ``edges.csv.gz``."""
    path = Path(path)
    inner = Path(path.stem).suffix
    return inner if path.suffix in COMPRESSIONS and inner in _COMPRESSIBLE else path.suffix


def is_paths(value: Any) -> TypeGuard[AnyPath | Sequence[AnyPath]]:
    """Whether ``value`` is a path or a list of paths."""
    if isinstance(value, list | tuple):
        return bool(value) and all(isinstance(path, str | os.PathLike) for path in value)
    return isinstance(value, str | os.PathLike)


def expand(
    paths: AnyPath | Sequence[AnyPath], base: Path = Path(), is_any_kind: bool = False
) -> list[Path]:
    """The files that ``paths`` means, one or more, all of one kind.

    Args:
        paths: A file; a directory, which means all files in it and below but hidden ones and
            those that start with an underscore; a glob pattern, ``**`` included; or a list of
            these, taken in the order given. Patterns and directories are sorted by path.
        base: Directory that relative paths start from.
        is_any_kind: Their suffixes tell nothing.

    Raises:
        FileNotFoundError: There is no such file, or nothing matches.
        InputError: A directory is empty, or the files are of several kinds: names the suffixes.
    """
    if isinstance(paths, str | os.PathLike):
        found = _expand_one(paths, base)
    else:
        found = [file for path in paths for file in _expand_one(path, base)]
    kinds = sorted({kind_suffix(file) or "no suffix" for file in found})
    if len(kinds) > 1 and not is_any_kind:
        shown = paths if isinstance(paths, str | os.PathLike) else "<files>"
        raise InputError(shown, "files", ", ".join(kinds), "files of one kind")
    return found


def _expand_one(path: AnyPath, base: Path) -> list[Path]:
    whole = base / path
    if whole.is_dir():
        inside = (file for file in whole.rglob("*") if file.is_file())
        found = sorted(file for file in inside if not _is_hidden(file.relative_to(whole)))
        if not found:
            raise InputError(whole, "directory", "no files", "at least one")
        return found
    if whole.exists():
        return [whole]
    if glob.has_magic(os.fspath(path)):
        names = glob.glob(os.fspath(path), root_dir=base, recursive=True)
        found = sorted(file for name in names if (file := base / name).is_file())
        if found:
            return found
        raise FileNotFoundError(errno.ENOENT, "No file matches", str(whole))
    raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(whole))


def _is_hidden(path: Path) -> bool:
    return any(part.startswith((".", "_")) for part in path.parts)
