"""Ways in which a store comes to be wrong: numbers in it, names in it, its files."""

from __future__ import annotations

import json
import os
import random
import shutil
import struct
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import xxhash
from mutate import number, word
from outcome import note
from store_files import COLUMN_FIELDS, TOPOLOGY_FIELDS, overwrite, reseal, set_field, write_body

from pyg_graphzero.store import schema

HEADER = 4096


@dataclass
class Damage:
    """The damage to a store.

    Attributes:
        touched: Names of the changed files, relative to the store's parent directory.
        refused: Opening has to refuse it: headers and sizes say what is wrong.
        is_sealed: The schema was changed and its checksum made anew: it may be a good store now,
            and another.
        is_found: Whether ``verify`` has to find it.
        late: To be done after the store was opened.
    """

    touched: set[str] = field(default_factory=set)
    refused: bool = False
    is_sealed: bool = False
    is_found: bool = False
    late: list[Callable[[], None]] = field(default_factory=list)


def _files(root: Path) -> list[Path]:
    """Files of the store and files beside it, but the schema and empty ones."""
    every = [p for p in root.rglob("*") if p.is_file() and not p.is_symlink()]
    return sorted(p for p in every if p.name != schema.SCHEMA_FILE and p.stat().st_size > 0)


def _is_ours(path: Path) -> bool:
    return path.suffix in (".gd", ".gl")


def _is_listed(path: Path, root: Path) -> bool:
    """Whether the schema names a file, so that opening looks at it."""
    store = root / "store"
    try:
        files = json.loads((store / schema.SCHEMA_FILE).read_bytes())["files"]
        return store not in path.parents or str(path.relative_to(store)) in files
    except (KeyError, TypeError, ValueError):
        return False


def reseal_blocks(path: Path) -> None:
    """Makes the checksum table and the header of a file agree with its data."""
    raw = bytearray(path.read_bytes())
    at, count = struct.unpack_from("<QQ", raw, 40)
    if not HEADER <= at <= len(raw) or at + 8 * count > len(raw):
        return
    for block in range(count):
        begin = HEADER + (block << 20)
        digest = xxhash.xxh64_intdigest(bytes(raw[begin : min(begin + (1 << 20), at)]))
        struct.pack_into("<Q", raw, at + 8 * block, digest)
    struct.pack_into("<Q", raw, 56, xxhash.xxh64_intdigest(bytes(raw[at : at + 8 * count])))
    struct.pack_into("<Q", raw, HEADER - 8, xxhash.xxh64_intdigest(bytes(raw[: HEADER - 8])))
    path.write_bytes(raw)


