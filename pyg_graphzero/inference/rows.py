"""Rows of a column in the order of its file, as passes over all nodes read them."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.store.columns import DTYPES, EncodedRows, column_rows, gather, numbers_of
from pyg_graphzero.store.contents import StoreContents


class RowFile:
    """Rows of a column in the order of its file, read in pieces.

    Unlike a view over the mapped file, which is made for rows here and there.
    """

    def __init__(self, contents: StoreContents, file: str) -> None:
        self._column = contents.column(file)
        self._rows = column_rows(self._column, contents.view(file))
        self._dtype = DTYPES[self._column.dtype]

    @property
    def row_bytes(self) -> int:
        """Bytes of a row that was read."""
        return math.prod(self._column.shape[1:]) * self._rows.dtype.itemsize

    def read(self, first: int, count: int) -> Tensor:
        """``[count, ...]`` rows from ``first`` on; ``float32`` where they are encoded.

        Raises:
            OSError: The file ends before.
        """
        column, stride = self._column, self._column.row_stride
        begin = column.data_offset + first * stride
        wanted = max(0, (count - 1) * stride + column.row_bytes)
        raw = np.fromfile(column.path, np.uint8, wanted, offset=begin)
        if raw.size < wanted:
            raise OSError(
                f"{column.path}: found its end at row {first} and {raw.size} bytes, expected "
                f"{count} rows of {stride} bytes more"
            )
        rows = torch.from_numpy(raw).as_strided((count, column.row_bytes), (stride, 1)).contiguous()
        values = rows.view(self._dtype).view(count, *column.shape[1:])
        if not isinstance(self._rows, EncodedRows):
            return values
        return EncodedRows(values, self._rows.scale, self._rows.zero_point)[:]


class NarrowRows:
    """Rows of some nodes of a column that is mapped, as :class:`RowFile` has them of all."""

    def __init__(self, rows: Tensor | EncodedRows, nodes: range | Tensor) -> None:
        self._rows = rows
        self._nodes = nodes

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return math.prod(self._rows.shape[1:]) * self._rows.dtype.itemsize

    def read(self, first: int, count: int) -> Tensor:
        """``[count, ...]`` rows from the node at place ``first`` on."""
        return gather(self._rows, numbers_of(self._nodes, first, first + count))
