"""Reading a whole store against its checksums, and naming what is bad."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError
from pyg_graphzero.store import schema
from pyg_graphzero.store.adopted import adopted_path, open_adopted
from pyg_graphzero.store.columns import edge_prints
from pyg_graphzero.store.copies import DOCUMENT, FOLDER, read_parts, usable_folders
from pyg_graphzero.store.manifest import is_sharded, stores_in
from pyg_graphzero.store.schema import EdgeTypeSchema
from pyg_graphzero.util.arguments import check_path
from pyg_graphzero.util.html import Shown
from pyg_graphzero.util.names import locate

_BLOCKS_PER_STEP = 64
_ROWS_PER_STEP = 1 << 20
_HINT = "`graphzero clean` removes it, and training makes it anew"


@dataclass
class VerifyReport(Shown):
    """Counts and faults of verify().

    Attributes:
        files: Number of files checked: the store's, and those of copies of its rows; adopted ones
            not among them.
        blocks: Number of blocks checked.
        bytes: Number of bytes read.
        adopted: Files that the store refers to; there are no checksums of all their rows, so only
            their size and fingerprint are checked.
        bad: One line per fault: file, block, offset, found and expected checksum.
    """

    files: int = 0
    blocks: int = 0
    bytes: int = 0
    adopted: list[str] = field(default_factory=list)
    bad: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing is bad."""
        return not self.bad

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it."""
        return {"ok": self.ok} | asdict(self)

    def __str__(self) -> str:
        head = f"{self.files} files, {self.blocks} blocks, {self.bytes:,} bytes: "
        notes = [f"{path}: adopted, size and fingerprint checked" for path in self.adopted]
        verdict = ["all good"] if self.ok else [f"{len(self.bad)} bad", *self.bad]
        return head + "\n".join([*verdict, *notes])


def verify(
    path: str | os.PathLike[str], progress: Callable[[int, int], None] | None = None
) -> VerifyReport:
    """Checks every header, size and block checksum of the store at ``path``, and orders of nodes.

    Copies of its rows are checked, too; of those in a cache, what this user may use. Where
    ``path`` has a store in shards, these are checked which are there.

    Args:
        path: The store's directory, or one with shards.
        progress: Called with (bytes read so far, bytes in all).

    Raises:
        FileNotFoundError: No store at ``path``.
        FormatError: `store.json` itself cannot be read; faults of other files are reported.
        OSError: A read failed.

    Example:
        >>> import pyg_graphzero as gz
        >>> gz.verify(example_store).ok
        True
    """
    path, report = Path(check_path(path, "path")), VerifyReport()
    is_divided = is_sharded(path)
    for store in stores_in(path) if is_divided else [path]:
        try:
            _look_at(store, report, progress or (lambda done, total: None))
        except (FormatError, FileNotFoundError) as error:
            if not is_divided:
                raise
            report.bad.append(str(error))
    return report


def _look_at(path: Path, report: VerifyReport, progress: Callable[[int, int], None]) -> None:
    """Adds what one store has to a report."""
    store, seen = schema.load(path), report.bytes
    stored = [
        _File(path / name, record.bytes, partial(schema.check_file, path, name, record))
        for name, record in store.files.items()
    ]
    copied, bad_copies = _copied_files(Path(os.path.realpath(path)))
    total = seen + sum(file.bytes for file in (*stored, *copied))

    def read(files: Sequence[_File]) -> bool:
        nonlocal seen
        faults = len(report.bad)
        for file in files:
            report.files += 1
            for done in _check_blocks(file, report):
                progress(seen + done, total)
            seen += file.bytes
        return len(report.bad) == faults

    if read(stored):
        for edge_type in store.edge_types:
            report.bad += _bad_csr(path, edge_type)
    read(copied)
    report.bad += bad_copies
    for name, adopted in store.adopted.items():
        report.adopted.append(str(adopted_path(path, adopted)))
        try:
            open_adopted(path, name, adopted)
        except FormatError as error:
            report.bad.append(str(error))
    progress(total, total)


@dataclass
class _File:
    """A file with checksums of its blocks.

    Attributes:
        path: Where it lies.
        bytes: Its size.
        check: Raises FormatError where that is seen before the file is opened.
        copy: The copy of rows that it is of, if it is of one.
    """

    path: Path
    bytes: int
    check: Callable[[], object]
    copy: Path | None = None

    def fault(self, what: object) -> list[str]:
        """The line of a report that says so; none for a copy that was removed meanwhile."""
        if self.copy is None:
            return [str(what)]
        is_there = (self.copy / DOCUMENT).exists()
        return [f"{what}; this is a copy of rows: {_HINT}"] if is_there else []


def _copied_files(store: Path) -> tuple[list[_File], list[str]]:
    """The files of a store's copies of rows, and what is wrong with the documents that say so."""
    found: list[_File] = []
    faults: list[str] = []
    try:
        locate(store, FOLDER, folder=True)
    except FormatError as error:
        faults.append(str(error))
    for folder in usable_folders(store):
        for copy in filter(None, map(folder.find, folder.copies())):
            document = _File(copy / DOCUMENT, 0, lambda: None, copy)
            try:
                parts = enumerate(read_parts(copy, folder.trust))
                places = [place for number, part in parts for place in part.places(number)]
            except (FormatError, FileNotFoundError) as error:
                faults += document.fault(error)
                continue
            except PermissionError:  # nor do this user's loaders read it
                continue
            for place in places:
                check = partial(locate, copy, place, trust=folder.trust)
                path = copy / place
                size = os.lstat(path).st_size if os.path.lexists(path) else 0
                found.append(_File(path, size, check, copy))
    return found, faults


def _check_blocks(file: _File, report: VerifyReport) -> Iterator[int]:
    """Reads a file, and yields how much of it was read; the report says which blocks are bad."""
    path = str(file.path)
    try:
        file.check()
        count, table_faults = _core.count_blocks(path)
        for first in range(0, count, _BLOCKS_PER_STEP):
            for bad in _core.verify_blocks(path, first, _BLOCKS_PER_STEP):
                place = f"block {bad.block} (offset {bad.offset}, {bad.size} bytes)"
                report.bad += file.fault(f"{path}: {place}: {bad.detail}")
            yield min(first << 20, file.bytes)
        for fault in table_faults:
            report.bad += file.fault(f"{path}: {fault.detail}")
        report.blocks += count
        report.bytes += file.bytes
    except (FormatError, FileNotFoundError) as error:
        report.bad += file.fault(error)


def _bad_csr(path: Path, edge_type: EdgeTypeSchema) -> list[str]:
    """Whether the edges by source are not those by destination."""
    if edge_type.csr is None:
        return []
    prints = []
    for file in (edge_type.topology, edge_type.csr):
        try:
            prints.append(edge_prints(_core.Topology.open(str(path / file))))
        except FormatError as error:
            return [str(error)]
    if prints[0] == prints[1][::-1]:
        return []
    expected = f"those of {edge_type.topology} with both ends exchanged"
    return [str(FormatError.of(path / edge_type.csr, "edges", "others", expected))]
