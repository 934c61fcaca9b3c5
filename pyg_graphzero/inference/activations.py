"""The columns a run writes: what there is of it already, what is another run's, what is next."""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from pyg_graphzero.inference.stack import Row
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.store.column_writer import Column
from pyg_graphzero.store.schema import check_new_attr
from pyg_graphzero.store.unpublished import Journal, Unpublished

log = logging.getLogger("pyg_graphzero")

_NOTE = "inference"


class Activations:
    """What layers compute, as columns of a store.

    Those in between are named after the run, ``out.<fingerprint>.<layer>``, so that a run that was
    killed finds its own and knows those of others. They are never published; what comes out is, all
    of it at once, when there is nothing else left of the run.

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

    def drafts(self) -> list[Unpublished]:
        """The columns of this run that are complete; none of them is published."""
        return [d for d in self.store.drafts() if self._is_own(d.journal) and d.is_complete]

    def _is_own(self, journal: Journal) -> bool:
        return _run_of(journal) == self.fingerprint

    def first_missing(self, ended: Sequence[Journal]) -> int:
        """The first layer that has to be computed, in part at least.

        Args:
            ended: The journals of columns that were published by a run which was killed then.

        Raises:
            ValueError: A name that is to come out is taken, and not by this run.
        """
        last = len(self.wanted)
        published = {(j.node_type, j.name) for j in ended if self._is_own(j)}
        if published.issuperset(self.names.items()):
            return last + 1
        for node_type, name in self.names.items():
            check_new_attr(self.store.path, self.store.contents.node_type(node_type), name)
        there = {(d.journal.node_type, d.journal.name) for d in self.drafts()}
        for layer in range(last, 0, -1):
            found = [(t, self.name(layer, t)) in there for t in self.wanted[layer - 1]]
            if any(found):
                return layer + all(found)
        return 1

    def clear(self, *, keeps_own: bool) -> None:
        """Removes what runs to the same columns have left, and says so.

        Args:
            keeps_own: Leave what is of this run.
        """
        stems = "|".join(sorted(re.escape(name) for name in set(self.names.values())))
        pattern = re.compile(rf"(?:{stems})\.([0-9a-f]{{12}})\.\d+")
        for found in self.store.drafts():
            name, run = found.journal.name, _run_of(found.journal)
            is_ours = pattern.fullmatch(name) or name in self.names.values()
            if is_ours and run is not None and not (keeps_own and run == self.fingerprint):
                log.warning(
                    "%s: %r is of an inference with another model, other arguments or another "
                    "input, or is not to be resumed; it is removed, and this one begins anew",
                    self.store.path, name,
                )  # fmt: skip
                found.remove()

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

    def remove_layer(self, layer: int) -> None:
        """Removes the rows of a layer in between, where there are any."""
        stem = next(iter(self.names.values()))
        for draft in self.drafts():
            if draft.journal.name == f"{stem}.{self.fingerprint}.{layer}":
                draft.remove()

    def publish(self) -> None:
        """Makes attributes of the last layer's columns, all at once."""
        outs = set(self.names.items())
        drafts = [d for d in self.drafts() if (d.journal.node_type, d.journal.name) in outs]
        if drafts:
            self.store.publish_columns(drafts)


def _run_of(journal: Journal) -> str | None:
    """The fingerprint of the run that a column is of; None: of no run."""
    return journal.note.get(_NOTE) if isinstance(journal.note, dict) else None
