from __future__ import annotations

import dataclasses
import inspect
from functools import partial

import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy import stats

import madbench
from drawings import FIGURES
from madbench.analysis.figures.files import NothingToDrawError
from madbench.errors import ConfigError, LabelError, StoreError, TrainingError
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.grid import GridFile
from madbench.jobs import Record
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD_TASKS
from madbench.suites.scoring import COLUMNS
from references import cochran_cox_interval, cochran_cox_p, mean_side

TINY = ("model.d_model=16", "precision=float32")


@pytest.fixture
def trained(monkeypatch, language_run):
    """Stands in for this machine's executor: stores at once what ``records`` says of a label, and keeps the jobs."""
    curve = language_run("S", [3.0, 2.0]).record.curve
    metrics = {"accuracy": 0.5, "selection_accuracy": 0.5, "ceiling": 1.0}

    class Executor:
        jobs: list = []
        records: dict = {}

        def __call__(self, groups, store, train, *, on_event, policy, **how):
            jobs = [job for group in groups for job in group]
            self.jobs = [job for job in jobs if not policy.skips(store.status(job))]
            self.train = train.keywords
            summary = Summary()
            for job in self.jobs:
                usual = Record("finished", metrics, curve if job.suite == LANGUAGE.name else [], {"budget_ratio": 1.0})
                record = self.records.get(job.label, usual)
                store.finish(job, record, replace=policy.redo)
                setattr(summary, record.status, getattr(summary, record.status) + 1)
            return summary

    executor = Executor()
    monkeypatch.setattr(local, "run_jobs", executor)
    return executor


@pytest.fixture
def corpus(tmp_path):
    """A folder with nanoGPT's two files."""
    for name, count in (("train.bin", 4000), ("val.bin", 500)):
        (np.arange(count, dtype="<u2") % 64).tofile(tmp_path / name)
    return tmp_path


def test_run_gives_the_scores_of_every_label_seed_and_task(tmp_path, trained):
    scores = madbench.run(["{S,R}-c"], overrides=TINY, seeds=[0, 1], device="cpu", results=tmp_path)
    assert tuple(scores) == tuple(COLUMNS) and len(scores) == 2 * 2 * (6 + 1)
    assert set(scores.column) == {*MAD_TASKS, "mad_average"} and set(scores.value) == {50.0}
    assert list(scores.label.unique()) == ["S-c", "R-c"]


def test_run_takes_one_label_one_task_and_one_seed_as_they_are(tmp_path, trained):
    scores = madbench.run(
        "S", overrides="model.d_model=16", tasks="compression", seeds=3, results=tmp_path, device="cpu"
    )
    assert scores[["label", "seed", "column"]].values.tolist() == [["S", 3, "compression"]]


def test_threads_are_those_asked_for(tmp_path, trained):
    choices = {"device": "cpu", "threads": 3}
    tiny = {"overrides": TINY, "tasks": "compression", **choices}
    madbench.run("S", results=tmp_path / "run", **tiny)
    assert trained.train["threads"] == 3
    madbench.sweep("S", set={"model.d_model": 16}, tasks=["compression"], results=tmp_path / "sweep", **choices)
    assert trained.train["threads"] == 3
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        madbench.run("S", results=tmp_path / "none", **tiny | {"threads": 0})


def test_what_the_store_has_is_trained_again_only_with_force(tmp_path, trained):
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    madbench.run("S", **choices)
    madbench.run(["S", "R"], **choices)
    assert [job.label for job in trained.jobs] == ["R"]
    madbench.run(["S", "R"], force=True, **choices)
    assert [job.label for job in trained.jobs] == ["S", "R"]


def test_a_failed_job_is_an_error_and_a_diverged_one_a_result(tmp_path, trained):
    trained.records = {"S": Record("diverged", error="loss"), "R": Record("failed", error="crash")}
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    (row,) = madbench.run("S", **choices).itertuples()
    assert row.is_diverged and row.value == row.chance and (row.done, row.diverged) == (1, 1)
    with pytest.raises(TrainingError, match="1 of 2 jobs failed; see .*/runs"):
        madbench.run(["S", "R"], **choices)


def test_a_sweep_leaves_stored_failures_until_it_is_told_to_retry(tmp_path, trained):
    choices = {"set": {"model.d_model": 16}, "tasks": ["compression"], "device": "cpu", "results": tmp_path}
    trained.records = {"S": Record("failed", error="crash")}
    for count in (1, 0):
        with pytest.raises(TrainingError, match="1 of 1 jobs failed; see .*/runs; retry=True trains them again"):
            madbench.sweep("S", **choices)
        assert len(trained.jobs) == count
    trained.records = {}
    assert madbench.sweep("S", retry=True, **choices).done.tolist() == [1]
    trained.records = {"S": Record("failed", error="crash")}
    with pytest.raises(TrainingError, match="1 of 1 jobs failed"):
        madbench.sweep("S", force=True, **choices)
    assert madbench.sweep("S", **choices).done.tolist() == [1]


