"""Every option and argument of ``madbench paper`` reaches the training of the item or its result."""

from __future__ import annotations

import dataclasses
import inspect
from pathlib import Path
from types import SimpleNamespace

import pytest

from madbench.cli.paper import paper
from madbench.cli.paper.options import PaperOptions
from madbench.text.prepare import prepare

EITHER = {
    "results": (("--results", "elsewhere"), lambda given: given.store.root == Path("elsewhere")),
    "slots": (("--slots", "3"), lambda given: given.slots == 3),
    "threads": (("--threads", "2"), lambda given: given.threads_per_slot == 2),
    "force": (("--force",), lambda given: given.policy.redo),
    "dry_run": (("--dry-run",), lambda given: not given.jobs and "to do" in given.stdout),
}
GRID = EITHER | {
    "profile": (("--profile", "full"), lambda given: {job.model.d_model for job in given.jobs} == {128}),
    "seeds": (("--seeds", "7-8"), lambda given: {job.seed for job in given.jobs} == {7, 8}),
    "tasks": (("-t", "compression"), lambda given: {job.task for job in given.jobs} == {"compression"}),
    "budget": (("--budget", "paper"), lambda given: {job.budget for job in given.jobs} == {"paper"}),
    "words": (
        ("training.epochs=3", "S"),
        lambda given: {(job.training.epochs, job.label) for job in given.jobs} == {(3, "R"), (3, "S")},
    ),
}
"""For each parameter of the verb: its arguments on the command line, and a condition on the jobs and settings that are
trained."""
JOBS = EITHER | {
    "seeds": (("--seeds", "5"), lambda given: {job.seed for job in given.jobs} == {5}),
    "tasks": (("-t", "alliances"), lambda given: {job.task for job in given.jobs} == {"alliances"}),
    "words": (("training.steps=3",), lambda given: {job.training.steps for job in given.jobs} == {3}),
}
"""The same for an item whose runs are no grid."""
ELSEWHERE = {"context", "device", "yes", "figures", "output", "shape", "print_options", "corpus"}
"""Parameters that other tests are about: of the device, of the terminal, of figures, and of language models."""


@pytest.fixture
def given(main, executor):
    """``given(*words)``: the jobs and settings that reach the executor of this machine. Nothing is trained."""

    def call(*words: str) -> SimpleNamespace:
        executor.jobs = []
        ended = main("paper", *words, "--yes")
        assert ended.code == (0 if "--dry-run" in words else 7), ended.stderr
        return SimpleNamespace(**vars(executor), stdout=ended.stdout)

    return call


def test_every_parameter_has_a_test():
    options = {field.name for field in dataclasses.fields(PaperOptions)}
    assert {*inspect.signature(paper).parameters} - {"choices"} | options == {*GRID, *ELSEWHERE}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
def test_options_of_a_paper_reach_the_training_of_a_grid(given, name):
    words, has_them = GRID[name]
    item = ("hypermlp", "quick", "R", "--device", "cpu")
    assert not has_them(given(*item)) and has_them(given(*item, *words))


@pytest.mark.slow
def test_the_option_device_reaches_the_training_of_a_grid(given, monkeypatch):
    """The machine has a GPU, which the device auto would choose."""
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("madbench.cli.paper.failing_operators", lambda labels: {})  # computes on the GPU too
    item = ("hypermlp", "quick", "R")
    assert [given(*item, *words).train["device"] for words in ((), ("--device", "cpu"))] == ["cuda", "cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_options_of_a_paper_reach_the_training_of_jobs(given, name):
    words, has_them = JOBS[name]
    item = ("interactions", "worlds", "--device", "cpu")
    assert not has_them(given(*item)) and has_them(given(*item, *words))


@pytest.mark.slow
def test_the_option_corpus_reaches_the_language_models(given, monkeypatch, tmp_path):
    """Without the option, the default corpus is used, made of Python's source files."""
    for name in ("hens", "python"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(f"# The brown {name} sat by the mill.\n" * 4000)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "python"))
    words = ("hypermlp", "table1_language", "S", "--device", "cpu")
    folders = []
    for more in (("--corpus", str(prepare([str(tmp_path / "hens")], tmp_path / "corpus").folder)), ()):
        (corpus,) = given(*words, *more).train["corpora"].values()
        folders.append(corpus.folder)
    assert folders[0] == tmp_path / "corpus" and folders[1].name.startswith("stdlib-")
