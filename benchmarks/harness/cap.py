"""Processes whose memory the kernel limits, page cache included: a control group for each.

Root writes the control group's own files, of version 1 or 2; other users need ``systemd-run`` and
the right to make scopes with a limit on memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from typing_extensions import Self

from pyg_graphzero.errors import GraphZeroError
from pyg_graphzero.util.system import CGROUP_V1, CGROUP_V2

_CGROUP = Path("/sys/fs/cgroup")
# The process enters the group and then becomes the command, so that all of it is charged there.
_ENTER = 'echo $$ > "$0" && exec "$@"'
# systemd takes a moment to make a scope, and a process that was killed to leave its group.
_PATIENCE_S = 10.0


class _Files(NamedTuple):
    """Files of a control group, in one version of these.

    Attributes:
        parent: Directory of the groups.
        sign: File of ``parent`` that tells the version.
        limit: Limit on memory.
        swap: Limit on swap, or on memory and swap together.
        counts_all: Whether it is on both.
        events: File that counts killed processes.
    """

    parent: Path
    sign: str
    limit: str
    swap: str
    counts_all: bool
    events: str


_VERSIONS = (
    _Files(
        _CGROUP / "memory", CGROUP_V1[0], CGROUP_V1[0], "memory.memsw.limit_in_bytes", True,
        "memory.oom_control",
    ),
    _Files(
        _CGROUP, "cgroup.subtree_control", CGROUP_V2[0], "memory.swap.max", False, "memory.events",
    ),
)  # fmt: skip


class CapError(GraphZeroError, RuntimeError):
    """No way was found to limit the memory of a process."""


class MemoryCap:
    """A limit on the memory of processes, as a context manager.

    The kernel counts for a control group the memory of its processes and the pages of files that
    they were first to read. Swap is not allowed.

    Args:
        limit: Bytes.

    Raises:
        ValueError: ``limit`` is not positive.
        CapError: There is no way here; says what was tried.
    """

    def __init__(self, limit: int) -> None:
        if limit <= 0:
            raise ValueError(f"limit: found {limit}, expected a positive number of bytes")
        self.limit = limit
        self._group: Path | None = None
        self._files = _VERSIONS[-1]  # systemd's scopes are of version 2
        tried = []
        for files in (*_VERSIONS, None):
            refusal = self._systemd() if files is None else self._make(files)
            if refusal is None:
                return
            tried.append(refusal)
        raise CapError(
            f"cannot limit memory: {'; '.join(tried)}. Run as root, or as a user for whom "
            "`systemd-run --user --scope -p MemoryMax=1G true` works"
        )

    def _make(self, files: _Files) -> str | None:
        """Makes a group of a version; the reason where that cannot be done."""
        if not (files.parent / files.sign).exists():
            return f"{files.parent}: found no {files.sign}"
        group = files.parent / f"graphzero-bench-{os.getpid()}-{time.monotonic_ns()}"
        control = files.parent / "cgroup.subtree_control"
        try:
            if control.exists() and "memory" not in control.read_text().split():
                control.write_text("+memory")
            group.mkdir()
            (group / files.limit).write_text(str(self.limit))
            if (group / files.swap).exists():  # kernels without swap accounting have no such file
                (group / files.swap).write_text(str(self.limit * files.counts_all))
        except OSError as error:
            if group.exists():
                group.rmdir()
            return f"{group}: {error.strerror}"
        self._group, self._files = group, files
        return None

    def _systemd(self) -> str | None:
        if shutil.which("systemd-run") is None:
            return "systemd-run: not installed"
        found = subprocess.run([*self._scoped(), "true"], capture_output=True, text=True)
        if found.returncode != 0:
            return f"systemd-run: {found.stderr.strip().splitlines()[-1:] or 'failed'}"
        return None

    def _scoped(self) -> list[str]:
        limits = ["-p", f"MemoryMax={self.limit}", "-p", "MemorySwapMax=0"]
        return ["systemd-run", "--user", "--scope", "--quiet", *limits, "--"]

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs ``command`` under the limit, with the same process id."""
        if self._group is None:
            return [*self._scoped(), *command]
        return ["sh", "-c", _ENTER, str(self._group / "cgroup.procs"), *command]

    def killed(self) -> int:
        """Processes the kernel has killed because of the limit; 0 where it does not tell."""
        if self._group is None:
            return 0
        lines = (self._group / self._files.events).read_text().splitlines()
        return int(dict(line.split() for line in lines).get("oom_kill", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """Removes the group; its processes must have ended."""
        if self._group is None:
            return
        patience = time.monotonic() + _PATIENCE_S
        while True:
            try:
                self._group.rmdir()
                break
            except OSError:
                if time.monotonic() > patience:
                    raise
                time.sleep(0.05)
        self._group = None
