"""The main job: labels in, trained and tabulated results out. The command line and ``madbench.run`` share it."""

from __future__ import annotations

import functools
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from madbench.config import check_seeds
from madbench.errors import ConfigError, TrainingError, did_you_mean
from madbench.execute.base import Executor, OnEvent, Policy, Summary, Train, ignore_event
from madbench.jobs import Counting, Fidelity, Job, Precision
from madbench.labels import expand
from madbench.store.runs import Store
from madbench.suites.plan import plan
from madbench.suites.profile import Profile, load_profile
from madbench.tasks.registry import TASK_NAMES, check_task

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.tables import AblationTable


@dataclass(frozen=True)
class Experiment:
    """A checked plan: nothing has been trained or written yet."""

    labels: list[str]
    profile: Profile
    profile_name: str
    overrides: tuple[str, ...]
    jobs: list[Job]
    tasks: list[str]
    fidelity: Fidelity
    counting: Counting
    precision: Precision
    device: str
    results: Path

    @property
    def title(self) -> str:
        """The protocol in a line."""
        what = f"profile {self.profile_name}, {self.fidelity}, {self.device}"
        return what if self.profile.comparable_with_paper else f"{what}; not comparable with the paper"

    def begun(self, stored: Container[str], all_labels: bool) -> Experiment:
        """Only labels and seeds of which at least one job is stored; with ``all_labels``, labels without any stay."""
        pairs = {(job.label, job.seed) for job in self.jobs if job.id in stored}
        labels, seeds = ({pair[i] for pair in pairs} for i in range(2))
        jobs = [
            job
            for job in self.jobs
            if (job.label, job.seed) in pairs or (all_labels and job.label not in labels and job.seed in seeds)
        ]
        return replace(self, jobs=jobs)

    @property
    def train(self) -> Train:
        """What trains one of its jobs."""
        from madbench.training.loop import train_job

        return functools.partial(train_job, device=self.device)

    def execute(
        self,
        on_event: OnEvent = ignore_event,
        slots: int | None = None,
        policy: Policy = Policy(),
        executor: Executor | None = None,
    ) -> Summary:
        """Trains what the store lacks; on this machine, ``slots`` jobs at a time, unless ``executor`` does it elsewhere."""
        from madbench.execute.local import run_jobs
        from madbench.training.devices import default_slots

        store = Store.open(self.results)
        if executor is None:
            slots = min(slots or default_slots(self.device), max(1, len(self.jobs)))
            executor = functools.partial(run_jobs, slots=slots)
        return executor(self.jobs, store, self.train, on_event=on_event, policy=policy)


def prepare(
    labels: Sequence[str],
    *,
    profile: str = "quick",
    overrides: Sequence[str] = (),
    tasks: Iterable[str] | None = None,
    seeds: Sequence[int] = (0,),
    fidelity: Fidelity = "corrected",
    counting: Counting = "strict",
    device: str = "auto",
    results: Path | str = "results",
    precision: Precision | None = None,
    is_remote: bool = False,
) -> Experiment:
    """Parses, budgets and plans; raises a ``MadbenchError`` for anything that could not be trained.

    ``precision`` stands in for a profile's ``auto``, which otherwise depends on the device. With ``is_remote`` the
    device is that of the machines of an executor, ``cpu`` or ``cuda``; ``auto`` precision is bfloat16 on the second.
    """
    from madbench.training.devices import resolve_device, resolve_precision

    canonical = expand(labels)
    overrides = (overrides,) if isinstance(overrides, str) else tuple(overrides)
    seeds = check_seeds(seeds)
    check_choice("fidelity", fidelity, Fidelity)
    check_choice("counting", counting, Counting)
    loaded = load_profile(str(profile), overrides)
    chosen = {tasks} if isinstance(tasks, str) else set(tasks or TASK_NAMES)
    for task in chosen:
        check_task(task)
    tasks = [task for task in TASK_NAMES if task in chosen]
    for override in overrides:
        first, _, rest = override.partition(".")
        if first == "tasks" and rest.partition(".")[0] in set(TASK_NAMES) - chosen:
            raise ConfigError(f"override {override!r} has no effect: the tasks are {', '.join(tasks)}")
    device = resolve_device(device, is_here=not is_remote)
    if precision is None or loaded.precision != "auto":
        precision = resolve_precision(loaded.precision, device, is_here=not is_remote)
    jobs = plan(
        canonical,
        loaded,
        tasks=tasks,
        seeds=seeds,
        fidelity=fidelity,
        counting=counting,
        precision=precision,
    )
    if not jobs:
        raise ConfigError("nothing to train: give at least one label and one seed")
    return Experiment(
        canonical, loaded, str(profile), overrides, jobs, tasks, fidelity, counting, precision, device, Path(results)
    )


