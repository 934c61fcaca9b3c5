"""A store's attributes as PyG's ``FeatureStore``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import FeatureStore, TensorAttr
from torch_geometric.data.feature_store import _FieldStatus

from pyg_graphzero.errors import MissingAttributeError, UnsupportedError
from pyg_graphzero.store.columns import gather, look_up, permuted
from pyg_graphzero.store.editor import StoreEditor
from pyg_graphzero.store.handle import StoreHandle
from pyg_graphzero.store.schema import EdgeTypeSchema, NodeTypeSchema, TypeSchema
from pyg_graphzero.util.arguments import as_row_index, as_tensor, of_type

# PyG's group name for the edge attributes of a homogeneous graph.
HOMOGENEOUS_EDGES = (None, None)


@dataclass
class DiskTensorAttr(TensorAttr):
    """PyG's ``TensorAttr`` that also takes an ``ndarray`` index (PyG's compares it elementwise)."""

    def is_set(self, key: str) -> bool:
        """Whether ``key`` was given a value."""
        return getattr(self, key) is not _FieldStatus.UNSET

    @classmethod
    def cast(cls, *args: Any, **kwargs: Any) -> DiskTensorAttr:
        """One of these from what PyG's methods are called with, a plain ``TensorAttr`` included."""
        if len(args) == 1 and not kwargs and type(args[0]) is TensorAttr:
            return cls(args[0].group_name, args[0].attr_name, args[0].index)
        if args == (None,) and not kwargs:
            return cls(None)  # the group of a homogeneous store; PyG would return None
        return super().cast(*args, **kwargs)


class DiskFeatureStore(FeatureStore):
    """PyG's ``FeatureStore`` over a store's attributes.

    ``group_name`` is the node type (None in a homogeneous store) or, for edge attributes, the edge
    type (``(None, None)``); rows of edge attributes are numbered by original edge id.
    """

    def __init__(self, handle: StoreHandle) -> None:
        super().__init__(tensor_attr_cls=DiskTensorAttr)
        self.__dict__["handle"] = handle

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.handle,)

    def _locate(self, attr: TensorAttr) -> TypeSchema:
        """The type that an attribute is of."""
        contents = self.handle.contents
        group = attr.group_name
        if isinstance(group, (tuple, list)):
            name = None if tuple(group) == HOMOGENEOUS_EDGES else tuple(group)
            return contents.edge_type(name)
        return contents.node_type(group)

    def _find(self, attr: TensorAttr) -> tuple[TypeSchema, str]:
        record = self._locate(attr)
        files = dict(record.attrs)
        if isinstance(record, NodeTypeSchema):
            files.update(record.index_sets)
        if attr.attr_name not in files:
            raise MissingAttributeError(
                f"{self.handle.path}: attribute {attr.attr_name!r}{of_type(attr.group_name)}: "
                f"expected one of {sorted(files)}"
            )
        return record, files[attr.attr_name]

    def _get_tensor(self, attr: TensorAttr) -> Tensor:
        record, file = self._find(attr)
        contents = self.handle.contents
        table = contents.rows(file)
        index = attr.index
        if index is None:
            of_rows = attr.attr_name in record.attrs
            return contents.whole(record, attr.attr_name) if of_rows else contents.view(file)
        is_edge = isinstance(record, EdgeTypeSchema)
        position = contents.edge_position(record.name) if is_edge else None
        if isinstance(index, (slice, int)):
            if position is None:
                return table[index]
            rows = position[index].to(torch.int64)
            return table[int(rows)] if isinstance(index, int) else gather(table, rows)
        rows = as_row_index(index, table.size(0))
        return gather(table, rows if position is None else look_up(position, rows))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...] | None:
        try:
            _, file = self._find(attr)
        except MissingAttributeError:
            return None
        if attr.index is not None:
            return tuple(self._get_tensor(attr).shape)
        return tuple(self.handle.contents.column(file).shape)

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        record = self._locate(attr)
        if isinstance(record, NodeTypeSchema):
            column = self.handle.drafts.get((record.name, attr.attr_name))
            if column is not None:
                column.put_tensor(tensor, attr.index)
                return True
        self._check_no_index_set(record, attr)
        what = f"attribute {attr.attr_name!r}"
        if attr.index is not None:
            raise UnsupportedError(
                f"{self.handle.path}: {what}: found an index, expected all rows (index=None); "
                "create_column() writes an attribute by rows"
            )
        value = as_tensor(tensor, what)

        def change(editor: StoreEditor) -> None:
            rows, contents = value, self.handle.contents
            if isinstance(record, EdgeTypeSchema):
                contents.need_edge_ids(record.name, f"edge attribute {attr.attr_name!r}")
                ids = contents.edge_id(record.name)
                # Other lengths are about to be refused.
                if ids is not None and rows.shape[:1] == ids.shape:
                    rows = permuted(rows.contiguous(), ids)
            editor.put_attr(record, attr.attr_name, rows)

        self.handle.edit(change)
        return True

    def update_tensor(self, tensor: Any, *args: Any, **kwargs: Any) -> bool:
        """Replaces an attribute in one atomic step: until that, and if it fails, readers have it.

        Args:
            tensor: All rows.
            *args: Arguments of PyG's ``TensorAttr``.
            **kwargs: Its arguments by name.

        Raises:
            MissingAttributeError: There is no such attribute.
            ValueError: The number of rows is another.
            UnsupportedError: An index names some of the rows.
            OSError: The disk is full or fails: readers have the old one, unless the message says
                that the new content is in place, and may not outlast a power failure.
        """
        attr = DiskTensorAttr.cast(*args, **kwargs)
        self._find(attr)
        return bool(self.put_tensor(tensor, attr))

    def _check_no_index_set(self, record: TypeSchema, attr: TensorAttr) -> None:
        if isinstance(record, NodeTypeSchema) and attr.attr_name in record.index_sets:
            raise UnsupportedError(
                f"{self.handle.path}: {attr.attr_name!r}{of_type(attr.group_name)}: found an index "
                "set, expected an attribute; index sets are written by conversion alone"
            )

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        record, _ = self._find(attr)
        self._check_no_index_set(record, attr)
        self.handle.edit(lambda editor: editor.remove_attr(record, attr.attr_name))
        return True

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """The node attributes, fresh objects each time (PyG's loaders write on them)."""
        return [
            DiskTensorAttr(group_name=t.name, attr_name=attr)
            for t in self.handle.contents.schema.node_types
            for attr in t.attrs
        ]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.handle.path)!r})"
