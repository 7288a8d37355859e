from __future__ import annotations

import json
import math

import numpy as np
import pytest

from madbench.analysis.audit import audit, audit_table, left_out
from madbench.suites.mad.suite import AVERAGE, MAD_TASKS
from madbench.suites.published import published_scores

LABELS = ["S", "S-p", "S-c", "R", "R-p", "R-c", "R-cg-q", "G-cg-q", "R-cg-q-12o", "G-cg-q-12o"]
TRUTH = dict(zip(LABELS, np.linspace(0.4, 0.75, len(LABELS))))
"""The accuracy of a label on a task that tells all apart and that none solves."""
PLACE = {label: i for i, label in enumerate(LABELS)}


def noise(job, scale: float) -> float:
    return scale * np.random.default_rng([PLACE[job.label], job.seed, MAD_TASKS.index(job.task)]).normal()


def accuracy(job) -> float:
    """Of six kinds of tasks; by name what each is."""
    truth, place = TRUTH[job.label], PLACE[job.label]
    return {
        "compression": 0.19 + noise(job, 0.002),  # what the commonest answer gives
        "fuzzy_in_context_recall": 0.995 if place > 2 else 0.5,  # solved by seven of ten
        "in_context_recall": truth + noise(job, 0.005),
        "memorization": 0.5 + noise(job, 0.1),  # only noise
        "noisy_in_context_recall": truth + noise(job, 0.01),  # the order of in_context_recall
        "selective_copying": 0.4 + 0.05 * ((7 * place) % 10) + noise(job, 0.02) + 0.2 * (place == 0 and job.seed == 0),
    }[job.task]


@pytest.fixture(scope="module")
def results(shared_grid_results):
    return shared_grid_results(LABELS, accuracy, tasks=list(MAD_TASKS), seeds=[0, 1, 2])


@pytest.fixture(scope="module")
def rows(results):
    return {row.column: row for row in audit(results)}


def test_seeds_agree_where_a_task_tells_labels_apart_and_do_not_where_it_is_noise(rows):
    assert rows["in_context_recall"].reliability.low > 0.95
    assert rows["memorization"].reliability.high < 0.7
    assert rows["in_context_recall"].seeds_needed == 1
    needed = rows["memorization"].seeds_needed
    assert needed is None or needed > 10


def test_shares_count_the_labels_at_a_heuristic_and_those_that_every_seed_solves(rows):
    assert rows["compression"].at_heuristic == 1 and rows["compression"].at_chance == 0
    assert rows["fuzzy_in_context_recall"].solved == pytest.approx(0.7)
    assert rows["in_context_recall"].solved == rows["in_context_recall"].at_heuristic == 0
    assert math.isnan(rows[AVERAGE].solved)


def test_a_label_that_some_seeds_solve_is_split(grid_results):
    found = audit(grid_results(LABELS, lambda job: 0.99 if job.seed == 0 and job.label in ("S", "R") else 0.5))
    assert found[0].split == pytest.approx(0.2) and found[0].solved == 0


def test_a_study_leaves_out_what_is_level_or_noise_and_the_dearer_of_two_with_one_order(rows):
    reasons = left_out([*rows.values()])
    assert AVERAGE not in reasons and "seeds do not agree" not in reasons["compression"]
    assert {name for name, why in reasons.items() if not why} == {"in_context_recall", "selective_copying"} | (
        {"memorization"} if rows["memorization"].seeds_needed else set()
    )
    assert reasons["compression"] == "most labels are at the heuristic"
    assert reasons["fuzzy_in_context_recall"] == "most labels solve it"
    assert "In-ctx recall" in reasons["noisy_in_context_recall"]


def test_a_task_that_all_seeds_of_all_labels_solve_alike_is_left_out_as_solved(grid_results):
    rows = audit(grid_results(LABELS, lambda job: 1.0))
    assert left_out(rows) == {"in_context_recall": "most labels solve it"}
    assert rows[0].seeds_needed is None and math.isnan(rows[0].seconds_per_bit)


def test_columns_are_correlated_with_each_other_but_not_with_their_own_parts(rows):
    one = rows["noisy_in_context_recall"]
    assert one.nearest == "in_context_recall" and one.correlations["in_context_recall"].value > 0.9
    assert AVERAGE not in one.correlations and not rows[AVERAGE].correlations


def test_a_column_is_held_against_its_published_one_and_the_published_loss(grid_results):
    published = published_scores()

    def theirs(job) -> float:
        return published[job.label][job.task] / 100

    (row,) = audit(grid_results(LABELS, theirs, tasks=["memorization"]))
    assert row.published.value == pytest.approx(1)
    assert -0.9 < row.outcome.value < 0 and row.outcome.labels == len(LABELS)


def test_labels_that_no_paper_has_are_left_out_of_the_published_correlation(grid_results):
    (row,) = audit(grid_results([*LABELS, "S-k!"], lambda job: TRUTH.get(job.label, 0.1)))
    assert row.labels == len(LABELS) + 1 and row.published.labels == len(LABELS)


def test_a_bit_costs_more_where_a_run_says_less(rows):
    clear, noisy = rows["in_context_recall"], rows["selective_copying"]
    assert clear.seconds == pytest.approx(10) and clear.seconds_per_bit < noisy.seconds_per_bit
    assert clear.bits == pytest.approx(-math.log2(1 - clear.reliability.value) / 2)
    assert rows[AVERAGE].seconds == pytest.approx(60)


def test_a_single_seed_has_correlations_and_nothing_that_needs_two(grid_results):
    table = audit_table(grid_results(LABELS, lambda job: TRUTH[job.label], seeds=[0]))
    (record,) = table.records()
    assert record["icc"] is None and record["seeds_needed"] is None
    assert record["published"] is not None
    assert record["left_out"] == "needs 4 labels and two seeds"
    json.dumps(record, allow_nan=False)


def test_the_table_has_a_row_a_column_in_every_format(results):
    table = audit_table(results)
    assert [line[0] for line in table.text_rows()[1]][-1] == "MAD avg"
    assert table.to_csv().count("\n") == 8 and table.to_markdown().count("\n| ") >= 8
    assert "MAD avg" in table.to_html() and "MAD" in table.to_latex()
    assert table.keeps_columns(80)
