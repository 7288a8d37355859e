"""Papers: those here are whole, those of packages are found, and nothing of the core imports them."""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer

import madbench
from conftest import forget_installed
from madbench.analysis.claims import Claim, load_claims
from madbench.analysis.figures.panels import Layout
from madbench.analysis.scores import Results
from madbench.bench import language, timing
from madbench.cli.paper import call_verb
from madbench.cli.plan import LONG
from madbench.config import parse_seeds
from madbench.errors import ConfigError, StoreError
from madbench.experiment import prepare
from madbench.jobs import Record
from madbench.papers import Paper, built_in, load_paper, loaded_papers
from madbench.papers.claimed_rows import claims
from madbench.papers.making import (
    Made,
    Request,
    jobs_of,
    judged,
    measure_of,
    remembered,
    state_of,
    statement_verdict,
)
from madbench.papers.quantities import Quantity
from madbench.papers.table_measure import published_numbers
from madbench.store.runs import Store
from madbench.suites import main_suite
from madbench.text.prepare import default_corpus
from madbench.training import cost

PACKAGE = Path(madbench.__file__).parent
EXAMPLE = PACKAGE.parent / "examples" / "paper"
MAY_IMPORT = {
    "cli/paper.py",
    "cli/paper_listings.py",
    "cli/paper_shipped.py",
    "cli/packages.py",
    "cli/listings.py",
    "cli/completion.py",
}


def test_an_item_that_trains_has_five_seeds_or_says_why_fewer():
    fewer = [
        f"{paper.name} {item.id}"
        for paper in map(load_paper, built_in())
        for item in paper.items
        if item.profiles and (item.measure or item.claims) and len(parse_seeds(item.seeds)) < 5
        if not re.search(r"seed", f"{item.rule} {item.note}")
    ]
    assert not fewer


def test_the_seeds_of_an_item_are_those_of_its_jobs():
    paper = load_paper("coefficients")
    item = replace(paper.item("principle6"), seeds="3-4")
    assert {job.seed for job in jobs_of(Request(paper, item))} == {3, 4}


def test_nothing_of_the_core_imports_papers():
    importing = re.compile(
        r"^\s*(from madbench\.papers|import madbench\.papers|from madbench import .*\bpapers\b)", re.M
    )
    files = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    users = {name for name, text in files.items() if importing.search(text)}
    assert {name for name in users if not name.startswith("papers/")} == MAY_IMPORT
    private = re.compile(r"^\s*from madbench\S* import .*\b_[a-z]", re.M)
    assert not [name for name, text in files.items() if name.startswith("papers/") and private.search(text)]


@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_item_has_a_measure_that_is_there_or_a_verb_or_a_reason(name):
    from madbench.cli import VERBS

    paper = load_paper(name)
    assert len(paper.items) > 10
    for item in paper.items:
        if item.measure:
            assert hasattr(measure_of(item), "decide")
        elif item.command:
            assert item.command.split()[0] in " ".join(VERBS.values()).split()
        elif item.checks:
            assert measure_of(item).plan(Request(paper, item)) is None
        elif item.labels:
            assert measure_of(item).plan(Request(paper, item)).rows
        else:
            assert ":" in item.needs
        if item.published:
            assert published_numbers(Request(paper, item))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_item_that_trains_or_verifies_says_what_it_costs(name):
    paper = load_paper(name)
    costly = [item for item in paper.items if jobs_of(Request(paper, item)) or item.command.startswith("verify ")]
    assert costly and [item.id for item in costly if not item.seconds] == []


@pytest.mark.slow
def test_a_figure_of_devised_numbers_trains_nothing(main, tmp_path):
    ended = main("paper", "interactions", "figure1", "-o", "drawn", "--results", tmp_path)
    assert ended.code == 0, ended.stderr
    assert {path.name for path in tmp_path.glob("drawn/*")} == {
        f"interactions_devised.{end}" for end in ("csv", "png", "pdf")
    }
    assert not (tmp_path / "runs").exists()
    refused = main("paper", "interactions", "figure1", "--seeds", "0-2")
    assert refused.code == 2 and "--seeds has no effect on figure1: it trains nothing" in refused.stderr


def test_a_verdict_against_a_paper_is_not_outweighed():
    assert judged({"a": "supported", "b": "contradicted"}) == "contradicted"
    assert judged({"a": "supported", "b": "not enough data"}) == "not decided"
    assert judged({"a": "supported", "b": "reproduced"}) == "reproduced"
    assert judged({}) == "not decided"


