"""The page of a report: the stored runs of one protocol per suite as one HTML file."""

from __future__ import annotations

import hashlib
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from jinja2.utils import htmlsafe_json_dumps
from markupsafe import Markup
from pandas.util import hash_pandas_object

from madbench.analysis import figures as figures_package
from madbench.analysis.attribution import AttributionTable, attribution_table
from madbench.analysis.cells import Cell
from madbench.analysis.claims import Claim, claims_on
from madbench.analysis.comparison import comparison_table
from madbench.analysis.cost_table import cost_tables
from madbench.analysis.figures import figure_names, fonts
from madbench.analysis.figures.files import NothingToDrawError, svg
from madbench.analysis.figures.registry import drawing_of, figure_frame
from madbench.analysis.findings import VERDICTS, findings_by_paper
from madbench.analysis.findings_table import findings_table
from madbench.analysis.marked_text import BEST, WITHIN_NOISE
from madbench.analysis.quantities import difference_text, is_average, parts_of, title
from madbench.analysis.result_table import ResultTable
from madbench.analysis.scores import Results
from madbench.analysis.tables import TableOptions, result_table
from madbench.config import seed_list
from madbench.errors import StoreError
from madbench.experiment.commands import job_words, protocol_words
from madbench.files import explain_os_errors, read_file, write_atomically
from madbench.jobs import Record
from madbench.labels import explain, is_shown_as_stored, parse
from madbench.labels.names import display_name, row_display_name
from madbench.report.missing import Missing, missing_runs
from madbench.report.rendering import render
from madbench.report.runs import ReportedRun, json_value, run_columns, setting_changes, thin_curve
from madbench.report.tables import (
    budget_page_table,
    comparison_page_table,
    cost_page_table,
    factor_page_table,
    page_claims,
    result_page_table,
)
from madbench.rows import SuiteRow
from madbench.store.reading import StoredRuns
from madbench.store.results_folder import command_on
from madbench.suites import Column, suites
from madbench.suites.protocol import Protocol, protocol_id
from madbench.suites.scoring import scoring_of
from madbench.tasks import broken_tasks

if TYPE_CHECKING:
    import pandas as pd

MOST_FIGURES = 4
"""The number of versions of each figure that the cache keeps. Older versions are deleted."""
_SECTIONS = ("tables", "comparison", "findings", "figures", "factors", "budget", "provenance", "missing")


@dataclass(frozen=True)
class ReportPage:
    """The content of the page of a report."""

    count: int
    """The number of jobs in the report, with or without a result."""
    missing: list[Missing]
    content: Mapping[str, Any]
    """The values for the template of the page by name, except ``missing`` and ``sections``."""

    def render(self, command: str, written: str) -> bytes:
        """The HTML file, with the ``command`` that wrote it and the date ``written``.

        It needs no other file and no network.
        """
        sections = [(name, name.capitalize()) for name in _SECTIONS if self.content.get(name, True)]
        content = {**self.content, "missing": self.missing, "sections": sections}
        return render("template.html.j2", content, command, written)


