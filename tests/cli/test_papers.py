"""``madbench paper``: listings, refused options, training, and stored verdicts."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace

import pytest
import torch
import typer

from madbench.analysis.figures.panels import Layout
from madbench.analysis.scores import Results
from madbench.bench import language, timing
from madbench.cli.paper import call_verb
from madbench.cli.paper.listings import LEGEND
from madbench.cli.shared.plan import LONG
from madbench.errors import ConfigError, StoreError
from madbench.experiment import ExperimentOptions, prepare
from madbench.jobs import Record
from madbench.papers import load_paper
from madbench.papers.making import Request, jobs_of, measure_of, stored_verdicts
from madbench.papers.quantities import MeasuredQuantity
from madbench.store.runs import Store
from madbench.suites import main_suite
from madbench.suites.addressing import parse_overrides
from madbench.text.prepare import default_corpus
from madbench.training import cost


@pytest.mark.slow
def test_figure1_of_interactions_is_drawn_without_training(main, tmp_path):
    ended = main("paper", "interactions", "figure1", "-o", "drawn", "--results", tmp_path)
    assert ended.code == 0, ended.stderr
    assert {path.name for path in tmp_path.glob("drawn/*")} == {
        f"interactions_devised.{end}" for end in ("csv", "png", "pdf")
    }
    assert not (tmp_path / "runs").exists()
    refused = main("paper", "interactions", "figure1", "--seeds", "0-2")
    assert refused.code == 2 and "--seeds has no effect on figure1: it trains nothing" in refused.stderr


@pytest.mark.slow
def test_the_figure_of_an_item_shows_its_stored_runs(main, tmp_path):
    paper = load_paper("hypermlp")
    item = replace(paper.item("quick"), labels=("S", "R"), tasks=("compression",), figures=("scores",), claims=())
    request = Request(paper, item, results=tmp_path)
    store = Store.open(tmp_path)
    planned = prepare(measure_of(item).plan(request), ExperimentOptions(device="cpu", results=tmp_path))
    for job in planned.jobs:
        metrics = {"accuracy": 0.4, "selection_accuracy": 0.4, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
    (drawn,) = measure_of(item).decide(request, Results.from_rows(planned, store)).figures
    assert drawn.stem == "hypermlp_quick" and {"S", "R"} <= set(drawn.frame.label)
    assert drawn.draw(layout=Layout()).axes


def test_an_item_that_needs_weights_is_refused_if_stored_runs_lack_them(main, tmp_path):
    paper = load_paper("coefficients")
    (job, *_) = jobs_of(Request(paper, paper.item("figure9"), results=tmp_path))
    Store.open(tmp_path).finish(job, Record("finished", {"accuracy": 0.4}, [], {}))
    ended = main("paper", "coefficients", "figure9", "--yes", "--results", tmp_path)
    assert ended.code == 2 and "1 stored run has no weights" in ended.stderr and "--force" in ended.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.slow
@pytest.mark.parametrize("item", ["claims", "table3", "table4", "table5", "figure1"])
def test_an_item_run_by_another_verb_accepts_slots_and_threads(main, monkeypatch, item, tmp_path):
    """A verb without such an option would refuse it."""

    def measure(setup):  # takes minutes
        raise ConfigError(f"measured in {torch.get_num_threads()} threads")

    monkeypatch.setattr(language, "TABLE5", replace(language.TABLE5, measure=measure))
    monkeypatch.setattr(timing, "keep_freed_memory", lambda: None)  # of the process of all tests
    (tmp_path / "results" / "runs").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    threads = torch.get_num_threads()
    try:
        ended = main("paper", "hypermlp", item, "--slots", 2, "--threads", 2, "--yes")
    finally:
        torch.set_num_threads(threads)
    command = load_paper("hypermlp").item(item).command
    place = f" --results results/{item}"
    more = {"table5": " --threads 2", "claims": place, "table4": place}.get(item, "")
    assert f"madbench {command}{more}\n" in ended.stderr and "No such option" not in ended.stderr
    assert ("measured in 2 threads" in ended.stderr) == (item == "table5")


@pytest.mark.parametrize("words", [("--seeds", "0-4"), ("--dry-run",), ("training.epochs=3",), ("S",)])
def test_an_item_run_by_another_verb_refuses_options_of_training(main, words):
    ended = main("paper", "coefficients", "figure12", *words)
    assert ended.code == 2 and f"{words[0]} has no effect on figure12" in ended.stderr


@pytest.mark.parametrize(("code", "state"), [(0, "reproduced"), (1, "fails here")])
def test_the_verdict_of_an_item_that_verify_checks_is_stored(tmp_path, code, state):
    called = []
    paper = load_paper("coefficients")
    item = replace(paper.item("lemmas7to14"), command="verify @cd-table1")
    request = Request(paper, item, results=tmp_path)
    with pytest.raises(typer.Exit) if code else contextlib.nullcontext():
        call_verb(request, lambda words, **_: called.append(words) or code)
    assert called == [["verify", "@cd-table1"]]
    assert stored_verdicts(request)["quick"]["state"] == state


def test_an_item_made_by_a_verb_is_printed_in_the_requested_format(main, fill):
    """The options of printing are passed on to the verb, and an option or a value that it lacks is refused."""
    fill(["R-cg-q", "R-cg-q-12o"])
    ended = main("paper", "hypermlp", "claims", "-f", "latex", "--tex-label", "tab:x", "--rename", "R-cg-q=A")
    assert r"\begin{table" in ended.stdout and r"\label{tab:x}" in ended.stdout and ended.code == 0
    assert json.loads(main("paper", "hypermlp", "figure1", "-f", "json").stdout)
    ended = main("paper", "hypermlp", "figure1", "-f", "latex")
    assert ended.code == 2 and "'latex': there is no such choice; expected one of: terminal, json" in ended.stderr
    ended = main("paper", "hypermlp", "figure1", "--notes")
    assert ended.code == 2 and "--notes has no effect on figure1, which madbench explain" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [LONG - 1, LONG + 1])
def test_a_long_training_without_a_terminal_needs_yes(main, executor, monkeypatch, seconds):
    rate = [1e-12]
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {job.task: rate[0] for job in jobs})
    monkeypatch.setattr("sys.stdin.isatty", lambda: False)
    words = ("paper", "hypermlp", "quick", "S", "--seeds", "7", "--device", "cpu")
    rate[0] *= seconds / json.loads(main(*words, "--dry-run", "-f", "json").stdout)["estimated_seconds"]
    ended = main(*words)
    if seconds > LONG:
        assert ended.code == 2 and "6 jobs to train, about 10.0 min: give --yes" in ended.stderr
        assert main(*words, "--yes").code == 7
    else:
        assert ended.code == 7


@pytest.mark.slow
@pytest.mark.parametrize(
    ("item", "tasks", "planned"),
    [
        ("coefficients principle3", "mad", main_suite().usual_tasks()),
        ("coefficients principle3", "mad/compression", ("compression",)),
        ("coefficients principle3", "memorization,mad/compression", ("memorization", "compression")),
        ("interactions worlds", "interactions/hunters", ("hunters",)),
    ],
)
def test_tasks_of_an_item_are_given_by_suite_or_task_name(main, executor, item, tasks, planned):
    ended = main("paper", *item.split(), "-t", tasks, "--dry-run", "-f", "json")
    plan = json.loads(ended.stdout)
    rows = plan["cells"] if isinstance(plan, dict) else plan
    assert {row["task"] for row in rows} == {*planned}


def test_the_suite_name_stands_for_all_worlds_of_an_item(main):
    worlds = ("paper", "interactions", "worlds", "--dry-run")
    plan = [main(*worlds, *words).stdout for words in ([], ["-t", "interactions"])]
    assert plan[0] == plan[1] and all(f"\n{task} " in plan[0] for task in ("colliding", "hunters", "alliances"))


def test_an_unknown_task_of_an_item_is_refused_with_the_nearest(main):
    ended = main("paper", "interactions", "worlds", "-t", "huntres", "--dry-run")
    assert ended.code == 2 and "unknown task 'huntres'; did you mean 'hunters'?" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypermlp", "coefficients", "interactions"])
def test_every_item_states_whether_it_runs_and_at_which_sizes(main, tmp_path, name):
    listed = json.loads(main("paper", name, "--results", tmp_path, "-f", "json").stdout)["items"]
    for row in listed:
        if row["command"]:
            assert row["availability"].startswith("runs ")
            assert ("--profile full" in row["availability"]) is ("full" in row["sizes"])
        else:
            assert row["availability"] in ("cannot run here", "nothing to measure") and row["needs"]


@pytest.mark.slow
def test_the_listing_of_a_paper_shows_settings_that_it_leaves_open(main, tmp_path):
    text = " ".join(main("paper", "hypermlp", "--results", tmp_path).stdout.split())
    assert "model.position_rows=from_end" in text and "model.rope=mispaired" in text


@pytest.mark.slow
def test_overrides_of_an_item_apply_unless_the_user_changes_the_same_key(tmp_path):
    default_corpus(tmp_path)
    paper = load_paper("hypermlp")
    item = paper.item("table1_language_long_decay")

    def horizons(*overrides):
        request = Request(paper, item, results=tmp_path, overrides=parse_overrides(overrides))
        return {job.training.lr_decay_steps for job in jobs_of(request)}

    assert horizons() == {3600} and horizons("training.lr_decay_steps=480") == {480}
    assert horizons("training.weight_decay=0") == {3600}
    plain = {job.id for job in jobs_of(Request(paper, paper.item("table1_language"), results=tmp_path))}
    assert not plain & {job.id for job in jobs_of(Request(paper, item, results=tmp_path))} and len(plain) == 8 * 5


def test_a_quantity_measured_from_weights_is_stored_with_the_run(tmp_path):
    (job, *_) = jobs_of(Request((paper := load_paper("coefficients")), paper.item("figure9"), results=tmp_path))
    store, quantity = Store.open(tmp_path), MeasuredQuantity("largest", {"examples": 3})
    store.finish(job, Record("finished", {"accuracy": 0.4}, [], {}))
    with pytest.raises(StoreError, match="no weights, nor largest: --force trains it again"):
        quantity.of_run(store, job, lambda weights: ({"largest": 1.0}, {}))
    assert "1 stored run has no weights, nor largest" in quantity.note_on_runs(store, [job.id])
    store.measure(job.id, "largest", {"largest": 2.0}, {}, {"examples": 3})
    assert quantity.of_run(store, job, lambda weights: ({"largest": 1.0}, {})).values == {"largest": 2.0}
    assert not quantity.note_on_runs(store, [job.id])
    assert replace(quantity, settings={"examples": 4}).stored(store, job.id) is None


@pytest.mark.slow
def test_an_archive_without_weights_suffices_for_stored_measurements(main, tmp_path):
    words = ("paper", "coefficients", "principle2.2", "--seeds", "0-1", "training.epochs=1", "--no-figures", "--yes")
    words = (*words, "-f", "json")
    trained = main(*words, "--results", tmp_path / "own", "--slots", 1)
    assert trained.code == 0, trained.stderr
    assert main("archive", "--results", tmp_path / "own", "-o", tmp_path / "runs.tar.xz").code == 0
    assert main("import", tmp_path / "runs.tar.xz", "--results", tmp_path / "theirs").code == 0
    again = main(*words, "--results", tmp_path / "theirs")
    assert again.code == 0, again.stderr
    assert json.loads(again.stdout)["rows"] == json.loads(trained.stdout)["rows"]


def test_the_overview_explains_every_state_that_it_counts(main, tmp_path):
    table, _, legend = main("paper", "--results", tmp_path).stdout.partition("State ")
    counted = {line.strip().rstrip("0123456789 ") for line in table.splitlines() if line.startswith("  ")}
    explained = {line.split("  ")[0] for line in legend.splitlines()[2:] if line}
    assert counted <= explained and explained <= {*LEGEND}
    assert "State" not in main("paper", "--results", tmp_path, "-f", "markdown").stdout
