"""Cases beyond the samples of the lemmas hold, and fail for planted faults."""

from __future__ import annotations

import pytest
import torch

from madbench.labels import parse
from madbench.mixers.cd import parts
from madbench.papers.coefficients.theorems import checks, zero_sets


def check_of(label, name):
    (check,) = [check for check in checks(parse(label)) if check.name == name]
    return check


@torch.no_grad()
def holds(label, name):
    check = check_of(label, name)
    return check.holds(check.run())


CASES = [
    ("cd:exp-sum", "V6 negative scores"),
    ("cd:exp-sum", "V6 angles"),
    ("cd:id-b1", "V5 rank"),
    ("cd:linear", "V5 rank"),
    ("cd:relu-sum", "V5 rank"),
    ("cd:id-hkr-u", "V8 mirrored back"),
    ("cd:id-hzr-u", "V8 mirrored back"),
    ("cd:exp-sum-c", "V8 repeated token"),
    ("cd:id-hkr-u", "V9 rotation"),
    ("cd:deltanet", "V9 rotation"),
    ("cd:deltanet", "V9 long direction"),
    ("cd:mamba2", "V10 start"),
    ("cd:softplus-1.05-pow", "V11 limit"),
    ("cd:relu-1.05-pow", "V11 limit"),
    ("cd:id-sum", "V12 beyond 1"),
    ("cd:id", "V16 scalars"),
]


@pytest.mark.parametrize(("label", "name"), CASES)
def test_every_case_of_the_lemmas_holds(label, name):
    assert holds(label, name)


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("cd:krelu-sum", "V6 zeros"),
        ("cd:softmax", "V6 negative scores"),
        ("cd:softmax", "V6 angles"),
        ("cd:id-hkr-u", "V8 mirrored back"),
        ("cd:id-sum", "V12 beyond 1"),
        ("cd:id", "V16 scalars"),
    ],
)
def test_a_case_in_which_a_statement_does_not_hold_contradicts_it(label, name):
    check = check_of(label, name)
    assert check.contradicts and check.source.startswith("against")
    assert not check_of("cd:kexp-sum", "V6 zeros").contradicts


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("cd:relu-sum", "V6 negative scores"),
        ("cd:exp-sum", "V8 mirrored back"),
        ("cd:id-hk2-u", "V9 rotation"),
        ("cd:exp-1.05-pow", "V11 limit"),
        ("cd:relu-sum", "V12 beyond 1"),
    ],
)
def test_a_case_is_not_checked_for_labels_that_it_does_not_concern(label, name):
    assert name not in {check.name for check in checks(parse(label))}


def test_a_readout_that_is_not_linear_has_coefficients_of_a_higher_rank(monkeypatch):
    monkeypatch.setattr(parts, "read_out", lambda readout, s: s.square())
    assert check_of("cd:id", "V5 rank").run() == 16 and check_of("cd:relu", "V5 rank").run() == 16
    monkeypatch.setattr(parts, "read_out", lambda readout, s: 2 * s)
    assert holds("cd:id", "V5 rank") and not holds("cd:relu", "V5 rank")


@pytest.mark.slow
def test_the_variance_of_a_score_is_that_of_tokens_with_a_covariance(monkeypatch):
    assert holds("cd:id-b1", "V10 variance")
    monkeypatch.setattr(torch, "randn", lambda *size, sound=torch.randn, **options: 1.1 * sound(*size, **options))
    assert not holds("cd:id-b1", "V10 variance")


def test_the_check_on_mirrored_keys_fails_for_weaker_mirrors(monkeypatch):
    sound = parts.unit
    monkeypatch.setattr(parts, "unit", lambda x: 0.99 * sound(x))
    assert not holds("cd:id-hkr-u", "V8 mirrored back")


def test_the_check_on_repeated_tokens_fails_with_a_wrong_convolution_length(monkeypatch):
    check = check_of("cd:exp-sum-c", "V8 repeated token")
    monkeypatch.setattr("madbench.papers.coefficients.theorems.cases.CONV_TAPS", 1)
    assert not check.holds(check.run())


def test_without_small_random_scalars_the_zero_set_does_not_narrow(monkeypatch):
    uniform = torch.rand(2, zero_sets.PAIRS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    monkeypatch.setattr(torch, "randn", lambda *size, **options: torch.stack((uniform[0] - 0.5, 1 + uniform[1])))
    assert zero_sets.narrowing() < 0.1
