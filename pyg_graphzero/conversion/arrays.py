"""Tables of numbers out of files of arrays and out of memory, without ever unpickling.

Strings and single values, which are no tables of numbers, come as NumPy arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from pyg_graphzero.conversion.array_files import load_torch, open_npy, open_npz, tensor_rows
from pyg_graphzero.conversion.ids import IdColumn, as_unsigned
from pyg_graphzero.conversion.options import cast_rows
from pyg_graphzero.conversion.paths import TEXT_SUFFIXES, TRIPLES, kind_suffix, place_of
from pyg_graphzero.conversion.plan import Array
from pyg_graphzero.conversion.sparse import is_sparse
from pyg_graphzero.conversion.spool import PrintedRows, word_rows
from pyg_graphzero.conversion.tables import PARQUET_SUFFIXES, is_series
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, ChainRows, Rows, Spool, describe
from pyg_graphzero.util.arguments import as_tensor
from pyg_graphzero.util.reading import reading

Table = Rows | np.ndarray
Arrays = Table | Mapping[str, Callable[[], Table]]

# Suffixes of files, the reader of their kind, and their name.
_FILES: tuple[tuple[tuple[str, ...], str, str], ...] = (
    ((".npy",), "npy", "NumPy array"),
    ((".npz",), "npz", "NumPy archive"),
    ((".pt", ".pth"), "pt", "torch file"),
    (TEXT_SUFFIXES, "text", "delimited text"),
    (PARQUET_SUFFIXES, "table", "Parquet"),
    ((".arrow", ".ipc"), "table", "Arrow"),
    ((".feather",), "table", "Feather"),
    ((TRIPLES,), "nt", "N-Triples"),
)
_KINDS = {suffix: kind for suffixes, kind, _ in _FILES for suffix in suffixes}
NAMES = {suffix: name for suffixes, _, name in _FILES for suffix in suffixes}
SUFFIXES = tuple(_KINDS)
# Suffixes that files may be said to have, whatever they are called.
FORMATS = {"text": ".csv", "parquet": ".parquet", "arrow": ".arrow", "nt": TRIPLES}


@dataclass(frozen=True)
class Reference:
    """Files of one kind, and the part of them that is meant.

    Attributes:
        files: Several follow one another as if they were one; none where a source is in memory.
        member: A column, an array of an archive; ``None`` if not named.
        is_flat: Whether a matrix of one column means single values.
        is_bare: Whether text is known to have commas and no header.
        form: One of :data:`FORMATS`, where the name does not tell.
    """

    files: tuple[Path, ...] = ()
    member: str | None = None
    is_flat: bool = False
    is_bare: bool = False
    form: str | None = None

    @property
    def path(self) -> Path:
        """The first file."""
        return self.files[0]

    @property
    def place(self) -> Path:
        """The file, or the directory of several."""
        return place_of(self.files)

    @property
    def suffix(self) -> str:
        """The suffix that tells how files are read."""
        return kind_suffix(self.path) if self.form is None else FORMATS[self.form]

    @property
    def kind(self) -> str | None:
        """How it is read: ``"npy"``, ``"table"``, ``"text"`` …; ``None`` if it cannot be."""
        return _KINDS.get(self.suffix) if self.files else None


def id_column(
    table: Table, path: str | Path, where: Callable[[int], str], as_text: bool = False
) -> IdColumn:
    """A table of node ids, integers or strings, as one column.

    Raises:
        InputError: It is not 1-D, or its dtype is neither.
    """
    if len(table.shape) != 1:
        raise InputError(path, "ids", f"shape {list(table.shape)}", "one dimension")
    if isinstance(table, np.ndarray):
        if table.dtype.kind == "S":
            table = np.char.decode(table, "utf-8")
        try:
            words = pc.cast(pa.array(table), pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            hint = "Make them all text: np.array(ids, dtype=str), or frame['id'].astype(str)."
            raise InputError(path, "ids", str(error), "integers or strings", hint) from error
        return IdColumn(path, where, word_rows(words))
    if table.dtype.is_floating_point or table.dtype.is_complex or table.dtype == torch.bool:
        name = str(table.dtype).removeprefix("torch.")
        hint = "Integers with a missing one are floats in pandas: frame.dropna().astype('int64')."
        place = where(0) if len(table) else "ids"
        raise InputError(path, place, name, "integers or strings, as ids are", hint)
    if as_text:
        return IdColumn(path, where, PrintedRows(table))
    if table.dtype == torch.uint64:
        unsigned = IdColumn(path, where, as_unsigned(table), is_unsigned=True)
        if unsigned.range[1] >= 0:
            return unsigned
    return IdColumn(path, where, integers(table, path, where))


def integers(rows: Rows, path: str | Path, where: Callable[[int], str]) -> Rows:
    """Rows of any integer dtype as ``int64``.

    Raises:
        InputError: When read, for an id of 2**63 or more.
    """

    def fail(row: int, found: str, expected: str) -> InputError:
        return InputError(path, where(row), f"id {found}", "an id below 2**63")

    return cast_rows(rows, torch.int64, fail)


def as_array(value: Any, name: str, path: Path | None = None) -> Array:
    """An in-memory source as an array.

    Args:
        value: The source.
        name: The source, for messages.
        path: The file that it was loaded from, if any.

    Raises:
        InputError: It is not one.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.layout == torch.strided:
            return value.as_subclass(torch.Tensor).cpu()
        found = f"a tensor of layout {value.layout}"
    else:
        if isinstance(value, list | tuple) or is_series(value):
            with reading(f"<{name}>", "value", "rows of numbers, all of one length"):
                value = np.asarray(value)
        if isinstance(value, np.ndarray):  # torch knows this machine's byte order alone
            return value.astype(value.dtype.newbyteorder("="), copy=False)
        found = type(value).__name__
    if path is not None:
        raise InputError(path, name, found, "an array or a dense tensor")
    hint = "Rows are stored dense: pass x.toarray(), or x.to_dense()." if is_sparse(value) else ""
    raise InputError(f"<{name}>", "value", found, "an array, a dense tensor or a path", hint)


