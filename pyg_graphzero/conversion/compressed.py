"""CSR and CSC arrays as edges: the pointers become one row id per edge, a slab at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import Rows

_STEP = 1 << 20  # pointers read at once, and kept one of


class ExpandedRows(Rows):
    """For every edge, the row whose range of pointers it lies in: ``int64 [num_edges]``.

    Args:
        pointers: ``int64 [num_rows + 1]``, from 0 up to the number of edges.
        num_edges: What the last one must be.
        path: The input, for messages.

    Raises:
        InputError: They are not such pointers.
    """

    def __init__(self, pointers: Rows, num_edges: int, path: Path) -> None:
        super().__init__((num_edges,), torch.int64)
        self._pointers = pointers
        self._marks: list[int] = []  # every _STEP-th pointer
        last, found = 0, ""
        for slab in pointers.slabs(_STEP):
            if not self._marks and int(slab[0]) != 0:
                found = "values that do not ascend from 0"
            if int(slab[0]) < last or bool((slab[1:] < slab[:-1]).any()):
                found = "values that do not ascend from 0"
            self._marks.append(int(slab[0]))
            last = int(slab[-1])
        if not found and last != num_edges:
            found = f"a last value of {last}"
        if found:
            raise InputError(path, "indptr", found, f"0 ascending to {num_edges}")

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        pieces = [torch.empty(0, dtype=torch.int64)]
        # The last block that starts at or before `begin`, and on until one starts beyond.
        block = int(np.searchsorted(self._marks, begin, side="right")) - 1
        while block < len(self._marks) and self._marks[block] < end:
            first = block * _STEP
            slab = self._pointers.read(first, min(first + _STEP + 1, len(self._pointers)))
            counts = slab.clamp(begin, end).diff()
            pieces.append((torch.arange(len(counts)) + first).repeat_interleave(counts))
            block += 1
        return torch.cat(pieces)
