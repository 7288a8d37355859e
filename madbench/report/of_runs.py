"""What the page says of its runs, each and all together.

Nothing here takes pandas: it is worked out by another process while this one imports that.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from madbench.analysis.language_runs import only_protocol
from madbench.collector import no_collector
from madbench.jobs import Job
from madbench.language_jobs import LanguageJob
from madbench.report.commands import job_words, language_words
from madbench.report.embedding import embedded_json
from madbench.report.facts import TITLES, Stored, facts, tiles
from madbench.report.runs import Allocation, ReportedRun, allocations, column, explanations, run_columns, thinned_curves
from madbench.store.runs import Run
from madbench.tasks.protocol import load_task


class OfRuns(NamedTuple):
    """A part of the page."""

    count: int
    """Jobs."""
    tiles: list[tuple[str, str]]
    facts: list[tuple[str, str]]
    bad_runs: list[ReportedRun]
    """The failed and the diverged ones."""
    allocations: list[Allocation]
    data: dict[str, str]
    """JSON texts by name."""


def of_runs(stored: Stored) -> OfRuns:
    """The part that does not depend on which runs were chosen."""
    with no_collector():
        runs = reported(stored)
        columns = run_columns(runs)
        settings, setting_of = _settings(runs)
        data = {
            "count": len(runs),
            "runs": columns,
            "titles": TITLES,
            "settings": settings,
            "settingOf": setting_of,
            "explanations": explanations(dict.fromkeys(run.job.label for run in runs)),
            "folder": str(stored.folder),
        }
        texts = {name: embedded_json(value) for name, value in data.items()}
        bad = [run for run in runs if run.record and run.record.status != "finished"]
        return OfRuns(len(runs), tiles(columns, len(runs)), facts(stored, runs, columns), bad, allocations(runs), texts)


def of_chosen(stored: Stored, chosen: Container[str]) -> dict[str, str]:
    """JSON texts by name: which runs count in a table, and the curves of these and of all language models.

    ``chosen`` has the ids of the MAD runs that count.
    """
    with no_collector():
        jobs, language = _mad_jobs(stored), _language_runs(stored)
        counts = [job.id in chosen for job in jobs]
        shown = {i: job for i, (job, counts_here) in enumerate(zip(jobs, counts)) if counts_here}
        shown |= {i: run.job for i, run in enumerate(language, len(jobs))}
        counts += [run.record.status == "finished" for run in language]
        data = {"chosen": column(counts), "curves": thinned_curves(shown, stored.folder)}
        return {name: embedded_json(value) for name, value in data.items()}


def reported(stored: Stored) -> list[ReportedRun]:
    """Every job of the report: those of the MAD half whether they are stored or not, then the language models."""
    runs = []
    words: dict[tuple[int, int], list[str]] = {}
    for job in _mad_jobs(stored):
        key = (id(job.setting), id(job.training))
        if key not in words:
            words[key] = job_words(stored.experiment, job)
        runs.append(ReportedRun(job.id, job, stored.records.get(job.id), words[key]))
    if stored.language:
        again = language_words(stored.language[0], str(stored.store.root))
        runs += [ReportedRun(run.job.id, run.job, run.record, again) for run in _language_runs(stored)]
    return runs


def _mad_jobs(stored: Stored) -> Sequence[Job]:
    return stored.experiment.jobs if stored.experiment else ()


def _language_runs(stored: Stored) -> list[Run]:
    """Those of the protocol, the failed ones last."""
    if not stored.language:
        return []
    protocol = only_protocol(stored.language)
    others = stored.store.runs(with_curves=False, kind=LanguageJob)
    failed = [run for run in others if run.record.status == "failed" and protocol.of(run.job) == protocol]
    return [*stored.language, *failed]


def _settings(runs: Sequence[ReportedRun]) -> tuple[list[str], list[int]]:
    """The settings in words, and which of them is each run's: what a setting changes in its task's baseline."""
    indices: dict[tuple[str, str], int] = {}
    settings: list[tuple[str, Mapping[str, Any]]] = []
    of_run = []
    keys: dict[int, tuple[str, str]] = {}
    for run in runs:
        setting = getattr(run.job, "setting", {})
        if id(setting) not in keys:
            keys[id(setting)] = (run.job.task, repr(setting))
        key = keys[id(setting)]
        if key not in indices:
            indices[key] = len(settings)
            settings.append((run.job.task, setting))
        of_run.append(indices[key])
    counts = Counter(task for task, _ in settings)
    return [_changes(task, setting) if counts[task] > 1 else "the only one" for task, setting in settings], of_run


def _changes(task: str, setting: Mapping[str, Any]) -> str:
    baseline = dataclasses.asdict(load_task(task).baseline)
    changes = [f"{name} {value}" for name, value in setting.items() if value != baseline[name]]
    return ", ".join(changes) or "baseline"
