"""The progress of training on a terminal and in a log."""

from __future__ import annotations

import io
import re
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from rich.console import Console

from madbench.cli.shared.progress import RunScreen, sweep_view, train_on_screen
from madbench.execute.base import Policy, ignore_event
from madbench.execute.options import RunOptions
from madbench.execute.sweep_state import SweepState, job_name
from madbench.jobs import Record
from madbench.suites.mad.suite import MAD
from madbench.suites.tokens import TrainingConfig
from sample_jobs import mad_job

PROFILE = MAD.Profile.load("quick")
JOBS = MAD.jobs(["R-cg-q-12o"], PROFILE, tasks=["fuzzy_in_context_recall"], seeds=range(300))
DONE = Record("finished", {"accuracy": 0.5})


def console(width=80, height=24, is_terminal=False) -> Console:
    return Console(file=io.StringIO(), width=width, height=height, force_terminal=is_terminal, color_system=None)


def finish(job, slot=0, record=DONE):
    event = "failed" if record.status == "failed" else "finished"
    return [
        {"event": "started", "job": job, "slot": slot},
        {"event": event, "job": job, "slot": slot, "record": record},
    ]


def untracked(options, warn):
    return nullcontext(ignore_event)


def shown(events, jobs=JOBS, **how) -> list[str]:
    out = console(**how)
    with RunScreen(jobs, "a title", out) as screen:
        for event in events:
            screen.on_event(event)
    return out.file.getvalue().splitlines()


def test_skipped_jobs_share_a_line_and_trained_jobs_have_one_each():
    events = [{"event": "skipped", "job": job, "reason": "stored"} for job in JOBS[:250]]
    events += [{"event": "skipped", "job": job, "reason": "failed"} for job in JOBS[250:252]]
    events += finish(JOBS[252])
    events += finish(JOBS[253], record=Record("failed", error="Traceback\nMemoryError"))
    events += finish(JOBS[254], record=Record("diverged", error="loss was not finite in epoch 1"))
    events += [{"event": "skipped", "job": JOBS[255], "reason": "busy"}]
    assert shown(events) == [
        "300 jobs, a title",
        "250 of 300 jobs already in the store",
        "2 of 300 jobs failed before and not retried",
        "[253/300] R-cg-q-12o fuzzy_in_context_recall seed 252: accuracy 0.500 in 0 s",
        "[254/300] R-cg-q-12o fuzzy_in_context_recall seed 253: failed: MemoryError",
        "[255/300] R-cg-q-12o fuzzy_in_context_recall seed 254: diverged: loss was not finite in epoch 1",
        "1 of 300 jobs left to another process",
    ]


def test_job_names_include_the_settings_that_differ():
    rates = MAD.Profile.load("quick", ["learning_rates=[1e-3,2e-3]", "weight_decays=[0.0,0.1]"])
    jobs = MAD.jobs(["S"], rates, tasks=["compression"], seeds=[0])
    lines = shown([event for job in jobs for event in finish(job)], jobs)[1:]
    assert [line.partition("] ")[2].partition(":")[0] for line in lines] == [
        f"S compression lr {rate} wd {decay} seed 0" for rate in ("0.001", "0.002") for decay in ("0.0", "0.1")
    ]
    for profile in (rates, MAD.Profile.load("full")):
        jobs = MAD.jobs(["S", "S-p"], profile, tasks=["compression", "memorization"], seeds=[0, 1])
        names = {job_name(job) for job in SweepState(jobs).jobs.values()}
        assert len(names) == len(jobs)
    assert job_name(SweepState(JOBS).jobs[JOBS[0].id]) == "R-cg-q-12o fuzzy_in_context_recall seed 0"


def test_progress_prints_nothing_without_a_terminal():
    progress = {"step": 3, "total_steps": 9, "accuracy": 0.1}
    events = [{"event": "started", "job": JOBS[0], "slot": 0}]
    events += [{"event": "progress", "job": JOBS[0], "slot": 0, "progress": progress}] * 100
    assert shown(events) == ["300 jobs, a title"]


@pytest.mark.parametrize("width", [20, 40, 60, 80, 120, 200])
@pytest.mark.parametrize("height", [3, 10, 24])
def test_the_live_screen_never_overflows(width, height):
    out = console(width, height, is_terminal=True)
    screen = RunScreen(JOBS, "a title", out)
    for slot in range(64):
        screen.on_event({"event": "started", "job": JOBS[slot], "slot": slot})
        progress = {"step": 999 + slot, "total_steps": 40_000, "loss": 2.5, "tokens_per_second": 68_412.0}
        screen.on_event({"event": "progress", "job": JOBS[slot], "slot": slot, "progress": progress})
    out.print(screen.render())
    lines = out.file.getvalue().splitlines()
    assert len(lines) <= max(2, height - 2) and all(len(line) <= width for line in lines)
    assert "0/300 done" in lines[0]
    assert re.match(r"\.\.\. and \d+ more (running$|r?[a-z]*…)", lines[-1])