def check_choice(name: str, value: str, allowed: Any) -> None:
    """Raises ``ConfigError`` where ``value`` is none of the values of the ``Literal`` type ``allowed``."""
    if value not in get_args(allowed):
        raise ConfigError(f"{name}: {value!r} is not allowed{did_you_mean(value, get_args(allowed))}")


def tabulate(experiment: Experiment, store: Store | None = None) -> AblationTable:
    """The table of the experiment's jobs, as far as they are in ``store``, by default its own."""
    from madbench.analysis.scores import collect, scores
    from madbench.analysis.tables import ablation_table

    collected = collect(experiment.jobs, store or Store.open(experiment.results, create=False))
    return ablation_table(scores(collected), experiment.tasks, caption(experiment, collected))


def caption(experiment: Experiment, collected: pd.DataFrame) -> str:
    """What the numbers of the table are of, and what it lacks."""
    sentences = [
        f"Percent, {accuracy_meaning(experiment.fidelity)}; mean over n seeds.",
        *protocol_sentences(experiment, collected),
        "Budget is mixer parameters over softmax attention's, both with the conv taps of the label.",
    ]
    lacking = int((~collected.status.isin(["finished", "diverged"])).sum())
    if lacking:
        sentences.append(f"{lacking:,} of {len(collected):,} jobs have no result yet.")
    limits = collected.dropna(subset=["ceiling"]).groupby("task", sort=False).ceiling.mean()
    below = [f"{task} {100 * limit:.1f}" for task, limit in limits.items() if limit < 0.9995]
    if below:
        sentences.append(f"Token accuracy without guessing is at most: {', '.join(below)}.")
    if not experiment.profile.comparable_with_paper:
        sentences.append("This profile is not comparable with the published rows, which are full size.")
    elif (experiment.fidelity, experiment.counting) != ("published", "published"):
        sentences.append("The published rows used the published fidelity and counting.")
    return " ".join(sentences)


def accuracy_meaning(fidelity: Fidelity) -> str:
    """What the accuracy of a table is, and on what it was chosen where that is not the validation set."""
    if fidelity == "published":
        return "the reference implementation's accuracy (macro within each batch of 128), chosen on the test set"
    return "token accuracy over all test targets"


def protocol_sentences(experiment: Experiment, collected: pd.DataFrame) -> list[str]:
    """What all runs of the experiment share, where they ran and how many diverged."""
    config = experiment.profile.model
    changes = f" with {', '.join(experiment.overrides)}" if experiment.overrides else ""
    devices = sorted({str(name) for name in collected.device.dropna().unique()}) or ["no device yet"]
    sentences = [
        f"Profile {experiment.profile_name}{changes}: d_model {config.d_model}, {config.n_layer} blocks,"
        f" {config.n_head} heads, {experiment.precision}.",
        f"Fidelity {experiment.fidelity}; budget counting {experiment.counting}.",
        f"Trained on {', '.join(devices)}.",
    ]
    diverged = int((collected.status == "diverged").sum())
    if diverged:
        sentences.append(f"{diverged} of {len(collected)} runs diverged.")
    return sentences


def run(
    labels: str | Sequence[str],
    *,
    profile: str = "quick",
    overrides: Sequence[str] = (),
    tasks: Iterable[str] | None = None,
    seeds: Sequence[int] = (0,),
    fidelity: Fidelity = "corrected",
    counting: Counting = "strict",
    device: str = "auto",
    results: Path | str = "results",
    slots: int | None = None,
    force: bool = False,
) -> pd.DataFrame:
    """Trains ``labels`` on the MAD tasks and returns the scores; what the store has already is not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        profile: ``quick``, ``full`` or a YAML file.
        overrides: changes to the profile, such as ``"training.epochs=20"``.
        tasks: names of MAD tasks; all six by default.
        seeds: each decides initialisation, data and order.
        fidelity: ``corrected``, or ``published`` for the reference implementation's protocol.
        counting: ``strict`` or ``published`` parameter budget.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        slots: jobs at a time; one a core on the CPU, one on a GPU.
        force: train again what is already there.

    Returns:
        One row a label, task and seed, with its accuracy in percent (:func:`madbench.analysis.scores.scores`).

    Jobs run in processes of their own: call this under ``if __name__ == "__main__":`` in a script.
    """
    from madbench.analysis.scores import collect, scores

    experiment = prepare(
        [labels] if isinstance(labels, str) else labels,
        profile=profile,
        overrides=overrides,
        tasks=tasks,
        seeds=seeds,
        fidelity=fidelity,
        counting=counting,
        device=device,
        results=results,
    )
    summary = experiment.execute(slots=slots, policy=Policy(redo=force))
    if summary.failed:
        raise TrainingError(f"{summary.failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs")
    return scores(collect(experiment.jobs, Store.open(experiment.results, create=False)))
