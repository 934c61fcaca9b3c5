"""Tensors in `.pt` files, as rows read in place.

``torch.save`` wraps an archive whose members are only stored, so its tensors lie in the file as
they do in memory.
"""

from __future__ import annotations

import pickle
import re
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pyg_graphzero.errors import InputError
from pyg_graphzero.store.rows import ArrayRows, FileRows, Rows
from pyg_graphzero.util.reading import reading
from pyg_graphzero.util.system import mapped_at

_TRUST = (
    "If you trust the file, load it yourself (torch.load with weights_only=False, or the dataset's "
    "class) and pass gz.convert the Data or the dataset."
)


def load_torch(path: Path, expected: str = "tensors") -> Any:
    """A file that ``torch.save`` wrote, memory-mapped unless it is a very old one.

    Args:
        path: The file.
        expected: Contents that messages ask for.

    Raises:
        InputError: The file is damaged, or holds what torch does not load unless it is trusted.
    """
    with reading(path, "file", expected, what="a file that torch cannot load"):
        mmap = zipfile.is_zipfile(path)
        try:
            return torch.load(path, weights_only=True, map_location="cpu", mmap=mmap)
        except pickle.UnpicklingError as error:
            if "Weights only" not in str(error):
                raise
            named = re.search(r"GLOBAL (\S+)", str(error))
            found = "pickled Python objects, which are not loaded"
            found += f" ({named[1]})" if named else ""
            raise InputError(path, "file", found, expected, _TRUST) from error


def tensor_rows(tensor: Tensor, path: Path | None = None) -> Rows:
    """The rows of a tensor; those of one that :func:`load_torch` mapped are read from its file.

    Args:
        tensor: Dense, on the CPU, ``[num_rows, ...]``.
        path: The file it was loaded from, if it was.
    """
    if path is not None and tensor.is_contiguous() and tensor.numel():
        # To read the tensor itself would count as memory of this process, page by page.
        offset = mapped_at(path, tensor.data_ptr())
        if offset is not None:
            return FileRows(path, offset, tensor.shape, tensor.dtype)
    return ArrayRows(tensor, path)