def as_table(value: Any, name: str, path: Path | None = None) -> Table:
    """An in-memory source as rows.

    Args:
        value: An array, a tensor or rows.
        name: The source, for messages.
        path: The file that it was loaded from and is mapped to, if any.

    Raises:
        InputError: It is none.
    """
    if isinstance(value, Rows):
        return value
    array = as_array(value, name, path)
    if isinstance(array, torch.Tensor):
        return tensor_rows(array, path) if array.dim() else array.numpy()
    if array.ndim and array.dtype.kind in "biuf" and array.dtype.itemsize <= 8:
        return ArrayRows(as_tensor(array, name), path)
    return array


def load_member(reference: Reference, spool: Spool) -> Table:
    """The table a reference names; several files follow one another.

    Raises:
        InputError: A file is damaged or holds objects, the member is missing or ambiguous, or
            the files differ in dtype or shape.
    """
    if len(reference.files) == 1:
        table = _load_one(reference, reference.path, spool)
        if reference.is_flat and isinstance(table, Rows) and table.shape[1:] == (1,):
            return table.columns()[0]
        return table
    tables = [only_rows(_load_one(reference, path, spool), path) for path in reference.files]
    first = tables[0]
    for path, table in zip(reference.files, tables, strict=True):
        if (table.dtype, table.shape[1:]) != (first.dtype, first.shape[1:]):
            expected = f"{describe(first)} as in {reference.path}"
            raise InputError(path, "dtype", describe(table), expected)
    return ChainRows(tables)


def place_in(files: Sequence[Path], table: Table, form: str) -> Callable[[int], str]:
    """How messages call a row of a table of one or several files, as ``form`` has it."""
    if not isinstance(table, ChainRows) or len(files) < 2:
        return form.format

    def place(row: int) -> str:
        part, row = table.part_of(row)
        return f"{files[part].name}: {form.format(row)}"

    return place


def only_rows(table: Table, path: Path) -> Rows:
    """``table`` if it is one of numbers.

    Raises:
        InputError: It holds strings or a single value.
    """
    if not isinstance(table, Rows):
        raise InputError(path, "array", f"{table.dtype}{list(table.shape)}", "a table of numbers")
    return table


def _load_one(reference: Reference, path: Path, spool: Spool) -> Table:
    loaded = load_all(path, spool, reference.member)
    if not isinstance(loaded, Mapping):
        return loaded
    there = ", ".join(map(str, loaded)) or "nothing"
    if reference.member is None and len(loaded) == 1:
        return loaded[next(iter(loaded))]()
    if reference.member is None:
        hint = f"Name it: {path.name}:MEMBER."
        if {"indptr", "indices", "data"} <= loaded.keys():
            hint = "Rows are stored dense: scipy.sparse.load_npz(...).toarray() has them."
        raise InputError(path, "members", there, "one member", hint)
    if reference.member not in loaded:
        raise InputError(path, "members", there, f"a member {reference.member!r}")
    return loaded[reference.member]()


def load_all(path: Path, spool: Spool, member: str | None) -> Arrays:
    """The contents of a file of arrays: one table, or several by name, each opened by calling it.

    Raises:
        InputError: The file is damaged or holds pickled objects, or is one array that has no
            ``member``.
    """
    if path.suffix == ".npz":
        return open_npz(path, spool)
    is_npy = path.suffix == ".npy"
    value = open_npy(path) if is_npy else load_torch(path, f"a {path.suffix} file of arrays")
    if isinstance(value, Mapping):
        return in_memory(value, str(path), path)
    if member is not None:
        raise InputError(path, "member", "a single array", f"a member {member!r}")
    return as_table(value, str(path), path)


def in_memory(
    members: Mapping[str, Any], name: str, path: Path | None = None
) -> dict[str, Callable[[], Table]]:
    """Arrays by name, as :func:`load_all` returns them."""
    return {
        str(member): partial(as_table, value, f"{name}:{member}", path)
        for member, value in members.items()
    }