def test_an_operator_that_fails_here_says_nothing_of_the_paper():
    assert judged({"a": "contradicted", "b": "fails here"}) == "fails here"


@pytest.fixture
def packaged(monkeypatch, tmp_path_factory):
    """``packaged(name=value, ...)``: an installed package with entry points of papers. The example can be imported."""

    def call(**values: str):
        site = tmp_path_factory.mktemp("site")
        (site / "shelf-1.0.dist-info").mkdir()
        (site / "shelf-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: shelf\nVersion: 1.0\n")
        lines = ["[madbench.papers]", *(f"{name} = {value}" for name, value in values.items())]
        (site / "shelf-1.0.dist-info" / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(site)
        forget_installed()

    monkeypatch.syspath_prepend(str(EXAMPLE))
    yield call
    monkeypatch.undo()
    sys.modules.pop("madbench_positions", None)
    forget_installed()


@pytest.mark.slow
def test_a_package_adds_a_paper_and_a_broken_one_fails_alone(packaged, main):
    packaged(positions="madbench_positions:PAPER", broken="madbench_nowhere:PAPER", other="json:dumps")
    papers, problems = loaded_papers()
    assert {*built_in(), "positions"} == set(papers) and set(problems) == {"broken", "other"}
    assert [claim.name for claim in load_claims("positions")] == ["rope", "conv"]
    listed = main("paper")
    assert listed.code == 0 and "positions" in listed.stdout and "madbench_nowhere" in listed.stderr
    assert "did you mean 'positions'?" in main("paper", "position").stderr
    assert "a drawing of the operator" in main("paper", "positions", "figure1").stderr


@pytest.mark.slow
def test_the_example_is_made_from_stored_runs_beside_its_published_numbers(packaged, main, tmp_path):
    packaged(positions="madbench_positions:PAPER")
    paper = load_paper("positions")
    item = paper.item("table1")
    request = Request(paper, item, results=tmp_path)
    chance, store = random.Random(0), Store.open(tmp_path)
    for job in prepare(measure_of(item).plan(request), device="cpu", results=tmp_path).jobs:
        value = {"S": 0.4, "S-p": 0.9, "S-c": 0.9}[job.label] + chance.gauss(0, 0.002)
        metrics = {"accuracy": value, "selection_accuracy": value, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
    made = main("paper", "positions", "table1", "--results", tmp_path, "-f", "json")
    assert made.code == 0, made.stderr
    content = json.loads(made.stdout)
    assert set(content["verdicts"].values()) == {"supported"}
    (softmax,) = [cell for cell in content["cells"] if cell["label"] == "S"]
    assert softmax["published"] == 35.2 and softmax["mean"] == pytest.approx(40, abs=1) and softmax["n"] == 3
    listed = json.loads(main("paper", "positions", "--results", tmp_path, "-f", "json").stdout)["items"]
    note = "settings chosen by the published order of @choosing"
    assert [row["state"] for row in listed] == [f"reproduced (quick, {note})", "nothing to measure"]


def test_published_numbers_are_of_the_rows_that_the_item_names():
    paper = load_paper("interactions")
    numbers = [published_numbers(Request(paper, paper.item(name))) for name in ("table1", "table2")]
    assert [of_table["S"]["perplexity"] for of_table in numbers] == [62.28, 28.70]
    assert "ha:3" in numbers[0] and "ha:3" not in numbers[1]


def test_rows_with_changes_have_their_published_numbers_and_claims():
    request = Request(paper := load_paper("coefficients"), paper.item("table3"))
    made, published = claims(request), published_numbers(request)
    assert {claim.quantities for claim in made} == {("validation_loss",)}
    gaps = {name: [published[label]["perplexity"] for label in pair] for name, pair in pairs_of(made).items()}
    assert gaps.pop("mamba2-parted") == [28.84, 28.87]
    assert len(gaps) == 3 and all(better < worse for better, worse in gaps.values())


def pairs_of(made: list[Claim]) -> dict[str, tuple[str, str]]:
    return {claim.name: claim.pairs[0] for claim in made}


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_every_published_perplexity_is_claimed_to_be_below_softmax_attentions(name):
    paper = load_paper("interactions")
    item = paper.item(name)
    pairs = [pair for claim in load_claims(paper.claims_file) if claim.name in item.claims for pair in claim.pairs]
    published = {name.split()[0] for name in published_numbers(Request(paper, item))}
    assert {*pairs} == {(label, "S") for label in published - {"S"}}


@pytest.mark.slow
def test_a_figure_of_the_runs_of_an_item_is_drawn_of_them(main, tmp_path):
    paper = load_paper("hypermlp")
    item = replace(paper.item("quick"), labels=("S", "R"), tasks=("compression",), figures=("scores",), claims=())
    request = Request(paper, item, results=tmp_path)
    store = Store.open(tmp_path)
    planned = prepare(measure_of(item).plan(request), is_remote=False, device="cpu", results=tmp_path)
    for job in planned.jobs:
        metrics = {"accuracy": 0.4, "selection_accuracy": 0.4, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [], {"budget_ratio": 1.0}))
    (drawn,) = measure_of(item).decide(request, Results.from_rows(planned, store)).figures
    assert drawn.stem == "hypermlp_quick" and {"S", "R"} <= set(drawn.frame.label)
    assert drawn.draw(layout=Layout()).axes


def test_an_item_of_trained_models_is_refused_before_it_trains_where_stored_runs_have_no_weights(main, tmp_path):
    paper = load_paper("coefficients")
    (job, *_) = jobs_of(Request(paper, paper.item("figure9"), results=tmp_path))
    Store.open(tmp_path).finish(job, Record("finished", {"accuracy": 0.4}, [], {}))
    ended = main("paper", "coefficients", "figure9", "--yes", "--results", tmp_path)
    assert ended.code == 2 and "1 stored run has no weights" in ended.stderr and "--force" in ended.stderr
    assert len(list((tmp_path / "runs").iterdir())) == 1


@pytest.mark.parametrize("item", ["figure2", "figure3", "figure4"])
def test_figures_of_colliding_agents_train_their_embedding_alone(item):
    paper = load_paper("interactions")
    (job,) = jobs_of(Request(paper, paper.item(item)))
    assert job.setting["embedding"] == ("one_hot" if item == "figure3" else "sinusoidal") and not job.setting["control"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("id: a", "key 'place' is missing"),
        ("id: a, place: b, title: c", "expected labels, a command or a measure"),
        ("id: a, place: b, title: c, needs: later", "needs: expected Nothing to measure"),
        ("id: a, place: b, title: c, labels: [Sx], profiles: {quick: quick}", "Sx"),
        ("id: a, place: b, title: c, labels: [S]", "labels have no effect without profiles"),
        ("id: a, place: b, title: c, command: ls, arithmetic: true", "arithmetic has no effect beside a command"),
        ("id: a, place: b, title: c, command: ls, figures: [loss]", "figures have no effect without labels"),
        (
            "id: a, place: b, title: c, labels: [S], profiles: {quick: quick}, figures: [los]",
            "no figure 'los'; did you",
        ),
        ("id: a, place: b, title: c, command: ls, published_rows: {a: b}", "published_rows has no effect without"),
        ("id: a, place: b, title: c, command: ls, published: no.csv", "there is no file no.csv"),
        ("id: a, place: b, title: c, command: ls, claims: [x]", "no claim 'x'"),
        ("id: a, place: b, title: c, comand: ls", "did you mean 'command'?"),
        ("id: a, place: b, title: c, labels: [S], profiles: {ful: full}", "did you mean 'full'?"),
        ("id: a, place: b, title: c, command: paper hypermlp a", "would call itself"),
        ("id: a, place: b, title: c, command: ls, seeds: many", "seeds 'many': expected whole numbers"),
        ("id: a, place: b, title: c, command: ls, tasks: [compresion]", "did you mean 'compression'?"),
        (
            "id: a, place: b, title: c, command: ls, published: table1.csv, columns: {a: compresion}",
            "has no column 'compresion'",
        ),
    ],
)
def test_an_item_that_is_wrong_says_where(tmp_path, item, message):
    path = tmp_path / "paper.yaml"
    path.write_text(f"title: t\nsource: s\nitems: [{{{item}}}]\n")
    (tmp_path / "table1.csv").write_text("label,compression\n")
    with pytest.raises(Exception) as refused:
        Paper.load(path)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "measure", ["no_such.module:Measure", "json:Measure", "json:dumps", "json", "json:JSONEncoder"]
)
def test_a_measure_that_cannot_be_loaded_is_an_error_of_its_item(measure):
    from dataclasses import replace

    item = replace(load_paper("hypermlp").item("quick"), measure=measure)
    with pytest.raises(ConfigError, match=f"quick: measure {measure}"):
        measure_of(item)


