from __future__ import annotations

import pytest
import torch


@pytest.fixture
def doubles():
    """Numbers are float64: the same sums in another order differ by nothing that matters."""
    torch.manual_seed(0)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)
