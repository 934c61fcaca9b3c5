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

from typing_extensions import Self

from pyg_graphzero.errors import GraphZeroError

_CGROUP = Path("/sys/fs/cgroup")
# The process enters the group and then becomes the command, so that all of it is charged there.
_ENTER = 'echo $$ > "$0" && exec "$@"'
# systemd takes a moment to make a scope, and a process that was killed to leave its group.
_PATIENCE_S = 10.0


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
        self._scope = False
        tried = []
        for way in (self._version_1, self._version_2, self._systemd):
            refusal = way()
            if refusal is None:
                return
            tried.append(refusal)
        raise CapError(
            f"cannot limit memory: {'; '.join(tried)}. Run as root, or as a user for whom "
            "`systemd-run --user --scope -p MemoryMax=1G true` works"
        )

    @property
    def _is_version_1(self) -> bool:
        return self._group is not None and self._group.parent.name == "memory"

    def _version_1(self) -> str | None:
        parent = _CGROUP / "memory"
        if not (parent / "memory.limit_in_bytes").exists():
            return f"{parent}: no control groups of version 1"
        return self._make(parent, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes")

    def _version_2(self) -> str | None:
        control = _CGROUP / "cgroup.subtree_control"
        if not control.exists():
            return f"{_CGROUP}: no control groups of version 2"
        try:
            if "memory" not in control.read_text().split():
                control.write_text("+memory")
        except OSError as error:
            return f"{control}: {error.strerror}"
        return self._make(_CGROUP, "memory.max", None)

    def _make(self, parent: Path, limit: str, limit_with_swap: str | None) -> str | None:
        group = parent / f"graphzero-bench-{os.getpid()}-{time.monotonic_ns()}"
        try:
            group.mkdir()
        except OSError as error:
            return f"{group}: {error.strerror}"
        try:
            (group / limit).write_text(str(self.limit))
            if limit_with_swap is None:
                swap, value = group / "memory.swap.max", 0
            else:
                swap, value = group / limit_with_swap, self.limit
            if swap.exists():  # kernels without swap accounting have no such file
                swap.write_text(str(value))
        except OSError as error:
            group.rmdir()
            return f"{group / limit}: {error.strerror}"
        self._group = group
        return None

    def _systemd(self) -> str | None:
        if shutil.which("systemd-run") is None:
            return "systemd-run: not installed"
        found = subprocess.run([*self._scoped(), "true"], capture_output=True, text=True)
        if found.returncode != 0:
            return f"systemd-run: {found.stderr.strip().splitlines()[-1:] or 'failed'}"
        self._scope = True
        return None

    def _scoped(self) -> list[str]:
        limits = ["-p", f"MemoryMax={self.limit}", "-p", "MemorySwapMax=0"]
        return ["systemd-run", "--user", "--scope", "--quiet", *limits, "--"]

    def command(self, command: Sequence[str]) -> list[str]:
        """The command line that runs ``command`` under the limit, with the same process id."""
        if self._scope:
            return [*self._scoped(), *command]
        assert self._group is not None
        return ["sh", "-c", _ENTER, str(self._group / "cgroup.procs"), *command]

    def usage(self, pid: int) -> dict[str, int]:
        """Bytes charged to the control group of a process that runs under the limit.

        Returns:
            ``charged``, and of that ``cache``: pages of files, mapped or not. Empty if the process
            has ended, or has not entered its group yet.
        """
        group = self._group_of(pid) if self._scope else self._group
        if group is None:
            return {}
        try:
            stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
            if self._is_version_1:
                charged, cache = group / "memory.usage_in_bytes", stat["total_cache"]
            else:
                charged, cache = group / "memory.current", stat["file"]
            return {"charged": int(charged.read_text()), "cache": int(cache)}
        except (OSError, KeyError):
            return {}

    def _group_of(self, pid: int) -> Path | None:
        try:
            lines = Path(f"/proc/{pid}/cgroup").read_text().splitlines()
        except OSError:
            return None
        for line in lines:
            _, controllers, group = line.split(":", 2)
            if controllers == "" and group.endswith(".scope"):
                return _CGROUP / group.strip("/")
        return None

    def killed(self) -> int:
        """Processes the kernel has killed because of the limit; 0 where it does not tell."""
        if self._group is None:
            return 0
        file = self._group / ("memory.oom_control" if self._is_version_1 else "memory.events")
        lines = dict(line.split() for line in file.read_text().splitlines())
        return int(lines.get("oom_kill", 0))

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
