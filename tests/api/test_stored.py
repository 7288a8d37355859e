"""Functions on stored runs: tables, comparisons, audits, figures, and their display in notebooks."""

from __future__ import annotations

import builtins
import dataclasses
import inspect
import sys
from functools import partial
from types import SimpleNamespace
from typing import get_type_hints

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import madbench
from api_calls import ACCURACIES, CHOSEN, TINY, fill
from drawings import FIGURES
from madbench.analysis import notebook
from madbench.analysis.choice import Choice
from madbench.analysis.figures.files import NothingToDrawError
from madbench.api.arguments import ChoiceArguments
from madbench.api.stored import StoredResults
from madbench.cli.shared.options import StoredOptions
from madbench.errors import ConfigError, LabelError, StoreError
from madbench.execute import local
from madbench.jobs import Record
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites import size_of
from references import interval_of, p_of, terms


@pytest.mark.slow
def test_a_table_frame_has_one_row_per_label_and_column(stored_arguments):
    frame = madbench.table(**stored_arguments)
    assert list(zip(frame.label, frame.task, frame.n)) == [(label, "compression", 3) for label in ACCURACIES]
    assert frame["mean"].tolist() == pytest.approx([100 * sum(of) / 3 for of in ACCURACIES.values()])
    assert frame.solved.tolist() == [0, 0, 0] and frame.mark.tolist() == ["", "", "best"]
    low, high = stats.binomtest(0, 3).proportion_ci(0.95)  # Clopper and Pearson's
    assert frame.solved_low.tolist() == [low] * 3 and frame.solved_high.tolist() == pytest.approx([high] * 3)
    assert madbench.table("R-cg-q", **stored_arguments).label.tolist() == ["R-cg-q"]


@pytest.mark.slow
def test_labels_may_come_from_a_generator(stored_arguments):
    labels = ["R-cg-q", "R-g-q"]
    assert madbench.table((label for label in labels), **stored_arguments).label.tolist() == labels
    compared = madbench.compare(iter(labels), **stored_arguments)
    assert list(zip(compared.label, compared.baseline)) == [("R-g-q", "R-cg-q")]
    selection = madbench.open(stored_arguments["results"]).select(iter(labels), **CHOSEN)
    assert [row["label"] for row in selection.table().json_rows()] == labels


@pytest.mark.slow
def test_compare_attribute_and_findings_give_equal_differences_of_two_labels(stored_arguments):
    compared = madbench.compare(["R-cg-q", "R-cg-q-12o", "R-g-q"], **stored_arguments)
    effects, found = madbench.attribute(**stored_arguments), madbench.findings(**stored_arguments)
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
def test_a_notebook_shows_frames_as_formatted_tables(stored_arguments):
    with pytest.raises(TypeError, match=r"table\(\) has no argument 'names'; display names are given as rename="):
        madbench.table(names={"R-cg-q-12o": "HyperMLP"}, **stored_arguments)
    frame = madbench.table(rename={"R-cg-q-12o": "HyperMLP"}, **stored_arguments)
    html = frame._repr_html_()
    assert html.startswith("<table") and html.endswith("</table>") and html.count("<tr") == 1 + len(ACCURACIES)
    assert "HyperMLP" in html and "R-cg-q-12o" not in html and "HyperMLP" in frame.label.tolist()
    assert "<strong>66.3" in html and "66.3" in frame.shown.to_latex()
    part = frame[["label", "mean"]]
    assert type(part) is pd.DataFrame and part.to_dict("list") == {name: frame[name].tolist() for name in part}
    for shown in (
        madbench.compare(["R-cg-q", "R-g-q"], **stored_arguments),
        madbench.audit(**stored_arguments),
        madbench.findings(**stored_arguments),
    ):
        assert "<caption" in shown._repr_html_()


