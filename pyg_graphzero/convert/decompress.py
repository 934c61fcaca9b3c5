"""Bytes of a text file, decompressed by its suffix."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from typing_extensions import Self

from ..errors import InputError
from .paths import COMPRESSIONS


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
        if self._codec is not None:
            self._file = pa.CompressedInputStream(pa.PythonFile(self._raw, "r"), self._codec)
        self._at = 0

    def read(self, size: int) -> bytes:
        """The next ``size`` bytes, fewer at the end only.

        Raises:
            InputError: The compressed data is damaged or cut short.
        """
        try:
            data: bytes = self._file.read(size)
            while len(data) < size and (more := self._file.read(size - len(data))):
                data += more
        except OSError as error:
            if error.errno is not None or self._codec is None:
                raise
            raise InputError(
                self.path,
                "file",
                f"damaged {self._codec} data ({error})",
                f"a whole {self._codec} file",
            ) from error
        return data

    def taken_since(self) -> int:
        """Bytes of the file on disk consumed since the last call."""
        before, self._at = self._at, self._raw.tell()
        return self._at - before

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self._raw.close()
