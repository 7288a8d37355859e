"""The commands in a report train exactly the jobs beside which they stand."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from madbench.cli.shared.words import labels_and_overrides
from madbench.config import parse_seeds
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.experiment.commands import job_words, protocol_words, train_words
from madbench.report.missing import missing_runs
from madbench.rows import Grid, Row, SuiteRow
from madbench.suites.addressing import parse_overrides
from madbench.suites.language.suite import LANGUAGE
from madbench.text.manifest import AS_FOUND
from protocols import language_protocol

NAMES = {"--profile": "profile", "--fidelity": "fidelity", "--budget": "budget"}


def plan_grid(labels, *, tasks, seeds, overrides=(), results="results", **choices) -> Experiment:
    changes = parse_overrides(map(str, overrides))
    grid = Grid(tuple(map(Row, labels)), tuple(tasks), tuple(seeds), overrides=changes, **choices)
    return prepare(grid, ExperimentOptions(device="cpu", results=results))


def experiment_of_command(words: list[str]) -> Experiment:
    """The experiment that ``madbench run`` plans for ``words``."""
    options = {words[i]: words[i + 1] for i in range(len(words) - 1) if words[i].startswith("-")}
    rest = [word for i, word in enumerate(words) if not word.startswith("-") and words[i - 1] not in options]
    labels, overrides = labels_and_overrides(rest)
    choices = {NAMES[name]: value for name, value in options.items() if name in NAMES}
    seeds = parse_seeds(options["--seeds"])
    return plan_grid(labels, tasks=options["-t"].split(","), seeds=seeds, overrides=overrides, **choices)


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {},
        {"profile": "full"},
        {"profile": "full", "fidelity": "published", "budget": "paper", "results": "elsewhere"},
        {"overrides": ["learning_rates=[1e-3,2e-3]", "training.epochs=3", "precision=bfloat16"]},
        {"overrides": ["tasks.compression.setting.vocab_size=24", "tasks.compression.learning_rates=[1e-3,1e-4]"]},
        {"overrides": ["weight_decays=[0.1,0.2]", "difficulty=all"], "profile": "full"},
    ],
)
def test_the_command_of_a_run_trains_that_job_alone(choices):
    experiment = plan_grid(["S-c"], tasks=["compression", "memorization"], seeds=[3], **choices)
    (row,) = experiment.rows
    for job in experiment.jobs[:: max(1, len(experiment.jobs) // 7)]:
        verb, *words = job_words(row, job, experiment.results)
        assert verb == "run"
        again = experiment_of_command(["S-c", *words, "--seeds", "3"])
        assert [one.id for one in again.jobs] == [job.id]


def test_the_command_for_missing_jobs_trains_exactly_these():
    overrides = ["training.epochs=3"]
    experiment = plan_grid(["S", "S-c"], tasks=["compression"], seeds=[0, 1, 2], overrides=overrides)
    words = train_words(experiment.rows[0], Path("results"), ["S", "S-c"], [2, 0, 1])
    assert words[:2] == ["madbench", "run"]
    assert {job.id for job in experiment_of_command(words[2:]).jobs} == {job.id for job in experiment.jobs}


def test_a_command_names_the_precision_only_where_its_profile_leaves_it_open():
    """An override ``precision=`` of one suite would also apply to another suite trained by the same command."""
    rows = [plan_grid(["S-c"], tasks=["compression"], seeds=[0], profile=name).rows[0] for name in ("evening", "full")]
    fixed, is_open = (protocol_words(row, Path("results")) for row in rows)
    assert fixed == []
    assert is_open == [f"precision={rows[1].protocol.precision}", "--profile", "full"]


def profile_of_command(words: list[str]):
    """The profile that ``madbench run -t language_model`` loads for ``words``."""
    name = words[words.index("--profile") + 1] if "--profile" in words else "tiny"
    return LANGUAGE.Profile.load(name, [word for word in words if "=" in word])


@pytest.mark.parametrize(
    "changes", [{}, {"steps": 480}, dict.fromkeys(("steps", "eval_sequences", "tokens_per_step"), 1280)]
)
def test_the_command_of_a_language_model_has_its_profile_and_changes(language_run, changes):
    profile = LANGUAGE.Profile.load("tiny")
    training = replace(profile.training_config("float32"), **changes)
    details = {"corpus": {"name": "x", "digest": "c0ffee0123456789", "folder": "/data/x y"}}
    run = language_run("S", [2.0], details=details, model=profile.model_config(), training=training)
    words = protocol_words(SuiteRow(Row("S"), language_protocol(run), [run.job]), Path("results"))
    assert words[words.index("--corpus") + 1] == "/data/x y" and "--results" not in words
    again = profile_of_command(words)
    assert (again.model_config(), again.training_config(again.precision)) == (run.job.model, run.job.training)


def test_the_command_of_token_files_of_another_program_says_what_their_ids_are(language_run):
    corpus = {"name": "x", "digest": "c0ffee0123456789", "folder": "/data/x", "split_rule": AS_FOUND}
    for ids, said in (
        ({"tokenizer": "none:90000", "dtype": "uint32"}, ["--tokenizer", "none:90000", "--dtype", "uint32"]),
        ({"tokenizer": "gpt2", "dtype": "uint16"}, []),
        ({"tokenizer": "bytes"}, ["--tokenizer", "bytes"]),  # of a run before types were recorded
    ):
        run = language_run("S", [2.0], details={"corpus": corpus | ids})
        words = protocol_words(SuiteRow(Row("S"), language_protocol(run), [run.job]), Path("results"))
        place = words.index("--corpus")
        assert words[place : place + 6] == ["--corpus", "/data/x", *said]
    run = language_run("S", [2.0], details={"corpus": corpus | {"split_rule": "by hash", "tokenizer": "bpe:300"}})
    words = protocol_words(SuiteRow(Row("S"), language_protocol(run), [run.job]), Path("results"))
    assert "--tokenizer" not in words and "--corpus" in words


def test_the_command_of_an_unusual_protocol_has_all_its_overrides(language_run):
    run = language_run("S", [2.0])
    row = SuiteRow(Row("S"), language_protocol(run), [run.job])
    words = train_words(row, Path("here"), ["S"], [0])
    assert words[:5] == ["madbench", "run", "S", "-t", "language_model"] and words[-2:] == ["--results", "here"]
    again = profile_of_command(words)
    assert (again.model_config(), again.training_config("float32")) == (run.job.model, run.job.training)


def test_missing_runs_have_the_display_names_of_the_tables(language_run):
    run = language_run("cd:id-dg", [2.0])
    row = SuiteRow(Row("cd:id-dg"), language_protocol(run), [run.job])
    (single,) = missing_runs([row], ["cd:id-dg"], {run.job.id: run.record}, Path("results"))
    assert "cd:gla" in single.text and "cd:gla" in single.command and "cd:id-dg" not in single.text + single.command