def test_a_plan_is_printed_and_shown_in_a_notebook(stored_arguments, tmp_path):
    planned = madbench.plan(["R-cg-q", "S"], seeds=[0, 1, 5], device="cpu", **stored_arguments)
    assert len(planned.jobs) == 6 and [(job.label, job.seed) for job in planned.missing] == [
        ("R-cg-q", 5), ("S", 0), ("S", 1), ("S", 5),
    ]  # fmt: skip
    html = planned._repr_html_()
    assert "<td>R-cg-q</td><td>MAD tasks</td><td>3</td><td>1</td>" in html
    title, _, headings, first, second, _, about = str(planned).splitlines()
    assert title == planned.title and about.startswith("Parameters: the whole model. FLOPs: training")
    assert headings.split() == ["row", "suite", "jobs", "to", "train", "parameters", "steps", "FLOPs"]
    assert len(headings) == len(first) == len(second)
    assert first.startswith("R-cg-q  MAD tasks     3         1 ")
    assert second.startswith("S       MAD tasks     3         3 ")
    steps, flops = (sum(getattr(size_of(job), name) for job in planned.jobs[:3]) for name in ("steps", "flops"))
    assert first.split()[-2:] == [f"{steps:,}", f"{flops:.4g}"]
    fresh = madbench.plan("S", device="cpu", results=tmp_path / "none")
    assert len(fresh.missing) == len(fresh.jobs) == 6 and not (tmp_path / "none").exists()


def test_a_notebook_shows_a_stored_run(stored_arguments, language_run):
    run = next(iter(Snapshot.open(stored_arguments["results"]).runs()))
    html = run._repr_html_()
    assert (
        f"run {run.job.id}" in html and f"<td>{run.job.label}</td><td>compression</td><td>{run.job.seed}</td>" in html
    )
    broken = dataclasses.replace(run, record=Record("failed", error="a < b"))
    assert "a &lt; b" in broken._repr_html_() and "failed" in broken._repr_html_()


def test_a_notebook_shows_progress_without_widgets(tmp_path, fake_executor, monkeypatch):
    """Progress is displayed once and updated in place: running jobs with their share, and finally the number of
    finished jobs."""
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
    monkeypatch.setattr(builtins, "get_ipython", type("ZMQInteractiveShell", (), {}), raising=False)
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
def test_methods_of_a_selection_return_what_the_functions_return(stored_arguments):
    selection = madbench.open(stored_arguments["results"]).select(**CHOSEN)
    assert selection.table().json_rows() == madbench.table(**stored_arguments).to_dict("records")
    effects = [row["estimate"] for row in selection.attribute().json_rows()]
    assert effects == madbench.attribute(**stored_arguments).estimate.tolist()
    assert selection.frame().label.unique().tolist() == list(ACCURACIES)
    pair = ["R-cg-q", "R-g-q"]
    compared = madbench.open(stored_arguments["results"]).select(pair, **CHOSEN).compare()
    assert compared.json_rows()[0]["estimate"] == madbench.compare(pair, **stored_arguments).estimate[0]
    claims = selection.findings().json_rows()
    assert [row["claim"] for row in claims] == madbench.findings(**stored_arguments).claim.tolist() != []
    assert isinstance(selection.plot("scores"), Figure)
    with pytest.raises(ConfigError, match="no label: nothing to compare with"):
        selection.compare()
    deviations = selection.table(shows="sd", thresholds=None)
    assert "standard deviation over seeds" in deviations.notes and "standard deviation" not in selection.table().notes
    margins = madbench.open(stored_arguments["results"]).select(pair, **CHOSEN).compare(within=np.float32(2))
    assert margins.json_rows()[0]["equivalence"]


@pytest.mark.slow
def test_an_audit_has_one_row_per_column(stored_arguments):
    found = madbench.audit(**stored_arguments)
    assert found.column.tolist() == ["compression"] and found.labels.tolist() == [len(ACCURACIES)]
    with pytest.raises(ConfigError, match="against=quick: its runs are those that are shown"):
        madbench.audit(**stored_arguments, against="quick")
    fill(Store(stored_arguments["results"]), "evening")
    held = madbench.audit(**stored_arguments, against="evening")
    assert held.column.tolist() == ["compression"] and (held.pairs.tolist(), held.reversed.tolist()) == ([3], [0])


@pytest.mark.slow
def test_a_plot_is_a_figure_of_matplotlib(stored_arguments):
    assert isinstance(madbench.plot("scores", **stored_arguments), Figure)
    with pytest.raises(NothingToDrawError, match="no runs: Language model"):
        madbench.plot("loss", **stored_arguments)
    with pytest.raises(ConfigError, match="no figure 'efects'; did you mean 'effects'"):
        madbench.plot("efects", **stored_arguments)
    assert {"scores", "effects", "loss"} <= FIGURES.keys()


