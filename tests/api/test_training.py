"""``madbench.run``, ``sweep`` and ``lm``: their scores, and the jobs that they train."""

from __future__ import annotations

import dataclasses
import inspect
import re
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest

import madbench
from api_calls import TINY
from madbench import trackers
from madbench.api.arguments import EXECUTION, CorpusArguments, ExecutionArguments
from madbench.cli.lm.train import train
from madbench.cli.run import run
from madbench.cli.shared.options import TrainingOptions
from madbench.cli.sweep import sweep
from madbench.config import Override
from madbench.config.options import declared_parameter
from madbench.errors import ConfigError, LabelError, StoreError, TrainingError
from madbench.experiment.options import TrainingCorpus
from madbench.grid import GridFile
from madbench.jobs import Record
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.scoring import COLUMNS
from unprivileged import enforce_file_modes

NOT_IN_PYTHON = {
    "dry_run": "madbench.plan",
    "details": "the plan that madbench.plan returns has the jobs",
    "fail_fast": "max_failures=1",
    "retry": "an argument of sweep; the others always retry",
    "redo": "the argument force",
}
"""Options of the command line that functions which train do not have under the same name, each with the reason."""


def options_of(group):
    """The name and the default of each option that a dataclass and its nested dataclasses declare."""
    for name, hint in get_type_hints(group, include_extras=True).items():
        if dataclasses.is_dataclass(hint):
            yield from options_of(hint)
        elif declared_parameter(hint):
            yield name, getattr(group, name)


@pytest.mark.slow
def test_run_gives_the_scores_of_every_label_seed_and_task(tmp_path, fake_executor):
    scores = madbench.run(["{S,R}-c"], overrides=TINY, seeds=[0, 1], device="cpu", results=tmp_path)
    assert tuple(scores) == tuple(COLUMNS) and len(scores) == 2 * 2 * (6 + 1)
    assert set(scores.column) == {*MAD_TASKS, "mad_average"} and set(scores.value) == {50.0}
    assert list(scores.label.unique()) == ["S-c", "R-c"]


def test_run_accepts_one_label_one_task_and_one_seed_without_a_list(tmp_path, fake_executor):
    scores = madbench.run(
        "S", overrides="model.d_model=16", tasks="compression", seeds=3, results=tmp_path, device="cpu"
    )
    assert scores[["label", "seed", "column"]].values.tolist() == [["S", 3, "compression"]]


@pytest.mark.slow
def test_the_argument_threads_reaches_training(tmp_path, fake_executor):
    choices = {"device": "cpu", "threads": 3}
    tiny = {"overrides": TINY, "tasks": "compression", **choices}
    madbench.run("S", results=tmp_path / "run", **tiny)
    assert fake_executor.train["threads"] == 3
    madbench.sweep("S", set={"model.d_model": 16}, tasks=["compression"], results=tmp_path / "sweep", **choices)
    assert fake_executor.train["threads"] == 3
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        madbench.run("S", results=tmp_path / "none", **tiny | {"threads": 0})


@pytest.mark.slow
def test_stored_jobs_are_trained_again_only_with_force(tmp_path, fake_executor):
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    madbench.run("S", **choices)
    madbench.run(["S", "R"], **choices)
    assert [job.label for job in fake_executor.jobs] == ["R"]
    madbench.run(["S", "R"], force=True, **choices)
    assert [job.label for job in fake_executor.jobs] == ["S", "R"]


@pytest.mark.slow
def test_a_failed_job_is_an_error_and_a_diverged_one_a_result(tmp_path, fake_executor):
    fake_executor.records = {"S": Record("diverged", error="loss"), "R": Record("failed", error="crash")}
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    (row,) = madbench.run("S", **choices).itertuples()
    assert row.is_diverged and row.value == row.chance and (row.done, row.diverged) == (1, 1)
    with pytest.raises(TrainingError, match="1 of 2 jobs failed; see .*/runs"):
        madbench.run(["S", "R"], **choices)


