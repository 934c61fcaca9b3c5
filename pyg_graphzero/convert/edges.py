"""One edge list, from text, NumPy, torch or memory: endpoints as ids, and the attributes.

An array of edges is ``[2, E]`` or ``[E, 2]``. An archive may hold it as ``edge_index``,
``row``/``col``, ``src``/``dst``, CSR (``indptr``/``indices``, rows are sources) or CSC
(``colptr``/``row``, columns are destinations), with any prefix such as ``adj_``; what SciPy's
``save_npz`` writes is understood too.

Ids can become rows only after all of them have been seen, so an input is read once, before the
plan exists, and its endpoints are kept as they came; only they are, attributes may stay mapped.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ..errors import InputError
from . import text
from .arrays import as_array, id_column, load_all, load_part
from .dialect import Dialect, sniff
from .ids import IdColumn
from .options import Selection
from .plan import Array, edge_label
from .sources import Inputs, Loaded, select
from .spec import EdgeSpec

LAYOUTS = ("2xE", "Ex2")
_WHOLE = ("edge_index", "edges", "edge_list")
_PAIRS = (("row", "col"), ("src", "dst"), ("source", "target"))
_COMPRESSED = (("indptr", "indices"), ("rowptr", "col"), ("colptr", "row"), ("crow", "col"))
_NAMES = (("source", "target"), ("src", "dst"), ("from", "to"), ("head", "tail"), ("u", "v"))


@dataclass
class EdgeList:
    """Edges of one type before their ids are rows.

    Attributes:
        num_src, num_dst: Number of nodes, where the input says so (CSR, SciPy).
    """

    src: IdColumn
    dst: IdColumn
    attrs: dict[str, Loaded] = field(default_factory=dict)
    num_src: int | None = None
    num_dst: int | None = None
    notes: list[str] = field(default_factory=list)


def read_edges(
    spec: EdgeSpec, id_types: tuple[str, str], selection: Selection, inputs: Inputs
) -> EdgeList:
    """Read what ``spec`` describes.

    Args:
        spec: The edge type.
        id_types: ``"auto"``, ``"int"`` or ``"str"`` for source and destination.
        selection: Which attributes to take.
        inputs: Opens files.

    Raises:
        InputError: The input is not what it should be; names the place.
    """
    owner = edge_label(spec.type)
    wanted = {name: src for name, src in spec.attrs.items() if selection.wants(owner, name)}
    if isinstance(spec.file, str | os.PathLike):
        reference = inputs.reference(spec.file)
        if reference.kind == "text":
            return _read_text(reference.path, spec, id_types, wanted, inputs)
        _refuse_text_options(spec, reference.path)
        result = _from_file(reference.path, reference.member, spec, id_types)
    else:
        _refuse_text_options(spec, "an array")
        result = _from_memory(spec, id_types)
    for name, source in wanted.items():
        result.attrs[name] = inputs.load(name, source)
    return result


def _refuse_text_options(spec: EdgeSpec, source: object) -> None:
    for option in ("src", "dst", "delimiter", "header"):
        if getattr(spec, option) is not None:
            raise ValueError(f"{option} is an option for delimited text, which {source} is not")


def _read_text(
    path: Path,
    spec: EdgeSpec,
    id_types: tuple[str, str],
    attrs: Mapping[str, Any],
    inputs: Inputs,
) -> EdgeList:
    named = [column for column in (spec.src, spec.dst) if column is not None]
    dialect = sniff(
        path,
        delimiter=spec.delimiter,
        header=spec.header,
        comment=spec.comment,
        wanted=tuple(named),
    )
    if dialect.num_columns < 2:
        raise InputError(
            path,
            f"line {dialect.skip_lines + 1}",
            "1 column",
            f"2 or more, separated by {dialect.delimiter!r}",
            "Pass delimiter=... (--delimiter) if they are separated otherwise.",
        )
    src, dst = _endpoint_columns(dialect, spec)
    own, external = split_own(dialect, attrs)
    ids = [
        (position, id_type == "str" or (id_type == "auto" and text.is_text_id(dialect, position)))
        for position, id_type in zip((src, dst), id_types, strict=True)
    ]
    columns, loaded = inputs.columns(dialect, own, ids)
    for name, source in external.items():
        loaded[name] = inputs.load(name, source)
    result = EdgeList(columns[0], columns[1], loaded)
    result.notes += untaken(dialect, {src, dst}.union(*own.values()))
    return result


def split_own(
    dialect: Dialect, attrs: Mapping[str, Any]
) -> tuple[dict[str, list[int]], dict[str, Any]]:
    """Attributes that are columns of this very file, by position, and the others.

    A list or a position means columns; a string does if it selects some, else it is a path.
    """
    own: dict[str, list[int]] = {}
    external: dict[str, Any] = {}
    for name, source in attrs.items():
        is_list = isinstance(source, list | tuple) and all(isinstance(x, str) for x in source)
        if isinstance(source, int) or is_list:
            own[name] = select(dialect, source)
            continue
        if isinstance(source, str):
            try:
                own[name] = select(dialect, source)
                continue
            except InputError:
                if not any(source.partition(":")[0].endswith(end) for end in _SUFFIXES):
                    raise
        external[name] = source
    return own, external


_SUFFIXES = (".npy", ".npz", ".pt", ".pth", ".csv", ".tsv", ".txt", ".gz")


def untaken(dialect: Dialect, taken: set[int]) -> list[str]:
    """A note on columns that nobody asked for."""
    rest = [dialect.label(i) for i in range(dialect.num_columns) if i not in taken]
    return [f"{dialect.path.name}: columns not taken: {', '.join(rest[:8])}"] if rest else []


def _endpoint_columns(dialect: Dialect, spec: EdgeSpec) -> tuple[int, int]:
    src, dst = spec.src, spec.dst
    if src is None and dst is None:
        lower = [name.lower() for name in dialect.names]
        for pair in _NAMES:
            for suffix in ("", "_id", "id"):
                names = [name + suffix for name in pair]
                if all(lower.count(name) == 1 for name in names):
                    return lower.index(names[0]), lower.index(names[1])
    found = (
        dialect.position(0 if src is None else src),
        dialect.position(1 if dst is None else dst),
    )
    if found[0] == found[1]:
        raise InputError(
            dialect.path, "columns", f"{dialect.label(found[0])} for both ends", "two columns"
        )
    return found


def _from_memory(spec: EdgeSpec, id_types: tuple[str, str]) -> EdgeList:
    value = spec.file
    path = Path("<edge_index>")
    if isinstance(value, tuple) and len(value) == 2:
        src, dst = (as_array(part, "edge_index") for part in value)
        return _pair(src, dst, path, id_types)
    if isinstance(value, Mapping):
        return _from_members(value, None, path, spec, id_types)
    return _whole(as_array(value, "edge_index"), path, spec, id_types)


def _from_file(
    path: Path, member: str | None, spec: EdgeSpec, id_types: tuple[str, str]
) -> EdgeList:
    content = load_all(path)
    if isinstance(content, Mapping):
        return _from_members(content, member, path, spec, id_types)
    if member is not None:
        raise InputError(path, "member", "a single array", f"a member {member!r}")
    return _whole(content, path, spec, id_types)


def _from_members(
    members: Mapping[str, Any],
    member: str | None,
    path: Path,
    spec: EdgeSpec,
    id_types: tuple[str, str],
) -> EdgeList:
    there = list(members)
    names = _choose(members, member)
    missing = [name for name in names if name not in there]
    if missing or not names:
        raise InputError(
            path,
            "members",
            ", ".join(map(str, there)) or "nothing",
            f"a member {missing[0]!r}" if missing else "edge_index, row/col or indptr/indices",
            "" if missing else f"Name them: {path.name}:SRC,DST.",
        )
    arrays = [load_part(path, members, name) for name in names]
    if len(arrays) == 1:
        return _whole(arrays[0], path, spec, id_types)
    kind = _compression(names, members)
    if kind is None:
        result = _pair(arrays[0], arrays[1], path, id_types, names)
    else:
        result = _compressed(arrays[0], arrays[1], path, kind, id_types)
    if "format" in members and "shape" in members:  # SciPy's save_npz
        result.num_src, result.num_dst = map(int, np.asarray(members["shape"]).tolist())
    return result


def _choose(members: Mapping[str, Any], member: str | None) -> list[str]:
    if member is not None:
        return [member] if member in members else member.split(",")
    for name in _WHOLE:
        if name in members:
            return [name]
    for pair in (*_COMPRESSED, *_PAIRS):
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
    return [str(name) for name in members] if len(members) == 1 else []


def _compression(names: list[str], members: Mapping[str, Any]) -> str | None:
    if names[0].endswith("colptr"):
        return "csc"
    if not any(names[0].endswith(pair[0]) for pair in _COMPRESSED):
        return None
    if "format" in members:
        value = np.asarray(members["format"]).item()
        return value.decode() if isinstance(value, bytes) else str(value)
    return "csr"


def _whole(array: Array, path: Path, spec: EdgeSpec, id_types: tuple[str, str]) -> EdgeList:
    """``[2, E]`` or ``[E, 2]``."""
    shape = tuple(array.shape)
    if len(shape) != 2 or 2 not in shape:
        raise InputError(path, "edges", f"shape {list(shape)}", "shape [2, E] or [E, 2]")
    layout = spec.edge_layout
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
    src, dst = (array[0], array[1]) if layout == "2xE" else (array[:, 0], array[:, 1])
    return _pair(src, dst, path, id_types)


def _pair(
    src: Array,
    dst: Array,
    path: Path,
    id_types: tuple[str, str],
    names: list[str] | None = None,
) -> EdgeList:
    names = names or ["src", "dst"]
    if len(src) != len(dst):
        raise InputError(
            path, names[1], f"{len(dst)} values", f"{len(src)}, as many as {names[0]} has"
        )
    columns = [
        id_column(array, path, _places(name), id_type == "str")
        for array, name, id_type in zip((src, dst), names, id_types, strict=True)
    ]
    return EdgeList(columns[0], columns[1])


def _places(name: str) -> Callable[[int], str]:
    return lambda position: f"{name}[{position}]"


def _compressed(
    indptr: Array,
    indices: Array,
    path: Path,
    kind: str,
    id_types: tuple[str, str],
) -> EdgeList:
    if kind not in ("csr", "csc"):
        raise InputError(path, "format", repr(kind), "csr, csc or coo")
    pointers = np.asarray(indptr.numpy() if isinstance(indptr, torch.Tensor) else indptr)
    found = ""
    if pointers.ndim != 1 or not len(pointers) or pointers.dtype.kind not in "iu":
        found = f"{pointers.dtype}, shape {list(pointers.shape)}"
    elif pointers[0] != 0 or bool((pointers[1:] < pointers[:-1]).any()):
        found = "values that do not ascend from 0"
    elif int(pointers[-1]) != len(indices):
        found = f"a last value of {int(pointers[-1])}"
    if found:
        raise InputError(path, "indptr", found, f"0 ascending to {len(indices)}")
    starts = pointers.astype(np.int64, copy=False)
    counts = starts[1:] - starts[:-1]
    rows = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    pair = (rows, indices) if kind == "csr" else (indices, rows)
    result = _pair(pair[0], pair[1], path, id_types)
    if kind == "csr":
        result.num_src = len(counts)
    else:
        result.num_dst = len(counts)
    return result
