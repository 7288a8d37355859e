"""The runs of a report, as its page holds them: a column a field, what many runs share written once.

A column is one of ``{"all": value}``, ``{"each": [...]}``, ``{"values": [...], "index": [...]}`` with an index into the
values for each run, and ``{"values": [...], "lengths": [[index, runs in a row], ...]}``, by what repeats. Twenty thousand
runs are a few megabytes that way. Curves are thinned to what a small plot shows.
"""

from __future__ import annotations

import functools
import itertools
import math
from array import array
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from madbench.jobs import Job, JobBase, Record
from madbench.labels import Variant, explain, parse
from madbench.language_jobs import LanguageJob

_SCALARS = {str, int, float, bool}
_OF_JOBS = {*Job.__dataclass_fields__, *LanguageJob.__dataclass_fields__}

_AT_A_TIME = 256
"""Runs of which one field after the other is read while the processor's cache holds them all."""

MOST_POINTS = 24
"""Points of a curve that the page keeps."""
DIGITS = 6
CURVE_DIGITS = 4

_SERIES = {
    "corrected": ("train_loss", "validation_token_accuracy"),
    "published": ("train_loss", "test_batch_macro_accuracy"),
    "language_model": ("train_loss", "validation_loss"),
}
"""Columns of a curve that the page draws, by fidelity."""


class ReportedRun(NamedTuple):
    """A job of the report and what is stored of it."""

    id: str
    job: JobBase
    record: Record | None
    """None where nothing is stored."""
    words: list[str]
    """What ``madbench run LABEL``, or ``madbench lm LABEL``, needs beyond the seed to make it again."""


@dataclass(frozen=True)
class Allocation:
    """What a label's mixer was built from at one size."""

    label: str
    where: str
    """``length 128`` or ``language model``."""
    length: int
    is_language: bool
    ranks: Mapping[str, int]
    parameters: int
    published_parameters: int
    budget: int


def run_columns(runs: Sequence[ReportedRun]) -> dict[str, Any]:
    """The columns of ``runs`` by name, such as ``label``, ``metrics.accuracy`` or ``details.device``."""
    own, of_jobs, metrics, details = (_Growing() for _ in range(4))
    for start in range(0, len(runs), _AT_A_TIME):
        some = runs[start : start + _AT_A_TIME]
        own.add([_own_fields(run) for run in some])
        of_jobs.add([vars(run.job) for run in some])
        metrics.add([run.record.metrics if run.record else {} for run in some])
        details.add([run.record.details if run.record else {} for run in some])
    columns = own.columns | {
        name: of_jobs.columns[name] for name in of_jobs.columns if name in _OF_JOBS
    }  # not what a job caches
    columns |= {f"metrics.{name}": values for name, values in metrics.columns.items()}
    columns |= {f"details.{name}": values for name, values in details.columns.items()}
    return {name: column(values) for name, values in columns.items()}


def _own_fields(run: ReportedRun) -> dict[str, Any]:
    status, error = (run.record.status, run.record.error or None) if run.record else ("missing", None)
    return {"id": run.id, "words": run.words, "status": status, "error": error}


def thinned_curves(jobs: Mapping[int, JobBase], folder: Path) -> dict[int, dict[str, list[float | None]]]:
    """Their curves, as far as they have any; the files are in a folder a run of ``folder``."""
    curves = {}
    for i, job in jobs.items():
        names = _SERIES[getattr(job, "fidelity", "language_model")]
        if curve := thinned(_content(f"{folder}/{job.id}/curve.csv"), names):
            curves[i] = curve
    series = [values for curve in curves.values() for name, values in curve.items() if name != "step"]
    rounded = iter(_rounded(list(itertools.chain.from_iterable(series)), CURVE_DIGITS).tolist())
    for values in series:
        values[:] = [x if math.isfinite(x) else None for x in itertools.islice(rounded, len(values))]
    return curves


def _content(path: str) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:  # a run that is being replaced has none for a moment
        return b""


class _Growing:
    """The values of mappings, one a run, by key; None where one does not have the key."""

    def __init__(self):
        self.columns: dict[str, list[Any]] = {}
        self._count = 0
        self._known: dict[type, dict[Any, Any]] = defaultdict(dict)

    def add(self, mappings: Sequence[Mapping[str, Any]]) -> None:
        """Those of further runs."""
        for keys, alike in itertools.groupby(mappings, tuple):
            rows = [mapping.values() for mapping in alike]
            values = dict(zip(keys, zip(*rows)))
            for key in keys:
                if key not in self.columns:
                    self.columns[key] = [None] * self._count
            for key, column in self.columns.items():
                column += self._near(values[key]) if key in values else [None] * len(rows)
            self._count += len(rows)

    def _near(self, values: Sequence[Any]) -> Iterable[Any]:
        """Equal to ``values``, but floats side by side in memory, and of equal texts and integers a single one."""
        kinds = {*map(type, values)}
        if kinds == {float}:
            return array("d", values)
        if len(kinds) == 1 and kinds <= _SCALARS:
            known = self._known[type(values[0])]
            return map(known.setdefault, values, values)
        return values


def column(values: list[Any]) -> dict[str, Any]:
    """The values of a field, one a run, as the page holds them."""
    kinds = {*map(type, values)} - {type(None)}
    if kinds <= {float} and len({*values}) > len(values) / 2:
        return {"each": _short_each(values)}
    if len(kinds) == 1 and kinds <= _SCALARS:
        places: dict[Any, int] = defaultdict(itertools.count().__next__)
        index = [*map(places.__getitem__, values)]
        distinct = [*map(plain, places)]
    else:
        distinct, index = _distinct(values)
    if len(distinct) == 1:
        return {"all": distinct[0]}
    if len(distinct) > len(values) / 2:
        return {"each": [distinct[place] for place in index]}
    changes = np.diff(np.fromiter(index, np.int64, len(index)))
    starts = [0, *(np.flatnonzero(changes) + 1).tolist(), len(index)]
    if 4 * (len(starts) - 1) < len(index):
        return {
            "values": distinct,
            "lengths": [[index[start], end - start] for start, end in itertools.pairwise(starts)],
        }
    return {"values": distinct, "index": index}


