from __future__ import annotations

import dataclasses
import inspect
import random
import shutil
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from matplotlib.figure import Figure
from scipy import stats

import madbench
from drawings import FIGURES
from madbench.analysis import notebook
from madbench.analysis.figures.files import NothingToDrawError
from madbench.errors import ConfigError, LabelError, StoreError, TrainingError
from madbench.execute import local
from madbench.execute.base import Summary
from madbench.grid import GridFile
from madbench.jobs import Record
from madbench.store.runs import Snapshot, Store
from madbench.suites import suite_of
from madbench.suites.language.suite import LANGUAGE
from madbench.suites.mad.suite import MAD, MAD_TASKS
from madbench.suites.scoring import COLUMNS
from madbench.training.checkpoints import save_weights
from references import interval_of, p_of, terms
from sample_jobs import mad_job

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


@pytest.mark.slow
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


@pytest.mark.slow
def test_threads_are_those_asked_for(tmp_path, trained):
    choices = {"device": "cpu", "threads": 3}
    tiny = {"overrides": TINY, "tasks": "compression", **choices}
    madbench.run("S", results=tmp_path / "run", **tiny)
    assert trained.train["threads"] == 3
    madbench.sweep("S", set={"model.d_model": 16}, tasks=["compression"], results=tmp_path / "sweep", **choices)
    assert trained.train["threads"] == 3
    with pytest.raises(ConfigError, match="threads must be at least 1, got 0"):
        madbench.run("S", results=tmp_path / "none", **tiny | {"threads": 0})


@pytest.mark.slow
def test_what_the_store_has_is_trained_again_only_with_force(tmp_path, trained):
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    madbench.run("S", **choices)
    madbench.run(["S", "R"], **choices)
    assert [job.label for job in trained.jobs] == ["R"]
    madbench.run(["S", "R"], force=True, **choices)
    assert [job.label for job in trained.jobs] == ["S", "R"]


@pytest.mark.slow
def test_a_failed_job_is_an_error_and_a_diverged_one_a_result(tmp_path, trained):
    trained.records = {"S": Record("diverged", error="loss"), "R": Record("failed", error="crash")}
    choices = {"overrides": TINY, "tasks": "compression", "device": "cpu", "results": tmp_path}
    (row,) = madbench.run("S", **choices).itertuples()
    assert row.is_diverged and row.value == row.chance and (row.done, row.diverged) == (1, 1)
    with pytest.raises(TrainingError, match="1 of 2 jobs failed; see .*/runs"):
        madbench.run(["S", "R"], **choices)


@pytest.mark.slow
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
    assert curves.protocol.str.contains("profile tiny model.d_model=16").all()


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
    from madbench.api.calls import changes_of
    from madbench.grid import parse_axes

    assert changes_of({"training.epochs": 2, "learning_rates": [0.1]}) == (
        "training.epochs=2",
        "learning_rates=[0.1]",
    )
    assert changes_of("training.epochs=2") == changes_of(["training.epochs=2"]) == ("training.epochs=2",)
    assert parse_axes(["model.mix_rank=4,8"]) == {"model.mix_rank": [4, 8]}


ACCURACIES = {"R-g-q": [0.4, 0.41, 0.43], "R-cg-q": [0.5, 0.52, 0.51], "R-cg-q-12o": [0.65, 0.66, 0.68]}
"""Of three seeds."""


