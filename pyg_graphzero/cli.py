"""The command line under the package's name."""

from pyg_graphzero_cli import main

__all__ = ["main"]
