"""Libraries' exceptions over damaged input, as the package's error with file and place.

NumPy, zipfile, zlib, pyarrow, torch, PyYAML and Python's own parsers raise some twenty kinds of
exception between them, and another release raises others. So whatever comes out of a block that
does nothing but read an input means that the input cannot be read.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from pyg_graphzero.errors import GraphZeroError, InputError


@contextmanager
def reading(
    path: object, where: object, expected: object, *, what: str = "", hint: str = ""
) -> Iterator[None]:
    """Everything raised inside becomes an :class:`InputError`, but what names its cause already.

    Args:
        path: The input.
        where: Row, column, member or attribute that is read.
        expected: Description of an undamaged input there.
        what: Description of the damaged one, put before the library's own message.
        hint: The nearest fix, a full sentence.

    Raises:
        InputError: The input is damaged.
        OSError: The operating system failed; names the input.
    """
    try:
        yield
    except GraphZeroError:
        raise
    except Exception as error:
        # To seek or to map where a damaged offset leads is EINVAL.
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            error.filename = error.filename or str(path)
            raise
        found = f"{what} ({cause(error)})" if what else cause(error)
        raise InputError(path, where, found, expected, hint) from error


def cause(error: BaseException) -> str:
    """The first line of an exception's message, with its class where that says little."""
    lines = str(error).strip().splitlines()
    # "'shape'" of a KeyError and "23" of an IndexError need the class; sentences do not.
    return lines[0][:200] if lines and len(lines[0].split()) > 2 else repr(error)[:200]


def read_numbers(file: Path) -> Tensor:
    """Numbers of nodes, or for nodes, from ``.npy``, ``.pt``, or text with one in each line.

    Raises:
        InputError: There are none in it.
    """
    with reading(file, "file", "numbers: .npy, .pt, or text with one in each line"):
        if file.suffix == ".npy":
            return torch.from_numpy(np.load(file))
        if file.suffix in (".pt", ".pth"):
            return torch.as_tensor(torch.load(file, weights_only=True))
        return torch.from_numpy(np.loadtxt(file, dtype=np.int64, ndmin=1))
