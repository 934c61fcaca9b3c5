"""``Workspace`` of one conversion: memory by a budget, and a directory for temporary files."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from typing_extensions import Self

from pyg_graphzero import _core
from pyg_graphzero.errors import MemoryBudgetError
from pyg_graphzero.util.locks import make_scratch, remove_abandoned
from pyg_graphzero.util.sizes import parse_size
from pyg_graphzero.util.system import free_memory, rss

# Share of the budget that inputs may keep in memory instead of in temporary files.
_HELD_SHARE = 0.25
# Share of the machine's free memory for a conversion; the rest is for other programs and the page
# cache.
_DEFAULT_SHARE = 0.5
# Below this the buffers would be so small that work is all seeking: half for what a reader holds,
# half for sorting.
READ_ROOM = 64 << 20
MIN_ROOM = READ_ROOM + (64 << 20)


class Workspace:
    """Memory and temporary files of one conversion. Use as a context manager.

    Args:
        out: The store to be written.
        memory: Budget of the whole process, in bytes or such as ``"4GB"``; None takes half of the
            free memory.
        tmp: Directory for temporary files; None puts them beside ``out``.

    Raises:
        ValueError: ``memory`` is no size.
        MemoryBudgetError: It is too small; names the least that works.
        FileNotFoundError: ``tmp`` does not exist.
    """

    def __init__(
        self, out: Path, memory: int | str | None = None, tmp: str | os.PathLike[str] | None = None
    ) -> None:
        used = rss()
        if memory is None:
            self.memory = used + max(MIN_ROOM, int(free_memory() * _DEFAULT_SHARE))
        else:
            self.memory = parse_size(memory, "memory")
            if self.memory < used + MIN_ROOM:
                least = -(-(used + MIN_ROOM) // 10**6)
                raise MemoryBudgetError(
                    f"memory={memory!r}: found {self.memory} bytes, expected {least}MB or more: "
                    f"Python and its libraries take {used // 10**6} MB already"
                )
        self._used = used
        self.room = self.memory - used
        self._holdable = int(self.room * _HELD_SHARE)
        self._near = Path(os.path.realpath(out if tmp is None else Path(tmp) / out.name))
        if not self._near.parent.is_dir():
            folder = str(self._near.parent)
            raise FileNotFoundError(2, "No such directory for temporary files", folder)
        remove_abandoned(self._near, "scratch")
        self._folder: Path | None = None
        self._lock: _core.LockFile | None = None
        self._count = 0

    def hold(self, num_bytes: int) -> bool:
        """Whether that much of the input may stay in memory; if so, there is less room."""
        if num_bytes > self._holdable:
            return False
        self._holdable -= num_bytes
        self.room -= num_bytes
        return True

    @property
    def folder(self) -> Path:
        """The directory for temporary files; made when first asked for."""
        if self._folder is None:
            self._folder, self._lock = make_scratch(self._near, "scratch")
        return self._folder

    def file(self, name: str) -> Path:
        """A path in :attr:`folder` that no other call has given."""
        self._count += 1
        return self.folder / f"{self._count}-{name}"

    def left(self, reserved: int = 0) -> int:
        """Bytes that buffers may take from now on, beside what a reader holds.

        Args:
            reserved: Bytes that have to stay free of buffers besides.

        Raises:
            MemoryBudgetError: That is too little; names the least that works.
        """
        needed = self._used + MIN_ROOM + reserved
        if self.memory < needed:
            raise MemoryBudgetError(
                f"memory: found {self.memory} bytes, expected {-(-needed // 10**6)}MB or more: "
                f"{reserved} bytes are needed for tables with an entry for every node"
            )
        return max(self.memory - rss() - reserved, MIN_ROOM) - READ_ROOM

    def close(self) -> None:
        """Removes the temporary files."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
