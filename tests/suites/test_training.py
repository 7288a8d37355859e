"""The optimizer settings that all suites share, their schedules, and the canonical form of a job."""

from __future__ import annotations

import itertools
import re
from dataclasses import fields, replace
from pathlib import Path

import pytest

import madbench
from madbench.errors import ConfigError
from madbench.jobs import NOT_AT_DEFAULT
from madbench.suites import suites
from madbench.suites.mad.suite import MAD
from madbench.suites.training import EpochTraining, Schedule, Training
from sample_jobs import mad_job

ROOT = Path(madbench.__file__).parent


def test_every_suite_has_the_settings_of_class_training():
    shared = {field.name for field in fields(Training)}
    for suite in suites().values():
        assert issubclass(suite.Profile.Training, Training)
        assert shared <= {field.name for field in fields(suite.Profile.Training)}


def test_one_module_computes_the_cosine_of_a_schedule():
    files = (
        *(ROOT / "suites").rglob("*.py"),
        *(ROOT / "papers").rglob("suite.py"),
        *(ROOT / "papers").rglob("trial.py"),
    )
    assert [file.name for file in files if re.search(r"\bmath\.cos\(", file.read_text())] == ["training.py"]


def test_no_module_defines_training_key_or_model_key():
    files = [file for file in ROOT.rglob("*.py") if re.search(r"\b(training_key|model_key)\b", file.read_text())]
    assert not files


def test_a_setting_that_the_shared_class_brought_to_a_suite_enters_no_id_at_its_default():
    """The ids of stored runs cover these settings of each suite, and no others."""
    always = {
        "mad": "batch_size epochs learning_rate min_learning_rate precision stop_accuracy warmup_steps weight_decay",
        "language": "beta1 beta2 eval_every eval_sequences grad_clip learning_rate min_learning_rate precision steps "
        "tokens_per_step warmup_steps weight_decay",
        "signals": "batch_size epochs learning_rate precision warmup_steps weight_decay",
        "interactions": "batch_size learning_rate precision steps weight_decay",
    }
    for name, names in always.items():
        of_suite = fields(suites()[name].Profile.Training)
        assert {field.name for field in of_suite if field.metadata != NOT_AT_DEFAULT} == set(names.split()), name


def test_a_record_has_a_setting_that_the_shared_class_brought_only_if_it_is_not_at_its_default():
    for suite in suites().values():
        kind, job = suite.Profile.Training, mad_job()
        usual, changed = (replace(job, suite=suite.name, training=kind(lr_decay_steps=steps)) for steps in (0, 7))
        assert tuple(usual.to_dict()["training"]) == kind.recorded
        assert changed.to_dict()["training"] == usual.to_dict()["training"] | {"lr_decay_steps": 7}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({}, ""),
        ({"warmup_steps": 100}, "training ends within the warm-up, after 100 of its 100 steps"),
        ({"end": 2.0}, "after the warm-up the rate rises, from learning_rate 1 to min_learning_rate 2"),
        ({"decay_end": 200}, "training ends before the cosine does, after 100 of 200 steps"),
    ],
)
def test_a_schedule_warns_of_an_end_that_is_not_reached_and_of_a_rate_that_rises(changes, says):
    warning = replace(Schedule(100, 1.0, 0.0, 10, 100), **changes).warning
    assert warning.startswith(says) and bool(warning) is bool(says)


@pytest.mark.parametrize(
    ("changes", "is_equal"),
    [
        ({}, True),
        ({"end": 0.1}, False),
        ({"warmup_steps": 11}, False),
        ({"decay_end": 99}, False),
        ({"steps": 99}, False),
    ],
)
def test_schedule_equality_compares_the_learning_rates(changes, is_equal):
    schedule = Schedule(100, 0.7, 0.0, 10, 100)
    assert schedule.equals(replace(schedule, **changes)) is is_equal


def test_schedules_are_equal_exactly_if_all_rates_are():
    """Tested with all schedules of six steps, including ends without effect."""
    schedules = [
        Schedule(6, 0.7, end, warmup_steps, decay_end)
        for end, warmup_steps, decay_end in itertools.product((0.0, 0.1, 0.7), range(8), range(1, 9))
    ]
    rates = [[schedule.rate(step) for step in range(6)] for schedule in schedules]
    for one, own in zip(schedules[::3], rates[::3]):
        for other, others in zip(schedules, rates):
            assert one.equals(other) is (own == others), (one, other)


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ({"warmup_steps": 9, "min_learning_rate": 0.1}, {"warmup_steps": 9}),  # ends within the warm-up
        ({"warmup_steps": 2, "lr_decay_steps": 1}, {"warmup_steps": 2, "lr_decay_steps": 2}),
        ({"lr_decay_steps": 8}, {}),
        ({"lr_decay_steps": 9}, {"lr_decay_steps": 9}),
        ({"min_learning_rate": 1e-3, "lr_decay_steps": 5}, {"min_learning_rate": 1e-3}),  # constant
    ],
)
def test_settings_of_one_schedule_have_one_canonical_form(given, canonical):
    training = EpochTraining(epochs=4, batch_size=2, **given)
    assert training.total_steps(3) == 8
    found = training.canonical(lambda training: training.schedule(8))
    assert found == EpochTraining(epochs=4, batch_size=2, **canonical)
    assert found.schedule(8).equals(training.schedule(8))


@pytest.mark.parametrize(
    ("label", "changes", "trains_the_same"),
    [
        ("S", {"mixer": {"mix_rank": 3}}, True),
        ("R-12!", {"mixer": {"mix_rank": 3}}, False),
        ("S", {"seed": 5}, True),
        ("S", {"model": {"mlp_width": 352}}, True),
        ("S", {"model": {"n_head": 4}}, False),
        ("my:mean", {"model": {"n_head": 4}}, True),
        ("S", {"training": {"batch_size": 10**6}}, False),
        ("S", {"training": {"stop_accuracy": 3.0}}, False),
    ],
)
def test_jobs_train_the_same_if_their_canonical_forms_are_equal(label, changes, trains_the_same):
    job = mad_job(label)
    settings = {
        name: {**getattr(job, name), **value} if name == "mixer" else replace(getattr(job, name), **value)
        for name, value in changes.items()
        if name != "seed"
    }
    other = replace(job, seed=changes.get("seed", 0), **settings)
    assert other.id != job.id
    assert (MAD.canonical(job).id == MAD.canonical(other).id) is trains_the_same


def test_a_canonical_batch_is_no_larger_than_the_data():
    job = mad_job("S", setting={"num_train_examples": 40, "num_test_examples": 64})
    jobs = {size: replace(job, training=replace(job.training, batch_size=size)) for size in (39, 40, 41, 10**6)}
    assert [MAD.canonical(each).training.batch_size for each in jobs.values()] == [39, 40, 40, 40]
    published = replace(jobs[10**6], fidelity="published")  # test batches change its numbers
    assert MAD.canonical(published).training.batch_size == 64


@pytest.mark.parametrize("suite", suites().values(), ids=lambda suite: suite.name)
def test_training_settings_take_the_precisions_and_optimizers_of_the_suite_only(suite):
    others = "float32, float64" if suite.name == "interactions" else "float32, bfloat16"
    for precision in {"float16", "float32", "float64", "bfloat16"} - {*others.split(", ")}:
        message = f"precision: {precision!r} is not allowed; expected one of: {others}$"
        with pytest.raises(ConfigError, match=message):
            suite.Profile.Training(precision=precision)
    with pytest.raises(ConfigError, match="optimizer: 'sgd' is not allowed"):
        suite.Profile.Training(optimizer="sgd")
