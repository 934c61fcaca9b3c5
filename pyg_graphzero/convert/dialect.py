"""How a delimited text file is laid out, and where in it a fault lies.

Rules, the same for the fast path (:mod:`.text`) and the fault finder here:

* UTF-8, with or without a byte-order mark; ``.gz`` is decompressed.
* A line that starts with the comment mark (``#`` unless told otherwise) is not data, wherever it
  stands. Blank lines are not data. Every other line is one row, with as many cells as the first.
* Cells may be quoted with ``"``. Blanks around a cell are not part of it. With blanks as the
  delimiter, a run of them is one.
"""

from __future__ import annotations

import csv
import gzip
import io
import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import IO

from ..errors import InputError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt")
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|[+-]?(nan|inf(inity)?)", re.IGNORECASE)
DELIMITERS = {"tab": "\t", "\\t": "\t", "comma": ",", "semicolon": ";", "space": " ", "pipe": "|"}

_SAMPLE_BYTES = 1 << 16
_SAMPLE_ROWS = 50
_HEADER_WORDS = frozenset(
    f"{word}{end}"
    for word in ("source", "target", "src", "dst", "from", "to", "head", "tail", "node")
    for end in ("", "_id", "id", "nodeid")
) | {"id", "label", "weight", "time", "timestamp", "u", "v"}
# Blanks in the sense of pyarrow's number parsing; other Unicode spaces are part of a cell.
BLANKS = " \t"
_RUN = re.compile(r"[ \t]+")
_NAME = re.compile(r"[^\W\d]")
DECODE_ERRORS = (EOFError, gzip.BadGzipFile, zlib.error)


@dataclass(frozen=True)
class Dialect:
    """Layout of one file.

    Attributes:
        delimiter: One character; ``" "`` means any run of blanks.
        names: Column names, from the header, from a comment line above the data, or none.
        num_columns: Cells in every row.
        skip_lines: Physical lines before the first row.
        comment: What a comment line starts with; ``None`` if there are no comments.
        sample: The first rows, as cells.
    """

    path: Path
    delimiter: str
    names: tuple[str, ...]
    num_columns: int
    skip_lines: int
    comment: str | None
    sample: tuple[tuple[str, ...], ...]

    def position(self, column: str | int) -> int:
        """Index of a column given by name, or by 0-based position where no name matches.

        Raises:
            InputError: There is no such column, or there are two.
        """
        there = ", ".join(self.names) or f"{self.num_columns} columns without names"
        if isinstance(column, str):
            count = self.names.count(column)
            if count == 1:
                return self.names.index(column)
            if count > 1:
                raise InputError(
                    self.path,
                    "header",
                    f"{count} columns named {column!r}",
                    "one",
                    "Select it by position instead.",
                )
        if isinstance(column, int) or column.isdecimal():
            position = int(column)
            if 0 <= position < self.num_columns:
                return position
        raise InputError(self.path, "header", there, f"a column {column!r}")

    def label(self, position: int) -> str:
        """How messages call a column."""
        return repr(self.names[position]) if self.names else str(position)

    def rows(self) -> Iterator[tuple[int, list[str]]]:
        """Every data row with the 1-based line it starts on; slow, for finding a fault."""
        with open_text(self.path) as file:
            lines = _Lines(file, self.comment, self.delimiter == " ")
            for _ in range(self.skip_lines):
                next(lines, None)
            reader = csv.reader(lines, delimiter=self.delimiter)
            first = lines.count + 1
            for row in reader:
                if row:
                    yield first, [cell.strip(BLANKS) for cell in row]
                first = lines.count + 1

    def line_of(self, row: int) -> int:
        """1-based line of the 0-based data row ``row``."""
        return next((line for line, _ in islice(self.rows(), row, None)), 0)


class _Lines:
    """Iterator over lines in which comments and blank lines are empty."""

    def __init__(self, file: IO[bytes], comment: str | None, squeeze: bool) -> None:
        self._text = io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="\n")
        self._comment = comment
        self._squeeze = squeeze
        self.count = 0

    def __iter__(self) -> _Lines:
        return self

    def __next__(self) -> str:
        line = next(self._text)
        self.count += 1
        text = line.strip(BLANKS + "\r\n")
        if not text or (self._comment and text.startswith(self._comment)):
            return "\n"
        return _RUN.sub(" ", text) + "\n" if self._squeeze else line