@pytest.mark.slow
def test_a_sweep_compares_its_rows_as_compare_does(tmp_path, fake_executor):
    choices = {"overrides": TINY, "tasks": ["compression"], "results": tmp_path}
    rows = madbench.sweep(["S", "R"], **choices, seeds=[0, 1, 2], device="cpu", compare=True, within=2)
    of_labels = madbench.compare(["S", "R"], **choices, within=2)
    assert list(rows.columns) == list(of_labels.columns) and rows.label.tolist() == ["R"]
    assert rows.verdict.tolist() == of_labels.verdict.tolist() and set(rows.equivalence) == set(of_labels.equivalence)


def test_a_sweep_refuses_a_comparison_that_it_cannot_make(tmp_path, fake_executor):
    choices = {"results": tmp_path, "device": "cpu", "overrides": TINY}
    with pytest.raises(ConfigError, match="within has no effect without compare=True"):
        madbench.sweep("S", tasks=["compression"], within=2, **choices)
    with pytest.raises(ConfigError, match="compare=True is for the rows of one suite"):
        madbench.sweep(["S", "R"], tasks=["compression", "colliding"], compare=True, **choices)
    assert not fake_executor.jobs


@pytest.mark.slow
def test_a_sweep_trains_failed_runs_again_only_with_retry(tmp_path, fake_executor):
    choices = {"set": {"model.d_model": 16}, "tasks": ["compression"], "device": "cpu", "results": tmp_path}
    fake_executor.records = {"S": Record("failed", error="crash")}
    for count in (1, 0):
        with pytest.raises(TrainingError, match="1 of 1 jobs failed; see .*/runs; retry=True trains them again"):
            madbench.sweep("S", **choices)
        assert len(fake_executor.jobs) == count
    fake_executor.records = {}
    assert madbench.sweep("S", retry=True, **choices).done.tolist() == [1]
    fake_executor.records = {"S": Record("failed", error="crash")}
    with pytest.raises(TrainingError, match="1 of 1 jobs failed"):
        madbench.sweep("S", force=True, **choices)
    assert madbench.sweep("S", **choices).done.tolist() == [1]


def test_run_refuses_wrong_arguments_before_it_makes_a_results_folder(tmp_path):
    for error, arguments in [
        (LabelError, {"labels": "S-x"}),
        (ConfigError, {"labels": "S", "budget": "published"}),
        (ConfigError, {"labels": "S", "tasks": "compresion"}),
        (ConfigError, {"labels": []}),
    ]:
        with pytest.raises(error):
            madbench.run(device="cpu", results=tmp_path / "results", **arguments)
    assert not (tmp_path / "results").exists()


def test_functions_that_train_have_the_options_of_the_command_line(tmp_path):
    """Each option has the default and the description of its declaration."""
    options = {name: default for group in EXECUTION for name, default in options_of(group)}
    assert options.keys() - NOT_IN_PYTHON.keys() == ExecutionArguments.__annotations__.keys()
    assert [*CorpusArguments.__annotations__] == [field.name for field in dataclasses.fields(TrainingCorpus)]
    for function in (madbench.run, madbench.sweep, madbench.run_language_model):
        parameters = inspect.signature(function).parameters
        for name in ExecutionArguments.__annotations__:
            assert parameters[name].default == options[name]
        for text in ("torch.compile, which needs a C++ compiler", "Stop a job after this time", "GPUs such as 0,1"):
            assert text in " ".join(function.__doc__.split())
    assert inspect.signature(madbench.run_language_model).parameters["profile"].default == "tiny"


def test_every_option_of_training_can_be_given_from_python():
    for function, verb in ((madbench.run, run), (madbench.sweep, sweep), (madbench.run_language_model, train)):
        assert get_type_hints(verb)["training"] is TrainingOptions
        options = dict(options_of(TrainingOptions)).keys() - NOT_IN_PYTHON.keys()
        assert len(options) > 20 and options - inspect.signature(function).parameters.keys() == set()