def report_page(
    results: Results,
    labels: Sequence[str] = (),
    claims: Mapping[str, Sequence[Claim]] | None = None,
    shown: TableOptions = TableOptions(),
) -> ReportPage:
    """The report of stored results.

    Args:
        results: the results, with one protocol per suite.
        labels: the requested labels. Those without runs are reported as missing. The first one with runs is the
            baseline of the comparison. By default the labels of ``results``, with softmax attention (S) as the baseline
            if it is there.
        claims: the claims to judge, by paper. By default the claims of all papers that compare two of the stored
            labels.
        shown: the options of the table of results.
    """
    store = results.store
    rows = [row for suite in results.suites for row in _with_failed(results.rows_of(suite), store)]
    first = {row.protocol.suite.name: row for row in reversed(rows)}
    protocols = [row.protocol for row in reversed(first.values())]
    records = store.records({job.id for row in rows for job in row.jobs})
    runs = _reported_runs(results, rows, records)
    effects = attribution_table(results.scores).of_origin(results.origin())
    options = {suite: shlex.join(protocol_words(row, store.root)) for suite, row in first.items()}
    claims = claims_on(results.scores.label.unique()) if claims is None else claims
    judged_claims = findings_by_paper(results.scores, claims, options=options, chosen_on=results.chosen_on)
    findings_part = findings_table(judged_claims).of_origin(results.origin())
    table = result_table(results, shown)
    figures, no_figures = _figures(results)
    verdicts = Counter(row.verdict for row in findings_part.rows)
    parts = list(table.parts or [table]) if table else []
    baseline, *others = _baseline_first(results.labels, labels)
    content = {
        "lead": _lead(protocols),
        "summary": _summary(parts, verdicts),
        "counts": _counts(runs),
        "properties": _properties(protocols, runs, store),
        "bad_runs": [run for run in runs if run.status in ("failed", "diverged")],
        "findings": page_claims(findings_part),
        "verdicts": {name: verdicts[name] for name in VERDICTS},
        "findings_note": f"{findings_part.caption} {findings_part.notes}",
        "tables": [
            *(result_page_table(part) for part in parts),
            *(
                cost_page_table(suites()[name], cost_table)
                for name, cost_table in cost_tables(results).items()
                if cost_table.cells
            ),
        ],
        "comparison": comparison_page_table(
            comparison_table(baseline, others, results.scores, matched=results.matched_quantity).of_origin(
                results.origin()
            ),
            baseline,
        ),
        "figures": figures,
        "factors": factor_page_table(effects) if effects.rows else None,
        "budget": budget_page_table((run.job, run.record) for run in runs),
        "data": htmlsafe_json_dumps(_data(runs, effects, store), separators=(",", ":"), allow_nan=False),
    }
    missing = [*_missing(results, rows, labels, records), *no_figures]
    missing += [Missing(f"Could not be read: {problem}") for problem in store.problems]
    return ReportPage(len(runs), missing, content)


def _with_failed(rows: Sequence[SuiteRow], store: StoredRuns) -> list[SuiteRow]:
    """``rows`` with the failed jobs of their protocol added, if it trains on a corpus. Otherwise, they are unchanged.

    All ``rows`` must have one protocol. Rows of runs on a corpus are made from the stored runs with a result, so they
    lack the failed jobs. A failed job is added to the row of its label.
    """
    if not rows or rows[0].protocol.corpus is None:
        return list(rows)
    suite, job_ids = rows[0].protocol.suite, {job.id for row in rows for job in row.jobs}
    protocol = protocol_id(suite, rows[0].jobs[0])
    failed_runs = (run for run in store.runs(with_curves=False, suite=suite.name) if run.record.status == "failed")
    failed = [run.job for run in failed_runs if run.job.id not in job_ids and protocol_id(suite, run.job) == protocol]
    return [replace(row, jobs=[*row.jobs, *(job for job in failed if job.label == row.name)]) for row in rows]


def _reported_runs(results: Results, rows: Sequence[SuiteRow], records: Mapping[str, Record]) -> list[ReportedRun]:
    counting = {
        name for suite in results.suites_with_result for name in scoring_of(suite).counted_jobs(results.outcomes(suite))
    }
    changes = setting_changes([job for row in rows for job in row.jobs])
    words: dict[tuple[Any, ...], list[str]] = {}
    runs = []
    for row in rows:
        for job in row.jobs:
            change = changes[job.id]
            key = (job.task, change, job.training)
            if key not in words:
                words[key] = job_words(row, job, results.store.root)
            runs.append(ReportedRun(job, records.get(job.id), job.id in counting, words[key], change))
    return runs


def _lead(protocols: Iterable[Protocol]) -> str:
    parts = []
    for protocol in protocols:
        fidelity = f"{protocol.fidelity}, " if len(protocol.suite.fidelities) > 1 else ""
        profile = f"{protocol.profile.noun} {protocol.name}"
        parts.append(f"{protocol.suite.title}: {profile}, {fidelity}budget {protocol.budget}")
    return "; ".join(parts)


def _summary(tables: Iterable[ResultTable], verdicts: Mapping[str, int]) -> str:
    """A sentence that names the best labels of each table and counts the decided claims. Empty if there is neither.

    ``verdicts`` has the number of findings with each verdict.
    """
    parts = [_best(table) for table in tables]
    verdict_counts = [f"{verdicts[name]} {name}" for name in ("supported", "contradicted") if verdicts.get(name)]
    if verdict_counts:
        parts.append(f"verdicts on claims: {' and '.join(verdict_counts)}")
    text = "; ".join(parts)
    return f"{text[:1].upper()}{text[1:]}." if text else ""


