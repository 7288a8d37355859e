"""The tables of a sweep: of either half, with a row for every row of the grid and its difference from the first."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis.language_runs import by_protocol
from madbench.analysis.language_table import LanguageTable, language_table
from madbench.analysis.loss_curves import PAPER_THRESHOLDS, evaluations, run_losses, thresholds_above
from madbench.analysis.quantities import MAD_AVERAGE
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.scores import collect, scores, with_average
from madbench.analysis.tables import HEADINGS, ablation_table
from madbench.language_jobs import TASK
from madbench.store.runs import Run, Store
from madbench.suites.overrides import LANGUAGE_MODEL, settings_of

if TYPE_CHECKING:
    from madbench.sweep_experiment import RowOf, Sweep

VS_BASELINE = "vs baseline"


@dataclass(frozen=True)
class Difference:
    """A row's mean minus that of the baseline, paired by seed."""

    mean: float
    low: float
    """Lower end of the 95% interval of Student's t; NaN for a single pair."""
    high: float
    n: int
    """Pairs."""

    def text(self, digits: int) -> str:
        """``+1.3 [-0.2,+2.8]``."""
        if math.isnan(self.low):
            return f"{self.mean:+.{digits}f}"
        return f"{self.mean:+.{digits}f} [{self.low:+.{digits}f},{self.high:+.{digits}f}]"


@dataclass(frozen=True)
class SweepTable(TextTable):
    """Tables of one half, one a protocol, as one; see :func:`mad_sweep_table` and :func:`language_sweep_table`."""

    parts: list[TextTable]
    rows: list[RowOf]
    comparable: set[str]
    """Names of the rows that published numbers may be set below."""
    differences: dict[tuple[str, str], Difference]
    """By name of the row and quantity: a task, or a loss."""
    shown: str
    """The quantity whose differences are a column."""
    digits: int
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        """The columns that all parts have, and the difference from the baseline."""
        texts = [part.text_rows() for part in self.parts]
        columns = [name for name in texts[0][0] if all(name in headings for headings, _ in texts)]
        lines: dict[str, list[list[str]]] = {row.row.name: [] for row in self.rows}
        for headings, of_part in texts:
            kept = [headings.index(name) for name in columns]
            name = ""
            for line in of_part:
                name = name if line[0] == PUBLISHED else line[0]
                if line[0] != PUBLISHED or name in self.comparable:
                    lines[name].append([line[i] for i in kept])
        if len(self.rows) == 1:
            return columns, [line for of_row in lines.values() for line in of_row]
        rows = [
            [*line, "" if line[0] == PUBLISHED else self._difference(name)]
            for name, of_row in lines.items()
            for line in of_row
        ]
        return [*columns, VS_BASELINE], rows

    def marks(self) -> Mapping[tuple[str, int], str]:
        return self.parts[0].marks() if len(self.parts) == 1 else {}

    def _difference(self, name: str) -> str:
        if name == self.rows[0].row.name:
            return "baseline"
        difference = self.differences.get((name, self.shown))
        return difference.text(self.digits) if difference else "-"

    def records(self) -> list[dict[str, Any]]:
        by_name = {row.row.name: row.row for row in self.rows}
        records = []
        for record in (record for part in self.parts for record in part.records()):
            row = by_name[record["label"]]
            difference = self.differences.get((row.name, record.get("task", record.get("quantity"))))
            record = {"row": row.name, **record, "label": row.label}
            if row.name not in self.comparable:
                record["published"] = None
            record["changes"] = " ".join(row.changes)
            for name in ("mean", "low", "high"):
                value = getattr(difference, name, math.nan)
                record[{"mean": "difference"}.get(name, f"difference_{name}")] = None if math.isnan(value) else value
            records.append(record | {"difference_n": difference.n if difference else 0})
        return records


def mad_sweep_table(sweep: Sweep) -> SweepTable | None:
    """The ablation table of the rows, as far as their jobs are stored; None without a result."""
    from madbench.experiment import caption

    collected = _collected(sweep)
    cells = scores(collected)
    if not cells.done.any():
        return None
    baseline = sweep.mad[0]
    tasks = baseline.experiment.tasks
    quantity, what = (tasks[0], HEADINGS[tasks[0]]) if len(tasks) == 1 else (MAD_AVERAGE, "the mean over the tasks")
    averaged = with_average(cells, tasks) if len(tasks) > 1 else cells
    whole = averaged[averaged.done == averaged.expected]
    common = tuple(word for word in baseline.experiment.overrides if word not in baseline.row.changes)
    about = caption(replace(baseline.experiment, overrides=common), collected)
    table = ablation_table(cells, tasks, about)
    sentences = [table.caption, *_sentences(sweep.mad, f"{what}, in percentage points")]
    comparable = {row.row.name for row in sweep.mad if row.experiment.profile.comparable_with_paper}
    differences = paired_differences(whole.rename(columns={"task": "quantity", "accuracy": "value"}), baseline.row.name)
    return SweepTable([table], sweep.mad, comparable, differences, quantity, 1, " ".join(sentences))


