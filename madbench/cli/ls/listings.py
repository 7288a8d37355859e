"""The rows of ``madbench ls`` for each kind, such as labels or profiles."""

from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from madbench.analysis.query import Query
from madbench.cli.shared.options import RESULTS, track_reading, warn
from madbench.cli.shared.printing import quantity
from madbench.cli.shared.words import labels_and_overrides
from madbench.config import from_mapping, read_yaml
from madbench.errors import FamilyError
from madbench.execute.journal import read_sweeps
from madbench.labels import (
    LabelSet,
    available_sets,
    broken_families,
    every_label,
    expand,
    explain,
    loaded_families,
    parse,
)
from madbench.mixers.my import sources
from madbench.papers import loaded_papers
from madbench.store.reading import Run
from madbench.suites import broken_suites, find_suite, main_suite, suites
from madbench.suites.changes import setting_change
from madbench.suites.code import run_code
from madbench.suites.profile import field_names
from madbench.suites.published import published_scores
from madbench.tasks import broken_tasks, loaded_tasks

ListRows = list[dict[str, Any]]
MOST_ENDED = 3
"""The largest number of finished sweeps that are shown."""


def _labels(specs: list[str]) -> ListRows:
    average = next(iter(main_suite().averages))
    published = {label: numbers.get(average) for label, numbers in published_scores().items()}
    meaning = {label: ", ".join(row.name for row in explain(parse(label))) for label in expand(specs)}
    return [{"label": label, "published": published.get(label), "meaning": text} for label, text in meaning.items()]


def _variants() -> ListRows:
    sets = {name: from_mapping(LabelSet, read_yaml(path), str(path)) for name, path in available_sets().items()}
    return [
        {"set": f"@{name}", "labels": len(expand([f"@{name}"])), "description": _line(content.description)}
        for name, content in sets.items()
    ]


def _tasks() -> ListRows:
    rows, files = [], loaded_tasks()
    for suite in suites().values():
        for name in suite.tasks():
            if name in files:
                columns = {"settings": len(files[name].settings), "description": _line(files[name].description)}
            elif name not in broken_tasks():
                columns = {"settings": None, "description": suite.about_task(name)}
            else:
                continue
            rows.append({"task": name, "suite": suite.name} | columns)
    return _with_broken(rows, broken_tasks())


def _profiles(names: Sequence[str] = ()) -> ListRows:
    """The profiles of the suites ``names``, by default of all suites. Raises ``ConfigError`` for an unknown suite."""
    rows = []
    for suite in [find_suite(name, "ls profiles: ") for name in names] or suites().values():
        for name in suite.Profile.names():
            profile = suite.Profile.load(name)
            paper = "comparable" if profile.comparable_with_paper else "not comparable"
            row = {"profile": name, "suite": suite.name}
            for key, value in suite.about_profile(profile).items():
                row[key] = quantity(value) if isinstance(value, int) and value > 99_999 else value
            rows.append(row | {"paper": paper, "description": _line(profile.description)})
    return rows


def _suites() -> ListRows:
    rows = []
    for suite in suites().values():
        row = {"suite": suite.name, "title": suite.title, "from": type(suite).__module__.partition(".")[0]}
        rows.append(row | {"tasks": len(suite.tasks()), "profiles": ", ".join(suite.Profile.names())})
    return _with_broken(rows, broken_suites())


def _families() -> ListRows:
    rows, broken = [], broken_families()
    for name, family in loaded_families().items():
        module = sys.modules.get(family.__module__)  # None for a class that is made by code
        of_module = ((module and inspect.getdoc(module)) or "").partition("\n\n")[0]
        try:
            count = len(family.labels()) or None
        except FamilyError as error:
            broken[name] = str(error)
            continue
        row = {"family": name or "S/R/G", "labels": count, "settings": ", ".join(field_names(family.Settings))}
        row |= {"example": family.example or None, "syntax": family.syntax or None}
        rows.append(row | {"description": family.description or _line(of_module)})
    return _with_broken(rows, broken)


def _modules() -> ListRows:
    places, broken = sources.entry_sources(), sources.broken_modules()
    rows = [
        {"module": name, "label": f"my:{name}", "class": path, "from": place}
        for name, (path, place) in places.items()
        if name not in broken
    ]
    return _with_broken(rows, broken)


def _papers() -> ListRows:
    papers, broken = loaded_papers()
    rows = [{"paper": name, "items": len(paper.items), "title": paper.title} for name, paper in papers.items()]
    return _with_broken(rows, broken)


