"""Frames for figures have the numbers, intervals, references and notes of the tables."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drawings import FIGURES
from madbench.analysis.attribution import attribute
from madbench.analysis.cells import cells_of
from madbench.analysis.figures.accuracy import difficulty_frame, score_frame
from madbench.analysis.figures.budget import budget_figure, budget_frame, pareto_front
from madbench.analysis.figures.curves import learning_frame
from madbench.analysis.figures.effects import effects_frame
from madbench.analysis.figures.files import write_frame
from madbench.analysis.quantities import column
from madbench.jobs import Record
from madbench.suites.language.columns import LOSS
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.published import published_scores
from madbench.suites.scoring import scoring_of
from references import interval_of, terms

NAN = math.nan
BASE = {"seq_len": 32, "vocab_size": 16}
HARD_SETTING = '{"seq_len": 64}'


def means(frame):
    return frame[frame.mark == "mean"]


def test_diverged_seeds_count_at_chance_and_cells_without_a_mean_name_the_reason(scores, tmp_path):
    values = {("S", "compression"): [20.0, NAN], ("R", "compression"): [NAN, NAN], ("G", "compression"): [None, None]}
    frame = score_frame(scores(values), "p")
    assert means(frame).state.tolist() == ["", "diverged", "not run"]
    assert means(frame).accuracy.tolist()[0] == 12.0 and means(frame).solved.tolist()[0] == "0/2"
    assert frame[frame.mark == "seed"].accuracy.tolist() == [20.0, 4.0, 4.0, 4.0]
    write_frame(frame, tmp_path / "mad.csv")
    assert FIGURES["scores"].read(tmp_path / "mad.csv").equals(frame)


def test_unfinished_seeds_do_not_count_in_the_scores_frame(scores):
    table = scores({("S", "compression"): [20.0, 90.0]})
    table.loc[table.seed == 1, "expected"] = 6
    (mean,) = means(score_frame(table, "p")).itertuples()
    assert (mean.accuracy, mean.n) == (20.0, 1) and math.isnan(mean.low)
    assert score_frame(table[table.seed == 1], "p").state.tolist() == ["unfinished"]


def test_the_scores_frame_has_the_intervals_of_the_table(scores):
    (mean,) = means(score_frame(scores({("S", "memorization"): [100.0] * 3}), "p")).itertuples()
    _, half = interval_of(0, [terms([100.0] * 3)])
    assert (mean.n, mean.solved, mean.high) == (3, "3/3", 100.0) and mean.low == pytest.approx(100 - half)
    (mean,) = means(score_frame(scores({("S", "memorization"): [50.0] * 3}), "p")).itertuples()
    assert (mean.n, mean.solved) == (3, "0/3")
    assert (mean.low, mean.high) == (pytest.approx(50 - half), pytest.approx(50 + half))


def test_the_mad_average_needs_all_tasks_and_leaves_out_incomplete_seeds(scores):
    values = {("S", task): [10.0 * i, 12.0 * i] for i, task in enumerate(MAD_TASKS)}
    frame = means(score_frame(scores(values), "p")).query("task == 'mad_average'")
    assert frame.accuracy.tolist() == [27.5]
    assert "mad_average" not in set(score_frame(scores({("S", "compression"): [1.0]}), "p").task)


def test_chance_heuristic_ceiling_and_published_scores_are_in_the_frame(scores):
    table = scores({("S", "compression"): [20.0], ("~x", "compression"): [20.0]}, ceiling=90.0)
    assert set(score_frame(table, "p").mark) == {"mean", "seed", "ceiling"}
    references = {"chance": {"compression": 6.25}, "heuristic": {"compression": 25.2}}
    frame = score_frame(table, "p", references, published_scores())
    assert {one.mark: one.accuracy for one in frame[frame.label == ""].itertuples()} == {
        "ceiling": 90.0,
        "chance": 6.25,
        "heuristic": 25.2,
    }
    published = frame[frame.mark == "published"]
    assert dict(zip(published.label, published.accuracy)) == {"S": 35.19}


@pytest.mark.slow
def test_the_heuristic_is_a_line_of_the_budget_figure_if_it_is_in_view(scores):
    table = scores({("S", task): [50.0, 52.0] for task in MAD_TASKS})
    costs = pd.DataFrame({"suite": "mad", "label": "S", "column": [*MAD_TASKS], "budget_ratio": 1.0})
    costs = costs.assign(mixer_parameters=1000)
    for value, is_in_view in ((51.0, True), (1.0, False)):
        frame = budget_frame(table, costs, "p", {"mad_average": value, "compression": 25.0})
        (line,) = frame[frame.label == ""].itertuples()
        assert (line.quantity, line.mean, line.n) == ("mad_average", value, 0)
        figure = budget_figure(frame)
        drawn = [list(line.get_ydata()) for axes in figure.axes for line in axes.lines]
        assert ([value, value] in drawn) == is_in_view
        assert ("Heuristic:" in " ".join(figure._supxlabel.get_text().split())) == is_in_view
        assert "Left out" not in figure._supxlabel.get_text()


@pytest.fixture
def stored():
    """``stored(rows)``: a frame of collected jobs and their records.

    A row is ``(id, label, seed, setting, rate, status, accuracies)``.
    """

    def call(rows, split="validation", name="token_accuracy"):
        collected, records = [], {}
        for run_id, label, seed, setting, rate, status, accuracies in rows:
            row = {"id": run_id, "suite": "mad", "label": label, "column": "compression", "setting": setting}
            last = accuracies[-1] if accuracies and status == "finished" else None
            collected.append(row | {"seed": seed, "learning_rate": rate, "status": status, "selection": last})
            curve = [
                {"epoch": i, "step": 10 * i, "train_loss": 2.0, f"{split}_loss": 3.0 - i, f"{split}_{name}": accuracy}
                for i, accuracy in enumerate(accuracies, 1)
            ]
            records[run_id] = Record(status, {}, curve)
        return pd.DataFrame(collected), records.__getitem__

    return call


def test_the_chosen_run_of_the_first_setting_has_a_learning_curve(stored):
    rows = [
        ("a", "S", 0, "{}", 1e-3, "finished", [0.2, 0.3]),
        ("b", "S", 0, "{}", 1e-2, "finished", [0.1, 0.5]),
        ("c", "S", 0, HARD_SETTING, 1e-2, "finished", [0.1, 0.9]),
        ("d", "S", 1, "{}", 1e-2, "missing", []),
        ("e", "S", 2, "{}", 1e-2, "diverged", [0.3]),
        ("f", "S", 2, "{}", 1e-3, "diverged", [0.4]),
    ]
    collected, record = stored(rows)
    record("b").curve.insert(1, {"epoch": 1, "step": 15, "train_loss": 1.5})  # not evaluated
    frame = learning_frame(scoring_of(MAD), collected, record, "p")
    assert list(zip(frame.id, frame.step)) == [("b", 10), ("b", 20), ("e", 10)]
    assert frame.accuracy.tolist() == [10.0, 50.0, 30.0] and frame.status.iloc[-1] == "diverged"


def test_learning_curves_of_the_published_fidelity_are_on_test_data(stored):
    frame = learning_frame(
        scoring_of(MAD), *stored([("a", "S", 0, "{}", 1, "finished", [0.2])], "test", "batch_macro_accuracy"), "p"
    )
    assert frame.accuracy.tolist() == [20.0] and frame.split.tolist() == ["test"]


def effects_of(scores):
    return effects_frame(attribute(scores), "p")


@pytest.mark.slow
def test_the_effects_frame_has_a_row_per_effect_and_per_pair(scores):
    values = {"S": [10.0, 11.0], "S-c": [40.0, 41.5], "R": [20.0, 21.0], "R-c": [51.0, 51.0]}
    frame = effects_of(scores({(label, "compression"): seeds for label, seeds in values.items()}))
    found = frame[frame.kind == "effect"]
    assert dict(zip(found.row, found.difference)) == {"base: R vs. S": 10.125, "conv: c": 30.375}
    pairs = frame[(frame.kind == "pair") & (frame.row == "conv: c")]
    assert set(zip(pairs.given, pairs.without, pairs.difference)) == {("S-c", "S", 30.25), ("R-c", "R", 30.5)}


@pytest.mark.slow
def test_the_effects_frame_has_a_row_per_significant_interaction(scores):
    values = {"S": [10.0, 10.1, 10.2], "S-c": [10.1, 10.0, 10.2], "R": [10.0, 10.2, 10.1], "R-c": [60.0, 60.1, 60.2]}
    found = {}
    for gain in (5.0, 60.0):
        values["R-c"] = [gain + 0.1 * seed for seed in range(3)]
        frame = effects_of(scores({(label, "compression"): seeds for label, seeds in values.items()}))
        found[gain] = frame[frame.kind == "interaction"].row.tolist()
    assert found == {5.0: [], 60.0: ["R/S x c"]}


def costs_of(scores, **parameters):
    return scores[["suite", "label", "column", "budget_ratio"]].assign(mixer_parameters=scores.label.map(parameters))


def test_a_label_without_a_complete_seed_has_no_mean(scores):
    table = scores({("S", "compression"): [1.0], ("R", "compression"): [2.0, NAN], ("G", "compression"): [None]})
    frame = budget_frame(table, costs_of(table, S=4000), "p")
    assert frame[frame["mean"].isna()].label.tolist() == ["G"]
    assert frame["mean"].tolist()[:2] == [1.0, 3.0]
    assert dict(zip(frame.label, frame.mixer_parameters.fillna(0))) == {"S": 4000, "R": 0, "G": 0}


def test_the_budget_frame_of_all_six_tasks_has_only_their_average(scores):
    table = scores({("S", task): [10.0 * i, None] for i, task in enumerate(MAD_TASKS)})
    costs = costs_of(table[table.column.isin(MAD_TASKS)])
    costs["mixer_parameters"] = [100.0 * MAD_TASKS.index(task) for task in costs.column]
    (row,) = budget_frame(table, costs, "p").itertuples()
    assert (row.quantity, row.mean, row.n, row.mixer_parameters) == ("mad_average", 25.0, 1, 250.0)


def test_the_budget_frame_has_the_intervals_of_the_table(scores):
    seeds = {"S": [3.0, 3.1], "R": [2.0, 2.3], "G": [2.5], "S-c": [2.9, 3.0, 3.4, 3.1, 3.0], "R-c": [2.0, NAN]}
    table = scores({(label, column): values for column in ("compression", LOSS) for label, values in seeds.items()})
    frame = budget_frame(table, costs_of(table), "p").set_index(["quantity", "label"])
    cells = cells_of(table, [column("compression"), column(LOSS)])
    for label in seeds:
        for quantity in ("compression", LOSS):
            row = frame.loc[quantity, label]
            expected = cells[label][quantity].interval
            assert (row.low, row.high) == pytest.approx(expected, nan_ok=True) and row.n == len(seeds[label])


@pytest.mark.slow
@settings(max_examples=50)
@given(st.dictionaries(st.text("SRGcgp", min_size=1), st.tuples(*[st.integers(0, 9)] * 2), min_size=1, max_size=12))
def test_the_pareto_front_has_exactly_the_undominated_labels(points):
    costs = {label: cost for label, (cost, _) in points.items()}
    values = {label: value for label, (_, value) in points.items()}
    best = {
        (cost, value)
        for cost, value in points.values()
        if not any(c <= cost and v >= value and (c, v) != (cost, value) for c, v in points.values())
    }
    assert [points[label] for label in pareto_front(costs, values)] == sorted(best)


@pytest.fixture
def collected_jobs():
    """``collected_jobs([(changes, label, accuracies by seed), ...])``: collected jobs.

    None stands for a job without a run, "diverged" for a diverged one.
    """

    def call(rows):
        jobs = []
        for changes, label, seeds in rows:
            for seed, accuracy in enumerate(seeds):
                status = {None: "missing", "diverged": "diverged"}.get(accuracy, "finished")
                value = accuracy if status == "finished" else None
                job = {"id": str(len(jobs)), "suite": "mad", "label": label, "column": "compression", "seed": seed}
                job |= {"setting": json.dumps(BASE | changes), "value": value and 100 * value, "selection": value}
                job |= {"chance": 6.25, "heuristic": 25.0}
                jobs.append(job | {"ceiling": value and 0.9, "budget_ratio": 1.0, "status": status})
        return pd.DataFrame(jobs)

    return call


def test_the_difficulty_frame_has_settings_that_differ_in_one_variable(collected_jobs):
    rows = [({}, "S", [0.5, 0.7]), ({"seq_len": 64}, "S", [0.4, 0.4]), ({"vocab_size": 32}, "S", [0.3, 0.3])]
    frame = difficulty_frame(
        scoring_of(MAD), collected_jobs([*rows, ({"seq_len": 64, "vocab_size": 32}, "S", [0.1, 0.1])]), "p"
    )
    found = {(one.variable, one.value): one.accuracy for one in frame.itertuples()}
    expected = {("seq_len", 32): 60.0, ("seq_len", 64): 40.0, ("vocab_size", 16): 60.0, ("vocab_size", 32): 30.0}
    assert found == pytest.approx(expected)


def test_the_difficulty_frame_omits_incomplete_seeds_and_counts_diverged_seeds_at_chance(collected_jobs):
    rows = [({}, "S", [0.5, None]), ({"seq_len": 64}, "S", [0.5, "diverged"]), ({"seq_len": 128}, "S", [0.4])]
    frame = difficulty_frame(scoring_of(MAD), collected_jobs(rows), "p")
    assert list(zip(frame.value, frame.n, frame.accuracy)) == [(32.0, 1, 50.0), (64.0, 2, 28.125), (128.0, 1, 40.0)]


def test_the_difficulty_frame_is_empty_if_no_setting_varies(collected_jobs):
    assert difficulty_frame(scoring_of(MAD), collected_jobs([({}, "S", [0.5]), ({}, "R", [0.5])]), "p").empty
    assert difficulty_frame(
        scoring_of(MAD), collected_jobs([({}, "S", [0.5]), ({"seq_len": 64}, "S", [None])]), "p"
    ).empty
