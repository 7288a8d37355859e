"""From the stored runs of one protocol of either half to the page that shows them."""

from __future__ import annotations

import dataclasses
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

from madbench.analysis.attribution_table import AttributionTable, attribution_table, estimate_text
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import findings_table
from madbench.analysis.language_runs import only_protocol
from madbench.analysis.language_table import language_table
from madbench.analysis.loss_curves import run_losses
from madbench.analysis.scores import chosen_runs
from madbench.analysis.tables import ablation_table
from madbench.collector import no_collector
from madbench.devices import available_cores
from madbench.experiment import caption
from madbench.jobs import JobBase
from madbench.language_jobs import LanguageJob
from madbench.report.build import Page, embedded_json
from madbench.report.commands import job_words, language_words, protocol_words
from madbench.report.facts import TITLES, Stored, facts, lead, tiles
from madbench.report.figures import PageFigures
from madbench.report.findings import page_claims
from madbench.report.missing import Missing, missing_of_language, missing_of_mad
from madbench.report.processes import in_processes
from madbench.report.runs import ReportedRun, allocations, explanations, run_columns, thinned_curves
from madbench.report.tables import (
    PageTable,
    attribution_page_table,
    budget_page_table,
    language_page_table,
    mad_page_table,
)
from madbench.tasks.protocol import load_task


def page_of(
    stored: Stored, command: str, written: datetime, waiting: Callable[[], AbstractContextManager] = nullcontext
) -> Page:
    """The report of what is ``stored``; ``waiting`` shows that it is being made, once all processes have begun."""
    material, experiment, language = stored.material, stored.experiment, stored.language
    cells = material.cells if experiment else None
    chosen = set(chosen_runs(material.collected).id) if experiment else set()
    runs = _reported(stored, chosen)
    drawing = PageFigures(material, stored.records)
    of_runs = {"runs": lambda: _columns(runs), "curves": lambda: _curves(runs, stored.folder)}
    with in_processes({**of_runs, **drawing.tasks}, available_cores()) as result, waiting():
        tables: list[PageTable] = []
        losses = None
        if experiment:
            table = ablation_table(cells, experiment.tasks, caption(experiment, material.collected))
            tables.append(mad_page_table(table))
        if language:
            losses = run_losses(language, ())
            labels = [label for label in stored.labels if label in set(losses.label)]
            tables.append(language_page_table(language_table(language, labels)))
        sentences = [material.both_sentences]
        factors = attribution_table(cells, losses, sentences)
        claims = findings_table(findings(cells, losses, None, *_options(stored)), sentences)
        head, budget = facts(stored, runs), budget_page_table(allocations(runs))
        data = {name: embedded_json(value) for name, value in _data(stored, runs, factors).items()}
        figures, not_drawn = drawing.collect(result)
        data |= {name: result(name) for name in of_runs}
    return Page(
        lead=lead(stored),
        tiles=tiles(runs),
        facts=head,
        missing=_missing(stored, not_drawn),
        bad_runs=[run for run in runs if run.record and run.record.status != "finished"],
        tables=tables,
        factors=attribution_page_table(factors) if factors.effects else None,
        budget=budget,
        count=len(runs),
        data=data,
        command=command,
        figures=figures,
        claims=page_claims(claims, TITLES),
        findings_note=claims.caption,
        written=f"{written:%Y-%m-%d %H:%M} UTC",
    )


def _options(stored: Stored) -> tuple[str, str]:
    """What ``madbench run`` and ``madbench lm`` are told of the protocols."""
    made, language = stored.experiment, stored.language
    return (
        shlex.join(protocol_words(made)) if made else "",
        shlex.join(language_words(language[0], str(stored.store.root))) if language else "",
    )


