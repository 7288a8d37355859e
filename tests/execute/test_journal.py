"""The journal of a sweep: when it is written, how it is read, and damage that is named."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from madbench.execute import journal as journal_module
from madbench.execute.journal import Journal, command_line, read_sweeps
from madbench.files import seal, unseal
from madbench.jobs import Record
from madbench.suites.mad.suite import MAD
from waiting import wait_until

JOBS = MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"], seeds=range(3), precision="float32")
DONE = Record("finished", {"accuracy": 0.5})


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def begin(tmp_path, warnings, monkeypatch):
    monkeypatch.setattr(journal_module, "WRITE_SECONDS", 0.0)

    def begin(jobs=JOBS, results=tmp_path, command="madbench run S") -> Journal:
        return Journal(results, jobs, "a title", command, warnings.append)

    return begin


def train(journal, job, slot=0, record=DONE, steps=()):
    journal.on_event({"event": "started", "job": job, "slot": slot})
    for step in steps:
        progress = {"step": step, "total_steps": 100, "accuracy": step / 100}
        journal.on_event({"event": "progress", "job": job, "slot": slot, "progress": progress})
    event = "failed" if record.status == "failed" else "finished"
    journal.on_event({"event": event, "job": job, "slot": slot, "record": record})


def test_a_journal_is_read_during_and_after_its_sweep(begin, tmp_path, warnings):
    with begin() as journal:
        journal.on_event({"event": "skipped", "job": JOBS[0], "reason": "stored"})
        journal.on_event({"event": "started", "job": JOBS[1], "slot": 4})
        progress = {"step": 25, "total_steps": 100, "accuracy": 0.25}
        journal.on_event({"event": "progress", "job": JOBS[1], "slot": 4, "progress": progress})
        (sweep,) = read_sweeps(tmp_path, 3)
        assert (sweep["state"], sweep["command"], sweep["title"]) == ("running", "madbench run S", "a title")
        assert sweep["pid"] == os.getpid() and sweep["versions"].keys() == {"madbench", "python", "torch"}
        assert sweep["counts"] == {"stored": 1, "running": 1, "waiting": 1}
        assert sweep["open"] == sorted(job.id for job in JOBS[1:])
        (slot,) = sweep["slots"]
        named = {"id": JOBS[1].id, "label": "S", "task": "compression", "seed": 1}
        assert slot.items() >= (named | {"slot": 4, "accuracy": 0.25, "step": 25, "fraction": 0.25}).items()
        train(journal, JOBS[2], record=Record("failed", error="Traceback\nMemoryError"))
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == "finished" and sweep["slots"] == [] and sweep["counts"]["not done"] == 1
    assert [(failure["id"], failure["reason"]) for failure in sweep["failures"]] == [(JOBS[2].id, "MemoryError")]
    assert warnings == []


def test_a_sweep_that_trained_nothing_leaves_no_journal(begin, tmp_path):
    with begin() as journal:
        for job in JOBS:
            journal.on_event({"event": "skipped", "job": job, "reason": "stored"})
        assert len(read_sweeps(tmp_path, 3)) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt(), "interrupted"), (ValueError("the disk is on fire"), "error")]
)
def test_the_journal_records_how_a_sweep_ended(begin, tmp_path, error, state):
    with pytest.raises(type(error)), begin() as journal:
        train(journal, JOBS[0])
        raise error
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == state and sweep["error"] == (str(error) or None)


def test_a_journal_is_written_at_most_once_per_WRITE_SECONDS(begin, tmp_path, monkeypatch):
    dump, written, now = json.dump, [], [0.0]
    monkeypatch.setattr(journal_module.json, "dump", lambda *given: written.append(now[0]) or dump(*given))
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(journal_module, "WRITE_SECONDS", 60.0)
    with begin() as journal:
        for now[0] in range(0, 200, 20):
            train(journal, JOBS[0], steps=range(3))
    assert written == [0, 60, 120, 180, 180]  # at last when it ends


def test_the_journal_is_written_within_the_interval_after_the_last_event(begin, tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "WRITE_SECONDS", 0.05)
    with begin() as journal:
        train(journal, JOBS[0])
        wait_until(lambda: read_sweeps(tmp_path, 3)[0]["counts"] == {"finished": 1, "waiting": 2})


def test_a_clock_set_back_gives_no_negative_silence(begin, tmp_path, monkeypatch):
    with begin() as journal:
        train(journal, JOBS[0])
    monkeypatch.setattr(journal_module.time, "time", lambda: 0.0)
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["silent_seconds"] == 0.0


@pytest.mark.parametrize("content", ["", "{", "[" * 200_000, "[]\n", "{}\n", '{"command": "madbench run"}'])
def test_a_damaged_journal_is_named_and_the_other_sweeps_are_read(begin, tmp_path, content):
    journals = []
    for _ in range(2):
        with begin() as journal:
            train(journal, JOBS[0])
        journals.append(journal.path)
    journals[0].write_text(content)
    sweeps = read_sweeps(tmp_path, 3)
    assert sorted(sweep["state"] for sweep in sweeps) == ["damaged", "finished"]
    assert [sweep["error"].startswith(f"{journals[0]}: ") for sweep in sweeps if sweep["error"]] == [True]


ODD_VALUES = {
    "counts": [[], {"finished": "1"}],
    "slots": [{}, [3], [{"fraction": 0.5}], [{"fraction": 0.5, "seconds": 1.0, "step": 1}]],
    "failures": [[{}], [{"reason": 3}], [None]],
    "open": [{}, [[]]],
    "command": [None, 3, "\udc80"],
    "seconds_left": ["x", []],
    "ended": [["x"], "never"],
    "error": [3],
    "total": ["x", 10**400],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in ODD_VALUES.items() for value in values])
def test_a_journal_with_wrong_types_is_damaged_even_if_its_checksum_is_right(begin, tmp_path, name, value):
    with begin() as journal:
        train(journal, JOBS[0])
    content = unseal(journal.path.read_bytes())
    journal.path.write_text(json.dumps(seal(content | {name: value})))
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == "damaged" and sweep["error"].startswith(f"{journal.path}: ")


def test_a_command_that_is_not_unicode_leaves_a_sound_journal(begin, tmp_path):
    with begin(command="madbench run \udcff") as journal:
        train(journal, JOBS[0])
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == "finished" and sweep["command"] == "madbench run \\udcff"


@pytest.mark.slow
def test_read_sweeps_returns_all_running_and_the_latest_ended_sweeps(begin, tmp_path):
    with begin(command="alive"), begin(command="alive too"):
        for number in range(4):
            with begin(command=f"{number}") as journal:
                train(journal, JOBS[0])
            journal.path.rename(journal.path.with_name(f"20990101T00000{number}Z-00000000.json"))
        commands = [sweep["command"] for sweep in read_sweeps(tmp_path, 2)]
    assert sorted(commands) == ["2", "3", "alive", "alive too"]


@pytest.mark.slow
def test_a_killed_sweep_is_seen_as_dead(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from madbench.execute.journal import Journal\n"
        "from madbench.suites.mad.suite import MAD\n"
        "job = MAD.jobs(['S'], MAD.Profile.load('quick'), tasks=['compression'])[0]\n"
        "with Journal(Path(sys.argv[1]), [job], '', '', print) as journal:\n"
        "    journal.on_event({'event': 'started', 'job': job, 'slot': 0})\n"
        "    print('started', flush=True)\n"
        "    time.sleep(60)"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", program, tmp_path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout.readline() == b"started\n"
        (sweep,) = read_sweeps(tmp_path, 3)
        assert sweep["state"] == "running"
        process.send_signal(signal.SIGKILL)
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == "died" and sweep["slots"] == [] and sweep["counts"] == {"not done": 1}
    assert len(sweep["open"]) == 1


@pytest.mark.parametrize("place", ["a file", "/proc"])
def test_a_journal_in_a_read_only_folder_warns_once_and_the_sweep_continues(begin, tmp_path, warnings, place):
    (tmp_path / "a file").touch()
    with begin(results=tmp_path / place) as journal:
        assert warnings == []
        train(journal, JOBS[0])
        train(journal, JOBS[1])
    assert len(warnings) == 1 and "madbench ls sweeps will miss part of this sweep, which continues" in warnings[0]


def test_a_journal_on_a_full_disk_warns_once_and_later_events_are_read(begin, tmp_path, warnings, monkeypatch):
    dump, attempts = json.dump, []

    def full(content, file):
        attempts.append(content)
        if len(attempts) in (2, 3):
            file.write("{")
            raise OSError(errno.ENOSPC, "No space left on device")
        dump(content, file)

    with begin() as journal:
        monkeypatch.setattr(journal_module.json, "dump", full)
        for job in JOBS:
            train(journal, job)
    assert warnings == [
        f"{tmp_path}/sweeps: no space left on device; madbench ls sweeps will miss part of this sweep, which continues"
    ]
    (sweep,) = read_sweeps(tmp_path, 3)
    assert sweep["state"] == "finished" and sweep["counts"] == {"finished": 3}
    assert len(attempts) > 3 and os.listdir(tmp_path / "sweeps") == [journal.path.name]


def test_a_journal_deleted_under_a_sweep_does_not_end_it(begin, warnings):
    with begin() as journal:
        train(journal, JOBS[0])
        journal.path.unlink()
        train(journal, JOBS[1])
    assert warnings == []


def test_the_recorded_command_can_be_typed_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/cli.py", "run", "{S,R}-c", "training.epochs=3"])
    assert command_line() == "madbench run '{S,R}-c' training.epochs=3"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert command_line().startswith("torchrun --nproc-per-node 8 -m madbench run ")
    monkeypatch.setenv("WORLD_SIZE", "16")
    assert command_line().startswith("torchrun --nnodes 2 --nproc-per-node 8 -m madbench run ")


@pytest.mark.slow
def test_a_sweep_looks_running_while_its_journal_is_rewritten(begin, tmp_path):
    with begin() as journal:
        states = set()
        for _ in range(100):
            journal.on_event({"event": "started", "job": JOBS[0], "slot": 0})
            states |= {sweep["state"] for sweep in read_sweeps(tmp_path, 3)}
    assert states == {"running"}


@pytest.mark.slow
def test_a_journal_of_twenty_thousand_jobs_is_written_and_read_within_a_second(begin, tmp_path):
    jobs = [replace(JOBS[0], seed=seed) for seed in range(20_000)]
    with begin(jobs) as journal:
        train(journal, jobs[0])
        began = time.process_time()
        journal.write()
        (sweep,) = read_sweeps(tmp_path, 3)
        assert time.process_time() - began < 1.0  # 0.03 s on an idle machine
    assert sweep["total"] == 20_000 and len(sweep["open"]) == 19_999


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO])
def test_a_sweep_on_a_disk_without_locks_has_state_unknown(begin, tmp_path, monkeypatch, number):
    with begin() as ended:
        train(ended, JOBS[0])
    with begin() as journal:
        journal.on_event({"event": "started", "job": JOBS[1], "slot": 0})

        def flock(file, operation):
            raise OSError(number, os.strerror(number))

        with monkeypatch.context() as patch:
            patch.setattr(journal_module.fcntl, "flock", flock)
            sweeps = {sweep["name"]: sweep for sweep in read_sweeps(tmp_path, 3)}
        assert {sweep["state"] for sweep in read_sweeps(tmp_path, 3)} == {"finished", "running"}
    assert sweeps[ended.path.stem]["state"] == "finished"
    unknown = sweeps[journal.path.stem]
    assert unknown["state"] == "unknown" and unknown["counts"] == {"not done": 3} and unknown["slots"] == []
    assert os.strerror(number).lower() in unknown["error"] and str(journal.path) in unknown["error"]
