"""A paper's settings beside those of the jobs that its items plan at its own size, of presets, and of the code.

``settings.csv`` beside the paper has a line a ``setting`` of a ``table``, maybe of one ``task``: the value that is
``published``, and the ``field`` that has it here, of the jobs of the item that is its ``source`` (``training.epochs``),
of the preset that is (``model.d_model``), or, from the source ``code``, a name (``madbench.models.blocks:INIT_STD``).
Without a field the line says what stands ``here``, which is not compared.
"""

from __future__ import annotations

import csv
import functools
import itertools
import operator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from madbench.config import PRESETS, read_yaml
from madbench.labels import parse
from madbench.labels.plugins import resolve
from madbench.papers.making import REPRODUCED, Made, PlainMeasure, Request, jobs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results
    from madbench.jobs import Job

SETTINGS = "settings.csv"
"""The published settings, beside the paper."""
CODE = "code"
"""The source of settings that are in no job."""
ANSWERS = {False: "No", True: "Yes"}


class SettingsMeasure(PlainMeasure):
    """Compares the published settings with what stands here; nothing is trained."""

    def decide(self, request: Request, results: Results | None) -> Made:
        rows = list(compared(request))
        verdicts, remarks = {}, {}
        for table in dict.fromkeys(row["table"] for row in rows):
            statement = f"{table}: the same settings here"
            differing = [row["setting"] for row in rows if row["table"] == table and row["is_equal"] is False]
            verdicts[statement] = "not reproduced" if differing else REPRODUCED
            if differing:
                remarks[statement] = f"differs in {', '.join(differing)}"
        return Made([_listing(request, rows)], verdicts, {"settings": rows}, (), remarks)


def compared(request: Request) -> Iterator[dict[str, Any]]:
    """A row a published setting, with what stands here; ``is_equal`` is None where no field of a job has it."""
    jobs: dict[str, list[Job]] = {}
    with open(request.paper.folder / SETTINGS, newline="", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    for row in published:
        values, source = [], row["source"]
        preset = PRESETS / f"{source}.yaml"
        if row["field"] and source == CODE:
            values = [_text(resolve(row["field"]))]
        elif row["field"] and preset.exists():
            values = [_text(functools.reduce(operator.getitem, row["field"].split("."), read_yaml(preset)))]
        elif row["field"]:
            if source not in jobs:
                item = request.paper.item(source)
                jobs[source] = jobs_of(replace(request, item=item, profile="full", seeds="0"))
            own = [job for job in jobs[source] if row["task"] in ("", job.task)]
            values = sorted({_text(_value(job, row["field"])) for job in own}, key=_order)
        is_equal = values == sorted(map(_text, row["published"].split()), key=_order) if row["field"] else None
        named = {name: row[name] for name in ("table", "task", "setting", "published")}
        yield named | {"here": " ".join(values) or row["here"], "is_equal": is_equal}


def _value(job: Job, field: str) -> Any:
    """The value of a field such as ``training.epochs``, ``setting.seq_len`` or ``label.rope``."""
    section, name = field.split(".")
    if section == "label":
        return ANSWERS[getattr(parse(job.label), name)]
    if field == "mixer.qk_rank":
        return job.mixer[name] or job.model.d_model
    owner = getattr(job, section)
    return owner[name] if isinstance(owner, dict) else getattr(owner, name)


def _text(value: Any) -> str:
    """One text for equal numbers: ``0.0006`` for 6.0e-4."""
    try:
        return f"{float(value):g}"
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
            here = "the same" if row["is_equal"] else row["here"]
            lines.append([f"  {row['setting']}", row["published"], here])
    caption = (
        f"{request.item.place} of {request.paper.title}: the paper's settings, and those of --profile full, the same"
        " for every label and task of an item, of presets and of the code."
    )
    headings, notes = ["Setting", "Paper", "Here"], ""
    return Listing(rows, headings, lines, rows, caption, notes, f"tab:{request.item.id}")