def test_functions_on_stored_runs_have_the_options_of_the_command_line():
    """Each option has its type for editors, and the default and description of its declaration."""
    types, fields = get_type_hints(ChoiceArguments), {field.name: field for field in dataclasses.fields(Choice)}
    assert fields.keys() - {"labels", "results"} == types.keys()
    select = StoredResults.select
    for show in (
        madbench.table,
        madbench.compare,
        madbench.attribute,
        madbench.audit,
        madbench.findings,
        madbench.plot,
        select,
    ):
        parameters = inspect.signature(show).parameters
        for name, hint in types.items():
            parameter = parameters[name]
            assert (parameter.annotation, parameter.default) == (hint, fields[name].default)
            assert f"\n    {name}: " in show.__doc__
        assert inspect.Parameter.VAR_KEYWORD not in {parameter.kind for parameter in parameters.values()}
    assert "Only runs on the corpus of this name, folder or digest." in madbench.table.__doc__


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"protocol": "c0ffee00"},
        {"protocol": "c0ffee00", "budget": "flops"},
        {"tasks": ["compression"], "profile": "quick", "fidelity": "published", "budget": "state"},
        {"corpus": "shelf"},
    ],
)
def test_the_same_choice_on_the_command_line_and_in_python_is_the_same_query(choice, tmp_path):
    of_command_line = StoredOptions(**choice, results=tmp_path).selection(["S", "training.epochs=7"])
    of_python = madbench.open(tmp_path).select("S", overrides="training.epochs=7", **choice)
    for field in dataclasses.fields(Choice):
        assert [*flat(getattr(of_command_line, field.name))] == [*flat(getattr(of_python, field.name))], field.name


def flat(value):
    """The items of a list or tuple, or the value itself."""
    return value if isinstance(value, list | tuple) else [value]


def test_budget_parameters_means_strict():
    assert madbench.open("none").select("S", budget="parameters").budget == "strict"
    assert madbench.open("none").select("S", budget=None).budget is None


@pytest.mark.slow
def test_functions_on_stored_runs_warn_about_damaged_runs(stored_arguments, tmp_path):
    (damaged, *_) = (tmp_path / "runs").iterdir()
    (damaged / "record.json").write_text("{")
    with pytest.warns(UserWarning, match=damaged.name):
        madbench.table(**stored_arguments)


def test_an_unknown_argument_suggests_the_nearest():
    for function in (madbench.run, madbench.table):
        with pytest.raises(TypeError, match=r"got an unexpected keyword argument 'task'; did you mean 'tasks'\?"):
            function("S-p", task="memorization")


def test_functions_on_stored_runs_refuse_wrong_arguments(stored_arguments):
    shows = (madbench.table, madbench.attribute, madbench.audit, madbench.findings)
    for show in (*shows, partial(madbench.compare, ["S", "S-c"]), partial(madbench.plot, "scores")):
        name = getattr(show, "func", show).__name__
        with pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument 'profil'"):
            show(profil="quick", **stored_arguments)
    with pytest.raises(TypeError, match=r"plot\(\) got an unexpected keyword argument 'track'"):
        madbench.plot("scores", track=None, **stored_arguments)
        for choice, value, nearest in [("fidelity", "publish", "published"), ("budget", "papr", "paper")]:
            with pytest.raises(ConfigError, match=f"{choice}: '{value}' is not allowed; did you mean '{nearest}'"):
                show(**{**stored_arguments, choice: value})
        with pytest.raises(ConfigError, match="fidelity: .*; expected one of: corrected, published"):
            show(**{**stored_arguments, "fidelity": "xx"})
    with pytest.raises(ConfigError, match="width: 'singel' is not allowed; did you mean 'single'"):
        madbench.plot("scores", width="singel", **stored_arguments)
    with pytest.raises(ConfigError, match="two labels or more"):
        madbench.compare(["S"], **stored_arguments)
    with pytest.raises(StoreError, match="R-cg-q"):
        madbench.table("S", **stored_arguments)
    with pytest.raises(LabelError):
        madbench.attribute("S-x", **stored_arguments)
    with pytest.raises(StoreError, match="no two labels .* differ in exactly one factor"):
        madbench.attribute("R-g-q", **stored_arguments)
