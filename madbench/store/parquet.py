"""Export of runs, curves and measurements as Parquet tables, for other tools.

``runs.parquet`` has one row per run: its job, metrics and details, with nested names joined by dots
(``training.steps``, ``metrics.accuracy``). ``curves.parquet`` has one row per row of a curve, and
``measurements.parquet`` one row per number that was measured after training. The column ``id`` joins the three tables.
A value that a run does not have is null. Absolute paths of the machine are cut to their last part, as in an archive.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import flatten
from madbench.errors import require
from madbench.files import new_folder
from madbench.store.archive import public_record
from madbench.store.index import Track
from madbench.store.reading import Run, StoredRuns

if TYPE_CHECKING:
    import pyarrow

NEEDED = "--format parquet"
EXTRA = "parquet"


def write_parquet(store: StoredRuns, ids: Iterable[str], folder: Path, track: Track = iter) -> None:
    """Write the runs with these ids to ``folder``, which must not exist, as three Parquet files.

    The folder appears when all files are complete. Raises ``MissingExtraError`` without pyarrow, and ``StoreError`` for
    a damaged run or on a full disk.
    """
    require("pyarrow", NEEDED, EXTRA)
    parquet = require("pyarrow.parquet", NEEDED, EXTRA)
    tables: dict[str, list[dict[str, object]]] = {"runs": [], "curves": [], "measurements": []}
    for job_id in track(sorted(ids)):
        run = store.read(job_id)
        tables["runs"].append(run_row(run))
        tables["curves"] += ({"id": job_id, **point} for point in run.record.curve)
        tables["measurements"] += _measurement_rows(store, job_id)
    with new_folder(folder) as temporary:
        for name, rows in tables.items():
            parquet.write_table(arrow_table(rows), temporary / f"{name}.parquet")


def run_row(run: Run) -> dict[str, object]:
    """The row of a run in ``runs.parquet``: its id, job, metrics, details, status and error, by column.

    Absolute paths are cut to their last part.
    """
    record = public_record(run.record)
    values = {"status": record.status, "error": record.error or None}
    nested_values = {**run.job.to_dict(), "metrics": record.metrics, "details": record.details}
    return {"id": run.job.id, **flatten(nested_values), **values}


def _measurement_rows(store: StoredRuns, job_id: str) -> Iterator[dict[str, object]]:
    for measurement in store.measurements(job_id):
        settings = json.dumps(measurement.settings, sort_keys=True)
        for name, value in measurement.values.items():
            yield {"id": job_id, "measurement": measurement.name, "settings": settings, "name": name, "value": value}


def arrow_table(rows: Sequence[Mapping[str, object]]) -> pyarrow.Table:
    """A table with one column per key of the rows. Each column has one type (:func:`to_one_type`).

    A value that a row lacks is null. Columns are in the order in which their keys first occur.
    """
    arrow = require("pyarrow", NEEDED, EXTRA)
    names = dict.fromkeys(name for row in rows for name in row)
    return arrow.table({name: arrow.array(to_one_type([row.get(name) for row in rows])) for name in names})


def to_one_type(values: Sequence[Any]) -> list[Any]:
    """Convert the values of a column to one type: booleans, 64-bit integers, floats, or else text.

    None stays None. If the column becomes text, numbers and containers are written as JSON.
    """
    kinds = {type(value) for value in values if value is not None}
    if kinds <= {bool} or kinds <= {str}:
        return list(values)
    if kinds <= {int} and all(value is None or abs(value) < 2**63 for value in values):
        return list(values)
    if kinds <= {int, float}:
        return [None if value is None else float(value) for value in values]
    return [value if value is None or isinstance(value, str) else json.dumps(value) for value in values]
