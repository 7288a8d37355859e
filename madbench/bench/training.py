"""Steps a second of MAD training by task, what the whole protocol takes at that speed, and the reference beside it."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from madbench.bench.mixer import checked
from madbench.bench.parts import Column, Curve, Part, Row, Setup
from madbench.bench.peer import peer_step
from madbench.bench.timing import Timing, in_turns
from madbench.jobs import Job
from madbench.suites.mad import MAD, MadProfile, setting_of
from madbench.tasks import MAD_TASKS, heading
from madbench.training.cost import job_size
from madbench.training.member import Member
from madbench.training.step import PlainStep


def measure_training(setup: Setup) -> Iterator[Row]:
    """A row a task and label: the first setting of the profile, through the step of the training loop."""
    profile = MadProfile.load(setup.profile)
    for task in MAD_TASKS:
        jobs = {label: _jobs(label, task, profile, setup) for label in setup.labels}
        if setup.batch:
            jobs = {
                label: [replace(job, training=replace(job.training, batch_size=setup.batch)) for job in of_label]
                for label, of_label in jobs.items()
            }
        with tempfile.TemporaryDirectory() as folder:
            members = {
                label: Member(of_label[0], Path(folder), _ignore, setup.device) for label, of_label in jobs.items()
            }
            steps = {label: functools.partial(PlainStep(member), [member.rate]) for label, member in members.items()}
            if setup.peer:
                trial = next(iter(members.values())).trial
                (inputs, targets), _ = next(iter(trial.micro_batches(0)))
                shape = trial.setting.model == "autoencoder", trial.job.model, trial.setting.vocab_size
                steps["peer"] = peer_step(setup.peer, *shape, (inputs, targets), setup.precision)
            problems = {
                label: checked(label, setting_of(of_label[0]).seq_len, setup, "auto", of_label[0].model.d_model)
                for label, of_label in jobs.items()
            }
            times = in_turns(
                {name: step for name, step in steps.items() if not problems.get(name)}, setup.limits, setup.device
            )
        for name in steps:
            length = setting_of(next(iter(jobs.values()))[0]).seq_len
            row = {"label": name, "task": task, "heading": heading(task), "length": length}
            time = problems.get(name) or times[name]
            if not isinstance(time, Timing):
                yield row | {"error": time}
                continue
            row |= {
                "step_ms": 1e3 * time.median,
                "step_low_ms": 1e3 * time.low,
                "step_high_ms": 1e3 * time.high,
                "spread": f"{1e3 * time.low:.1f}-{1e3 * time.high:.1f}",
                "steps_per_second": 1 / time.median,
            }
            for other, ratio in (("S", "times_of_S"), ("peer", "speed_over_peer")):
                if other in times and isinstance(times[other], Timing):
                    share = time.median / times[other].median
                    row[ratio] = share if ratio == "times_of_S" else 1 / share
            if name in jobs:
                row |= {"jobs": len(jobs[name]), "hours": _seconds_of_all(jobs[name], time.median) / 3600}
            yield row


def _jobs(label: str, task: str, profile: MadProfile, setup: Setup) -> list[Job]:
    """Those of one seed; the first is the task's baseline."""
    return MAD.jobs([label], profile, seeds=[0], tasks=[task], budget="strict", precision=setup.precision)


def _seconds_of_all(jobs: list[Job], step_seconds: float) -> float:
    """Of all jobs, evaluations included, at the speed of the first: a step costs as many seconds as it has FLOPs."""
    first = job_size(jobs[0])
    flops_of_step = 3 * first.flops_per_token * first.seq_len * first.sequences_per_step
    return sum(job_size(job).flops for job in jobs) * step_seconds / flops_of_step


def _ignore(_: object) -> None:
    """Progress of a run that nobody watches."""


TRAINING = Part(
    "training",
    "MAD training by task, beside the reference",
    "Milliseconds of a training step of the task's first setting, with the least and the longest; as a multiple of S; speed "
    "over the reference's model with softmax attention; hours of all jobs of the task, one seed, one after another.",
    [
        Column("label", "Label"),
        Column("heading", "Task"),
        Column("length", "T"),
        Column("step_ms", "ms", "{:.1f}"),
        Column("spread", "Spread"),
        Column("times_of_S", "S", "{:.2f}x"),
        Column("speed_over_peer", "Peer", "{:.2f}x"),
        Column("hours", "Hours", "{:.2g}"),
        Column("error", ""),
    ],
    Curve("task", "step_ms", "label", "", "ms a step"),
    measure_training,
    ("task",),
    lambda setup: len(MAD_TASKS),
)
