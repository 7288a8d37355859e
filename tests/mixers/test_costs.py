"""Counted costs of one mixer and of the mixers of a model, with the causal half or all pairs."""

from __future__ import annotations

import pytest

from madbench.mixers import solve
from madbench.mixers.costs import count_costs
from madbench.mixers.sequence import solve_blocks

D, T = 32, 24


@pytest.mark.parametrize(
    "label, width", [("S-p", 2 * D), ("R-p", 2 * D), ("cd:softmax", 2 * D), ("KDA", 0), ("cd:gla", 0)]
)
def test_all_pairs_add_the_pairs_that_causality_drops(label, width):
    mixer = solve(label, D, 2, T)
    half, whole = (count_costs(mixer, T, all_pairs).flops_per_token for all_pairs in (False, True))
    assert half == mixer.flops_per_token(T)
    assert whole - half == 2 * width * (T - (T + 1) / 2)


def test_costs_of_a_hybrid_are_sums_over_its_layers():
    whole = count_costs(solve_blocks("3xKDA/S-p", 4, D, 2, T), T, all_pairs=True)
    kda, softmax = (count_costs(solve(label, D, 2, T), T, all_pairs=True) for label in ("KDA", "S-p"))
    assert whole.parameters == 3 * kda.parameters + softmax.parameters
    assert whole.flops_per_token == 3 * kda.flops_per_token + softmax.flops_per_token
    assert whole.state == 3 * kda.state + softmax.state == 3 * kda.state + 2 * D * T


def test_an_unknown_state_has_its_reason():
    costs = count_costs(solve_blocks("my:mean/S-p", 2, D, 2, T), T)
    assert costs.state is None and "GatedMean does not state what decoding carries" in costs.unknown
    assert costs.flops_per_token > 0