def test_the_line_of_a_slot_shows_job_progress_and_speed():
    out = console(130, 24, is_terminal=True)
    screen = RunScreen(JOBS[:2], "a title", out)
    for slot, progress in enumerate(
        ({"loss": None, "tokens_per_second": None}, {"loss": 2.5, "tokens_per_second": 1200.0})
    ):
        screen.on_event({"event": "started", "job": JOBS[slot], "slot": slot})
        progress = {"step": 30, "total_steps": 60} | progress
        screen.on_event({"event": "progress", "job": JOBS[slot], "slot": slot, "progress": progress})
    out.print(screen.render())
    _, first, second = out.file.getvalue().splitlines()
    assert re.search(r"R-cg-q-12o fuzzy_in_context_recall seed 0 ━+ +50% +step 30/60 +0 s", first)
    assert re.search(r"seed 1 ━+ +50% loss 2.500 step 30/60 1.2 k tokens/s 0 s", second)


def test_a_live_screen_is_gone_when_the_sweep_ends():
    lines = shown(finish(JOBS[0]), JOBS[:1], is_terminal=True)
    assert any("[1/1] R-cg-q-12o" in line for line in lines)
    assert re.sub(r"\x1b\[[?0-9;]*[a-zA-Z]", "", lines[-1]).strip("\r") in ("", "1/1 done")


def test_the_whole_sweep_fits_one_line():
    short, long = (mad_job(training=TrainingConfig(epochs=epochs)) for epochs in (1, 3))
    tally = SweepState([short, long])
    tally.apply({"event": "started", "job": short.id, "slot": 0}, 0.0)
    tally.apply({"event": "failed", "job": short.id, "slot": 0, "status": "failed", "error": "no"}, 6.0)
    tally.apply({"event": "started", "job": long.id, "slot": 0}, 6.0)
    tally.apply({"event": "progress", "job": long.id, "slot": 0, "step": 0, "total_steps": 3}, 6.0)
    tally.apply({"event": "progress", "job": long.id, "slot": 0, "step": 1, "total_steps": 3}, 60.0)
    out = console()
    out.print(sweep_view(tally.content(), 80, 1))
    assert out.file.getvalue().splitlines()[0].strip("━╸ ") == "1/2 done  1 failed  1.0 jobs/min  2.0 min left"


def test_an_unwritable_journal_warns_once_and_progress_continues(tmp_path):
    out = console(200)
    (tmp_path / "a file").touch()

    def execute(on_event, options, policy):
        for event in finish(JOBS[0]):
            on_event(event)

    experiment = SimpleNamespace(
        jobs=JOBS[:1], title="a title", results=tmp_path / "a file", execute=execute, tracking=untracked
    )
    _, failures = train_on_screen(experiment, RunOptions(), Policy(), out, {})
    lines = out.file.getvalue().splitlines()
    assert lines[0].partition(":")[0] == "1 job, a title"
    assert sum("warning" in line for line in lines) == 1 and "[1/1]" in lines[-1]
    assert failures == {}


def test_ctrl_c_says_which_partial_runs_are_kept(tmp_path):
    out = console(200)

    def execute(on_event, options, policy):
        raise KeyboardInterrupt

    def stopped() -> list[str]:
        experiment = SimpleNamespace(
            jobs=JOBS[:9], title="a title", results=tmp_path, execute=execute, tracking=untracked
        )
        with pytest.raises(KeyboardInterrupt):
            train_on_screen(experiment, RunOptions(), Policy(), out, {})
        return out.file.getvalue().splitlines()

    assert "stopped; " in stopped()[-1], "nothing is said of checkpoints that are not there"
    for job in JOBS[:7]:
        (tmp_path / "work" / job.id).mkdir(parents=True)
        (tmp_path / "work" / job.id / "checkpoint.pt").touch()
    name = "R-cg-q-12o fuzzy_in_context_recall seed"
    last = stopped()[-1]
    assert last.startswith(f"kept as 7 checkpoints in {tmp_path}/work: {name} 0, {name} 1, ")
    assert last.endswith(f"{name} 4, and 2 more")
