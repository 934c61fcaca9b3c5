"""Rows of a column that are compared with queries, by cosine similarity."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import normalize

from pyg_graphzero.store.columns import gather
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import RowFile
from pyg_graphzero.util.system import private_rss

# Rows are compared in pieces of about this many bytes, or of half of what the budget leaves, which
# counts float32 copies of a piece: as it is read, in order, decoded, and of length 1.
_SLAB_BYTES = 64 << 20
_COPIES = 4
# A budget that leaves less is exceeded by such a piece.
_LEAST_BYTES = 1 << 20

#: Similarities (``float32 [n]``, falling) and their rows (``int64 [n]``).
Found = tuple[Tensor, Tensor]


class Embeddings:
    """A matrix in a store, whose rows are compared with queries.

    Args:
        contents: The store's files.
        file: The column's file.
        what: The user's name for it.

    Attributes:
        record: The file's record, which another content has another of.
        width: Numbers of a row.

    Raises:
        ValueError: It is no matrix of floating-point numbers.
    """

    def __init__(self, contents: StoreContents, file: str, what: str) -> None:
        self.contents, self.file = contents, file
        self._table = contents.rows(file)
        shape, dtype = tuple(self._table.shape), self._table.dtype
        if len(shape) != 2 or not dtype.is_floating_point:
            raise ValueError(
                f"{contents.path}: {what}: found {dtype} of shape {list(shape)}, expected "
                "embeddings, floating-point numbers [num_rows, width]"
            )
        self.num_rows, self.width = shape
        self.record = contents.schema.files.get(file) or contents.schema.adopted[file]
        self._file = RowFile(contents, file)

    @property
    def room(self) -> int:
        """Bytes that the store's budget leaves now."""
        return max(0, self.contents.memory - private_rss())

    def slabs(self, first: int, last: int) -> Iterator[tuple[int, Tensor]]:
        """Rows ``first … last - 1`` made length 1, in pieces: number of the first row, and rows."""
        num_bytes = max(_LEAST_BYTES, min(_SLAB_BYTES, self.room // 2))
        step = max(1, num_bytes // (_COPIES * 4 * max(1, self.width)))
        for begin in range(first, last, step):
            yield begin, _unit(self._file.read(begin, min(begin + step, last)))

    def at(self, rows: Tensor) -> Tensor:
        """Some rows (``int64 [n]``) made length 1, ``float32 [n, width]``."""
        return _unit(gather(self._table, rows))

    def nearest(self, queries: Tensor, k: int) -> list[Found]:
        """The nearest rows of all, by one pass over them.

        Args:
            queries: ``float32 [num_queries, width]``.
            k: How many for each; fewer where there are fewer rows.
        """
        queries = _unit(queries)
        scores, rows = queries.new_empty((len(queries), 0)), torch.empty((len(queries), 0)).long()
        for first, slab in self.slabs(0, self.num_rows):
            best, at = (queries @ slab.t()).topk(min(k, len(slab)), dim=1)
            scores, rows = torch.cat([scores, best], dim=1), torch.cat([rows, at + first], dim=1)
            scores, order = scores.topk(min(k, scores.size(1)), dim=1)
            rows = rows.gather(1, order)
        return list(zip(scores, rows, strict=True))

    def nearest_of(self, query: Tensor, rows: Tensor, k: int) -> Found:
        """The nearest of some rows (``int64 [n]``) to a query ``float32 [width]``."""
        scores = self.at(rows) @ _unit(query)
        best, order = scores.topk(min(k, len(rows)))
        return best, rows[order]


def _unit(rows: Tensor) -> Tensor:
    return normalize(rows.to(torch.float32), dim=-1)
