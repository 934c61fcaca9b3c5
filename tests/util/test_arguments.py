"""Callers' arguments as tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pyg_graphzero.util.arguments import as_tensor


@pytest.mark.parametrize("step", [slice(None, None, -1), slice(None, None, 2), slice(0, 0)])
def test_arrays_are_taken_whatever_their_strides(step):
    array = np.arange(12.0).reshape(4, 3)[step]
    assert torch.equal(
        as_tensor(array, "x"), torch.tensor(array.tolist()).view(array.shape).double()
    )


def test_arrays_of_the_other_byte_order_are_taken():
    array = np.arange(4, dtype=">i4")
    assert as_tensor(array, "x").tolist() == [0, 1, 2, 3]
