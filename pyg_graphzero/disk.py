"""Measuring a disk, under its public name."""

from pyg_graphzero.util.disk import DiskSpeed, probe

__all__ = ["DiskSpeed", "probe"]