def test_published_cells_that_are_no_numbers_are_left_out(tmp_path):
    (tmp_path / "table.csv").write_text("label,compression,memorization\nS,35.2,n/a\nS-p,-,nan\n")
    (tmp_path / "paper.yaml").write_text(
        "title: t\nsource: s\nitems: [{id: a, place: b, title: c, command: ls, published: table.csv}]\n"
    )
    paper = Paper.load(tmp_path / "paper.yaml")
    assert published_numbers(Request(paper, paper.item("a"))) == {"S": {"compression": 35.2}, "S-p": {}}


def test_a_size_at_which_an_item_is_not_made_is_refused():
    from madbench.papers.making import check_profile

    item = replace(load_paper("hypermlp").item("quick"), profiles={"quick": "quick"})
    with pytest.raises(ConfigError, match="made at quick, not full"):
        check_profile(item, "full")


def test_the_state_of_an_item_is_no_wider_than_what_was_trained():
    paper = load_paper("interactions")
    against, with_it = Made((), {"a": "supported", "b": "contradicted"}, {}), Made((), {"a": "supported"}, {})

    def state(made, item, **changes):
        return state_of(Request(paper, item, **changes), made)

    table2, worlds = paper.item("table2"), paper.item("worlds")
    assert state(against, table2) == state(against, worlds) == "not at this size"
    assert state(against, table2, profile="hyper3") == state(against, worlds, profile="full") == "contradicted"
    assert state(against, worlds, profile="full", overrides=("training.steps=3",)) == "not at this size"
    assert state(against, paper.item("corollary4.9")) == "contradicted"
    part = replace(worlds, part="1 of 2 tasks")
    assert state(with_it, part) == "partly (1 of 2 tasks)" and state(against, part) == "not at this size"
    assert state(with_it, part, profile="full") == state(with_it, worlds) == "reproduced"
    of_rows = load_paper("coefficients").item("table2")
    assert state(with_it, of_rows) == "partly (2 of 4 rows)" and state(against, of_rows) == "contradicted"


