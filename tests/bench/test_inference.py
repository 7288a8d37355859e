"""bench/inference.py: its stores are those that it says, and what the verbs say of them holds as often as they say."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from madbench.analysis.findings import findings
from madbench.analysis.samples import samples_of
from madbench.bench import inference as bench
from madbench.suites.language.suite import LOSS
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD_TASKS

STORES = 3
LEAST_COVERED = 0.93
MOST_FALSE = 0.05


@pytest.mark.slow
@pytest.mark.parametrize("kind", bench.KINDS)
def test_a_store_has_the_means_that_are_said_to_be_true(kind):
    truth = bench.truth(kind)
    fails_rarely = kind in ("bimodal 0.95", "mixed tasks", "unlike labels")  # so that many seeds are a fair sample
    samples = samples_of(bench.store(kind, 400 if fails_rarely else 100, np.random.default_rng(0)))
    assert set(samples) == {*MAD_TASKS, MAD_AVERAGE, LOSS}
    far = [
        abs(sample.mean - truth[label, name]) / (sample.values.std() / math.sqrt(sample.n))
        for name, of_column in samples.items()
        for label, sample in of_column.items()
    ]
    assert len(far) == 8 * len(bench.LABELS) and np.mean(np.array(far) > 2) < 0.1 and max(far) < 5


@pytest.mark.slow
def test_where_no_run_diverged_the_true_mean_is_of_those_that_do_not():
    every, trained = bench.truth("diverging 0.2"), bench.truth("diverging 0.2", with_diverged=False)
    case = (bench.LABELS[0], MAD_TASKS[0])
    assert trained[case] == pytest.approx(60, abs=0.1)
    assert every[case] == pytest.approx(0.8 * 60 + 0.2 * bench.CHANCE, abs=0.1)
    outcome, scores = bench.Outcome("Gaussian", 5), bench.store("Gaussian", 5, np.random.default_rng(0))
    bench._add_cells(outcome, scores, dict.fromkeys(every, 0.0), bench.truth("Gaussian"))
    assert outcome.cells.share > 0.8


def test_settings_share_their_seeds_noise():
    rng = np.random.default_rng(0)
    spreads = [bench.of_settings(correlation)(rng, (20_000,))[0].std() for correlation in (0.0, 0.5)]
    assert spreads == pytest.approx([4 / 2, 4 * (0.5 + 0.5 / 4) ** 0.5], rel=0.05)


@pytest.mark.slow
def test_a_verdict_is_false_where_the_true_gain_is_on_the_line_or_on_the_other_side_of_it():
    truth = bench.truth("Gaussian")
    found = {
        one.claim.name: one
        for one in findings(bench.store("Gaussian", 3, np.random.default_rng(0)))
        if one.quantity != LOSS
    }
    supported, contradicted = (
        {name: replace(one, verdict=verdict) for name, one in found.items()}
        for verdict in ("supported", "contradicted")
    )
    assert bench.is_false(supported["conv"], truth) and bench.is_false(contradicted["conv"], truth)
    assert not bench.is_false(supported["softmax"], truth) and bench.is_false(contradicted["softmax"], truth)
    assert not bench.is_false(supported["clean-recall"], truth) and bench.is_false(supported["lag"], truth)
    assert not bench.is_false(contradicted["lag"], truth)
    assert not bench.is_false(replace(found["conv"], verdict="not enough data"), truth)
    gained = truth | {(label, MAD_AVERAGE): 70.0 for label in ("R-cg-q-12o", "G-cg-q-12o")}
    assert not bench.is_false(supported["conv"], gained) and bench.is_false(contradicted["conv"], gained)


@pytest.mark.slow
def test_the_table_has_a_row_a_kind_and_number_of_seeds(capsys):
    bench.main(["--stores", "1", "--seeds", "2", "3", "--kinds", "Gaussian"])
    heading, rule, *rows = capsys.readouterr().out.splitlines()
    assert heading.count("|") == rule.count("|") and [row.split("|")[2].strip() for row in rows] == ["2", "3"]


CASES = [*((kind, 3) for kind in bench.KINDS), ("bimodal 0.8", 10), ("Gaussian", 2)]


@pytest.mark.slow
@pytest.mark.parametrize("kind, seeds", CASES)
def test_what_the_verbs_say_of_simulated_stores_holds_as_often_as_they_say(kind, seeds):
    simulated = bench.simulate(kind, seeds, STORES)
    cells, marks, tables = simulated.cells, simulated.marks, simulated.marked_tables
    assert cells.share >= stats.binom.ppf(0.001, cells.total // 2, LEAST_COVERED) / (cells.total // 2)
    columns = 8 * STORES  # the labels of a column share the baseline
    assert simulated.differences.share >= stats.binom.ppf(0.001, columns, LEAST_COVERED) / columns
    verdicts = {name: getattr(simulated, name) for name in ("compare", "attribute", "findings")}
    most = stats.binom.ppf(0.999, STORES, MOST_FALSE) / STORES
    assert {name: counts.share for name, counts in verdicts.items() if counts.share > most} == {}
    assert marks.share <= stats.binom.ppf(0.999, marks.total, MOST_FALSE) / marks.total
    assert tables.share <= stats.binom.ppf(0.999, tables.total, MOST_FALSE) / tables.total
    assert seeds > 2 or not any(counts.held for counts in (*verdicts.values(), tables))
