"""What a figure was measured on: processor, memory, disk, and the versions of the software."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

_PACKAGES = ("pyg_graphzero", "torch", "torch_geometric", "pyg_lib", "torch_sparse", "numpy")
# Version 1 control groups say "no limit" with a number close to 2^63.
_NO_LIMIT = 1 << 60


def machine() -> dict[str, Any]:
    """Processor, cores, RAM, the limit on memory, kernel and versions, as plain data."""
    page = os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)),
        "ram_bytes": os.sysconf("SC_PHYS_PAGES") * page,
        "memory_limit_bytes": _memory_limit(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: version(name) for name in _PACKAGES if version(name)},
    }


def version(package: str) -> str | None:
    """Version of an installed package, or None."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _memory_limit() -> int | None:
    """The smallest limit of the control groups this process is in, of either version."""
    limits = []
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            root, name = Path("/sys/fs/cgroup"), "memory.max"
        elif "memory" in controllers.split(","):
            root, name = Path("/sys/fs/cgroup") / controllers, "memory.limit_in_bytes"
        else:
            continue
        # Inside a container the group's own path may not be there; its root then is the group.
        inner = root / group.strip("/")
        for folder in (inner, *inner.parents):
            if folder.is_relative_to(root) and (folder / name).exists():
                text = (folder / name).read_text().strip()
                if text != "max" and int(text) < _NO_LIMIT:
                    limits.append(int(text))
    return min(limits, default=None)


def storage(path: Path) -> dict[str, str | None]:
    """Where a file lies, as plain data.

    Returns:
        ``filesystem``, ``disk``, and the disk's ``model``, or its driver where it has no model;
        None where there is none, as for a file system in memory.
    """
    device = path.stat().st_dev
    number = f"{os.major(device)}:{os.minor(device)}"
    found: dict[str, str | None] = {"filesystem": None, "disk": None, "model": None}
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, source = line.partition(" - ")
        if mount.split()[2] == number:
            found["filesystem"] = source.split()[0]
    block = (Path("/sys/dev/block") / number).resolve()
    if block.exists():
        disk = block.parent if (block / "partition").exists() else block
        found["disk"] = disk.name
        found["model"] = _model(disk)
    return found


def _model(disk: Path) -> str | None:
    model, driver = disk / "device" / "model", disk / "device" / "driver"
    if model.exists():
        return model.read_text().strip()
    return driver.resolve().name if driver.exists() else None
