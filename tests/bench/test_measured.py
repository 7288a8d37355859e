"""bench/measured.py and bench/power.py: false verdicts and true differences of measured seeds are counted as such."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from madbench.bench import measured, power
from madbench.bench.inference import LOSS, TASKS
from madbench.errors import ConfigError
from quick_noise import QUICK_NOISE

NOISES = dict(QUICK_NOISE.columns)


def cells_about(mean: float, seeds: int, spread: float = 1.0, seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return {task: rng.normal(mean, spread, seeds) for task in TASKS}


@pytest.mark.slow
def test_tables_of_one_label_have_no_difference_and_tight_cells_hold_their_mean():
    counted = measured.simulate(cells_about(60, 30), 3, 5, NOISES, 1, np.random.default_rng(0))
    assert len(counted["cells"]) == 33 * 7 and np.mean(counted["cells"]) > 0.93
    assert len(counted["differences"]) == 32 * 7 and np.mean(counted["differences"]) > 0.93
    assert [len(counted[name]) for name in measured.COUNTED[2:]] == [1] * 8


@pytest.mark.slow
def test_drawn_values_have_the_stored_seeds_quantiles_and_that_distributions_mean():
    values = np.array([10.0, 90.0, 20.0, 30.0])
    scores = measured.table_of(dict.fromkeys(TASKS, values), ["S"], [20_000], {}, np.random.default_rng(0))
    drawn = scores[scores.column == TASKS[0]].value
    assert (drawn.min(), drawn.max()) == (pytest.approx(10, abs=0.1), pytest.approx(90, abs=0.1))
    assert drawn.mean() == pytest.approx(measured.mean_of(values), abs=0.5)
    assert drawn.quantile([1 / 3, 2 / 3]).to_numpy() == pytest.approx([20, 30], abs=1)


def test_labels_of_few_measured_seeds_are_independent():
    cells = dict.fromkeys(TASKS, np.arange(5.0))
    scores = measured.table_of(cells, ["S", "R", "R-c"], [5, 5, 5], {}, np.random.default_rng(0))
    assert scores.groupby(["label", "column"]).value.mean().nunique() == 3 * (len(TASKS) + 1)


@pytest.mark.slow
def test_planted_differences_are_counted_as_false_by_every_verb():
    labels = measured.table_labels()
    scores = measured.table_of(cells_about(60, 30), labels, [5] * len(labels), NOISES, np.random.default_rng(0))
    scores.loc[scores.label != "S", "value"] += 15
    counted = measured.nothing_of(measured.COUNTED)
    measured.read(counted, scores, labels, measured.with_average(dict.fromkeys(TASKS, 60.0)))
    for name in ("compare 1", "compare 7", "compare 32", "attribute", "mark", "marks", "ranks"):
        assert counted[name] == [True], name
    assert np.mean(counted["cells"]) < 0.1 and np.mean(counted["differences"]) < 0.1


@pytest.mark.slow
def test_marks_are_counted_for_one_row_and_for_any():
    labels = measured.table_labels()
    scores = measured.table_of(cells_about(60, 30), labels, [5] * len(labels), NOISES, np.random.default_rng(0))
    scores.loc[scores.label == "R", "value"] -= 15
    counted = measured.nothing_of(measured.COUNTED)
    measured.read(counted, scores, labels, measured.with_average(dict.fromkeys(TASKS, 60.0)))
    assert labels[0] == "S" and counted["mark"] == [False] and counted["marks"] == [True]


def test_a_disjoint_baseline_shares_no_seed_and_is_judged_by_the_seeds_that_it_lacks():
    cells = cells_about(60, 8)
    rng = np.random.default_rng(0)
    scores, truth = measured.disjoint_table_of(cells, ["S", "R", "R-c"], 3, 4, NOISES, rng)
    for task in TASKS:
        own, *rivals = ({*scores[(scores.label == x) & (scores.column == task)].value} for x in ("S", "R", "R-c"))
        assert len(own) == 3 and all(len(rival) == 4 and not rival & own for rival in rivals)
        assert truth[task] == pytest.approx(np.mean([*{*cells[task]} - own]))
    assert truth[measured.AVERAGE] == pytest.approx(np.mean([truth[task] for task in TASKS]))


@pytest.mark.slow
def test_of_disjoint_tables_every_column_is_counted_and_differences_are_rarely_found():
    counted = measured.split(cells_about(60, 8), 3, 5, NOISES, 2, np.random.default_rng(0))
    assert [len(counted[name]) for name in ("cells", "Student's", "width", "differences")] == [14, 14, 14, 2 * 32 * 7]
    assert np.mean(counted["differences"]) > 0.9
    tables = ("compare 1", "compare 7", "compare 32", "Welch 1", *measured.OF_HOLM)
    assert [len(counted[name]) for name in tables] == [2] * 7
    assert all(alone >= adjusted for alone, adjusted in zip(counted["Welch 1"], counted["Holm 1"]))


def test_widths_are_held_against_students():
    rng = np.random.default_rng(0)
    nothing_lent = {task: replace(noise, lent=0.0, surprises=1e-12, jump=0.0) for task, noise in NOISES.items()}
    scores, truth = measured.disjoint_table_of(cells_about(60, 9), ["S", "R"], 5, 4, nothing_lent, rng)
    samples = {name: of_name["S"] for name, of_name in measured.samples_of(scores).items()}
    counted = measured.nothing_of(measured.OF_DISJOINT)
    measured.read_cells(counted, {TASKS[0]: samples[TASKS[0]]}, truth)
    assert counted["width"] == [pytest.approx(1)] and counted["agreeing"] == []
    assert counted["cells"] == counted["Student's"]


@pytest.mark.slow
def test_twins_are_disjoint_groups_of_every_label_and_labels_far_apart_are_ranked_rightly(monkeypatch):
    frames, scores_of = [], measured.scores_of
    monkeypatch.setattr(measured, "scores_of", lambda *arguments: frames.append(scores_of(*arguments)) or frames[-1])
    cells = {"S": cells_about(40, 11), "R": cells_about(70, 12)}
    counted = measured.twins(cells, 3, 4, NOISES, 2, np.random.default_rng(0))
    assert {name: len(values) for name, values in counted.items()} == {"compare": 4, "marks": 2, "ranks": 2}
    assert not any(counted["ranks"]) and not any(counted["marks"])
    for scores in frames:
        own = scores[(scores.column == TASKS[0]) & scores.label.str.startswith("S ")]
        assert own.groupby("label").size().tolist() == [3, 4, 4] and own.value.is_unique


@pytest.mark.slow
def test_twins_that_differ_are_counted_as_false(monkeypatch):
    scores_of = measured.scores_of

    def planted(*arguments) -> pd.DataFrame:
        scores = scores_of(*arguments)
        scores.loc[scores.label.str.endswith("(1)"), "value"] -= 20
        return scores

    monkeypatch.setattr(measured, "scores_of", planted)
    cells = {"S": cells_about(60, 10), "R": cells_about(60, 10)}
    counted = measured.twins(cells, 5, 5, NOISES, 1, np.random.default_rng(0))
    assert counted == {"compare": [True, True], "marks": [True], "ranks": [True]}


@pytest.mark.slow
def test_losses_of_language_models_are_counted_alone_and_lower_ones_are_better():
    rng = np.random.default_rng(0)
    cells = {label: {LOSS: rng.normal(mean, 0.02, 12)} for label, mean in (("S", 2.4), ("R", 2.0))}
    counted = measured.split(cells["S"], 3, 4, {}, 1, rng)
    assert [len(counted[name]) for name in ("cells", "Student's", "differences")] == [1, 1, 32]
    counted = measured.twins(cells, 4, 4, {}, 2, rng)
    assert counted == {"compare": [False] * 4, "marks": [False] * 2, "ranks": [False] * 2}
    counted = measured.simulate(cells["R"], 3, 3, {}, 1, rng)
    assert len(counted["cells"]) == 33 and np.mean(counted["cells"]) > 0.9


def test_an_interval_holds_a_value_to_the_digits_of_its_column():
    assert measured._holds((50.0, 60.0), 60.04, TASKS[0]) and not measured._holds((50.0, 60.0), 60.06, TASKS[0])
    assert measured._holds((2.1, 2.2), 2.2004, LOSS) and not measured._holds((2.1, 2.2), 2.2006, LOSS)


def test_welchs_test_is_scipys_and_says_something_of_seeds_without_scatter():
    first, second = np.array([1.0, 2.0, 4.0]), np.array([3.0, 5.0, 5.5])
    assert measured.welch_p(first, second) == stats.ttest_ind(first, second, equal_var=False).pvalue
    assert (measured.welch_p(np.ones(3), np.ones(3)), measured.welch_p(np.ones(3), np.zeros(3))) == (1.0, 0.0)


def test_true_differences_are_those_beyond_the_standard_errors_of_all_seeds():
    cells = {"S": cells_about(50, 13), "R": cells_about(50, 13, seed=1), "R-c": cells_about(80, 13, seed=2)}
    differences = power.true_differences(cells, 6)
    names = (*TASKS, power.AVERAGE)
    assert differences.keys() == {(label, "R-c", name) for label in ("S", "R") for name in names}
    assert all(-32 < difference < -28 for difference in differences.values())


@pytest.mark.slow
def test_large_differences_are_found_by_all_tests_and_a_wrong_sign_is_not_found():
    cells = {"S": cells_about(50, 13), "R-c": cells_about(80, 13, seed=2)}
    differences = power.true_differences(cells, 6)
    arguments = (5, NOISES, 2)
    found = power.shares_found(cells, differences, *arguments, np.random.default_rng(0))
    assert found[15, 100] == dict.fromkeys(power.TESTS, 1.0)
    wrong = {pair: -difference for pair, difference in differences.items()}
    lost = power.shares_found(cells, wrong, *arguments, np.random.default_rng(0))
    assert lost[15, 100] == dict.fromkeys(power.TESTS, 0.0)


def test_no_label_with_enough_seeds_is_a_sentence(monkeypatch, tmp_path):
    frame = measured.frame_of(
        {(label, task): (np.full(3, 50.0), np.zeros(3, bool)) for label in ("S", "R") for task in TASKS}
    )
    monkeypatch.setattr(measured, "measured", lambda *_: (frame, {}))
    with pytest.raises(ConfigError, match="no label has 13 seeds of every task; the most is 3"):
        measured.measured_labels([], "evening", 13)
    with pytest.raises(ConfigError, match="label 'S': 3 seeds of every task; 5 are needed"):
        measured.measured_labels([], "evening", 5, ["S"])
    with pytest.raises(ConfigError, match="label 'X': not stored"):
        measured.measured_labels([], "evening", 3, ["X"])
    assert measured.measured_labels([], "evening", 3)[0].keys() == {"S", "R"}


@pytest.mark.parametrize("main", [measured.main, power.main])
def test_missing_folders_and_options_out_of_range_are_sentences(main, tmp_path, capsys):
    with pytest.raises(SystemExit, match="there is no such results folder"):
        main([str(tmp_path / "absent")])
    for words in (["--seeds", "0"], ["--stores", "0"], ["--least", "0"], ["--seed", "-1"]):
        with pytest.raises(SystemExit) as refused:
            main([str(tmp_path), *words])
        assert refused.value.code == 2 and capsys.readouterr().err
