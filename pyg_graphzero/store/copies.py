"""Copies of a store's rows: where they lie, what each of them has, and how they are removed.

A copy is a directory in `orders/` of the store; or of the user's cache, where the store cannot be
written to. docs/format.md specifies it. A store may come from a stranger, and a cache may be
shared: paths come from :func:`.names.locate`, which also asks who has made what is there.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import xxhash

from pyg_graphzero.errors import FormatError
from pyg_graphzero.store.schema import File, load
from pyg_graphzero.util.disk import cache_folder
from pyg_graphzero.util.documents import Members, read_document, write_document
from pyg_graphzero.util.locks import remove_as_scratch, remove_if_abandoned
from pyg_graphzero.util.names import Trust, locate
from pyg_graphzero.util.system import user_id

log = logging.getLogger("pyg_graphzero")

#: Where copies are in a store's directory, and in the user's cache.
FOLDER = "orders"
DOCUMENT = "order.json"
#: The kind of directory that is being written or removed, whose lock is held meanwhile.
SCRATCH = "partial"
_HEAD: dict[str, Any] = {"format": 1}  # a copy of another format is made anew
Uses: TypeAlias = tuple[float, int]
#: Neighbours are copied by groups of ``2 ** GROUP_BITS`` that follow each other.
GROUP_BITS = 4
# Share of the disk that is left free.
_FREE_SHARE = 0.05
_KEY = re.compile("[0-9a-f]{32}")
#: Permissions of a folder in a cache, and what a folder or file has at most of its origin's.
PRIVATE, READABLE = 0o700, 0o755


@dataclass(frozen=True)
class CopiedPart:
    """A part of a copy: rows of one node type, or groups of one edge type's neighbours.

    Attributes:
        name: The node type; None in a homogeneous store, and of neighbours.
        lists: The topology whose neighbours these are; None: they are rows.
        rows: How many rows or groups.
        uses: How often each of the first ones is used, and how many these are, again and again.
        files: The store's files that the rows are of.
    """

    name: str | None
    lists: str | None
    rows: int
    uses: list[Uses]
    files: list[File]

    def places(self, number: int) -> list[str]:
        """The copy's files: the numbers of the rows, then for each of ``files`` the rows.

        Args:
            number: How far down the part is in the document.
        """
        names = ["rows.gd", *(f"{each}.gd" for each in range(len(self.files)))]
        return [f"{number}/{name}" for name in names]


def write_parts(copy: Path, parts: list[CopiedPart]) -> None:
    """Writes the document of a copy."""
    write_document(_HEAD | {"parts": [asdict(part) for part in parts]}, copy / DOCUMENT)


def read_parts(copy: Path, trust: Trust) -> list[CopiedPart]:
    """Reads the document of a copy.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It is damaged.
    """
    document = locate(copy, DOCUMENT, trust=trust)
    read = Members(document, {"CopiedPart": CopiedPart, "Uses": _read_uses})
    parts: list[CopiedPart] = read.take(read_document(document, _HEAD), "parts", "list[CopiedPart]")
    for number, part in enumerate(parts):
        where, owners = f"parts[{number}]", [(each.name, each.lists) for each in parts[:number]]
        if (part.name, part.lists) in owners or len(set(part.files)) != len(part.files):
            raise read.fail(where, "a part or a file again", "each of them once")
        if not part.files or (part.lists is not None and part.files != [part.lists]):
            raise read.fail(f"{where}.files", part.files, "the files that rows are of")
        if sum(count for _, count in part.uses) != part.rows:
            raise read.fail(f"{where}.uses", part.uses, f"those of {part.rows} rows together")
    if not parts:
        raise read.fail("parts", "none", "rows of some files")
    return parts


def _read_uses(read: Members, value: Any, where: str) -> Uses:
    is_pair = isinstance(value, list) and [type(n) for n in value] in ([float, int], [int, int])
    if not is_pair or not (0 <= value[0] < inf and value[1] > 0):
        raise read.fail(where, repr(value)[:60], "[uses, rows]")
    return float(value[0]), value[1]


@dataclass(frozen=True)
class CopyFolder:
    """A directory that copies of a store's rows are in, or may be made in.

    Attributes:
        root: The store, or the user's cache.
        name: The directory, below that.
        trust: Whoever may have made what is in it.
        mode: Permissions of directories that are made there.
    """

    root: Path
    name: str
    trust: Trust
    mode: int

    @property
    def path(self) -> Path:
        """The directory."""
        return self.root / self.name

    def locate(self, key: str = "") -> Path:
        """The directory, or that of a copy in it; it need not be there.

        Raises:
            FormatError: It is no directory, or is reached by a symbolic link, or another user's.
        """
        name = f"{self.name}/{key}" if key else self.name
        return locate(self.root, name, folder=True, trust=self.trust)

    def make(self) -> Path:
        """The directory, which is there from now on.

        Raises:
            FormatError: See :meth:`locate`.
        """
        self.root.mkdir(PRIVATE, parents=True, exist_ok=True)
        parts = self.name.split("/")
        for count in range(len(parts)):
            name = "/".join(parts[: count + 1])
            with suppress(FileExistsError):
                locate(self.root, name, folder=True, trust=self.trust).mkdir(self.mode)
        return self.locate()

    def copies(self) -> list[str]:
        """The names of the copies, the oldest first."""
        found = []
        with suppress(FileNotFoundError), os.scandir(self.path) as entries:
            found = [e for e in entries if _KEY.fullmatch(e.name)]
        return [e.name for e in sorted(found, key=_changed)]

    def find(self, key: str) -> Path | None:
        """The directory of a copy, if there is one that may be used; logs why one may not."""
        try:
            path = self.locate(key)
        except (FormatError, OSError) as error:
            log.warning("%s: not used: %s", self.path / key, error)
            return None
        return path if path.exists() else None

    def sweep(self) -> set[str]:
        """Removes what processes have begun that died since, as far as that can be removed.

        Returns:
            The names of copies that living processes write.
        """
        begun = set()
        for scratch in self.path.glob(f".*.{SCRATCH}-*"):
            with suppress(FormatError, OSError):
                if not remove_if_abandoned(self.locate(scratch.name)):
                    begun.add(scratch.name[1:].partition(".")[0])
        return begun

    def remove(self, key: str) -> int:
        """Removes a copy.

        Returns:
            Its bytes.

        Raises:
            FormatError: See :meth:`locate`.
            OSError: It cannot be removed.
        """
        copy = self.locate(key)
        num_bytes = sum(_file_sizes(copy))
        remove_as_scratch(copy, SCRATCH)
        return num_bytes

    def remove_oldest(self, count: int) -> None:
        """Leaves ``count`` copies, the newest, as far as the others can be removed."""
        for key in self.copies()[: -count or None]:
            with suppress(FormatError, OSError):
                self.remove(key)


def copy_folders(store: Path) -> list[CopyFolder]:
    """Where a store's copies may be: with it, else in the user's cache.

    With it there may be what whoever has made the store may have made. In a cache that is this
    process's user alone, and root.
    """
    try:
        status = os.stat(store)
    except FileNotFoundError:  # moved or deleted, while loaders have its files open
        return []
    trust = Trust(frozenset({*_own_users(), status.st_uid}), status.st_mode)
    found = [CopyFolder(store, FOLDER, trust, status.st_mode & READABLE)]
    cache = cache_folder()
    if cache is not None:
        name = f"{cache.name}/{FOLDER}/{xxhash.xxh64_hexdigest(os.fsencode(store))}"
        root = Path(os.path.realpath(cache.parent))
        found.append(CopyFolder(root, name, Trust(_own_users()), PRIVATE))
    return found


def trust_of(copy: Path, store: Path) -> Trust:
    """Whoever may have made a copy of a store's rows."""
    folders = [folder for folder in copy_folders(store) if folder.path == copy.parent]
    return folders[0].trust if folders else Trust(_own_users())


