"""Choices for every kind of input, by attribute: taken or not, dtype, fill, encoding, adoption."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import torch

from pyg_graphzero.conversion.plan import GraphPlan
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.encoding import check_encoding
from pyg_graphzero.store.rows import FileRows, Rows


def parse_dtype(attr: str, value: Any) -> torch.dtype:
    """The torch dtype of an attribute, from itself, a NumPy dtype or a name such as ``"float16"``.

    Raises:
        ValueError: There is no such dtype, or it is complex.
    """
    found = value
    if not isinstance(value, torch.dtype):
        with suppress(TypeError):
            name = value if isinstance(value, str) else np.dtype(value).name
            found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype) or found.is_complex:
        expected = "one of torch's, such as 'float32' or 'int64', and not complex"
        raise ValueError(f"dtype of {attr!r}: found {value!r}, expected {expected}")
    return found


Fill = bool | int | float


def parse_fill(name: str, value: Any) -> Fill:
    """The value in place of a missing one: a number or a truth value, or the text of one.

    Raises:
        ValueError: It is none.
    """
    if isinstance(value, bool | int | float):
        return value
    word = str(value).strip().lower()
    if word in ("true", "false"):
        return word == "true"
    for kind in (int, float):
        try:
            return kind(word)
        except ValueError:
            continue
    raise ValueError(f"fill of {name!r}: found {value!r}, expected a number, nan, true or false")


def fill_hint(attr: str, is_float: bool) -> str:
    """How to have the missing values of an attribute filled, for messages."""
    value, word = ("float('nan')", "nan") if is_float else ("-1", "-1")
    return f"To fill it, pass fill={{{attr!r}: {value}}} (--fill {attr}={word})."


def filled_dtype(dtype: torch.dtype, fill: Fill | None, name: str) -> torch.dtype:
    """A dtype that holds the values of ``dtype``, and ``fill``.

    Raises:
        ValueError: There is none, of truth values and numbers.
    """
    if fill is None or dtype.is_floating_point or torch.tensor(fill).to(dtype).item() == fill:
        return dtype
    if dtype == torch.bool:
        raise ValueError(f"fill of {name!r}: found {fill}, expected true or false as it has")
    return torch.int64 if fill == fill and fill == int(fill) else torch.float64


# Models multiply these: float32 as PyG expects, and read as such from text.
MULTIPLIED = frozenset({"x", "edge_attr", "edge_weight"})
# These are float32 if they have fractions. Anything else, such as a unix time with a fraction,
# keeps all its digits.
_SINGLE_PRECISION = MULTIPLIED | {"y", "weight"}


class Choices:
    """Options of ``convert`` for single attributes.

    An entry is an attribute (``"x"``) or, but for ``dtypes`` and ``fill``, one type's attribute
    (``"paper.x"``, ``"user,rates,movie.time"``). No value changes unasked, but that ``float64`` of
    what models compute with becomes ``float32``.

    Args:
        take: Attributes to store; None for all but ``skip``.
        skip: Attributes to leave out.
        dtypes: Attribute → dtype.
        fill: Attribute → value in place of missing ones.
        features: An encoding for ``x``, or node attribute → encoding.
        adopt: Leave node attributes in the files that they lie in as rows.

    Attributes:
        notes: Sentences on facts that the result does not show.
        doubts: Notes that are worth a warning.
        is_exact: Whether nothing becomes shorter unasked.

    Raises:
        ValueError: A value is not one of its choices.
    """

    def __init__(
        self,
        take: Collection[str] | None = None,
        skip: Collection[str] = (),
        dtypes: Mapping[str, Any] | None = None,
        fill: Mapping[str, Any] | None = None,
        features: str | Mapping[str, str] | None = None,
        adopt: bool = False,
    ) -> None:
        for option, names in (("take", take), ("skip", skip)):
            if isinstance(names, str) or not (names is None or isinstance(names, Collection)):
                raise ValueError(f"{option}={names!r}: expected a list of names")
        named = {"x": features} if isinstance(features, str) else features
        for option, given in (("dtypes", dtypes), ("fill", fill), ("features", named)):
            if given is not None and not isinstance(given, Mapping):
                raise ValueError(f"{option}={given!r}: expected a mapping from attributes")
        self.notes: list[str] = []
        self.doubts: list[str] = []
        self.is_exact = False
        self._take = None if take is None else frozenset(take)
        self._skip = frozenset(skip)
        self._dtypes = {name: parse_dtype(name, value) for name, value in (dtypes or {}).items()}
        self._fills = {name: parse_fill(name, value) for name, value in (fill or {}).items()}
        self._encodings = {name: check_encoding(code) for name, code in (named or {}).items()}
        self._adopts = adopt
        self._seen: set[str] = set()  # what there was to choose from
        self._attrs: set[str] = set()  # what became an attribute

    def check(self, plan: GraphPlan) -> None:
        """Refuse names of no attribute: most likely misspelt.

        Raises:
            ValueError: Names the entry and what there is.
        """
        of_nodes = [
            (label or "", attr) for label, node in plan.nodes.items() for attr in node.attrs
        ]
        known = {name for owner, attr in of_nodes for name in _names(owner, attr)}
        for option, names, there in (
            ("take", self._take or (), self._seen),
            ("skip", self._skip, self._seen),
            ("dtypes", self._dtypes, self._attrs | self._seen),
            ("fill", self._fills, self._attrs),
            ("features", self._encodings, known),
        ):
            for name in sorted({*names} - there):
                shown = ", ".join(sorted(each for each in there if not each.startswith(".")))
                found = f"{option} names {name!r}, which is no attribute"
                raise ValueError(f"{found}. There are: {shown or 'none'}")

    def note(self, told: str) -> None:
        """Adds to the notes, once."""
        self.notes += [told] * (told not in self.notes)

    def wants(self, owner: str, attr: str) -> bool:
        """Whether to store ``attr`` of the node or edge type labelled ``owner``."""
        names = {*_names(owner, attr)}
        self._seen |= names
        return not names & self._skip and (self._take is None or bool(names & self._take))

    def dtype(self, attr: str) -> torch.dtype | None:
        """The dtype asked for ``attr``; ``None`` means the one it comes in."""
        return self._dtypes.get(attr)

    def fill(self, attr: str) -> Fill | None:
        """The value in place of a missing one of ``attr``; ``None`` if none may be missing."""
        self._attrs.add(attr)
        return self._fills.get(attr)

    def cast(self, attr: str, rows: Rows, fail: Fail) -> Rows:
        """``rows`` in the dtype asked for ``attr``, NaN filled if there is a fill for it."""
        dtype, fill = self.dtype(attr), self.fill(attr)
        is_long = rows.dtype == torch.float64 and attr in _SINGLE_PRECISION
        stays = self.is_exact or self._adopts
        if dtype is None and is_long and not stays:
            dtype, asked = torch.float32, f"dtypes={{{attr!r}: 'float64'}} (--dtype {attr}=float64)"
            self.note(f"{attr}: float64 is stored as float32; {asked} keeps it")
        if fill is not None and fill == fill and rows.dtype.is_floating_point:
            rows = rows.map(rows.dtype, lambda slab, _: slab.masked_fill(slab.isnan(), fill))
        return rows if dtype is None else cast_rows(rows, dtype, fail)

    def encoding(self, owner: str, attr: str) -> str | None:
        """The encoding of an attribute; the name with its type counts before the plain one."""
        bare, full = _names(owner, attr)
        return self._encodings.get(full, self._encodings.get(bare))

    def adopts(self, rows: Rows, owner: str, attr: str) -> TypeGuard[FileRows]:
        """Whether rows are left in their file: they lie in it as the store would have them."""
        is_plain = type(rows) is FileRows and not rows.swapped
        return self._adopts and is_plain and self.encoding(owner, attr) is None


def _names(owner: str, attr: str) -> tuple[str, str]:
    return attr, f"{owner}.{attr}"


# torch stores these but hardly computes with them.
_UNSIGNED = (torch.uint16, torch.uint32, torch.uint64)
# Makes the error for one bad value: (row, found, expected) -> InputError.
Fail = Callable[[int, str, str], InputError]


def dtype_of(kind: pa.DataType) -> torch.dtype:
    """The dtype of an Arrow column of numbers or booleans."""
    # Not by to_pandas_dtype(), which is there only beside pandas before Arrow 26.
    names = {"halffloat": "float16", "float": "float32", "double": "float64"}
    found: torch.dtype = getattr(torch, names.get(str(kind), str(kind)))
    return found


def cast_rows(rows: Rows, dtype: torch.dtype, fail: Fail) -> Rows:
    """``rows`` in another dtype, each slab by :func:`cast` when it is read."""
    if rows.dtype == dtype:
        return rows
    return rows.map(dtype, lambda slab, begin: cast(slab, dtype, fail, begin))


def cast(value: torch.Tensor, dtype: torch.dtype, fail: Fail, begin: int = 0) -> torch.Tensor:
    """Convert to ``dtype``, refusing what would change a value beyond rounding.

    Rounding to a shorter float is what such a request means. Losing a fraction, wrapping round
    and overflowing to infinity are not.

    Args:
        value: Some rows.
        dtype: Dtype of the result.
        fail: Makes the error for one row.
        begin: Number of the first of them.

    Raises:
        InputError: From ``fail``, for the first row that does not fit.
    """
    if value.dtype == dtype:
        return value
    source, wraps = value, value.dtype == torch.uint64
    if wraps and dtype.is_floating_point:
        source, wraps = torch.from_numpy(source.numpy().astype(np.float64)), False
    elif source.dtype in _UNSIGNED:
        source = source.to(torch.int64)
    result = source.to(dtype)
    if dtype.is_floating_point:
        wide = source if source.dtype.is_floating_point else source.double()
        bad = torch.isinf(result) & ~torch.isinf(wide)
        if dtype.itemsize == 1:  # the float8 kinds without infinity overflow to NaN
            bad |= torch.isnan(result) & ~torch.isnan(wide)
    else:
        # 2**63 as a float converts to int64 and back without a difference.
        limit = 2.0**63 if dtype == torch.int64 else float("inf")
        bad = result.to(source.dtype) != source
        if wraps:
            bad |= source < 0
        if source.dtype.is_floating_point:
            bad |= source >= limit
    if bool(bad.any()):
        row = int(bad.reshape(len(bad), -1).any(dim=1).nonzero()[0])
        cell = source[row].reshape(-1)[bad[row].reshape(-1)][0].item()
        cell += 2**64 * (wraps and cell < 0)
        name = str(dtype).removeprefix("torch.")
        raise fail(begin + row, f"{cell!r}", f"a value that {name} can hold")
    return result
