"""Tables from wherever the user keeps them: files of arrays, columns of text or Parquet, memory.

A *source* is an array or tensor, or a path with an optional member: ``feat.npy``,
``graph.npz:label``, ``split.pt:train``, ``nodes.csv:year``, ``nodes.parquet:f0,f1``,
``feat.bin:float32[128]``. Files are read in pieces when they are needed; nothing is ever unpickled.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import reduce
from pathlib import Path
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import torch
from torch import Tensor

from pyg_graphzero.store.rows import (
    MappedRows,
    Rows,
    StackedRows,
    origin,
)
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

from ..errors import InputError
from . import text
from .arrays import SUFFIXES, Reference, Table, as_table, id_column, load_member, place_in
from .blocks import Places
from .dialect import Dialect, sniff
from .faults import Faults
from .ids import IdColumn
from .options import Dtypes, as_tensor, cast
from .paths import COMPRESSIONS, TEXT_SUFFIXES, AnyPath, expand, is_paths, kind_suffix
from .spool import RowSpool, TextSpool
from .tables import ArrowTable

_COMPRESSED = "|".join(map(re.escape, COMPRESSIONS))
_TEXT = "|".join(map(re.escape, TEXT_SUFFIXES))
_OTHERS = "|".join(re.escape(suffix) for suffix in SUFFIXES if suffix not in TEXT_SUFFIXES)
_REFERENCE = re.compile(
    rf"(?P<path>.*?(?:{_OTHERS}|(?:{_TEXT})(?:{_COMPRESSED})?))(?::(?P<member>.+))?", re.DOTALL
)
_listed = ", ".join(suffix for suffix in SUFFIXES if suffix not in TEXT_SUFFIXES)
# What models multiply: read from text, float32 as PyG expects. Anything else, such as a unix time
# with a fraction, keeps all its digits.
_SINGLE_PRECISION = frozenset({"x", "edge_attr", "edge_weight"})


@dataclass(frozen=True)
class Loaded:
    """A table, and how to name one of its rows in a message.

    Attributes:
        path: The input it comes from.
        where: From row to place.
    """

    rows: Rows
    path: str | Path
    where: Callable[[int], str]

    def fail(self, row: int, found: str, expected: str) -> InputError:
        """The error for one row."""
        return InputError(self.path, self.where(row), found, expected)


@dataclass(frozen=True)
class Labels:
    """A source of classes: whole numbers, in whatever dtype, with NaN or -1 where there is none.

    Attributes:
        source: Where they are, ``[num_rows]`` or ``[num_rows, k]``; one column becomes 1-D.
        num_classes: How many there are, if that is known.
    """

    source: Any
    num_classes: int | None = None


@dataclass(frozen=True)
class Scattered:
    """An attribute that only some nodes have.

    Attributes:
        parts: Sources of ids, and for each the source of as many values, or one value for all.
        fill: What the other nodes get.
    """

    parts: tuple[tuple[Any, Any], ...]
    fill: float


def mask(source: Any) -> Scattered:
    """The nodes of ``source`` as a boolean per node."""
    return Scattered(((source, True),), False)


Columns = Dialect | ArrowTable


class Inputs:
    """Opens sources for one conversion.

    Args:
        base: Directory that relative paths start from.
        out: The store to be written, which no input may be part of.
        dtypes: Dtypes asked for.
        progress: Where to show slow steps.
        space: Memory and temporary files.
        faults: What to do about rows of text that are not as they should be.
    """

    def __init__(
        self,
        base: Path,
        out: Path,
        dtypes: Dtypes,
        progress: Progress,
        space: Workspace,
        faults: Faults,
    ) -> None:
        self.base = base
        self.dtypes = dtypes
        self.progress = progress
        self.space = space
        self.faults = faults
        self._out = out.resolve()
        self._named_in = ""

    def beside(self, base: Path, named_in: str | Path) -> Inputs:
        """The same for paths that ``named_in`` names, relative to another directory."""
        other = copy.copy(self)
        other.base = base
        other._named_in = f"{named_in}: "
        return other

    def file(self, path: str | os.PathLike[str]) -> Path:
        """An existing input file.

        Raises:
            FileNotFoundError: There is none.
            InputError: It is a directory, or lies in the output.
        """
        found = self.base / path
        if found.is_dir():
            raise InputError(found, "input", "a directory", "a file")
        return self.files(path)[0]

    def directory(self, path: AnyPath) -> Path:
        """An existing directory that is not the output, and not in it.

        Raises:
            InputError: It is.
        """
        found = self.base / path
        self._refuse_output(found)
        return found

    def files(self, paths: AnyPath | Sequence[AnyPath]) -> tuple[Path, ...]:
        """The files that a path, a pattern, a directory or a list of these means.

        Raises:
            FileNotFoundError: There are none.
            InputError: They are of several kinds, or one lies in the output.
        """
        found = expand(paths, self.base)
        for file in found:
            self._refuse_output(file)
        return tuple(found)

    def _refuse_output(self, path: Path) -> None:
        resolved = path.resolve()
        if resolved == self._out or self._out in resolved.parents:
            raise InputError(
                path,
                "input",
                f"a file in the output {self._out}",
                "one outside it",
                "Writing the store would destroy its own input.",
            )

    def reference(self, source: AnyPath | Sequence[AnyPath] | Reference) -> Reference:
        """Files with an optional member, by the suffix of the path.

        Raises:
            InputError: The suffix is of no kind that can be read.
        """
        match = None
        if isinstance(source, Reference):
            return replace(source, files=self.files(source.files))
        if isinstance(source, str | os.PathLike):
            match = _REFERENCE.fullmatch(os.fspath(source))
        if match is None:
            reference = Reference(self.files(source))
        else:
            reference = Reference(self.files(match["path"]), match["member"])
        if reference.kind is None:
            raise InputError(
                reference.path,
                "file name",
                kind_suffix(reference.path) or "no suffix",
                f"{', '.join(TEXT_SUFFIXES)} (or these with .gz, .zst), {_listed}",
            )
        return reference

    def load(self, name: str, source: Any) -> Loaded:
        """The attribute ``name`` from any source, in the dtype asked for.

        Args:
            name: What the attribute is going to be called.
            source: Array, tensor, or path with an optional member.
        """
        if isinstance(source, Labels):
            loaded = self._classes(name, source)
        elif in_files(source):
            if isinstance(source, str | os.PathLike) and not self._is_path(source):
                expected = "a path such as feat.npy, or a column of the table at hand"
                found = repr(os.fspath(source))
                raise InputError(f"{self._named_in}<{name}>", "source", found, expected)
            reference = self.reference(source)
            if reference.kind in ("text", "table"):
                columns = self.open_columns(reference, _wanted(reference.member))
                positions = select(columns, reference.member or "*")
                return self.columns(columns, {name: positions}, [])[1][name]
            table = load_member(reference, self.space.file)
            files = reference.files
            path = files[0] if len(files) == 1 else files[0].parent
            where = place_in(files, table, "row {}")
            loaded = Loaded(_numbers(table, path, name), path, where)
        else:
            table = as_table(source, name)
            path = origin(table, name)
            loaded = Loaded(_numbers(table, path, name), path, "row {}".format)
        return self._cast(name, loaded)

    def _is_path(self, source: AnyPath) -> bool:
        name = os.fspath(source)
        return _REFERENCE.fullmatch(name) is not None or (self.base / source).exists()

    def open_columns(self, reference: Reference, wanted: Sequence[Any], **layout: Any) -> Columns:
        """The files of a reference to columns.

        Args:
            reference: To text, or to Parquet or Arrow files.
            wanted: Columns that must be there.
            layout: What is known of text; see :func:`.dialect.sniff`.
        """
        if reference.is_bare:
            layout |= {"delimiter": ",", "header": False}
        if reference.kind == "text":
            return sniff(reference.files, wanted=tuple(wanted), **layout)
        return ArrowTable(reference.files)

    def _classes(self, name: str, labels: Labels) -> Loaded:
        loaded = self.load(name, labels.source)
        rows, count = loaded.rows, labels.num_classes
        if len(rows.shape) == 2 and rows.shape[1] == 1:
            rows = rows.columns()[0]

        def check(slab: Tensor, begin: int) -> Tensor:
            if slab.is_floating_point():
                slab = slab.nan_to_num(nan=-1.0)
            classes = as_tensor(cast(slab, torch.int64, loaded.fail, begin))
            bad = (classes < -1) | ((classes >= count) if count is not None else False)
            if bool(bad.any()):
                row, *cell = bad.nonzero()[0].tolist()
                expected = "a class of 0 or more" if count is None else f"a class of 0…{count - 1}"
                found = f"class {classes[(row, *cell)].item()}"
                raise loaded.fail(begin + row, found, f"{expected}, or -1 or NaN for none")
            return classes

        checked = MappedRows(rows, rows.shape, torch.int64, check)
        return Loaded(checked, loaded.path, loaded.where)

    def load_ids(self, source: Any, is_text: bool | None, name: str) -> IdColumn | Loaded:
        """Node ids from any source; booleans come back as they are, being a mask.

        Args:
            source: Array, tensor, or path with an optional member.
            is_text: Whether they must be text; ``None`` to go by the file.
            name: What messages call them.
        """
        if in_files(source):
            reference = self.reference(source)
            if reference.kind in ("text", "table"):
                columns = self.open_columns(reference, _wanted(reference.member))
                position = columns.position(reference.member or 0)
                if is_boolean(columns, position):
                    return self.load(name, source)
                if is_text is None:
                    is_text = is_text_column(columns, position)
                return self.columns(columns, {}, [(position, is_text)])[0][0]
            table, path = load_member(reference, self.space.file), reference.path
        else:
            table = as_table(source, name)
            path = origin(table, name)
        if isinstance(table, Rows) and table.dtype == torch.bool:
            return Loaded(table, path, "row {}".format)
        return id_column(table, path, f"{name}[{{}}]".format, bool(is_text))

    def columns(
        self, columns: Columns, attrs: Mapping[str, list[int]], ids: list[tuple[int, bool]]
    ) -> tuple[list[IdColumn], dict[str, Loaded]]:
        """Id columns and attributes from the columns of text, Parquet or Arrow files.

        Args:
            columns: The files.
            attrs: Column positions of each attribute; several make a matrix.
            ids: Position of each id column, and whether it is text.
        """
        if isinstance(columns, Dialect):
            return self._text_columns(columns, attrs, ids)
        loaded = {}
        for name, positions in attrs.items():
            parts = [columns.rows(position) for position in positions]
            for part, position in zip(parts, positions, strict=True):
                if len(parts) > 1 and len(part.shape) > 1:
                    where = f"column {columns.label(position)}"
                    found = f"lists of {part.shape[1]}"
                    raise InputError(columns.path, where, found, "single values, beside others")
            rows = StackedRows(parts) if len(parts) > 1 else parts[0]
            loaded[name] = self._cast(name, Loaded(rows, columns.path, columns.where(positions[0])))
        return [self._table_ids(columns, *each) for each in ids], loaded

    def _table_ids(self, table: ArrowTable, position: int, is_text: bool) -> IdColumn:
        if table.is_text(position):
            spool = TextSpool(self.space, "ids")
            for words in table.words(position):
                spool.append(words)
            return IdColumn(table.path, table.where(position), spool.finish())
        return id_column(table.rows(position), table.path, table.where(position), is_text)

    def _text_columns(
        self, dialect: Dialect, attrs: Mapping[str, list[int]], ids: list[tuple[int, bool]]
    ) -> tuple[list[IdColumn], dict[str, Loaded]]:
        """Those of text, from one pass over the files."""
        columns: dict[int, text.Column] = {}
        dtypes = {name: self._text_dtype(name) for name in attrs}
        for name, positions in attrs.items():
            for position in positions:
                others = columns[position].dtypes if position in columns else ()
                kind = _kind(dialect, position, dtypes[name])
                columns[position] = text.Column(kind, (*others, dtypes[name]))
        for position, is_text in ids:
            columns[position] = text.Column(text.TEXT if is_text else text.ID)
        places = Places(dialect)
        readers = [
            _TextIds(self.space) if is_text else _IntegerIds(self.space) for _, is_text in ids
        ]
        spools = {name: RowSpool(self.space, "column") for name in attrs}
        for batch in text.read(places, columns, self.faults, self.progress):
            for reader, (position, _) in zip(readers, ids, strict=True):
                reader.append(batch[position, None])
            for name, positions in attrs.items():
                keys = [(position, dtypes[name]) for position in positions]
                spools[name].append(_side_by_side([batch[key] for key in keys]))

        def where(position: int) -> Callable[[int], str]:
            return lambda row: text.locate(places, row, position)

        id_columns = [
            reader.column(dialect.path, where(position))
            for reader, (position, _) in zip(readers, ids, strict=True)
        ]
        loaded = {}
        for name, positions in attrs.items():
            empty = _side_by_side([columns[each].empty(dtypes[name]) for each in positions])
            loaded[name] = Loaded(spools[name].finish(empty), dialect.path, where(positions[0]))
        return id_columns, loaded

    def _text_dtype(self, name: str) -> torch.dtype | None:
        single = torch.float32 if name in _SINGLE_PRECISION else None
        return self.dtypes.get(name) or single

    def _cast(self, name: str, loaded: Loaded) -> Loaded:
        rows = self.dtypes.cast(name, loaded.rows, loaded.fail)
        return Loaded(rows, loaded.path, loaded.where)


class _IntegerIds:
    """Collects a column of integer ids, in no wider a type than they need."""

    def __init__(self, space: Workspace) -> None:
        self._spool = RowSpool(space, "ids")
        self._low, self._high = 0, -1

    def append(self, batch: Tensor) -> None:
        low, high = (int(bound) for bound in batch.aminmax())
        if self._high < self._low:
            self._low, self._high = low, high
        self._low, self._high = min(low, self._low), max(high, self._high)
        is_short = low >= -(1 << 31) and high < 1 << 31
        self._spool.append(batch.to(torch.int32) if is_short else batch)

    def column(self, path: Path, where: Callable[[int], str]) -> IdColumn:
        rows = self._spool.finish(torch.empty(0, dtype=torch.int64))
        return IdColumn(path, where, rows, (self._low, self._high))


class _TextIds:
    """Collects a column of text ids."""

    def __init__(self, space: Workspace) -> None:
        self._spool = TextSpool(space, "ids")

    def append(self, batch: Any) -> None:
        self._spool.append(batch)

    def column(self, path: Path, where: Callable[[int], str]) -> IdColumn:
        return IdColumn(path, where, self._spool.finish())


def _kind(dialect: Dialect, position: int, dtype: torch.dtype | None) -> text.Kind:
    """How a column is parsed that is to have a dtype."""
    if dtype is None:
        return text.guess(dialect, position)
    if dtype == torch.bool:
        return text.BOOLEAN
    return text.FLOAT if dtype.is_floating_point else text.INTEGER


def _side_by_side(columns: list[Tensor]) -> Tensor:
    """Columns as a matrix; a single one stays 1-D."""
    if len(columns) == 1:
        return columns[0]
    dtype = reduce(torch.promote_types, [column.dtype for column in columns])
    return torch.stack([column.to(dtype) for column in columns], dim=1)


def in_files(value: Any) -> TypeGuard[AnyPath | Sequence[AnyPath] | Reference]:
    """Whether a source is in files: a path, a list of them, or a reference."""
    return is_paths(value) or isinstance(value, Reference)


def is_text_column(columns: Columns, position: int) -> bool:
    """Whether ids of a column are text."""
    if isinstance(columns, Dialect):
        return text.is_text_id(columns, position)
    return columns.is_text(position)


def is_boolean(columns: Columns, position: int) -> bool:
    """Whether a column holds truth values."""
    if isinstance(columns, Dialect):
        return text.guess(columns, position) is text.BOOLEAN
    return bool(columns.schema.field(position).type == pa.bool_())


def select(dialect: Columns, columns: Any) -> list[int]:
    """Positions of columns given as ``"a"``, ``"a,b"``, ``"f*"``, a position, or a list of these.

    Raises:
        InputError: One of them is not there.
    """
    if isinstance(columns, list | tuple):
        return [position for column in columns for position in select(dialect, column)]
    if isinstance(columns, str) and columns not in dialect.names:
        if "," in columns:
            return select(dialect, columns.split(","))
        if "*" in columns:
            names = dialect.names or tuple(map(str, range(dialect.num_columns)))
            found = [i for i, name in enumerate(names) if fnmatchcase(name, columns)]
            if found:
                return found
    return [dialect.position(columns)]


def _wanted(member: str | None) -> tuple[str, ...]:
    return tuple(part for part in (member or "").split(",") if part and "*" not in part)


def _numbers(table: Table, path: Path, name: str) -> Rows:
    """``table`` if it can be an attribute."""
    if isinstance(table, Rows) and not table.dtype.is_complex:
        return table
    if isinstance(table, np.ndarray) and table.ndim == 0 and table.dtype.kind in "biuf":
        raise InputError(path, name, "a single value", "one value or row per node or edge")
    found = str(table.dtype).removeprefix("torch.")
    raise InputError(path, name, found, "numbers or booleans")