def test_times_failures_and_gpus_have_the_forms_of_the_command_line_and_of_python(tmp_path, fake_executor, monkeypatch):
    monkeypatch.setattr("madbench.execute.machines.resolve_device", lambda device: device)
    choices = {"overrides": TINY, "tasks": "compression", "results": tmp_path}
    for limit in ("2m", 120):
        madbench.run("S", time_limit=limit, max_failures=2, device="cpu", force=True, **choices)
        assert (fake_executor.policy.time_limit, fake_executor.policy.max_failures) == (120, 2)
    for wrong, says in [
        ({"time_limit": "2"}, "time_limit='?2'?: expected"),
        ({"time_limit": 0}, "time_limit"),
        ({"max_failures": 0}, "max_failures"),
        ({"devices": [0, 0]}, "devices='?0,0'?: expected"),
        ({"devices": 0}, "devices=0.* device"),
        ({"on": "rya"}, "on=rya: expected ray.*did you mean 'ray'"),
        ({"on": "slurm", "devices": 0}, "devices=0.* on"),
        ({"track": "wanbd"}, "did you mean 'wandb'"),
        ({"track_name": "{row}"}, "track_name={row}.* without track"),
    ]:
        with pytest.raises(ConfigError, match=says):
            madbench.run("R", device="cpu", **choices | wrong)


@pytest.mark.slow
def test_the_argument_on_chooses_the_executor(tmp_path, fake_executor, monkeypatch):
    called = []

    def executor_of(on, device, slots):
        called.append((on, slots))
        return fake_executor, "cpu"

    monkeypatch.setattr("madbench.execute.machines.executor_of", executor_of)
    choices = {"overrides": TINY, "tasks": "compression", "results": tmp_path}
    assert madbench.run("S", on="slurm:cluster.yaml", slots=3, **choices).done.tolist() == [1]
    assert called == [("slurm:cluster.yaml", 3)] and [job.label for job in fake_executor.jobs] == ["S"]


def test_trackers_get_the_events_and_the_names_of_rows(tmp_path, fake_executor, monkeypatch):
    seen = []

    class Tracker:
        def __init__(self, results, naming):
            self.naming = naming

        def begin(self, job):
            seen.append((self.naming.project, self.naming.title(job), self.naming.settings(job)["varied"]))

        def end(self, run, job, record, metrics):
            seen.append(record.status)

    monkeypatch.setitem(trackers.SERVICES, "wandb", Tracker)
    keys = {"vary": {"model.mix_rank": [2, 4]}, "set": {"model.d_model": 16}, "tasks": ["compression"], "device": "cpu"}
    madbench.sweep("S-q-1", track="wandb", track_project="ours", results=tmp_path, **keys)
    assert seen[:2] == [("ours", "S-q-1 model.mix_rank=2 compression seed 0", {"model.mix_rank": 2}), "finished"]
    assert len(seen) == 4


def test_a_tracker_that_fails_is_named_in_plain_text_and_the_others_go_on(tmp_path, fake_executor, monkeypatch, capsys):
    seen = []

    class Failing:
        def __init__(self, results, naming):
            pass

        def begin(self, job):
            raise OSError("no run [/red]\x1b[2J")

    class Working(Failing):
        def begin(self, job):
            return None

        def end(self, run, job, record, metrics):
            seen.append(record.status)

    monkeypatch.setitem(trackers.SERVICES, "wandb", Failing)
    monkeypatch.setitem(trackers.SERVICES, "trackio", Working)
    madbench.run("S", track="wandb,trackio", overrides=TINY, tasks="compression", device="cpu", results=tmp_path)
    told = capsys.readouterr().err
    assert "warning: tracker wandb failed" in told and "no run [/red]?[2J" in told and seen == ["finished"]


def test_options_of_execution_reach_the_training(tmp_path, fake_executor):
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    madbench.run("S", micro_batch=2, compile="auto", group="auto", **choices)
    assert (fake_executor.train["micro_batch"], fake_executor.train["compile"], fake_executor.train["stacking"]) == (
        2,
        "auto",
        "measured",
    )
    with pytest.raises(ConfigError, match="no_cuda_graph has no effect with device=cpu"):
        madbench.run("R", no_cuda_graph=True, **choices)
    with pytest.raises(ConfigError, match="compile: 'alway' is not allowed; did you mean 'always'"):
        madbench.run("R", compile="alway", **choices)