def _reported(stored: Stored, chosen: set[str]) -> list[ReportedRun]:
    """Every job of the report: those of the MAD half whether they are stored or not, then the language models."""
    runs = []
    words: dict[tuple[int, Any], list[str]] = {}
    if stored.experiment is not None:
        for job in stored.experiment.jobs:
            key = (id(job.setting), job.training)
            if key not in words:
                words[key] = job_words(stored.experiment, job)
            record = stored.records.get(job.id)
            is_chosen = job.id in chosen
            runs.append(ReportedRun(job.id, job, record, is_chosen, is_chosen, words[key]))
    if stored.language:
        protocol = only_protocol(stored.language)
        again = language_words(stored.language[0], str(stored.store.root))
        done = {run.job.id for run in stored.language}
        others = stored.store.runs(with_curves=False, kind=LanguageJob)
        failed = [run for run in others if run.record.status == "failed" and protocol.of(run.job) == protocol]
        for run in [*stored.language, *failed]:
            is_chosen = run.job.id in done and run.record.status == "finished"
            runs.append(ReportedRun(run.job.id, run.job, run.record, is_chosen, True, again))
    return runs


def _columns(runs: Sequence[ReportedRun]) -> str:
    with no_collector():
        return embedded_json(run_columns(runs))


def _curves(runs: Sequence[ReportedRun], folder: Path) -> str:
    with no_collector():
        return embedded_json(thinned_curves(runs, folder))


def _data(stored: Stored, runs: Sequence[ReportedRun], factors: AttributionTable) -> dict[str, Any]:
    """What the script needs besides the columns and the curves of the runs."""
    texts, of_run = _settings(runs)
    return {
        "count": len(runs),
        "titles": TITLES,
        "settings": texts,
        "settingOf": of_run,
        "explanations": explanations(dict.fromkeys(run.job.label for run in runs)),
        "effects": _effects(factors),
        "folder": str(stored.folder),
    }


def _settings(runs: Sequence[ReportedRun]) -> tuple[list[str], list[int]]:
    """The settings in words, and which of them is each run's: what a setting changes in its task's baseline."""
    indices: dict[tuple[str, str], int] = {}
    settings: list[tuple[str, Mapping[str, Any]]] = []
    of_run = []
    keys: dict[int, tuple[str, str]] = {}
    for run in runs:
        setting = getattr(run.job, "setting", {})
        key = keys.setdefault(id(setting), (run.job.task, repr(setting)))
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


def _effects(factors: AttributionTable) -> dict[str, dict[str, Any]]:
    """What the page opens for an effect or an interaction, by its name and quantity."""
    found = {}
    for effect in factors.effects:
        rows = [[list(pair), estimate_text(one, effect.task)] for pair, one in effect.pairs.items()]
        text = f"{estimate_text(effect.estimate, effect.task)}: the mean over these pairs of labels, which differ in this factor alone."
        headings = ["With", "Without", "Difference over the seeds"]
        found[f"{effect.contrast.name}/{effect.task}"] = {"text": text, "headings": headings, "rows": rows}
    for one in factors.interactions:
        first, second = one.first.short_name, one.second.short_name
        text = f"{estimate_text(one.estimate, one.task)}: by how much more {first} is worth where {second} is given, mean over these sets of labels."
        headings = ["Both", f"{second} alone", f"{first} alone", "Neither", ""]
        found[f"{one.name}/{one.task}"] = {"text": text, "headings": headings, "rows": [[list(labels), ""] for labels in one.squares]}
    return found


def _missing(stored: Stored, not_drawn: Mapping[str, str]) -> list[Missing]:
    found: list[Missing] = []
    if stored.experiment is not None:
        found += missing_of_mad(stored.experiment, stored.material.collected, stored.labels, stored.records)
    else:
        found.append(Missing("No runs on the MAD tasks."))
    if stored.language:
        words = language_words(stored.language[0], str(stored.store.root))
        found += missing_of_language(stored.language, stored.labels, words)
    else:
        found.append(Missing("No language models of one protocol."))
    reported = sum(1 for job in _jobs(stored) if job.id in stored.records)
    if others := len(stored.records) - reported:
        found.append(Missing(f"{others:,} stored runs are of other labels or protocols, which are never mixed.", "madbench ls runs"))
    found += [Missing(f"No figure “{figure}”: {reason}.") for figure, reason in not_drawn.items()]
    found += [Missing(f"Could not be read: {problem}") for problem in stored.problems]
    return found


def _jobs(stored: Stored) -> Iterable[JobBase]:
    yield from stored.experiment.jobs if stored.experiment else ()
    yield from (run.job for run in stored.language)
