"""Delimited text in blocks of whole rows: what is parsed at once, and where a fault is looked for.

A block starts at the start of a row, so it can be parsed, and a fault in it found, without what
comes before it. Lines are counted only when a message needs one.
"""

from __future__ import annotations

import csv
import io
import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from pyg_graphzero.conversion.dialect import BLANKS, MAX_ROW_BYTES, Dialect, csv_rows
from pyg_graphzero.conversion.paths import TextFile
from pyg_graphzero.errors import InputError
from pyg_graphzero.util.progress import Progress

BLOCK_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_QUOTE = ord('"')


@dataclass(frozen=True)
class Block:
    """Some rows as they stand in a file.

    Attributes:
        part: Number of the file among the table's.
        offset: Where the block starts, in bytes of the decompressed file.
        data: Its bytes.
    """

    part: int
    offset: int
    data: bytes

    def split(self, dialect: Dialect, size: int) -> Iterator[Block]:
        """These rows in blocks of about ``size`` bytes."""
        begin = 0
        while begin < len(self.data):
            end, step = 0, size
            while not end:
                piece = self.data[begin : begin + step]
                end = len(piece) if begin + step >= len(self.data) else _row_end(piece, dialect)
                step *= 2
            yield Block(self.part, self.offset + begin, piece[:end])
            begin += end


def read_blocks(dialect: Dialect, progress: Progress) -> Iterator[Block]:
    """All rows of a table, comments and blank lines among them.

    Raises:
        InputError: A compressed file is damaged, or a row does not end.
    """
    total = sum(part.path.stat().st_size for part in dialect.parts)
    with progress.step(f"reading {dialect.path.name}", total) as bar:
        for number, part in enumerate(dialect.parts):
            with TextFile(part.path) as file:
                offset, rest = _skip(file, part.skip_lines)
                while True:
                    chunk = file.read(max(BLOCK_BYTES, len(rest)))  # a long row: as much again
                    data = rest + chunk
                    end = _row_end(data, dialect) if chunk else len(data)
                    if end:
                        yield Block(number, offset, data[:end])
                    bar.update(file.taken_since())
                    if not chunk:
                        _check_last_row(part.path, offset, data, dialect)
                        break
                    offset, rest = offset + end, data[end:]
                    if len(rest) > MAX_ROW_BYTES:
                        raise InputError(
                            part.path,
                            f"line {count_lines(part.path, offset) + 1}",
                            f"a row of more than {MAX_ROW_BYTES >> 20} MiB",
                            "an end of line, and an end of every quoted cell",
                        )


def _check_last_row(path: Path, offset: int, data: bytes, dialect: Dialect) -> None:
    """Refuse an open quote at the end of a file: the rows behind it would be one cell of it."""
    end = _row_end(data + b"\n", dialect)
    if end <= len(data):  # by the quotes of comments, too, unless rows are looked at
        end = _row_end_by_rows(data + b"\n", dialect)
    if end <= len(data):
        where, found = f"line {count_lines(path, offset + end) + 1}", "a quote that is not closed"
        raise InputError(path, where, found, "an end of every quoted cell")


def _skip(file: TextFile, num_lines: int) -> tuple[int, bytes]:
    """Offset of the first row, and what has been read from there on."""
    data = file.read(BLOCK_BYTES)
    at = len(_BOM) if data.startswith(_BOM) else 0
    for _ in range(num_lines):
        while (end := data.find(b"\n", at)) < 0:
            more = file.read(max(BLOCK_BYTES, len(data)))
            if not more:
                break
            data += more
        at = end + 1 or len(data)
    return at, data[at:]


def _row_end(data: bytes, dialect: Dialect) -> int:
    """Where the last whole row ends: a line break in quotes ends none."""
    end = data.rfind(b"\n") + 1
    if b'"' not in data:
        return end
    chars = np.frombuffer(b"\n%b\n" % data, np.uint8)
    at = np.flatnonzero(chars == _QUOTE)
    # Quotes open and close by turns if each stands at an edge of a cell, or doubled inside one.
    edges = np.frombuffer(f'{dialect.separator}\n\r"'.encode(), np.uint8)
    if not (np.isin(chars[at[::2] - 1], edges).all() and np.isin(chars[at[1::2] + 1], edges).all()):
        return _row_end_by_rows(data, dialect)
    quotes = at - 1
    while (num_before := int(np.searchsorted(quotes, end))) % 2:
        end = data.rfind(b"\n", 0, int(quotes[num_before - 1])) + 1
    return end


def _row_end_by_rows(data: bytes, dialect: Dialect) -> int:
    """Where the last whole row ends, if quotes stand inside of cells and mean nothing."""
    lines = data.split(b"\n")
    texts = (line.decode("latin-1") for line in lines)
    mark = dialect.comment or "\n"
    rows = ("\n" if text.lstrip(BLANKS).startswith(mark) else f"{text}\n" for text in texts)
    if len(dialect.delimiter) > 1:
        rows = (row.replace(dialect.delimiter, dialect.separator) for row in rows)
    reader = csv_rows(rows, dialect.separator)
    last = previous = 0
    try:
        for _ in reader:  # the last one may be cut short
            last, previous = reader.line_num, last
    except csv.Error:  # a row that csv does not take: not before its end
        previous = last
    return sum(map(len, lines[:previous])) + previous


