"""The main job: labels in, trained and tabulated results out. The command line and ``madbench.run`` share it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.errors import StoreError
from madbench.jobs import Counting, Fidelity, Job
from madbench.labels import expand
from madbench.runs import Store
from madbench.sweeps.plan import plan
from madbench.sweeps.profile import Profile, load_profile
from madbench.tasks import TASK_NAMES

if TYPE_CHECKING:
    import pandas as pd

    from madbench.sweeps.local import Summary


@dataclass(frozen=True)
class Experiment:
    """A checked plan: nothing has been trained or written yet."""

    labels: list[str]
    profile: Profile
    profile_name: str
    overrides: tuple[str, ...]
    jobs: list[Job]
    seeds: list[int]
    tasks: list[str]
    fidelity: Fidelity
    counting: Counting
    device: str
    results: Path

    def execute(
        self, on_event: Callable[[dict[str, Any]], None] = lambda event: None, slots: int | None = None,
        force: bool = False,
    ) -> Summary:
        """Trains what the store lacks; with ``force`` everything anew."""
        from madbench.devices import default_slots
        from madbench.sweeps.local import run_jobs
        from madbench.training.loop import train_job

        store = Store.open(self.results)
        if force:
            for job in self.jobs:
                store.forget(job)
        slots = min(slots or default_slots(self.device), max(1, len(self.jobs)))
        return run_jobs(self.jobs, store, functools.partial(train_job, device=self.device), slots, on_event)


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
) -> Experiment:
    """Parses, budgets and plans; raises a ``MadbenchError`` for anything that could not be trained."""
    from madbench.devices import resolve_device, resolve_precision

    canonical = expand(labels)
    loaded = load_profile(profile, overrides)
    tasks = list(tasks or TASK_NAMES)
    device = resolve_device(device)
    jobs = plan(
        canonical,
        loaded,
        tasks=tasks,
        seeds=seeds,
        fidelity=fidelity,
        counting=counting,
        precision=resolve_precision(loaded.precision, device),
    )
    return Experiment(
        canonical, loaded, profile, tuple(overrides), jobs, list(seeds), tasks, fidelity, counting, device, Path(results)
    )


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
    from madbench.analysis.scores import scores

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
    summary = experiment.execute(slots=slots, force=force)
    if summary.failed:
        raise StoreError(f"{summary.failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs")
    store = Store.open(experiment.results, create=False)
    return scores([store.read(job.id) for job in experiment.jobs])
