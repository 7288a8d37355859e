"""The declared items of every paper are complete, and their states follow from their verdicts."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

import madbench
from madbench.errors import ConfigError, MadbenchError
from madbench.papers import Paper, built_in, load_paper
from madbench.papers.making import (
    ItemResult,
    Request,
    jobs_of,
    measure_of,
    state_of,
    state_of_verdicts,
    statement_verdict,
)
from madbench.papers.table_measure import published_numbers
from madbench.suites.addressing import parse_overrides

PACKAGE = Path(madbench.__file__).parent
MAY_IMPORT = {
    "cli/paper/__init__.py",
    "cli/paper/listings.py",
    "cli/paper/options.py",
    "cli/paper/printing.py",
    "cli/paper/shipped.py",
    "cli/shared/packages.py",
    "cli/ls/listings.py",
    "cli/shared/completion.py",
}


def test_items_that_train_have_five_seeds_or_a_reason():
    fewer = [
        f"{paper.name} {item.id}"
        for paper in map(load_paper, built_in())
        for item in paper.items
        if item.needs_reason and not item.fewer_seeds
    ]
    assert not fewer


def test_the_seeds_of_an_item_are_those_of_its_jobs():
    paper = load_paper("coefficients")
    item = replace(paper.item("principle6"), seeds="3-4")
    assert {job.seed for job in jobs_of(Request(paper, item))} == {3, 4}


def test_no_module_outside_papers_imports_them():
    importing = re.compile(
        r"^\s*(from madbench\.papers|import madbench\.papers|from madbench import .*\bpapers\b)", re.MULTILINE
    )
    files = {str(path.relative_to(PACKAGE)): path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    users = {name for name, text in files.items() if importing.search(text)}
    assert {name for name in users if not name.startswith("papers/")} == MAY_IMPORT
    private = re.compile(r"^\s*from madbench\S* import .*\b_[a-z]", re.MULTILINE)
    assert not [name for name, text in files.items() if name.startswith("papers/") and private.search(text)]


@pytest.mark.parametrize("name", sorted(built_in()))
def test_every_item_has_an_existing_measure_a_verb_or_a_reason(name):
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


def test_one_contradicted_statement_makes_the_item_contradicted():
    assert state_of_verdicts({"a": "supported", "b": "contradicted"}) == "contradicted"
    assert state_of_verdicts({"a": "supported", "b": "not enough data"}) == "not decided"
    assert state_of_verdicts({"a": "supported", "b": "reproduced"}) == "reproduced"
    assert state_of_verdicts({}) == "not decided"


def test_an_operator_that_fails_here_says_nothing_of_the_paper():
    assert state_of_verdicts({"a": "contradicted", "b": "fails here"}) == "fails here"


@pytest.mark.parametrize("item", ["figure2", "figure3", "figure4"])
def test_figures_of_colliding_agents_train_only_their_embedding(item):
    paper = load_paper("interactions")
    (job,) = jobs_of(Request(paper, paper.item(item)))
    assert job.setting["embedding"] == ("one_hot" if item == "figure3" else "sinusoidal") and not job.setting["control"]


@pytest.mark.parametrize(
    ("item", "message"),
    [
        ("id: a", "keys 'place', 'title' are missing"),
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
        ("id: a, place: b, title: c, command: ls, fewer_seeds: x", "fewer_seeds has no effect on an item with five"),
        ("id: a, place: b, title: c, command: ls, seeds: many", "seeds 'many': expected whole numbers"),
        ("id: a, place: b, title: c, command: ls, tasks: [compresion]", "did you mean 'compression'?"),
        (
            "id: a, place: b, title: c, command: ls, published: table1.csv, columns: {a: compresion}",
            "has no column 'compresion'",
        ),
    ],
)
def test_an_error_in_an_item_names_the_place(tmp_path, item, message):
    path = tmp_path / "paper.yaml"
    path.write_text(f"title: t\nsource: s\nitems: [{{{item}}}]\n")
    (tmp_path / "table1.csv").write_text("label,compression\n")
    with pytest.raises(MadbenchError) as refused:
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


def test_a_size_at_which_an_item_is_not_made_is_refused():
    from madbench.papers.making import check_profile

    item = replace(load_paper("hypermlp").item("quick"), profiles={"quick": "quick"})
    with pytest.raises(ConfigError, match="made at quick, not full"):
        check_profile(item, "full")


def test_the_state_of_an_item_is_limited_to_the_trained_size_and_rows():
    paper = load_paper("interactions")
    against = ItemResult((), {"a": "supported", "b": "contradicted"}, {})
    with_it = ItemResult((), {"a": "supported"}, {})

    def state(made, item, **changes):
        return state_of(Request(paper, item, **changes), made)

    table2, worlds = paper.item("table2"), paper.item("worlds")
    assert state(against, table2) == state(against, worlds) == "not at this size"
    assert state(against, table2, profile="hyper3") == state(against, worlds, profile="full") == "contradicted"
    assert state(against, worlds, profile="full", overrides=parse_overrides(["training.steps=3"])) == "not at this size"
    assert state(against, paper.item("corollary4.9")) == "contradicted"
    part = replace(worlds, part="1 of 2 tasks")
    assert state(with_it, part) == "partly (1 of 2 tasks)" and state(against, part) == "not at this size"
    assert state(with_it, part, profile="full") == state(with_it, worlds) == "reproduced"
    of_rows = load_paper("coefficients").item("table2")
    assert state(with_it, of_rows) == "partly (2 of 4 rows)" and state(against, of_rows) == "contradicted"


def test_a_contradiction_by_a_small_model_is_restricted_to_its_size():
    paper = load_paper("coefficients")
    small, own = (Request(paper, paper.item("principle2"), size) for size in ("quick", "full"))
    assert statement_verdict(small, "contradicted") == "contradicted at this size"
    assert statement_verdict(own, "contradicted") == "contradicted"
    assert statement_verdict(small, "supported") == "supported"
