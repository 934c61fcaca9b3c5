"""Rows in other programs' files, referenced where they are instead of being copied.

A store only ever reads such a file, and looks at every open whether it is still the same: by its
size, and by a fingerprint of where formats have their headers and of the first and last rows.
"""

from __future__ import annotations

import os
from math import prod
from pathlib import Path

import xxhash

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.store.columns import DTYPES, dtype_name
from pyg_graphzero.store.rows import FileRows
from pyg_graphzero.store.schema import SCHEMA_FILE, AdoptedRecord

_PAGE = 4096


def adopt(store: Path, rows: FileRows) -> AdoptedRecord:
    """The record of rows that a store at ``store`` adopts.

    The path is relative to the store if the file lies in the store's parent directory or below it,
    so that both can be moved together; otherwise it is absolute.
    """
    path = Path(os.path.realpath(rows.path))
    parent = Path(os.path.realpath(store.parent))
    is_near = parent in path.parents
    data_bytes = len(rows) * rows.row_bytes
    return AdoptedRecord(
        path=os.path.relpath(path, parent / store.name) if is_near else str(path),
        bytes=path.stat().st_size,
        fingerprint=_fingerprint(path, rows.offset, data_bytes),
        dtype=dtype_name(rows.dtype),
        shape=list(rows.shape),
        offset=rows.offset,
        row_stride=rows.row_bytes,
    )


def adopted_path(store: Path, record: AdoptedRecord) -> Path:
    """Where the rows of ``record`` lie."""
    return Path(os.path.normpath(Path(os.path.realpath(store)) / record.path))


def open_adopted(store: Path, name: str, record: AdoptedRecord) -> _core.Column:
    """Opens rows that the store at ``store`` has adopted under ``name``.

    Raises:
        FormatError: The file is gone, of another size, or changed; names it, what was found and
            what was expected.
    """
    path = adopted_path(store, record)
    if record.dtype not in DTYPES:
        where, expected = f"adopted[{name!r}].dtype", f"one of {', '.join(DTYPES)}"
        raise FormatError.of(store / SCHEMA_FILE, where, repr(record.dtype), expected)
    try:
        column = _core.Column.adopt(
            str(path),
            record.dtype,
            record.shape,
            file_bytes=record.bytes,
            data_offset=record.offset,
            row_stride=record.row_stride,
        )
    except FileNotFoundError:
        raise FormatError.of(
            path, "file", "nothing", f"the {record.bytes} bytes that {store} has adopted from here"
        ) from None
    found = _fingerprint(path, record.offset, record.row_stride * prod(record.shape[:1]))
    if found != record.fingerprint:
        raise FormatError.of(
            path,
            "header, first and last rows",
            f"fingerprint {found}",
            f"{record.fingerprint}, as when {store} adopted it: convert again",
        )
    return column


def _fingerprint(path: Path, offset: int, size: int) -> str:
    """XXH64 of the file's first page, and of the first and last page of rows, as far as they go."""
    digest = xxhash.xxh64()
    with path.open("rb") as file:
        for begin in (0, offset, max(offset, offset + size - _PAGE)):
            file.seek(begin)
            digest.update(file.read(min(_PAGE, offset + size - begin)))
    return digest.hexdigest()
