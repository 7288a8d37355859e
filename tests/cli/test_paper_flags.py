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

COMMON_OPTIONS = {
    "results": (("--results", "elsewhere"), lambda training_call: training_call.store.root == Path("elsewhere")),
    "slots": (("--slots", "3"), lambda training_call: training_call.slots == 3),
    "threads": (("--threads", "2"), lambda training_call: training_call.threads_per_slot == 2),
    "force": (("--force",), lambda training_call: training_call.policy.redo),
    "dry_run": (("--dry-run",), lambda training_call: not training_call.jobs and "to do" in training_call.stdout),
}
GRID = COMMON_OPTIONS | {
    "profile": (
        ("--profile", "full"),
        lambda training_call: {job.model.d_model for job in training_call.jobs} == {128},
    ),
    "seeds": (("--seeds", "7-8"), lambda training_call: {job.seed for job in training_call.jobs} == {7, 8}),
    "tasks": (("-t", "compression"), lambda training_call: {job.task for job in training_call.jobs} == {"compression"}),
    "budget": (("--budget", "paper"), lambda training_call: {job.budget for job in training_call.jobs} == {"paper"}),
    "words": (
        ("training.epochs=3", "S"),
        lambda training_call: {(job.training.epochs, job.label) for job in training_call.jobs} == {(3, "R"), (3, "S")},
    ),
}
"""For each parameter of the verb: its arguments on the command line, and a condition on the jobs and settings that are
trained."""
JOBS = COMMON_OPTIONS | {
    "seeds": (("--seeds", "5"), lambda training_call: {job.seed for job in training_call.jobs} == {5}),
    "tasks": (("-t", "alliances"), lambda training_call: {job.task for job in training_call.jobs} == {"alliances"}),
    "words": (("training.steps=3",), lambda training_call: {job.training.steps for job in training_call.jobs} == {3}),
}
"""The same for an item whose runs are no grid."""
TESTED_ELSEWHERE = {"context", "device", "yes", "figures", "output", "shape", "print_options", "corpus"}
"""Parameters that other tests are about: of the device, of the terminal, of figures, and of language models."""


@pytest.fixture
def training_call(main, executor):
    """``training_call(*words)``: the jobs and settings that reach the executor of this machine. Nothing is trained."""

    def call(*words: str) -> SimpleNamespace:
        executor.jobs = []
        ended = main("paper", *words, "--yes")
        assert ended.code == (0 if "--dry-run" in words else 7), ended.stderr
        return SimpleNamespace(**vars(executor), stdout=ended.stdout)

    return call


def test_every_parameter_has_a_test():
    options = {field.name for field in dataclasses.fields(PaperOptions)}
    assert {*inspect.signature(paper).parameters} - {"choices"} | options == {*GRID, *TESTED_ELSEWHERE}


@pytest.mark.slow
@pytest.mark.parametrize("name", GRID)
def test_options_of_a_paper_reach_the_training_of_a_grid(training_call, name):
    words, has_them = GRID[name]
    item = ("hypermlp", "quick", "R", "--device", "cpu")
    assert not has_them(training_call(*item)) and has_them(training_call(*item, *words))


@pytest.mark.slow
def test_the_option_device_reaches_the_training_of_a_grid(training_call, monkeypatch):
    """The machine has a GPU, which the device auto would choose."""
    monkeypatch.setattr("madbench.training.devices.version", lambda package: "2.13.0")  # a build of torch for GPUs
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("madbench.cli.paper.failing_operators", lambda labels: {})  # computes on the GPU too
    item = ("hypermlp", "quick", "R")
    assert [training_call(*item, *words).train["device"] for words in ((), ("--device", "cpu"))] == ["cuda", "cpu"]


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_options_of_a_paper_reach_the_training_of_jobs(training_call, name):
    words, has_them = JOBS[name]
    item = ("interactions", "worlds", "--device", "cpu")
    assert not has_them(training_call(*item)) and has_them(training_call(*item, *words))


@pytest.mark.slow
def test_the_option_corpus_reaches_the_language_models(training_call, monkeypatch, tmp_path):
    """Without the option, the default corpus is used, made of Python's source files."""
    for name in ("hens", "python"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.py").write_text(f"# The brown {name} sat by the mill.\n" * 4000)
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path / "python"))
    words = ("hypermlp", "table1_language", "S", "--device", "cpu")
    folders = []
    for more in (("--corpus", str(prepare([str(tmp_path / "hens")], tmp_path / "corpus").folder)), ()):
        (corpus,) = training_call(*words, *more).train["corpora"].values()
        folders.append(corpus.folder)
    assert folders[0] == tmp_path / "corpus" and folders[1].name.startswith("stdlib-")
