"""How columns and edges join a store that is there, or leave it: one atomic step each.

New files are written next to the old ones, `store.json` is replaced in one rename, and then what
nothing names any more is deleted. A kill in between leaves files that the next writer deletes.

An error before the rename leaves the old content. After it the directory is synced: should that
fail, the error says that the new content is in place, and what the old one names is not deleted,
since a power failure may bring it back.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from torch import Tensor

from pyg_graphzero import _core
from pyg_graphzero.store import leftovers, schema
from pyg_graphzero.store.leftovers import Draft
from pyg_graphzero.store.schema import (
    EdgeType,
    NodeTypeSchema,
    StoreSchema,
    TypeSchema,
    check_new_attr,
)
from pyg_graphzero.store.writer import FileSet, checked_rows
from pyg_graphzero.util.arguments import of_type
from pyg_graphzero.util.locks import StoreLock
from pyg_graphzero.util.names import COLUMN, locate


class StoreEditor:
    """Adds columns to and removes them from an existing store.

    Attributes:
        is_replaced: Whether the last :meth:`publish` has replaced `store.json`.

    Raises:
        StoreInUseError: The store is open for writing elsewhere.
    """

    def __init__(self, directory: Path, store: StoreSchema) -> None:
        self._directory = directory
        self.is_replaced = False
        self._lock = StoreLock(directory)
        self._is_synced = True  # `store.json` is on the device as it is in the directory
        self.use(store)

    def use(self, store: StoreSchema) -> None:
        """Continues from a schema that was read again; readers that have it keep it as it is."""
        self.store = copy.deepcopy(store)
        self.files = FileSet(self._directory, self.store)

    def _own(self, record: TypeSchema) -> TypeSchema:
        """The record of the same type in what is changed."""
        return next(t for t in self.store.types if (t.kind, t.name) == (record.kind, record.name))

    def close(self) -> None:
        """Lets others write to the store."""
        self._lock.release()

    def sweep(self) -> None:
        """Deletes what changes have left that failed, or whose process died."""
        self._lock.check()
        if self._is_synced:
            leftovers.sweep(self._directory, self.store)

    def put_attr(self, record: TypeSchema, attr: str, value: Tensor) -> None:
        """Writes or replaces a column; rows of edges are in CSC order."""
        self._lock.check()
        what = f"{record.kind} attribute {attr!r}{of_type(record.name)}"
        rows, record = checked_rows(value, record.num_rows, what), self._own(record)
        record.attrs[attr] = self.files.column(record.folder, attr, rows)
        self._forget(attr, record)
        self.commit()

    def place_draft(self, file: str) -> Path:
        """Where a draft is to be created; removes the one that is there."""
        self.remove_draft(file)
        locate(self._directory, leftovers.FOLDER, folder=True).mkdir(exist_ok=True)
        return self._directory / file

    def remove_draft(self, file: str) -> None:
        """Removes a draft, if there is one."""
        self._lock.check()
        path = locate(self._directory, file)
        path.unlink(missing_ok=True)
        with suppress(OSError):  # there are others
            path.parent.rmdir()

    def publish(self, drafts: Iterable[Draft]) -> None:
        """Makes node attributes of drafts that are complete, all of them or none.

        Raises:
            ValueError: A node type has an attribute or index set of that name.
            OSError: See :meth:`commit`; where the store is what it was, so are the drafts.
        """
        self.is_replaced = False
        self._lock.check()
        moved: list[tuple[Path, Path]] = []
        try:
            for draft in drafts:
                record = self.store.node_type(draft.node_type)
                assert record is not None  # node types do not go
                check_new_attr(self._directory, record, draft.name)
                place = self.files.place(record.folder, draft.name, COLUMN)
                paths = locate(self._directory, draft.file), place
                os.rename(*paths)
                moved.append(paths)
                record.attrs[draft.name] = self.files.add(place)
            self.commit()
        except BaseException:
            for path, place in [] if self.is_replaced else moved:
                os.rename(place, path)
            raise

    def create_csr(self, names: Iterable[EdgeType | None]) -> None:
        """Writes the edges of some types once more, by source."""
        self._lock.check()
        for name in names:
            record = self.store.edge_type(name)
            assert record is not None  # whoever asks has looked it up
            self.files.csr(record)
        self.commit()

    def remove_attr(self, record: TypeSchema, attr: str) -> None:
        """Removes a column."""
        record = self._own(record)
        del record.attrs[attr]
        self._forget(attr, record)
        self.commit()

    def _forget(self, attr: str, owner: TypeSchema) -> None:
        """Neighbourhoods are not sorted by what ``attr`` is now, nor have its values names."""
        owner.categories.pop(attr, None)
        owner.category_offsets.pop(attr, None)
        for record in self.store.edge_types:
            source = None if record.name is None else record.name[0]
            of_source = isinstance(owner, NodeTypeSchema) and owner.name == source
            if record.time_order == attr and (record is owner or of_source):
                record.time_order = None

    def commit(self) -> None:
        """Makes the schema that of the store. Files it no longer names are left to ``sweep``.

        Raises:
            OSError: The disk is full or fails: the store is what it was, or the message says that
                the new content is in place, and may not outlast a power failure.
        """
        self._lock.check()
        used = set(schema.named_files(self.store))
        for records in (self.store.files, self.store.adopted):
            for name in [name for name in records if name not in used]:
                del records[name]
        self.files.sync_folders()
        fresh = self._directory / leftovers.FRESH_SCHEMA
        schema.dump(self.store, fresh)
        self._lock.check()
        os.replace(fresh, self._directory / schema.SCHEMA_FILE)
        self._is_synced, self.is_replaced = False, True
        try:
            _core.sync_directory(str(self._directory))
        except OSError as error:
            raise OSError(
                error.errno,
                f"cannot sync ({error.strerror}): the new content is in place, but a power failure "
                "may bring the old one back; change it again once the disk is in order",
                str(self._directory),
            ) from error
        self._is_synced = True
