"""The columns a run writes: complete ones, those of other runs, sweeps that are left to do."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass

from pyg_graphzero.inference.schedule import Sweep
from pyg_graphzero.nn.rules import Value
from pyg_graphzero.pyg.stores import Store
from pyg_graphzero.store.column_writer import Column, create_column
from pyg_graphzero.store.leftovers import Draft, draft_stem, drafts
from pyg_graphzero.store.schema import check_new_attr

log = logging.getLogger("pyg_graphzero")


@dataclass(eq=False)
class Activations:
    """Rows that sweeps compute, as drafts of columns in a store.

    Their files are named after the run, ``….<fingerprint>.<number>.gd``, so that a run that was
    killed finds its own and knows those of others. Results are published, all at once.

    Attributes:
        store: Open for writing.
        sweeps: The sweeps, in the order in which they run.
        results: Names of the results, by value.
        fingerprint: The run's.
        encoding: Encoding of the other columns.
        type_of: Names a node type in the store.
    """

    store: Store
    sweeps: list[Sweep]
    results: dict[Value, str]
    fingerprint: str
    encoding: str | None
    type_of: Callable[[str | None], str | None]

    def __post_init__(self) -> None:
        stem = next(iter(self.results.values()))
        self._drafts: dict[Value, Draft] = {}
        values = [value for sweep in self.sweeps for value in sweep.outputs]
        for number, value in enumerate(values, 1):
            node_type = self.type_of(value.space.name)
            end = f".{self.fingerprint}.{number}"
            name = self.results.get(value, f"{stem}{end}")
            file = f"{draft_stem(node_type, stem)}{end}.gd"
            self._drafts[value] = Draft(node_type, name, file)

    def name(self, value: Value) -> str:
        """The column of a value's rows."""
        return self._drafts[value].name

    def drafts(self) -> list[Draft]:
        """The drafts of this run that are complete."""
        return [draft for draft in self._drafts.values() if draft.is_complete(self.store.path)]

    def left(self) -> list[Sweep]:
        """The sweeps that are left to do: those whose columns are wanted, and not complete.

        Raises:
            ValueError: A result's name is taken; nothing is left of the run then.
        """
        try:
            for value, name in self.results.items():
                record = self.store.contents.node_type(self._drafts[value].node_type)
                check_new_attr(self.store.path, record, name)
        except ValueError:
            self.remove(list(self._drafts))
            raise
        wanted, left = set(self.results), []
        for sweep in reversed(self.sweeps):
            missing = [v for v in sweep.outputs if v in wanted and not self._is_complete(v)]
            if missing:
                wanted.update(sweep.gathered, sweep.own)
                left.append(sweep)
        return left[::-1]

    def _is_complete(self, value: Value) -> bool:
        return self._drafts[value].is_complete(self.store.path)

    def clear_others(self) -> None:
        """Removes drafts of other runs to the same columns, and says so."""
        stems = {
            draft_stem(node_type, name)
            for node_type in self.store.node_types
            for name in self.results.values()
        }
        pattern = re.compile(rf"(?:{'|'.join(map(re.escape, stems))})\.([0-9a-f]{{12}})\.\d+\.gd")
        for file in drafts(self.store.path):
            found = pattern.fullmatch(file)
            if found and found[1] != self.fingerprint:
                log.warning(
                    "%s: %r is of an inference with another model, other arguments or another "
                    "input; it is removed, and this one begins anew",
                    self.store.path, file,
                )  # fmt: skip
                self.store.editor.remove_draft(file)

    def create(self, value: Value) -> Column:
        """The column that a value's rows are to be written to."""
        shape, dtype = value.row
        draft = self._drafts[value]
        is_float = dtype.is_floating_point and dtype.itemsize == 4
        encoding = self.encoding if is_float and value not in self.results else None
        name, node_type, file = draft.name, draft.node_type, draft.file
        return create_column(self.store, name, tuple(shape), node_type, dtype, encoding, file)

    def remove(self, values: list[Value]) -> None:
        """Removes drafts."""
        for value in values:
            self.store.editor.remove_draft(self._drafts[value].file)

    def remove_unread(self, left: list[Sweep]) -> None:
        """Removes drafts that are no results, and that no sweep that is left reads or writes."""
        read = {v for sweep in left for v in (*sweep.gathered, *sweep.own, *sweep.outputs)}
        self.remove([v for v in self._drafts if v not in read and v not in self.results])

    def publish(self) -> None:
        """Makes attributes of the results, all at once."""
        done = [self._drafts[value] for value in self.results if self._is_complete(value)]
        if done:
            self.store.edit(lambda editor: editor.publish(done))