def occurrences(column: Mapping[str, Any], count: int) -> list[tuple[Any, int]]:
    """The distinct values of a :func:`column` of ``count`` runs, each with how often it is there in a row or in all."""
    if "all" in column:
        return [(column["all"], count)]
    if "each" in column:
        return [(value, 1) for value in column["each"]]
    of_index = column["lengths"] if "lengths" in column else Counter(column["index"]).items()
    return [(column["values"][index], times) for index, times in of_index]


def _distinct(values: list[Any]) -> tuple[list[Any], list[int]]:
    """The distinct ``values`` as JSON has them, and the place of each one among those; 1, 1.0 and true are three."""
    identities = list(map(id, values))
    places: dict[Any, int] = {}
    place_of: dict[int, int] = {}
    distinct: list[Any] = []
    for identity, value in dict(zip(identities, values)).items():
        key = (value.__class__, value) if value is None or type(value) in _SCALARS else repr(value)
        place = place_of[identity] = places.setdefault(key, len(places))
        if place == len(distinct):
            distinct.append(plain(value))
    return distinct, [*map(place_of.__getitem__, identities)]


def _short_each(values: Sequence[float | None]) -> list[float | str | None]:
    """:func:`_short` of many values, None of None."""
    rounded = _rounded(values, DIGITS)
    shorts = rounded.tolist()
    for place in np.flatnonzero(~np.isfinite(rounded)).tolist():
        shorts[place] = values[place] if values[place] is None else _short(values[place])
    return shorts


def _rounded(values: Sequence[float | None], digits: int) -> np.ndarray:
    """``values`` of so many significant digits; NaN of None and where the scale is out of range."""
    numbers = np.array(values, dtype=float)
    with np.errstate(all="ignore"):
        scale = 10.0 ** (digits - 1 - np.floor(np.log10(np.abs(numbers))))
        return np.where(numbers == 0, 0.0, np.rint(numbers * scale) / scale)


def _short(value: float) -> float | str:
    return float(f"{value:.{DIGITS}g}") if math.isfinite(value) else str(value)


def plain(value: Any) -> Any:
    """``value`` as JSON has it: numbers of :data:`DIGITS` digits, those that are not finite as text."""
    if isinstance(value, float):
        return _short(value)
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    return {key: plain(item) for key, item in vars(value).items()}


def thinned(content: bytes, names: Sequence[str]) -> dict[str, list[float]]:
    """``step`` and ``names`` of a ``curve.csv``: evenly spread rows that have all of them, the first and the last too.

    Only these rows are read as numbers. Empty where the file has no such row.
    """
    heading, *lines = content.splitlines() or [b""]
    width, places = _places(heading, ("step", *names))
    if not places:
        return {}

    def cells(lines: Sequence[bytes]) -> list[list[bytes]]:
        """Those to keep, a list a column; none where a line has more or fewer than there are columns."""
        found = b",".join(lines).split(b",") if {line.count(b",") for line in lines} == {width - 1} else []
        return [found[place::width] or [b""] for place in places]

    kept = cells([lines[i] for i in _spread_places(len(lines))])
    if not all(map(all, kept)):  # as of a language model, of which few rows are evaluations
        whole = [line for line in lines if all(map(all, cells([line])))]
        kept = cells([whole[i] for i in _spread_places(len(whole))])
    try:
        steps, *series = kept
        return {"step": [*map(int, steps)]} | {name: [*map(float, numbers)] for name, numbers in zip(names, series)}
    except ValueError:  # edited by hand since it was stored
        return {}


@functools.cache
def _places(heading: bytes, names: Sequence[str]) -> tuple[int, list[int]]:
    """How many columns there are, and which of them have these names; none of them unless all are there."""
    columns = heading.decode(errors="replace").split(",")
    return len(columns), [*map(columns.index, names)] if {*names} <= {*columns} else []


@functools.cache
def _spread_places(count: int) -> list[int]:
    """Places of at most :data:`MOST_POINTS` of ``count`` things, evenly spread, the first and the last among them."""
    most = min(MOST_POINTS, count)
    return [round(i * (count - 1) / max(1, most - 1)) for i in range(most)]


def allocations(runs: Iterable[ReportedRun]) -> list[Allocation]:
    """Every label's mixer at every size, once, in the order of ``runs``."""
    found: dict[tuple[str, bool, int], Allocation] = {}
    for run in runs:
        details = run.record.details if run.record else {}
        if "budget" not in details:
            continue
        is_language = isinstance(run.job, LanguageJob)
        length = run.job.model.seq_len if is_language else run.job.setting["seq_len"]
        key = (run.job.label, is_language, length)
        if key not in found:
            found[key] = Allocation(
                run.job.label,
                f"language model, length {length}" if is_language else f"length {length}",
                length,
                is_language,
                details["ranks"],
                details["mixer_parameters"],
                details["mixer_parameters_published"],
                details["budget"],
            )
    return list(found.values())


def explanations(labels: Iterable[str]) -> dict[str, list[list[str]]]:
    """What each letter of a label means: letter, name, what it does, equation, source."""
    found = {}
    for label in labels:
        variant = parse(label)
        rows = explain(variant) if isinstance(variant, Variant) else []
        found[label] = [[row.letter, row.name, row.what, row.equation, row.source] for row in rows]
    return found
