"""Sparse matrices, of SciPy, torch and torch_sparse: as edges, or as rows, dense when read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.typing import SparseTensor
from torch_geometric.utils import to_edge_index

from pyg_graphzero.conversion.options import as_tensor
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, Rows

_LAYOUTS = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
PARTS = ("indptr", "indices", "data", "shape")


def is_sparse(value: Any) -> bool:
    """Whether this is a sparse matrix, of whatever library."""
    if isinstance(value, Tensor):
        return value.layout in _LAYOUTS
    return isinstance(value, SparseTensor) or _is_scipy(value)


def _is_scipy(value: Any) -> bool:
    return hasattr(value, "tocoo") and hasattr(value, "nnz") and hasattr(value, "shape")


def coo(matrix: Any, where: str, name: str) -> tuple[Any, Any, Tensor | None]:
    """Rows, columns and values; entries that are there twice stay two.

    Args:
        matrix: A matrix that :func:`is_sparse` recognises.
        where: The input, for messages.
        name: The matrix, for messages.

    Raises:
        InputError: It is none, or its pointers are no such.
    """
    if isinstance(matrix, SparseTensor):
        rows, columns, values = matrix.coo()
        return rows, columns, values
    if isinstance(matrix, Tensor) and matrix.layout in _LAYOUTS:
        if matrix.layout != torch.sparse_coo:
            by_row = matrix.layout == torch.sparse_csr
            pointers = matrix.crow_indices() if by_row else matrix.ccol_indices()
            # torch looks at these only where it is told to.
            bad = int(pointers[0]) != 0 or bool((pointers.diff() < 0).any())
            if bad or int(pointers[-1]) != len(matrix.values()):
                found = f"pointers {pointers[:3].tolist()} … {pointers[-1:].tolist()}"
                raise InputError(where, name, found, f"0 ascending to {len(matrix.values())}")
        # Entries that are there twice are parallel edges, which coalesce() would add up. PyG takes
        # them as they are; it marks its argument as coalesced, which is not to be the caller's.
        indices, values = to_edge_index(matrix.detach())
        return indices[0], indices[1], values
    if _is_scipy(matrix):
        found = matrix.tocoo()
        return as_tensor(found.row), as_tensor(found.col), as_tensor(found.data)
    raise InputError(where, name, type(matrix).__name__, "a SparseTensor or a sparse torch tensor")


def shape_of(matrix: Any) -> tuple[int, int]:
    """Rows and columns of what :func:`is_sparse` recognises."""
    shape = matrix.sizes() if isinstance(matrix, SparseTensor) else matrix.shape
    return int(shape[0]), int(shape[1])


class SparseRows(Rows):
    """The rows of a compressed matrix, each dense: what is not in it is 0.

    Args:
        indptr: Where each row starts, and the last one ends: ``int64 [num_rows + 1]``.
        indices: Columns of the values.
        values: The values.
        num_columns: Columns of the matrix.
        name: The matrix, for messages.

    Raises:
        InputError: The pointers are no such.
    """

    def __init__(
        self, indptr: Tensor, indices: Rows, values: Rows, num_columns: int, name: str
    ) -> None:
        bad = not len(indptr) or int(indptr[0]) != 0 or bool((indptr.diff() < 0).any())
        if bad or int(indptr[-1]) != len(indices) or len(indices) != len(values):
            expected = f"pointers from 0 ascending to {len(indices)}, and as many values"
            raise InputError(name, "sparse matrix", f"{len(values)} values", expected)
        super().__init__((len(indptr) - 1, num_columns), values.dtype)
        self._indptr, self._indices, self._values, self._name = indptr, indices, values, name

    def read(self, begin: int, end: int) -> Tensor:
        """See :meth:`Rows.read`."""
        bounds = self._indptr[begin : end + 1]
        first, last = int(bounds[0]), int(bounds[-1])
        columns = self._indices.read(first, last).long()
        bad = (columns < 0) | (columns >= self.shape[1])
        if bool(bad.any()):
            expected = f"a column of 0…{self.shape[1] - 1}"
            raise InputError(self._name, "sparse matrix", int(columns[bad][0]), expected)
        rows = torch.arange(end - begin).repeat_interleave(bounds.diff())
        out = torch.zeros((end - begin, self.shape[1]), dtype=self.dtype)
        return out.index_put_((rows, columns), self._values.read(first, last), accumulate=True)


def sparse_rows(matrix: Any, name: str) -> SparseRows:
    """A sparse matrix in memory as rows."""
    rows, columns, values = coo(matrix, f"<{name}>", name)
    num_rows, num_columns = shape_of(matrix)
    rows, columns = torch.as_tensor(rows), torch.as_tensor(columns)
    values = torch.ones(len(rows)) if values is None else values
    order = rows.argsort(stable=True)
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(rows.long(), minlength=num_rows).cumsum(0)
    ends = ArrayRows(columns[order]), ArrayRows(values[order])
    return SparseRows(indptr, *ends, num_columns, f"<{name}>")


def sparse_members(
    members: Mapping[str, Callable[[], Any]], prefix: str, name: str
) -> SparseRows | None:
    """The matrix that an archive holds in compressed rows, as SciPy's ``save_npz`` has it.

    Args:
        members: Arrays of the archive, by name.
        prefix: Start of their names.
        name: The archive, for messages.
    """
    if not all(prefix + part in members for part in PARTS):
        return None
    if "format" in members and str(np.asarray(members["format"]()).item()) not in ("csr", "b'csr'"):
        return None
    tables = {part: members[prefix + part]() for part in PARTS}
    if not all(isinstance(table, Rows) and len(table.shape) == 1 for table in tables.values()):
        return None
    indptr, shape = (tables[part].read(0, len(tables[part])).long() for part in ("indptr", "shape"))
    return SparseRows(indptr, tables["indices"], tables["data"], int(shape[1]), name)
