"""The choice of the best run of each task setting, and scores as means over task settings."""

from __future__ import annotations

import csv
import math
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from madbench.analysis.tables import result_table
from madbench.config import PAPERS
from madbench.jobs import Job, Record
from madbench.labels.names import DisplayNames, using_names
from madbench.store.runs import Store
from madbench.suites.code import RunCode
from madbench.suites.code_marks import CodeMarks
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import AVERAGE as MAD_AVERAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.outcomes import JobOutcome, budget_sentences
from madbench.suites.protocol import Protocol
from madbench.suites.published import published_scores
from madbench.suites.scoring import COLUMNS, RATES_NOTE, mean_over, scoring_of
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job

RUN = {
    "suite": "mad",
    "label": "S",
    "column": "compression",
    "setting": "a",
    "chance": 6.25,
    "heuristic": 25.0,
    "seed": 0,
    "status": "finished",
    "accuracy": 0.5,
    "selection_accuracy": 0.5,
    "ceiling": 1.0,
    "budget_ratio": 1.0,
}
"""One finished run as ``collect`` returns it, with accuracies as in its record."""

mad_scores, setting_scores = scoring_of(MAD).scores_of, scoring_of(MAD).setting_scores


def frame(*changes: dict) -> pd.DataFrame:
    runs = pd.DataFrame([RUN | change for change in changes])
    return runs.assign(value=100 * runs.accuracy.astype(float), selection=runs.selection_accuracy)


def collect(jobs: list[Job], store: Store) -> pd.DataFrame:
    records = store.records(job.id for job in jobs)
    done = {name: record for name, record in records.items() if record.status != "failed"}
    return scoring_of(MAD).collect([JobOutcome(job.label, job, done.get(job.id)) for job in jobs])


def unfinished_run(status: str, **changes) -> dict:
    return {"status": status, "accuracy": None, "selection_accuracy": None, "ceiling": None} | changes


def one(table: pd.DataFrame) -> pd.Series:
    assert len(table) == 1
    return table.iloc[0]


def test_the_best_run_of_a_setting_is_chosen_by_selection_accuracy_not_by_accuracy():
    collected = frame(
        {"accuracy": 0.9, "selection_accuracy": 0.1},
        {"accuracy": 0.3, "selection_accuracy": 0.8},
        {"accuracy": 0.6, "selection_accuracy": 0.7},
    )
    assert one(mad_scores(collected)).value == 30.0


def test_a_score_is_the_mean_over_settings_of_their_best():
    collected = frame(
        {"setting": "a", "accuracy": 0.2, "selection_accuracy": 0.2},
        {"setting": "a", "accuracy": 0.4, "selection_accuracy": 0.4},
        {"setting": "b", "accuracy": 0.9, "selection_accuracy": 0.9, "ceiling": 0.95},
        {"setting": "b", "accuracy": 0.7, "selection_accuracy": 0.7, "ceiling": 0.95},
    )
    score = one(mad_scores(collected))
    assert score.value == pytest.approx(100 * (0.4 + 0.9) / 2)
    assert score.ceiling == pytest.approx(100 * (1 + 0.95) / 2)
    assert (score.done, score.expected, score.diverged) == (4, 4, 0)
    assert (score.chance, score.heuristic) == (6.25, 25.0)
    assert score.solved_threshold == pytest.approx(6.25 + 0.9 * (score.ceiling - 6.25))
    assert not score.is_diverged


def test_scores_of_task_settings_are_those_of_their_chosen_runs():
    found = setting_scores(
        frame(
            {"setting": "b", "accuracy": 0.25, "selection_accuracy": 0.9},
            {"setting": "a", "accuracy": 0.75},
            {"setting": "b", "accuracy": 1.0, "selection_accuracy": 0.8},
            unfinished_run("diverged", setting="c"),
            unfinished_run("failed", setting="a"),
        )
    )
    numbers = found[["setting", "value", "done", "expected", "diverged"]].fillna(-1).values.tolist()
    assert numbers == [["b", 25.0, 2, 2, 0], ["a", 75.0, 1, 2, 0], ["c", 6.25, 1, 1, 1]]
    assert found.is_diverged.tolist() == [False, False, True] and found.ceiling.tolist() == [100.0] * 3