def language_sweep_table(sweep: Sweep) -> SweepTable | None:
    """The language-model table of the rows, as far as their runs are stored; None without a result.

    Runs of several protocols have the columns that all of them allow, without marks: those are of one protocol's rows.
    """
    runs = _stored(sweep)
    if not runs:
        return None
    lowest = min((row["train_loss"] for run in runs for row in evaluations(run)), default=math.nan)
    protocols = by_protocol(runs)
    is_comparable = all(protocol.is_comparable_with_paper for protocol in protocols)
    thresholds = PAPER_THRESHOLDS if is_comparable else thresholds_above(lowest)
    parts = [language_table(of_it, thresholds=thresholds) for of_it in protocols.values()]
    if len(parts) > 1:
        parts = [_without_marks(part) for part in parts]
    about = parts[0].caption if len(parts) == 1 else f"At the settings of {runs[0].job.label}: {parts[0].caption}"
    comparable = {row.row.name for row in sweep.language if row.experiment.preset.comparable_with_paper}
    losses = run_losses(runs, ())
    values = losses.melt(["label", "seed"], ["loss_l5", "validation_loss"], "quantity", "value")
    differences = paired_differences(values, sweep.language[0].row.name)
    sentences = [about, *_sentences(sweep.language, "L5, in nats per token")]
    return SweepTable(parts, sweep.language, comparable, differences, "loss_l5", 3, " ".join(sentences))


def _without_marks(table: LanguageTable) -> LanguageTable:
    rows = {
        label: {name: replace(cell, mark="") for name, cell in cells.items()} for label, cells in table.rows.items()
    }
    return replace(table, rows=rows)


def sweep_scores(sweep: Sweep) -> pd.DataFrame:
    """The scores of :func:`madbench.sweep_experiment.sweep`."""
    frames = []
    if sweep.mad:
        frames.append(_taken_apart(scores(_collected(sweep)), sweep.mad, sweep.grid.axes))
    if sweep.language and (runs := _stored(sweep)):
        losses = run_losses(runs, ()).drop(columns="id").assign(task=TASK)
        frames.append(_taken_apart(losses, sweep.language, sweep.grid.axes))
    return pd.concat(frames, ignore_index=True)


def _taken_apart(frame: pd.DataFrame, rows: Sequence[RowOf], axes: Sequence[str]) -> pd.DataFrame:
    """``frame``, whose labels are names of rows, with columns ``row``, ``label`` and one for each of ``axes``."""
    by_name = {row.row.name: row.row for row in rows}
    changes = {name: settings_of(row.changes) for name, row in by_name.items()}
    settings = {key: [changes[name].get(key) for name in frame.label] for key in axes}
    first = {"row": frame.label, "label": [by_name[name].label for name in frame.label], **settings}
    return pd.concat([pd.DataFrame(first), frame.drop(columns="label")], axis=1)


def paired_differences(values: pd.DataFrame, baseline: str) -> dict[tuple[str, str], Difference]:
    """Differences of ``value`` from ``baseline`` by (label, quantity), over the seeds that both have.

    ``values`` has the columns label, seed, quantity and value. None where a seed of either side has no number, because
    it diverged.
    """
    found = {}
    for quantity, of_it in values.groupby("quantity", sort=False):
        by_seed = {
            label: rows.set_index("seed").value.astype(float) for label, rows in of_it.groupby("label", sort=False)
        }
        if baseline not in by_seed:
            continue
        for label, ours in by_seed.items():
            paired = pd.concat([ours, by_seed[baseline]], axis=1, join="inner")
            if label != baseline and len(paired) and not paired.isna().any(axis=None):
                found[label, quantity] = _difference((paired.iloc[:, 0] - paired.iloc[:, 1]).tolist())
    return found


def _difference(values: Sequence[float]) -> Difference:
    from scipy import stats

    n = len(values)
    mean = math.fsum(values) / n
    if n < 2:
        return Difference(mean, math.nan, math.nan, n)
    half = stats.t.ppf(0.975, n - 1) * math.sqrt(sum((value - mean) ** 2 for value in values) / (n - 1) / n)
    return Difference(mean, mean - half, mean + half, n)


def _sentences(rows: Sequence[RowOf], of_what: str) -> list[str]:
    """How the rows are named and compared."""
    baseline = rows[0].row
    sentences = [f"Baseline: {baseline.name}, the first row."]
    unnamed = [change for change in baseline.changes if change not in baseline.shown]
    if unnamed:
        sentences.append(f"Where a row names nothing else: {', '.join(unnamed)}.")
    if any(change.removeprefix(LANGUAGE_MODEL).startswith("model.") for row in rows for change in row.row.changes):
        sentences.append("The sizes given are the baseline's.")
    if len(rows) > 1:
        sentences.append(
            f"{VS_BASELINE.capitalize()}: {of_what}, minus the baseline's, paired by seed, with the 95% interval of"
            " Student's t over the seeds, of each row alone; without an interval it is of one seed and claims nothing."
        )
    return sentences


def _collected(sweep: Sweep) -> pd.DataFrame:
    """What the jobs of the MAD half gave, once for each row that has them, with the row's name as the label."""
    jobs = {job.id: job for row in sweep.mad for job in row.jobs}
    collected = collect(jobs.values(), Store.open(sweep.results, create=False)).set_index("id", drop=False)
    parts = [collected.loc[[job.id for job in row.jobs]].assign(label=row.row.name) for row in sweep.mad]
    return pd.concat(parts, ignore_index=True)


def _stored(sweep: Sweep) -> list[Run]:
    """The finished and diverged language-model runs of each row, with the row's name as the label."""
    store = Store.open(sweep.results, create=False)
    return [
        replace(run, job=replace(run.job, label=row.row.name))
        for row in sweep.language
        for run in (store.read(job.id) for job in row.jobs if store.has(job))
    ]