def _with_broken(rows: ListRows, broken: Mapping[str, str]) -> ListRows:
    """The rows, and one more row for each broken extension, with the reason in the column ``problem``."""
    empty_row = dict.fromkeys(rows[0])
    return rows + [empty_row | {next(iter(empty_row)): name, "problem": reason} for name, reason in broken.items()]


def _line(text: str) -> str:
    return " ".join(text.split())


def _runs(results: Path | None, words: list[str]) -> ListRows:
    """One row per stored run, as in the JSON output. Metrics that are not finite are None.

    ``words`` are labels and overrides that choose runs. Without words: all runs.
    """
    rows = []
    for run in _stored_runs(results, words):
        metrics = {name: value if math.isfinite(value) else None for name, value in run.record.metrics.items()}
        outcome = {"setting_change": setting_change(run.job), "status": run.record.status, "metrics": metrics}
        outcome |= {"code": run_code(run.job, run.record.details).text}
        outcome |= {"details": run.record.details, "error": run.record.error, "folder": str(run.folder)}
        rows.append(run.job.to_dict() | outcome)
    return rows


def _stored_runs(results: Path | None, words: Sequence[str] = ()) -> list[Run]:
    """The stored runs. ``words`` are labels and overrides that choose runs; without words, all are returned.

    Empty if ``results`` is None and the default folder has no runs.
    """
    labels, changes = labels_and_overrides(words)
    folder = results or RESULTS
    canonical_labels = expand(labels)
    query = Query(labels=canonical_labels, overrides=changes, results=folder, track=track_reading, warn=warn)
    return query.every_run() if results is not None or (RESULTS / "runs").exists() else []


_PUBLISHED = "published: average over the MAD tasks in a paper's table, in percent"
_SYNTAX = "[ ]: optional, |: or; madbench explain EXAMPLE explains the letters"


def listings() -> dict[str, tuple[Callable[..., ListRows], str, str]]:
    """The kinds of ``madbench ls``, by name: the function for the rows, a description, and a note below the list."""
    return {
        "labels": (_labels, "labels of S/R/G; ls labels lists the paper's 33", _PUBLISHED),
        "variants": (_variants, "sets of labels", "madbench ls labels @NAME lists one; any command takes @NAME"),
        "suites": (_suites, "sets of tasks with one protocol", "-t TASK chooses; madbench ls tasks"),
        "tasks": (_tasks, "tasks", "madbench data TASK shows examples of token tasks"),
        "profiles": (
            _profiles,
            "sizes and schedules of all suites",
            "madbench ls profiles SUITE lists every KEY=VALUE",
        ),
        "families": (_families, "families of labels", _SYNTAX),
        "operators": (
            _operators,
            "published layers by name",
            "madbench explain LABEL has its equation, parameters and state",
        ),
        "modules": (
            _modules,
            "modules registered under a name",
            "any torch.nn.Module in a file is my:FILE.CLASS without an entry",
        ),
        "papers": (_papers, "papers", "madbench paper PAPER lists its items"),
        "runs": (_runs, "stored runs", ""),
        "sweeps": (_sweeps, "running sweeps and the last finished ones", ""),
    }


def _operators() -> ListRows:
    """One row per published layer whose name is a label, such as KDA."""
    rows = []
    for family in loaded_families().values():
        for title, label in family.titles.items():
            layer = next(part for part in explain(parse(label)) if part.letter == label)
            rows.append({"label": label, "layer": title, "source": layer.source})
    return rows


def _sweeps(results: Path | None) -> ListRows:
    """The sweeps that are recorded in a results folder: running ones and the last finished ones.

    The folder may be missing.
    """
    return [{"sweep": sweep["state"]} for sweep in read_sweeps(results or RESULTS, MOST_ENDED)]


def overview(results: Path | None) -> ListRows:
    """One row per kind: its name, the number of its members and, except for labels, runs and sweeps, their names."""
    where = f" in {results or RESULTS}"
    counts = {
        "labels": (len(every_label()), ""),
        "runs": (len(_stored_runs(results)), where),
        "sweeps": (len(_sweeps(results)), where),
    }
    rows = []
    for kind, (rows_of, what, _) in listings().items():
        if kind not in counts:
            problem_by_name = {next(iter(row.values())): row.get("problem") for row in rows_of()}
            names = [f"{name} (broken)" if problem else name for name, problem in problem_by_name.items()]
            counts[kind] = sum(not problem for problem in problem_by_name.values()), f": {', '.join(names)}"
        rows.append({"kind": kind, "count": counts[kind][0], "what": what + counts[kind][1]})
    return rows
