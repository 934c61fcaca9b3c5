"""Tables from wherever the user keeps them: files of arrays, columns of text or Parquet, memory.

A *source* is an array or tensor, or a path with an optional member: ``feat.npy``,
``graph.npz:label``, ``split.pt:train``, ``nodes.csv:year``, ``nodes.parquet:f0,f1``.
Files are read in pieces when they are needed; nothing is ever unpickled.
"""

from __future__ import annotations

import copy
import os
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.conversion.arrays import (
    FORMATS,
    SUFFIXES,
    Reference,
    Table,
    as_table,
    id_column,
    load_member,
    place_in,
)
from pyg_graphzero.conversion.columns import (
    ColumnReader,
    Columns,
    Loaded,
    first_column,
    is_boolean,
    select,
    wanted,
)
from pyg_graphzero.conversion.dialect import sniff
from pyg_graphzero.conversion.ids import IdColumn
from pyg_graphzero.conversion.options import Choices, cast
from pyg_graphzero.conversion.paths import (
    COMPRESSIONS,
    TEXT_SUFFIXES,
    AnyPath,
    expand,
    is_paths,
    kind_suffix,
)
from pyg_graphzero.conversion.tables import (
    PARQUET_SUFFIXES,
    ArrowTable,
    FrameTable,
    frame_table,
    is_frame,
    is_series,
)
from pyg_graphzero.conversion.triples import read_triples
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.csc import CscOptions
from pyg_graphzero.store.rows import Rows
from pyg_graphzero.util.progress import Progress
from pyg_graphzero.util.workspace import Workspace

_COMPRESSED = "|".join(map(re.escape, COMPRESSIONS))
_TEXT = "|".join(map(re.escape, TEXT_SUFFIXES))
_OTHERS = "|".join(re.escape(suffix) for suffix in SUFFIXES if suffix not in TEXT_SUFFIXES)
_REFERENCE = re.compile(
    rf"(?P<path>.*?(?:{_OTHERS}|(?:{_TEXT})(?:{_COMPRESSED})?))(?::(?P<member>.+))?", re.DOTALL
)
_listed = ", ".join(suffix for suffix in SUFFIXES if suffix not in TEXT_SUFFIXES)


@dataclass(frozen=True)
class Labels:
    """A source of classes: whole numbers, in whatever dtype, with NaN or -1 where there is none.

    Attributes:
        source: Where they are, ``[num_rows]`` or ``[num_rows, k]``; one column becomes 1-D.
    """

    source: Any


@dataclass(frozen=True)
class Scattered:
    """An attribute that only some nodes have.

    Attributes:
        parts: Sources of ids, and for each the source of as many values, or one value for all.
        fill: Value of the other nodes.
    """

    parts: tuple[tuple[Any, Any], ...]
    fill: float


def mask(source: Any) -> Scattered:
    """The nodes of ``source`` as a boolean per node."""
    return Scattered(((source, True),), False)


