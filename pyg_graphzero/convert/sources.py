"""Arrays from wherever the user keeps them: NumPy and torch files, columns of text, memory.

A *source* is an array or tensor, or a path with an optional member: ``feat.npy``,
``graph.npz:label``, ``split.pt:train``, ``nodes.csv:year``, ``nodes.csv:f0,f1``. NumPy files are
memory-mapped where they can be; nothing is ever unpickled.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from . import text
from .arrays import Reference, as_array, id_column, load_member
from .dialect import Dialect, sniff
from .ids import IdColumn
from .options import Dtypes, as_tensor, cast
from .paths import COMPRESSIONS, TEXT_SUFFIXES, AnyPath, expand, kind_suffix
from .plan import Array
from .progress import Progress

_COMPRESSED = "|".join(map(re.escape, COMPRESSIONS))
_TEXT = "|".join(map(re.escape, TEXT_SUFFIXES))
_REFERENCE = re.compile(
    rf"(?P<path>.*?(?:\.npy|\.npz|\.pt|\.pth|(?:{_TEXT})(?:{_COMPRESSED})?))(?::(?P<member>.+))?",
    re.DOTALL,
)
# What models multiply: read from text, float32 as PyG expects. Anything else, such as a unix time
# with a fraction, keeps all its digits.
_SINGLE_PRECISION = frozenset({"x", "edge_attr", "edge_weight"})


@dataclass(frozen=True)
class Loaded:
    """An array, and how to name one of its values in a message.

    Attributes:
        path: The input it comes from.
        where: From row to place.
    """

    array: Array
    path: str | Path
    where: Callable[[int], str]

    def fail(self, row: int, found: str, expected: str) -> InputError:
        """The error for one row."""
        return InputError(self.path, self.where(row), found, expected)


class Inputs:
    """Opens sources for one conversion.

    Args:
        base: Directory that relative paths start from.
        out: The store to be written, which no input may be part of.
        dtypes: Dtypes asked for.
        progress: Where to show slow steps.
    """

    def __init__(self, base: Path, out: Path, dtypes: Dtypes, progress: Progress) -> None:
        self.base = base
        self.dtypes = dtypes
        self.progress = progress
        self._out = out.resolve()

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

    def files(self, paths: AnyPath | Sequence[AnyPath]) -> tuple[Path, ...]:
        """The files that a path, a pattern, a directory or a list of these means.

        Raises:
            FileNotFoundError: There are none.
            InputError: They are of several kinds, or one lies in the output.
        """
        found = expand(paths, self.base)
        for file in found:
            resolved = file.resolve()
            if resolved == self._out or self._out in resolved.parents:
                raise InputError(
                    file,
                    "input",
                    f"a file in the output {self._out}",
                    "one outside it",
                    "Writing the store would destroy its own input.",
                )
        return tuple(found)

    def reference(self, source: AnyPath | Sequence[AnyPath]) -> Reference:
        """Files with an optional member, by the suffix of the path.

        Raises:
            InputError: The suffix is of no kind that can be read.
        """
        match = None
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
                ".csv, .tsv, .txt (or these with .gz, .zst), .npy, .npz or .pt",
            )
        return reference

    def load(self, name: str, source: Any) -> Loaded:
        """The attribute ``name`` from any source, in the dtype asked for.

        Args:
            name: What the attribute is going to be called.
            source: Array, tensor, or path with an optional member.
        """
        if not isinstance(source, str | os.PathLike):
            loaded = Loaded(as_array(source, name), f"<{name}>", "row {}".format)
        else:
            if not (_REFERENCE.fullmatch(os.fspath(source)) or (self.base / source).exists()):
                expected = "a path such as feat.npy, or a column of the text at hand"
                raise InputError(f"<{name}>", "source", repr(os.fspath(source)), expected)
            reference = self.reference(source)
            if reference.kind == "text":
                dialect = sniff(reference.path, wanted=_wanted(reference.member))
                positions = select(dialect, reference.member or "*")
                return self.columns(dialect, {name: positions}, [])[1][name]
            array = load_member(reference)
            loaded = Loaded(array, reference.path, "row {}".format)
        _refuse_unstorable(loaded, name)
        return self._cast(name, loaded)

    def load_ids(self, source: Any, is_text: bool | None, name: str) -> IdColumn | Loaded:
        """Node ids from any source; booleans come back as they are, being a mask.

        Args:
            source: Array, tensor, or path with an optional member.
            is_text: Whether they must be text; ``None`` to go by the file.
            name: What messages call them.
        """
        if isinstance(source, str | os.PathLike):
            reference = self.reference(source)
            if reference.kind == "text":
                dialect = sniff(reference.path, wanted=_wanted(reference.member))
                position = dialect.position(reference.member or 0)
                if text.guess(dialect, position) is text.BOOLEAN:
                    return self.load(name, source)
                if is_text is None:
                    is_text = text.is_text_id(dialect, position)
                return self.columns(dialect, {}, [(position, is_text)])[0][0]
            array, path = load_member(reference), reference.path
        else:
            array, path = as_array(source, name), Path(f"<{name}>")
        if array.dtype in (torch.bool, np.bool_):
            return Loaded(array, path, "row {}".format)
        return id_column(array, path, f"{name}[{{}}]".format, bool(is_text))

    def columns(
        self,
        dialect: Dialect,
        attrs: Mapping[str, list[int]],
        ids: list[tuple[int, bool]],
    ) -> tuple[list[IdColumn], dict[str, Loaded]]:
        """Id columns and attributes from one pass over a text file.

        Args:
            dialect: The file.
            attrs: Column positions of each attribute; several make a matrix.
            ids: Position of each id column, and whether it is text.
        """
        kinds: dict[int, text.Kind] = {}
        for name, positions in attrs.items():
            for position in positions:
                kinds[position] = self._kind(dialect, name, position)
        for position, is_text in ids:
            kinds[position] = text.TEXT if is_text else text.ID
        batches = text.read(dialect, kinds, self.progress)

        def where(position: int) -> Callable[[int], str]:
            return lambda row: text.line_of_value(dialect, row, position)

        id_columns = [
            IdColumn(dialect.path, where(pos), [batch[pos] for batch in batches], is_text)
            for pos, is_text in ids
        ]
        loaded = {}
        for name, positions in attrs.items():
            dtype = self.dtypes.get(name)
            if dtype is None and name in _SINGLE_PRECISION:
                dtype = torch.float32
            parts = []
            for position in positions:
                part = Loaded(text.concatenate(batches, position), dialect.path, where(position))
                parts.append(part.array if dtype is None else cast(part.array, dtype, part.fail))
            loaded[name] = Loaded(_stack(parts), dialect.path, where(positions[0]))
        return id_columns, loaded

    def _kind(self, dialect: Dialect, name: str, position: int) -> text.Kind:
        dtype = self.dtypes.get(name)
        if dtype is None:
            return text.FLOAT if name in _SINGLE_PRECISION else text.guess(dialect, position)
        if dtype == torch.bool:
            return text.BOOLEAN
        return text.FLOAT if dtype.is_floating_point else text.INTEGER

    def _cast(self, name: str, loaded: Loaded) -> Loaded:
        array = self.dtypes.cast(name, loaded.array, loaded.fail)
        return Loaded(array, loaded.path, loaded.where)


def _stack(parts: list[Array]) -> Array:
    """Columns side by side; a single one stays 1-D."""
    if len(parts) == 1:
        return parts[0]
    if any(isinstance(part, torch.Tensor) for part in parts):
        return torch.stack([as_tensor(part) for part in parts], dim=1)
    return np.stack(parts, axis=1)


def select(dialect: Dialect, columns: Any) -> list[int]:
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


def _refuse_unstorable(loaded: Loaded, name: str) -> None:
    array = loaded.array
    bad = array.is_complex() if isinstance(array, torch.Tensor) else array.dtype.kind not in "biuf"
    if not bad and isinstance(array, np.ndarray):
        bad = array.dtype.itemsize > 8
    if bad:
        raise InputError(loaded.path, name, str(array.dtype), "numbers or booleans")
    if array.ndim == 0:
        raise InputError(loaded.path, name, "a single value", "one value or row per node or edge")
