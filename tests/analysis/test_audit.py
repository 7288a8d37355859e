"""The audit of columns: agreement of seeds, saturated and noisy tasks, and the tasks that it recommends."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy import stats

from madbench.analysis.audit import audit, audit_table, left_out
from madbench.suites.mad.suite import AVERAGE, MAD, MAD_TASKS
from madbench.suites.published import published_scores
from madbench.tasks import heuristic, make_setting

LABELS = ["S", "S-p", "S-c", "R", "R-p", "R-c", "R-cg-q", "G-cg-q", "R-cg-q-12o", "G-cg-q-12o"]
TRUTH = dict(zip(LABELS, np.linspace(0.4, 0.75, len(LABELS))))
"""The true accuracy of each label on a task that distinguishes all labels and that none solves."""
PLACE = {label: i for i, label in enumerate(LABELS)}


def noise(job, scale: float) -> float:
    return scale * np.random.default_rng([PLACE[job.label], job.seed, MAD_TASKS.index(job.task)]).normal()


def accuracy(job) -> float:
    """The accuracy of a job. Each task is an example of one kind of column, such as solved or noisy."""
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


@pytest.mark.slow
def test_reliability_is_high_for_a_clean_task_and_low_for_a_noisy_one(rows):
    assert rows["in_context_recall"].reliability.low > 0.95
    assert rows["memorization"].reliability.high < 0.7
    assert rows["in_context_recall"].seeds_needed == 1
    needed = rows["memorization"].seeds_needed
    assert needed is None or needed > 10


@pytest.mark.slow
def test_an_audit_counts_labels_at_the_heuristic_and_solved_labels(rows):
    assert rows["compression"].at_heuristic == 1 and rows["compression"].at_chance == 0
    assert rows["fuzzy_in_context_recall"].solved == pytest.approx(0.7)
    assert rows["in_context_recall"].solved == rows["in_context_recall"].at_heuristic == 0
    assert math.isnan(rows[AVERAGE].solved)


@pytest.mark.slow
def test_a_label_that_some_seeds_solve_is_split(grid_results):
    found = audit(grid_results(LABELS, lambda job: 0.99 if job.seed == 0 and job.label in ("S", "R") else 0.5))
    assert found[0].split == pytest.approx(0.2) and found[0].solved == 0


@pytest.mark.slow
def test_an_audit_gives_the_reason_to_leave_out_a_task(rows):
    reasons = left_out([*rows.values()])
    assert AVERAGE not in reasons and "seeds do not agree" not in reasons["compression"]
    assert {name for name, why in reasons.items() if not why} == {"in_context_recall", "selective_copying"} | (
        {"memorization"} if rows["memorization"].seeds_needed else set()
    )
    assert reasons["compression"] == "most labels are at the heuristic"
    assert reasons["fuzzy_in_context_recall"] == "most labels solve it"
    assert "In-ctx recall" in reasons["noisy_in_context_recall"]


@pytest.mark.slow
def test_an_audit_leaves_out_a_task_that_every_seed_solves(grid_results):
    rows = audit(grid_results(LABELS, lambda job: 1.0))
    assert left_out(rows) == {"in_context_recall": "most labels solve it"}
    assert rows[0].seeds_needed is None and math.isnan(rows[0].seconds_per_bit)


def test_an_average_is_not_correlated_with_its_own_tasks(rows):
    one = rows["noisy_in_context_recall"]
    assert one.nearest == "in_context_recall" and one.correlations["in_context_recall"].value > 0.9
    assert AVERAGE not in one.correlations and not rows[AVERAGE].correlations


def test_a_column_is_correlated_with_its_published_scores_and_the_published_loss(grid_results):
    published = published_scores()

    def theirs(job) -> float:
        return published[job.label][job.task] / 100

    (row,) = audit(grid_results(LABELS, theirs, tasks=["memorization"]))
    assert row.published.value == pytest.approx(1)
    assert -0.9 < row.outcome.value < 0 and row.outcome.labels == len(LABELS)


@pytest.mark.slow
def test_labels_without_published_scores_are_left_out_of_the_published_correlation(grid_results):
    (row,) = audit(grid_results([*LABELS, "S-k!"], lambda job: TRUTH.get(job.label, 0.1)))
    assert row.labels == len(LABELS) + 1 and row.published.labels == len(LABELS)


def test_the_cost_per_bit_is_higher_on_a_noisy_task(rows):
    clear, noisy = rows["in_context_recall"], rows["selective_copying"]
    assert clear.seconds == pytest.approx(10) and clear.seconds_per_bit < noisy.seconds_per_bit
    assert clear.bits == pytest.approx(-math.log2(1 - clear.reliability.value) / 2)
    assert rows[AVERAGE].seconds == pytest.approx(60)


def test_unreliable_columns_have_no_cost_per_bit_and_no_number_of_seeds(grid_results):
    """The ICC of labels that do not differ may come out as 1e-13, and the cost of a bit as 1e13 seconds."""
    table = audit_table(grid_results(LABELS, lambda job: 0.5 + noise(job, 0.1), seeds=[0, 1, 2]))
    records = table.json_rows()
    assert any(0 < record["icc"] for record in records) and all(record["icc_low"] <= 0 for record in records)
    assert {record["seeds_needed"] for record in records} == {record["seconds_per_bit"] for record in records} == {None}
    assert "A difference of two labels needs at least 3 seeds" in table.caption


def test_an_audit_of_a_single_seed_has_correlations_but_no_reliability(grid_results):
    table = audit_table(grid_results(LABELS, lambda job: TRUTH[job.label], seeds=[0]))
    (record,) = table.json_rows()
    assert record["icc"] is None and record["seeds_needed"] is None
    assert record["published"] is not None
    assert record["left_out"] == "needs 4 labels with two seeds each"
    assert f"{len(LABELS)} labels, 1 seed." in table.caption
    json.dumps(record, allow_nan=False)


def spearman(ours: dict[str, float], theirs: dict[str, float]) -> float:
    return stats.spearmanr([ours[label] for label in ours], [theirs[label] for label in ours]).statistic


@pytest.mark.slow
def test_every_audit_quantity_equals_an_independent_computation(results, rows):
    """The expected values are from SciPy and plain counts: analysis of variance, ranks, shares, bits, seeds and a
    bootstrap."""
    scores, published, theirs = results.scores, published_scores(), {}
    for task in MAD_TASKS:
        of_task, row = scores[scores.column == task], rows[task]
        seeds = {label: group.value.to_numpy() for label, group in of_task.groupby("label", sort=False)}
        means = {label: float(values.mean()) for label, values in seeds.items()}
        f = stats.f_oneway(*seeds.values()).statistic if np.ptp(list(means.values())) else 0.0
        if math.isfinite(f):  # else no seed differs from another of its label
            icc = (f - 1) / (f - 1 + 3)
            assert row.reliability.value == pytest.approx(icc)
            if row.reliability.low > 0 and icc < 1:
                assert row.seconds_per_bit == pytest.approx(10 / (-math.log2(1 - icc) / 2))
                needed = next((n for n in range(1, 10_000) if n * icc / (1 + (n - 1) * icc) >= 0.9 - 1e-9), None)
                assert row.seeds_needed == needed
        heuristic = 100 * heuristic_of(of_task, results)
        line = heuristic + 0.05 * (100 - heuristic)
        assert row.at_heuristic == pytest.approx(np.mean([mean <= line for mean in means.values()]))
        solved = {label: (values >= of_task.solved_threshold.iloc[0]).sum() for label, values in seeds.items()}
        assert row.solved == pytest.approx(np.mean([count == 3 for count in solved.values()]))
        assert row.split == pytest.approx(np.mean([0 < count < 3 for count in solved.values()]))
        theirs[task] = means
        paper = {label: published[label][task] for label in LABELS}
        assert row.published.value == pytest.approx(spearman(means, paper), abs=1e-9)
        losses = {label: published[label]["loss_l5"] for label in LABELS}
        assert row.outcome.value == pytest.approx(spearman(means, losses), abs=1e-9)
        rng = np.random.default_rng(99)
        drawn = []
        for _ in range(200):
            chosen = [LABELS[i] for i in rng.integers(len(LABELS), size=len(LABELS))]
            if len({means[x] for x in chosen}) > 1 and len({paper[x] for x in chosen}) > 1:
                drawn.append(stats.spearmanr([means[x] for x in chosen], [paper[x] for x in chosen]).statistic)
        ends = np.quantile(drawn, [0.025, 0.975])
        assert (row.published.low, row.published.high) == pytest.approx(ends, abs=0.2)
    for one, other in itertools.combinations(MAD_TASKS, 2):
        expected = spearman(theirs[one], theirs[other])
        assert rows[one].correlations[other].value == pytest.approx(expected, abs=1e-9)


def heuristic_of(scores, results) -> float:
    task = scores.column.iloc[0]
    job = next(job for row in results.rows for job in row.jobs if job.task == task)
    return heuristic(task, make_setting(task, job.setting, task))


@pytest.mark.slow
def test_labels_on_which_a_profile_was_chosen_do_not_judge_it(grid_results):
    """Five of ten labels are in @choosing. Only the other five have the published order."""
    published, chosen = published_scores(), MAD.Profile.load("evening").chosen_labels()
    own = [label for label in LABELS if label not in chosen]

    def accuracy(job) -> float:
        number = published[job.label]["memorization"] / 100
        return 0.9 - number if job.label in chosen else number

    made = grid_results(LABELS, accuracy, tasks=["memorization"], profile="evening")
    (row,) = audit(made)
    assert 4 <= len(own) < len(LABELS) and row.judged.labels == len(own)
    assert row.judged.value == pytest.approx(1) and row.published.value < 0.9
    table = audit_table(made)
    assert (
        f"chosen on the labels of @choosing. {len(LABELS) - len(own)} of these labels were among them" in table.caption
    )
    assert "Memor. +1.00" in table.notes.split("without the labels on which settings were chosen:")[1]
    assert table.json_rows()[0]["judged"] == pytest.approx(1) and table.json_rows()[0]["judged_labels"] == len(own)


@pytest.mark.slow
def test_a_profile_that_was_not_chosen_on_labels_has_no_judging_correlation(results):
    table = audit_table(results)
    assert all(record["judged"] is None for record in table.json_rows())
    assert "chosen" not in table.caption


@pytest.mark.slow
def test_the_audit_table_has_a_row_per_column_in_every_format(results):
    table = audit_table(results)
    assert [line[0] for line in table.text_rows()[1]][-1] == "MAD avg"
    assert table.to_csv().count("\n") == 8 and table.to_markdown().count("\n| ") >= 8
    assert "MAD avg" in table.to_html() and "MAD" in table.to_latex()
    assert table.keeps_columns(80)
