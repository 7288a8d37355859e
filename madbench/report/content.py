"""From the stored runs of one protocol of either half to the page that shows them."""

from __future__ import annotations

import dataclasses
import os
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from madbench.analysis.attribution_table import LOSS, AttributionTable, attribution_table, estimate_text
from madbench.analysis.figures.kinds import Material
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import findings_table
from madbench.analysis.language_runs import describe, only_protocol
from madbench.analysis.language_table import language_table
from madbench.analysis.loss_curves import run_losses
from madbench.analysis.scores import MAD_AVERAGE, chosen_runs
from madbench.analysis.tables import HEADINGS, ablation_table
from madbench.experiment import Experiment, caption
from madbench.jobs import JobBase
from madbench.language_jobs import TASK as LANGUAGE_MODEL
from madbench.language_jobs import LanguageJob
from madbench.report.build import Page
from madbench.report.commands import job_words, language_words, protocol_words, seed_list
from madbench.report.figures import page_figures
from madbench.report.findings import page_claims
from madbench.report.missing import Missing, missing_of_language, missing_of_mad
from madbench.report.runs import ReportedRun, allocations, explanations, run_columns, thinned_curves
from madbench.report.tables import (
    PageTable,
    attribution_page_table,
    budget_page_table,
    language_page_table,
    mad_page_table,
)
from madbench.runs import Run, Store
from madbench.tasks.protocol import load_task

TITLES = {
    MAD_AVERAGE: "MAD average",
    LANGUAGE_MODEL: "language model",
    LOSS: "L5 loss of the language model",
} | {task: task.replace("_", " ") for task in HEADINGS if task != MAD_AVERAGE}


@dataclass(frozen=True)
class Stored:
    """What a report is made of."""

    material: Material
    """One protocol of either half, as far as it is in the store."""
    labels: Sequence[str]
    """Those that were named, or else all that are stored, in the order of the tables."""
    records: Mapping[str, Run]
    """Every readable run of the store, without curves, by id."""
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


