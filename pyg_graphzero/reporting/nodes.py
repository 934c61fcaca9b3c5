"""Labels, splits and features of nodes, read a slab at a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import combinations
from math import inf, nan, prod
from typing import TypeAlias

import torch
from torch import Tensor

from pyg_graphzero.reporting.components import PIECE
from pyg_graphzero.store.columns import dtype_name, in_memory
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.opened import RowFile
from pyg_graphzero.store.schema import NodeTypeSchema

#: Called with the number of bytes or edges of each piece.
Update: TypeAlias = Callable[[int], object]
#: How the names of splits begin, in the order of training.
ROLES = ("train", "val", "test")
_ROLE = re.compile(r"(train|val|test)(id|idation|ing)?(_|$)")
_LABELS = ("y", "label", "labels")
_TIME = re.compile(r"(^|_)(time|timestamp|year|date)$")
# Classes are counted up to this one: what has more is a number, not a class.
_MOST_CLASSES = 1 << 15
_SLAB_BYTES = 4 << 20


@dataclass
class LabelReport:
    """The labels of a node type.

    Attributes:
        attr: Their attribute.
        labelled: Nodes that have one: neither negative nor NaN.
        classes: Nodes of each class; empty where labels are no classes.
        in_train: Training nodes of each class.
        train_unlabelled: Training nodes without a label.
    """

    attr: str
    labelled: int = 0
    classes: list[int] = field(default_factory=list)
    in_train: list[int] = field(default_factory=list)
    train_unlabelled: int = 0


@dataclass
class SplitReport:
    """Masks and sets of nodes, called ``train…``, ``val…`` or ``test…``.

    Attributes:
        sizes: Nodes of each role.
        overlaps: Nodes in two roles, such as ``"train and val"``.
        dangling: By name, ids of a set that are no nodes.
        time: The attribute that says when nodes are from.
        late: Nodes to train on that are later than the first one to evaluate.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    overlaps: dict[str, int] = field(default_factory=dict)
    dangling: dict[str, int] = field(default_factory=dict)
    time: str | None = None
    late: int = 0


@dataclass
class FeatureReport:
    """The columns of an attribute.

    Attributes:
        attr: Its name.
        kind: Dtype and width.
        nan_rows: Nodes that miss a value.
        infinite: Values that are infinite.
        zero_rows: Nodes all of whose values are 0, of two or more.
        constant: Columns that have one value.
        widest: The largest absolute mean or standard deviation of a column.
        widest_column: That column.
        typical: The median of the columns' standard deviations.
    """

    attr: str
    kind: str
    width: int
    nan_rows: int = 0
    infinite: int = 0
    zero_rows: int = 0
    constant: list[int] = field(default_factory=list)
    widest: float = 0.0
    widest_column: int = 0
    typical: float = 0.0


@dataclass
class NodeReport:
    """One node type.

    Attributes:
        name: Its name; None in a homogeneous store.
        num_nodes: Number of nodes.
        isolated: Nodes without any edge, of whatever type or direction.
        splits: Its splits.
        labels: Its labels, if it has any.
        features: Attributes of floating-point numbers.
    """

    name: str | None
    num_nodes: int
    splits: SplitReport
    labels: LabelReport | None
    features: list[FeatureReport]
    isolated: int = 0


def look_at_nodes(
    contents: StoreContents, record: NodeTypeSchema, progress: Update
) -> tuple[NodeReport, Tensor | None]:
    """The columns of a node type, but for what edges tell.

    Args:
        contents: The store.
        record: The node type.
        progress: Called with the number of bytes of each piece read.

    Returns:
        The report, and the class of each node (``int16``, -1: none) where labels are classes.
    """
    made = {name: Column(contents, record, name, progress) for name in record.attrs}
    columns = {name: each for name, each in made.items() if each.width and each.num_rows}
    splits, marks = _splits(contents, record, columns)
    labels, classes = None, None
    for name in [name for name in _LABELS if name in columns][:1]:
        labels, classes = _labels(columns[name], marks)
    apart = {name for name in columns if name in _LABELS or _TIME.search(name)}
    features = [
        _feature(column)
        for name, column in columns.items()
        if name not in apart and (column.dtype.is_floating_point or name == "x")
    ]
    return NodeReport(record.name, record.num_nodes, splits, labels, features), classes


