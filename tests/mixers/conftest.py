"""Inputs of mixers."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session")
def randn():
    """Seeded float64 normal numbers; exact in float32, so that one reference serves both."""

    def draw(*shape, seed=1):
        return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).double()

    return draw