def test_seeds_and_budget_accept_the_spelling_of_the_command_line():
    first = madbench.plan("S-p", tasks="memorization", seeds="0-2", budget="parameters")
    second = madbench.plan("S-p", tasks="memorization", seeds=[0, 1, 2])
    assert [job.id for job in first.jobs] == [job.id for job in second.jobs]


def test_a_plan_writes_nothing(tmp_path):
    """A plan of a language model does not prepare the default corpus either."""
    planned = madbench.plan("S", tasks="language_model", profile="tiny", device="cpu", results=tmp_path / "results")
    assert len(planned.missing) == len(planned.jobs) == 1
    assert not (tmp_path / "results").exists()


@pytest.mark.slow
def test_a_plan_accepts_labels_from_a_generator(tmp_path):
    planned = madbench.plan((label for label in ["S", "S-p"]), tasks="memorization", results=tmp_path)
    assert {job.label for job in planned.jobs} == {"S", "S-p"}


def test_a_plan_without_a_corpus_names_the_functions_that_take_one(tmp_path):
    choices = {"tasks": "language_model", "profile": "fineweb-340m", "device": "cpu", "results": tmp_path / "results"}
    (note,) = [note for note in madbench.plan("S-p", **choices).notes if note.startswith("no corpus: ")]
    assert note.endswith("(in Python: run_language_model or sweep with corpus=FOLDER)")
    for function in (madbench.run_language_model, madbench.sweep):
        assert "corpus" in inspect.signature(function).parameters


@pytest.mark.slow
def test_stored_scores_are_returned_from_a_read_only_folder(tmp_path, fake_executor):
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path / "results"}
    scores = madbench.run("S", **choices)
    folders = [tmp_path / "results", *(path for path in (tmp_path / "results").rglob("*") if path.is_dir())]
    for folder in folders:
        folder.chmod(0o555)
    try:
        with enforce_file_modes():
            again = madbench.run("S", **choices)
            with pytest.raises(StoreError, match="permission denied"):
                madbench.run(["S", "R"], **choices)
            with pytest.raises(StoreError, match="permission denied"):
                madbench.run("S", force=True, **choices)
    finally:
        for folder in folders:
            folder.chmod(0o755)
    pd.testing.assert_frame_equal(scores, again)


def test_language_models_give_their_curves(tmp_path, fake_executor, corpus):
    curves = madbench.run_language_model(
        ["S-p", "S"],
        overrides=["model.d_model=16", "precision=bfloat16"],
        corpus=corpus,
        tokenizer="none:64",
        seeds=[0, 1],
        device="cpu",
        results=tmp_path / "results",
        micro_batch=4,
        threads=5,
    )
    assert fake_executor.train["threads"] == 5
    assert list(curves.label.unique()) == ["S-p", "S"] and len(curves) == 2 * 2 * 4
    assert {(job.model.d_model, job.precision) for job in fake_executor.jobs} == {(16, "bfloat16")}
    assert fake_executor.train["micro_batch"] == 4
    assert curves.protocol.str.contains("profile tiny model.d_model=16").all()


def test_a_sweep_reads_token_files_with_the_given_tokenizer_and_dtype(tmp_path, fake_executor):
    ids = np.random.default_rng(0).integers(0, 64, 8000).astype("<u4")
    for name in ("train", "val"):
        ids.tofile(tmp_path / f"{name}.bin")
    choices = {"tasks": ["language_model"], "set": {"language_model.model.d_model": 16}, "corpus": tmp_path}
    choices |= {"device": "cpu", "results": tmp_path / "results"}
    madbench.sweep("S", tokenizer="none:64", dtype="uint32", **choices)
    assert [job.setting["vocab_size"] for job in fake_executor.jobs] == [64]
    with pytest.raises(ConfigError, match="dtype.*uint63"):
        madbench.sweep("S", tokenizer="none:64", dtype="uint63", **choices)
    with pytest.raises(ConfigError, match="tokenizer=none:64 has no effect without corpus"):
        madbench.sweep("S", **choices | {"tokenizer": "none:64", "corpus": None})


