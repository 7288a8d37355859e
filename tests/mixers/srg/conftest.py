"""Mixers with weights large enough that every term of the equations shows."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers import build, solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP


@pytest.fixture(scope="session")
def make_mixer():
    """``make_mixer(label, ...)``: a mixer under the paper's budget, which every label fits at any size, with weights
    from a fixed seed."""

    def make(label, d_model=16, n_head=2, max_len=6, mix_rank=3, std=0.3, dtype=torch.float64, **how):
        allocation = solve(label, d_model, n_head, max_len, "paper", mix_rank=mix_rank)
        mixer = DynamicMLP(allocation, **how)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.normal_(std=std, generator=generator)
        return mixer.to(dtype)

    return make


@pytest.fixture
def make():
    """``make(label, ...)``: a small float64 mixer with weights large enough that each one matters."""

    def make(label, d_model=16, n_head=2, max_len=6, std=0.3, **settings):
        mixer = build(label, d_model, max_len, n_head=n_head, budget="paper", **({"mix_rank": 3} | settings))
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.normal_(std=std, generator=generator)
        mixer.chunk = 2
        return mixer.double()

    return make