def _best(table: ResultTable) -> str:
    """A clause that names the best label of ``table``, and labels that are not significantly worse.

    They are the best in the first average of the table or, without an average, in its first column. If no label is the
    best, the clause says why.
    """
    column = next((average for average in table.columns if is_average(average.name)), table.columns[0])
    cells = {name: row[column.name] for name, row in table.cells.items() if column.name in row}
    cells = {name: cell for name, cell in cells.items() if cell.n}
    best = [name for name, cell in cells.items() if cell.mark == BEST]
    if not best:
        return _reason_without_best(table, column, cells)
    others = [name for name, cell in cells.items() if cell.mark == WITHIN_NOISE]
    place = table.columns.index(column)
    numbers = " and ".join(f"{row_display_name(name)} ({table.texts(name)[place]})" for name in best)
    rivals = ", ".join(map(row_display_name, others)) if len(others) < 4 else f"{len(others)} others"
    compared = _competing(table, cells)
    which = "" if len(compared) == len(cells) else " that can be compared"
    kind = f"{'lowest' if column.better == 'lower' else 'highest'} {title(column.name)}"
    text = f"of {len(compared)} labels{which} {numbers} {'have' if len(best) > 1 else 'has'} the {kind}"
    return f"{text}, and {rivals} not significantly worse" if others else text


def _reason_without_best(table: ResultTable, column: Column, cells: Mapping[str, Cell]) -> str:
    """A clause that says why no label is the best in a column. ``cells`` are the cells of the column by row name."""
    name, compared = title(column.name), _competing(table, cells)
    needs = "a comparison needs two labels with at least three seeds"
    if not cells:
        needed = ", which needs all of its tasks" if is_average(column.name) else ""
        return f"no label has a result in the column {name} yet{needed}"
    if len(cells) == 1:
        return f"only {row_display_name(next(iter(cells)))} has a result in the column {name} yet: {needs}"
    if len(compared) > 1:
        return f"no label is the best in the column {name}: none of {len(compared)} labels has learned the task"
    count = "only one" if compared else "none"
    return f"of {len(cells)} labels {count} can be compared in the column {name} yet: {needs}"


def _competing(table: ResultTable, cells: Mapping[str, Cell]) -> list[str]:
    """The names of the rows that may be the best in a column, whose cells are ``cells``, by the name of the row.

    A row may be the best if :attr:`Cell.can_compete` is true and its label is not over budget.
    """
    over_budget = {name for name, row in table.cells.items() if any(cell.is_over_budget for cell in row.values())}
    return [name for name, cell in cells.items() if cell.can_compete and name not in over_budget]


def _baseline_first(stored_labels: Sequence[str], requested_labels: Sequence[str]) -> list[str]:
    """The stored labels, with the baseline of the comparison first.

    The baseline is the first requested label that is stored. If there is none, it is S if stored, or the first label.
    """
    first = next((label for label in (*requested_labels, "S") if label in stored_labels), stored_labels[0])
    return [first, *(label for label in stored_labels if label != first)]


def _counts(runs: Sequence[ReportedRun]) -> list[tuple[str, str]]:
    counts = []
    for name in ("label", "task", "seed"):
        count = len({getattr(run.job, name) for run in runs})
        counts.append((f"{count:,}", name if count == 1 else f"{name}s"))
    done = sum(run.status in ("finished", "diverged") for run in runs)
    return [*counts, (f"{done:,} / {len(runs):,}", "jobs done")]


