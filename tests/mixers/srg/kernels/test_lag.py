"""The kernels with ``o`` against float64: o and every gradient, in Triton's interpreter if there is no GPU."""

from __future__ import annotations

import os

import pytest
import torch

pytest.importorskip("triton", reason="the kernels need Triton, which comes with torch for CUDA")

from madbench.mixers.srg.kernels import lag

IS_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
TOLERANCE = {torch.float32: 2e-6 if IS_INTERPRETED else 1e-4, torch.float16: 3e-3}
"""Tolerances per dtype.

Triton's interpreter multiplies bfloat16 wrongly. A GPU multiplies float32 in three parts of TF32.
"""
ALL = [(base, mixings) for base in "SRG" for mixings in ("", "1", "2", "12")]


def cut_by(rows, monkeypatch):
    monkeypatch.setattr(lag, "CUTS", dict.fromkeys(lag.CUTS, ((rows, rows // 16, 1),) * 2))


@pytest.fixture
def small_tiles(monkeypatch):
    """Use tiles of 16 rows, so that a few rows need several tiles."""
    cut_by(16, monkeypatch)


def assert_exact(found, dtype):
    assert max(found.values()) < TOLERANCE[dtype], found


@pytest.mark.slow
@pytest.mark.parametrize(
    "base, mixings, shape, dtype",
    [
        ("G", "12", (1, 1, 18, 3, 5, 2), torch.float16),
        ("S", "1", (1, 2, 17, 4, 5, 3), torch.float32),
        ("R", "2", (2, 1, 17, 5, 3, 1), torch.float16),
        ("G", "12", (1, 1, 1, 4, 5, 2), torch.float32),
    ],
)
def test_outputs_and_gradients_equal_float64(base, mixings, shape, dtype, draw, errors, small_tiles, nan_memory):
    assert_exact(errors(lag, base, draw(base, mixings, shape, dtype), by_lag=True), dtype)


@pytest.mark.slow
@pytest.mark.parametrize("base, mixings", ALL)
def test_every_activation_and_mixing_equals_float64(base, mixings, draw, errors, small_tiles, nan_memory):
    rows = 33 if mixings == "12" else 18  # three tiles or two
    for dtype in TOLERANCE if mixings == "12" else [torch.float32]:
        assert_exact(errors(lag, base, draw(base, mixings, (1, 1, rows, 5, 19, 3), dtype), by_lag=True), dtype)


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        (1, 1, 7, 8, 16, 16),
        (1, 1, 63, 8, 20, 32),
        (1, 1, 65, 4, 80, 3),
        (1, 1, 35, 48, 384, 17),
        (1, 1, 18, 128, 512, 2),
    ],
    ids=str,
)
def test_odd_lengths_and_widths_equal_float64(shape, draw, errors, nan_memory):
    assert_exact(errors(lag, "G", draw("G", "12", shape, torch.float32), by_lag=True), torch.float32)


@pytest.mark.slow
def test_a_thousand_rows_equal_float64(draw, errors, nan_memory, monkeypatch):
    if IS_INTERPRETED:
        cut_by(256, monkeypatch)  # few tiles, for its time's sake
    assert_exact(errors(lag, "R", draw("R", "12", (1, 1, 1000, 4, 16, 2), torch.float32), by_lag=True), torch.float32)
