"""The kernels without ``o`` against float64: o and every gradient, in Triton's interpreter if there is no GPU."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")

from madbench.mixers.srg.kernels import position

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TOLERANCE = {torch.float32: 1e-5 if IS_INTERPRETED else 1e-4, torch.float16: 3e-3}
"""Tolerances per dtype.

Triton's interpreter multiplies bfloat16 wrongly. A GPU multiplies float32 in three parts of TF32.
"""
ALL = [(base, mixings) for base in "SRG" for mixings in ("", "1", "2", "12") if base + mixings != "S"]


@pytest.fixture
def small_tiles(monkeypatch):
    """Use tiles of 16 rows, so that a few rows need several tiles."""
    monkeypatch.setattr(position, "TILES", ((16, 16),))


def assert_exact(found, dtype):
    assert max(found.values()) < TOLERANCE[dtype], found


@pytest.mark.slow
@pytest.mark.parametrize(
    "base, mixings, shape, dtype",
    [
        ("G", "12", (1, 1, 17, 3, 5, 2), torch.float16),
        ("S", "1", (1, 2, 17, 4, 5, 3), torch.float32),
        ("R", "2", (2, 1, 17, 4, 5, 3), torch.float32),
    ],
)
def test_outputs_and_gradients_equal_float64(base, mixings, shape, dtype, draw, errors, small_tiles, nan_memory):
    assert_exact(errors(position, base, draw(base, mixings, shape, dtype)), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    "base, mixings, batch, dtype",
    [(*kind, 1, torch.float32) for kind in ALL] + [(base, "12", 2, torch.float16) for base in "RG"],
)
def test_every_activation_and_mixing_equals_float64(base, mixings, batch, dtype, draw, errors, small_tiles, nan_memory):
    assert_exact(errors(position, base, draw(base, mixings, (batch, 2, 19, 5, 19, 3), dtype)), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 1, 4, 16, 1),
        (1, 1, 7, 8, 16, 16),
        (1, 1, 63, 8, 20, 32),
        (1, 1, 67, 48, 300, 17),
        (1, 1, 33, 128, 512, 2),
    ],
    ids=str,
)
def test_odd_lengths_and_widths_equal_float64(shape, draw, errors, nan_memory):
    for base, mixings in (("S", "1"), ("G", "12")):
        assert_exact(errors(position, base, draw(base, mixings, shape, torch.float32)), torch.float32)
