"""How delimited text is laid out.

Rules, the same for the fast path (:mod:`.text`) and the fault finder (:mod:`.blocks`):

* UTF-8, with or without a byte-order mark; ``.gz``, ``.zst``, ``.bz2`` and ``.lz4`` are
  decompressed. Several files are one table: they have the same columns in the same order, and each
  may repeat the header.
* A line that starts with the comment mark (``#`` unless told otherwise, or ``%`` where the first
  line does) is not data, wherever it stands. Blank lines are not data. Every other line is one
  row, with as many cells as the first.
* Cells may be quoted with ``"``. Blanks around a cell are not part of it. With blanks as the
  delimiter, a run of them is one. A delimiter of several characters, ``::``, is one that no parser
  takes: rows are parsed with a control character in its place.
"""

from __future__ import annotations

import csv
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyg_graphzero.conversion.names import is_header
from pyg_graphzero.conversion.paths import TextFile, name_in, place_of
from pyg_graphzero.errors import InputError

NUMBER = re.compile(
    r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE | re.ASCII
)
DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}

MAX_ROW_BYTES = 64 << 20
_SAMPLE_BYTES = 1 << 16
_HEADER_BYTES = 1 << 12  # of a file that follows another
_SAMPLE_ROWS = 50
# Blanks in the sense of pyarrow's number parsing; other Unicode spaces are part of a cell.
BLANKS = " \t"
_SEPARATOR = "\x1f"  # ASCII's own, which text does not hold
RUN = re.compile(r"[ \t]+")
_NAME = re.compile(r"[^\W\d]")


@dataclass(frozen=True)
class Part:
    """One file of a table.

    Attributes:
        skip_lines: Physical lines before its first row.
    """

    path: Path
    skip_lines: int


class NamedColumns(ABC):
    """The columns of a table in files or in memory, by name and position.

    Attributes:
        path: The table, for messages.
        names: Column names, or none.
        num_columns: Number of columns.
        index: Names of the columns that were an index.
    """

    path: Path
    names: tuple[str, ...]
    num_columns: int
    index: tuple[str, ...] = ()

    @abstractmethod
    def is_text(self, position: int) -> bool:
        """Whether a column holds text."""

    @cached_property
    def by_name(self) -> dict[str, list[int]]:
        """Positions of the columns of each name: they are looked up by the thousand."""
        found: dict[str, list[int]] = {}
        for position, name in enumerate(self.names):
            found.setdefault(name, []).append(position)
        return found

    def position(self, column: str | int) -> int:
        """Index of a column given by name, or by 0-based position where no name matches.

        Raises:
            InputError: There is no such column, or there are two.
        """
        found = self.by_name.get(column, []) if isinstance(column, str) else []
        if len(found) == 1:
            return found[0]
        if found:
            several, hint = f"{len(found)} named {column!r}", "Select it by position instead."
            raise InputError(self.path, "columns", several, "one", hint)
        if str(column).isdecimal() and int(column) < self.num_columns:
            return int(column)
        there = ", ".join(self.names) or f"{self.num_columns} columns without names"
        raise InputError(self.path, "columns", there, f"a column {column!r}")

    @property
    def data(self) -> list[int]:
        """Positions of the columns that are no index."""
        return [
            at
            for at in range(self.num_columns)
            if not self.names or self.names[at] not in self.index
        ]

    def label(self, position: int) -> str:
        """A column's name as messages show it, or its position."""
        return repr(self.names[position]) if self.names else str(position)


@dataclass(frozen=True)
class Dialect(NamedColumns):
    """Layout of a table in one file, or in several that follow one another.

    Attributes:
        parts: Its files.
        delimiter: One or several characters; ``" "`` means any run of blanks.
        names: Column names, from the header, from a comment line above the data, or none.
        num_columns: Cells in every row.
        comment: The mark that starts a comment line; ``None`` if there are no comments.
        sample: The first rows, as cells.
    """

    parts: tuple[Part, ...]
    delimiter: str
    names: tuple[str, ...]
    num_columns: int
    comment: str | None
    sample: tuple[tuple[str, ...], ...]

    @property
    def separator(self) -> str:
        """The character between cells when rows are parsed."""
        return separator(self.delimiter)

    @property
    def path(self) -> Path:  # type: ignore[override]
        """How messages call the table: its file, or what its files have in common."""
        return place_of([part.path for part in self.parts])

    def file_label(self, part: int) -> str:
        """The name of a file before a place in it; empty if there is only one."""
        return name_in([each.path for each in self.parts], part, ", ")

    def is_text(self, position: int) -> bool:
        """Whether a column of ids holds text: its first cell decides."""
        cells = [row[position] for row in self.sample[:1] if len(row) > position]
        return bool(cells) and bool(cells[0]) and not NUMBER.fullmatch(cells[0])