def test_a_statement_that_a_small_model_goes_against_says_so():
    paper = load_paper("coefficients")
    small, own = (Request(paper, paper.item("principle2"), size) for size in ("quick", "full"))
    assert statement_verdict(small, "contradicted") == "contradicted at this size"
    assert statement_verdict(own, "contradicted") == "contradicted"
    assert statement_verdict(small, "supported") == "supported"


@pytest.mark.slow
@pytest.mark.parametrize("item", ["claims", "table3", "table4", "table5", "figure1"])
def test_slots_and_threads_are_taken_by_an_item_that_another_verb_makes(main, monkeypatch, item, tmp_path):
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
    command, more = load_paper("hypermlp").item(item).command, " --threads 2" if item == "table5" else ""
    assert f"madbench {command}{more}\n" in ended.stderr and "No such option" not in ended.stderr
    assert ("measured in 2 threads" in ended.stderr) == (item == "table5")


@pytest.mark.parametrize("words", [("--seeds", "0-4"), ("--dry-run",), ("training.epochs=3",), ("S",)])
def test_what_has_no_effect_on_an_item_that_another_verb_makes_is_refused(main, words):
    ended = main("paper", "coefficients", "figure12", *words)
    assert ended.code == 2 and f"{words[0]} has no effect on figure12" in ended.stderr


def test_the_list_says_how_many_jobs_are_stored(packaged, main, tmp_path):
    packaged(positions="madbench_positions:PAPER")
    item = load_paper("positions").item("table1")
    jobs = jobs_of(Request(load_paper("positions"), item, results=tmp_path))
    Store.open(tmp_path).finish(jobs[0], Record("diverged"))
    assert f"1 of {len(jobs)} jobs stored" in main("paper", "positions", "--results", tmp_path).stdout


@pytest.mark.parametrize(("code", "state"), [(0, "reproduced"), (1, "fails here")])
def test_a_theorem_that_a_verb_checks_is_remembered(tmp_path, code, state):
    called = []
    paper = load_paper("coefficients")
    item = replace(paper.item("lemmas7to14"), command="verify @cd-table1")
    request = Request(paper, item, results=tmp_path)
    with pytest.raises(typer.Exit) if code else contextlib.nullcontext():
        call_verb(request, lambda words, **_: called.append(words) or code)
    assert called == [["verify", "@cd-table1"]]
    assert remembered(request)["quick"]["state"] == state