def page_of(stored: Stored, command: str, written: datetime) -> Page:
    """The report of what is ``stored``."""
    material, experiment, language = stored.material, stored.experiment, stored.language
    tables: list[PageTable] = []
    cells = losses = None
    chosen: set[str] = set()
    if experiment is not None:
        cells, collected = material.cells, material.collected
        chosen = set(chosen_runs(collected).id)
        tables.append(mad_page_table(ablation_table(cells, experiment.tasks, caption(experiment, collected))))
    if language:
        losses = run_losses(language, ())
        labels = [label for label in stored.labels if label in set(losses.label)]
        tables.append(language_page_table(language_table(language, labels)))
    sentences = [material.both_sentences]
    factors = attribution_table(cells, losses, sentences)
    claims = findings_table(findings(cells, losses, None, *_options(stored)), sentences)
    runs = _reported(stored, chosen)
    figures, not_drawn = page_figures(material, stored.records)
    return Page(
        lead=_lead(stored),
        tiles=_tiles(runs),
        facts=_facts(stored, runs),
        missing=_missing(stored, not_drawn),
        bad_runs=[run for run in runs if run.record and run.record.status != "finished"],
        tables=tables,
        factors=attribution_page_table(factors) if factors.effects else None,
        budget=budget_page_table(allocations(runs)),
        data=_data(stored, runs, factors),
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
            run = stored.records.get(job.id)
            curve = _curve(run) if run and job.id in chosen else b""
            runs.append(ReportedRun(job.id, job, run and run.record, job.id in chosen, curve, words[key]))
    if stored.language:
        protocol = only_protocol(stored.language)
        again = language_words(stored.language[0], str(stored.store.root))
        done = {run.job.id for run in stored.language}
        failed = [run for run in stored.records.values() if _is_failed(run, protocol)]
        for run in [*stored.language, *failed]:
            is_chosen = run.job.id in done and run.record.status == "finished"
            runs.append(ReportedRun(run.job.id, run.job, run.record, is_chosen, _curve(run), again))
    return runs


def _curve(run: Run) -> bytes:
    try:
        with open(f"{run.folder}/curve.csv", "rb") as file:
            return file.read()
    except OSError:  # a run that is being replaced has none for a moment
        return b""


def _is_failed(run: Run, protocol: Any) -> bool:
    return isinstance(run.job, LanguageJob) and run.record.status == "failed" and protocol.of(run.job) == protocol


def _data(stored: Stored, runs: Sequence[ReportedRun], factors: AttributionTable) -> dict[str, Any]:
    texts, of_run = _settings(runs)
    return {
        "count": len(runs),
        "runs": run_columns(runs),
        "curves": thinned_curves(runs),
        "titles": TITLES,
        "settings": texts,
        "settingOf": of_run,
        "explanations": explanations(dict.fromkeys(run.job.label for run in runs)),
        "effects": _effects(factors),
        "folder": str(stored.store.root / "runs"),
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


def _lead(stored: Stored) -> str:
    parts = []
    if made := stored.experiment:
        changes = f" with {', '.join(made.overrides)}" if made.overrides else ""
        parts.append(f"MAD, profile {made.profile_name}{changes}, fidelity {made.fidelity}, budget {made.counting}")
    if stored.language:
        parts.append(f"language model, preset {only_protocol(stored.language).preset}")
    return "; ".join(parts)


def _tiles(runs: Sequence[ReportedRun]) -> list[tuple[str, str]]:
    labels = len({run.job.label for run in runs})
    seeds = len({run.job.seed for run in runs})
    done = sum(run.record is not None and run.record.status != "failed" for run in runs)
    tasks = len({run.job.task for run in runs} - {LANGUAGE_MODEL})
    tiles = [(f"{labels:,}", f"label{'s' * (labels != 1)}"), (f"{seeds:,}", f"seed{'s' * (seeds != 1)}")]
    if tasks:
        tiles.append((str(tasks), f"MAD task{'s' * (tasks != 1)}"))
    if any(run.job.task == LANGUAGE_MODEL for run in runs):
        tiles.append((f"{sum(run.job.task == LANGUAGE_MODEL for run in runs):,}", "language models"))
    return [*tiles, (f"{done:,} / {len(runs):,}", "jobs done")]


def _facts(stored: Stored, runs: Sequence[ReportedRun]) -> list[tuple[str, str]]:
    facts = []
    if made := stored.experiment:
        model = made.profile.model
        comparable = "" if made.profile.comparable_with_paper else ", not comparable with the paper"
        changes = f" with {', '.join(made.overrides)}" if made.overrides else ""
        facts += [
            ("Profile", f"{made.profile_name}{changes}{comparable}"),
            ("Fidelity", made.fidelity),
            ("Budget counting", made.counting),
            ("Model", f"d_model {model.d_model}, {model.n_layer} blocks, {model.n_head} heads, {made.precision}"),
            ("MAD tasks", ", ".join(TITLES[task] for task in made.tasks)),
            ("Learning rates", _values(run.job.training.learning_rate for run in runs if hasattr(run.job, "setting"))),
            ("Weight decays", _values(run.job.training.weight_decay for run in runs if hasattr(run.job, "setting"))),
        ]
    if stored.language:
        facts.append(("Language model", describe(only_protocol(stored.language), stored.language[0])))
    facts.append(("Seeds", seed_list({run.job.seed for run in runs})))
    done = [run.record for run in runs if run.record]
    facts.append(("Device", _counted(record.details.get("device") for record in done)))
    facts.append(("Operator path", _counted(record.details.get("path") for record in done)))
    versions = (record.details.get("versions") for record in done)
    facts.append(("Versions", _counted(versions, lambda found: " ".join(map(" ".join, found.items())))))
    facts.append(("Code", _counted((record.details.get("git") for record in done), _commit)))
    if dates := _dates(stored, runs):
        facts.append(("Run files of", dates))
    facts.append(("Store", str(stored.store.root)))
    return facts


def _values(values: Iterable[float]) -> str:
    return ", ".join(f"{value:g}" for value in sorted(set(values)))


def _counted(values: Iterable[Any], text: Callable[[Any], str] = str) -> str:
    """The distinct values, with how many runs each has where they are several."""
    values = [value for value in values if value is not None]
    objects = dict(zip(map(id, values), values))
    counts: Counter[str] = Counter()
    for identity, count in Counter(map(id, values)).items():
        counts[text(objects[identity])] += count
    if len(counts) == 1:
        return next(iter(counts))
    return "; ".join(f"{value} ({count:,} runs)" for value, count in counts.most_common()) or "not recorded"


def _commit(found: Mapping[str, Any]) -> str:
    return f"{str(found.get('commit'))[:10]}{' with changes' if found.get('dirty') else ''}"


def _dates(stored: Stored, runs: Sequence[ReportedRun]) -> str:
    """First and last day on which a file of the runs was written."""
    times = []
    for run in runs:
        if run.record is not None:
            with suppress(OSError):
                times.append(os.stat(f"{stored.store.root}/runs/{run.id}/record.json").st_mtime)
    if not times:
        return ""
    first, last = (f"{datetime.fromtimestamp(time):%Y-%m-%d}" for time in (min(times), max(times)))
    return first if first == last else f"{first} to {last}"


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
