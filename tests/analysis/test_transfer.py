"""The agreement of the order of labels under one profile with that under another."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest
from scipy import stats

from madbench.analysis.comparison import comparison_table
from madbench.analysis.transfer import transfer, transfer_table
from madbench.errors import StoreError

LABELS = ["S", "S-p", "S-c", "R", "R-c", "R-cg-q"]
ACCURACIES_HERE = dict(zip(LABELS, [0.36, 0.51, 0.66, 0.81, 0.96, 0.965]))
ACCURACIES_THERE = ACCURACIES_HERE | {"S": 0.75}
"""Accuracies under the other profile: S is above S-p and S-c, unlike here. The other labels are as here."""


@pytest.fixture(scope="module")
def both_results(shared_grid_results):
    """Results under two profiles in one store. The seeds of a label differ by 0.01 or 0.02 points."""

    def of(truth):
        return lambda job: (
            truth[job.label] + 0.0001 * np.random.default_rng([LABELS.index(job.label), job.seed]).normal()
        )

    return (
        shared_grid_results(LABELS, of(ACCURACIES_HERE)),
        shared_grid_results(LABELS, of(ACCURACIES_THERE), profile="evening", seeds=[0, 1]),
    )


@pytest.mark.slow
def test_transfer_has_spearmans_correlation_and_the_difference_of_each_pair(both_results):
    (row,) = transfer(*both_results)
    here, there = (results.scores.groupby("label", sort=False).value.mean() for results in both_results)
    assert row.order.value == pytest.approx(stats.spearmanr(here[LABELS], there[LABELS]).statistic)
    assert row.seeds == (3, 2) and len(row.pairs) == 15
    counted = {frozenset((pair.label, pair.other)): pair for pair in row.pairs}
    for one, other in itertools.combinations(LABELS, 2):
        pair = counted[frozenset((one, other))]
        assert pair.here == pytest.approx(abs(here[one] - here[other])) and here[pair.label] >= here[pair.other]
        assert pair.there == pytest.approx(there[pair.label] - there[pair.other])


@pytest.mark.slow
def test_significant_pairs_hold_or_are_reversed_under_the_other_profile(both_results):
    (row,) = transfer(*both_results)
    assert {(pair.label, pair.other) for pair in row.reversed_pairs} == {("S-p", "S"), ("S-c", "S")}
    undecided = [pair for pair in row.pairs if not pair.is_decided]
    assert {(pair.label, pair.other) for pair in undecided} <= {("R-cg-q", "R-c"), ("R-c", "R-cg-q")}
    assert len(row.decided_pairs) == len(row.pairs) - len(undecided)


def test_pairs_of_a_transfer_have_the_p_value_of_a_comparison(both_results, grid_results):
    """Two labels have one test, so Holm's adjustment equals that of the comparison."""
    here = dataclasses.replace(both_results[0], rows=both_results[0].rows[:2])
    (row,) = transfer(here, both_results[1])
    (compared,) = comparison_table("S", ["S-p"], here.scores).rows
    assert len(row.pairs) == 1 and row.pairs[0].p_holm == compared.p_holm
    assert np.isnan(row.order.value)  # of two labels


def test_two_seeds_decide_no_pair_of_a_transfer(both_results):
    (row,) = transfer(both_results[1], both_results[0])
    assert not row.decided_pairs and row.order.value > 0


def test_the_table_counts_pairs_and_names_those_that_are_reversed(both_results):
    table = transfer_table(*both_results, "evening")
    assert table.lines[0][3:] == [
        "3:2",
        "15",
        str(len(table.rows[0].decided_pairs)),
        str(len(table.rows[0].decided_pairs) - 2),
        "2",
    ]
    (record,) = table.json_rows()
    assert record["reversed_pairs"] == "S-c > S, S-p > S" and record["differ"] == record["hold"] + 2
    assert "S-c above S (+30.0 here, −9.0 there)" in table.notes and "evening" in table.caption
    assert table.keeps_columns(80)


def test_a_transfer_without_common_labels_is_an_error(both_results, grid_results):
    other = grid_results(["G", "G-c"], profile="evening")
    with pytest.raises(
        StoreError, match="no two labels have a complete seed of the same column both here and under evening"
    ):
        transfer_table(both_results[0], other, "evening")
