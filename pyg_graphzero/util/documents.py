"""JSON documents with a checksum of their own, such as `store.json`."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import xxhash

from pyg_graphzero.errors import FormatError, UnsupportedError

# No document comes near these; one that does would take all memory, or all of the stack.
_MOST_BYTES = 1 << 28
_DEEPEST = 64


def read_document(path: Path) -> dict[str, Any]:
    """The JSON object in a file; whether it is whole, :func:`check_whole` says.

    Args:
        path: The file; one of a store is given as :func:`.names.locate` finds it.

    Raises:
        FileNotFoundError: There is none.
        FormatError: It is no JSON object, or holds what no writer writes.
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


def check_whole(body: dict[str, Any], path: Path) -> None:
    """Raises FormatError unless what :func:`write_document` wrote is as it was written."""
    found, expected = body.get("checksum"), digest(body)
    if found != expected:
        raise FormatError.of(path, "checksum", found, f"{expected}; the document was changed")


class Members:
    """Takes typed members out of a document; every error names the file and the member.

    Args:
        path: The document.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def fail(self, where: str, found: object, expected: str) -> FormatError:
        """The error that something is not as expected at ``where``."""
        return FormatError.of(self.path, where, found, expected)

    def take(self, obj: Any, key: str, kind: type, where: str, optional: bool = False) -> Any:
        """The member ``key`` of ``obj``, which lies at ``where``.

        Args:
            obj: An object of the document, or whatever is in its place.
            key: The member's name.
            kind: Its type; an ``int`` is a count.
            where: Names ``obj``.
            optional: The member may be null.

        Raises:
            FormatError: It is missing, or something else.
        """
        name = f"{where}.{key}" if where else key
        if not isinstance(obj, dict):
            raise self.fail(where or "document", type(obj).__name__, "an object")
        if key not in obj:
            raise self.fail(name, "nothing", kind.__name__)
        value = obj[key]
        if optional and value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            raise self.fail(name, repr(value)[:60], kind.__name__)
        if isinstance(value, int) and not 0 <= value < 2**63:
            raise self.fail(name, repr(value)[:60], "a count from 0 to 2^63 - 1")
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
