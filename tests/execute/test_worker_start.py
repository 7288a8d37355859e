"""Workers of this machine that hang, or are interrupted, before they begin to train."""

from __future__ import annotations

import functools
import importlib
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from madbench.errors import TrainingError
from madbench.execute import driver, local
from madbench.execute.base import Policy, Summary
from waiting import wait_until

HERE = Path(__file__).parent
HANGING = """
import os, pathlib, time
here = pathlib.Path(__file__)
if os.getpid() != {parent} and len(list(here.parent.glob('hung-*'))) < {times}:
    here.with_name(f'hung-{{os.getpid()}}').touch()
    time.sleep(60)
"""


@pytest.fixture
def hanging_training(fake, monkeypatch, tmp_path):
    """``hanging_training(where, times)``: a training function whose first workers hang in its import or start."""

    def make(where, times):
        folder = tmp_path / "modules"
        folder.mkdir()
        code = HANGING.format(parent=os.getpid(), times=times)
        name = "sitecustomize" if where == "spawn" else "sleepy"
        (folder / f"{name}.py").write_text(
            code + "def train(jobs, works, report, inner): return inner(jobs, works, report)\n"
        )
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(folder), *filter(None, sys.path)]))
        monkeypatch.syspath_prepend(str(folder))
        monkeypatch.setattr(driver, "START_GRACE", 3.0)
        train = importlib.import_module("passing" if where == "spawn" else "sleepy").train
        return functools.partial(train, inner=fake.train), lambda: len(list(folder.glob("hung-*")))

    (tmp_path / "passing").mkdir()
    text = "def train(jobs, works, report, inner): return inner(jobs, works, report)\n"
    (tmp_path / "passing" / "passing.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path / "passing"))
    return make


@pytest.mark.parametrize("where", [pytest.param("spawn", marks=pytest.mark.slow), "import"])
def test_a_worker_that_hangs_before_it_begins_is_killed_at_the_time_limit_and_replaced(
    hanging_training, fake, store, where
):
    train, count = hanging_training(where, times=1)
    jobs = [fake.make_job(seed, blob="x" * 300_000) for seed in range(2)]  # more than a pipe takes at once
    began = time.monotonic()
    assert local.run_jobs([jobs], store, train, policy=Policy(time_limit=0.5)) == Summary(finished=2)
    assert count() == 1 and time.monotonic() - began < 55  # of the 60 s for which it hangs
    for job in jobs:
        assert store.read(job.id).record == fake.expected(job)


@pytest.mark.slow
def test_jobs_whose_workers_hang_each_time_fail_and_the_others_go_on(hanging_training, fake, store, monkeypatch):
    train, count = hanging_training("import", times=3)
    monkeypatch.setattr(driver, "START_GRACE", 2.0)
    hung, good = [fake.make_job(seed) for seed in range(2)], fake.make_job(2)
    events = []
    summary = local.run_jobs([hung, [good]], store, train, events.append, Policy(time_limit=0.5))
    assert summary == Summary(finished=1, failed=2) and count() == 3
    never = "killed or lost 3 times, at last: the worker process had not begun to train after the time limit of 0.5 s"
    assert {store.read(job.id).record.error for job in hung} == {never}
    assert [event["event"] for event in events if event["job"] == hung[0]] == ["started", "failed"]


def test_the_time_limit_does_not_include_the_start_of_a_worker(fake, store):
    job = fake.make_job(0, pause=0.1)  # longer than the limit by itself
    assert local.run_jobs([[job]], store, fake.train, policy=Policy(time_limit=1e-3)).failed == 1
    assert store.read(job.id).record.error == "stopped after the time limit of 0.001 s"


@pytest.mark.slow
def test_ctrl_c_does_not_wait_for_a_worker_that_hangs_before_it_begins(hanging_training, fake, store, monkeypatch):
    train, count = hanging_training("import", times=9)
    poll = local.LocalBackend.poll

    def interrupted(self, seconds):
        if count():
            asked.append(time.monotonic())
            raise KeyboardInterrupt
        return poll(self, 0.1)

    monkeypatch.setattr(local.LocalBackend, "poll", interrupted)
    monkeypatch.setattr(local, "GRACE", 50.0)
    asked: list[float] = []
    with pytest.raises(KeyboardInterrupt):
        local.run_jobs([[fake.make_job(0)]], store, train)
    assert time.monotonic() - asked[0] < local.GRACE


PROGRAM = """
import os, signal, sys, threading, time
from multiprocessing import popen_spawn_posix

import fake_sweep as fake
from madbench.execute import local
from madbench.store.runs import Store

spawn = popen_spawn_posix.util.spawnv_passfds


def interrupted(*arguments):
    pid = spawn(*arguments)
    if b"multiprocessing.spawn" in b"".join(map(os.fsencode, arguments[1])):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
    return pid


if __name__ == "__main__":
    threading.Thread(target=time.sleep, args=(600,), daemon=True).start()  # takes the signal, as the journal's may
    popen_spawn_posix.util.spawnv_passfds = interrupted
    try:
        local.run_jobs([[fake.make_job(0, pids=sys.argv[2], pause=1.0)]], Store.open(sys.argv[1]), fake.train)
    except KeyboardInterrupt:
        print("interrupted")
"""


def is_a_group(pid: int) -> bool:
    try:
        os.killpg(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.slow
def test_ctrl_c_while_a_worker_starts_prints_no_traceback_and_leaves_no_process(store, tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(HERE), *filter(None, sys.path)])}
    command = [sys.executable, str(tmp_path / "program.py"), str(store.root), str(tmp_path / "pids")]
    with subprocess.Popen(
        command, env=environment, start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        output, errors = process.communicate(timeout=60)
    assert (output, errors) == (b"interrupted\n", b"")
    wait_until(lambda: not is_a_group(process.pid))  # once multiprocessing's own process has seen the end


@pytest.mark.slow
def test_a_worker_that_dies_before_it_begins_three_times_ends_the_sweep(fake, store, monkeypatch, tmp_path):
    (tmp_path / "deadly.py").write_text(
        f"import os\nif os.getpid() != {os.getpid()}: os._exit(5)\ndef train(*_): pass\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(TrainingError, match="did not start: the process ended with exit code 5"):
        local.run_jobs(
            [[fake.make_job(0)]], store, importlib.import_module("deadly").train, policy=Policy(time_limit=60)
        )
