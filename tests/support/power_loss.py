"""Possible contents of a disk after a power failure, from a record of a process's file calls.

``tests/fuzz/recorder.c`` makes the record. A cut is a place in it. Synced writes and names before
it are there; each other write and each new or changed name may be there or not, whatever came
before, and a write may be there in part.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import preload

_SOURCE = Path(__file__).parents[1] / "fuzz" / "recorder.c"
_PAGE = 4096


@dataclass(frozen=True)
class Event:
    """A call that changed files; ``kind`` is the recorder's name of it."""

    kind: str
    ino: int
    offset: int
    size: int
    path: str
    other: str
    data: bytes = b""


@dataclass
class File:
    """Bytes that are safe, and since then writes ``(offset, bytes)`` and cuts ``(size, None)``."""

    synced: bytes = b""
    pending: list[tuple[int, bytes | None]] = field(default_factory=list)

    def content(self, changes: list[tuple[int, bytes | None]] | None = None) -> bytes:
        """With all changes that came after the last sync, or with these."""
        body = bytearray(self.synced)
        for at, data in self.pending if changes is None else changes:
            end = at if data is None else at + len(data)
            body.extend(bytes(max(0, end - len(body))))
            if data is None:
                del body[at:]
            else:
                body[at:end] = data
        return bytes(body)

    def torn(self, draw: random.Random) -> bytes:
        """With some of them, and parts of some."""
        kept: list[tuple[int, bytes | None]] = []
        for at, data in self.pending:
            if data is None:
                kept += [(at, None)] * draw.randint(0, 1)
                continue
            first = at - at % _PAGE
            for page in range(first, at + len(data), _PAGE):  # a page is written whole or not
                begin, end = max(page, at), min(page + _PAGE, at + len(data))
                if draw.random() < 0.5:
                    kept.append((begin, data[begin - at : end - at]))
        return self.content(kept)


@dataclass
class Folder:
    """Names that are safe, and what was done to names since."""

    synced: dict[str, File | Folder] = field(default_factory=dict)
    pending: list[list[tuple[Folder, str, File | Folder | None]]] = field(default_factory=list)

    def names(self, is_kept: Callable[[], bool] = lambda: True) -> dict[str, File | Folder]:
        """With the changes that are kept; a rename is one change."""
        found = dict(self.synced)
        for change in self.pending:
            if not is_kept():
                continue
            for folder, name, node in change:
                if folder is self and node is None:
                    found.pop(name, None)
                elif folder is self and node is not None:
                    found[name] = node
        return found


class Disk:
    """A directory that begins empty, and what a record does to it."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.top = Folder()
        self._by_ino: dict[int, File] = {}

    def find(self, path: str) -> File | Folder | None:
        """The file or folder that has this name now."""
        node: File | Folder | None = self.top
        for part in Path(path).relative_to(self.root).parts:
            if not isinstance(node, Folder):
                return None
            node = node.names().get(part)
        return node

    def _parent(self, path: str) -> tuple[Folder, str]:
        parent = self.find(os.path.dirname(path))
        assert isinstance(parent, Folder), path
        return parent, os.path.basename(path)

    def _change(self, *changes: tuple[str, File | Folder | None]) -> None:
        change = [(*self._parent(path), node) for path, node in changes]
        for folder in {id(folder): folder for folder, _, _ in change}.values():
            folder.pending.append(change)

    def apply(self, event: Event) -> None:
        """Does what the process did."""
        if event.kind == "create":
            self._by_ino[event.ino] = fresh = File()
            self._change((event.path, fresh))
        elif event.kind == "mkdir":
            self._change((event.path, Folder()))
        elif event.kind == "unlink":
            self._change((event.path, None))
        elif event.kind == "rename":
            self._change((event.path, None), (event.other, self.find(event.path)))
        elif event.kind == "exchange":
            here, there = self.find(event.path), self.find(event.other)
            self._change((event.path, there), (event.other, here))
        elif event.kind == "write":
            self._by_ino[event.ino].pending.append((event.offset, event.data))
        elif event.kind == "resize":
            self._by_ino[event.ino].pending.append((event.size, None))
        elif event.kind == "sync":
            self._sync(event)

    def _sync(self, event: Event) -> None:
        node = self.find(event.path)
        if isinstance(node, Folder):
            node.synced, node.pending = node.names(), []
        elif event.ino in self._by_ino:
            file = self._by_ino[event.ino]
            file.synced, file.pending = file.content(), []

    def files(self, node: File | Folder | None = None) -> Iterator[tuple[str, File | Folder]]:
        """Everything below a folder by its name there, the folder itself as ``.``."""
        node = self.top if node is None else node
        yield ".", node
        if isinstance(node, Folder):
            for name, child in node.names().items():
                for below, found in self.files(child):
                    yield (name if below == "." else f"{name}/{below}"), found

    def remains(self, seed: int | None) -> dict[str, bytes | None]:
        """Possible remains of the disk by path: folders as None, files as their content.

        Args:
            seed: Choice of unsynced changes that stay. None: all. 0: none. 1: names alone. Other
                seeds: some of them.
        """
        draw = random.Random(seed)
        left: dict[str, bytes | None] = {}

        def is_kept() -> bool:
            return seed is None or seed == 1 or (seed > 1 and draw.random() < 0.5)

        def leave(node: File | Folder, path: str) -> None:
            if isinstance(node, Folder):
                left[path] = None
                for name, child in node.names(is_kept).items():
                    leave(child, f"{path}/{name}")
            elif seed is None:
                left[path] = node.content()
            else:
                left[path] = node.torn(draw) if seed > 1 else node.synced

        leave(self.top, ".")
        return left


def write_out(left: dict[str, bytes | None], to: Path) -> Path:
    """Makes such a directory."""
    for name, content in left.items():
        if content is None:
            (to / name).mkdir()
        else:
            (to / name).write_bytes(content)
    return to


def read_record(path: Path) -> list[Event]:
    """The events of a record."""
    events = []
    with path.open("rb") as file:
        while line := file.readline():
            kind, ino, offset, size, name, other = line.decode().rstrip("\n").split("\t")
            data = file.read(int(size)) if kind == "write" else b""
            events.append(Event(kind, int(ino), int(offset), int(size), name, other, data))
    return events


def record(script: str, folder: Path) -> None:
    """Runs Python code that works below ``watched``, and writes what it did there to ``record``."""
    root = folder / "watched"
    root.mkdir(parents=True)
    library = preload.compiled(_SOURCE, folder)
    environment = os.environ | {
        "LD_PRELOAD": str(library),
        "RECORD_ROOT": str(root),
        "RECORD_LOG": str(folder / "record"),
    }
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