class Inputs(ColumnReader):
    """Opens sources for one conversion.

    Args:
        base: Directory that relative paths start from.
        out: The store to be written, which no input may be part of.
        choices: Options for single attributes.
        options: How edges become a CSC, where an edge type says nothing of its own.
        progress: Where to show slow steps.
        space: Memory and temporary files.
    """

    def __init__(
        self,
        base: Path,
        out: Path,
        choices: Choices,
        options: CscOptions,
        progress: Progress,
        space: Workspace,
    ) -> None:
        super().__init__(choices, progress, space)
        self.base = base
        self.options = options
        self._out = out.resolve()
        self._named_in = ""
        self._frames: dict[int, tuple[Any, list[FrameTable]]] = {}

    def beside(self, base: Path, named_in: str | Path) -> Inputs:
        """These inputs for paths that ``named_in`` names, relative to another directory."""
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

    def stdin(self) -> Path:
        """Standard input, in a temporary file."""
        path = self.space.folder / "stdin"
        with open(path, "wb") as file:
            shutil.copyfileobj(sys.stdin.buffer, file)
        return path

    def files(
        self, paths: AnyPath | Sequence[AnyPath], is_any_kind: bool = False
    ) -> tuple[Path, ...]:
        """The files that a path, a pattern, a directory or a list of these means.

        Raises:
            FileNotFoundError: There are none.
            InputError: They are of several kinds, or one lies in the output.
        """
        found = expand(paths, self.base, is_any_kind)
        for file in found:
            self.refuse_output(file)
        return tuple(found)

    def refuse_output(self, path: Path) -> None:
        """Refuses an input that is the output, or lies in it.

        Raises:
            InputError: It is.
        """
        resolved = path.resolve()
        if resolved == self._out or self._out in resolved.parents:
            raise InputError(
                path,
                "input",
                f"a file in the output {self._out}",
                "one outside it",
                "Writing the store would destroy its own input.",
            )

    def reference(self, source: Any, form: str | None = None, name: str = "") -> Reference:
        """Files with an optional member, by the suffix of the path; none for what is in memory.

        Args:
            source: Paths, a reference, or whatever else is a source.
            form: One of :data:`.arrays.FORMATS`, whatever the suffix.
            name: The attribute that it is, if it is one.

        Raises:
            InputError: The suffix is of no kind that can be read, or there is neither a file nor a
                column that an attribute could be.
        """
        if not (is_paths(source) or isinstance(source, Reference)):
            return Reference()
        if form is not None:
            if form not in FORMATS:
                raise ValueError(f"format={form!r}: expected one of {', '.join(FORMATS)}")
            source = source.files if isinstance(source, Reference) else source
            return Reference(self.files(source, True), form=form)
        if isinstance(source, Reference):
            return replace(source, files=self.files(source.files))
        text = os.fspath(source) if isinstance(source, str | os.PathLike) else None
        match = None if text is None else _REFERENCE.fullmatch(text)
        if name and text and match is None and not (self.base / text).exists():
            expected = "a path such as feat.npy, or a column of the table at hand"
            raise InputError(f"{self._named_in}<{name}>", "source", repr(text), expected)
        paths, member = (source, None) if match is None else (match["path"], match["member"])
        reference = Reference(self.files(paths), member)
        if reference.kind is None:
            raise InputError(
                reference.path,
                "file name",
                kind_suffix(reference.path) or "no suffix",
                f"{', '.join(TEXT_SUFFIXES)} (or these with .gz, .zst), {_listed}",
                f"Or say what it is: format='text' (--format text), or {', '.join(FORMATS)}.",
            )
        return reference

    def open(
        self,
        source: Any,
        name: str = "",
        named: Sequence[Any] = (),
        form: str | None = None,
        **layout: Any,
    ) -> tuple[Columns | None, Reference]:
        """The table that a source is, or is part of, and its files; no table if it is an array.

        Args:
            source: A frame, a series, paths with an optional member, or an array.
            name: See :meth:`reference`.
            named: Columns that must be there, besides those of the member.
            form: See :meth:`reference`.
            layout: Known layout of text; see :func:`.dialect.sniff`.
        """
        reference = self.reference(source, form, name)
        kind, files = reference.kind, reference.files
        if is_frame(source) or is_series(source):
            found = self._frames.setdefault(id(source), (source, []))[1]
            if not found:  # read once, whatever uses it
                found.append(frame_table(source, self.space))
            return found[0], reference
        if kind == "nt":
            return read_triples(reference, self.space, self.choices.note), reference
        if kind == "table":
            return ArrowTable(files, reference.suffix in PARQUET_SUFFIXES), reference
        if kind != "text":
            return None, reference
        if reference.is_bare:
            layout |= {"delimiter": ",", "header": False}
        return sniff(files, wanted=(*named, *wanted(reference.member)), **layout), reference

    def load(self, name: str, source: Any) -> Loaded:
        """The attribute ``name`` from any source, in the dtype asked for.

        Args:
            name: The attribute.
            source: Array, tensor, or path with an optional member.
        """
        if isinstance(source, Labels):
            return self.cast(name, self._classes(name, source))
        columns, reference = self.open(source, name)
        if columns is not None:
            member = reference.member
            positions = columns.data if member is None else select(columns, member)
            return self.columns(columns, {name: positions}, [])[1][name]
        table, path, where = self._array(name, source, reference, "row {}")
        is_text = isinstance(table, np.ndarray) and table.dtype.kind in "OSU" and table.ndim == 1
        if is_text and self.is_coded(name):
            return self.coded(name, id_column(table, path, where, True))
        return self.cast(name, Loaded(_numbers(table, path, name), path, where))

    def _array(
        self, name: str, source: Any, reference: Reference, form: str
    ) -> tuple[Table, Path, Callable[[int], str]]:
        """A source that is an array, where it is from, and how messages call a row."""
        if not reference.files:
            table = as_table(source, name)
            return table, getattr(table, "path", None) or Path(f"<{name}>"), form.format
        table = load_member(reference, self.space.file)
        return table, reference.place, place_in(reference.files, table, form)

    def _classes(self, name: str, labels: Labels) -> Loaded:
        loaded = self.load(name, labels.source)
        rows = loaded.rows
        if len(rows.shape) == 2 and rows.shape[1] == 1:
            rows = rows.columns()[0]

        def check(slab: Tensor, begin: int) -> Tensor:
            if slab.is_floating_point():
                slab = slab.nan_to_num(nan=-1.0)
            classes = cast(slab, torch.int64, loaded.fail, begin)
            bad = classes < -1
            if bool(bad.any()):
                row, *cell = bad.nonzero()[0].tolist()
                found, expected = f"class {classes[(row, *cell)].item()}", "a class of 0 or more"
                raise loaded.fail(begin + row, found, f"{expected}, or -1 or NaN for none")
            return classes

        return Loaded(rows.map(torch.int64, check), loaded.path, loaded.where)

    def load_ids(self, source: Any, is_text: bool | None, name: str) -> IdColumn | Loaded:
        """Node ids from any source; booleans come back as they are, being a mask.

        Args:
            source: Array, tensor, or path with an optional member.
            is_text: Whether they must be text; ``None`` to go by the file.
            name: The ids, for messages.
        """
        columns, reference = self.open(source, name)
        if columns is not None:
            member = reference.member
            position = first_column(columns) if member is None else columns.position(member)
            if is_boolean(columns, position):
                return self.load(name, source)
            is_text = columns.is_text(position) if is_text is None else is_text
            return self.columns(columns, {}, [(position, is_text)])[0][0]
        table, path, where = self._array(name, source, reference, f"{name}[{{}}]")
        if isinstance(table, Rows) and table.dtype == torch.bool:
            return Loaded(table, path, "row {}".format)
        return id_column(table, path, where, bool(is_text))


def _numbers(table: Table, path: Path, name: str) -> Rows:
    """``table`` if it can be an attribute."""
    if isinstance(table, Rows) and not table.dtype.is_complex:
        return table
    if isinstance(table, np.ndarray) and table.ndim == 0 and table.dtype.kind in "biuf":
        raise InputError(path, name, "a single value", "one value or row per node or edge")
    found = str(table.dtype).removeprefix("torch.")
    raise InputError(path, name, found, "numbers or booleans")