def separator(delimiter: str) -> str:
    """One character, whatever separates cells in the file."""
    return delimiter if len(delimiter) == 1 else _SEPARATOR


def sniff(
    files: Sequence[Path],
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    comment: str | None = "#",
    wanted: tuple[str | int, ...] = (),
) -> Dialect:
    """Find out the layout of a table from its beginning.

    Args:
        files: One or more, which follow one another.
        delimiter: One or several characters, or a name (``"tab"``); detected when ``None``.
        header: Whether the first row holds names; detected when ``None``.
        comment: The mark that starts a comment line.
        wanted: Columns the caller is going to ask for: names among them settle the header.

    Raises:
        InputError: All files are empty, one is not UTF-8, or whether there is a header cannot be
            told.
        OSError: One cannot be opened.
    """
    if comment == "#" and any(first_lines(path, 1)[0][0].startswith("%") for path in files[:1]):
        comment = "%"
    heads = ((path, _head(path, comment, _SAMPLE_BYTES)) for path in files)
    path, head = next(((path, head) for path, head in heads if head.lines), (files[0], None))
    if head is None:
        head = _head(path, comment, _SAMPLE_BYTES)
        found = "an empty file" if head.complete else "a beginning without data"
        raise InputError(path, "file", found, "at least one row")
    delimiter = _delimiter(delimiter, head.lines)
    table, length = _table(head.lines, delimiter)
    above = _table([head.last_comment], delimiter)[0]
    names = tuple(cell.lstrip("#% ") for cell in above[0]) if above else ()
    if len(names) != len(table[0]) or len(set(names)) != len(names):
        names = ()
    words = {name for name in wanted if isinstance(name, str) and not name.isdecimal()}
    if header is None and words and words <= set(names):
        header = False  # the names stand in a comment above the data
    if header is None:
        header = _has_header(path, table, words, head.start + 1)
    skip = head.start
    if header:
        names, table, skip = tuple(table[0]), table[1:], skip + length
    if not table:  # of Neo4j's exports, one file is the header of the others
        lines = next((lines for _, other in heads if (lines := other.lines)), [])
        table = [row for row in _table(lines, delimiter)[0] if tuple(row) != names]
    repeated = names if header else ()
    parts = [Part(path, skip)]
    parts += [
        _following(other, path, delimiter, comment, repeated)
        for other in files[files.index(path) + 1 :]
    ]
    return Dialect(
        tuple(parts), delimiter, names, len(names or table[0]), comment, tuple(map(tuple, table))
    )


def _following(
    path: Path, first: Path, delimiter: str, comment: str | None, header: tuple[str, ...]
) -> Part:
    """A file after the first one: it may repeat the header, and must not have another."""
    head = _head(path, comment, _HEADER_BYTES)
    if not header or not head.lines:
        return Part(path, head.start)
    table, length = _table(head.lines, delimiter)
    if tuple(table[0]) == header:
        return Part(path, head.start + length)
    if sorted(table[0]) == sorted(header):
        raise InputError(
            path,
            f"line {head.start + 1}",
            ", ".join(table[0]),
            f"{', '.join(header)} as in {first}",
        )
    return Part(path, head.start)


@dataclass(frozen=True)
class _Head:
    """The beginning of a file.

    Attributes:
        lines: From the first row on, comments empty; none if there is no row.
        start: Lines before these.
        last_comment: The comment nearest above the first row.
        complete: Whether this is the whole file.
    """

    lines: list[str]
    start: int
    last_comment: str
    complete: bool


def _head(path: Path, comment: str | None, size: int) -> _Head:
    lines, complete = first_lines(path, size)
    last_comment, start = "", -1
    for number, line in enumerate(lines):
        text = line.strip(BLANKS + "\r")
        if comment and text.startswith(comment):
            last_comment = last_comment if start >= 0 else text[len(comment) :].strip(BLANKS)
            lines[number] = ""
        elif text and start < 0:
            start = number
    if start < 0:
        return _Head([], 0, "", complete)
    return _Head(lines[start:], start, last_comment, complete)


