from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from madbench.execute import journal as journal_module
from madbench.execute.journal import Journal, RecordedSweeps, command_line
from madbench.jobs import Record
from madbench.suites import MAD


def read_sweeps(results, ended=3):
    return RecordedSweeps(results).read(ended)


JOBS = MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"], seeds=range(3), precision="float32")
DONE = Record("finished", {"accuracy": 0.5})


@pytest.fixture
def warnings() -> list[str]:
    return []


@pytest.fixture
def begin(tmp_path, warnings):
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


def lines(journal) -> list[dict]:
    """Those after the plan."""
    return [json.loads(line) for line in journal.path.read_text().splitlines() if line][1:]


def test_what_is_written_is_read_while_the_sweep_is_alive_and_after(begin, tmp_path, warnings):
    with begin() as journal:
        journal.on_event({"event": "skipped", "job": JOBS[0], "reason": "stored"})
        journal.on_event({"event": "started", "job": JOBS[1], "slot": 4})
        progress = {"step": 25, "total_steps": 100, "accuracy": 0.25}
        journal.on_event({"event": "progress", "job": JOBS[1], "slot": 4, "progress": progress})
        (sweep,) = read_sweeps(tmp_path)
        assert (sweep.state, sweep.plan["command"], sweep.plan["title"]) == ("running", "madbench run S", "a title")
        assert sweep.plan["pid"] == os.getpid() and sweep.plan["versions"].keys() == {"madbench", "python", "torch"}
        assert sweep.jobs[JOBS[1].id] == {
            "id": JOBS[1].id,
            "label": "S",
            "task": "compression",
            "seed": 1,
            "weight": 3 * 4000 * 16,
        }
        assert sweep.tally.counts == {"stored": 1} and sweep.tally.running[JOBS[1].id].slot == 4
        assert sweep.tally.running[JOBS[1].id].line["accuracy"] == 0.25
        train(journal, JOBS[2], record=Record("failed", error="Traceback\nMemoryError"))
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.state == "finished" and sweep.tally.running == {}
    assert sweep.tally.failures == [(JOBS[2].id, "MemoryError")]
    assert warnings == []


def test_a_sweep_that_trained_nothing_leaves_no_journal(begin, tmp_path):
    with begin() as journal:
        for job in JOBS:
            journal.on_event({"event": "skipped", "job": job, "reason": "stored"})
        assert len(read_sweeps(tmp_path)) == 1
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("error", "state"), [(KeyboardInterrupt(), "interrupted"), (ValueError("the disk is on fire"), "error")]
)
def test_how_a_sweep_ended_is_kept(begin, tmp_path, error, state):
    with pytest.raises(type(error)), begin() as journal:
        train(journal, JOBS[0])
        raise error
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.state == state and sweep.ended.get("error") == (str(error) or None)


def test_progress_is_thinned_to_a_line_a_second_and_job(begin, monkeypatch):
    clock = iter(range(10**9))
    monkeypatch.setattr(journal_module.time, "monotonic", lambda: next(clock) / 100)
    with begin() as journal:
        for slot in (0, 1):
            train(journal, JOBS[slot], slot, steps=range(1000))
        shown = [(line["slot"], line["seconds"]) for line in lines(journal) if line["event"] == "progress"]
    for slot in (0, 1):
        seconds = [at for of, at in shown if of == slot]
        assert 9 <= len(seconds) <= 21
        assert all(later - earlier > 0.97 for earlier, later in zip(seconds, seconds[1:], strict=False))


def test_the_wall_clock_may_jump(begin, tmp_path, monkeypatch):
    with begin() as journal:
        train(journal, JOBS[0])
        train(journal, JOBS[1])
    written = lines(journal)
    plan = journal.path.read_bytes().split(b"\n")[0]
    for line, stamp in zip(written, ("1999-01-01T00:00:00Z", "2099-01-01T00:00:00Z"), strict=False):
        line["time"] = stamp
    journal.path.write_bytes(plan + b"\n" + b"".join(json.dumps(line).encode() + b"\n" for line in written))
    monkeypatch.setattr(journal_module.time, "time", lambda: 0.0)
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.tally.counts == {"finished": 2} and sweep.silent_seconds == 0.0
    assert [line["seconds"] for line in written] == sorted(line["seconds"] for line in written)


def test_halves_of_lines_and_nonsense_are_passed_over(begin, tmp_path):
    with begin() as journal:
        train(journal, JOBS[0])
    content = journal.path.read_bytes()
    nonsense = (
        b'\n[]\n{}\n"x"\n\xff\xfe\n{"event": "started", "job": [1], "slot": 0, "seconds": 1}\n{"event": "progress"\n'
    )
    journal.path.write_bytes(nonsense + content[:-30])
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.tally.counts == {"finished": 1} and sweep.state == "died"


