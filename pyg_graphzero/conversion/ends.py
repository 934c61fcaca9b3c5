"""Both ends of all edges from arrays: in memory, in a file, or a sparse matrix.

An array of edges is ``[2, E]`` or ``[E, 2]``. An archive may hold it as ``edge_index``,
``row``/``col``, ``src``/``dst``, CSR (``indptr``/``indices``, rows are sources) or CSC
(``colptr``/``row``, columns are destinations), with any prefix such as ``adj_``; what SciPy's
``save_npz`` writes is understood too. Pointers become one row id per edge, a slab at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.conversion.arrays import (
    Arrays,
    Reference,
    Table,
    as_table,
    in_memory,
    integers,
    load_all,
    only_rows,
)
from pyg_graphzero.conversion.sparse import coo, is_sparse, shape_of
from pyg_graphzero.conversion.spec import EdgeSpec
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import MadeRows, Rows, Spool, describe

MATRIX = Path("<matrix>")
LAYOUTS = ("2xE", "Ex2")
_WHOLE = ("edge_index", "edges", "edge_list")
# Names of two arrays, and whether the first one has pointers: of rows, or of columns.
_PAIRS = (
    (("indptr", "indices"), "csr"),
    (("rowptr", "col"), "csr"),
    (("colptr", "row"), "csc"),
    (("crow", "col"), "csr"),
    (("row", "col"), None),
    (("src", "dst"), None),
    (("source", "target"), None),
)


@dataclass(frozen=True)
class Ends:
    """Both ends of the edges of one file, as tables of ids.

    Attributes:
        path: The file, or what arrays in memory are called.
        tables: Sources and destinations.
        names: The two ends, for messages.
        counts: Number of nodes of each, where the input says so (CSR, SciPy).
    """

    path: Path
    tables: tuple[Table, Table]
    names: tuple[str, str] = ("src", "dst")
    counts: tuple[int | None, int | None] = (None, None)


def read_ends(spec: EdgeSpec, reference: Reference, spool: Spool) -> tuple[list[Ends], Any]:
    """The ends of edges in each file, or in memory, and the values of a sparse matrix.

    Args:
        spec: The edge type.
        reference: Its files; none for arrays in memory: one, two, a mapping as an archive holds
            them, or a sparse matrix, whose entries are edges from their row to their column.
        spool: Makes a temporary file.

    Raises:
        InputError: There are no edges in one of them.
    """
    content, member, layout = spec.file, reference.member, spec.edge_layout
    if reference.files:
        parts = [(path, load_all(path, spool, member)) for path in reference.files]
        return [_ends(part, member, path, layout, spool) for path, part in parts], None
    if is_sparse(content):
        *indices, values = coo(content, str(MATRIX), "matrix")
        shape = shape_of(content)
        if spec.type is None:
            check_square(MATRIX, shape)
        rows, columns = (as_table(each, "matrix") for each in indices)
        return [Ends(MATRIX, (rows, columns), ("row", "column"), shape)], values
    if isinstance(content, tuple) and len(content) == 2:
        content = dict(zip(("src", "dst"), content, strict=True))
    if isinstance(content, Mapping):
        part: Arrays = in_memory(content, str(spec.name).strip("<>"))
    else:
        part = as_table(content, "edge_index")
    return [_ends(part, None, spec.name, layout, spool)], None


def check_square(path: Path, shape: tuple[int, int]) -> None:
    """A matrix whose rows and columns are nodes of one type has as many of both.

    Raises:
        InputError: It has not.
    """
    if shape[0] != shape[1]:
        hint = 'If they are two kinds of nodes, pass edge_type="user,to,item" (--edge-type).'
        found = f"{shape[0]} rows and {shape[1]} columns"
        raise InputError(path, "shape", found, "as many columns as rows", hint)


def _ends(
    content: Arrays, member: str | None, path: Path, layout: str | None, spool: Spool
) -> Ends:
    """Ends in one array, or in some of several by their names."""
    if not isinstance(content, Mapping):
        return _whole(content, path, layout, spool)
    names = _choose(content, member)
    missing = [name for name in names if name not in content]
    if missing or not names:
        raise InputError(
            path,
            "members",
            ", ".join(content) or "nothing",
            f"a member {missing[0]!r}" if missing else "edge_index, row/col or indptr/indices",
            "" if missing else f"Name them: {path.name}:SRC,DST.",
        )
    tables = [content[name]() for name in names]
    if len(tables) == 1:
        return _whole(tables[0], path, layout, spool)
    kind = _compression(names, content)
    if kind is None:
        result = _pair(tables[0], tables[1], path, (names[0], names[1]))
    else:
        result = _compressed(tables[0], tables[1], path, kind)
    if "format" in content and "shape" in content:  # SciPy's save_npz
        num_src, num_dst = only_rows(content["shape"](), path).read(0, 2).tolist()
        result = replace(result, counts=(num_src, num_dst))
    return result


def _choose(members: Mapping[str, Any], member: str | None) -> list[str]:
    if member is not None:
        return [member] if member in members else member.split(",")
    for name in _WHOLE:
        if name in members:
            return [name]
    for pair, _ in _PAIRS:
        found = [
            [name.removesuffix(pair[0]) + part for part in pair]
            for name in members
            if name.endswith(pair[0]) and name.removesuffix(pair[0]) + pair[1] in members
        ]
        # Features are often kept as another sparse matrix beside the adjacency.
        found.sort(key=lambda names: (names[0] != pair[0], not names[0].startswith("adj")))
        adjacency = [names for names in found if names[0] == pair[0] or names[0][:3] == "adj"]
        if adjacency or len(found) == 1:
            return (adjacency or found)[0]
    return list(members) if len(members) == 1 else []


def _compression(names: list[str], members: Mapping[str, Callable[[], Table]]) -> str | None:
    kind = next((kind for pair, kind in _PAIRS if names[0].endswith(pair[0])), None)
    if kind == "csr" and "format" in members:
        value = members["format"]()
        word = value.item() if isinstance(value, np.ndarray) else describe(value)
        return word.decode() if isinstance(word, bytes) else str(word)
    return kind


def _whole(table: Table, path: Path, layout: str | None, spool: Spool) -> Ends:
    """``[2, E]`` or ``[E, 2]``."""
    shape = tuple(table.shape)
    if len(shape) != 2 or 2 not in shape:
        raise InputError(path, "edges", f"shape {list(shape)}", "shape [2, E] or [E, 2]")
    if layout is None and shape == (2, 2):
        raise InputError(
            path,
            "edges",
            "shape [2, 2], which may be either",
            "to know whether it is [2, E] or [E, 2]",
            'Pass edge_layout="2xE" or "Ex2" (--edge-layout).',
        )
    if layout not in (None, *LAYOUTS):
        raise ValueError(f"edge_layout={layout!r}: expected one of {', '.join(LAYOUTS)}")
    if layout is None:
        layout = "2xE" if shape[0] == 2 else "Ex2"
    if shape[LAYOUTS.index(layout)] != 2:
        raise InputError(path, "edges", f"shape {list(shape)}", f"shape [{layout}]")
    ends: Sequence[Table]
    if isinstance(table, np.ndarray):
        ends = list(table if layout == "2xE" else table.T)
    else:
        ends = table.vectors(spool) if layout == "2xE" else table.columns()
    return _pair(ends[0], ends[1], path)


def _pair(src: Table, dst: Table, path: Path, names: tuple[str, str] = ("src", "dst")) -> Ends:
    if len(src) != len(dst):
        raise InputError(
            path, names[1], f"{len(dst)} values", f"{len(src)}, as many as {names[0]} has"
        )
    return Ends(path, (src, dst), names)


def _compressed(indptr: Table, indices: Table, path: Path, kind: str) -> Ends:
    if kind not in ("csr", "csc"):
        raise InputError(path, "format", repr(kind), "csr, csc or coo")
    is_pointers = isinstance(indptr, Rows) and len(indptr.shape) == 1 and len(indptr)
    if not is_pointers or describe(indptr)[:3] not in ("int", "uin"):
        found = f"{indptr.dtype}, shape {list(indptr.shape)}"
        raise InputError(path, "indptr", found, f"0 ascending to {len(indices)}")
    pointers = integers(only_rows(indptr, path), path, "indptr[{}]".format)
    rows = expanded(pointers, len(indices), path)
    if kind == "csr":
        return replace(_pair(rows, indices, path), counts=(len(pointers) - 1, None))
    return replace(_pair(indices, rows, path), counts=(None, len(pointers) - 1))


_STEP = 1 << 20  # pointers read at once, and kept one of


def expanded(pointers: Rows, num_edges: int, path: Path) -> Rows:
    """For every edge, the row whose range of pointers it lies in: ``int64 [num_edges]``.

    Args:
        pointers: ``int64 [num_rows + 1]``, from 0 up to the number of edges.
        num_edges: The value that the last pointer must have.
        path: The input, for messages.

    Raises:
        InputError: They are not such pointers.
    """
    marks: list[int] = []  # every _STEP-th pointer
    last, found = 0, ""
    for slab in pointers.slabs(_STEP):
        first = int(slab[0])
        if first < last or (not marks and first) or bool((slab[1:] < slab[:-1]).any()):
            found = "values that do not ascend from 0"
        marks.append(first)
        last = int(slab[-1])
    if not found and last != num_edges:
        found = f"a last value of {last}"
    if found:
        raise InputError(path, "indptr", found, f"0 ascending to {num_edges}")

    def make(begin: int, end: int) -> Tensor:
        pieces = [torch.empty(0, dtype=torch.int64)]
        # The last block that starts at or before `begin`, and on until one starts beyond.
        block = int(np.searchsorted(marks, begin, side="right")) - 1
        while block < len(marks) and marks[block] < end:
            first = block * _STEP
            slab = pointers.read(first, min(first + _STEP + 1, len(pointers)))
            counts = slab.clamp(begin, end).diff()
            pieces.append((torch.arange(len(counts)) + first).repeat_interleave(counts))
            block += 1
        return torch.cat(pieces)

    return MadeRows((num_edges,), torch.int64, make)