def _own_users() -> frozenset[int]:
    return frozenset({0, user_id()})


def usable_folders(store: Path) -> Iterator[CopyFolder]:
    """The :func:`copy_folders` that may be used; logs why one may not."""
    for folder in copy_folders(store):
        try:
            folder.locate()
        except (FormatError, OSError) as error:
            level = logging.WARNING if os.path.lexists(folder.path) else logging.INFO
            log.log(level, "%s: no copies of rows are used there: %s", folder.path, error)
        else:
            yield folder


def copy_sizes(store: Path) -> dict[str, int]:
    """Bytes of each copy of a store's rows, by its directory."""
    found = [(f.path / key) for f in usable_folders(store) for key in f.copies() if f.find(key)]
    return {str(copy): sum(_file_sizes(copy)) for copy in found}


def remove_copies(store: str | os.PathLike[str]) -> tuple[int, int]:
    """Removes all that loaders wrote of a store's rows, and what they began and never ended.

    Loaders that read from it now go on to the end of their epoch. Whatever is reached by a symbolic
    link, or is another user's, stays, and is named in the log.

    Args:
        store: The store's directory.

    Returns:
        How many copies there were, and their bytes.

    Raises:
        FileNotFoundError: There is no store.
        OSError: One cannot be removed.
    """
    path, sizes = Path(os.path.realpath(store)), []
    load(path)  # or it is something else's directory
    for folder in usable_folders(path):
        sizes += [folder.remove(key) for key in folder.copies() if folder.find(key)]
        folder.sweep()
        with suppress(OSError):  # there is none, or another process makes one in it
            folder.path.rmdir()
    return len(sizes), sum(sizes)


def is_writable(folder: Path) -> bool:
    """Whether it could be made and written to."""
    there = next(each for each in (folder, *folder.parents) if each.exists())
    return os.access(there, os.W_OK | os.X_OK)


def room_on_disk(folder: Path, limit: int | None) -> int:
    """Bytes that copying may take, with what waits for its order meanwhile."""
    found = shutil.disk_usage(next(each for each in (folder, *folder.parents) if each.exists()))
    left = int(found.free - _FREE_SHARE * found.total)
    return max(0, left if limit is None else min(left, 2 * limit))


def _changed(entry: os.DirEntry[str]) -> float:
    with suppress(FileNotFoundError):  # removed meanwhile
        return entry.stat(follow_symlinks=False).st_mtime
    return 0.0


def _file_sizes(folder: Path) -> Iterator[int]:
    """Sizes of the files in a folder; links are not followed."""
    for path, _, files in os.walk(folder):
        for file in files:
            with suppress(FileNotFoundError):  # removed meanwhile
                yield os.lstat(os.path.join(path, file)).st_size
