"""``madbench ls sweeps``: running, interrupted and ended sweeps, and damaged journals."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest

from madbench.cli.ls import ls
from madbench.execute import journal as journal_module
from madbench.execute.journal import Journal
from madbench.files import seal, unseal
from madbench.jobs import Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD

JOBS = MAD.jobs(["R-cg-q-12o"], MAD.Profile.load("quick"), tasks=["compression"], seeds=range(40))
DONE = Record("finished", {"accuracy": 0.5})


@pytest.fixture
def begin(tmp_path, monkeypatch):
    monkeypatch.setattr(journal_module, "WRITE_SECONDS", 0.0)
    return lambda: Journal(tmp_path, JOBS, "a title", "madbench run R-cg-q-12o --seeds 0-39", pytest.fail)


def train(journal, job, slot=0, record=DONE):
    journal.on_event({"event": "started", "job": job, "slot": slot})
    kind = "failed" if record.status == "failed" else "finished"
    journal.on_event({"event": kind, "job": job, "slot": slot, "record": record})


@pytest.mark.slow
def test_a_running_sweep_is_listed_with_slots_and_failures(begin, invoke, tmp_path):
    with begin() as journal:
        for job in JOBS[:20]:
            journal.on_event({"event": "skipped", "job": job, "reason": "stored"})
        train(journal, JOBS[20])
        for job in JOBS[21:36]:
            train(journal, job, record=Record("failed", error="Traceback\nMemoryError"))
        journal.on_event({"event": "started", "job": JOBS[36], "slot": 7})
        progress = {"step": 30, "total_steps": 60, "accuracy": 0.25}
        journal.on_event({"event": "progress", "job": JOBS[36], "slot": 7, "progress": progress})
        lines = invoke(ls, "sweeps", "--results", tmp_path).output.splitlines()
        content = json.loads(invoke(ls, "sweeps", "--results", tmp_path, "-f", "json").output)
    assert lines[0] == "running     madbench run R-cg-q-12o --seeds 0-39"
    assert lines[1].startswith("40 jobs, a title; since 20")
    assert "36/40 done  15 failed" in lines[2]
    assert lines[3].split()[:4] == ["R-cg-q-12o", "compression", "seed", "36"] and "50% accuracy 0.250" in lines[3]
    assert lines[4] == "1 finished, 15 failed, 20 already in the store, 1 running, 3 waiting"
    assert lines[5] == "  failed: R-cg-q-12o compression seed 21: MemoryError"
    assert lines[-1] == f"  and 5 more failed; madbench ls sweeps -f json --results {tmp_path} has them all"
    (sweep,) = content
    assert (sweep["state"], sweep["done"], sweep["total"]) == ("running", 36, 40)
    assert len(sweep["failures"]) == 15 and sweep["failures"][0]["reason"] == "MemoryError"
    (slot,) = sweep["slots"]
    assert (slot["slot"], slot["seed"], slot["step"], slot["fraction"], slot["accuracy"]) == (7, 36, 30, 0.5, 0.25)


def test_a_sweep_that_died_is_shown_with_the_command_that_resumes_it(begin, invoke, tmp_path):
    store = Store.open(tmp_path)
    with begin() as journal:
        train(journal, JOBS[0])
    content = unseal(journal.path.read_bytes())
    del content["ended"]
    journal.path.write_text(json.dumps(seal(content)))
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert output.startswith("died ") and "1 finished, 39 not done" in output
    assert "it died, 39 jobs left: the same command resumes" in output
    assert "&& madbench run R-cg-q-12o --seeds 0-39" in output
    (store.root / "runs" / JOBS[1].id).mkdir()  # stored just before the sweep was killed, so the journal lacks its end
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert "1 finished, 1 in the store by now, 38 not done" in output and "it died, 38 jobs left" in output
    (sweep,) = json.loads(invoke(ls, "sweeps", "--results", tmp_path, "-f", "json").output)
    assert sweep["counts"] == {"finished": 1, "stored since": 1, "not done": 38} and sweep["done"] == 2
    for job in JOBS[2:]:
        (store.root / "runs" / job.id).mkdir()
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert "1 finished, 39 in the store by now\nall its jobs are in the store by now" in output


def test_interrupted_and_broken_sweeps_are_listed_as_such(begin, invoke, tmp_path):
    for error in (KeyboardInterrupt(), ValueError("the disk is on fire")):
        with pytest.raises(type(error)), begin() as journal:
            train(journal, JOBS[0])
            raise error
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert "it was interrupted, 39 jobs left" in output and "it ended with an error: the disk is on fire" in output


def test_a_damaged_journal_does_not_hide_the_others(begin, invoke, tmp_path):
    for _ in range(2):
        with begin() as journal:
            train(journal, JOBS[0])
    journal.path.write_text("{")
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert "damaged  " in output and "finished    madbench run" in output
    states = [sweep["state"] for sweep in json.loads(invoke(ls, "sweeps", "--results", tmp_path, "-f", "json").output)]
    assert sorted(states) == ["damaged", "finished"]


@pytest.mark.slow
def test_every_kind_of_damaged_journal_is_one_line_of_output(begin, invoke, tmp_path):
    with begin() as journal:
        train(journal, JOBS[0])
    sound = journal.path.read_bytes()
    content = json.loads(sound)
    damages = {name: json.dumps(content | {name: None}) for name in content if content[name] is not None}
    damages |= {f"no {name}": json.dumps({key: content[key] for key in content if key != name}) for name in content}
    damages |= {"number": "9" * 5000, "list": "[]", "null": "null", "empty": ""}
    damages |= {"flipped": sound.replace(b'"total": 40', b'"total": 41').decode()}
    for damage in damages.values():
        journal.path.write_text(damage)
        output = invoke(ls, "sweeps", "--results", tmp_path).output
        assert output.startswith(f"damaged  {journal.path}: not the journal of a sweep: ") and output.count("\n") == 1
        (sweep,) = json.loads(invoke(ls, "sweeps", "--results", tmp_path, "-f", "json").output)
        assert sweep.keys() == {"name", "state", "error"}


def test_a_folder_in_place_of_a_journal_is_named(begin, invoke, tmp_path):
    with begin() as journal:
        train(journal, JOBS[0])
    journal.path.with_name("20990101T000000Z-1.json").mkdir()
    output = invoke(ls, "sweeps", "--results", tmp_path).output
    assert output.count("damaged") == 1 and "is a directory" in output and "finished    madbench run" in output


def test_ls_sweeps_accepts_an_empty_results_folder_but_not_a_missing_one(invoke, refuse, tmp_path):
    assert "no sweep is recorded here" in invoke(ls, "sweeps", "--results", tmp_path).output
    assert json.loads(invoke(ls, "sweeps", "--results", tmp_path, "-f", "json").output) == []
    assert "there is no such results folder" in refuse(ls, "sweeps", "--results", tmp_path / "none")
    assert refuse(ls, "sweeps", "--watch", "-f", "json").startswith("--watch has no effect with -f json")
    assert refuse(ls, "sweeps", "--watch") == "--watch has no effect where the output is no terminal"


@pytest.mark.slow
def test_status_imports_neither_torch_nor_pandas(begin, tmp_path):
    with begin() as journal:
        train(journal, JOBS[0])
    program = (
        "import sys; from madbench.cli import main; sys.argv = ['madbench', 'ls', 'sweeps', '--results', sys.argv[1]]\n"
        "try: main()\n"
        "except SystemExit as end: assert not end.code, end.code\n"
        "print(sorted({'torch', 'numpy', 'pandas'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", program, tmp_path], capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout.splitlines()[-1] == "[]" and "finished" in shown.stdout


def test_a_sweep_on_a_disk_without_locks_is_listed_as_unknown(begin, invoke, tmp_path, monkeypatch):
    Store.open(tmp_path)
    with begin() as journal:
        train(journal, JOBS[0])
        with monkeypatch.context() as patch:
            error = OSError(errno.ENOLCK, "No locks available")
            patch.setattr(journal_module.fcntl, "flock", lambda *_: (_ for _ in ()).throw(error))
            result = invoke(ls, "sweeps", "--results", tmp_path)
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert lines[0].startswith("unknown     madbench run") and not [line for line in lines if "running" in line]
    text = " ".join(result.output.split())
    assert (
        "whether it runs is not known" in text and "no locks available" in text and "the same command resumes" in text
    )
