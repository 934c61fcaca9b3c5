"""JSON documents with a checksum of their own, such as `store.json`."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import xxhash

from pyg_graphzero.errors import FormatError, UnsupportedError
from pyg_graphzero.util.names import check_name

# No document comes near these; one that does would take all memory, or all of the stack.
_MOST_BYTES = 1 << 28
_DEEPEST = 64


def read_document(path: Path, head: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object in a file, as :func:`write_document` wrote it.

    Args:
        path: The file; one of a store is given as :func:`.names.locate` finds it.
        head: Members that say which kind of document it is, and of which version.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It is no JSON object, of another kind or version, or was changed.
    """

    def fail(found: object, expected: str) -> FormatError:
        return FormatError.of(path, "document", found, expected)

    size = path.stat().st_size
    if size > _MOST_BYTES:
        raise fail(f"{size} bytes", f"at most {_MOST_BYTES}")
    try:
        body = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise fail(f"no valid JSON ({error})", "a JSON object") from None
    if not isinstance(body, dict):
        raise fail(type(body).__name__, "an object")
    fault = _fault(body)
    if fault:
        raise fail(fault, "Unicode text and lists in lists")
    members = Members(path)
    for name, expected in (head or {}).items():
        if members.take(body, name, type(expected).__name__) != expected:
            hint = "; written by a newer release: upgrade" if name == "version" else ""
            raise members.fail(name, repr(body[name]), f"{expected!r}{hint}")
    found, expected = body.get("checksum", "nothing"), digest(body)
    if found != expected:
        raise members.fail("checksum", found, f"{expected}; the document was changed")
    return body


def write_document(body: dict[str, Any], path: Path) -> None:
    """Writes a JSON object with its own checksum as ``path`` and syncs the file.

    Raises:
        OSError: Nothing is left at ``path``.
        UnsupportedError: A name in it is no text.
    """
    check_text(body, path)
    body = {**body, "checksum": digest(body)}
    text = json.dumps(body, indent=1, ensure_ascii=True) + "\n"
    try:
        path.unlink(missing_ok=True)  # never through a link, wherever that may lead
        with path.open("x", encoding="ascii") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
    except BaseException as error:
        path.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise OSError(error.errno, f"cannot write: {error.strerror}", str(path)) from None
        raise


def check_text(body: Any, path: Path) -> None:
    """Raises UnsupportedError if no document with ``body`` in it can be written to ``path``."""
    fault = _fault(body)
    if fault:
        raise UnsupportedError(f"{path}: found {fault}, expected names that are Unicode text")


# By the name of a type: the type of a member, or what checks it.
_KINDS: dict[str, Any] = {
    **{kind.__name__: kind for kind in (bool, int, str, list, dict)},
    "Any": object,
    "File": lambda members, value, where: check_name(value, members.path, where),
}
Record = TypeVar("Record")


class Members:
    """Takes typed members out of a document; every error names the file and the member.

    Args:
        path: The document.
        kinds: By the name of a type, besides those of :data:`_KINDS`: a dataclass whose fields are
            members, or a function that checks a value at a place.
    """

    def __init__(self, path: Path, kinds: Mapping[str, Any] | None = None) -> None:
        self.path = path
        self._kinds = {**_KINDS, **(kinds or {})}

    def fail(self, where: str, found: object, expected: str) -> FormatError:
        """The error that something is not as expected at ``where``."""
        return FormatError.of(self.path, where, found, expected)

    def take(self, obj: Any, key: str, kind: str, where: str = "") -> Any:
        """The member ``key`` of ``obj``, which lies at ``where``.

        Args:
            obj: An object of the document, or whatever is in its place.
            key: The member's name.
            kind: Its type, as a field would declare it; an ``int`` is a count.
            where: Names ``obj``.

        Raises:
            FormatError: It is missing, or something else.
        """
        if not isinstance(obj, dict):
            raise self.fail(where or "document", type(obj).__name__, "an object")
        place = f"{where}.{key}" if where else key
        if key not in obj:
            raise self.fail(place, "nothing", "a value")
        return self._value(kind, obj[key], place)

    def record(self, kind: type[Record], entry: Any, where: str = "") -> Record:
        """The object ``entry``, which lies at ``where``, as a dataclass."""
        members: Any = fields(kind)  # type: ignore[arg-type]
        return kind(*(self.take(entry, each.name, each.type, where) for each in members))

    def _value(self, declared: str, value: Any, where: str) -> Any:
        if declared.endswith(" | None"):
            return None if value is None else self._value(declared[:-7], value, where)
        outer, _, inner = declared.partition("[")
        kind: Any = self._kinds.get(declared) or self._kinds[outer]
        if not isinstance(kind, type):
            return kind(self, value, where)
        if is_dataclass(kind):
            return self.record(kind, value, where)
        is_other = not isinstance(value, kind)
        if is_other or (outer == "int" and isinstance(value, bool)):
            raise self.fail(where, repr(value)[:60], kind.__name__)
        if outer == "int" and not 0 <= value < 2**63:
            raise self.fail(where, repr(value)[:60], "a count from 0 to 2^63 - 1")
        each = inner.removeprefix("str, ").removesuffix("]")
        if outer == "list" and each:
            return [self._value(each, part, f"{where}[{i}]") for i, part in enumerate(value)]
        if outer == "dict":
            return {name: self._value(each, value[name], f"{where}[{name!r}]") for name in value}
        return value


def digest(body: dict[str, Any]) -> str:
    """The checksum of an object, without the one in it."""
    rest = {key: value for key, value in body.items() if key != "checksum"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return xxhash.xxh64_hexdigest(canonical.encode("ascii"))


def _fault(body: Any) -> str:
    """Text or depth in a document that files, messages or programs cannot take; or nothing."""
    todo = [(body, 0)]
    while todo:
        value, depth = todo.pop()
        if depth > _DEEPEST:
            return f"objects in objects, {depth} deep"
        if isinstance(value, dict):
            todo += [(part, depth + 1) for pair in value.items() for part in pair]
        elif isinstance(value, (list, tuple)):
            todo += [(part, depth + 1) for part in value]
        elif isinstance(value, str) and not value.isascii():
            try:
                value.encode()
            except UnicodeEncodeError:
                return f"{ascii(value)[:60]}, half of a surrogate pair"
    return ""
