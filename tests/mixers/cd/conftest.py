"""Mixers with weights large enough that every term of the equations shows."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers import build
from madbench.mixers.recurrence import decays


@pytest.fixture(scope="session")
def make_mixer():
    """``make_mixer(label, ...)``: a mixer with N = M = d, weights from a fixed seed, and biases and rates near their
    initial values."""

    def make(label, d_model=8, n_head=2, max_len=8, std=0.4, seed=0, dtype=torch.float64, path="auto", **settings):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            mixer = build(label, d_model, max_len, n_head=n_head, budget="paper", path=path, **settings).double()
            with torch.no_grad():
                for parameter in mixer.parameters():
                    is_matrix = parameter.ndim > 1
                    noise = torch.randn_like(parameter)
                    parameter.copy_(std * noise if is_matrix else parameter + 0.3 * noise)
        mixer.chunk = 3
        return mixer.to(dtype)

    return make


@pytest.fixture(scope="session")
def decode():
    """``decode(mixer, x)``: x (B, T, D) -> (B, T, D), one step a token."""

    def run(mixer, x):
        cache, rows = None, []
        for token in x.unbind(1):
            y, cache = mixer.step(token, cache)
            rows.append(y)
        return torch.stack(rows, dim=1)

    return run


@pytest.fixture
def small_sub_blocks(monkeypatch):
    """Use sub-blocks of two rows, so that a short sequence has many."""
    monkeypatch.setattr(decays, "SUB_BLOCK", 2)
