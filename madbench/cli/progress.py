"""What ``madbench run`` shows while it works: bars on a terminal, a line a job elsewhere."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from madbench.cli.text import duration, quantity
from madbench.jobs import JobBase
from madbench.language_jobs import LanguageJob

if TYPE_CHECKING:
    from madbench.experiment import Experiment
    from madbench.language_experiment import LanguageExperiment


class RunScreen:
    """A bar for every slot and one for all jobs, fed by the executor's events."""

    def __init__(self, experiment: Experiment | LanguageExperiment, console: Console):
        self.title, self.console = experiment.title, console
        self.failures: list[tuple[JobBase, str]] = []
        self.done = 0
        self.weights = {job.id: _weight(job) for job in experiment.jobs}
        self.started: dict[int, float] = {}
        self.bars: dict[int, TaskID] = {}
        self.finished_weight = 0.0
        self.running_weight: dict[int, float] = {}
        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[note]}"),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self.name = f"{len(self.weights)} jobs" if len(self.weights) > 1 else "1 job"
        self.total = self.progress.add_task(f"[bold]{self.name}", total=sum(self.weights.values()), note="")

    def __enter__(self) -> RunScreen:
        self.console.print(f"{self.name}, {self.title}", markup=False, highlight=False, soft_wrap=True)
        self.progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.progress.stop()

    def on_event(self, event: dict[str, Any]) -> None:
        """Shows one event of an executor (:mod:`madbench.sweeps.executor`)."""
        job: JobBase = event["job"]
        if event["event"] == "started":
            self.started[event["slot"]] = time.monotonic()
            self.bars[event["slot"]] = self.progress.add_task(_name(job), total=1, note="")
        elif event["event"] == "progress":
            self._show_progress(event["slot"], event["progress"])
            fraction = event["progress"]["step"] / event["progress"]["total_steps"]
            self.running_weight[event["slot"]] = fraction * self.weights[job.id]
        else:
            self.done += 1
            self.finished_weight += self.weights[job.id]
            self.running_weight.pop(event.get("slot"), None)
            if event.get("slot") in self.bars:
                self.progress.remove_task(self.bars.pop(event["slot"]))
            self._show_outcome(job, event)
        completed = self.finished_weight + sum(self.running_weight.values())
        self.progress.update(self.total, completed=completed, note=f"{self.done}/{len(self.weights)} done")

    def _show_progress(self, slot: int, progress: dict[str, Any]) -> None:
        note = f"step {progress['step']}/{progress['total_steps']}"
        for name in ("accuracy", "loss"):
            if progress.get(name) is not None:
                note += f"  {name} {progress[name]:.3f}"
        if progress.get("tokens_per_second") is not None:
            note += f"  {quantity(progress['tokens_per_second'])} tokens/s"
        self.progress.update(self.bars[slot], completed=progress["step"], total=progress["total_steps"], note=note)

    def _show_outcome(self, job: JobBase, event: dict[str, Any]) -> None:
        where = f"[{self.done}/{len(self.weights)}] {_name(job)}"
        if event["event"] == "skipped":
            outcome = "another process is at work on it" if event["reason"] == "busy" else "already in the store"
        else:
            record = event["record"]
            took = duration(time.monotonic() - self.started.get(event["slot"], time.monotonic()))
            if record.status == "finished":
                name = "loss_l5" if isinstance(job, LanguageJob) else "accuracy"
                outcome = f"{'loss' if name == 'loss_l5' else name} {record.metrics[name]:.3f} in {took}"
            elif record.status == "diverged":
                outcome = f"diverged: {record.error}"
            else:
                reason = record.error.strip().splitlines()[-1] if record.error else "no reason given"
                self.failures.append((job, reason))
                outcome = f"failed: {reason}"
        self.console.print(f"{where}: {outcome}", markup=False, highlight=False, soft_wrap=True)


def _name(job: JobBase) -> str:
    return f"{job.label} {job.task} seed {job.seed}"


def _weight(job: JobBase) -> float:
    """Tokens trained on, for the time left."""
    if isinstance(job, LanguageJob):
        return job.training.steps * job.training.tokens_per_step
    steps = math.ceil(job.setting["num_train_examples"] / job.training.batch_size) * job.training.epochs
    return steps * job.training.batch_size * job.setting["seq_len"]
