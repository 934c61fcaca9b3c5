"""Rows of a column in the order of its file, as passes over all nodes read them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.store.columns import DTYPES, EncodedRows
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.rows import Rows


class RowFile(Rows):
    """Rows of a column in the order of its file, read in pieces; decoded where they are encoded.

    Unlike a view over the mapped file, which is made for rows here and there.
    """

    def __init__(self, contents: StoreContents, file: str) -> None:
        self._column, self._rows = contents.column(file), contents.rows(file)
        super().__init__(self._column.shape, self._rows.dtype)

    def read(self, begin: int, end: int) -> Tensor:
        """Rows ``begin … end - 1``.

        Raises:
            OSError: The file ends before.
        """
        column, stride, count = self._column, self._column.row_stride, end - begin
        wanted = max(0, (count - 1) * stride + column.row_bytes)
        offset = column.data_offset + begin * stride
        raw = np.fromfile(column.path, np.uint8, wanted, offset=offset)
        if raw.size < wanted:
            raise OSError(
                f"{column.path}: found its end at row {begin} and {raw.size} bytes, expected "
                f"{count} rows of {stride} bytes more"
            )
        rows = torch.from_numpy(raw).as_strided((count, column.row_bytes), (stride, 1)).contiguous()
        values = rows.view(DTYPES[column.dtype]).view(count, *column.shape[1:])
        if not isinstance(self._rows, EncodedRows):
            return values
        return EncodedRows(values, self._rows.scale, self._rows.zero_point)[:]
