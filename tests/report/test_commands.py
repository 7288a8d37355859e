"""The commands of a report give the very jobs that they stand beside."""

from __future__ import annotations

import pytest

from madbench.cli.options import labels_and_overrides
from madbench.config import parse_seeds
from madbench.experiment import Experiment, prepare
from madbench.language_jobs import LanguageJob
from madbench.report.commands import job_words, language_words, run_command
from madbench.suites.preset import load_preset

NAMES = {"--profile": "profile", "--fidelity": "fidelity", "--budget": "counting", "--results": "results"}


def prepared(words: list[str]) -> Experiment:
    """What ``madbench run`` makes of ``words``."""
    options = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("-")}
    rest = [
        word for i, word in enumerate(words) if not word.startswith("-") and (i == 0 or words[i - 1] not in options)
    ]
    labels, overrides = labels_and_overrides(rest)
    choices = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    tasks = options["-t"].split(",")
    return prepare(
        labels, overrides=overrides, tasks=tasks, seeds=parse_seeds(options["--seeds"]), device="cpu", **choices
    )


@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"profile": "full"},
        {"profile": "full", "fidelity": "published", "counting": "published", "results": "elsewhere"},
        {"overrides": ["learning_rates=[1e-3,2e-3]", "training.epochs=3", "precision=bfloat16"]},
        {"overrides": ["tasks.compression.setting.vocab_size=24", "tasks.compression.learning_rates=[1e-3,1e-4]"]},
        {"overrides": ["weight_decays=[0.1,0.2]", "difficulty=all"], "profile": "full"},
    ],
)
def test_the_command_of_a_run_trains_that_job_alone(choices):
    experiment = prepare(["S-c"], tasks=["compression", "memorization"], seeds=[3], device="cpu", **choices)
    for job in experiment.jobs[:: max(1, len(experiment.jobs) // 7)]:
        again = prepared(["S-c", *job_words(experiment, job), "--seeds", "3"])
        assert [one.id for one in again.jobs] == [job.id]


def test_the_command_of_what_is_missing_trains_these_jobs():
    overrides = ["training.epochs=3"]
    experiment = prepare(["S", "S-c"], tasks=["compression"], seeds=[0, 1, 2], overrides=overrides, device="cpu")
    words = run_command(experiment, ["S", "S-c"], [2, 0, 1])
    assert words[:2] == ["madbench", "run"]
    assert {job.id for job in prepared(words[2:]).jobs} == {job.id for job in experiment.jobs}


@pytest.mark.parametrize(
    "changes", [{}, {"steps": 480}, dict.fromkeys(("steps", "eval_sequences", "tokens_per_step"), 1280)]
)
def test_the_command_of_a_language_model_has_its_preset_and_changes(language_run, changes):
    preset = load_preset("tiny")
    training = preset.training_config("float32")
    for name, value in changes.items():
        object.__setattr__(training, name, value)
    details = {"corpus": {"name": "x", "digest": "c0ffee0123456789", "folder": "/data/x y"}}
    run = language_run("S", [2.0], details=details, model=preset.model, training=training)
    words = language_words(run, "results")
    assert words[words.index("--corpus") + 1] == "/data/x y" and "--results" not in words
    overrides = [word for word in words if "=" in word]
    again = load_preset(words[words.index("--preset") + 1], overrides)
    job = LanguageJob("S", run.job.corpus, run.job.vocab_size, again.model, again.training_config(again.precision), 0)
    assert job.id == run.job.id


def test_a_protocol_far_from_every_preset_is_spelled_out(language_run):
    run = language_run("S", [2.0])
    words = language_words(run, "here")
    again = load_preset(words[words.index("--preset") + 1], [word for word in words if "=" in word])
    assert (again.model, again.training_config("float32")) == (run.job.model, run.job.training)
    assert words[-2:] == ["--results", "here"]