class Column:
    """An attribute, read a slab at a time."""

    def __init__(
        self, contents: StoreContents, record: NodeTypeSchema, name: str, progress: Update
    ) -> None:
        self._file, self._progress = RowFile(contents, record.attrs[name]), progress
        self.name, self.num_rows, self.dtype = name, record.num_rows, self._file.dtype
        self.width = prod(self._file.shape[1:])

    def slabs(self) -> Iterator[tuple[slice, Tensor]]:
        """Rows ``[n, width]``, whole numbers as ``int64``, and which these are."""
        step = max(1, _SLAB_BYTES // max(8, self._file.row_bytes))
        first = 0
        for rows in self._file.slabs(step):
            count = len(rows)
            rows = (rows if rows.is_floating_point() else rows.to(torch.int64)).view(count, -1)
            self._progress(rows.nbytes)
            yield slice(first, first + count), rows
            first += count


def _role_bit(name: str) -> int:
    """The bit of the role that a split is called after; 0 if it is none."""
    match = _ROLE.match(name)
    return 1 << ROLES.index(match[1]) if match else 0


def _splits(
    contents: StoreContents, record: NodeTypeSchema, columns: dict[str, Column]
) -> tuple[SplitReport, Tensor]:
    """The splits, and for each node a bit of each of ``ROLES`` (``uint8``)."""
    found, num_nodes = SplitReport(), record.num_nodes
    marks = torch.zeros(num_nodes, dtype=torch.uint8)
    for name, file in record.index_sets.items():
        ids = in_memory(contents.view(file))
        inside = ids[(ids >= 0) & (ids < num_nodes)]
        found.dangling[name] = len(ids) - len(inside)
        marks[inside] |= _role_bit(name)
    for name, column in columns.items():
        if (bit := _role_bit(name)) and column.dtype == torch.bool:
            for where, rows in column.slabs():  # of several splits the first
                marks[where] |= (bit * rows[:, 0]).to(torch.uint8)
    for at, role in enumerate(ROLES):
        found.sizes[role] = int((marks & 1 << at).count_nonzero())
    for one, other in combinations(range(len(ROLES)), 2):
        both = marks >> one & marks >> other & 1
        found.overlaps[f"{ROLES[one]} and {ROLES[other]}"] = int(both.count_nonzero())
    times = [each for name, each in columns.items() if _TIME.search(name) and each.width == 1]
    for column in times[:1]:
        found.time, first_late = column.name, inf
        for where, rows in column.slabs():
            if len(evaluated := rows[marks[where] > 1]):
                first_late = min(first_late, float(evaluated.min()))
        for where, rows in column.slabs():
            found.late += int(((marks[where] & 1 > 0) & (rows[:, 0] > first_late)).sum())
    return found, marks


def _labels(column: Column, marks: Tensor) -> tuple[LabelReport, Tensor | None]:
    found, are_classes = LabelReport(column.name), column.width == 1
    classes = torch.full((column.num_rows,), -1, dtype=torch.int16)
    for where, rows in column.slabs():
        known = (~rows.isnan() if rows.is_floating_point() else rows >= 0).any(1)
        found.labelled += int(known.sum())
        found.train_unlabelled += int(((marks[where] & 1 > 0) & ~known).sum())
        values = torch.where(known, rows[:, 0], 0)
        low, high = (float(each) for each in values.aminmax())
        are_whole = bool((values == values.to(torch.int64)).all())
        are_classes = are_classes and are_whole and 0 <= low <= high < _MOST_CLASSES
        if are_classes:
            classes[where] = torch.where(known, values, -1).to(torch.int16)
    if not are_classes:
        return found, None
    counts = torch.zeros(2, int(classes.max()) + 2, dtype=torch.int64)
    for part, of in zip(classes.split(PIECE), marks.split(PIECE), strict=True):
        counts[0] += torch.bincount(part.int() + 1, minlength=counts.shape[1])
        counts[1] += torch.bincount(part[of & 1 > 0].int() + 1, minlength=counts.shape[1])
    found.classes, found.in_train = counts[:, 1:].tolist()
    return found, classes


def _feature(column: Column) -> FeatureReport:
    width, none = column.width, torch.zeros(column.width, dtype=torch.float64)
    found = FeatureReport(column.name, f"{dtype_name(column.dtype)}[{width}]", width)
    low, high, total, squares, count = none + inf, none - inf, none, none, none
    middle: Tensor | None = None
    for _, rows in column.slabs():
        values = rows if rows.dtype == torch.float64 else rows.to(torch.float32)
        finite = values.isfinite()
        if not finite.all():
            found.nan_rows += int(values.isnan().any(1).sum())
            found.infinite += int(values.isinf().sum())
        found.zero_rows += int((~values.any(1)).sum()) * (width > 1)
        if middle is None:  # sums of what is near 0 are exact
            middle = torch.where(finite, values, nan).nanmean(0).nan_to_num()
        values = torch.where(finite, values, middle)  # which changes neither ends nor sums
        low, high = torch.minimum(low, values.amin(0)), torch.maximum(high, values.amax(0))
        apart = values - middle
        total, squares = total + apart.sum(0), squares + apart.square_().sum(0)
        count = count + finite.sum(0)
    assert middle is not None  # there are nodes
    mean, count = total / count.clamp(min=1), count.clamp(min=1)
    std = (squares / count - mean.square()).clamp(min=0).sqrt()
    found.constant = (low >= high).nonzero().view(-1).tolist()
    widest, at = torch.maximum((mean + middle).abs(), std).max(0)
    found.widest, found.widest_column, found.typical = float(widest), int(at), float(std.median())
    return found
