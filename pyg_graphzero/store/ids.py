"""The user's ids: what the rows of a node type were called in the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from pyg_graphzero import _core
from pyg_graphzero.errors import FormatError, MissingAttributeError
from pyg_graphzero.util.arguments import as_row_index


class StringIds(Sequence[str]):
    """String ids by row, decoded on access from the mapped file.

    Example:
        >>> ids = store.ids("word")        # doctest: +SKIP
        >>> ids[3], ids[batch["word"].n_id]  # doctest: +SKIP
    """

    def __init__(self, offsets: Tensor, text: Tensor, name: str = "ids") -> None:
        self.name = name
        self._offsets, self._text = offsets, text
        # Arrow trusts offsets, and allocates by the first and last.
        self._check(offsets[:1], offsets[-1:])
        self._unchecked = pa.LargeStringArray.from_buffers(
            offsets.numel() - 1, pa.py_buffer(offsets.numpy()), pa.py_buffer(text.numpy())
        )

    def __len__(self) -> int:
        return self._offsets.numel() - 1

    @cached_property
    def array(self) -> pa.LargeStringArray:
        """All ids as an Arrow array, checked from end to end."""
        try:
            self._unchecked.validate(full=True)
        except pa.ArrowInvalid as error:
            raise self._damaged(error) from None
        return self._unchecked

    def _damaged(self, found: object) -> FormatError:
        expected = "UTF-8 between offsets that rise; run `graphzero verify` on the store"
        return FormatError.of(self.name, "string ids", found, expected)

    def _check(self, begin: Tensor, end: Tensor) -> None:
        bad = (begin < 0) | (end < begin) | (end > self._text.numel())
        if bool(bad.any()):
            at = int(bad.nonzero()[0, 0])
            raise self._damaged(f"text from {int(begin[at])} to {int(end[at])}")

    def _take(self, rows: Tensor) -> list[str]:
        self._check(self._offsets[rows], self._offsets[rows + 1])
        try:
            return self._unchecked.take(pa.array(rows.numpy())).to_pylist()
        except UnicodeDecodeError as error:
            raise self._damaged(error) from None

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | Tensor | np.ndarray) -> list[str]: ...
    def __getitem__(self, index: Any) -> str | list[str]:
        if isinstance(index, (Tensor, np.ndarray)):
            rows = as_row_index(index, len(self))
            outside = rows[(rows < 0) | (rows >= len(self))]
            if outside.numel():
                raise IndexError(f"row {int(outside[0])}: expected 0 <= row < {len(self)}")
            return self._take(rows)
        if isinstance(index, slice):
            return self._take(torch.tensor(range(len(self))[index], dtype=torch.int64))
        if not -len(self) <= index < len(self):
            raise IndexError(f"row {index}: expected 0 <= row < {len(self)}")
        return self._take(torch.tensor([index % len(self)]))[0]

    def __iter__(self) -> Iterator[str]:
        for value in self.array:
            yield value.as_py()


def text_bytes(words: Any) -> tuple[Tensor, Tensor]:
    """Offsets ``int64 [n + 1]``, from 0 on, and bytes of an Arrow array of strings."""
    text = torch.empty(0, dtype=torch.uint8)
    if not len(words):
        return torch.zeros(1, dtype=torch.int64), text
    _, offsets, data = words.buffers()
    kind = np.int64 if pa.types.is_large_string(words.type) else np.int32
    bounds = np.frombuffer(offsets, kind)[words.offset : words.offset + len(words) + 1]
    begin, end = int(bounds[0]), int(bounds[-1])
    if end > begin:
        text = from_dlpack(pa.Array.from_buffers(pa.uint8(), end, [None, data]))[begin:]
    return torch.from_numpy(bounds.astype(np.int64) - begin), text


def lookup(ids: Tensor | StringIds | None, wanted: Any, num_nodes: int) -> Tensor:
    """Rows of the wanted ids.

    Args:
        ids: The user's ids by row; None where they are the rows themselves.
        wanted: One id or a sequence, tensor or array of ids.
        num_nodes: Number of rows.

    Returns:
        ``int64 [len(wanted)]``.

    Raises:
        MissingAttributeError: Names the first id there is no row for.
    """
    if isinstance(wanted, (str, int)):
        wanted = [wanted]
    if isinstance(ids, StringIds):
        texts = pa.array(list(wanted), type=pa.large_string())
        rows = pc.index_in(texts, value_set=ids.array)
        if rows.null_count:
            missing = texts.filter(pc.is_null(rows))[0].as_py()
            raise MissingAttributeError(f"id {missing!r}: no node has it")
        return torch.from_numpy(rows.to_numpy(zero_copy_only=False).astype(np.int64))
    keys: Any = np.asarray(wanted).reshape(-1)
    if keys.dtype.kind == "f" and all(isinstance(key, int) for key in wanted):
        keys = np.array(wanted, object)  # some are beyond int64
    elif keys.dtype.kind not in "iu" and keys.size:
        raise TypeError(f"ids: found {keys.dtype}, expected integers")
    known = np.empty(0, np.int64) if ids is None else ids.numpy()
    bounds = np.iinfo(known.dtype)
    bad = np.asarray((keys < bounds.min) | (keys > bounds.max), bool)
    kept = np.where(bad, 0, keys).astype(known.dtype)
    if ids is None:
        bad, rows = bad | (kept < 0) | (kept >= num_nodes), kept
    else:
        index = _core.IntegerIndex(ids.view(torch.int64))
        rows = index.find(torch.from_numpy(kept.view(np.int64))).numpy()
        bad = bad | (rows < 0)
    if bad.any():
        raise MissingAttributeError(f"id {int(keys[bad][0])}: no node has it")
    return torch.from_numpy(rows.astype(np.int64))