def first_lines(path: Path, size: int) -> tuple[list[str], bool]:
    """The first lines of the file, and whether they are all of it."""
    with TextFile(path) as file:
        raw, at = file.read(size), size
        complete = len(raw) < size
        while not complete and b"\n" not in raw[at:]:  # no row of the sample may be cut short
            if len(raw) > MAX_ROW_BYTES:
                line, most = raw.count(b"\n") + 1, f"{MAX_ROW_BYTES >> 20} MiB"
                found = f"more than {most} without an end of line"
                raise InputError(path, f"line {line}", found, f"rows of at most {most}")
            at = len(raw)
            more = file.read(max(at, _HEADER_BYTES))  # as much again: to join them stays linear
            raw += more
            complete = not more
    raw = raw if complete else raw[: raw.index(b"\n", size) + 1]
    if raw[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise InputError(path, "line 1", "UTF-16 text", "UTF-8")
    if b"\0" in raw:
        line = raw.count(b"\n", 0, raw.index(b"\0")) + 1
        raise InputError(path, f"line {line}", "a zero byte: binary data", "text")
    lines = raw.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").split("\n")
    for number, text in enumerate(lines, 1):
        if "\r" in text.rstrip("\r"):
            raise InputError(path, f"line {number}", "a bare carriage return", "lines ended by \\n")
    return lines, complete


def _table(lines: list[str], delimiter: str) -> tuple[list[list[str]], int]:
    """The first rows, and how many lines the very first of them takes."""
    if delimiter == " ":
        lines = [RUN.sub(" ", line.strip(BLANKS)) for line in lines]
    if len(delimiter) > 1:
        lines = [line.replace(delimiter, _SEPARATOR) for line in lines]
    reader = csv_rows((line + "\n" for line in lines if line.strip(BLANKS)), separator(delimiter))
    rows: list[list[str]] = []
    length = 1
    for row in reader:
        if row:
            rows.append([cell.strip(BLANKS) for cell in row])
            length = reader.line_num if len(rows) == 1 else length
        if len(rows) == _SAMPLE_ROWS:
            break
    return rows, length


def csv_rows(lines: Iterable[str], delimiter: str) -> Any:
    """A ``csv.reader`` that takes cells as long as a row may be.

    csv's own limit, 131,072 characters, holds for the whole process, so it is only ever raised.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_ROW_BYTES))
    return csv.reader(lines, delimiter=delimiter)


def _delimiter(given: str | None, lines: list[str]) -> str:
    """The given delimiter, or the one that cuts the sample into the most even rows."""
    if given is not None:
        given = DELIMITERS.get(given, given)
        is_several = len(given) > 1 and not given[0].isalnum() and given.isprintable()
        if len(given) != 1 and (not is_several or '"' in given):
            raise ValueError(
                f"delimiter={given!r}: expected one character, or several such as '::'"
            )
        return given

    def score(candidate: str) -> tuple[float, int]:
        counts = [len(row) for row in _table(lines, candidate)[0]]
        even = sum(count == counts[0] for count in counts) / len(counts)
        return (even, counts[0]) if counts[0] > 1 else (0.0, 0)

    scores = {candidate: score(candidate) for candidate in "\t,;|"}
    # A tab is hardly ever part of a cell; blanks often are, so they come last.
    if scores["\t"][0] == 1.0:
        return "\t"
    best = max(scores, key=lambda candidate: scores[candidate])
    if scores[best][0] < 1.0 and score("::")[0] == 1.0:
        return "::"
    if scores[best] != (0.0, 0):
        return best
    return " " if score(" ") != (0.0, 0) else ","


def _has_header(path: Path, table: list[list[str]], words: set[str], line: int) -> bool:
    """Whether the first row names the columns.

    A number is no name, and none is a value of its own column. Where neither that, nor the columns
    asked for, the usual words or names above a number settle it, the file is refused: a wrong guess
    loses an edge or invents one.
    """
    first = table[0]
    if any(NUMBER.fullmatch(cell) for cell in first):
        return False
    if (words and words <= set(first)) or is_header(first):
        return True
    below = zip(*table[1:], strict=False)
    if any(cell and cell in cells for cell, cells in zip(first, below, strict=False)):
        return False
    named = first[1:] if len(first) > 1 and not first[0] else first  # beside pandas' row numbers
    names = all(_NAME.match(cell) for cell in named) and len(set(first)) == len(first)
    if names and any(NUMBER.fullmatch(cell) for row in table[1:2] for cell in row):
        return True
    shown = ",".join(first)[:60]
    raise InputError(
        path,
        f"line {line}",
        f"{shown!r}, which may be column names or a row",
        "header=True or header=False (--header or --no-header) to tell",
    )
