"""The speed of MAD training by task, also of the reference code, and the time of the whole protocol at that speed."""

from __future__ import annotations

import functools
import importlib
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from madbench.bench.mixer import InputShape, check_path, resolved_path
from madbench.bench.parts import PEER, BenchColumn, BenchPart, BenchRow, BenchSetup, Curve
from madbench.bench.timing import Timing, ceiling_flops, reason_unmeasured, time_in_turns
from madbench.jobs import Job
from madbench.mixers.ops.tracing import as_compiled
from madbench.suites import has_blocks, main_suite, size_of
from madbench.suites.profile import Profile
from madbench.suites.token_trial import TokenTrial
from madbench.suites.tokens import TokenProfile
from madbench.tasks import settings_class
from madbench.training.loop import step_of
from madbench.training.member import GroupMember

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer


def measure_training(setup: BenchSetup) -> Iterator[BenchRow]:
    """Measure training steps of the MAD tasks.

    There is one row per task and label, with the time of a training step in the first setting that the profile has for
    the task. With ``setup.peer`` each task also has a row of the reference code's model. At the end, one row per label
    has the number of jobs and the hours of all tasks together. It is left out unless all tasks were measured.
    """
    profile, done = main_suite().Profile.load(setup.profile), []
    for task in setup.in_time(_tasks(setup)):
        jobs = {label: _jobs(label, task, profile, setup) for label in setup.labels}
        measured = _measure_task(jobs, setup)
        for name in [*jobs, PEER] if setup.peer else jobs:
            row = _row(name, jobs.get(name, []), measured, setup)
            if "error" not in row:
                done.append(row)
            yield row
    for label in setup.labels:
        mine = [row for row in done if row["label"] == label]
        if len(mine) == len(main_suite().usual_tasks()):
            total = {name: sum(row[name] for row in mine) for name in ("jobs", "hours")}
            yield {"label": label, "task": "all", "heading": "all tasks", **total}


class MeasuredTask(NamedTuple):
    """The times of training steps on a task."""

    task: str
    batch_shape: tuple[int, int]
    """The number of sequences of a batch, and their length in tokens."""
    paths: Mapping[str, str]
    """The path or paths of the mixers, by label."""
    times: Mapping[str, Timing | str]
    """The time of a training step by label, also of :data:`PEER`. If there is none, the reason."""


def _measure_task(jobs: Mapping[str, Sequence[Job]], setup: BenchSetup) -> MeasuredTask:
    """Measure training steps of the first job of each label. All jobs belong to one task."""
    steps, path_of, problems = {}, {}, {}
    with tempfile.TemporaryDirectory() as folder:
        members = {
            label: GroupMember(mine[0], Path(folder), lambda _: None, setup.device) for label, mine in jobs.items()
        }
        for label, member in members.items():
            assert has_blocks(member.job)
            shape = InputShape(*member.trial.batch_shape, member.job.model.d_model)
            with as_compiled(_compiles(setup)):
                paths = _paths_by_label(label, member.trial.mixers, shape, setup)
            path_of[label] = ", ".join(dict.fromkeys(paths.values()))
            try:
                for part, path in paths.items():
                    check_path(part, shape, setup, path, member.job.model.n_head)
                step = step_of([member], _compiles(setup))
                for _ in range(step.warm_up - 1):  # a CUDA graph is captured after some steps
                    step([member.rate])
            except Exception as error:  # many kinds of errors of a kernel
                problems[label] = reason_unmeasured(error)
            else:
                steps[label] = functools.partial(step, [member.rate])
        trial = next(iter(members.values())).trial
        assert isinstance(trial, TokenTrial)  # of the main suite
        if setup.peer:
            batch, _ = next(iter(trial.micro_batches(0)))
            of_model = trial.setting.model == "autoencoder", trial.job.model, trial.setting.vocab_size
            reference = importlib.import_module(main_suite().reference)
            steps[PEER] = reference.peer_step(setup.peer, *of_model, batch, setup.precision)
        times = problems | time_in_turns(steps, setup.limits, setup.device)
    return MeasuredTask(trial.job.task, trial.batch_shape, path_of, times)


