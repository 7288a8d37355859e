"""A registration, with and without its runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from madbench.analysis.registration import register
from madbench.jobs import Record
from madbench.store.runs import Store
from registrations import GAINS, LATER, judge, write_grid


@pytest.fixture
def path(tmp_path) -> Path:
    return write_grid(tmp_path)


@pytest.fixture(scope="session")
def complete_folder(tmp_path_factory) -> Path:
    """The folder of a registration and of all its runs, which support the claim."""
    folder = tmp_path_factory.mktemp("registered")
    _, made, _ = register(write_grid(folder), folder / "results")
    store = Store.open(folder / "results")
    for job in made.jobs:
        accuracy = GAINS[job.label] + job.seed / 500
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        store.finish(job, Record("finished", metrics, [{"epoch": 1, "step": 4, "train_loss": 1.0}], LATER))
    return folder


@pytest.fixture
def file(complete_folder, tmp_path) -> Path:
    """A copy of the registration file, without its runs."""
    return Path(shutil.copy(complete_folder / "lag.registered.json", tmp_path))


@pytest.fixture
def file_with_runs(complete_folder, tmp_path) -> Path:
    """The registration file in a copy of the folder ``complete_folder``, with all runs."""
    shutil.copytree(complete_folder, tmp_path, dirs_exist_ok=True)
    return tmp_path / "lag.registered.json"


@pytest.fixture
def judge_complete(complete_folder):
    """``judge_complete()``: :func:`judge` on the registration with all its runs."""
    return lambda: judge(complete_folder / "lag.registered.json")


@pytest.fixture
def judge_copy(file_with_runs):
    """``judge_copy()``: :func:`judge` on the copy of the registration."""
    return lambda: judge(file_with_runs)
