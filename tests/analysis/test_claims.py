from __future__ import annotations

import pytest
from madbench.analysis.claim_tests import published_gain, published_gains

from madbench.analysis.claims import CLAIMS
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.labels import diff, parse
from madbench.tasks import MAD_TASKS

BY_NAME = {claim.name: claim for claim in CLAIMS}
RIVALS = {"conv": ("conv",), "RoPE": ("rope",), "GLU": ("base",)}


def gain(given: str, without: str, quantity: str = MAD_AVERAGE) -> float:
    return published_gains()[given][quantity] - published_gains()[without][quantity]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_a_pair_differs_in_the_stated_factors_alone_and_is_in_the_papers_table(claim):
    for given, without in claim.pairs:
        assert diff(parse(given), parse(without)) == claim.factors
    for factor, pairs in claim.rivals.items():
        assert len(pairs) == len(claim.pairs)
        assert {diff(parse(given), parse(without)) for given, without in pairs} == {RIVALS[factor]}
    assert {label for pair in claim.pairs for label in pair} <= set(published_gains())
    assert len(claim.title) <= 32


def test_names_are_unique_and_every_task_has_its_prediction():
    assert len(BY_NAME) == len(CLAIMS)
    predicted = {claim.quantities[0]: claim.expects for claim in CLAIMS if len(claim.quantities) == 1}
    assert set(predicted) == set(MAD_TASKS)
    assert {task for task, expects in predicted.items() if expects == "no gain"} == {
        "in_context_recall",
        "memorization",
    }


def test_the_published_gains_are_those_that_the_text_names():
    every = {name: range(len(claim.pairs)) for name, claim in BY_NAME.items()}
    assert published_gain(BY_NAME["mixing"], MAD_AVERAGE, [0]) == pytest.approx(14.23)
    assert published_gain(BY_NAME["mixing"], LOSS, [0]) == pytest.approx(3.0828 - 2.9956)
    assert published_gain(BY_NAME["lag"], MAD_AVERAGE, [0]) == pytest.approx(81.82 - 46.27)
    assert published_gain(BY_NAME["both-1"], MAD_AVERAGE, [0]) == pytest.approx(81.12 - 77.77)
    assert published_gain(BY_NAME["softmax"], MAD_AVERAGE, [0]) == pytest.approx(80.50 - 80.15)
    over_rope = (14.23 + 11.73) / 2 - ((81.01 - 74.90) + (81.12 - 74.77)) / 2
    assert published_gain(BY_NAME["dominant"], MAD_AVERAGE, every["dominant"]) == pytest.approx(over_rope)


def test_where_a_note_says_that_the_table_is_against_the_text_it_is():
    assert gain("R", "S") == pytest.approx(-6.38)
    assert min(gain("S-p", "S"), gain("S-c", "S")) > 21 > gain(*BY_NAME["mixing"].pairs[0])
    assert published_gains()["R-2!"][MAD_AVERAGE] == 80.16 and parse("R-2!").layout == "position"
    for quantity in (MAD_AVERAGE, LOSS):
        s, r = (gain(*pair, quantity) for pair in BY_NAME["rank"].pairs)
        assert s > 0 > r
    of_both = [task for task in MAD_TASKS if all(gain(*pair, task) > 1 for pair in BY_NAME["rank"].pairs)]
    assert of_both == ["compression"]
    assert gain("G-cg-q-12o", "R-cg-q-12o") == pytest.approx(0.11)
    assert gain("R-12o!", "G-12o!") == pytest.approx(3.30)
    assert all(gain(*pair, LOSS) > 0 for pair in BY_NAME["glu"].pairs)
    assert gain("S-pc", "R-g-q-12o", "memorization") > 0
    assert [round(gain(*pair, "memorization"), 1) for pair in BY_NAME["memorization"].pairs] == [17.3, 9.3]
    noisy = [published_gains()[label]["noisy_in_context_recall"] for pair in BY_NAME["mixing"].pairs for label in pair]
    assert set(noisy) == {99.99}
