"""Columns that are being written: which there are in a store, and where their files lie.

`unpublished/` in the store has two files for each: a journal, which says what is being written and
where (JSON, written first and removed last, so that no file is left that none names), and one bit
for each row that is durable. docs/format.md specifies both.
"""

from __future__ import annotations

import json
import math
import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_graphzero import _core, schema
from pyg_graphzero.errors import FormatError
from pyg_graphzero.schema import StoreSchema

FOLDER = "unpublished"
_FORMAT = "pyg_graphzero unpublished column"
_VERSION = 1


@dataclass(frozen=True)
class Journal:
    """What is said about one column that is being written.

    Attributes:
        name: Of the attribute.
        node_type: Whose it is; None in a homogeneous store.
        shape: With the number of nodes first.
        dtype: Of what is stored, as the format names it.
        encoding: ``"float16"`` or ``"bfloat16"`` if that stands for float32; None: for itself.
        file: Where its rows go, relative to the store.
        note: What its writer wants to find again.
    """

    name: str
    node_type: str | None
    shape: tuple[int, ...]
    dtype: str
    encoding: str | None
    file: str
    note: Any = None

    def to_dict(self) -> dict[str, Any]:
        """As the file has it."""
        return {
            "format": _FORMAT,
            "version": _VERSION,
            "name": self.name,
            "node_type": self.node_type,
            "shape": list(self.shape),
            "dtype": self.dtype,
            "encoding": self.encoding,
            "file": self.file,
            "note": self.note,
        }


@dataclass(frozen=True)
class Unpublished:
    """A journal, where it lies, and the files beside it."""

    store: Path
    path: Path
    journal: Journal

    @property
    def file(self) -> Path:
        """The rows."""
        return self.store / self.journal.file

    @property
    def rows_file(self) -> Path:
        """A bit for each row that is durable."""
        return self.path.with_suffix(".rows")

    @property
    def has_files(self) -> bool:
        """Whether there is anything to go on with.

        A writer that died while it created the files left one missing, or the last one empty.
        """
        if not self.file.exists() or not self.rows_file.exists():
            return False
        return self.rows_file.stat().st_size > 0 or self.journal.shape[0] == 0

    def disk_bytes(self) -> int:
        """What the column takes on disk so far."""
        total = 0
        for path in (self.path, self.rows_file, self.file):
            with suppress(FileNotFoundError):  # published or discarded meanwhile
                total += path.stat().st_blocks * 512
        return total

    def done(self) -> int:
        """Rows ``[0, done)`` are durable."""
        rows = self.journal.shape[0]
        if math.prod(self.journal.shape[1:]) == 0:
            return rows
        try:
            full = np.fromfile(self.rows_file, np.uint8)
        except FileNotFoundError:
            return 0
        first = int(np.argmax(full != 0xFF)) if (full != 0xFF).any() else full.size
        inside = 0
        while first < full.size and full[first] >> inside & 1:
            inside += 1
        return min(rows, 8 * first + inside)

    def write(self) -> None:
        """Writes the journal, in one step."""
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(".new")
        schema.write_document(self.journal.to_dict(), fresh)
        os.replace(fresh, self.path)
        _core.sync_directory(str(self.path.parent))
        _core.sync_directory(str(self.store))

    def remove(self, *, with_rows: bool) -> None:
        """Removes what says that the column is being written, last the journal.

        Args:
            with_rows: The rows as well; not those of a column that was published.
        """
        if with_rows:
            self.file.unlink(missing_ok=True)
        self.rows_file.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        if not any(self.path.parent.iterdir()):
            self.path.parent.rmdir()


def new_path(store: Path, stem: str) -> Path:
    """Where a new journal goes."""
    n = 1
    while True:
        path = store / FOLDER / f"{stem}{f'-{n}' if n > 1 else ''}.json"
        if not path.exists():
            return path
        n += 1


def find(store: Path, published: StoreSchema) -> list[Unpublished]:
    """The columns that are being written, or were when their writer died.

    Args:
        store: The store's directory.
        published: What it holds. A column that is in there is published, whatever was left.

    Raises:
        FormatError: A journal is damaged.
    """
    every: list[Unpublished] = []
    for path in sorted(_journals(store)):
        with suppress(FileNotFoundError):  # published or discarded meanwhile
            every.append(Unpublished(store, path, _load(path)))
    return [found for found in every if found.journal.file not in published.files]


def sweep(store: Path, published: StoreSchema) -> None:
    """Removes what a writer that died at its end has left of columns that are published.

    Only for who holds the store's lock.
    """
    for path in sorted(_journals(store)):
        found = Unpublished(store, path, _load(path))
        if found.journal.file in published.files:
            found.remove(with_rows=False)


def _journals(store: Path) -> list[Path]:
    return list((store / FOLDER).glob("*.json"))


def _load(path: Path) -> Journal:
    hint = "; delete this file, and the rows are no longer resumed"
    try:
        body = json.loads(path.read_bytes())
    except ValueError as error:
        raise FormatError.of(path, "document", f"no valid JSON ({error})", "one" + hint) from None
    if not isinstance(body, dict) or body.get("format") != _FORMAT:
        raise FormatError.of(path, "format", "something else", repr(_FORMAT) + hint)
    if body.get("version") != _VERSION:
        raise FormatError.of(path, "version", body.get("version"), f"{_VERSION}{hint}")
    if not schema.is_whole(body):
        raise FormatError.of(path, "checksum", "another", "that of the document" + hint)
    names = ("name", "node_type", "dtype", "encoding", "file", "note")
    return Journal(shape=tuple(body["shape"]), **{name: body[name] for name in names})
