"""The user's ids: what the rows of a node type were called in the input."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import torch
from torch import Tensor

from pyg_graphzero.errors import MissingAttributeError


class StringIds(Sequence[str]):
    """String ids by row, decoded on access from the mapped file.

    Example:
        >>> ids = store.ids("word")        # doctest: +SKIP
        >>> ids[3], ids[batch["word"].n_id]  # doctest: +SKIP
    """

    def __init__(self, offsets: Tensor, text: Tensor) -> None:
        self.array = pa.LargeStringArray.from_buffers(
            offsets.numel() - 1, pa.py_buffer(offsets.numpy()), pa.py_buffer(text.numpy())
        )

    def __len__(self) -> int:
        return len(self.array)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice | Tensor | np.ndarray) -> list[str]: ...
    def __getitem__(self, index: Any) -> str | list[str]:
        if isinstance(index, Tensor):
            index = index.numpy()
        if isinstance(index, np.ndarray):
            return self.array.take(pa.array(index)).to_pylist()  # type: ignore[no-any-return]
        if isinstance(index, slice):
            return self.array.take(pa.array(range(*index.indices(len(self))))).to_pylist()  # type: ignore[no-any-return]
        return str(self.array[index].as_py())

    def __iter__(self) -> Iterator[str]:
        for value in self.array:
            yield value.as_py()


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
    keys = torch.as_tensor(wanted).view(-1)
    if keys.dtype.is_floating_point or keys.dtype == torch.bool:
        raise TypeError(f"ids: found {keys.dtype}, expected integers")
    keys = keys.to(torch.int64)
    if ids is None:
        bad = (keys < 0) | (keys >= num_nodes)
        rows, order = keys, None
    else:
        ascending, order = torch.sort(ids)
        at = torch.searchsorted(ascending, keys).clamp(max=max(num_nodes - 1, 0))
        bad = ascending[at] != keys if num_nodes else torch.ones_like(keys, dtype=torch.bool)
        rows = order[at] if num_nodes else at
    if bad.any():
        raise MissingAttributeError(f"id {int(keys[bad][0])}: no node has it")
    return rows