def test_labels_tasks_and_seeds_are_kept_apart_in_their_order():
    collected = frame(
        {"label": "S", "seed": 1, "accuracy": 0.1},
        {"label": "R", "seed": 0, "accuracy": 0.2},
        {"label": "S", "seed": 0, "accuracy": 0.3, "selection_accuracy": 0.9},
        {"label": "S", "column": "memorization", "accuracy": 0.4},
    )
    found = mad_scores(collected)
    assert list(zip(found.label, found.column, found.seed, found.value.round(6))) == [
        ("S", "compression", 1, 10.0),
        ("R", "compression", 0, 20.0),
        ("S", "compression", 0, 30.0),
        ("S", "memorization", 0, 40.0),
    ]


def test_a_tie_goes_to_the_first_run():
    assert one(mad_scores(frame({"accuracy": 0.2}, {"accuracy": 0.6}))).value == 20.0


def test_a_diverged_run_counts_but_is_not_chosen():
    score = one(mad_scores(frame(unfinished_run("diverged"), {"accuracy": 0.6}, unfinished_run("diverged"))))
    assert score.value == 60.0
    assert (score.done, score.expected, score.diverged) == (3, 3, 2)


def test_a_task_setting_whose_runs_all_diverged_counts_at_chance():
    score = one(mad_scores(frame({"accuracy": 0.6}, unfinished_run("diverged", setting="b"))))
    assert score.value == pytest.approx((60 + 6.25) / 2) and score.is_diverged
    assert (score.done, score.expected, score.diverged) == (2, 2, 1)


def test_a_task_setting_with_missing_runs_is_not_called_diverged():
    score = one(mad_scores(frame(unfinished_run("diverged"), unfinished_run("missing"))))
    assert math.isnan(score.value) and not score.is_diverged


def test_a_diverged_run_takes_the_ceiling_of_other_runs_of_its_setting():
    collected = frame({"ceiling": 0.8}, unfinished_run("diverged", seed=1))
    assert mad_scores(collected).ceiling.tolist() == [80.0, 80.0]


@pytest.mark.parametrize("status", ["missing", "failed"])
def test_failed_and_missing_jobs_do_not_count_as_done(status):
    score = one(mad_scores(frame({"accuracy": 0.6}, unfinished_run(status, setting="b"), unfinished_run(status))))
    assert score.value == 60.0
    assert (score.done, score.expected, score.diverged) == (1, 3, 0)


def test_the_score_without_any_run_is_nan():
    score = one(mad_scores(frame(unfinished_run("missing", budget_ratio=None))))
    assert math.isnan(score.value) and math.isnan(score.budget_ratio)
    assert (score.done, score.expected) == (0, 1)


def test_the_average_is_over_the_six_tasks_of_one_seed():
    rows = [{"column": task, "accuracy": i / 10, "seed": seed} for seed in (0, 1) for i, task in enumerate(MAD_TASKS)]
    rows[6]["accuracy"] = 0.6
    averaged = mad_scores(frame(*rows))
    assert len(averaged) == 14
    averages = averaged[averaged.column == MAD_AVERAGE].set_index("seed")
    assert averages.value.round(6).to_dict() == {0: 25.0, 1: 35.0}
    assert averages.expected.to_dict() == averages.done.to_dict() == {0: 6, 1: 6}


def test_a_seed_with_a_job_missing_has_no_average():
    rows = [{"column": task, "seed": seed} for seed in (0, 1, 2) for task in MAD_TASKS]
    rows[-1] = unfinished_run("missing", **rows[-1])
    rows += [unfinished_run("failed", column="compression", seed=1, setting="b")]
    averaged = mad_scores(frame(*rows))
    assert averaged[averaged.column == MAD_AVERAGE].seed.tolist() == [0]
    assert MAD_AVERAGE not in set(mad_scores(frame(*rows[:5])).column)


