"""Structure shares of learned kernels equal loops over their entries, and known structures have a share of one."""

from __future__ import annotations

import pytest
import torch

from madbench.analysis.lag_kernels import (
    kernel_rows,
    random_structure_shares,
    shift_shares,
    structure_shares,
    window_shares,
)
from madbench.mixers.probe import LagKernel

LENGTH, RANK = 24, 3


def kernel_of(k: torch.Tensor) -> LagKernel:
    """The best approximation of ``k`` by a table of rank ``RANK``."""
    u, values, v = torch.linalg.svd(k)
    s = torch.full((1, RANK), 0.5, dtype=k.dtype)
    a = u[:, :RANK] * values[:RANK] / 0.5
    return LagKernel(a[None], v[:RANK].T[None], torch.zeros(1, len(k), dtype=k.dtype), s, "lag")


@pytest.mark.parametrize("offset", [1, -1, 3])
def test_a_shift_matrix_has_a_best_shift_share_of_one(offset):
    shift = torch.diag(torch.ones(LENGTH - abs(offset), dtype=torch.float64), -offset)
    (row,) = kernel_rows(kernel_of(shift), LENGTH)
    assert row["best_shift"] == pytest.approx(1) and row["shift"] == offset
    assert row["shift_1"] == pytest.approx(1 if offset == 1 else 0, abs=0.3)
    assert row["best_shift"] > row["best_shift_random"]


def test_an_averaging_kernel_is_found_with_its_window_width():
    for width in (LENGTH, 8):
        average = torch.zeros(LENGTH, LENGTH, dtype=torch.float64)
        average[:width, 5:9] = torch.tensor([1.0, -2.0, 0.5, 1.5])
        (row,) = kernel_rows(kernel_of(average), LENGTH)
        assert row["best_window"] == pytest.approx(1) and row["window"] == width
        assert row["average"] == pytest.approx(width / LENGTH)


def test_a_kernel_of_the_offset_alone_has_a_share_by_offset_of_one():
    wave = torch.cos(torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).double()  # of rank two
    (row,) = kernel_rows(kernel_of(wave), LENGTH)
    assert row["by_offset"] == pytest.approx(1)
    assert row["average"] < 0.1


def test_structure_shares_equal_loops_over_the_entries():
    k = torch.randn(6, 6, generator=torch.Generator().manual_seed(1)).double()
    mass = sum(float(value) ** 2 for value in k.flatten())
    offsets, of_shift = shift_shares(k, rank=2)
    for n, share in zip(offsets, of_shift):
        entries = [float(k[i + n, i]) for i in range(6) if 0 <= i + n < 6]
        assert share == pytest.approx(sum(entries) ** 2 / len(entries) / mass / min(1, 2 / len(entries)))
    for m, share in zip(*window_shares(k)):
        assert share == pytest.approx(sum(sum(float(k[j, i]) for j in range(m)) ** 2 / m for i in range(6)) / mass)
    of_offset = sum(
        sum(float(k[i + n, i]) for i in range(6) if 0 <= i + n < 6) ** 2 / (6 - abs(n)) for n in range(-5, 6)
    )
    assert structure_shares(k, 2)["by_offset"] == pytest.approx(of_offset / mass)


def test_five_percent_of_random_tables_exceed_their_95_percent_quantile():
    torch.manual_seed(5)
    strengths = torch.full((RANK,), 0.5, dtype=torch.float64)
    limit = {name: float(found.quantile(0.95)) for name, found in random_structure_shares(LENGTH, strengths).items()}
    a, b = torch.randn(2, 400, LENGTH, RANK).double()
    for name, found in structure_shares(a * 0.5 @ b.transpose(-1, -2), RANK).items():
        assert (found > limit[name]).double().mean() == pytest.approx(0.05, abs=0.04), name


def test_a_single_lag_has_no_structure():
    assert kernel_rows(kernel_of(torch.ones(4, 4, dtype=torch.float64)), 1) == []