class Vandal:
    """Damages one store; which way follows from the numbers it is given.

    Args:
        root: Directory of the store and of the files that it has adopted.
        rng: Source of the choices.
    """

    def __init__(self, root: Path, rng: random.Random) -> None:
        self.root = root
        self.store = root / "store"
        self.rng = rng
        self.done = Damage()

    def __call__(self) -> Damage:
        ways: list[tuple[int, Callable[[], None]]] = [
            (5, self.nothing),
            (24, self.data),
            (16, self.headers),
            (22, self.document),
            (10, self.cut_late),
            (6, self.replace),
            (4, self.swap),
        ]
        chosen = self.rng.choices([way for _, way in ways], [n for n, _ in ways])[0]
        chosen()
        # One that has become a FIFO or a device is not for us to open.
        if self.rng.random() < 0.1 and (self.store / schema.SCHEMA_FILE).is_file():
            self.rng.choices([way for _, way in ways], [n for n, _ in ways])[0]()
            self.done.refused = self.done.is_found = False  # one may have undone the other
        return self.done

    def _touch(self, path: Path, what: str) -> None:
        name = str(path.relative_to(self.root))
        self.done.touched.add(name)
        note(f"damage: {name}: {what}")

    def _reseal(self) -> None:
        """Makes store.json agree with what its files are now."""
        self.done.is_sealed = True
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # damaged before
            reseal(self.store)

    def _pick(self) -> Path | None:
        files = _files(self.root)
        return self.rng.choice(files) if files else None

    def nothing(self) -> None:
        pass

    def data(self) -> None:
        """Words or bytes behind the header, checksums of blocks repaired or not."""
        if self.rng.random() < 0.1 and (foreign := sorted(self.root.glob("*.*"))):
            path = self.rng.choice(foreign)
            at = self.rng.randrange(path.stat().st_size)
            overwrite(path, at, self.rng.randbytes(1))
            return self._touch(path, f"the byte at {at}")
        files = [p for p in _files(self.root) if _is_ours(p) and p.stat().st_size > HEADER]
        # Files that guide the reading of others are damaged more often than rows.
        weights = [
            1 if p.name.split(".")[0] not in GUIDES else 4 if p.suffix == ".gd" else 6
            for p in files
        ]
        if not files:
            return None
        path = self.rng.choices(files, weights)[0]
        raw = path.read_bytes()
        end = min(len(raw), HEADER + self.rng.choice([64, 800, 4096, len(raw)]))
        damaged = bytearray(raw)
        for _ in range(self.rng.choice([1, 1, 2, 3])):
            self._touch(path, word(damaged, self.rng.randrange(HEADER, end), self.rng))
        path.write_bytes(damaged)
        if path.stat().st_size != len(raw):
            self.done.refused |= _is_listed(path, self.root)
        elif path.read_bytes() != raw:
            self.done.is_found |= _is_listed(path, self.root)
        if self.rng.random() < 0.3:
            self.done.is_found = False
            self._touch(path, "its checksums made anew")
            reseal_blocks(path)
            self._reseal()
            self.done.refused = False
        return None

    def headers(self) -> None:
        """Fields of headers, with and without their checksum made anew."""
        path = self._pick()
        if path is None or not _is_ours(path) or path.stat().st_size < HEADER:
            return self.data()
        raw = path.read_bytes()
        is_sealed = self.rng.random() < 0.8
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            fields = TOPOLOGY_FIELDS if path.suffix == ".gl" else COLUMN_FIELDS
            part = self.rng.choice(fields[:-1])
            old = part.read(raw)
            new = number(self.rng, old) % (1 << 8 * part.size)
            set_field(path, part.name, new, rehash=is_sealed)
            self._touch(path, f"{part.name}: {old} is {new}, hash made anew: {is_sealed}")
        if path.read_bytes() == raw:
            return None
        if is_sealed and self.rng.random() < 0.9:
            return self._reseal()
        self.done.refused |= _is_listed(path, self.root)
        return None

    def document(self) -> None:
        """Names and numbers of store.json; its checksum is right, mostly."""
        path = self.store / schema.SCHEMA_FILE
        before = path.read_bytes()
        try:
            body = json.loads(before)
        except (ValueError, RecursionError):
            return
        for _ in range(self.rng.choice([1, 1, 1, 2, 3])):
            body = self._changed(body, note_as="store.json")
        rehash = self.rng.random() < 0.95
        body = body if isinstance(body, dict) else {"store": body}
        write_body(path, body, rehash)
        self.done.touched.add("store/store.json")
        self.done.is_sealed |= rehash
        self.done.refused |= not rehash and json.loads(path.read_bytes()) != json.loads(before)

    def _changed(self, body: Any, note_as: str) -> Any:
        """A document with one value of it changed, removed, swapped with another, or added."""
        places: list[tuple[Any, Any]] = []

        def walk(value: Any, depth: int = 0) -> None:
            if depth > 12:
                return
            for key in value if isinstance(value, dict) else range(len(value)):
                places.append((value, key))
                if isinstance(value[key], (dict, list)):
                    walk(value[key], depth + 1)

        if isinstance(body, (dict, list)):
            walk(body)
        if not places:
            return {}
        owner, key = self.rng.choice(places)
        old = owner[key]
        kind = self.rng.random()
        if kind < 0.12:
            del owner[key]
            what = "removed"
        elif kind < 0.3:
            same = [(o, k) for o, k in places if type(o[k]) is type(old)]
            other, there = self.rng.choice(same)
            owner[key], other[there] = other[there], old
            what = f"swapped with {there!r}"
        elif kind < 0.4 and isinstance(owner, dict):
            name = self.rng.choice(_STRINGS)
            owner[name] = old
            what = f"also called {name!r:.60}"
            if self.rng.random() < 0.5:
                del owner[key]
        else:
            owner[key] = new = self._value(old)
            what = f"{old!r:.60} is {new!r:.60}"
        note(f"damage: {note_as}: {key!r:.60}: {what}")
        return body

    def _value(self, old: Any) -> Any:
        kind = self.rng.random()
        if kind < 0.5 and isinstance(old, bool):
            return not old
        if kind < 0.6 and isinstance(old, int):
            return number(self.rng, old)
        if kind < 0.6 and isinstance(old, str):
            return self.rng.choice(_STRINGS)
        deep: Any = 1
        if kind < 0.65:
            for _ in range(self.rng.choice([5, 200])):
                deep = [deep] if self.rng.random() < 0.5 else {"a": deep}
        return self.rng.choice(
            [None, True, False, 0, -1, 1.5, float("nan"), float("inf"), 2**63, 2**64, 10**30, "",
             "x", [], {}, [1], {"a": 1}, deep, ["a", "b", "c"], *_STRINGS]
        )  # fmt: skip

    def _cut(self, path: Path) -> None:
        size = path.stat().st_size
        length = self.rng.choice([0, 1, 100, 4095, 4096, 4097, 5000, 8192, size // 2, size - 1])
        length = min(length, size - 1)
        os.truncate(path, length)
        self._touch(path, f"{length} of {size} bytes are left")

    def cut_late(self) -> None:
        """A file ends too early, after the store was opened."""
        files = _files(self.root)
        chosen = self.rng.sample(files, min(len(files), self.rng.choice([1, 1, 1, 3])))
        for path in chosen:
            self.done.touched.add(str(path.relative_to(self.root)))

        def do() -> None:
            for path in chosen:
                if path.is_file() and path.stat().st_size:
                    self._cut(path)

        self.done.late.append(do)

    def replace(self) -> None:
        """Another kind of thing where a file was."""
        paths = [*_files(self.root), self.store / schema.SCHEMA_FILE]
        path = self.rng.choice(paths)
        kind = self.rng.choice(
            ["fifo", "directory", "dangling", "loop", "/dev/null", "/dev/zero", "copy", "other"]
        )
        others = [p for p in _files(self.root) if p != path]
        if path.is_dir():
            shutil.rmtree(path)
        elif kind == "copy":  # a link to the same bytes, which is as good
            path.rename(path.with_name("elsewhere"))
        else:
            path.unlink()
        if kind == "fifo":
            os.mkfifo(path)
        elif kind == "directory":
            path.mkdir()
        else:
            target = {"dangling": "nowhere", "loop": path.name, "copy": "elsewhere"}.get(kind, kind)
            if kind == "other":
                target = str(self.rng.choice(others)) if others else "nowhere"
            path.symlink_to(target)
        self._touch(path, f"is a {kind}")

    def swap(self) -> None:
        """Two files have each other's place, the schema as it was or made anew."""
        files = [p for p in _files(self.root) if _is_ours(p)]
        if len(files) < 2:
            return
        a, b = self.rng.sample(files, 2)
        contents = b.read_bytes(), a.read_bytes()
        for path, other, content in zip((a, b), (b, a), contents, strict=True):
            path.write_bytes(content)
            self._touch(path, f"swapped with {other.name}")
        if self.rng.random() < 0.7:
            self._reseal()


# Files by which others are read: where one is damaged, nothing can be said of values.
GUIDES = {
    *("topology", "edge_id", "csr", "csr_slot", "id_offsets"),
    *("train_idx", "train_mask", "weight", "time"),
}
_STRINGS = [
    "", "x", "y", "h", ".", "..", "../x.npy", "/etc/passwd", "/dev/zero", "node", "node/x.gd",
    "node/y.gd", "edge/topology.gl", "edge/edge_id.gd", "store.json", "lock", "unpublished",
    "a\0b", "\ud800", "é" * 300, "a/b/c", "edge_index", "num_nodes",
    "float32", "int64", "paper", "time", "weight", "num_edges", "None", "0" * 16,
    "adopted_rows", "edge_ids_absent",
    "../store/node/x.gd", "keys", "_store", "__class__", "x" * 5000, "node/../node/x.gd",
    "./node/x.gd", "node//x.gd",
]  # fmt: skip
