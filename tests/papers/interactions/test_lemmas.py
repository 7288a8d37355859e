"""The lemmas and remarks of the paper on interactions hold, and their checks fail for planted faults."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from madbench.labels import parse
from madbench.papers.interactions.theorems import checks as theorems
from madbench.papers.interactions.theorems import lemmas

GROUPS = [getattr(lemmas, f"of_{group}") for group in ("waves", "descent", "rank", "features", "cost")]
GROUPS += [functools.partial(lemmas.of_triples, has_all_pairs) for has_all_pairs in (False, True)]
NAMES = dict.fromkeys(check.name for group in GROUPS for check in group())


def holds(name):
    check = {check.name: check for group in GROUPS for check in group()}[name]
    return check.holds(check.run())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_every_lemma_holds(name):
    assert holds(name)


def test_every_lemma_is_a_check_of_a_label():
    checks = [
        check.name for label in ("hfa:C1", "hfa:C3", "ha:C3", "ha:C3a", "hfa:2") for check in theorems(parse(label))
    ]
    assert {*NAMES} <= {*checks}


def test_the_diagonal_lemma_fails_with_shifted_effects(monkeypatch):
    sound = lemmas.wave_couplings
    monkeypatch.setattr(lemmas, "wave_couplings", lambda effect: sound(np.roll(effect, 1)))
    assert not holds("diagonal")


def test_the_window_lemma_fails_with_a_wider_window(monkeypatch):
    monkeypatch.setattr(lemmas, "ring", lambda n, sound=lemmas.ring: sound(n) - 1)
    assert not holds("window")


def test_the_lemma_on_sinusoids_fails_with_scaled_positions(monkeypatch):
    monkeypatch.setattr(lemmas, "sinusoids", lambda n, sound=lemmas.sinusoids: 1.01 * sound(n))
    assert not holds("sinusoids")


def test_a_share_that_falls_more_slowly_is_not_exponential(monkeypatch):
    monkeypatch.setattr(lemmas, "deficient", lambda samples: 1 / samples)
    assert not holds("exponential")


@pytest.mark.slow
def test_few_samples_are_rank_deficient_and_many_are_not():
    assert lemmas.deficient(2) == 1.0 and lemmas.deficient(40) < 1e-3


def test_the_lemma_on_shared_slots_fails_for_asymmetric_effects(monkeypatch):
    assert lemmas.shared_slots(3) < 1e-12
    sound = lemmas._factors
    monkeypatch.setattr(lemmas, "_factors", lambda effects: sound(np.tril(effects) * [[[1.0, 1.0, 0.5, 2.0]]]))
    assert not holds("shared slots")


def test_ordered_pairs_fail_only_with_repeated_symbols_at_several_lengths():
    assert max(lemmas.ordered_error([3]), lemmas.ordered_error([2, 3], has_repeats=False)) < 1e-12
    assert lemmas.ordered_error([2, 3]) > 0.1


def test_products_of_eight_scores_cost_more_than_the_caption_says(monkeypatch):
    assert holds("extra compute")
    monkeypatch.setattr(lemmas, "TABLE2_LABELS", ("hfa:8",))
    assert not holds("extra compute")


def test_the_papers_parameter_counts_of_couplings_are_contradicted():
    checks = {check.name: check for check in lemmas.of_features()}
    printed = checks["factored couplings"], checks["couplings of symbols"]
    assert all(check.contradicts and check.run() > 4 for check in printed)
    assert "5.0e+10" in printed[0].statement and "2.7e+11" in printed[1].statement
    reading = checks["couplings of coordinates"]
    assert "1,555,224 and 8,294,400" in reading.statement and reading.run() < 0.2
    assert holds("couplings of a difference")


def test_concatenated_coordinates_represent_a_row_but_no_diagonal(monkeypatch):
    assert holds("coordinates side by side")
    monkeypatch.setattr(lemmas.np, "divmod", lambda places, cells: (places % cells, 0 * places))
    assert not holds("coordinates side by side")
