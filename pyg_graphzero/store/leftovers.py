"""Files in a store that `store.json` does not name: drafts of columns, and remains of dead writers.

A draft is a column that is being written row by row, or was when its writer died. All drafts lie in
`unpublished/`, at names that follow from the columns', and move beside the other columns when they
are published. docs/format.md says which files are remains.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import xxhash

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.store import schema
from pyg_graphzero.store.schema import (
    SCHEMA_FILE,
    FileRecord,
    NodeTypeSchema,
    StoreSchema,
    header_hash,
    safe_name,
)
from pyg_graphzero.util.locks import StoreLock
from pyg_graphzero.util.names import COLUMN, TOPOLOGY, locate
from pyg_graphzero.util.system import stored_bytes

FOLDER = "unpublished"
#: The schema that is about to replace the one in place.
FRESH_SCHEMA = SCHEMA_FILE + ".new"
# Where writers put columns and topologies.
_OWN_FOLDER = re.compile("(node|edge)(-.*)?|graph", re.DOTALL)


def draft_stem(node_type: str | None, name: str) -> str:
    """The name of a column's draft in the store, without its ending."""
    key = xxhash.xxh64_hexdigest(json.dumps([node_type, name]).encode())
    return f"{FOLDER}/{NodeTypeSchema(node_type, 0).folder}--{safe_name(name)}.{key}"


@dataclass(frozen=True)
class Draft:
    """A column that is not published.

    Attributes:
        node_type: The node type it belongs to; None in a homogeneous store.
        name: The attribute that it is to be.
        file: Its rows, relative to the store.
    """

    node_type: str | None
    name: str
    file: str

    def is_complete(self, store: Path) -> bool:
        """Whether every row is there and on the device: the header is written last."""
        try:
            _core.Column.open(str(locate(store, self.file)))
        except (FileNotFoundError, FormatError):
            return False
        return True

    def join(self, directory: Path, store: StoreSchema) -> None:
        """Makes an attribute in ``store`` of a draft that is complete, where it lies."""
        record, path = store.node_type(self.node_type), locate(directory, self.file)
        assert record is not None
        record.attrs[self.name] = self.file
        store.files[self.file] = FileRecord(path.stat().st_size, header_hash(path))


def drafts(store: Path) -> list[str]:
    """The files of all drafts in a store, by name."""
    names = _files_in(locate(store, FOLDER, folder=True))
    return [f"{FOLDER}/{name}" for name in names if name.endswith(COLUMN)]


def remove_leftovers(store: str | os.PathLike[str]) -> tuple[int, int]:
    """Removes columns that were begun and never published, and :func:`leftovers`.

    Args:
        store: The store's directory.

    Returns:
        How many files there were, and the bytes that they took on disk.

    Raises:
        FileNotFoundError: There is no store.
        StoreInUseError: It is open for writing: a draft may be written to now.
        OSError: A draft cannot be removed.
    """
    path = Path(os.path.realpath(store))
    if not drafts(path) and not leftovers(path, schema.load(path)):
        return 0, 0
    with StoreLock(path):
        published, begun = schema.load(path), [path / file for file in drafts(path)]
        sizes = [disk_bytes(file) for file in (*begun, *leftovers(path, published))]
        for file in begun:
            file.unlink()
        sweep(path, published)
    return len(sizes), sum(sizes)


def disk_bytes(path: Path) -> int:
    """Bytes on disk of a draft, whose file may have holes."""
    with suppress(FileNotFoundError):  # published or discarded meanwhile
        return stored_bytes(path.stat())
    return 0


def leftovers(store: Path, published: StoreSchema) -> list[Path]:
    """The files that changes have left which failed or whose writer died; drafts are none.

    Only such as a writer makes, where it makes them: columns and topologies in the folders of node
    and edge types, and documents that were not renamed.

    Args:
        store: The store's directory.
        published: The schema in place.
    """
    with os.scandir(store) as entries:
        folders = [e.name for e in entries if e.is_dir(follow_symlinks=False)]
    left = []
    for folder in filter(_OWN_FOLDER.fullmatch, folders):
        names = [f"{folder}/{name}" for name in _files_in(store / folder)]
        data = [name for name in names if name.endswith((COLUMN, TOPOLOGY))]
        left += [store / name for name in data if name not in published.files]
    return left + [store / name for name in _files_in(store) if name == FRESH_SCHEMA]


def sweep(store: Path, published: StoreSchema) -> None:
    """Deletes ``leftovers``. Only while the caller holds the store's lock.

    Files that cannot be deleted now are found again by the next writer.
    """
    left = leftovers(store, published)
    with suppress(OSError):
        if left:
            # The old `store.json` names them, until the new one is on the device.
            _core.sync_directory(str(store))
        for path in left:
            path.unlink(missing_ok=True)
        (store / FOLDER).rmdir()


def _files_in(folder: Path) -> list[str]:
    """The names of the regular files in a folder, links not among them."""
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return sorted(e.name for e in entries if e.is_file(follow_symlinks=False))
    return []
