"""Bytes of a text file, decompressed by its suffix."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from pyg_graphzero.conversion.paths import COMPRESSIONS
from pyg_graphzero.util.reading import reading


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
