"""The machine that a figure was measured on: processor, memory, disk, versions of the software."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

from pyg_graphzero.util.system import (
    cpu_model,
    disk_of,
    memory_limit,
    mount_of,
    total_memory,
    usable_cores,
)

_PACKAGES = ("pyg_graphzero", "torch", "torch_geometric", "pyg_lib", "torch_sparse", "numpy")


def machine() -> dict[str, Any]:
    """Processor, cores, RAM, the limit on memory, kernel and versions, as plain data."""
    return {
        "cpu": cpu_model() or platform.machine(),
        "cores": os.cpu_count(),
        "usable_cores": usable_cores(),
        "ram_bytes": total_memory(),
        "memory_limit_bytes": memory_limit(),
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


def storage(path: Path) -> dict[str, str | None]:
    """Where a file lies, as plain data.

    Returns:
        ``filesystem``, ``disk``, and the disk's ``model``, or its driver where it has no model;
        None where there is none, as for a file system in memory.
    """
    mount, disk = mount_of(path), disk_of(path)
    return {
        "filesystem": None if mount is None else mount[0],
        "disk": None if disk is None else disk.name,
        "model": None if disk is None else _model(disk),
    }


def _model(disk: Path) -> str | None:
    model, driver = disk / "device" / "model", disk / "device" / "driver"
    if model.exists():
        return model.read_text().strip()
    return driver.resolve().name if driver.exists() else None
