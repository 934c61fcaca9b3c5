"""The columns a run writes: what there is of it already, what is another run's, what is next."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from pyg_graphzero import unpublished
from pyg_graphzero.arguments import check_new_attr
from pyg_graphzero.column_writer import Column
from pyg_graphzero.inference.stack import Row
from pyg_graphzero.stores import Store

log = logging.getLogger("pyg_graphzero")

_NOTE = "inference"


class Activations:
    """What layers compute, as columns of a store.

    Those in between are named after the run, ``out.<fingerprint>.<layer>``, so that a run that was
    killed finds its own and knows those of others.

    Args:
        store: Open for writing.
        names: The columns that are to come out, by node type.
        fingerprint: Of the run.
        wanted: For each layer, the node types whose rows are needed of it.
        encoding: Of the columns in between.
    """

    def __init__(
        self,
        store: Store,
        names: dict[str | None, str],
        fingerprint: str,
        wanted: Sequence[Sequence[str | None]],
        encoding: str | None,
    ) -> None:
        self.store = store
        self.names = names
        self.fingerprint = fingerprint
        self.wanted = wanted
        self.encoding = encoding

    def name(self, layer: int, node_type: str | None) -> str:
        """The column of a layer's rows; layers are numbered from 1."""
        if layer == len(self.wanted):
            return self.names[node_type]
        stem = next(iter(self.names.values()))
        return f"{stem}.{self.fingerprint}.{layer}"

    def has(self, layer: int, node_type: str | None) -> bool:
        """Whether a layer's rows are all there."""
        attrs = self.store._contents.node_type(node_type).attrs
        return self.name(layer, node_type) in attrs

    def first_missing(self) -> int:
        """The first layer that has to be computed, in part at least.

        Raises:
            ValueError: A name that is to come out is taken, and not by this run.
        """
        last = len(self.wanted)
        for layer in range(last - 1, 0, -1):
            if all(self.has(layer, node_type) for node_type in self.wanted[layer - 1]):
                return layer + 1
            if any(self.has(layer, node_type) for node_type in self.wanted[layer - 1]):
                return layer
        for node_type, name in self.names.items():
            check_new_attr(self.store.path, self.store._contents.node_type(node_type), name)
        return 1

    def clear(self, *, keeps_own: bool) -> None:
        """Removes what runs to the same columns have left, and says so.

        Args:
            keeps_own: Leave what is of this run.
        """
        stems = "|".join(sorted(re.escape(name) for name in set(self.names.values())))
        pattern = re.compile(rf"(?:{stems})\.([0-9a-f]{{12}})\.\d+")
        for t in self.store._contents.schema.node_types:
            for name in list(t.attrs):
                match = pattern.fullmatch(name)
                if match is not None and not (keeps_own and match[1] == self.fingerprint):
                    self._tell(name)
                    self.remove(name, t.name)
        for found in unpublished.find(self.store.path, self.store._contents.schema):
            journal = found.journal
            note = journal.note if isinstance(journal.note, dict) else {}
            is_ours = pattern.fullmatch(journal.name) or journal.name in self.names.values()
            of = note.get(_NOTE)
            if is_ours and of is not None and not (keeps_own and of == self.fingerprint):
                self._tell(journal.name)
                found.remove(with_rows=True)

    def _tell(self, name: str) -> None:
        log.warning(
            "%s: %r is of an inference with another model, other arguments or another input, or is "
            "not to be resumed; it is removed, and this one begins anew",
            self.store.path, name,
        )  # fmt: skip

    def create(self, layer: int, node_type: str | None, row: Row) -> Column:
        """The column of a layer's rows, with what is there of it already."""
        shape, dtype = row
        is_last = layer == len(self.wanted)
        is_float = dtype.is_floating_point and dtype.itemsize == 4
        return self.store.create_column(
            self.name(layer, node_type),
            tuple(shape),
            node_type=node_type,
            dtype=dtype,
            encoding=self.encoding if is_float and not is_last else None,
            resume=True,
            note={_NOTE: self.fingerprint},
        )

    def remove(self, name: str, node_type: str | None) -> None:
        """Removes a column that was published."""
        self.store.feature_store.remove_tensor(group_name=node_type, attr_name=name, index=None)

    def remove_layer(self, layer: int) -> None:
        """Removes the rows of a layer in between, where there are any."""
        for t in self.store._contents.schema.node_types:
            name = f"{next(iter(self.names.values()))}.{self.fingerprint}.{layer}"
            if name in t.attrs:
                self.remove(name, t.name)
