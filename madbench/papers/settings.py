"""Published settings of a paper, compared with the settings of madbench's jobs, profiles and code.

``settings.csv`` in the folder of the paper has one line per ``setting`` of a ``table``: the ``published`` value, the
``source`` of our value and the ``field`` of the source. Several values are separated by ``; ``, and a range is written
``128 to 512``. The source is one of

- the id of an item, for the jobs that it plans at the paper's size. The columns ``task`` and ``labels`` (a pattern), if
  not empty, select some of these jobs;
- a profile and rows of labels with their changes, such as ``wikitext; cd:softmax model.positions=learned``, for the
  jobs of language models with these rows;
- ``code``, for a field that is a name in the code, such as ``madbench.mixers.srg.parts:EPS``.

A field of a job is a value such as ``training.epochs`` or ``setting.seq_len``, or a method of
:class:`madbench.papers.observed.ObservedSettings` such as ``observed.optimizer``, which observes what the job builds. A
line with a ``reason`` is not compared, but the value of its field, if it has one, is shown.
"""

from __future__ import annotations

import csv
import fnmatch
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from madbench.experiment import ExperimentOptions, prepare
from madbench.papers.making import DIFFERS, OPEN, REPRODUCED, ItemResult, PlainMeasure, Request, jobs_of, row_of
from madbench.plugins.registry import resolve
from madbench.rows import Grid
from madbench.suites import find_suite

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results
    from madbench.jobs import Job
    from madbench.papers.observed import ObservedSettings

SETTINGS = "settings.csv"
"""The file of published settings in the folder of the paper."""
CODE = "code"
"""The source of settings that are constants of the code and not part of a job."""
EQUAL, DIFFERENT, INCOMPARABLE = "equal", "different", "not comparable"
"""The states of a published setting in comparison with ours."""


class SettingsMeasure(PlainMeasure):
    """A measure that compares published settings with ours. It trains nothing."""

    def decide(self, request: Request, results: Results | None) -> ItemResult:
        rows = list(compare_settings(request))
        verdicts, remarks = {}, {}
        for table in dict.fromkeys(row["table"] for row in rows):
            of_table = [row for row in rows if row["table"] == table]
            states = Counter(row["state"] for row in of_table)
            statement = f"{table}: what can be compared is the same here"
            verdicts[statement] = DIFFERS if states[DIFFERENT] else REPRODUCED if states[EQUAL] else OPEN
            counts = [f"{states[EQUAL]} of {len(of_table)} rows equal"]
            if states[INCOMPARABLE]:
                counts.append(f"{states[INCOMPARABLE]} not comparable")
            names = [row["setting"] for row in of_table if row["state"] == DIFFERENT]
            if names:
                counts.append(f"{len(names)} different: {', '.join(names)}")
            remarks[statement] = ", ".join(counts)
        return ItemResult([_listing(request, rows)], verdicts, {"settings": rows}, (), remarks)


def compare_settings(request: Request) -> Iterator[dict[str, Any]]:
    """Yield one mapping per published setting.

    Its keys are ``table``, ``task``, ``setting``, ``published`` (the value in the paper), ``here`` (our values),
    ``state`` and ``reason``: why the setting cannot be compared, or empty.
    """
    from madbench.papers.observed import ObservedSettings

    observed, jobs = ObservedSettings(), {}
    with open(request.paper.folder / SETTINGS, newline="", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    for row in published:
        source, values = row["source"], []
        if row["field"] and source == CODE:
            values = [resolve(row["field"])]
        elif row["field"]:
            if source not in jobs:
                jobs[source] = _jobs_of_source(request, source)
            task_jobs = [job for job in jobs[source] if row["task"] in ("", job.task)]
            task_jobs = [job for job in task_jobs if fnmatch.fnmatchcase(job.label, row["labels"] or "*")]
            values = [_value(job, row["field"], observed) for job in task_jobs]
        our_values = sorted({*map(_text, _flat(values))}, key=_order)
        state = INCOMPARABLE if row["reason"] else EQUAL if _is_equal(row["published"], our_values) else DIFFERENT
        fields = {name: row[name] for name in ("table", "task", "setting", "published")}
        yield fields | {"here": "; ".join(our_values), "state": state, "reason": row["reason"]}


def _jobs_of_source(request: Request, source: str) -> list[Job]:
    """The jobs, with one seed, whose settings are compared with the published settings of one ``source``.

    ``source`` is the id of an item of the paper, or a profile of language models and the rows to train, joined by "; ".
    """
    name, *rows = source.split("; ")
    if name not in find_suite("language").Profile.names():
        return jobs_of(replace(request, item=request.paper.item(name), profile="full", seeds="0"))
    grid = Grid(tuple(map(row_of, rows)), profile=name, tasks=("language_model",), seeds=(0,), budget="paper")
    return prepare(grid, ExperimentOptions(request.device, request.results, is_plan=True)).jobs


def _value(job: Job, field: str, observed: ObservedSettings) -> Any:
    """The value of a field of a job such as ``training.epochs``, ``setting.seq_len`` or ``observed.optimizer``."""
    section, name = field.split(".")
    if section == "observed":
        return observed.value(job, name)
    owner = getattr(job, section)
    return owner[name] if isinstance(owner, dict) else getattr(owner, name)


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        yield from value if isinstance(value, list) else [value]


def _is_equal(published: str, our_values: list[str]) -> bool:
    """True if ``published`` has the same values as ours, or is a range such as ``1 to 4`` that contains all of ours."""
    low, _, high = published.partition(" to ")
    if high:
        return bool(our_values) and all(float(low) <= float(value) <= float(high) for value in our_values)
    return our_values == sorted({*map(_text, published.split("; "))}, key=_order)


def _text(value: Any) -> str:
    """The value as text. Equal numbers have equal texts: ``0.0006`` for 6.0e-4."""
    try:
        return f"{float(value):.12g}"
    except ValueError:
        return str(value)


def _order(text: str) -> tuple[float, str]:
    try:
        return float(text), ""
    except ValueError:
        return 0.0, text


def _listing(request: Request, rows: list[dict[str, Any]]) -> Listing:
    from madbench.analysis.rendering import Listing

    lines: list[list[str]] = []
    for heading, of_table in itertools.groupby(rows, lambda row: ", ".join(filter(None, [row["table"], row["task"]]))):
        lines.append([heading, "", ""])
        for row in of_table:
            our_text = f"{row['here']} ({row['state']})" if row["here"] else row["state"]
            lines.append([f"  {row['setting']}", row["published"], "the same" if row["state"] == EQUAL else our_text])
    caption = (
        f"{request.item.place} of {request.paper.title}: the paper's settings, and those of --profile full, the same"
        " for every label and task of an item, of profiles and of the code, read where they take effect."
    )
    by_reason: dict[str, list[str]] = {}
    for row in rows:
        if row["reason"]:
            by_reason.setdefault(row["reason"], []).append(f"{row['setting']} of {row['table']}")
    if by_reason:
        reasons = (f"{', '.join(names)}: {reason}" for reason, names in by_reason.items())
        caption += f" Not comparable: {'; '.join(reasons)}."
    headings, notes = ["Setting", "Paper", "Here"], ""
    return Listing(rows, headings, lines, rows, caption, notes, f"tab:{request.item.id}")
