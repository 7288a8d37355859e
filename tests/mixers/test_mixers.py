"""``build`` and ``solve`` by the family of the label, its settings, and what every mixer has to hold."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import madbench
from madbench.errors import BudgetError, ConfigError
from madbench.mixers import Size, solve


def test_madbench_build_builds_the_allocation_of_solve():
    mixer = madbench.build("G-cg-q-12o", 32, 16, n_head=1, mix_rank=3)
    assert mixer.allocation == solve("G-cg-q-12o", 32, 1, 16, "strict", mix_rank=3)
    assert mixer.allocation.size == Size(32, 1, 16)
    assert mixer(torch.randn(2, 16, 32)).shape == (2, 16, 32)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"mix_rnk": 3}, "settings of S-c: unknown key 'mix_rnk'; did you mean 'mix_rank'"),
        ({"rope": "mispared"}, "rope: 'mispared' is not allowed; did you mean 'mispaired'"),
        ({"mix_rank": 0}, "mix_rank must be at least 1, got 0"),
        ({"rank_multiple": -1}, "rank_multiple must be at least 1, got -1"),
        ({"mix_rank": 2.0}, "mix_rank: expected a whole number, got 2.0"),
        ({"rank_multiple": True}, "rank_multiple: expected a whole number, got True"),
    ],
)
def test_a_setting_that_the_family_does_not_take_is_an_error(settings, message):
    with pytest.raises(ConfigError, match=message):
        solve("S-c", 32, **settings)


def test_a_length_of_zero_is_refused():
    with pytest.raises(BudgetError, match="max_len must be a whole number of at least 1, got 0"):
        madbench.build("S", 32, 0)


@pytest.mark.parametrize("number", [np.int64, np.int32, torch.tensor])
def test_sizes_and_settings_may_be_numbers_of_numpy_and_torch(number):
    usual = madbench.build("R-cg-q-12o", 32, 16, n_head=2, mix_rank=2).allocation
    other = madbench.build("R-cg-q-12o", d_model=number(32), max_len=number(16), n_head=number(2), mix_rank=number(2))
    assert other.allocation == usual
    assert solve("R-cg-q-12o", number(32), number(2), number(16), mix_rank=number(2)) == usual
