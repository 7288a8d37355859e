"""Stored runs, as rows for ``madbench ls runs``."""

from __future__ import annotations

import dataclasses
import functools
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

from madbench.cli.options import RESULTS
from madbench.cli.tables import Lines, plain_lines, tracked

if TYPE_CHECKING:
    from madbench.jobs import Job
    from madbench.store.runs import Run, Snapshot, Store


def opened(results: Path) -> Snapshot:
    """The store for reading, with a bar while many runs are read that its index does not know yet."""
    from madbench.store.runs import Snapshot

    store = Snapshot.open(results, create=False)
    store.track = functools.partial(tracked, description="reading runs")
    return store


def stored_runs(results: Path | None) -> tuple[Store | None, list[Run]]:
    """The readable runs, by label and task. The default folder may not be there yet; one that was named has to be."""
    if results is None and not (RESULTS / "runs").exists():
        return None, []
    store = opened(results or RESULTS)
    runs = sorted(store.runs(with_curves=False), key=lambda run: (run.job.label, run.job.task, run.job.seed))
    return store, runs


def run_row(run: Run) -> dict[str, Any]:
    """A run as JSON has it: what is not a finite number is null."""
    job, record = run.job, run.record
    metrics = {name: value if math.isfinite(value) else None for name, value in record.metrics.items()}
    return {
        **job.to_dict(),
        "setting_change": setting_change(job),
        "status": record.status,
        "metrics": metrics,
        "details": record.details,
        "error": record.error,
        "folder": str(run.folder),
    }


_SETTING_CHANGES: dict[str, str] = {}


def setting_change(job: Job) -> str:
    """The named setting nearest to the job's, what it changes, and what else the job changes of a shipped profile.

    Of a language model the nearest preset and its changes.
    """
    key = repr((job.task, job.family, job.setting, job.model, job.mixer, job.training))
    if key not in _SETTING_CHANGES:
        _SETTING_CHANGES[key] = _setting_change(job)
    return _SETTING_CHANGES[key]


def _setting_change(job: Job) -> str:
    from madbench.analysis.protocols import profile_changes, shipped_profiles
    from madbench.suites import LANGUAGE, suite_of

    profiles = shipped_profiles(suite_of(job))
    changes = {name: profile_changes(job, profile) for name, profile in profiles.items()}
    nearest = min(changes, key=lambda name: len(changes[name]))
    if suite_of(job) is LANGUAGE:
        return " ".join([nearest, *changes[nearest]])
    settings = {
        name: [f"{key}={value}" for key, value in job.setting.items() if setting.get(key) != value]
        for name, setting in _named_settings(job.task).items()
    }
    setting = min(settings, key=lambda name: len(settings[name]))
    others = [
        change for change in changes[nearest] if not change.startswith(("tasks.", "learning_rates", "weight_decays"))
    ]
    return " ".join([setting, *settings[setting], *others]).strip()


@functools.cache
def _named_settings(task: str) -> dict[str, dict[str, Any]]:
    """The settings of a task that have a name: ``baseline``, and those of the profiles with one setting a task."""
    from madbench.analysis.protocols import shipped_profiles
    from madbench.suites import MAD
    from madbench.tasks import load_task, task_names

    if task not in task_names():
        return {"": {}}
    named = {"baseline": dataclasses.asdict(load_task(task).baseline)}
    for name, profile in shipped_profiles(MAD).items():
        if profile.difficulty == "baseline":
            named.setdefault(name, profile.settings(task)[0])
    return named


def runs_table(rows: list[dict[str, Any]], console: Console) -> RenderableType:
    """A line a run where the terminal is wide enough for that, else two and its folder."""
    shown = [_run_columns(row) for row in rows]
    lines = plain_lines(shown, right=("lr", "wd", "seed", "result", "steps/s"))
    if lines.width <= console.width:
        return lines
    styled = []
    for cells in shown:
        styled.append((f"{cells.pop('label')}  {cells.pop('task')}  {cells.pop('setting')}", "bold"))
        folder = cells.pop("folder")
        styled.append(("  " + "  ".join(f"{name} {value}" for name, value in cells.items() if value is not None), ""))
        styled.append((f"  {folder}", "dim"))
    return Lines(styled)


def _run_columns(row: dict[str, Any]) -> dict[str, Any]:
    metrics, details = row["metrics"], row["details"]
    accuracy, loss = metrics.get("accuracy"), metrics.get("loss_l5")
    speed = details.get("steps_per_second") or (
        details["steps"] / details["seconds"] if details.get("seconds") else None
    )
    return {
        "label": row["label"],
        "task": row["task"],
        "setting": row["setting_change"],
        "lr": f"{row['training']['learning_rate']:g}",
        "wd": f"{row['training']['weight_decay']:g}",
        "seed": row["seed"],
        "status": row["status"],
        "result": f"loss {loss:.3f}" if loss is not None else None if accuracy is None else f"acc {accuracy:.3f}",
        "steps/s": None if speed is None else f"{speed:.1f}",
        "folder": row["folder"],
    }