@pytest.mark.parametrize("content", ["", "{", "[]\n", "{}\n", '{"event": "plan", "jobs": [{"id": 1}]}\n'])
def test_a_damaged_plan_is_named_and_the_other_sweeps_are_read(begin, tmp_path, content):
    journals = []
    for _ in range(2):
        with begin() as journal:
            train(journal, JOBS[0])
        journals.append(journal.path)
    journals[0].write_text(content)
    sweeps = read_sweeps(tmp_path)
    assert sorted(sweep.state for sweep in sweeps) == ["damaged", "finished"]
    assert [sweep.problem.startswith(f"{journals[0]}: ") for sweep in sweeps if sweep.problem] == [True]


def test_all_that_are_alive_are_read_and_of_the_others_the_last(begin, tmp_path):
    with begin(command="alive"), begin(command="alive too"):
        for number in range(4):
            with begin(command=f"{number}") as journal:
                train(journal, JOBS[0])
            journal.path.rename(journal.path.with_name(f"20990101T00000{number}Z-00000000.jsonl"))
        commands = [sweep.plan["command"] for sweep in read_sweeps(tmp_path, 2)]
    assert sorted(commands) == ["2", "3", "alive", "alive too"]


def test_a_killed_sweep_is_seen_as_dead(tmp_path):
    program = (
        "import sys, time; from pathlib import Path; from madbench.execute.journal import Journal\n"
        "from madbench.suites import MAD\n"
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
        (sweep,) = read_sweeps(tmp_path)
        assert sweep.state == "running"
        process.send_signal(signal.SIGKILL)
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.state == "died" and sweep.tally.running == {} and len(sweep.tally.open) == 1


@pytest.mark.parametrize("place", ["a file", "/proc"])
def test_a_folder_that_cannot_be_written_is_said_once_and_the_sweep_goes_on(begin, tmp_path, warnings, place):
    (tmp_path / "a file").touch()
    with begin(results=tmp_path / place) as journal:
        assert warnings == []
        train(journal, JOBS[0])
        train(journal, JOBS[1])
    assert len(warnings) == 1 and "madbench status will miss part of this sweep, which continues" in warnings[0]


def test_a_full_disk_is_said_once_and_what_comes_after_it_is_read(begin, tmp_path, warnings, monkeypatch):
    write, attempts = os.write, []

    def full(descriptor, content):
        attempts.append(content)
        if len(attempts) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(descriptor, content[:20]) if len(attempts) == 3 else write(descriptor, content)

    with begin() as journal:
        monkeypatch.setattr(journal_module.os, "write", full)
        for job in JOBS:
            train(journal, job)
        monkeypatch.undo()
    assert warnings == [
        f"{tmp_path}/sweeps: no space left on device; madbench status will miss part of this sweep, which continues"
    ]
    (sweep,) = read_sweeps(tmp_path)
    assert sweep.state == "finished" and sweep.tally.counts == {"finished": 2}


def test_a_journal_deleted_under_a_sweep_does_not_end_it(begin, warnings):
    with begin() as journal:
        train(journal, JOBS[0])
        journal.path.unlink()
        train(journal, JOBS[1])
    assert warnings == []


def test_a_command_is_what_a_user_types_again(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["/somewhere/cli.py", "run", "{S,R}-c", "training.epochs=3"])
    assert command_line() == "madbench run '{S,R}-c' training.epochs=3"
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    assert command_line().startswith("torchrun --nproc-per-node 8 -m madbench run ")


def test_a_second_look_reads_only_what_is_new(begin, tmp_path):
    sweeps = RecordedSweeps(tmp_path)
    with begin() as journal:
        for count, job in enumerate(JOBS, 1):
            train(journal, job)
            (sweep,) = sweeps.read(3)
            assert sweep.tally.counts == {"finished": count} and sweep.state == "running"
        with open(journal.path, "ab") as file:
            file.write(b'{"event": "ended", "how": "fini')
        (sweep,) = sweeps.read(3)
        assert sweep.ended is None
        with open(journal.path, "ab") as file:
            file.write(b'shed"}\n')
    assert [found.state for found in sweeps.read(3)] == ["finished"]


def test_twenty_thousand_jobs_are_read_in_no_time(begin, tmp_path):
    with begin() as journal:
        train(journal, JOBS[0])
    plan = json.loads(journal.path.read_text().splitlines()[0])
    plan["jobs"] = [plan["jobs"][0] | {"id": f"{number:016x}"} for number in range(20_000)]
    with open(journal.path, "w") as file:
        file.write(json.dumps(plan) + "\n")
        for number, job in enumerate(plan["jobs"]):
            end = f', "job": "{job["id"]}", "step": 1, "total_steps": 2, "status": "finished", "seconds": {number}}}\n'
            for kind in ("started", *["progress"] * 5, "finished"):
                file.write(f'{{"event": "{kind}", "slot": {number % 64}{end}')
    began = time.process_time()
    (sweep,) = read_sweeps(tmp_path)
    assert time.process_time() - began < 3.0  # 0.7 s on an idle machine
    assert sweep.tally.counts == {"finished": 20_000}