def test_a_sweep_gives_a_column_for_each_key_that_varies(tmp_path, fake_executor):
    scores = madbench.sweep(
        ["S"],
        device="cpu",
        results=tmp_path,
        tasks=["compression"],
        set=dict(word.split("=") for word in TINY[1:]) | {"model.d_model": 16},
        vary={"training.epochs": [1, 2]},
        seeds=[0, 1],
    )
    assert list(scores)[:3] == ["row", "label", "training.epochs"] and len(scores) == 4
    assert scores.row.unique().tolist() == ["S  training.epochs=1", "S  training.epochs=2"]
    assert scores["training.epochs"].tolist() == [1, 1, 2, 2] and set(scores.label) == {"S"}


def test_arguments_of_sweep_replace_keys_of_a_grid_file(tmp_path, fake_executor):
    grid = tmp_path / "grid.yaml"
    grid.write_text("labels: [S, R]\ntasks: [compression]\nset: {model.d_model: 16, precision: float32}\nseeds: 0-1\n")
    scores = madbench.sweep(grid, device="cpu", results=tmp_path / "results", seeds=[5])
    assert scores[["row", "seed"]].values.tolist() == [["S", 5], ["R", 5]]


def test_overrides_and_vary_are_mappings_or_as_on_the_command_line():
    from madbench.api.calls import changes_of
    from madbench.grid import parse_axes

    epochs, rates = Override.of("training.epochs", 2), Override.of("learning_rates", [0.1])
    assert changes_of({"training.epochs": 2, "learning_rates": [0.1]}) == (epochs, rates)
    assert changes_of("training.epochs=2") == changes_of(["training.epochs=2"]) == (epochs,)
    (named,) = changes_of({"language_model.training.steps": 600})
    assert (named.suite, named.key, named.value) == ("language_model", "training.steps", 600)
    assert parse_axes(["model.mix_rank=4,8"]) == {"model.mix_rank": [4, 8]}


def test_the_help_of_a_sweep_has_the_defaults_of_the_keys_of_a_grid():
    text = " ".join(madbench.sweep.__doc__.split())
    assert inspect.signature(madbench.sweep).parameters["seeds"].default is None
    assert "seeds: Seeds such as 0-2, or a list of seeds. Default: 0." in text
    assert "(the reference implementation's). Default: corrected." in text
    assert "rows as given. Default: product." in text
    assert "set: Settings that all rows share, by key. device: " not in text and "Default: ." not in text


def test_a_sweep_names_the_keys_of_a_grid():
    keys = {one.name for one in dataclasses.fields(GridFile)} - {"description", "labels", "claims", "claims_from"}
    assert keys <= inspect.signature(madbench.sweep).parameters.keys()
    with pytest.raises(TypeError, match=r"sweep\(\) got an unexpected keyword argument 'seed'"):
        madbench.sweep("S", seed=[0])


@pytest.mark.parametrize(
    ("verb", "argument", "nearest"),
    [
        (madbench.run, "lr", "learning_rates"),
        (madbench.plan, "learning_rates", "learning_rates"),
        (madbench.sweep, "batch_size", "training.batch_size"),
        (madbench.run_language_model, "lr", "training.learning_rate"),
    ],
)
def test_a_setting_that_is_given_as_an_argument_is_named_as_an_override(verb, argument, nearest):
    hint = f"'{argument}'; settings of the profile are given as overrides={{'{nearest}': 0.5}}"
    with pytest.raises(TypeError, match=re.escape(hint)):
        verb("S", **{argument: 0.5})


def test_every_job_that_ends_is_a_line_of_stderr_without_a_terminal(tmp_path, fake_executor, capsys):
    fake_executor.records = {"R": Record("diverged", error="loss was not finite")}
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    madbench.run(["S", "R"], **choices)
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.splitlines() == [
        "[1/2] S compression seed 0: accuracy 0.500",
        "[2/2] R compression seed 0: diverged: loss was not finite",
    ]
    madbench.run(["S", "R"], **choices)
    assert capsys.readouterr().err == ""
