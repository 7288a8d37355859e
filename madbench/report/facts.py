"""What a report is made of, and what its beginning says of that: the protocols, the counts, devices and versions."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from madbench.analysis.figures.data import FigureData
from madbench.analysis.language_runs import describe, only_protocol
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.config import seed_list
from madbench.experiment import Experiment
from madbench.jobs import Record
from madbench.language_jobs import TASK as LANGUAGE_MODEL
from madbench.report.runs import ReportedRun, occurrences
from madbench.store.runs import Run, Store
from madbench.tasks import TASK_NAMES

TITLES = {
    MAD_AVERAGE: "MAD average",
    LANGUAGE_MODEL: "language model",
    LOSS: "L5 loss of the language model",
} | {task: task.replace("_", " ") for task in TASK_NAMES}


@dataclass(frozen=True)
class Stored:
    """What a report is made of."""

    material: FigureData
    """One protocol of either half, as far as it is in the store."""
    labels: Sequence[str]
    """Those that were named, or else all that are stored, in the order of the tables."""
    records: Mapping[str, Record]
    """What every readable run of the store gave, without its curve, by id."""
    problems: Sequence[str] = ()
    """Why folders of the store could not be read."""

    @property
    def experiment(self) -> Experiment | None:
        """The MAD half."""
        return self.material.experiment

    @property
    def language(self) -> Sequence[Run]:
        """The language-model half, with curves."""
        return self.material.language_runs

    @property
    def store(self) -> Store:
        return self.material.store

    @property
    def folder(self) -> Path:
        """That of the runs."""
        return self.store.root / "runs"


def lead(stored: Stored) -> str:
    """The protocols in a line."""
    parts = []
    if made := stored.experiment:
        changes = f" with {', '.join(made.overrides)}" if made.overrides else ""
        parts.append(f"MAD, profile {made.profile_name}{changes}, fidelity {made.fidelity}, budget {made.counting}")
    if stored.language:
        parts.append(f"language model, preset {only_protocol(stored.language).preset}")
    return "; ".join(parts)


def tiles(columns: Mapping[str, Mapping[str, Any]], count: int) -> list[tuple[str, str]]:
    """Counts of ``count`` runs with these columns, and what they count."""
    statuses, of_task, labels, seeds = (_counts(columns[name], count) for name in ("status", "task", "label", "seed"))
    models = of_task.pop(LANGUAGE_MODEL, 0)
    things = [(labels, "label"), (seeds, "seed"), (of_task, "MAD task")]
    counts = [(f"{len(found):,}", f"{name}{'s' * (len(found) != 1)}") for found, name in things if found]
    if models:
        counts.append((f"{models:,}", f"language model{'s' * (models != 1)}"))
    return [*counts, (f"{statuses['finished'] + statuses['diverged']:,} / {count:,}", "jobs done")]


def _counts(column: Mapping[str, Any], count: int) -> Counter[str]:
    """How often each value is in a column of ``count`` runs."""
    found: Counter[str] = Counter()
    for value, times in occurrences(column, count):
        found[value] += times
    return found


def facts(
    stored: Stored, runs: Sequence[ReportedRun], columns: Mapping[str, Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """Name and value of what all runs share, and of what they ran on; ``columns`` are those of ``runs``."""
    found = []
    if made := stored.experiment:
        model = made.profile.model
        trainings = {id(job.training): job.training for job in made.jobs}.values()
        comparable = "" if made.profile.comparable_with_paper else ", not comparable with the paper"
        changes = f" with {', '.join(made.overrides)}" if made.overrides else ""
        found += [
            ("Profile", f"{made.profile_name}{changes}{comparable}"),
            ("Fidelity", made.fidelity),
            ("Budget counting", made.counting),
            ("Model", f"d_model {model.d_model}, {model.n_layer} blocks, {model.n_head} heads, {made.precision}"),
            ("MAD tasks", ", ".join(TITLES[task] for task in made.tasks)),
            ("Learning rates", _values(training.learning_rate for training in trainings)),
            ("Weight decays", _values(training.weight_decay for training in trainings)),
        ]
    if stored.language:
        found.append(("Language model", describe(only_protocol(stored.language), stored.language[0])))
    found.append(("Seeds", seed_list({run.job.seed for run in runs})))

    def counted(name: str, text: Callable[[Any], str] = str) -> str:
        return _counted(occurrences(columns.get(f"details.{name}", {"all": None}), len(runs)), text)

    found.append(("Device", counted("device")))
    found.append(("Operator path", counted("path")))
    found.append(("Versions", counted("versions", lambda names: " ".join(map(" ".join, names.items())))))
    found.append(("Code", counted("git", _commit)))
    if dates := _dates(stored, runs):
        found.append(("Run files of", dates))
    found.append(("Store", str(stored.store.root)))
    return found


def _values(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(set(values)))


def _counted(values: Iterable[tuple[Any, int]], text: Callable[[Any], str]) -> str:
    """The distinct values, with how many runs each has where they are several."""
    counts: Counter[str] = Counter()
    for value, count in values:
        if value is not None:
            counts[text(value)] += count
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{value} ({count:,} runs)" for value, count in counts.most_common()) or "not recorded"


def _commit(found: Mapping[str, Any]) -> str:
    return f"{str(found.get('commit'))[:10]}{' with changes' if found.get('dirty') else ''}"


def _dates(stored: Stored, runs: Sequence[ReportedRun]) -> str:
    """First and last day on which a file of the runs was written."""
    times, folder = [], str(stored.folder)
    for run in runs:
        if run.record is not None:
            with suppress(OSError):
                times.append(os.stat(f"{folder}/{run.id}/record.json").st_mtime)
    if not times:
        return ""
    first, last = (f"{datetime.fromtimestamp(time):%Y-%m-%d}" for time in (min(times), max(times)))
    return first if first == last else f"{first} to {last}"
