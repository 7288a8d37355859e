"""Scans of single channels and of slots beside loops: every length around the sizes of blocks, and closed gates."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers.checks.residuals import difference
from madbench.mixers.named import recurrent_ops
from madbench.mixers.named.operators import gsa_slots

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 40]


def gates(*shape):
    """Random log f of all sizes, for gates from nearly open to shut."""
    return -torch.rand(*shape, dtype=torch.float64) * torch.tensor([1e-3, 1, 30, 300, 3000])


@pytest.mark.parametrize("length", LENGTHS)
def test_a_scan_equals_a_loop_at_any_length_and_gate(length):
    torch.manual_seed(0)
    log_f, x, before = gates(2, length, 5), *torch.randn(2, 2, length, 5).double()
    before = before[:, 0]
    for start in (None, before):
        h, rows = torch.zeros_like(before) if start is None else start, []
        for t in range(length):
            h = log_f[:, t].exp() * h + x[:, t]
            rows.append(h)
        assert difference(recurrent_ops.scan(log_f, x, start), torch.stack(rows, 1)) < 1e-14


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("block", [gsa_slots.BLOCK, max(LENGTHS)])  # a single block is read as in exported programs
def test_read_slots_equals_a_loop_at_any_length_and_gate(length, block, monkeypatch):
    monkeypatch.setattr(gsa_slots, "BLOCK", block)
    torch.manual_seed(0)
    (q, k), s = torch.randn(2, 1, 2, length, 3).double(), torch.randn(1, 2, length, 5).double()
    log_f, before = gates(1, 2, length, 5), torch.randn(1, 2, 3, 5).double()
    for start in (None, before):
        state, rows = torch.zeros_like(before) if start is None else start, []
        for t in range(length):
            state = state * log_f[:, :, t, None].exp() + k[:, :, t, :, None] * s[:, :, t, None]
            rows.append((q[:, :, t, None] @ state).squeeze(-2))
        found, last = gsa_slots.read_slots(q, k, s, log_f, start)
        assert difference(found, torch.stack(rows, 2)) < 1e-14 and difference(last, state) < 1e-14