def test_a_diverged_task_counts_at_chance_in_the_average():
    rows = [{"column": task} for task in MAD_TASKS]
    rows[2] = unfinished_run("diverged", **rows[2])
    average = mad_scores(frame(*rows)).iloc[-1]
    assert average.column == MAD_AVERAGE and average.diverged == 1 and average.is_diverged
    assert average.value == pytest.approx((5 * 50 + 6.25) / 6)


def test_collect_has_a_row_for_every_job_in_order(tmp_path):
    store = Store.open(tmp_path)
    jobs = [
        mad_job("S", setting={"seq_len": 8}, training=TrainingConfig(learning_rate=rate), seed=seed)
        for rate in (0.1, 0.2)
        for seed in (0, 1)
    ]
    other = replace(jobs[0], label="R")
    metrics = {"accuracy": 0.5, "selection_accuracy": 0.25, "ceiling": 1.0, "test_loss": 1.0}
    store.finish(jobs[3], Record("finished", metrics, details={"budget_ratio": 0.9, "device": "cpu", "path": "sdpa"}))
    store.finish(jobs[1], Record("diverged", error="loss"))
    store.finish(jobs[2], Record("failed", error="crash"))
    store.finish(other, Record("finished", metrics))
    collected = collect(jobs, store)
    assert collected.id.tolist() == [job.id for job in jobs]
    assert collected.status.tolist() == ["missing", "diverged", "missing", "finished"]
    assert collected.seed.tolist() == [0, 1, 0, 1]
    last = collected.iloc[3]
    assert (last.value, last.selection, last.ceiling) == (50.0, 0.25, 1.0)
    assert (last.budget_ratio, last.device) == (0.9, "cpu")
    assert collected.value.isna().tolist() == [True, True, True, False]
    # seed 0 chooses the rate
    assert mad_scores(collected)[["done", "expected", "diverged"]].values.tolist() == [[2, 2, 1]]


def finished_run(seed: int, rate: float, validation: float, accuracy: float, label: str = "S", **changes):
    """A finished run with the given seed, rate and accuracies."""
    job = mad_job(label, training=TrainingConfig(learning_rate=rate), seed=seed, **changes)
    return JobOutcome(label, job, Record("finished", {"accuracy": accuracy, "selection_accuracy": validation}))


def values_of(outcomes) -> dict[int, float]:
    scores = scoring_of(MAD).frame(outcomes)
    return dict(zip(scores.seed, scores.value.round(6)))


def test_the_first_seed_chooses_the_rate_for_the_others_and_is_not_reported():
    runs = [finished_run(0, 0.1, 0.4, 0.9), finished_run(0, 0.2, 0.5, 0.1)]
    runs += [finished_run(seed, rate, 0.5 + rate, 0.3 + rate) for seed in (1, 2) for rate in (0.1, 0.2)]
    runs += [finished_run(3, 0.1, 0.99, 0.99), finished_run(3, 0.2, 0.2, 0.2)]  # its own best would be the other rate
    assert values_of(runs) == {1: 50.0, 2: 50.0, 3: 20.0}
    assert scoring_of(MAD).counted_jobs(runs) == {run.job.id for run in runs if run.job.seed == 0} | {
        run.job.id for run in runs if run.job.seed and run.job.training.learning_rate == 0.2
    }


@pytest.mark.slow
def test_no_seed_is_held_out_with_a_single_seed_or_rate_or_published_fidelity():
    assert values_of([finished_run(0, 0.1, 0.4, 0.9), finished_run(0, 0.2, 0.5, 0.1)]) == {0: 10.0}
    assert values_of([finished_run(seed, 0.1, 0.4, 0.9) for seed in (0, 1)]) == {0: 90.0, 1: 90.0}
    own = [finished_run(seed, rate, rate, rate, fidelity="published") for seed in (0, 1) for rate in (0.1, 0.2)]
    assert values_of(own) == {0: 20.0, 1: 20.0}


def test_no_seed_counts_until_the_seed_that_chooses_the_rate_is_complete():
    runs = [finished_run(0, 0.1, 0.4, 0.9), replace(finished_run(0, 0.2, 0.5, 0.1), record=None)]
    runs += [finished_run(1, rate, 0.5, 0.5) for rate in (0.1, 0.2)]
    assert np.isnan(list(values_of(runs).values())).all()


