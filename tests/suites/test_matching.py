"""Budgets in other quantities than parameters: every family matches them or says why not, and no table mixes two."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from madbench.errors import BudgetError, ConfigError
from madbench.experiment import ExperimentOptions, prepare
from madbench.labels import families, family_of
from madbench.mixers import build, solve
from madbench.mixers.sequence import solve_blocks
from madbench.rows import Grid, Row
from madbench.suites import suites
from madbench.suites.mad.suite import MAD
from madbench.suites.protocol import by_protocol
from sample_jobs import mad_job

LABELS = {
    "": ("S", "S-p", "S-pc", "S-pw", "S-c-q", "R-c-v", "D-pc", "G-cg-q-12o", "R-q-1", "R-cg-12o!"),
    "cd": ("cd:softmax", "cd:softmax-pcg", "cd:gdn", "cd:mamba2-v", "cd:mlstm", "cd:linear", "cd:gdn!"),
    "hfa": ("hfa:2", "hfa:3-p-q", "hfa:L2", "hfa:C2w"),
    "ha": ("ha:2+3", "ha:L2+4s", "ha:C3s"),
    "my": ("my:mean",),
}
"""Labels by family. Of the named operators, all without arguments."""
SIZES = [(96, 2, 48), (64, 4, 512)]


def sample_labels():
    names = [name for name in families() if name != "hybrid"]
    return [label for name in names for label in LABELS.get(name) or family_of(f"{name}:").mixers]


def softmax_flops(d, length):
    """FLOPs per token of softmax attention: projections 2 * 4 d^2; scores and readout of d channels, 2 * 2 d, for
    (length + 1) / 2 tokens."""
    return 8 * d * d + 4 * d * (length + 1) / 2


AMOUNTS = {
    "flops": (lambda allocation, length: allocation.flops_per_token(length), softmax_flops),
    "state": (lambda allocation, length: allocation.state(length), lambda d, length: 2 * d * length),
}
"""For each quantity: its value for a mixer, and for softmax attention of width d."""
LABELS_WITHOUT_MATCHING = {"my:mean", "hfa:C2w", "ha:C3s", "hfa:L2", "ha:L2+4s"}
"""Labels that can match only parameters."""


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES, ids=str)
@pytest.mark.parametrize("quantity", AMOUNTS)
def test_every_label_matches_within_a_step_or_says_why_not(quantity, size):
    (d, _, length), (amount, target) = size, AMOUNTS[quantity]
    refused = {}
    for label in sample_labels():
        try:
            allocation = solve(label, *size, quantity)
        except BudgetError as error:
            refused[label] = str(error)
            continue
        ratio = amount(allocation, length) / target(d, length)
        assert ratio == allocation.size.rule.ratio(allocation), label
        if not label.endswith("!"):
            assert 0.93 < ratio <= 1, label
    assert all("--match parameters" in reason for reason in refused.values())
    fixed = {label for label, reason in refused.items() if "no width that changes its" in reason}
    assert LABELS_WITHOUT_MATCHING <= refused.keys() <= LABELS_WITHOUT_MATCHING | {"ha:2+3", "S-pw"} | fixed
    for label in fixed:
        assert len({solve(label, d, heads).total for heads in (1, 2, 4)}) == 1, label


@pytest.mark.parametrize("quantity", AMOUNTS)
@pytest.mark.parametrize("label", ["S-p", "S-pc", "G-cg-q-12o", "D-pc", "cd:gdn", "KDA", "GDN"])
def test_common_labels_are_matched_within_five_percent(label, quantity):
    allocation, (amount, target) = solve(label, 96, 2, 48, quantity), AMOUNTS[quantity]
    assert 0.95 < amount(allocation, 48) / target(96, 48) <= 1


@pytest.mark.parametrize("label", ["S-c-q", "R-c-v", "G-cg-q-12o", "cd:gdn", "cd:mamba2-v", "hfa:3-p-q"])
def test_a_wider_rank_would_exceed_the_flops(label):
    allocation = solve(label, 96, 2, 48, "flops")
    grows = "qk" if allocation.label.rank == "v" else "vo"
    ranks, steps = dict(allocation.ranks), {"qk": 4, "vo": 2}
    ranks[grows] += steps[grows]
    by_name = {"ranks": ranks} if hasattr(allocation, "registers") else {f"r_{name}": ranks[name] for name in steps}
    assert replace(allocation, **by_name).flops_per_token(48) > softmax_flops(96, 48)


@pytest.mark.slow
@pytest.mark.parametrize(
    "label",
    ["S-c-q", "G-cg-q-12o", "cd:gdn", "hfa:2", *(each for each in family_of("named:").mixers if each != "ShortConv")],
)
@pytest.mark.parametrize("quantity", AMOUNTS)
def test_a_matched_mixer_is_built_with_the_parameters_of_its_allocation(quantity, label):
    mixer, (amount, target) = build(label, 64, 32, budget=quantity), AMOUNTS[quantity]
    assert sum(parameter.numel() for parameter in mixer.parameters()) == mixer.allocation.total
    assert amount(mixer.allocation, 32) <= target(64, 32)
    assert mixer(torch.randn(2, 20, 64)).shape == (2, 20, 64)


def test_a_recurrent_mixer_gets_keys_and_values_of_the_state_of_attention():
    """A state has N M / H numbers with N = M, so N is the root of 2 d T H."""
    allocation = solve("cd:gdn", 96, 2, 48, "state")
    assert allocation.ranks == {"qk": 134, "vo": 136} and 134 * 136 / 2 <= 2 * 96 * 48 < 136 * 136 / 2
    kda = solve("KDA", 96, 2, 48, "state")
    windows = 3 * (2 * kda.ranks["qk"] + kda.ranks["vo"])
    assert kda.ranks["qk"] * kda.ranks["vo"] / 2 + windows == kda.state(48) <= 2 * 96 * 48


def test_a_window_that_leaves_out_tokens_cannot_keep_the_state_of_attention():
    with pytest.raises(BudgetError, match="it keeps 16 tokens of 128, .* use model.window=128, or --match parameters"):
        solve("S-w", 64, 2, 128, "state", window=16)
    assert solve("S-w", 64, 2, 128, "state", window=128).state(128) == 2 * 64 * 128
    assert solve("R-gw!", 64, 2, 128, "state", window=16).state(128) == 2 * 64 * 16  # `!` matches nothing


def test_the_layers_of_a_hybrid_are_matched_one_by_one():
    blocks = solve_blocks("3xKDA/S-p", 4, 96, 2, 48, "flops")
    each = [block.flops_per_token(48) for block in blocks.blocks]
    assert each[:3] == [solve("KDA", 96, 2, 48, "flops").flops_per_token(48)] * 3
    assert each[3] == softmax_flops(96, 48)
    assert blocks.ratio == sum(each) / (4 * softmax_flops(96, 48))
    assert solve("3xKDA/S-p", 96, 2, 48, "flops").ratio == blocks.ratio


def test_a_family_that_knows_parameters_only_is_refused(monkeypatch):
    monkeypatch.setattr(type(family_of("cd:gdn")), "matches", ())
    with pytest.raises(BudgetError, match="chooses ranks by parameters, and cannot match FLOPs per token; use --match"):
        solve("cd:gdn", 64, 2, 32, "flops")


def test_no_table_mixes_two_ways_of_matching():
    jobs = [mad_job(label, budget=budget) for label in ("S-p", "R-c-q") for budget in ("strict", "flops")]
    assert len({job.id for job in jobs}) == 4
    groups = by_protocol(MAD, jobs, lambda job: job)
    assert sorted({job.budget for job in group}.pop() for group in groups.values()) == ["flops", "strict"]
    assert all(len({job.budget for job in group}) == 1 for group in groups.values())


def test_a_suite_whose_rows_see_all_tokens_matches_parameters_only():
    with pytest.raises(ConfigError, match="budget flops has no effect on images and series"):
        prepare(Grid((Row("S"),), ("digits",), budget="flops"), ExperimentOptions(device="cpu"))
    assert suites()["signals"].budgets == ("strict", "paper", "compute")