def test_what_cannot_be_trained_is_an_error_before_anything_is_written(tmp_path):
    for error, arguments in [
        (LabelError, {"labels": "S-x"}),
        (ConfigError, {"labels": "S", "budget": "published"}),
        (ConfigError, {"labels": "S", "tasks": "compresion"}),
        (ConfigError, {"labels": []}),
    ]:
        with pytest.raises(error):
            madbench.run(device="cpu", results=tmp_path / "results", **arguments)
    assert not (tmp_path / "results").exists()


def test_language_models_give_their_curves(tmp_path, trained, corpus):
    curves = madbench.run_language_model(
        ["S-p", "S"],
        overrides=["model.d_model=16", "precision=float32"],
        corpus=corpus,
        tokenizer="none:64",
        seeds=[0, 1],
        device="cpu",
        results=tmp_path / "results",
        micro_batch=4,
        threads=5,
    )
    assert trained.train["threads"] == 5
    assert list(curves.label.unique()) == ["S-p", "S"] and len(curves) == 2 * 2 * 4
    assert {job.model.d_model for job in trained.jobs} == {16} and trained.train["micro_batch"] == 4
    assert curves.protocol.str.contains("preset tiny model.d_model=16").all()


def test_a_sweep_reads_another_programs_tokens_as_it_is_told(tmp_path, trained):
    ids = np.random.default_rng(0).integers(0, 64, 8000).astype("<u4")
    for name in ("train", "val"):
        ids.tofile(tmp_path / f"{name}.bin")
    choices = {"tasks": ["language_model"], "set": {"language_model.model.d_model": 16}, "corpus": tmp_path}
    choices |= {"device": "cpu", "results": tmp_path / "results"}
    madbench.sweep("S", tokenizer="none:64", dtype="uint32", **choices)
    assert [job.setting["vocab_size"] for job in trained.jobs] == [64]
    with pytest.raises(ConfigError, match="dtype.*uint63"):
        madbench.sweep("S", tokenizer="none:64", dtype="uint63", **choices)
    with pytest.raises(ConfigError, match="tokenizer none:64: has no effect without --corpus"):
        madbench.sweep("S", **choices | {"tokenizer": "none:64", "corpus": None})


def test_a_sweep_gives_a_column_for_each_key_that_varies(tmp_path, trained):
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


def test_a_sweep_reads_a_file_whose_keys_may_be_changed(tmp_path, trained):
    grid = tmp_path / "grid.yaml"
    grid.write_text("labels: [S, R]\ntasks: [compression]\nset: {model.d_model: 16, precision: float32}\nseeds: 0-1\n")
    scores = madbench.sweep(grid, device="cpu", results=tmp_path / "results", seeds=[5])
    assert scores[["row", "seed"]].values.tolist() == [["S", 5], ["R", 5]]


def test_overrides_and_vary_are_mappings_or_as_on_the_command_line():
    from madbench.analysis.api import _changes
    from madbench.grid import parse_axes

    assert _changes({"training.epochs": 2, "learning_rates": [0.1]}) == ("training.epochs=2", "learning_rates=[0.1]")
    assert _changes("training.epochs=2") == _changes(["training.epochs=2"]) == ("training.epochs=2",)
    assert parse_axes(["model.mix_rank=4,8"]) == {"model.mix_rank": [4, 8]}


ACCURACIES = {"R-g-q": [0.1, 0.11, 0.13], "R-cg-q": [0.2, 0.22, 0.21], "R-cg-q-12o": [0.35, 0.36, 0.38]}
"""Of three seeds."""


@pytest.fixture
def stored(tmp_path, monkeypatch, trained):
    """The arguments with which functions find three seeds of three labels on compression."""

    def train_seeds(label, accuracies, **choices):
        for seed, accuracy in enumerate(accuracies):
            metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
            trained.records = {label: Record("finished", metrics, [], {"budget_ratio": 1.0})}
            madbench.run(label, seeds=seed, device="cpu", **choices)

    choices = {"overrides": ["model.d_model=48", "precision=float32"], "tasks": "compression", "results": tmp_path}
    for label, accuracies in ACCURACIES.items():
        train_seeds(label, accuracies, **choices)
    return choices


def test_a_table_is_a_row_a_label_and_column(stored):
    frame = madbench.table(**stored)
    assert list(zip(frame.label, frame.task, frame.n)) == [(label, "compression", 3) for label in ACCURACIES]
    assert frame["mean"].tolist() == pytest.approx([100 * sum(of) / 3 for of in ACCURACIES.values()])
    assert frame.solved.tolist() == [0, 0, 0] and frame.mark.tolist() == ["", "", "best"]
    low, high = stats.binomtest(0, 3).proportion_ci(0.95)  # Clopper and Pearson's
    assert frame.solved_low.tolist() == [low] * 3 and frame.solved_high.tolist() == pytest.approx([high] * 3)
    assert madbench.table("R-cg-q", **stored).label.tolist() == ["R-cg-q"]


