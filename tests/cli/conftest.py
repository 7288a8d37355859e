"""Fixtures for verbs: small profiles, stores that are filled with results, and processes that are started and ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

import madbench
from command_line import Ended, invoke, main, refuse, store
from madbench.execute import local
from madbench.jobs import Record
from madbench.store.reading import Run
from madbench.suites.mad.suite import MAD
from madbench.training import cost
from small_profiles import counts, profile_text, with_setting

__all__ = ["invoke", "main", "refuse", "store"]

PROFILE = profile_text(
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 2},
    tasks=with_setting(["compression", "in_context_recall"], **counts(64, 32)),
)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> str:
    """A profile that trains two tasks in a moment."""
    path = tmp_path_factory.mktemp("profiles") / "tiny.yaml"
    path.write_text(PROFILE)
    return str(path)


@pytest.fixture(scope="session")
def tiny_of_both(tiny, tmp_path_factory) -> str:
    """The same profile, with a language model beside it."""
    path = tmp_path_factory.mktemp("profiles") / "both.yaml"
    path.write_text(Path(tiny).read_text() + "beside: {language_model: tiny}\n")
    return str(path)


@pytest.fixture
def executor(monkeypatch) -> SimpleNamespace:
    """Replace the local executor: the command exits with code 7 in place of training.

    It has the jobs and settings of the last call. The speed of the machine is not measured either.
    """
    reached = SimpleNamespace(jobs=[])

    def run_jobs(groups, store, train, *, on_event, policy, **how):
        jobs = [job for group in groups for job in group]
        vars(reached).update(jobs=jobs, store=store, train=train.keywords, policy=policy, **how)
        sys.exit(7)

    monkeypatch.setattr(local, "run_jobs", run_jobs)
    monkeypatch.setattr(cost, "seconds_per_flop", lambda jobs, **_: {job.task: 1e-12 for job in jobs})
    return reached


@pytest.fixture
def without_figures(monkeypatch) -> None:
    """Reports without figures, which take most of their time."""
    monkeypatch.setattr("madbench.report.page.figure_names", lambda chosen: [])


@pytest.fixture
def fill(store, tiny) -> Callable[..., None]:
    """Store runs with one accuracy on two tasks, without training. ``setting`` has changes to the task settings."""

    def call(
        labels: str | list[str],
        accuracy: float = 0.5,
        seeds=(0,),
        *,
        profile=tiny,
        overrides=(),
        setting=(),
        details=(),
        **choices,
    ) -> None:
        labels = [labels] if isinstance(labels, str) else labels
        choices = {"tasks": ("compression", "in_context_recall"), "seeds": seeds} | choices
        metrics = {"accuracy": accuracy, "selection_accuracy": 0.5, "ceiling": 1.0}
        curve = [{"epoch": 1, "step": 4, "train_loss": 1.0, "validation_loss": 1.0}]
        curve[0] |= {"validation_token_accuracy": accuracy, "validation_batch_macro_accuracy": accuracy}
        details = {"budget_ratio": 0.99, "mixer_parameters": 1000, "device": "an abacus"} | dict(details)
        for job in MAD.jobs(labels, MAD.Profile.load(profile, overrides), **choices):
            job = replace(job, setting=job.setting | dict(setting))
            store.finish(job, Record("finished", metrics, curve, details))

    return call


@pytest.fixture
def fill_language(store, language_run) -> Callable[..., Run]:
    """Store a run of the fixture ``language_run`` and give it back."""

    def call(*arguments, **choices) -> Run:
        run = language_run(*arguments, **choices)
        store.finish(run.job, run.record)
        return run

    return call


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen]]:
    """``python -m madbench ...`` in a process group of its own, as a terminal would start it."""
    started = []
    checkout = str(Path(madbench.__file__).resolve().parents[1])

    def call(folder: Path, *arguments: str) -> subprocess.Popen:
        environment = os.environ | {"PYTHONPATH": checkout, "OMP_NUM_THREADS": "1", "COLUMNS": "120"}
        pipe = subprocess.PIPE
        command = [sys.executable, "-m", "madbench", *map(str, arguments)]
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True, start_new_session=True
        )
        started.append(process)
        return process

    yield call
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


@pytest.fixture(scope="session")
def finish() -> Callable[[subprocess.Popen], Ended]:
    """Wait for a process of ``start`` and return its output."""

    def call(process: subprocess.Popen) -> Ended:
        out, err = process.communicate(timeout=120)
        return Ended(process.returncode, out, err)

    return call