def open_text(path: Path) -> IO[bytes]:
    """Open for reading, decompressing ``.gz``.

    Raises:
        OSError: As :func:`open`.
    """
    return gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb")  # type: ignore[return-value]


def sniff(
    path: Path,
    *,
    delimiter: str | None = None,
    header: bool | None = None,
    comment: str | None = "#",
    wanted: tuple[str | int, ...] = (),
) -> Dialect:
    """Find out the layout of ``path`` from its beginning.

    Args:
        path: The file.
        delimiter: One character or its name (``"tab"``); detected when ``None``.
        header: Whether the first row holds names; detected when ``None``.
        comment: What a comment line starts with.
        wanted: Columns the caller is going to ask for: names among them settle the header.

    Raises:
        InputError: The file is empty, not UTF-8, or whether it has a header cannot be told.
        OSError: It cannot be opened.
    """
    lines, complete = _head(path)
    last_comment, start = "", -1
    for number, line in enumerate(lines):
        text = line.strip(BLANKS + "\r")
        if comment and text.startswith(comment):
            last_comment = last_comment if start >= 0 else text[len(comment) :].strip(BLANKS)
            lines[number] = ""
        elif text and start < 0:
            start = number
    if start < 0:
        found = "an empty file" if complete else "a beginning without data"
        raise InputError(path, "file", found, "at least one row")
    lines = lines[start:]
    delimiter = _delimiter(path, delimiter, lines)
    table, length = _table(lines, delimiter)
    above = _table([last_comment], delimiter)[0]
    names = tuple(cell.lstrip("#% ") for cell in above[0]) if above else ()
    if len(names) != len(table[0]) or len(set(names)) != len(names):
        names = ()
    words = {name for name in wanted if isinstance(name, str) and not name.isdecimal()}
    skip = start
    if header is None and words and words <= set(names):
        header = False  # the names stand in a comment above the data
    if header is None:
        header = _has_header(path, table, words, complete, skip + 1)
    if header:
        names, table, skip = tuple(table[0]), table[1:], skip + length
    return Dialect(
        path, delimiter, names, len(names or table[0]), skip, comment, tuple(map(tuple, table))
    )


def _head(path: Path) -> tuple[list[str], bool]:
    """The first lines of the file, and whether they are all of it."""
    try:
        with open_text(path) as file:
            raw = file.read(_SAMPLE_BYTES)
            complete = len(raw) < _SAMPLE_BYTES
            if not complete:
                raw += file.readline()  # no row of the sample may be cut short
    except DECODE_ERRORS as error:
        raise InputError(path, "file", f"damaged gzip data ({error})", "a gzip file") from error
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
        lines = [_RUN.sub(" ", line.strip(BLANKS)) for line in lines]
    reader = csv.reader((line + "\n" for line in lines if line.strip(BLANKS)), delimiter=delimiter)
    rows: list[list[str]] = []
    length = 1
    for row in reader:
        if row:
            rows.append([cell.strip(BLANKS) for cell in row])
            length = reader.line_num if len(rows) == 1 else length
        if len(rows) == _SAMPLE_ROWS:
            break
    return rows, length


def _delimiter(path: Path, given: str | None, lines: list[str]) -> str:
    """The given delimiter, or the one that cuts the sample into the most even rows."""
    if given is not None:
        given = DELIMITERS.get(given, given)
        if len(given) != 1:
            raise ValueError(f"delimiter={given!r}: expected one character")
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
    if scores[best] != (0.0, 0):
        return best
    return " " if score(" ") != (0.0, 0) else ","


def _has_header(
    path: Path, table: list[list[str]], words: set[str], complete: bool, line: int
) -> bool:
    """Whether the first row names the columns.

    A number is no name. Where neither the columns asked for, nor the usual words, nor names above a
    number settle it, the file is refused: a wrong guess loses an edge or invents one.
    """
    first = table[0]
    if any(NUMBER.fullmatch(cell) for cell in first):
        return False
    if (words and words <= set(first)) or any(cell.lower() in _HEADER_WORDS for cell in first):
        return True
    names = all(_NAME.match(cell) for cell in first) and len(set(first)) == len(first)
    if names and any(NUMBER.fullmatch(cell) for row in table[1:2] for cell in row):
        return True
    shown = ",".join(first)[:60]
    raise InputError(
        path,
        f"line {line}",
        f"{shown!r}, which may be column names or a row",
        "header=True or header=False (--header or --no-header) to tell",
    )
