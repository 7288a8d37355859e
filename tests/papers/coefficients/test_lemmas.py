"""The lemmas hold for the labels that they concern, and their checks find planted faults."""

from __future__ import annotations

import pytest
import torch

from madbench.labels import parse
from madbench.mixers.cd import grammar, parts
from madbench.mixers.cd.family import FAMILY
from madbench.mixers.cd.sample_mixers import SampleMixers
from madbench.papers.coefficients.theorems import checks, statements, zero_sets


@torch.no_grad()
def failing(label, *names):
    """The names of the failing checks, among those whose name begins with one of ``names``."""
    applicable = [check for check in checks(parse(label)) if check.run and check.name.split()[0] in names]
    assert {check.name.split()[0] for check in applicable} == set(names), "every named check applies"
    return {check.name for check in applicable if not check.holds(check.run())}


def test_labels_of_other_families_have_no_lemma_checks():
    assert not [*checks(parse("S")), *checks(parse("ha:3"))]


def test_a_statement_of_the_paper_is_not_applicable_to_a_word_that_it_was_not_worked_out_for(monkeypatch):
    assert not [*filter(statements.why_not_worked_out, map(parse, ("cd:exp-0.95hk1-bz-wx-pcug!", "cd:krelu-bz-v")))]
    monkeypatch.setitem(grammar.OPTIONS, "readout", (*grammar.READOUTS, "cube"))
    found = [*statements.checks(SampleMixers(FAMILY, grammar.CdLabel("cube", norm="sum")))]
    assert len(found) > 10
    assert {(check.run, check.reason) for check in found} == {(None, "it is not worked out for readout 'cube'")}


@pytest.mark.parametrize("label", ["cd:sigmoid-1.05-bz-u", "cd:sigmoid-1.05-wx"])
def test_a_sigmoid_of_a_growing_score_stays_below_1(label):
    assert not failing(label, "V11")


@pytest.mark.parametrize("label", ["cd:relu-sum", "cd:krelu-sshz1-bz-sum", "cd:id-hk2-bwn-cug"])
def test_a_constant_factor_of_b_cancels_in_normalized_labels(label):
    assert not failing(label, "V13")


@pytest.mark.parametrize("label", ["cd:exp-1.05-b1", "cd:exp-1.05-b1-pow", "cd:softplus-1.05-b1", "cd:exp-0.95-pow"])
def test_unbounded_coefficients_are_reported_as_a_difference(label):
    (check,) = [check for check in checks(parse(label)) if check.name == "V11 bounded"]
    assert check.is_difference and check.holds(check.run())


@pytest.mark.parametrize("eta, slope", [("", 0.54), ("-pow", 0.495)])
def test_exp_of_a_growing_score_grows_as_the_specification_says(eta, slope):
    (check,) = [check for check in checks(parse(f"cd:exp-1.05{eta}")) if check.name == "V11 bounded"]
    assert check.run() == pytest.approx(slope, abs=0.005)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["cd:relu-sum", "cd:id", "cd:exp-sum"])
def test_the_share_of_transformations_that_suppress_a_token_is_measured(label):
    assert not failing(label, "V16")


def test_a_readout_with_another_zero_set_is_caught(monkeypatch):
    monkeypatch.setitem(parts.READOUTS, "relu", lambda s: torch.relu(s - 0.5))
    assert failing("cd:relu-sum", "V16") == {"V16 transformations"}


@pytest.mark.parametrize(
    ("changed", "caught"),
    [
        (lambda z: z**3, {"V16 proportion"}),
        (lambda z: 6 * z.argsort().argsort() / len(z) - 3, {"V16 proportion", "V16 constant"}),
    ],
)
def test_scores_of_another_density_are_caught(changed, caught, monkeypatch):
    scores = changed(zero_sets.scores())
    monkeypatch.setattr(zero_sets, "scores", lambda: scores)
    assert caught <= failing("cd:id", "V16")


def test_the_check_on_zero_sets_does_not_apply_to_kernels():
    (reason, *_) = {check.reason for check in checks(parse("cd:kexp-sum")) if check.name.startswith("V16")}
    assert "kernel" in reason
