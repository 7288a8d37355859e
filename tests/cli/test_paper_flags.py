"""Every option and word of ``madbench paper`` reaches what trains the item, or what is done with it."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from madbench.cli.paper import paper

GRID = {
    "profile": (("--profile", "full"), lambda given: given.grid.profile == "full"),
    "seeds": (("--seeds", "7-8"), lambda given: given.grid.seeds == (7, 8)),
    "tasks": (("-t", "compression"), lambda given: given.grid.tasks == ("compression",)),
    "budget": (("--budget", "paper"), lambda given: given.grid.budget == "paper"),
    "device": (("--device", "cpu"), lambda given: given.training.device == "cpu"),
    "results": (("--results", "elsewhere"), lambda given: given.training.results == Path("elsewhere")),
    "slots": (("--slots", "2"), lambda given: given.training.slots == 2),
    "threads": (("--threads", "1"), lambda given: given.training.threads == 1),
    "force": (("--force",), lambda given: given.training.force),
    "dry_run": (("--dry-run",), lambda given: given.training.dry_run),
    "words": (("training.epochs=3", "S"), lambda given: _words(given.grid) == (("training.epochs=3",), {"S"})),
}
"""By parameter of the verb its words on the command line, and whether what is trained has them."""
JOBS = {
    "seeds": (("--seeds", "5"), lambda given: {job.seed for job in given.experiment.jobs} == {5}),
    "tasks": (("-t", "alliances"), lambda given: {job.task for job in given.experiment.jobs} == {"alliances"}),
    "words": (("training.steps=3",), lambda given: {job.training.steps for job in given.experiment.jobs} == {3}),
    "results": (("--results", "elsewhere"), lambda given: given.experiment.results.name == "elsewhere"),
    "slots": (("--slots", "2"), lambda given: given.slots == 2),
    "threads": (("--threads", "1"), lambda given: given.threads == 1),
    "force": (("--force",), lambda given: given.policy.redo),
    "dry_run": (("--dry-run",), lambda given: given.dry_run),
}
"""The same of an item whose runs are no grid."""
ELSEWHERE = {"context", "yes", "figures", "output", "shape", "printed", "corpus"}
"""Parameters that other tests are about: of the terminal, of figures, and of language models."""


def _words(grid) -> tuple[tuple[str, ...], set[str]]:
    return grid.overrides, {row.label for row in grid.rows}


@pytest.fixture
def given(main, monkeypatch, tmp_path):
    """The jobs and settings that a command hands on to be trained. Nothing is trained."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("madbench.cli.paper.failing_operators", lambda labels: {})
    found = SimpleNamespace()

    def train_grid(grid, training, **_):
        vars(found).update(grid=grid, training=training)
        sys.exit(7)

    def train(experiment, policy, slots, threads, dry_run, _):
        vars(found).update(experiment=experiment, policy=policy, slots=slots, threads=threads, dry_run=dry_run)
        sys.exit(7)

    monkeypatch.setattr("madbench.cli.paper.train_grid", train_grid)
    monkeypatch.setattr("madbench.cli.paper._train", train)

    def call(*words: str) -> SimpleNamespace:
        ended = main("paper", *words, "--yes")
        assert ended.code == 7, ended.stderr
        return found

    return call


def test_every_parameter_has_a_test():
    assert {*inspect.signature(paper).parameters} == {*GRID, *ELSEWHERE}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
def test_a_grid_is_trained_as_it_was_asked_for(given, name):
    words, has_them = GRID[name]
    assert not has_them(given("hypermlp", "quick")) and has_them(given("hypermlp", "quick", *words))


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_jobs_are_trained_as_they_were_asked_for(given, name):
    words, has_them = JOBS[name]
    assert not has_them(given("interactions", "worlds")) and has_them(given("interactions", "worlds", *words))


@pytest.mark.slow
def test_a_corpus_is_that_of_the_language_models(given):
    words = ("hypermlp", "table1_language", "--corpus", "hens")
    assert given(*words).training.corpus == Path("hens") and given(*words[:2]).training.corpus is None
