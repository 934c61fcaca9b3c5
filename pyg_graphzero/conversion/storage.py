"""How node attributes are kept: as they are, encoded in fewer bytes, or adopted where they lie."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyg_graphzero.conversion.options import check_names
from pyg_graphzero.conversion.plan import GraphPlan
from pyg_graphzero.errors import InputError
from pyg_graphzero.store.encoding import check_encoding
from pyg_graphzero.store.rows import (
    ArrayRows,
    ChainRows,
    FileRows,
    FortranRows,
    Rows,
    StreamRows,
    origin,
)


class Storage:
    """Encodings and adoption by attribute name (``"x"``) or type and name (``"paper.x"``).

    Args:
        features: An encoding for ``x``, or attribute → encoding.
        adopt: Attributes to adopt, or True for all that lie in a file as rows.

    Raises:
        ValueError: An encoding is unknown, or an attribute is to be both encoded and adopted.
    """

    def __init__(
        self, features: str | Mapping[str, str] | None, adopt: bool | Collection[str]
    ) -> None:
        if isinstance(adopt, str):
            raise ValueError(f"adopt={adopt!r}: expected True or a list of names")
        named = {"x": features} if isinstance(features, str) else dict(features or {})
        self._features = {key: check_encoding(name, "features") for key, name in named.items()}
        self._adopts_all = adopt is True
        self._adopted = frozenset() if isinstance(adopt, bool) else frozenset(adopt)
        both = sorted(self._adopted & self._features.keys())
        if both:
            raise ValueError(
                f"{both[0]!r} is named by features and by adopt: what is adopted stays as it is"
            )

    def check(self, plan: GraphPlan) -> None:
        """Refuse names that no node attribute of ``plan`` has.

        Raises:
            ValueError: Names the entry and what there is.
        """
        attrs = [(label or "", attr) for label, node in plan.nodes.items() for attr in node.attrs]
        known = {name for owner, attr in attrs for name in _names(owner, attr)}
        for option, names in (("features", self._features), ("adopt", self._adopted)):
            check_names(option, names, known)

    def encoding(self, owner: str, attr: str) -> str | None:
        """The encoding of an attribute; the name with its type counts before the plain one."""
        bare, full = _names(owner, attr)
        return self._features.get(full, self._features.get(bare))

    def adopted(self, owner: str, attr: str, rows: Rows) -> FileRows | None:
        """``rows``, if the attribute is to be adopted; None if it is to be written.

        Raises:
            InputError: It is to be, and cannot be.
        """
        is_named = any(name in self._adopted for name in _names(owner, attr))
        if not is_named and (not self._adopts_all or self.encoding(owner, attr) is not None):
            return None
        if type(rows) is FileRows and not rows.swapped:
            return rows
        if not is_named and not isinstance(rows, FileRows | StreamRows):
            return None  # not rows of a file as they are, so not among "all"
        raise InputError(
            origin(rows, attr),
            attr,
            _obstacle(rows),
            "rows in C order and this machine's byte order, one after another in a file",
            "Name other attributes to adopt, and this one is copied.",
        )


def _names(owner: str, attr: str) -> tuple[str, str]:
    return attr, f"{owner}.{attr}"


def _obstacle(rows: Rows) -> str:
    if isinstance(rows, FortranRows):
        return "Fortran order"
    if isinstance(rows, FileRows):
        return "another byte order"
    if isinstance(rows, StreamRows):
        return "compressed rows"
    if isinstance(rows, ChainRows):
        return "several files"
    return "values in memory" if isinstance(rows, ArrayRows) else "values made on the way"