@pytest.mark.slow
def test_choosing_the_rate_on_a_held_out_seed_does_not_favor_noisy_labels():
    rng = np.random.default_rng(0)
    gaps = {"held": [], "own": []}
    for _ in range(20):
        means = {}
        for label, spread in (("S", 0.01), ("R", 0.06)):
            found = rng.normal(0.6, spread, (4, 6))  # validation and test scatter together: a run is good or not
            runs = [
                finished_run(seed, (1 + rate) / 100, found[seed, rate] + rng.normal(0, 0.005), found[seed, rate], label)
                for seed in range(4)
                for rate in range(6)
            ]
            means[label] = np.mean([value for seed, value in values_of(runs).items() if seed])
            alone = [values_of(runs[6 * seed : 6 * seed + 6])[seed] for seed in (1, 2, 3)]
            means[label, "own"] = np.mean(alone)
        gaps["held"].append(means["R"] - means["S"])
        gaps["own"].append(means["R", "own"] - means["S", "own"])
    error = np.std(gaps["held"]) / math.sqrt(20)
    assert abs(np.mean(gaps["held"])) < 3 * error and np.mean(gaps["own"]) > 5


def test_notes_state_the_choice_of_rates_if_there_are_several():
    several, one = (MAD.Profile.load("quick", words) for words in (["learning_rates=[1e-3,2e-3]"], []))
    for profile, fidelity, said in ((several, "corrected", 0), (several, "published", 1), (one, "corrected", None)):
        protocol = Protocol(MAD, profile, "quick", (), ("compression",), fidelity, "strict", "float32")
        text = " ".join(scoring_of(MAD).sentences(protocol))
        assert [note in text for note in RATES_NOTE] == [i == said for i in range(2)]


def test_every_caption_says_that_a_seed_chose_the_rate(grid_results):
    accuracy = lambda job: job.seed / 10  # noqa: E731
    several = {"set": {"learning_rates": [1e-3, 2e-3]}}
    origin = grid_results(accuracy=accuracy, **several).origin()
    assert "3 seeds give n = 2." in origin.caption and "train" not in origin.caption
    assert "Nothing is tested with n below 3: train 4 seeds." in origin.notes
    assert "4 seeds give n = 3." in grid_results(accuracy=accuracy, seeds=[0, 1, 2, 3], **several).origin().caption
    assert "seeds give" not in grid_results(accuracy=accuracy).origin().caption


def test_a_damaged_run_is_missing(tmp_path):
    store = Store.open(tmp_path)
    job = mad_job()
    store.finish(job, Record("finished", {"accuracy": 0.5}))
    (tmp_path / "runs" / job.id / "record.json").write_text("{}")
    assert collect([job], store).status.tolist() == ["missing"]


def test_an_empty_store_gives_scores_without_numbers(tmp_path):
    found = mad_scores(collect([mad_job(seed=seed) for seed in (0, 1)], Store.open(tmp_path)))
    assert found.value.isna().all()
    assert found.expected.tolist() == [1, 1]


def test_the_published_table_has_the_papers_33_labels_and_its_averages():
    published = published_scores()
    assert len(published) == 33
    assert published["S"][MAD_AVERAGE] == 50.69 and published["S-p"]["compression"] == 44.69
    assert published["S-p"]["loss_l5"] == 3.0669 and "steps_to_3.0" not in published["S-p"]
    assert published["G-cg-q-12o"]["steps_to_3.0"] == 58 * 500
    with open(PAPERS / "hypermlp" / "table1.csv", newline="") as file:
        for row in csv.DictReader(file):
            mean = sum(float(row[task]) for task in MAD_TASKS) / 6
            assert published[row["label"]][MAD_AVERAGE] == pytest.approx(mean, abs=0.02)


