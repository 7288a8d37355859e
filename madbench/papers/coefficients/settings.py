"""Tables 4 to 12: the paper's settings beside those of the jobs that its items plan at its own size."""

from __future__ import annotations

import csv
import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from madbench.config import PRESETS, read_yaml
from madbench.labels import parse
from madbench.papers.making import REPRODUCED, Made, PlainMeasure, Request, jobs_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from madbench.analysis.rendering import Listing
    from madbench.analysis.scores import Results
    from madbench.jobs import Job

SETTINGS = "coefficient_dynamics_settings.csv"
"""The published settings, by the item whose jobs have them."""
PRESET = "wikitext"
"""The source of the settings of Table 3's language models, which is no item's."""
ANSWERS = {False: "No", True: "Yes"}


class SettingsMeasure(PlainMeasure):
    """Compares the published settings with the jobs of the principles and with the preset; nothing is trained."""

    def decide(self, request: Request, results: Results | None) -> Made:
        rows = list(compared(request))
        verdicts, remarks = {}, {}
        for table in dict.fromkeys(row["table"] for row in rows):
            statement = f"{table}: settings of the items at their own size"
            differing = [row["setting"] for row in rows if row["table"] == table and row["is_equal"] is False]
            verdicts[statement] = "not reproduced" if differing else REPRODUCED
            if differing:
                remarks[statement] = f"differs in {', '.join(differing)}"
        return Made([_listing(request, rows)], verdicts, {"settings": rows}, (), remarks)


def compared(request: Request) -> Iterator[dict[str, Any]]:
    """A row a published setting, with what stands here; ``is_equal`` is None where no field of a job has it."""
    jobs: dict[str, list[Job]] = {}
    preset = read_yaml(PRESETS / f"{PRESET}.yaml")
    with open(request.paper.file(SETTINGS), newline="", encoding="utf-8") as file:
        published = list(csv.DictReader(file))
    for row in published:
        values, source = [], row["source"]
        if row["field"] and source == PRESET:
            section, name = row["field"].split(".")
            values = [_text(preset[section][name])]
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
        f"{request.item.place} of {request.paper.title}: the paper's settings, and those of --profile full, the same "
        "for every label and task of an item, or of the code where they are no setting of a job."
    )
    headings, notes = ["Setting", "Paper", "Here"], ""
    return Listing(rows, headings, lines, rows, caption, notes, f"tab:{request.item.id}")