def test_compare_attribute_and_findings_say_the_same_of_two_labels(stored):
    compared = madbench.compare(["R-cg-q", "R-cg-q-12o", "R-g-q"], **stored)
    effects, found = madbench.attribute(**stored), madbench.findings(**stored)
    pairs = effects[effects.kind == "pair"]
    assert list(zip(pairs.given, pairs.without)) == [("R-cg-q", "R-g-q")]
    claims = found[found.name == "compression"]
    assert claims.verdict.tolist() == ["supported"] and claims.n.tolist() == [3]
    assert list(zip(compared.label, compared.baseline)) == [("R-cg-q-12o", "R-cg-q"), ("R-g-q", "R-cg-q")]
    assert compared.verdict.tolist() == ["higher", "lower"]
    mixing, conv = compared.itertuples()
    for (given, without), rows in [
        (("R-cg-q-12o", "R-cg-q"), (mixing, *claims.itertuples())),
        (("R-cg-q", "R-g-q"), pairs.itertuples()),
        (("R-g-q", "R-cg-q"), (conv,)),
    ]:
        values = [100 * np.array(ACCURACIES[label]) for label in (given, without)]
        estimate, sides = values[0].mean() - values[1].mean(), [mean_side(of_label) for of_label in values]
        expected = estimate, *cochran_cox_interval(estimate, sides), cochran_cox_p(estimate, sides)
        for row in rows:
            assert (row.estimate, row.low, row.high, row.p) == pytest.approx(expected, abs=1e-8)


def test_an_audit_has_a_row_a_column(stored):
    found = madbench.audit(**stored)
    assert found.column.tolist() == ["compression"] and found.labels.tolist() == [len(ACCURACIES)]


def test_a_plot_is_a_figure_of_matplotlib(stored):
    assert isinstance(madbench.plot("scores", **stored), Figure)
    with pytest.raises(NothingToDrawError, match="no runs: Language model"):
        madbench.plot("loss", **stored)
    with pytest.raises(ConfigError, match="no figure 'efects'; did you mean 'effects'"):
        madbench.plot("efects", **stored)
    assert {"scores", "effects", "loss"} <= FIGURES.keys()


def test_a_sweep_names_the_keys_of_a_grid():
    keys = {one.name for one in dataclasses.fields(GridFile)} - {"description", "labels", "claims"}
    assert keys <= inspect.signature(madbench.sweep).parameters.keys()
    with pytest.raises(TypeError, match=r"sweep\(\) got an unexpected keyword argument 'seed'"):
        madbench.sweep("S", seed=[0])


def test_functions_that_show_name_the_arguments_that_choose_runs():
    chosen = {"profile", "overrides", "tasks", "fidelity", "budget", "protocol", "corpus", "results"}
    for show in (
        madbench.table,
        madbench.compare,
        madbench.attribute,
        madbench.audit,
        madbench.findings,
        madbench.plot,
    ):
        assert chosen <= inspect.signature(show).parameters.keys()


def test_functions_that_show_warn_of_what_they_leave_out(stored, tmp_path):
    (damaged, *_) = (tmp_path / "runs").iterdir()
    (damaged / "record.json").write_text("{")
    with pytest.warns(UserWarning, match=damaged.name):
        madbench.table(**stored)


def test_functions_that_show_refuse_what_no_verb_takes(stored):
    for show in (madbench.table, madbench.attribute, madbench.findings, partial(madbench.compare, ["S", "S-c"])):
        name = getattr(show, "func", show).__name__
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'profil'"):
            show(profil="quick", **stored)
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'opened'"):
        madbench.plot("scores", opened=None, **stored)
    for name, value, nearest in [("fidelity", "publish", "published"), ("budget", "papr", "paper")]:
        with pytest.raises(ConfigError, match=f"{name}: '{value}' is not allowed; did you mean '{nearest}'"):
            madbench.table(**{**stored, name: value})
    with pytest.raises(ConfigError, match="width: 'singel' is not allowed; did you mean 'single'"):
        madbench.plot("scores", width="singel", **stored)
    with pytest.raises(ConfigError, match="two labels or more"):
        madbench.compare(["S"], **stored)
    with pytest.raises(StoreError, match="R-cg-q"):
        madbench.table("S", **stored)
    with pytest.raises(LabelError):
        madbench.attribute("S-x", **stored)
    with pytest.raises(StoreError, match="no two labels .* differ in exactly one factor"):
        madbench.attribute("R-g-q", **stored)
