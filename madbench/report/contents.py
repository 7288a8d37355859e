"""From the stored runs of one protocol a suite to the page that shows them."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from madbench.analysis.attribution_table import AttributionTable, attribution_table, estimate_text
from madbench.analysis.findings import findings
from madbench.analysis.findings_table import findings_table
from madbench.analysis.protocols import language_protocol_id
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, title
from madbench.analysis.results import Results
from madbench.analysis.scores import chosen_runs
from madbench.analysis.tables import result_table
from madbench.experiment import PlannedRow
from madbench.jobs import Record
from madbench.labels import explain, parse
from madbench.report.commands import job_words, protocol_words
from madbench.report.curves import thin_curve
from madbench.report.figures import page_figures
from madbench.report.findings import page_claims
from madbench.report.missing import Missing, missing_runs
from madbench.report.page import Page
from madbench.report.properties import counts, lead, properties, suite_title
from madbench.report.runs import Column, ReportedRun, plain, run_columns, setting_changes
from madbench.report.tables import budget_page_table, factor_page_table, result_page_table
from madbench.store.runs import Store
from madbench.suites import LANGUAGE, MAD, SUITES
from madbench.suites.language import TASK
from madbench.tasks import MAD_TASKS


def report_page(results: Results, labels: Sequence[str] = ()) -> Page:
    """The report of ``results``; ``labels`` were asked for, without any all that are stored."""
    store, root = results.store, results.store.root
    rows = [row for suite in SUITES.values() for row in _with_failed(results.rows(suite), store)]
    records = store.records({job.id for row in rows for job in row.jobs})
    runs = _reported_runs(results, rows, records)
    columns = run_columns(runs)
    effects = attribution_table(results.scores)
    claims = findings_table(findings(results.scores, **_options(rows, root)))
    figures, table = page_figures(results), result_table(results)
    return Page(
        lead=lead(rows),
        counts=counts(runs),
        properties=properties(rows, runs, store),
        missing=_missing(results, rows, records, labels, {one.caption: one.reason for one in figures if one.reason}),
        bad_runs=[run for run in runs if run.status in ("failed", "diverged")],
        tables=[result_page_table(part) for part in (table.parts or [table] if table else [])],
        factors=factor_page_table(effects) if effects.effects else None,
        budget=budget_page_table(run.job for run in runs),
        count=len(runs),
        data=_data(runs, columns, effects, store),
        figures=[figure for figure in figures if figure.svg],
        claims=page_claims(claims),
        findings_note=claims.caption,
    )


def _with_failed(rows: Sequence[PlannedRow], store: Store) -> list[PlannedRow]:
    """``rows`` of one suite; language models have those of their protocol too that failed."""
    if not rows or rows[0].protocol.suite is not LANGUAGE:
        return list(rows)
    protocol = language_protocol_id(rows[0].jobs[0])
    stored = (run for run in store.runs(with_curves=False, suite=LANGUAGE.name) if run.record.status == "failed")
    failed = [run.job for run in stored if language_protocol_id(run.job) == protocol]
    return [replace(row, jobs=[*row.jobs, *(job for job in failed if job.label == row.name)]) for row in rows]


def _reported_runs(results: Results, rows: Sequence[PlannedRow], records: Mapping[str, Record]) -> list[ReportedRun]:
    """Every job of the rows, stored or not."""
    counting = set(chosen_runs(results.collected).id) if results.has(MAD) else set()
    counting |= {run.job.id for run in results.language_runs if run.record.status == "finished"}
    changes = setting_changes([job for row in rows for job in row.jobs])
    words: dict[tuple, list[str]] = {}
    runs = []
    for row in rows:
        for job in row.jobs:
            change = changes[job.id]
            key = (job.task, change, job.training)
            if key not in words:
                words[key] = job_words(row, job, results.store.root)
            runs.append(ReportedRun(job, records.get(job.id), job.id in counting, words[key], change))
    return runs


def _options(rows: Iterable[PlannedRow], root: Path) -> dict[str, str]:
    """What commands need to know of the protocols, by argument of :func:`madbench.analysis.findings.findings`."""
    first = {row.protocol.suite.name: row for row in reversed(list(rows))}
    return {f"{suite}_options": shlex.join(protocol_words(row, root)) for suite, row in first.items()}


def _data(
    runs: Sequence[ReportedRun], columns: Mapping[str, Column], effects: AttributionTable, store: Store
) -> dict[str, Any]:
    """What the script of the page shows of runs, labels and effects."""
    folder = store.root / "runs"
    curves = {
        i: thin_curve(folder / run.job.id / "curve.csv")
        for i, run in enumerate(runs)
        if run.counts or run.status == "diverged"
    }
    place = {run.job.id: i for i, run in enumerate(runs) if run.record is not None}
    measured = {place[run_id]: plain(found) for run_id, found in store.all_measurements(place).items()}
    tasks, labels = (dict.fromkeys(getattr(run.job, name) for run in runs) for name in ("task", "label"))
    return {
        "count": len(runs),
        "runs": columns,
        "curves": {i: curve for i, curve in curves.items() if curve},
        "measurements": measured,
        "titles": {name: title(name) for name in (*tasks, MAD_AVERAGE, LOSS)},
        "tasks": {MAD_AVERAGE: list(MAD_TASKS), LOSS: [TASK]},
        "explanations": {label: _letters(label) for label in labels},
        "effects": _effects(effects),
        "folder": str(folder),
    }


def _letters(label: str) -> list[list[str]]:
    """What each letter of a label means: letter, name, what it does, equation, source."""
    return [[row.letter, row.name, row.what, row.equation, row.source] for row in explain(parse(label))]


def _effects(table: AttributionTable) -> dict[str, dict[str, Any]]:
    """What the page opens for an effect or an interaction, by its name and quantity."""
    found = {}
    for one in table.effects:
        text, headings = "the mean over these pairs of labels, which differ in this factor alone", ["With", "Without"]
        headings.append("Difference over the seeds")
        if one.is_interaction:
            first, second = (contrast.short_name for contrast in one.contrasts)
            text = f"by how much more {first} is worth where {second} is given, mean over these sets of labels"
            headings = ["Both", f"{second} alone", f"{first} alone", "Neither"]
        found[f"{one.name}/{one.quantity}"] = {
            "text": f"{estimate_text(one.estimate, one.quantity)}: {text}.",
            "headings": headings,
            "rows": [[list(case), estimate_text(own, one.quantity) if own else ""] for case, own in one.cases.items()],
        }
    return found


def _missing(
    results: Results,
    rows: Sequence[PlannedRow],
    records: Mapping[str, Record],
    labels: Sequence[str],
    not_drawn: Mapping[str, str],
) -> list[Missing]:
    """What each suite lacks, the figures without data, and the stored runs that are left out."""
    found: list[Missing] = []
    for suite in SUITES.values():
        own = [row for row in rows if row.protocol.suite is suite]
        if own:
            found += missing_runs(own, labels or results.labels, records, results.store.root)
        else:
            found.append(Missing(f"No runs: {suite_title(suite)}."))
    if others := len(results.store.jobs()) - len(records):
        text = f"{others:,} stored runs are of other labels or protocols, which are never mixed."
        found.append(Missing(text, "madbench ls runs"))
    found += [Missing(f"No figure “{caption}”: {reason}.") for caption, reason in not_drawn.items()]
    return found + [Missing(f"Could not be read: {problem}") for problem in results.store.problems]
