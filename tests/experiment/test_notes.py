"""Notes of a plan on settings without effect, on schedules, rates and heads."""

from __future__ import annotations

import pytest

from experiments import TINY, plan_experiment
from madbench.experiment import ExperimentOptions, prepare
from madbench.rows import Grid, Row
from madbench.suites.addressing import parse_overrides
from madbench.suites.mad.suite import MAD


def test_a_note_names_labels_on_which_an_override_has_no_effect(tmp_path):
    changed = plan_experiment(tmp_path, ["S", "R-12!"], set={"model.mix_rank": 4}, tasks=["compression"])
    plain = plan_experiment(tmp_path, ["S", "R-12!"], set={}, tasks=["compression"])
    same, other = zip(changed.jobs, plain.jobs)
    assert same[0].id == same[1].id and other[0].id != other[1].id
    assert changed.notes == ["model.mix_rank=4 has no effect on S and is ignored there"]
    prefixed = plan_experiment(
        tmp_path, ["S", "R-12!"], set={"signals.model.mix_rank": 4}, tasks=["compression", "digits"]
    )
    assert "signals.model.mix_rank=4 has no effect on S and is ignored there" in prefixed.notes
    swept = plan_experiment(tmp_path, ["S", "R-12!"], vary={"model.mix_rank": [4, 2]}, tasks=["compression"])
    assert [len(row.jobs) for row in swept.rows] == [1] * 4 and len(swept.jobs) == 3, "nothing is trained twice"


def schedule_notes(experiment) -> list[str]:
    return [note for note in experiment.notes if "training ends" in note or "the rate rises" in note]


@pytest.mark.slow
def test_a_note_names_the_tasks_whose_training_ends_within_the_warm_up(tmp_path):
    tasks = ["memorization", "compression"]
    long = plan_experiment(tmp_path, tasks=tasks, seeds=[0, 1], set=TINY | {"training.warmup_steps": 100_000})
    steps = {job.task: MAD.size(job).steps for job in long.jobs}
    assert schedule_notes(long) == [
        f"{task}: training ends within the warm-up, after {count:,} of its 100,000 steps, at {count / 100_001:.2g} of "
        "the learning rate"
        for task, count in steps.items()
    ]
    longest = max(steps.values())
    for warmup_steps, tasks_within in ((0, 0), (longest - 1, 1), (longest, 2)):
        planned = plan_experiment(tmp_path, tasks=tasks, set=TINY | {"training.warmup_steps": warmup_steps})
        assert len(schedule_notes(planned)) == tasks_within, warmup_steps


@pytest.mark.slow
def test_tasks_with_equal_steps_share_a_warm_up_note_per_row(tmp_path):
    epochs = {f"tasks.{task}.setting.num_train_examples": 64 for task in ("memorization", "compression")}
    planned = plan_experiment(
        tmp_path,
        tasks=["memorization", "compression"],
        set=TINY | epochs | {"training.epochs": 2},
        vary={"training.warmup_steps": [0, 50, 60]},
    )
    (steps,) = {MAD.size(job).steps for job in planned.jobs}
    assert schedule_notes(planned) == [
        f"compression, memorization: training ends within the warm-up, after {steps} of its {warmup_steps} steps, at "
        f"{steps / (warmup_steps + 1):.2g} of the learning rate"
        for warmup_steps in (50, 60)
    ]


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({}, ""),
        ({"training.warmup_steps": 7}, ""),
        (
            {"training.warmup_steps": 8},
            "training ends within the warm-up, after 8 of its 8 steps, at 0.89 of the learning rate",
        ),
        ({"training.lr_decay_steps": 6}, ""),
        (
            {"training.lr_decay_steps": 600_000, "training.learning_rate": 0.01},
            "training ends before the cosine does, after 8 of 600,000 steps, at a learning rate of 0.01",
        ),
        (
            {"training.learning_rate": 0.001, "training.min_learning_rate": 0.002},
            (
                "after the warm-up the rate rises, from learning_rate 0.001 to min_learning_rate 0.002; set"
                " training.min_learning_rate too"
            ),
        ),
        ({"training.learning_rate": 0.002, "training.min_learning_rate": 0.002}, ""),
    ],
)
def test_a_note_names_an_unreached_end_or_a_rise_of_the_schedule_of_a_language_model(both, changes, note):
    keys = {f"language_model.{key}": value for key, value in changes.items()} | {"language_model": "profile.yaml"}
    notes = schedule_notes(both(set=TINY | keys))
    assert notes == ([f"language_model: {note}"] if note else [])


@pytest.mark.parametrize(
    "seeds, words, text",
    [
        ([0, 1, 2], ["learning_rates=[1e-3,2e-3]"], "3 seeds give n = 2. Nothing is tested with n below 3: train 4"),
        ([0, 1, 2, 3], ["weight_decays=[0.0,0.1]"], "4 seeds give n = 3."),
        ([0], ["learning_rates=[1e-3,2e-3]"], ""),
        ([0, 1, 2], [], ""),
    ],
)
def test_a_note_of_a_plan_states_that_several_rates_cost_a_seed(tmp_path, seeds, words, text):
    grid = Grid((Row("S"),), ("compression",), tuple(seeds), "quick", overrides=parse_overrides(words))
    notes = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path)).notes
    assert [text in note for note in notes] == ([True] if text else [])


@pytest.mark.parametrize(
    ("labels", "d_model", "n_head", "text"),
    [
        (["S-p", "R"], 95, 3, "n_head 3 does not divide d_model 95: softmax attention (S) has r_qk 93 and r_vo 96"),
        (["S-p", "R"], 90, 6, "d_model 90 / n_head 6 is odd, and labels with p take heads of even width"),
        (["R"], 90, 6, ""),
        (["S-p", "R"], 96, 6, ""),
        (["ha:2+3-p"], 96, 3, "ha:2+3-p has 4 heads in place of 3"),
        (["ha:2+3-p"], 96, 4, ""),
        (["R/S-p"], 90, 6, "d_model 90 / n_head 6 is odd, and labels with p take heads of even width"),
        (["R/ha:2+3-p"], 96, 3, "ha:2+3-p has 4 heads in place of 3"),
    ],
)
def test_a_note_of_a_plan_names_heads_that_do_not_divide_the_width(tmp_path, labels, d_model, n_head, text):
    words = (f"model.d_model={d_model}", f"model.n_head={n_head}")
    grid = Grid(tuple(map(Row, labels)), ("compression",), (0,), "quick", overrides=parse_overrides(words))
    notes = prepare(grid, ExperimentOptions(device="cpu", results=tmp_path)).notes
    assert [note.startswith(text) for note in notes] == ([True] if text else [])