def _properties(protocols: Iterable[Protocol], runs: Sequence[ReportedRun], store: StoredRuns) -> list[tuple[str, str]]:
    """Pairs (name, value) of texts on the protocols, seeds and machines of the runs, for a table on the page."""
    properties = []
    for protocol in protocols:
        comparable = "" if protocol.profile.comparable_with_paper else " Not comparable with the paper."
        suite = protocol.suite
        properties.append((suite.title, " ".join(scoring_of(suite).sentences(protocol)) + comparable))
        if len(suite.tasks()) > 1:
            properties.append(("Tasks", ", ".join(map(title, protocol.tasks))))
            trainings = {run.job.training for run in runs if run.job.suite == suite.name}
            for field in ("learning_rate", "weight_decay"):
                values = sorted(
                    {value for training in trainings if (value := getattr(training, field, None)) is not None}
                )
                name = f"{field}s".replace("_", " ").capitalize()
                properties.append((name, ", ".join(f"{value:g}" for value in values)))
    properties.append(("Seeds", seed_list({run.job.seed for run in runs})))
    recorded: dict[str, Literal["device", "path", "versions", "git"]]
    recorded = {"Device": "device", "Operator path": "path", "Versions": "versions", "Code": "git"}
    for heading, name in recorded.items():
        details = [run.record.details for run in runs if run.record]
        recorded_values = [
            values[name] for values in details if values.get(name) is not None
        ]  # no commit outside a checkout
        times = Counter(map(_text, recorded_values))
        texts = [f"{value} ({count:,} runs)" if len(times) > 1 else value for value, count in times.most_common()]
        properties.append((heading, "; ".join(texts) or "not recorded"))
    properties.append(("Runs ended", _dates(runs)))
    return [*properties, ("StoredRuns", str(store.root))]


def _text(value: object) -> str:
    """A detail of a run as text. Of a checkout, this is the beginning of its commit."""
    if not isinstance(value, Mapping):
        return str(value)
    if "commit" in value:
        return f"{str(value['commit'])[:10]}{' with changes' if value.get('dirty') else ''}"
    return " ".join(f"{name} {item}" for name, item in value.items())


def _dates(runs: Iterable[ReportedRun]) -> str:
    """The first and the last day (UTC) on which ``runs`` ended, as text, with the number of undated runs, if any."""
    end_times = [run.record.details.get("ended") for run in runs if run.record]
    days = sorted(str(time)[:10] for time in end_times if time)
    dates = " to ".join(dict.fromkeys(days[:1] + days[-1:])) or "not recorded"
    undated_count = len(end_times) - len(days)
    return f"{dates}; {undated_count:,} of {len(end_times):,} runs have no date" if days and undated_count else dates


def _missing(
    results: Results, rows: Sequence[SuiteRow], labels: Sequence[str], records: Mapping[str, Record]
) -> list[Missing]:
    """The runs that the report lacks in each suite of ``rows``, and the number of stored runs that it leaves out.

    A suite without rows is also reported as missing if the profile of the first row lists it under ``beside``, the
    store has runs of it, and the user has not chosen tasks. ``labels`` are the requested labels, and ``records`` has
    the stored records by job id.
    """
    missing: list[Missing] = []
    stored_suites = {job.suite for job in results.store.jobs().values()} if results.grid.tasks is None else set()
    for suite in suites().values():
        rows_of_suite = [row for row in rows if row.protocol.suite is suite]
        if rows_of_suite:
            missing += missing_runs(rows_of_suite, labels or results.labels, records, results.store.root)
        elif suite.override_name in rows[0].protocol.profile.loaded.beside and suite.name in stored_suites:
            missing.append(Missing(f"No runs of these labels and this protocol: {suite.title}."))
    if others := len(results.store.jobs()) - len(records):
        runs = "stored run is" if others == 1 else "stored runs are"
        text = f"{others:,} {runs} of other labels, protocols or versions of code, which are never mixed."
        missing.append(Missing(text, command_on(results.store.root, "ls", "runs")))
    return missing


def _figures(results: Results) -> tuple[list[tuple[str, str, Markup]], list[Missing]]:
    """Return (name, caption, SVG) for each figure, and the reasons why other figures have nothing to draw."""
    figures, missing = [], []
    for name in figure_names(results.suites):
        caption = drawing_of(name).caption
        try:
            drawing = _svg(name, figure_frame(name, results), results.store.root / "index" / "figures")
        except NothingToDrawError as error:
            missing.append(Missing(f"No figure “{caption}”: {error}."))
        else:
            figures.append((name, caption, Markup(drawing)))
    return figures, missing