def _row(name: str, jobs: Sequence[Job], measured: MeasuredTask, setup: BenchSetup) -> BenchRow:
    """The row of a label or of :data:`PEER`. ``jobs`` are those of the label, and empty for :data:`PEER`."""
    task, path = measured.task, measured.paths.get(name)
    row: BenchRow = {"label": name, "task": task, "heading": settings_class(task).heading, "path": path}
    if _compiles(setup):
        row["compiled"] = "yes" if jobs else "no"
    row |= {"batch": measured.batch_shape[0], "length": measured.batch_shape[1]}
    time = measured.times[name]
    if not isinstance(time, Timing):
        return row | {"error": time}
    row |= {**time.milliseconds("step"), "steps_per_second": 1 / time.median}
    if jobs:
        products = _flops_of_step(jobs[0]) / ceiling_flops(setup.device, getattr(torch, setup.precision))
        row["times_of_products"] = time.median / products
    if isinstance(of_softmax := measured.times.get("S"), Timing):
        row["times_of_S"] = time.median / of_softmax.median
    if isinstance(of_peer := measured.times.get(PEER), Timing):
        row["speed_over_peer"] = of_peer.median / time.median
    if jobs:
        row |= {"jobs": len(jobs), "hours": _seconds_of_all(jobs, time.median) / 3600}
    return row


def _compiles(setup: BenchSetup) -> bool:
    """True if steps are compiled. On a GPU, a step is a CUDA graph."""
    return setup.compiles and setup.is_cpu


def _tasks(setup: BenchSetup) -> list[str]:
    """The tasks whose first setting has one of the requested sequence lengths. All tasks if there is no such task."""
    profile = main_suite().Profile.load(setup.profile)
    assert isinstance(profile, TokenProfile)
    return [
        task for task in main_suite().usual_tasks() if profile.settings(task)[0]["seq_len"] in setup.lengths
    ] or list(main_suite().usual_tasks())


def _paths_by_label(label: str, mixers: Sequence[Mixer], shape: InputShape, setup: BenchSetup) -> dict[str, str]:
    """The path that each mixer of a model takes, by the mixer's label. The mixers of a hybrid have different labels.

    ``label`` is the label of the model.
    """
    labels = (getattr(getattr(mixer, "allocation", None), "label", label) for mixer in mixers)
    return {
        str(mixer_label): resolved_path(mixer, shape, setup, "auto")
        for mixer_label, mixer in zip(labels, mixers, strict=True)
    }


def _jobs(label: str, task: str, profile: Profile, setup: BenchSetup) -> list[Job]:
    """The jobs that the profile trains for a label on a task with seed 0.

    The first job has the task's baseline setting. ``setup`` gives the precision, and the batch size if it has one.
    """
    jobs = main_suite().jobs([label], profile, seeds=[0], tasks=[task], budget="strict", precision=setup.precision)
    if setup.batch is None:
        return jobs
    return [replace(job, training=replace(job.training, batch_size=setup.batch)) for job in jobs]


def _seconds_of_all(jobs: Sequence[Job], step_seconds: float) -> float:
    """An estimate of the seconds that all jobs take one after another, including their evaluations.

    ``step_seconds`` is the measured time of a training step of the first job. The time per FLOP is assumed to be equal
    for all jobs.
    """
    return sum(size_of(job).flops for job in jobs) * step_seconds / _flops_of_step(jobs[0])


def _flops_of_step(job: Job) -> float:
    """The FLOPs of a training step of ``job``: three times those of a forward pass."""
    size = size_of(job)
    return 3 * size.flops_per_token * size.seq_len * size.sequences_per_step


TRAINING = BenchPart(
    "training",
    "MAD training by task, next to the reference",
    "Milliseconds of a training step of the task's first setting, with the least and the longest; as a multiple of the "
    "time that its FLOPs take in one large matrix product, and of S; speed over the reference's model with softmax "
    "attention; hours of all jobs of one seed, one after another.",
    [
        BenchColumn("label", "Label"),
        BenchColumn("heading", "Task"),
        BenchColumn("length", "T"),
        BenchColumn("path", "Path"),
        BenchColumn("compiled", "Compiled"),
        BenchColumn("step_ms", "ms", "{:.4g}"),
        BenchColumn("step_low_ms", "Spread", "{:.4g}-{step_high_ms:.4g}"),
        BenchColumn("times_of_products", "of products", "{:.1f}"),
        BenchColumn("times_of_S", "of S", "{:.2f}"),
        BenchColumn("speed_over_peer", "Peer", "{:.2f}"),
        BenchColumn("hours", "Hours", "{:,.2f}"),
    ],
    Curve("heading", "step_ms", "ms per step", series="label"),
    measure_training,
    ("task",),
    lambda setup: len(_tasks(setup)),
)
