"""A store's topologies as PyG's ``GraphStore``."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import EdgeAttr, GraphStore
from torch_geometric.data.graph_store import EdgeLayout

from pyg_graphzero.errors import UnsupportedError
from pyg_graphzero.store.handle import StoreHandle

_FIXED = (
    "found edges that are to change, expected those that conversion wrote: gz.convert() writes a "
    "store of others"
)


class DiskGraphStore(GraphStore):
    """PyG's ``GraphStore`` over a store's topologies, held as CSC.

    ``csc()`` and ``csr()`` return the original edge id of every entry as the permutation; ``coo()``
    lists edges in the order of their ids. Where the store has none, edges are numbered by
    destination, as it has them. Other layouts than CSC are built in memory, and not kept:
    ``store=True`` has nothing to add, since every layout can be had of the one that is stored.
    """

    def __init__(self, handle: StoreHandle) -> None:
        super().__init__()
        self.__dict__["handle"] = handle

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.handle,)

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """One CSC entry per edge type, with its size."""
        contents = self.handle.contents
        return [
            EdgeAttr(
                edge_type=t.name,
                layout=EdgeLayout.CSC,
                is_sorted=True,
                size=(contents.topology(t.name).num_src, contents.topology(t.name).num_dst),
            )
            for t in contents.schema.edge_types
        ]

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        contents = self.handle.contents
        if contents.schema.edge_type(edge_attr.edge_type) is None:
            return None
        if edge_attr.layout == EdgeLayout.COO:
            row, col = contents.edge_index(edge_attr.edge_type)
            return row, col
        if edge_attr.layout == EdgeLayout.CSR:
            found = (a for a in self.get_all_edge_attrs() if a.edge_type == edge_attr.edge_type)
            row, col, _ = self._edge_to_layout(next(found), EdgeLayout.CSR)
            return row, col
        contents.topology(edge_attr.edge_type).check_bounds()
        return contents.sources(edge_attr.edge_type), contents.csc(edge_attr.edge_type)[0]

    def _edge_to_layout(
        self, attr: EdgeAttr, layout: EdgeLayout, store: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        contents = self.handle.contents
        if layout == EdgeLayout.COO:
            row, col = contents.edge_index(attr.edge_type)
            return row, col, None
        # Never to be put back: that would replace the topology, and drop its edge attributes.
        row, col, perm = super()._edge_to_layout(attr, layout, store=False)
        edge_id = contents.edge_id(attr.edge_type)
        if edge_id is not None:
            edge_id = edge_id.to(torch.int64)
            perm = edge_id if perm is None else edge_id[perm]
        return row, col, perm

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError(f"{self.handle.path}: put_edge_index: {_FIXED}")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError(f"{self.handle.path}: remove_edge_index: {_FIXED}")

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self.handle.path)!r})"
