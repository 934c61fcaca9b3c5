"""Columns that are being written: which there are in a store, and where their files lie.

`unpublished/` in the store has two files for each: a journal, which says what is being written and
where (JSON, written first and removed last, so that no file is left that none names), and one bit
for each row that is durable. docs/format.md specifies both, and which files nothing names.
"""

from __future__ import annotations

import math
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.store.columns import DTYPES
from pyg_graphzero.store.schema import (
    SCHEMA_FILE,
    FileRecord,
    StoreSchema,
    check_new_attr,
    header_hash,
)
from pyg_graphzero.util.documents import check_whole, read_document, write_document
from pyg_graphzero.util.names import (
    COLUMN,
    TOPOLOGY,
    check_name,
    locate,
)

FOLDER = "unpublished"
#: What the schema is written as before it replaces the one that is there.
FRESH_SCHEMA = SCHEMA_FILE + ".new"
#: What may stand for float32 without a look at all rows first.
ROUNDED = tuple(each.name for each in _core.Encoding if not each.has_scales)
_FORMAT = "pyg_graphzero unpublished column"
_VERSION = 1
# Beside a journal STEM.json.
_ROWS, _FRESH = ".rows", ".new"
# Where writers put columns and topologies.
_OWN_FOLDER = re.compile("(node|edge)(-.*)?|graph", re.DOTALL)
_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Journal:
    """What is said about one column that is being written.

    Attributes:
        name: Of the attribute.
        node_type: The node type it belongs to; None in a homogeneous store.
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

    @property
    def stored_as(self) -> _core.Encoding | None:
        """The encoding, as the engine has it."""
        return None if self.encoding is None else _core.Encoding[self.encoding]

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
        return locate(self.store, self.journal.file)

    @property
    def rows_file(self) -> Path:
        """A bit for each row that is durable."""
        return locate(self.store, f"{FOLDER}/{self.path.stem}{_ROWS}")

    @property
    def has_files(self) -> bool:
        """Whether there is anything to go on with.

        A writer that died while it created the files left one missing, or the last one empty.
        """
        if not self.file.exists() or not self.rows_file.exists():
            return False
        return self.rows_file.stat().st_size > 0 or self.journal.shape[0] == 0

    @property
    def is_complete(self) -> bool:
        """Whether the rows are a column already, which only has to be published."""
        try:
            _core.Column.open(str(self.file))
        except (FileNotFoundError, FormatError):  # a header is what is written last
            return False
        return True

    def join(self, store: StoreSchema) -> None:
        """Makes an attribute in ``store`` of a column that is complete.

        Raises:
            ValueError: The name is taken.
            FormatError: The store has no such node type.
        """
        record, file = store.node_type(self.journal.node_type), self.journal.file
        if record is None:
            raise ValueError(
                f"{self.path}: node_type: found {self.journal.node_type!r}, which the store has not"
            )
        if (
            record.attrs.get(self.journal.name) != file
        ):  # else it is, if not durably for all we know
            check_new_attr(self.store, record, self.journal.name)
        record.attrs[self.journal.name] = file
        store.files[file] = FileRecord(self.file.stat().st_size, header_hash(self.file))

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
        done = 0
        with suppress(FileNotFoundError), self.rows_file.open("rb") as file:
            while done < rows and (part := np.frombuffer(file.read(_PIECE_BYTES), np.uint8)).size:
                holes = np.flatnonzero(part != 0xFF)
                if holes.size:
                    byte = int(part[holes[0]])
                    done += 8 * int(holes[0]) + (~byte & (byte + 1)).bit_length() - 1
                    break
                done += 8 * part.size
        return min(rows, done)

    def write(self) -> None:
        """Writes the journal, in one step."""
        self.path.parent.mkdir(exist_ok=True)
        fresh = self.path.with_suffix(_FRESH)
        write_document(self.journal.to_dict(), fresh)
        os.replace(fresh, self.path)
        _core.sync_directory(str(self.path.parent))
        _core.sync_directory(str(self.store))

    def remove(self) -> None:
        """Removes the rows and what says that they are being written, last the journal."""
        self.file.unlink(missing_ok=True)
        self.rows_file.unlink(missing_ok=True)
        self.path.unlink(missing_ok=True)
        with suppress(OSError):  # there are others
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
    return [found for found in _load_all(store) if found.journal.file not in published.files]


def ended(store: Path, published: StoreSchema) -> list[Journal]:
    """The journals of columns that are published, whose writer died before it could remove them."""
    return [e.journal for e in _load_all(store) if e.journal.file in published.files]


def leftovers(store: Path, published: StoreSchema) -> list[Path]:
    """The files that writers have left which failed or died, and that nothing names.

    Only such as a writer makes, where it makes them: columns and topologies in the folders of node
    and edge types, the files beside journals, and documents that were not renamed. None while a
    journal is damaged, since that may name any of them.

    Args:
        store: The store's directory.
        published: What it holds.
    """
    try:
        journals = _load_all(store)
        ended = [found for found in journals if found.journal.file in published.files]
        left = [path for found in ended for path in (found.rows_file, found.path)]
    except FormatError:
        return []
    named = {*published.files, *(found.journal.file for found in journals)}
    beside = {found.path.stem for found in journals}
    with os.scandir(store) as entries:
        folders = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    for folder in filter(_OWN_FOLDER.fullmatch, folders):
        names = [f"{folder}/{name}" for name in _files_in(store / folder)]
        data = [name for name in names if name.endswith((COLUMN, TOPOLOGY)) and name not in named]
        left += [store / name for name in data]
    for name in _files_in(store / FOLDER):
        stem, suffix = os.path.splitext(name)
        if suffix == _FRESH or (suffix == _ROWS and stem not in beside):
            left.append(store / FOLDER / name)
    left += [store / name for name in _files_in(store) if name == FRESH_SCHEMA]
    return [path for path in left if path.exists()]


def sweep(store: Path, published: StoreSchema) -> list[Path]:
    """Deletes ``leftovers``, and returns them. Only while the caller holds the store's lock.

    What cannot be deleted now is found again by the next writer.
    """
    left = leftovers(store, published)
    with suppress(OSError):
        if left:
            # What `store.json` no longer names is in use until that is on the device.
            _core.sync_directory(str(store))
        for path in left:
            path.unlink(missing_ok=True)
        (store / FOLDER).rmdir()
    return left


def _files_in(folder: Path) -> list[str]:
    """The names of the regular files in a folder, links not among them."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    return []


