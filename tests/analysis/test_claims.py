"""Claims of papers: their pairs, thresholds, published gains, and errors of invalid claims."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest

from hypermlp_claims import BY_NAME, CLAIMS, REFERENCE
from madbench.analysis import findings as core
from madbench.analysis.claims import claims_by_paper, claims_on, load_claims
from madbench.analysis.claims.thresholds import claim_threshold, published_gain
from madbench.analysis.findings import findings_by_paper
from madbench.analysis.findings_table import findings_table
from madbench.labels import differing_factors, parse
from madbench.report.tables import page_claims
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS
from score_frames import frame_of_losses, frame_of_scores

RIVALS = {"conv": ("conv",), "RoPE": ("rope",), "GLU": ("base",)}


def gain(given: str, without: str, quantity: str = MAD_AVERAGE) -> float:
    return REFERENCE.gains[given][quantity] - REFERENCE.gains[without][quantity]


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_pairs_of_a_claim_differ_only_in_its_factors_and_are_in_table_1(claim):
    differing = [set(differing_factors(parse(given), parse(without))) for given, without in claim.pairs]
    assert set().union(*differing) == set(claim.factors)
    assert claim.judges == "every pair" or all(of_pair == set(claim.factors) for of_pair in differing)
    for factor, pairs in claim.rivals.items():
        assert len(pairs) == len(claim.pairs)
        assert {differing_factors(parse(given), parse(without)) for given, without in pairs} == {RIVALS[factor]}
    assert {label for pair in claim.pairs for label in pair} <= set(REFERENCE.gains)
    assert len(claim.title) <= 32


def test_names_are_unique_and_every_task_has_its_prediction():
    assert len(BY_NAME) == len(CLAIMS)
    predicted = {claim.quantities[0]: claim.expects for claim in CLAIMS if claim.group == "Appendix I.3"}
    assert set(predicted) == set(MAD_TASKS)
    assert {task for task, expects in predicted.items() if expects == "no gain"} == {
        "in_context_recall",
        "memorization",
    }


def test_published_gains_equal_the_numbers_in_the_papers_text():
    every = {name: range(len(claim.pairs)) for name, claim in BY_NAME.items()}
    assert published_gain(BY_NAME["mixing"], MAD_AVERAGE, [0]) == pytest.approx(14.23)
    assert published_gain(BY_NAME["mixing"], LOSS, [0]) == pytest.approx(3.0828 - 2.9956)
    assert published_gain(BY_NAME["lag"], MAD_AVERAGE, [0]) == pytest.approx(81.82 - 46.27)
    assert published_gain(BY_NAME["both-1"], MAD_AVERAGE, [0]) == pytest.approx(81.12 - 77.77)
    assert published_gain(BY_NAME["softmax"], MAD_AVERAGE, [0]) == pytest.approx(80.50 - 80.15)
    over_rope = (14.23 + 11.73) / 2 - ((81.01 - 74.90) + (81.12 - 74.77)) / 2
    assert published_gain(BY_NAME["dominant"], MAD_AVERAGE, every["dominant"]) == pytest.approx(over_rope)


def test_published_gains_contradict_the_paper_if_the_note_of_a_claim_states_it():
    assert gain("R", "S") == pytest.approx(-6.38)
    assert min(gain("S-p", "S"), gain("S-c", "S")) > 21 > gain(*BY_NAME["mixing"].pairs[0])
    assert REFERENCE.gains["R-2!"][MAD_AVERAGE] == 80.16 and parse("R-2!").layout == "position"
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
    noisy = [REFERENCE.gains[label]["noisy_in_context_recall"] for pair in BY_NAME["mixing"].pairs for label in pair]
    assert set(noisy) == {99.99}


def test_claim_thresholds_are_zero_a_margin_or_half_the_published_gain():
    means = {label: row[MAD_AVERAGE] for label, row in REFERENCE.gains.items()}
    lines = {name: claim_threshold(claim, MAD_AVERAGE, [0], means) for name, claim in BY_NAME.items()}
    assert REFERENCE.margin(MAD_AVERAGE) == REFERENCE.margin("compression") == pytest.approx(14.23 / 4)
    assert lines["conv"] == lines["both-1"] == 0
    assert lines["softmax"] == lines["glu"] == -REFERENCE.margin(MAD_AVERAGE)
    assert lines["mixing"] == pytest.approx(14.23 / 2) and lines["lag"] == pytest.approx((81.82 - 46.27) / 2)
    assert claim_threshold(BY_NAME["memorization"], "memorization", [0], {}) == REFERENCE.margin("memorization")


def test_claim_thresholds_on_losses_scale_with_the_stored_losses():
    softmax = BY_NAME["softmax"]
    published = -REFERENCE.gains["S-pc"][LOSS]
    assert claim_threshold(softmax, LOSS, [0], {"S-pc": published}) == -REFERENCE.margin(LOSS)
    assert claim_threshold(softmax, LOSS, [0], {"S-pc": published / 3}) == pytest.approx(-REFERENCE.margin(LOSS) / 3)
    assert claim_threshold(softmax, LOSS, [0], {}) == -REFERENCE.margin(LOSS)
    assert BY_NAME["glu"].expectation(LOSS) == "gain" and claim_threshold(BY_NAME["glu"], LOSS, [0], {}) == 0


def test_the_threshold_of_a_claim_on_steps_is_half_the_published_gain():
    earlier = BY_NAME["earlier"]
    (name,) = earlier.quantities
    gain = published_gain(earlier, name, [0])
    assert gain > 0 and gain % 500 == 0
    assert claim_threshold(earlier, name, [0], {}) == pytest.approx(gain / 2)


def test_weights_of_a_gain_sum_to_zero_and_name_each_label_once():
    for claim in CLAIMS:
        for terms in claim.gains(range(len(claim.pairs)), MAD_AVERAGE).values():
            assert sum(weight for weight, _ in terms) == pytest.approx(0)
            assert len({label for _, label in terms}) == len(terms)


def test_a_claim_on_every_pair_has_one_gain_per_pair():
    headline = BY_NAME["headline"]
    assert [*headline.gains([0, 3], MAD_AVERAGE)] == ["R-cg-q-12o - S-pc", "G-cg-q-12o - S-g-q"]
    worst = min(gain(*pair) for pair in headline.pairs)
    assert published_gain(headline, MAD_AVERAGE, range(4)) == pytest.approx(worst)


@pytest.mark.parametrize("paper", ["hypermlp", "interactions", "talk"])
def test_every_paper_with_claims_is_found_by_its_name(paper):
    assert load_claims(paper)


def test_claims_of_a_paper_that_retells_another_use_the_numbers_of_the_other():
    assert list(claims_by_paper()) == ["hypermlp", "interactions"]
    assert {claim.reference.paper for claim in load_claims("talk")} == {"hypermlp"}
    assert {claim.published_by for claim in CLAIMS} == {"hypermlp"}


def test_the_default_claims_are_of_papers_with_a_stored_pair():
    assert list(claims_on(["R-12o!", "R-12!", "ha:3"])) == ["hypermlp"]
    assert list(claims_on(["ha:3", "S", "R-12!"])) == ["interactions"]
    assert list(claims_on(["S", "S-p"])) == list(claims_on([])) == list(claims_by_paper())


def test_the_correction_for_many_claims_stays_within_a_paper():
    tasks = frame_of_scores({"R-12o!": [57.0, 59.0, 55.0], "R-12!": [50.0, 54.0, 51.0]}, MAD_TASKS)
    losses = frame_of_losses({"ha:3": [3.0, 3.02, 3.01], "S": [3.02, 3.05, 3.03]}, column="perplexity")
    scores = pd.concat([tasks, losses], ignore_index=True)
    both = findings_by_paper(scores, claims_by_paper())
    for paper, claims in claims_by_paper().items():
        alone = core.findings(scores, claims=claims)
        assert [repr(replace(row, paper="")) for row in both if row.paper == paper] == [*map(repr, alone)]
    tested = {row.paper: row.tested for row in both if row.pairs}
    assert tested == {"hypermlp": 1, "interactions": 1}
    table = findings_table(both)
    assert [line[0] for line in table.text_rows()[1] if line[0].startswith("Paper")] == [
        "Paper hypermlp",
        "Paper interactions",
    ]
    assert "Holm-corrected for 1 test (hypermlp) and 1 test (interactions)." in table.notes
    assert {record["paper"] for record in table.json_rows()} == set(tested)


def test_a_report_has_one_heading_per_paper_and_one_id_per_claim():
    own = replace(BY_NAME["lag"], published_by="")
    found = findings_by_paper(None, {"hypermlp": CLAIMS, "other": [own]})
    claims = page_claims(findings_table(found))
    assert [claim.group for claim in claims if claim.group.startswith("Paper")] == [
        "Paper hypermlp, Main claims: MAD avg",
        "Paper other, Main claims: MAD avg",
    ]
    assert len({claim.id for claim in claims}) == len(claims) and claims[-1].id == "other-lag"
