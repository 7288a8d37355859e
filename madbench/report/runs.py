"""The runs of a report as data for the script of its page: one column per field of a run, and curves.

A column is a list with one value per run. To save space, it can be ``{"values": [...], "index": [...]}``: the distinct
values, and an index into them for each run. If ``index`` is missing, all runs have the only value.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from madbench.files import read_file
from madbench.jobs import Job, Record
from madbench.suites import suite_of

DataColumn = list[Any] | dict[str, list[Any]]

MOST_POINTS = 24
"""The number of points of a curve on the page."""

_LOSS = "train_loss"
_EVALUATIONS = ("validation_token_accuracy", "test_batch_macro_accuracy", "validation_loss")
"""Columns of a curve with results of evaluations. The page draws the first one that the curve has."""
_SCALARS = {str, int, float, bool, type(None)}


class ReportedRun(NamedTuple):
    """A job of a report, its record if its run is stored, and further values for the page."""

    job: Job
    record: Record | None
    """The record of the job. None if nothing is stored."""
    counts: bool
    """True if a number in a table is computed from the run."""
    words: list[str]
    """The words of the command that trains the run again. The label and the seed are not among them."""
    change: str
    """The difference between the task setting of the job and the baseline setting of its task, as text
    (:func:`setting_changes`)."""

    @property
    def status(self) -> str:
        return self.record.status if self.record else "missing"

    @property
    def result(self) -> str:
        """The main result of the run as text. Empty if nothing is stored."""
        return suite_of(self.job).shown_metric.text(self.record.metrics) if self.record else ""


def run_columns(runs: Sequence[ReportedRun]) -> dict[str, DataColumn]:
    """The fields of ``runs`` as columns of the page's data, by name.

    A name is that of a field of a job or of :class:`ReportedRun`, such as ``label`` or ``status``. Metrics and details
    from the record have names with a prefix, such as ``metrics.accuracy`` and ``details.device``. A missing value is
    None.
    """
    records = [run.record or Record("failed") for run in runs]
    values: dict[str, list[Any]] = {"id": [run.job.id for run in runs]}
    values |= {name: [getattr(run.job, name) for run in runs] for name in Job.__dataclass_fields__}
    values |= {"status": [run.status for run in runs], "error": [record.error or None for record in records]}
    values |= {name: [getattr(run, name) for run in runs] for name in ("result", "counts", "words", "change")}
    for name in ("metrics", "details"):
        mappings = [getattr(record, name) for record in records]
        names = dict.fromkeys(itertools.chain.from_iterable(mappings))
        values |= {f"{name}.{key}": [of_run.get(key) for of_run in mappings] for key in names}
    return {name: data_column(of_name) for name, of_name in values.items()}


def data_column(values: Sequence[Any]) -> DataColumn:
    """The values of a field, one per run, as a column of the page's data.

    If all values are equal, the column is ``{"values": [value]}``. If there are at most half as many distinct values as
    runs, it is ``{"values": [...], "index": [...]}`` with an index into the distinct values for each run. Otherwise, it
    is a list with one value per run.
    """
    keys = [(type(value), value if type(value) in _SCALARS else repr(value)) for value in values]
    by_key = dict(zip(keys, values))
    places = {key: place for place, key in enumerate(by_key)}
    distinct, index = [json_value(value) for value in by_key.values()], [places[key] for key in keys]
    if len(distinct) == 1:
        return {"values": distinct}
    if len(distinct) > len(values) / 2:
        return [distinct[place] for place in index]
    return {"values": distinct, "index": index}


def json_value(value: Any) -> Any:
    """``value`` for JSON, with mappings, lists and dataclasses converted recursively.

    Floats are rounded to six significant digits. Floats that are infinite or NaN, and integers with an absolute value
    above 2^53, become text.
    """
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else str(value)
    if type(value) in _SCALARS:
        return str(value) if type(value) is int and abs(value) > 2**53 else value
    if isinstance(value, Mapping):
        return {str(key): json_value(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_value(item) for item in value]
    return json_value(dataclasses.asdict(value))


def setting_changes(jobs: Sequence[Job]) -> dict[str, str]:
    """The differences of each job's task setting from the baseline setting of its task, as text, by job id.

    An example is ``seq_len 256``. The text is ``baseline`` for a job with the baseline setting. It is empty if all jobs
    of the task have the same setting.
    """
    keys = [(job.task, str(job.setting)) for job in jobs]
    settings = dict(zip(keys, jobs))
    counts = Counter(task for task, _ in settings)
    changes = {key: _changes(job) if counts[job.task] > 1 else "" for key, job in settings.items()}
    return {job.id: changes[key] for key, job in zip(keys, jobs)}


def _changes(job: Job) -> str:
    baseline = suite_of(job).difficulty(job.task) or {}
    changes = [f"{name} {value}" for name, value in job.setting.items() if value != baseline.get(name)]
    return ", ".join(changes) or "baseline"


def thin_curve(file: Path) -> dict[str, list[float | None]]:
    """At most :data:`MOST_POINTS` evenly spaced points of a ``curve.csv``, with the first and the last.

    The result has one list per column: ``step``, ``train_loss``, and the first of :data:`_EVALUATIONS` that the file
    has, if any. Rows that lack one of these values are skipped. Values that are not finite are None. Empty if the file
    cannot be read, or has no row with all these values.
    """
    try:
        heading, *rows = csv.reader(io.StringIO(read_file(file).decode(), newline=""))
        evaluation = next((name for name in _EVALUATIONS if name in heading), _LOSS)
        names = list(dict.fromkeys(("step", _LOSS, evaluation)))
        pick = itemgetter(*map(heading.index, names))
        complete_rows = [row for row in (pick(row) for row in rows if len(row) == len(heading)) if all(row)]
        if not complete_rows:
            return {}
        places = np.unique(np.linspace(0, len(complete_rows) - 1, MOST_POINTS).round().astype(int))
        columns = {name: [float(complete_rows[place][i]) for place in places] for i, name in enumerate(names)}
    except (OSError, ValueError, csv.Error):  # missing while the run is replaced, or edited after it was stored
        return {}
    short = {name: [float(f"{x:.4g}") if math.isfinite(x) else None for x in xs] for name, xs in columns.items()}
    return short | {"step": [int(step) for step in columns["step"]]}
