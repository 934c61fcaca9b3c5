"""Arrays out of NumPy and torch files and out of memory, without ever unpickling."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch

from ..errors import InputError
from .ids import IdColumn
from .paths import TEXT_SUFFIXES, kind_suffix
from .plan import Array

_KINDS = {".npy": "npy", ".npz": "npz", ".pt": "pt", ".pth": "pt"}
_KINDS |= dict.fromkeys(TEXT_SUFFIXES, "text")


@dataclass(frozen=True)
class Reference:
    """Files of one kind, and the part of them that is meant.

    Attributes:
        files: At least one; several follow one another as if they were one.
        member: A column, an array of an archive; ``None`` if not named.
    """

    files: tuple[Path, ...]
    member: str | None = None

    @property
    def path(self) -> Path:
        """The first file."""
        return self.files[0]

    @property
    def kind(self) -> str | None:
        """``"npy"``, ``"npz"``, ``"pt"`` or ``"text"``; ``None`` if it cannot be read."""
        return _KINDS.get(kind_suffix(self.path))


def id_column(
    array: Array, path: str | Path, where: Callable[[int], str], as_text: bool = False
) -> IdColumn:
    """An array of node ids, integers or strings, as one column.

    Raises:
        InputError: It is not 1-D, or its dtype is neither.
    """
    values = array.numpy() if isinstance(array, torch.Tensor) else array
    if values.ndim != 1:
        raise InputError(path, "ids", f"shape {list(values.shape)}", "one dimension")
    if values.dtype.kind in "USTO" or as_text:
        if values.dtype.kind == "S":
            values = np.char.decode(values, "utf-8")
        try:
            words = pa.array(values)
            words = pc.cast(words, pa.string())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InputError(path, "ids", str(error), "integers or strings") from error
        return IdColumn(path, where, [words], True)
    if values.dtype.kind not in "iu":
        raise InputError(path, "ids", str(values.dtype), "integers or strings")
    if values.dtype == np.uint64 and len(values) and int(values.max()) >= 1 << 63:
        row = int(np.argmax(values >= 1 << 63))
        raise InputError(path, where(row), f"id {values[row]}", "an id below 2**63")
    return IdColumn(path, where, [values.astype(np.int64, copy=False)], False)


def as_array(value: Any, name: str) -> Array:
    """An in-memory source as an array.

    Raises:
        InputError: It is not one.
    """
    if isinstance(value, torch.Tensor):
        value = value.detach()
        if value.layout == torch.strided:
            return value.as_subclass(torch.Tensor).cpu()
        found = f"a tensor of layout {value.layout}"
    elif isinstance(value, np.ndarray):
        return _native(value)
    elif isinstance(value, list | tuple):
        return _native(np.asarray(value))
    else:
        found = type(value).__name__
    raise InputError(f"<{name}>", "value", found, "an array, a dense tensor or a path")


def load_member(reference: Reference) -> Array:
    """The array a reference names.

    Raises:
        InputError: The file is damaged or holds objects, or the member is missing or ambiguous.
    """
    loaded = load_all(reference.path)
    if not isinstance(loaded, Mapping):
        if reference.member is not None:
            raise InputError(
                reference.path, "member", "a single array", f"a member {reference.member!r}"
            )
        return loaded
    there = ", ".join(map(str, loaded)) or "nothing"
    if reference.member is None and len(loaded) == 1:
        return load_part(reference.path, loaded, next(iter(loaded)))
    if reference.member is None:
        hint = f"Name it: {reference.path.name}:MEMBER."
        raise InputError(reference.path, "members", there, "one member", hint)
    if reference.member not in loaded:
        raise InputError(reference.path, "members", there, f"a member {reference.member!r}")
    return load_part(reference.path, loaded, reference.member)


def load_part(path: Path, members: Mapping[str, Any], member: str) -> Array:
    """One member of an archive, read when asked for.

    Raises:
        InputError: It is damaged, or no array.
    """
    try:
        value = members[member]
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(path, f"member {member!r}", str(error), "an array of numbers") from error
    return as_array(value, f"{path}:{member}")


def load_torch(path: Path) -> Any:
    """What ``torch.save`` wrote, tensors only, memory-mapped unless the file is a very old one."""
    mmap = zipfile.is_zipfile(path)
    return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)


def load_all(path: Path) -> Any:
    """What a NumPy or torch file holds: one array, or a mapping of them.

    Raises:
        InputError: The file is damaged or holds pickled objects.
    """
    try:
        if path.suffix in (".pt", ".pth"):
            value = load_torch(path)
            return value if isinstance(value, Mapping) else as_array(value, str(path))
        mmap: Literal["r"] | None = "r" if path.suffix == ".npy" else None
        value = np.load(path, mmap_mode=mmap, allow_pickle=False)
        return _native(value) if isinstance(value, np.ndarray) else value
    except (InputError, OSError):
        raise
    except Exception as error:  # torch and NumPy raise many kinds over a damaged file
        reason = str(error).strip().splitlines()[0] if str(error).strip() else repr(error)
        if "allow_pickle" in reason or "Weights only" in reason:
            reason = "pickled Python objects, which are not loaded"
        raise InputError(path, "file", reason, f"a {path.suffix} file of arrays") from error


def _native(array: np.ndarray) -> np.ndarray:
    """In this machine's byte order, which is all that torch can hold."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
