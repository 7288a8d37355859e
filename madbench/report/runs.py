"""The runs of a report, as its page holds them: a column a field, what many runs share written once.

A column is one of ``{"all": value}``, ``{"each": [...]}``, ``{"values": [...], "index": [...]}`` with an index into the
values for each run, and ``{"values": [...], "lengths": [[index, runs in a row], ...]}``, by what repeats. Twenty thousand
runs are a few megabytes that way. Curves are thinned to what a small plot shows.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
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
    columns: dict[str, list[Any]] = {
        "id": [run.id for run in runs],
        "words": [run.words for run in runs],
        "status": [run.record.status if run.record else "missing" for run in runs],
        "error": [run.record.error or None if run.record else None for run in runs],
    }
    _spread(columns, "", [vars(run.job) for run in runs])
    _spread(columns, "metrics.", [run.record.metrics if run.record else {} for run in runs])
    _spread(columns, "details.", [run.record.details if run.record else {} for run in runs])
    return {name: column(values) for name, values in columns.items()}


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


def _spread(columns: dict[str, list[Any]], prefix: str, mappings: Sequence[Mapping[str, Any]]) -> None:
    """A column for every key of ``mappings``; None where one does not have it."""
    keys = dict.fromkeys(itertools.chain.from_iterable(dict.fromkeys(map(tuple, mappings))))
    found: dict[str, list[Any]] = {key: [] for key in keys if prefix or key in _OF_JOBS}  # not what a job caches
    for keys, alike in itertools.groupby(mappings, tuple):
        rows = [mapping.values() for mapping in alike]
        values = dict(zip(keys, zip(*rows)))
        for key, column in found.items():
            column += values.get(key) or [None] * len(rows)
    columns |= {prefix + key: column for key, column in found.items()}


def column(values: list[Any]) -> dict[str, Any]:
    """The values of a field, one a run, as the page holds them."""
    kinds = {*map(type, values)} - {type(None)}
    if kinds <= {float} and len({*values}) > len(values) / 2:
        return {"each": _short_each(values)}
    if len(kinds) == 1 and kinds <= _SCALARS:
        places = {value: place for place, value in enumerate(dict.fromkeys(values))}
        distinct = list(map(plain, places))
        index = [places[value] for value in values]
    else:
        distinct, index = _distinct(values)
    if len(distinct) == 1:
        return {"all": distinct[0]}
    if len(distinct) > len(values) / 2:
        return {"each": [distinct[place] for place in index]}
    starts = [0, *(np.flatnonzero(np.diff(index)) + 1).tolist(), len(index)]
    if 4 * (len(starts) - 1) < len(index):
        return {"values": distinct, "lengths": [[index[start], end - start] for start, end in itertools.pairwise(starts)]}
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
    return distinct, [place_of[identity] for identity in identities]


def _short_each(values: Sequence[float | None]) -> list[float | str | None]:
    """:func:`_short` of many values, None of None."""
    rounded = _rounded(values, DIGITS)
    if np.isfinite(rounded).all():
        return rounded.tolist()
    shorts = zip(rounded.tolist(), values)
    return [short if math.isfinite(short) else value if value is None else _short(value) for short, value in shorts]


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
    heading, *lines = content.decode(errors="replace").splitlines() or [""]
    columns = heading.split(",")
    if not {"step", *names} <= set(columns):
        return {}
    cells_of = operator.itemgetter(*map(columns.index, ("step", *names)))

    def rows(lines: Sequence[str]) -> list[tuple[str, ...]]:
        """The cells to keep of whole lines alone."""
        split = (line.split(",") for line in lines)
        return [kept for row in split if len(row) == len(columns) and all(kept := cells_of(row))]

    chosen = [lines[place] for place in _spread_places(len(lines))]
    kept = rows(chosen)
    if len(kept) < len(chosen):  # as of a language model, of which few rows are evaluations
        whole = rows(lines)
        kept = [whole[place] for place in _spread_places(len(whole))]
    if not kept:
        return {}
    steps, *series = zip(*kept)
    try:
        thin = {name: [*map(float, cells)] for name, cells in zip(names, series)}
        return {"step": [int(float(step)) for step in steps]} | thin
    except (OverflowError, ValueError):  # edited by hand since it was stored
        return {}


@functools.cache
def _spread_places(count: int) -> list[int]:
    """Places of at most :data:`MOST_POINTS` of ``count`` things, evenly spread, the first and the last among them."""
    most = min(MOST_POINTS, count)
    return [round(i * (count - 1) / max(1, most - 1)) for i in range(most)]


def allocations(runs: Iterable[ReportedRun]) -> list[Allocation]:
    """Every label's mixer at every size, once, in the order of ``runs``."""
    found: dict[tuple[str, str], Allocation] = {}
    for run in runs:
        details = run.record.details if run.record else {}
        if "budget" not in details:
            continue
        is_language = isinstance(run.job, LanguageJob)
        length = run.job.model.seq_len if is_language else run.job.setting["seq_len"]
        where = f"language model, length {length}" if is_language else f"length {length}"
        key = (run.job.label, where)
        if key not in found:
            found[key] = Allocation(
                run.job.label,
                where,
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