@pytest.mark.slow
def test_other_tasks_are_columns_of_their_own_and_not_in_the_average(install_example):
    install_example("task")
    rows = [{"column": task, "accuracy": 0.5} for task in MAD_TASKS]
    found = mad_scores(frame(*rows, {"column": "prefix_sum", "accuracy": 1.0})).set_index("column").value
    assert found[MAD_AVERAGE] == 50.0 and found["prefix_sum"] == 100.0


def test_a_mean_over_some_columns_needs_all_of_them():
    scores = mad_scores(frame({"accuracy": 0.2}, {"column": "memorization", "accuracy": 0.6}, {"label": "R"}))
    mean = one(mean_over(scores, ["compression", "memorization"], "both"))
    assert (mean.label, mean.column, mean.value, mean.done) == ("S", "both", pytest.approx(40.0), 2)


def test_language_models_have_the_columns_of_every_frame(language_run):
    runs = [language_run("S", [3.0, 2.0]), language_run("R", [3.0], seed=1, status="diverged")]
    named = [JobOutcome(name, run.job, run.record) for name, run in zip(["first", "second"], runs)]
    found = scoring_of(LANGUAGE).frame(named, [2.5, 0.5])
    assert tuple(found) == tuple(COLUMNS) == tuple(scoring_of(LANGUAGE).frame([])) and set(found.suite) == {"language"}
    counts = {(row.label, row.column): (row.done, row.expected, row.diverged) for row in found.itertuples()}
    assert counts["first", "loss_l5"] == counts["first", "steps_to_2.5"] == (1, 1, 0)
    assert counts["first", "steps_to_0.5"] == (1, 1, 0) and counts["second", "loss_l5"] == (1, 1, 1)
    rows = found.set_index(["label", "column"])
    uniform = math.log(runs[0].job.setting["vocab_size"])
    assert rows.value["first", "loss_l5"] == 2.5 and rows.value["second", "loss_l5"] == pytest.approx(uniform)
    assert rows.value["first", "steps_to_2.5"] == 20 and rows.value["first", "steps_to_0.5"] == 20
    assert rows.is_diverged["first", "steps_to_0.5"] and not rows.is_diverged["first", "steps_to_2.5"]
    assert rows.is_diverged["second", "loss_l5"] and not rows.is_diverged["first", "loss_l5"]
    assert rows.chance["first", "validation_bits_per_byte"] == pytest.approx(2 * uniform)
    assert mad_scores(frame({})).dtypes.drop("label").equals(found.dtypes.drop("label"))


def test_captions_name_rows_below_the_budget():
    def of(label, ratio):
        return JobOutcome(label, mad_job(label=label), Record("finished", {}, [], {"budget_ratio": ratio}))

    matched, (counted, below) = budget_sentences([of("S", 1.0)]), budget_sentences([of("S", 1.0), of("S-c-q", 0.631)])
    assert matched == [counted]
    assert counted.startswith(
        "Budget: parameters of the mixer divided by those of softmax attention, both with the conv"
    )
    assert "S-c-q 0.63" in below and "S 1" not in below
    with using_names(DisplayNames(by_user={"S-c-q": "compressed"})):
        assert "compressed 0.63" in budget_sentences([of("S-c-q", 0.631)])[1]


def test_sentences_on_other_code_have_the_display_names_of_rows():
    marks = CodeMarks.from_runs([("S  training.epochs=3", RunCode("unknown")), ("cd:id-dg-cg", RunCode("unknown"))])
    with using_names(DisplayNames(by_user={"S": "softmax"})):
        (sentence,) = marks.sentences
    assert sentence.startswith("2 runs of softmax  training.epochs=3, cd:gla-cg had code")


def test_table_and_captions_have_one_mean_budget(grid_results):
    ratios = {"in_context_recall": 1.1, "memorization": 1.4}
    of_task = {"S": dict.fromkeys(ratios, 1.0), "R-12!": ratios}
    results = grid_results(of_task, tasks=[*ratios], budget_ratio=lambda job: of_task[job.label][job.task])
    assert result_table(results).cells["R-12!"]["budget_ratio"].mean == pytest.approx(1.25)
    (over,) = [text for text in results.sentences() if text.startswith("Over budget")]
    assert over.endswith("mean over tasks): R-12! 1.250.")
