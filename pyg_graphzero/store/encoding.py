"""float32 attributes stored in fewer bytes: what there is to choose, encoding, and what it costs.

Rows are decoded where they are gathered (:class:`pyg_graphzero.store.columns.EncodedRows`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero._core import Encoding
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import Rows

# Dtype of the codes, by the encoding's name.
ENCODINGS: dict[str, torch.dtype] = {each.name: getattr(torch, each.name) for each in Encoding}


def check_encoding(name: Any) -> str:
    """``name``, one of ``ENCODINGS``.

    Raises:
        ValueError: It is none.
    """
    if name not in ENCODINGS:
        raise ValueError(f"features={name!r}: expected one of {', '.join(ENCODINGS)}")
    return str(name)


@dataclass(frozen=True)
class EncodingLoss:
    """How far decoded values are from the ones that were encoded.

    Attributes:
        encoding: ``"float16"``, ``"bfloat16"`` or ``"int8"``.
        values: Finite values that were encoded.
        max_abs_error: The largest difference.
        rmse: Root of the mean squared difference, over all values.
        relative_rmse: ``rmse`` in units of each column's standard deviation, over all columns that
            have one.
        worst_relative_rmse: ``relative_rmse`` of the column where it is largest.
        worst_column: That column, by its place in a row; None if all columns are constant.
        clipped: Values beyond the range of their column's code.
    """

    encoding: str
    values: int
    max_abs_error: float
    rmse: float
    relative_rmse: float
    worst_relative_rmse: float
    worst_column: int | None
    clipped: int

    @classmethod
    def of(cls, encoding: str, losses: list[_core.ColumnLoss]) -> EncodingLoss:
        """Sums up the columns of one attribute."""
        values = sum(loss.count for loss in losses)
        squared = sum(loss.squared_error for loss in losses)
        relative = {
            column: loss.squared_error / loss.count / loss.variance
            for column, loss in enumerate(losses)
            if loss.variance > 0
        }
        worst = max(relative, key=relative.__getitem__, default=None)
        return cls(
            encoding,
            values,
            max_abs_error=max((loss.max_abs_error for loss in losses), default=0.0),
            rmse=math.sqrt(squared / max(values, 1)),
            relative_rmse=math.sqrt(sum(relative.values()) / max(len(relative), 1)),
            worst_relative_rmse=0.0 if worst is None else math.sqrt(relative[worst]),
            worst_column=worst,
            clipped=sum(loss.clipped for loss in losses),
        )

    def __str__(self) -> str:
        share = self.clipped / max(self.values, 1)
        return (
            f"max error {self.max_abs_error:.3g}, RMSE {self.rmse:.3g} "
            f"({self.relative_rmse:.2%} of a column's standard deviation, "
            f"{self.worst_relative_rmse:.2%} in the worst), "
            f"{self.clipped:,} values clipped ({share:.2g})"
        )


def work_bytes(rows: Rows, encoding: str | None) -> int:
    """Bytes read or written to store ``rows``, as progress counts them."""
    items = math.prod(rows.shape)
    stored = rows.dtype if encoding is None else ENCODINGS[encoding]
    profiled = rows.dtype.itemsize if encoding and Encoding[encoding].has_scales else 0
    return items * (stored.itemsize + profiled)


class ColumnEncoder:
    """Rows as they are stored, made from floating-point ones a slab at a time.

    Args:
        rows: The attribute; read once, for int8 twice.
        encoding: One of ``ENCODINGS``.
        what: How to call the attribute in an error.
        progress: Called with the number of bytes of each piece that int8's first pass reads.

    Attributes:
        shape: That of ``rows``.
        dtype: Dtype of the codes.
        engine: Knows the code.

    Raises:
        InputError: The attribute is not of floating-point numbers, or int8 is asked for and a
            value is not finite; names the row.
    """

    def __init__(
        self,
        rows: Rows,
        encoding: str,
        what: str,
        progress: Callable[[int], object] | None = None,
    ) -> None:
        if not rows.dtype.is_floating_point:
            raise InputError(
                what,
                "dtype",
                str(rows.dtype).removeprefix("torch."),
                f"floating-point numbers, to store them as {encoding}",
                "Give it the dtype float32, or leave it as it is.",
            )
        self.encoding = encoding
        self.shape = rows.shape
        self.dtype = ENCODINGS[encoding]
        self.engine = _core.RowEncoder(Encoding[encoding], math.prod(rows.shape[1:]))
        self._rows = rows
        if Encoding[encoding].has_scales:
            self._fit(what, progress or (lambda num_bytes: None))

    def _fit(self, what: str, progress: Callable[[int], object]) -> None:
        begin = 0
        for slab in self._rows.slabs():
            values = _float_rows(slab)
            bad = self.engine.profile(values)
            if bad >= 0:
                found = next(value for value in values[bad] if not math.isfinite(value))
                hint = "float16 and bfloat16 keep such values."
                raise InputError(what, f"row {begin + bad}", found, "a finite number", hint)
            begin += len(slab)
            progress(slab.numel() * slab.element_size())
        self.engine.fit()

    def slabs(self) -> Iterator[Tensor]:
        """All rows as they are stored, in pieces ``[n, ...]`` of ``dtype``."""
        for slab in self._rows.slabs():
            yield encode_rows(self.engine, slab, self.dtype)

    def loss(self) -> EncodingLoss:
        """Loss of the rows encoded so far."""
        return EncodingLoss.of(self.encoding, self.engine.losses)


def encode_rows(engine: _core.RowEncoder, rows: Tensor, stored: torch.dtype) -> Tensor:
    """Floating-point rows ``[n, ...]`` as they are stored; ``engine`` adds up what that costs."""
    values = _float_rows(rows)
    out = torch.empty(values.shape, dtype=stored)
    if out.numel():
        codes: Any = out.view(torch.uint8).numpy()
        engine.encode(values, codes)
    return out.view(rows.shape)


def _float_rows(slab: Tensor) -> Any:
    """Rows as the engine takes them, ``float32 [n, items]``.

    Finite numbers beyond the range of ``float32`` become the largest in it.
    """
    rows = slab.to(torch.float32)
    if slab.dtype == torch.float64:
        limit = torch.finfo(torch.float32).max
        rows = torch.where(slab.isinf(), rows, rows.clamp(-limit, limit))
    return rows.reshape(len(slab), math.prod(slab.shape[1:])).contiguous().numpy()
