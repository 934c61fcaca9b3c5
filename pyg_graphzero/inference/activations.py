"""The columns a run writes: which there are already, which are another run's, which is next."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from pyg_graphzero.inference.stack import Row
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.store.column_writer import Column, create_column
from pyg_graphzero.store.leftovers import Draft, draft_stem, drafts
from pyg_graphzero.store.schema import check_new_attr

log = logging.getLogger("pyg_graphzero")


class Activations:
    """Rows that layers compute, as drafts of columns in a store.

    Their files are named after the run, ``….<fingerprint>.<layer>.gd``, so that a run that was
    killed finds its own and knows those of others. The last layer's are published, all at once.

    Args:
        store: Open for writing.
        names: The columns that are to come out, by node type.
        fingerprint: The run's.
        wanted: For each layer, the node types whose rows are needed of it.
        encoding: The columns' in between.
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
        return f"{self._stem}.{self.fingerprint}.{layer}"

    @property
    def _stem(self) -> str:
        return next(iter(self.names.values()))

    def _draft(self, layer: int, node_type: str | None) -> Draft:
        stem = draft_stem(node_type, self._stem)
        name = self.name(layer, node_type)
        return Draft(node_type, name, f"{stem}.{self.fingerprint}.{layer}.gd")

    def _layer(self, layer: int) -> list[Draft]:
        """The drafts of a layer that are complete."""
        every = [self._draft(layer, node_type) for node_type in self.wanted[layer - 1]]
        return [draft for draft in every if draft.is_complete(self.store.path)]

    def drafts(self) -> list[Draft]:
        """The drafts of this run that are complete."""
        return [draft for layer in range(len(self.wanted)) for draft in self._layer(layer + 1)]

    def first_missing(self) -> int:
        """The first layer that has to be computed, for some node types at least.

        Raises:
            ValueError: A name that is to come out is taken; nothing is left of the run then.
        """
        try:
            for node_type, name in self.names.items():
                check_new_attr(self.store.path, self.store.contents.node_type(node_type), name)
        except ValueError:
            for layer in range(1, len(self.wanted) + 1):
                self.remove_layer(layer)
            raise
        for layer in range(len(self.wanted), 0, -1):
            found = self._layer(layer)
            if found:
                return layer + (len(found) == len(self.wanted[layer - 1]))
        return 1

    def clear(self, *, keeps_own: bool) -> None:
        """Removes drafts of runs to the same columns, and says so.

        Args:
            keeps_own: Leave those of this run.
        """
        stems = {
            draft_stem(node_type, name)
            for node_type in self.store.node_types
            for name in self.names.values()
        }
        pattern = re.compile(rf"(?:{'|'.join(map(re.escape, stems))})\.([0-9a-f]{{12}})\.\d+\.gd")
        for file in drafts(self.store.path):
            found = pattern.fullmatch(file)
            if found and not (keeps_own and found[1] == self.fingerprint):
                log.warning(
                    "%s: %r is of an inference with another model, other arguments or another "
                    "input, or is not to be resumed; it is removed, and this one begins anew",
                    self.store.path, file,
                )  # fmt: skip
                self.store.handle.editor.remove_draft(file)

    def create(self, layer: int, node_type: str | None, row: Row) -> Column:
        """The column that a layer's rows are to be written to."""
        shape, dtype = row
        draft = self._draft(layer, node_type)
        is_last = layer == len(self.wanted)
        is_float = dtype.is_floating_point and dtype.itemsize == 4
        encoding = self.encoding if is_float and not is_last else None
        return create_column(
            self.store.handle, draft.name, tuple(shape), node_type, dtype, encoding, draft.file
        )

    def remove_layer(self, layer: int) -> None:
        """Removes the drafts of a layer."""
        for node_type in self.wanted[layer - 1]:
            self.store.handle.editor.remove_draft(self._draft(layer, node_type).file)

    def publish(self) -> None:
        """Makes attributes of the last layer's columns, all at once."""
        outs = self._layer(len(self.wanted))
        if outs:
            self.store.handle.edit(lambda editor: editor.publish(outs))