def clean(block: Block, dialect: Dialect, keep_lines: bool = False) -> bytes:
    """The block's data without comments and blank lines, and with a single character as delimiter.

    Args:
        block: The rows.
        dialect: Their layout.
        keep_lines: Leave an empty line for every line that goes.

    Raises:
        InputError: A comment mark starts a line inside of quotes.
    """
    mark = re.escape(dialect.comment.encode()) if dialect.comment else rb"(?!)"
    noise = re.compile(rb"^[ \t]*(?:(%s)[^\n]*|[ \t]\r?$)\n?" % mark, re.MULTILINE)
    data, kept, at, num_quotes = block.data, [], 0, 0
    for line in noise.finditer(data):
        kept.append(data[at : line.start()])
        num_quotes += kept[-1].count(b'"')
        at = line.end()
        if num_quotes % 2 == 0:
            kept.append(b"\n" if keep_lines else b"")
        elif line[1] is None:
            kept.append(line[0])
        else:
            path = dialect.parts[block.part].path
            raise InputError(
                path,
                f"line {count_lines(path, block.offset + line.start()) + 1}",
                f"a line {line[0].decode(errors='replace').strip()[:40]!r} after an open quote",
                "comments outside of cells",
                "Pass comment=None (--comment '') if it is data.",
            )
    data = b"".join([*kept, data[at:]])
    if dialect.delimiter == " ":
        data = re.sub(rb"[ \t]+", b" ", data)
        data = re.sub(rb"^ | (?=\r?$)", b"", data, flags=re.MULTILINE)
    if len(dialect.delimiter) > 1:
        data = data.replace(dialect.delimiter.encode(), dialect.separator.encode())
    return data


def needs_cleaning(data: bytes, dialect: Dialect) -> bool:
    """Whether the parser could take something for data that is none."""
    if dialect.comment is not None and dialect.comment.encode() in data:
        return True
    if len(dialect.delimiter) > 1:
        return True
    return dialect.delimiter == " " and any(
        blanks in data for blanks in (b"\t", b"  ", b"\n ", b" \n", b" \r")
    )


def rows_of(block: Block, dialect: Dialect) -> Iterator[tuple[int, list[str]]]:
    """Every row of a block with the number of lines of the block before it; slow."""
    text = clean(block, dialect, keep_lines=True).decode("utf-8", errors="replace")
    reader = csv_rows(io.StringIO(text, newline="\n"), dialect.separator)
    start = 0
    try:
        for row in reader:
            if row:
                yield start, [cell.strip(BLANKS) for cell in row]
            start = reader.line_num
    except csv.Error as error:
        where = line_label(dialect, block, start)
        raise InputError(dialect.path, where, str(error), "delimited text") from error


def count_lines(path: Path, size: int) -> int:
    """Ends of line in the first ``size`` bytes."""
    count = 0
    with TextFile(path) as file:
        while size > 0 and (data := file.read(min(size, BLOCK_BYTES))):
            count += data.count(b"\n")
            size -= len(data)
    return count


@dataclass
class Places:
    """Where rows stand in the files.

    Attributes:
        starts: The first row of each block.
        blocks: Part, offset and size of each block.
        num_comments: Lines from the first row on that are comments.
    """

    dialect: Dialect
    num_rows: int = 0
    num_comments: int = 0
    starts: list[int] = field(default_factory=list)
    blocks: list[tuple[int, int, int]] = field(default_factory=list)

    def see(self, block: Block) -> None:
        """Count the comments of a block."""
        mark = (self.dialect.comment or "").encode()
        if mark and mark in block.data:  # found in a thirtieth of the time that counting takes
            self.num_comments += block.data.count(b"\n" + mark) + block.data.startswith(mark)

    def add(self, block: Block, num_rows: int) -> None:
        """Note the rows of the next block."""
        self.starts.append(self.num_rows)
        self.blocks.append((block.part, block.offset, len(block.data)))
        self.num_rows += num_rows

    def line(self, row: int) -> str:
        """``line 7``, with the name of the file if there are several."""
        number = bisect_right(self.starts, row) - 1
        part, offset, size = self.blocks[number]
        path = self.dialect.parts[part].path
        with TextFile(path) as file:
            skip = offset
            while skip:
                skip -= len(file.read(min(skip, BLOCK_BYTES)))
            block = Block(part, offset, file.read(size))
        lines = (line for line, _ in rows_of(block, self.dialect))
        line = next(islice(lines, row - self.starts[number], None), 0)
        return line_label(self.dialect, block, line)


def line_label(dialect: Dialect, block: Block, lines: int) -> str:
    """The line that has ``lines`` lines of ``block`` before it, as messages call it."""
    above = count_lines(dialect.parts[block.part].path, block.offset)
    return f"{dialect.file_label(block.part)}line {above + lines + 1}"