CHOSEN = {"profile": "quick", "overrides": ["model.d_model=48", "precision=float32"], "tasks": "compression"}


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A results folder with three seeds of three labels on compression."""
    store = Store.open(tmp_path_factory.mktemp("shelf"))
    fill(store, CHOSEN["profile"])
    return store.root


def fill(store, profile):
    """Stores three seeds of each label under a profile."""
    profile = MAD.Profile.load(profile, CHOSEN["overrides"])
    for label, accuracies in ACCURACIES.items():
        jobs = MAD.jobs([label], profile, tasks=[CHOSEN["tasks"]], seeds=range(3), precision="float32")
        for job, accuracy in zip(jobs, accuracies, strict=True):
            metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
            store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))


@pytest.fixture
def stored(shelf, tmp_path):
    """The arguments with which functions find the runs of a copy of that folder."""
    shutil.copytree(shelf, tmp_path, dirs_exist_ok=True)
    return CHOSEN | {"results": tmp_path}


@pytest.mark.slow
def test_a_table_is_a_row_a_label_and_column(stored):
    frame = madbench.table(**stored)
    assert list(zip(frame.label, frame.task, frame.n)) == [(label, "compression", 3) for label in ACCURACIES]
    assert frame["mean"].tolist() == pytest.approx([100 * sum(of) / 3 for of in ACCURACIES.values()])
    assert frame.solved.tolist() == [0, 0, 0] and frame.mark.tolist() == ["", "", "best"]
    low, high = stats.binomtest(0, 3).proportion_ci(0.95)  # Clopper and Pearson's
    assert frame.solved_low.tolist() == [low] * 3 and frame.solved_high.tolist() == pytest.approx([high] * 3)
    assert madbench.table("R-cg-q", **stored).label.tolist() == ["R-cg-q"]


@pytest.mark.slow
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
        estimate, sides = values[0].mean() - values[1].mean(), [terms(of_label) for of_label in values]
        expected = estimate, *interval_of(estimate, sides), p_of(estimate, sides)
        for row in rows:
            assert (row.estimate, row.low, row.high, row.p) == pytest.approx(expected, abs=1e-8)


@pytest.mark.slow
def test_a_notebook_shows_frames_as_the_tables_they_are_of(stored):
    with pytest.raises(TypeError, match=r"table\(\) has no argument 'names'; display names are given as rename="):
        madbench.table(names={"R-cg-q-12o": "HyperMLP"}, **stored)
    frame = madbench.table(rename={"R-cg-q-12o": "HyperMLP"}, **stored)
    html = frame._repr_html_()
    assert html.startswith("<table") and html.endswith("</table>") and html.count("<tr") == 1 + len(ACCURACIES)
    assert "HyperMLP" in html and "R-cg-q-12o" not in html and "HyperMLP" in frame.label.tolist()
    assert "<strong>66.3" in html and "66.3" in frame.shown.to_latex()
    part = frame[["label", "mean"]]
    assert type(part) is pd.DataFrame and part.to_dict("list") == {name: frame[name].tolist() for name in part}
    for shown in (
        madbench.compare(["R-cg-q", "R-g-q"], **stored),
        madbench.audit(**stored),
        madbench.findings(**stored),
    ):
        assert "<caption" in shown._repr_html_()


def test_a_plan_says_what_run_would_train_and_a_notebook_shows_it(stored, tmp_path):
    planned = madbench.plan(["R-cg-q", "S"], seeds=[0, 1, 5], device="cpu", **stored)
    assert len(planned.jobs) == 6 and [(job.label, job.seed) for job in planned.missing] == [
        ("R-cg-q", 5), ("S", 0), ("S", 1), ("S", 5),
    ]  # fmt: skip
    html = planned._repr_html_()
    assert "<td>R-cg-q</td><td>MAD tasks</td><td>3</td><td>1</td>" in html
    fresh = madbench.plan("S", device="cpu", results=tmp_path / "none")
    assert len(fresh.missing) == len(fresh.jobs) == 6 and not (tmp_path / "none").exists()


def test_a_notebook_shows_a_stored_run(stored, language_run):
    run = next(iter(Snapshot.open(stored["results"], create=False).runs()))
    html = run._repr_html_()
    assert (
        f"run {run.job.id}" in html and f"<td>{run.job.label}</td><td>compression</td><td>{run.job.seed}</td>" in html
    )
    broken = dataclasses.replace(run, record=Record("failed", error="a < b"))
    assert "a &lt; b" in broken._repr_html_() and "failed" in broken._repr_html_()


def test_a_notebook_shows_progress_without_widgets(tmp_path, trained, monkeypatch):
    """Shown once and replaced in place: running jobs with their share, and at the end how many are done."""
    shown = []

    class Handle:
        def update(self, html):
            shown.append(html)

    def display(html, display_id):
        assert display_id
        shown.append(html)
        return Handle()

    module = SimpleNamespace(HTML=str, display=display)
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(display=module))
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(notebook, "SECONDS", 0.0)
    store_all = local.run_jobs

    def run_jobs(groups, store, train, *, on_event, policy, **how):
        jobs = [job for group in groups for job in group]
        on_event({"event": "started", "job": jobs[0], "slot": 0})
        progress = {"step": 3, "total_steps": 4, "loss": 1.5}
        on_event({"event": "progress", "job": jobs[0], "slot": 0, "progress": progress})
        summary = store_all(groups, store, train, on_event=on_event, policy=policy, **how)
        for job in jobs:
            on_event({"event": "finished", "job": job, "slot": 0, "record": store.read(job.id).record})
        return summary

    monkeypatch.setattr(local, "run_jobs", run_jobs)
    madbench.run(["S", "R"], overrides=TINY, tasks="compression", device="cpu", results=tmp_path)
    assert "0/2 jobs done" in shown[0] and "2/2 jobs done" in shown[-1] and 'value="1.000"' in shown[-1]
    assert any("75% S compression seed 0 loss 1.500" in html and 'value="0.375"' in html for html in shown)


@pytest.mark.slow
def test_a_selection_answers_what_the_functions_do(stored):
    selection = madbench.open(stored["results"]).select(**CHOSEN)
    assert selection.table().records() == madbench.table(**stored).to_dict("records")
    effects = [row["estimate"] for row in selection.attribute().records()]
    assert effects == madbench.attribute(**stored).estimate.tolist()
    assert selection.frame().label.unique().tolist() == list(ACCURACIES)
    pair = ["R-cg-q", "R-g-q"]
    compared = madbench.open(stored["results"]).select(pair, **CHOSEN).compare()
    assert compared.records()[0]["estimate"] == madbench.compare(pair, **stored).estimate[0]
    claims = selection.findings().records()
    assert [row["claim"] for row in claims] == madbench.findings(**stored).claim.tolist() != []
    assert isinstance(selection.plot("scores"), Figure)
    with pytest.raises(ConfigError, match="no label: nothing to compare with"):
        selection.compare()


@pytest.mark.slow
def test_an_audit_has_a_row_a_column(stored):
    found = madbench.audit(**stored)
    assert found.column.tolist() == ["compression"] and found.labels.tolist() == [len(ACCURACIES)]
    with pytest.raises(ConfigError, match="--against quick: its runs are those that are shown"):
        madbench.audit(**stored, against="quick")
    fill(Store(stored["results"]), "evening")
    held = madbench.audit(**stored, against="evening")
    assert held.column.tolist() == ["compression"] and (held.pairs.tolist(), held.reversed.tolist()) == ([3], [0])


@pytest.mark.slow
def test_a_plot_is_a_figure_of_matplotlib(stored):
    assert isinstance(madbench.plot("scores", **stored), Figure)
    with pytest.raises(NothingToDrawError, match="no runs: Language model"):
        madbench.plot("loss", **stored)
    with pytest.raises(ConfigError, match="no figure 'efects'; did you mean 'effects'"):
        madbench.plot("efects", **stored)
    assert {"scores", "effects", "loss"} <= FIGURES.keys()


def test_a_sweep_names_the_keys_of_a_grid():
    keys = {one.name for one in dataclasses.fields(GridFile)} - {"description", "labels", "claims", "claims_from"}
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


@pytest.mark.slow
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
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'track'"):
        madbench.plot("scores", track=None, **stored)
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


def random_state() -> tuple:
    return random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()


@pytest.mark.slow
def test_public_functions_leave_the_random_state_alone(stored, tmp_path, trained, corpus, monkeypatch):
    """All but ``build``, which draws weights; a module that draws from NumPy and Python leaves no trace either."""
    (tmp_path / "drawing.py").write_text(
        "import random, numpy as np, torch\n"
        "class Mixer(torch.nn.Linear):\n"
        "    def __init__(self, d_model):\n"
        "        super().__init__(d_model, d_model)\n"
        "        self.factor = float(np.random.rand()) + random.random()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    labels, training = ["my:drawing.Mixer", "S"], {"device": "cpu", "results": tmp_path / "results"}
    model = suite_of(job := mad_job("S")).Trial.build(job)
    save_weights(tmp_path / "model.safetensors", model, job)
    calls = {
        "parse": lambda: madbench.parse("my:drawing.Mixer"),
        "plan": lambda: madbench.plan(labels, tasks="compression", **training),
        "verify": lambda: madbench.verify(["my:drawing.Mixer", "S-p", "cd:gdn", "hfa:2"]),
        "run": lambda: madbench.run(labels, tasks="compression", overrides=TINY, **training),
        "sweep": lambda: madbench.sweep("S", set={"model.d_model": 16}, tasks=["compression"], **training),
        "run_language_model": lambda: madbench.run_language_model(
            "S", profile="tiny", corpus=corpus, tokenizer="none:64", **training
        ),
        "load": lambda: madbench.load(tmp_path / "model.safetensors"),
        "table": lambda: madbench.table(**stored),
        "compare": lambda: madbench.compare(["R-cg-q", "R-g-q"], **stored),
        "attribute": lambda: madbench.attribute(**stored),
        "audit": lambda: madbench.audit(**stored),
        "findings": lambda: madbench.findings(**stored),
        "plot": lambda: madbench.plot("scores", **stored),
        "open": lambda: madbench.open(stored["results"]).select(**CHOSEN).table(),
    }
    assert calls.keys() == {*madbench.__all__} - {"build"}
    random.seed(5), np.random.seed(6), torch.manual_seed(7)
    for name, call in calls.items():
        before = random_state()
        call()
        assert random_state() == before, name


@pytest.mark.parametrize(
    "seeds", [np.arange(3), [np.int64(0), np.int32(1), 2], pd.Series([0, 1, 2]), torch.arange(3)], ids=type
)
def test_seeds_may_be_of_numpy_pandas_or_torch(seeds):
    assert [job.seed for job in madbench.plan("S-p", tasks="memorization", seeds=seeds).jobs] == [0, 1, 2]


@pytest.mark.parametrize("as_other", [np.float64, np.float16, torch.tensor, np.array])
def test_changes_of_numpy_and_torch_plan_the_same_jobs(as_other):
    usual = {"learning_rates": [0.5], "weight_decays": 0.25}
    others = {"learning_rates": [as_other(0.5)], "weight_decays": as_other(0.25)}
    first, second = (madbench.plan("S-p", tasks="memorization", overrides=changes).jobs for changes in (usual, others))
    assert [job.id for job in first] == [job.id for job in second]


def test_a_truth_value_of_numpy_is_a_setting():
    first, second = (
        madbench.plan("cd:gdn", tasks="memorization", overrides={"model.value_skip": value}).jobs
        for value in (True, np.True_)
    )
    assert [job.id for job in first] == [job.id for job in second]


def test_a_sweep_varies_over_arrays_of_numpy(trained, tmp_path):
    axes = {"model.d_model": np.array([16, 32])}
    frame = madbench.sweep(["S-pc"], vary=axes, tasks=["memorization"], seeds=np.int64(4), results=tmp_path)
    assert set(frame.seed) == {4}
    assert frame["model.d_model"].tolist() == [16, 32]


def test_a_change_of_another_type_is_refused():
    with pytest.raises(ConfigError, match="training.epochs"):
        madbench.plan("S-p", tasks="memorization", overrides={"training.epochs": object()})
    with pytest.raises(ConfigError):
        madbench.plan("S-p", tasks="memorization", seeds=np.array([0.0, 1.0]))
