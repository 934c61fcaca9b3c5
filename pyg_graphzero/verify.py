"""Reading a whole store against its checksums, and naming what is bad."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from pyg_graphzero import _core, schema
from pyg_graphzero.adopted import adopted_path, open_adopted
from pyg_graphzero.errors import FormatError

_BLOCKS_PER_STEP = 64


@dataclass
class VerifyReport:
    """What verify() read and found.

    Attributes:
        files: Number of files checked, adopted ones not among them.
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

    def __str__(self) -> str:
        head = f"{self.files} files, {self.blocks} blocks, {self.bytes:,} bytes: "
        notes = [f"{path}: adopted, size and fingerprint checked" for path in self.adopted]
        verdict = ["all good"] if self.ok else [f"{len(self.bad)} bad", *self.bad]
        return head + "\n".join([*verdict, *notes])


def verify(path: Path, progress: Callable[[int, int], None] | None = None) -> VerifyReport:
    """Checks every header, size and block checksum of the store at ``path``.

    Args:
        path: The store's directory.
        progress: Called with (bytes read so far, bytes in all).

    Raises:
        FileNotFoundError: No store at ``path``.
        FormatError: `store.json` itself cannot be read; faults of other files are reported.
        OSError: A read failed.
    """
    store = schema.load(path)
    total = sum(record.bytes for record in store.files.values())
    report, seen = VerifyReport(), 0
    for name, record in store.files.items():
        report.files += 1
        seen += record.bytes
        file = str(path / name)
        try:
            schema.check_file(path, name, record)
            count, table_faults = _core.count_blocks(file)
            for first in range(0, count, _BLOCKS_PER_STEP):
                for block, offset, size, detail in _core.verify_blocks(
                    file, first, _BLOCKS_PER_STEP
                ):
                    report.bad.append(
                        f"{file}: block {block} (offset {offset}, {size} bytes): {detail}"
                    )
                if progress is not None:
                    progress(seen - record.bytes + min(first << 20, record.bytes), total)
            report.bad += [f"{file}: {detail}" for *_, detail in table_faults]
            report.blocks += count
            report.bytes += record.bytes
        except FormatError as error:
            report.bad.append(str(error))
    for name, adopted in store.adopted.items():
        report.adopted.append(str(adopted_path(path, adopted)))
        try:
            open_adopted(path, name, adopted)
        except FormatError as error:
            report.bad.append(str(error))
    if progress is not None:
        progress(total, total)
    return report
