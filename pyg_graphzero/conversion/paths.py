"""From what the user calls an input to the files it consists of, and what kind of files they are.

An input is a file, several, a glob pattern or a directory. Its files follow one another in the
order of their paths, as if they were one. Text is decompressed by its suffix.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, TypeGuard

import pyarrow as pa
from typing_extensions import Self

from pyg_graphzero.errors import InputError
from pyg_graphzero.util.reading import reading

COMPRESSIONS = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}
TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
TRIPLES = ".nt"

_COMPRESSIBLE = (*TEXT_SUFFIXES, TRIPLES)

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


def place_of(files: Sequence[Path]) -> Path:
    """The only file, or the directory that all of several are in."""
    if len(files) == 1:
        return files[0]
    return Path(os.path.commonpath([file.absolute() for file in files]))


def name_in(files: Sequence[Path], number: int, mark: str) -> str:
    """One of several files, seen from :func:`place_of`, and a mark; empty for the only one."""
    if len(files) == 1:
        return ""
    return f"{files[number].absolute().relative_to(place_of(files))}{mark}"


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


class TextFile:
    """A file read from its beginning; a context manager.

    Args:
        path: Plain, or ``.gz``, ``.zst``, ``.bz2`` or ``.lz4``.

    Raises:
        OSError: It cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._raw = path.open("rb", buffering=0)
        self._codec = COMPRESSIONS.get(path.suffix)
        self._file: Any = self._raw
        self._at = 0
        if self._codec is not None:
            try:
                with self._reading():
                    source = pa.PythonFile(self._raw, "r")
                    self._file = pa.CompressedInputStream(source, self._codec)
            except BaseException:
                self._raw.close()
                raise

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end only.

        Raises:
            InputError: The compressed data is damaged or cut short.
        """
        with self._reading():
            data: bytes = self._file.read(size)
            while len(data) < size and (more := self._file.read(size - len(data))):
                data += more
        return data

    def _reading(self) -> AbstractContextManager[None]:
        codec = self._codec or "text"
        return reading(self.path, "file", f"a whole {codec} file", what=f"damaged {codec} data")

    def taken_since(self) -> int:
        """Bytes of the file on disk consumed since the last call."""
        before, self._at = self._at, self._raw.tell()
        return self._at - before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()
