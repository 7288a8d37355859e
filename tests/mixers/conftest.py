"""Random inputs of mixers."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def randn():
    """Seeded normal numbers in float64 that are exact in float32, so that one reference serves both."""

    def draw(*shape, seed=1):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()

    return draw
