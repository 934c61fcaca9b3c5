"""An opened store directory: its files as they are now, and the right to change them."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyg_graphzero.errors import ClosedStoreError, ReadOnlyStoreError
from pyg_graphzero.store.contents import StoreContents
from pyg_graphzero.store.editor import StoreEditor
from pyg_graphzero.store.opened import Opening
from pyg_graphzero.util.arguments import check_path


class StoreHandle:
    """A ``Store`` without PyG, which its views and the columns that it writes share.

    Pickles by path.

    Args:
        path: The store's directory.
        mode: ``"r"`` or ``"r+"``.
        how: How it is opened.

    Attributes:
        path: The store's directory; links that lead there may lead elsewhere later.
        turn: Held while the store is changed: changes come one after the other.
        drafts: The ``Column`` objects that are being written to, by node type and name.

    Raises:
        ValueError: The mode is another, or an option is wrong.
        FileNotFoundError: There is no store.
        FormatError: A file contradicts the format or the schema.
        StoreInUseError: ``"r+"`` while it is open so elsewhere.
    """

    def __init__(
        self, path: str | os.PathLike[str], mode: str = "r", how: Opening | None = None
    ) -> None:
        if mode not in ("r", "r+"):
            raise ValueError(f"mode: found {mode!r}, expected 'r' or 'r+'")
        self.path = Path(os.path.realpath(check_path(path, "path")))
        self.mode = mode
        self.how = how or Opening()
        self.turn = threading.RLock()
        self.drafts: dict[tuple[str | None, str], Any] = {}
        self._editor: StoreEditor | None = None
        self._contents: StoreContents | None = StoreContents(self.path, self.how)
        if mode == "r+":
            self._editor = StoreEditor(self.path, self._contents.schema)
            try:
                self.refresh()  # what another writer changed before this one had the lock
                self._editor.sweep()
            except BaseException:
                self._editor.close()
                raise

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.path, "r", self.how)

    def refresh(self) -> None:
        """Looks at what is in the directory by now."""
        self._contents = StoreContents(self.path, self.how)
        if self._editor is not None:
            self._editor.use(self._contents.schema)

    @property
    def closed(self) -> bool:
        """Whether ``close()`` was called."""
        return self._contents is None

    @property
    def contents(self) -> StoreContents:
        """The opened files; ClosedStoreError when closed."""
        if self._contents is None:
            raise ClosedStoreError(f"{self.path}: the store was closed; open it again")
        return self._contents

    @property
    def editor(self) -> StoreEditor:
        """Changes the files; ReadOnlyStoreError where they are open for reading."""
        self.contents  # noqa: B018 - a closed store says so
        if self._editor is None:
            raise ReadOnlyStoreError(
                f"{self.path}: the store is open for reading; use gz.open(path, mode='r+')"
            )
        return self._editor

    def edit(self, change: Callable[[StoreEditor], None]) -> None:
        """Applies one change, and looks at the result."""
        with self.turn:
            editor = self.editor
            try:
                change(editor)
            finally:
                self.refresh()  # also after a failure, which leaves the store as it was
                editor.sweep()

    def close(self) -> None:
        """Lets go of the files and of the right to change them."""
        self._contents = None
        if self._editor is not None:
            self._editor.close()
            self._editor = None