def _load_all(store: Path) -> list[Unpublished]:
    """Every journal in the store, by name."""
    every: list[Unpublished] = []
    for path in sorted(locate(store, FOLDER, folder=True).glob("*.json")):
        with suppress(FileNotFoundError):  # published or discarded meanwhile
            every.append(Unpublished(store, path, _load(store, path)))
    return every


def _load(store: Path, path: Path) -> Journal:
    hint = "; delete this file, and the rows are no longer resumed"

    def check(field: str, ok: bool, expected: str) -> None:
        if not ok:
            found = repr(body[field])[:60] if field in body else "nothing"
            raise FormatError.of(path, field, found, expected + hint)

    body = read_document(locate(store, f"{FOLDER}/{path.name}"), hint)
    check("format", body.get("format") == _FORMAT, repr(_FORMAT))
    check("version", body.get("version") == _VERSION, str(_VERSION))
    check_whole(body, path, hint)
    shape, dtype, encoding = body.get("shape"), body.get("dtype"), body.get("encoding")
    check("name", isinstance(body.get("name"), str), "a string")
    check("node_type", isinstance(body.get("node_type", 0), str | None), "a string or null")
    check("dtype", isinstance(dtype, str) and dtype in DTYPES, f"one of {', '.join(DTYPES)}")
    check(
        "encoding",
        "encoding" in body and (encoding is None or (encoding == dtype and encoding in ROUNDED)),
        f"null, or the dtype where that is {' or '.join(ROUNDED)}",
    )
    check(
        "shape",
        isinstance(shape, list)
        and 1 <= len(shape) <= 8
        and all(type(dim) is int and 0 <= dim < 2**63 for dim in shape),
        "1 to 8 counts from 0 to 2^63 - 1",
    )
    check("note", "note" in body, "anything")
    assert isinstance(shape, list)
    return Journal(
        shape=tuple(shape),
        file=check_name(body.get("file"), path, "file", (COLUMN,)),
        **{name: body[name] for name in ("name", "node_type", "dtype", "encoding", "note")},
    )
