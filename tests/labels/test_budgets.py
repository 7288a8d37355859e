"""The rules of budgets, and the tables that need an entry for every budgeted quantity."""

from __future__ import annotations

from typing import get_args

import pytest

from madbench.jobs import Budget
from madbench.labels.budgets import BUDGETS, budget_words
from madbench.mixers import Size, solve
from madbench.suites import suites


def test_every_budget_name_has_a_rule_and_suites_use_known_budgets():
    assert tuple(BUDGETS) == get_args(Budget)
    assert all(set(suite.budgets) <= set(BUDGETS) for suite in suites().values())
    assert Size(16, 2, 8).rule == BUDGETS["strict"] and Size(16, 2, 8, "paper").rule == BUDGETS["paper"]


def test_the_room_of_an_allocation_is_its_target_minus_its_parameters():
    allocation = solve("G-c-q-12o", 64, 2, 32, "paper")
    assert BUDGETS["paper"].room(allocation) == allocation.target - allocation.total == allocation.slack


@pytest.mark.parametrize("label", ["R-c-q", "G-g-q-12o", "cd:softmax-g", "cd:gdn"])
def test_the_flops_budget_is_met_without_slack(label):
    allocation = solve(label, 96, 2, 128, "flops")
    left = 8 * 96**2 + 2 * 96 * 129 - allocation.flops_per_token(128)
    assert 0 <= left == allocation.slack == BUDGETS["flops"].room(allocation)
    assert allocation.ranks != solve(label, 96, 2, 128).ranks


@pytest.mark.parametrize(
    ("budget", "words"), [("strict", "--budget strict"), ("flops", "--match flops"), ("state", "--match state")]
)
def test_budget_words_uses_budget_for_parameters_and_match_otherwise(budget, words):
    assert " ".join(budget_words(budget)) == words