def _svg(name: str, frame: pd.DataFrame, folder: Path) -> str:
    """The figure ``name``, drawn from ``frame``, as SVG. Drawing is slow, so the SVG is cached in ``folder``."""
    digest = hashlib.sha256(f"{name} {version('matplotlib')} {[*frame]} {fonts.font_settings()}".encode())
    digest.update(hash_pandas_object(frame).to_numpy().tobytes())
    digest.update(repr([*map(row_display_name, frame.label.unique())] if "label" in frame else []).encode())
    for file in sorted(Path(figures_package.__file__).parent.glob("*.py")):
        digest.update(file.read_bytes())
    path = folder / f"{name}-{digest.hexdigest()[:16]}.svg"
    with suppress(OSError, ValueError):
        seal, _, content = read_file(path).decode().partition("\n")
        if seal == hashlib.sha256(content.encode()).hexdigest():
            return content
    with fonts.font_of_reader():
        content = svg(drawing_of(name).draw(frame), f"figure-{name}")
    with suppress(StoreError), explain_os_errors(folder):  # no cache in a store that is read-only or full
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(path, f"{hashlib.sha256(content.encode()).hexdigest()}\n{content}".encode())
        ours = folder.glob(f"{name}-{'[0-9a-f]' * 16}.svg")
        for old in sorted(ours, key=lambda file: file.lstat().st_mtime)[:-MOST_FIGURES]:
            old.unlink(missing_ok=True)
    return content


def _data(runs: Sequence[ReportedRun], effects: AttributionTable, store: StoredRuns) -> dict[str, Any]:
    """The data for the script of the page, as JSON values by name, such as the runs and their curves."""
    folder = store.root / "runs"
    drawn_runs = {i: run for i, run in enumerate(runs) if run.counts or run.status == "diverged"}
    curves = {i: thin_curve(folder / run.job.id / "curve.csv") for i, run in drawn_runs.items()}
    place = {run.job.id: i for i, run in enumerate(runs) if run.record is not None}
    tasks_of_column = _tasks_of_columns(runs)
    tasks, labels = (dict.fromkeys(getattr(run.job, name) for run in runs) for name in ("task", "label"))
    return {
        "count": len(runs),
        "runs": run_columns(runs),
        "curves": {i: curve for i, curve in curves.items() if curve},
        "measurements": {place[run_id]: json_value(of_run) for run_id, of_run in store.all_measurements(place).items()},
        "titles": {name: title(name) for name in (*tasks, *tasks_of_column)},
        "tasks": tasks_of_column,
        "explanations": {
            label: [[row.letter, row.name, row.what, row.equation, row.source] for row in explain(parse(label))]
            for label in labels
            if not is_shown_as_stored(label)
        },
        "effects": _effects(effects),
        "names": {label: display_name(label) for label in labels if display_name(label) != label},
        "folder": str(folder),
    }


def _tasks_of_columns(runs: Sequence[ReportedRun]) -> dict[str, list[str]]:
    """The tasks that a column such as an average is computed from, by the name of the column.

    Columns that are tasks themselves are left out.
    """
    tasks_of_column = {}
    for suite in suites().values():
        tasks = {run.job.task for run in runs if run.job.suite == suite.name}
        for column in suite.columns(task for task in suite.tasks() if task not in broken_tasks()) if tasks else ():
            if column.name not in tasks:
                parts = parts_of(column.name) or (task for task in suite.tasks() if task in tasks)
                tasks_of_column[column.name] = list(parts)
    return tasks_of_column


def _effects(table: AttributionTable) -> dict[str, dict[str, Any]]:
    """The content of the view that a click on an effect or interaction opens, by ``NAME/QUANTITY``.

    ``text`` describes the number that was clicked. ``headings`` and ``rows`` are a table of the pairs or squares of
    labels behind this number.
    """
    effects = {}
    for row in table.rows:
        text, headings = "the mean over these pairs of labels, which differ only in this factor", ["With", "Without"]
        headings.append("Difference over the seeds")
        if row.is_interaction:
            first, second = (contrast.short_name for contrast in row.contrasts)
            text = f"how much larger the effect of {first} is with {second}, as the mean over these sets of labels"
            headings = ["Both", f"{second} alone", f"{first} alone", "Neither"]
        effects[f"{row.name}/{row.quantity}"] = {
            "text": f"{difference_text(row.estimate, row.quantity)}: {text}.",
            "headings": headings,
            "rows": [
                [list(case), difference_text(difference, row.quantity) if difference else ""]
                for case, difference in row.cases.items()
            ],
        }
    return effects
