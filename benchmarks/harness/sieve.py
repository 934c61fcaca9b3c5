"""A row cache with SIEVE eviction, compiled from ``sieve.cpp`` when it is first wanted."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

_SOURCE = Path(__file__).with_name("sieve.cpp")
_POINTER, _INT64 = ctypes.c_void_p, ctypes.c_int64


@cache
def _library() -> ctypes.CDLL:
    """The compiled source; kept in the temporary directory for the next process.

    Raises:
        FileNotFoundError: There is no C++ compiler.
    """
    compiler = os.environ.get("CXX") or shutil.which("c++")
    if compiler is None:
        raise FileNotFoundError(2, "no C++ compiler found; install one, or set CXX", "c++")
    digest = hashlib.sha256(_SOURCE.read_bytes()).hexdigest()[:16]
    built = Path(tempfile.gettempdir()) / f"graphzero-sieve-{os.getuid()}-{digest}.so"
    if not built.exists():
        scratch = built.with_suffix(f".{os.getpid()}.so")
        command = [compiler, "-std=c++20", "-O2", "-shared", "-fPIC", "-Wall", "-Wextra"]
        subprocess.run([*command, str(_SOURCE), "-o", str(scratch)], check=True)
        scratch.replace(built)
    library = ctypes.CDLL(str(built))
    library.sieve_new.argtypes = [_INT64, ctypes.c_int32, _INT64]
    library.sieve_new.restype = _POINTER
    library.sieve_delete.argtypes = [_POINTER]
    library.sieve_delete.restype = None
    library.sieve_query.argtypes = [_POINTER, _POINTER, _INT64, _POINTER, _POINTER]
    library.sieve_query.restype = _INT64
    library.sieve_insert.argtypes = [_POINTER, _POINTER, _POINTER, _INT64, _POINTER]
    library.sieve_insert.restype = None
    return library


class SieveCache:
    """Rows that were wanted lately (Zhang et al., NSDI '24, "SIEVE is Simpler than LRU").

    Args:
        num_rows: Rows there are.
        capacity: Rows to keep.
        row_bytes: Bytes of one.
    """

    def __init__(self, num_rows: int, capacity: int, row_bytes: int) -> None:
        self.num_rows = num_rows
        self.row_bytes = row_bytes
        self._library = _library()
        self._cache = self._library.sieve_new(num_rows, min(capacity, num_rows), row_bytes)

    def query(self, rows: Tensor, out: Tensor) -> Tensor:
        """Puts the rows that are here into their places.

        Args:
            rows: ``int64 [n]``.
            out: ``uint8 [n, row_bytes]``.

        Returns:
            The places of all others: ``int64 [any]``, ascending.

        Raises:
            IndexError: There is no such row.
        """
        self._check(rows, out)
        missed = torch.empty_like(rows)
        count = self._library.sieve_query(
            self._cache, rows.data_ptr(), len(rows), out.data_ptr(), missed.data_ptr()
        )
        return missed[:count]

    def insert(self, rows: Tensor, places: Tensor, out: Tensor) -> None:
        """Takes in rows of a batch, once they are read.

        Args:
            rows: The batch: ``int64 [n]``.
            places: Which of them: ``int64 [any]``.
            out: Their bytes, ``uint8 [n, row_bytes]``.
        """
        self._check(rows, out)
        self._library.sieve_insert(
            self._cache, rows.data_ptr(), places.data_ptr(), len(places), out.data_ptr()
        )

    def _check(self, rows: Tensor, out: Tensor) -> None:
        # Addresses are handed over: nothing behind them looks again.
        assert rows.dtype == torch.int64
        assert rows.is_contiguous()
        assert out.is_contiguous()
        assert out.shape == (len(rows), self.row_bytes)
        if len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < self.num_rows:
            raise IndexError(
                f"rows: found {int(rows.min())} to {int(rows.max())}, expected 0 <= row < "
                f"{self.num_rows}"
            )

    def __del__(self) -> None:
        if hasattr(self, "_cache"):
            self._library.sieve_delete(self._cache)