def test_a_verb_that_reads_runs_reads_those_of_the_folder(main, tmp_path):
    ended = main("paper", "hypermlp", "claims", "--results", tmp_path / "none")
    assert f"findings --results {tmp_path / 'none'}" in " ".join(ended.stderr.split())


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [LONG - 1, LONG + 1])
def test_a_long_training_is_asked_for_where_somebody_can_answer(main, executor, monkeypatch, seconds):
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
def test_an_item_is_asked_for_the_tasks_of_a_suite_by_their_names(main, executor, item, tasks, planned):
    ended = main("paper", *item.split(), "-t", tasks, "--dry-run", "-f", "json")
    plan = json.loads(ended.stdout)
    rows = plan["cells"] if isinstance(plan, dict) else plan
    assert {row["task"] for row in rows} == {*planned}


def test_the_worlds_of_an_item_may_be_named_by_their_suite(main):
    worlds = ("paper", "interactions", "worlds", "--dry-run")
    plan = [main(*worlds, *words).stdout for words in ([], ["-t", "interactions"])]
    assert plan[0] == plan[1] and all(f"\n{task} " in plan[0] for task in ("colliding", "hunters", "alliances"))


def test_an_unknown_task_of_an_item_has_the_nearest(main):
    ended = main("paper", "interactions", "worlds", "-t", "huntres", "--dry-run")
    assert ended.code == 2 and "unknown task 'huntres'; did you mean 'hunters'?" in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize("name", ["hypermlp", "coefficients", "interactions"])
def test_every_item_says_whether_it_is_made_here_and_at_which_sizes(main, tmp_path, name):
    listed = json.loads(main("paper", name, "--results", tmp_path, "-f", "json").stdout)["items"]
    for row in listed:
        if row["command"]:
            assert row["availability"].startswith("runs ")
            assert ("--profile full" in row["availability"]) is ("full" in row["sizes"])
        else:
            assert row["availability"] in ("cannot run here", "nothing to measure") and row["needs"]


@pytest.mark.slow
def test_the_listing_shows_what_a_paper_leaves_open(main, tmp_path):
    text = " ".join(main("paper", "hypermlp", "--results", tmp_path).stdout.split())
    assert "model.position_rows=from_end" in text and "model.rope=mispaired" in text


@pytest.mark.slow
def test_an_item_s_own_changes_hold_unless_others_are_asked_for(tmp_path):
    default_corpus(tmp_path)
    paper = load_paper("hypermlp")
    item = paper.item("table1_language_long_decay")

    def horizons(*overrides):
        request = Request(paper, item, results=tmp_path, overrides=overrides)
        return {job.training.lr_decay_steps for job in jobs_of(request)}

    assert horizons() == {3600} and horizons("training.lr_decay_steps=480") == {480}
    assert horizons("training.weight_decay=0") == {3600}
    plain = {job.id for job in jobs_of(Request(paper, paper.item("table1_language"), results=tmp_path))}
    assert not plain & {job.id for job in jobs_of(Request(paper, item, results=tmp_path))} and len(plain) == 8 * 5


def test_what_an_item_measures_of_weights_is_stored_with_the_run(tmp_path):
    (job, *_) = jobs_of(Request((paper := load_paper("coefficients")), paper.item("figure9"), results=tmp_path))
    store, quantity = Store.open(tmp_path), Quantity("largest", {"examples": 3})
    store.finish(job, Record("finished", {"accuracy": 0.4}, [], {}))
    with pytest.raises(StoreError, match="no weights, nor largest: --force trains it again"):
        quantity.of_run(store, job, lambda weights: ({"largest": 1.0}, {}))
    assert "1 stored run has no weights, nor largest" in quantity.note_on_runs(store, [job.id])
    store.measure(job.id, "largest", {"largest": 2.0}, {}, {"examples": 3})
    assert quantity.of_run(store, job, lambda weights: ({"largest": 1.0}, {})).values == {"largest": 2.0}
    assert not quantity.note_on_runs(store, [job.id])
    assert replace(quantity, settings={"examples": 4}).stored(store, job.id) is None


@pytest.mark.slow
def test_an_archive_without_weights_decides_what_its_runs_were_measured_for(main, tmp_path):
    words = (
        "coefficients",
        "principle2.2",
        "--seeds",
        "0-2",
        "training.epochs=1",
        "--yes",
        "--no-figures",
        "-f",
        "json",
    )
    trained = main("paper", *words, "--results", tmp_path / "own", "--slots", 1)
    assert trained.code == 0, trained.stderr
    assert main("archive", "--results", tmp_path / "own", "-o", tmp_path / "runs.tar.xz").code == 0
    assert main("import", tmp_path / "runs.tar.xz", "--results", tmp_path / "theirs").code == 0
    again = main("paper", *words, "--results", tmp_path / "theirs")
    assert again.code == 0, again.stderr
    assert json.loads(again.stdout)["rows"] == json.loads(trained.stdout)["rows"]
