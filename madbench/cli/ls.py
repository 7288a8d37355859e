from __future__ import annotations

import csv
import inspect
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console

from madbench.cli.options import RESULTS, JsonOption, argument, option
from madbench.cli.stored_runs import run_row, runs_table, stored_runs
from madbench.cli.tables import plain_table
from madbench.cli.text import quantity
from madbench.errors import ConfigError, did_you_mean

Rows = list[dict[str, Any]]


def ls(
    kind: argument(str | None, "KIND", "labels, variants, tasks, profiles, presets, families or runs.") = None,
    specs: argument(list[str] | None, "LABEL", "For labels: which ones.", show_default="@table1") = None,
    results: option(Path | None, "For runs: folder of the run store.", show_default=str(RESULTS)) = None,
    as_json: JsonOption = False,
) -> None:
    """List what there is: labels, sets of labels, tasks, profiles, presets, families of labels, stored runs.

    Sets of labels are also looked up in the folder variants of the current
    folder; tasks and families also in installed packages.

    [bold]Examples[/bold]

      madbench ls                           an overview
      madbench ls labels                    the 33 labels of the paper
      madbench ls labels '~R-cg-q-12o'      a label and its one-factor neighbours
      madbench ls profiles                  and every KEY=VALUE of madbench run
      madbench ls presets                   and every KEY=VALUE of madbench lm
      madbench ls runs --results elsewhere
      madbench ls runs --json               all of each run but its curve
    """
    from madbench.suites import LANGUAGE, MAD

    if kind is not None and kind not in LISTINGS:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, LISTINGS)}")
    if specs and kind != "labels":
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    rows_of, _, caption = LISTINGS[kind] if kind else (_overview, "", "madbench ls KIND lists one of these")
    rows = (
        rows_of(specs or ["@table1"]) if kind == "labels" else rows_of(results) if kind in (None, "runs") else rows_of()
    )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    console = Console(highlight=False)
    if kind == "runs":
        nothing = f"no runs in {results or RESULTS}; madbench run G-cg-q-12o makes some"
        console.print(runs_table(rows, console) if rows else nothing)
        return
    numbers = tuple(name for name in rows[0] if any(isinstance(row[name], (int, float)) for row in rows))
    console.print(plain_table(rows, right=numbers, caption=caption))
    if kind in ("profiles", "presets"):
        command, suite = ("madbench run", MAD) if kind == "profiles" else ("madbench lm", LANGUAGE)
        console.print(f"\nWhat KEY=VALUE can change in {command}, for example model.d_model=96:\n")
        console.print(plain_table([{"KEY": key, "what it is": text} for key, text in suite.Profile.docs().items()]))


def _labels(specs: list[str]) -> Rows:
    from madbench.config import PUBLISHED
    from madbench.labels import expand, explain, parse

    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        published = {row["label"]: float(row["mad_average"]) for row in csv.DictReader(file)}
    meaning = {label: ", ".join(row.name for row in explain(parse(label))) for label in expand(specs)}
    return [{"label": label, "published": published.get(label), "meaning": text} for label, text in meaning.items()]


def _variants() -> Rows:
    from madbench.config import from_mapping, read_yaml
    from madbench.labels import LabelSet, available_sets, expand

    sets = {name: from_mapping(LabelSet, read_yaml(path), str(path)) for name, path in available_sets().items()}
    return [
        {"set": f"@{name}", "labels": len(expand([f"@{name}"])), "description": _line(content.description)}
        for name, content in sets.items()
    ]


def _tasks() -> Rows:
    from madbench.tasks import MAD_TASKS, load_task, settings_class, task_names

    files = {name: load_task(name) for name in task_names()}
    packages = {name: settings_class(name).__module__.partition(".")[0] for name in files}
    return [
        {"task": name, "settings": len(file.settings)}
        | {"from": "MAD" if name in MAD_TASKS else packages[name], "description": _line(file.description)}
        for name, file in files.items()
    ]


def _profiles() -> Rows:
    from madbench.suites import MAD
    from madbench.tasks import MAD_TASKS

    def runs(profile: Any) -> int:
        return sum(len(profile.settings(task)) * len(profile.trainings(task, "float32")) for task in MAD_TASKS)

    profiles = {name: MAD.Profile.load(name) for name in MAD.Profile.names()}
    return [{"profile": name, "runs": runs(profile)} | _about(profile) for name, profile in profiles.items()]


def _presets() -> Rows:
    from madbench.suites import LANGUAGE

    presets = {name: LANGUAGE.Profile.load(name) for name in LANGUAGE.Profile.names()}
    return [
        {"preset": name, "tokens": quantity(preset.training["steps"] * preset.training["tokens_per_step"])}
        | {"corpus": preset.corpus or "to be named"}
        | _about(preset)
        for name, preset in presets.items()
    ]


def _about(profile: Any) -> dict[str, str]:
    paper = "comparable" if profile.comparable_with_paper else "not comparable"
    return {"paper": paper, "description": _line(profile.description)}


def _families() -> Rows:
    from madbench.config import field_docs
    from madbench.labels import families, family_of

    rows = []
    for name in families():
        family = family_of(f"{name}:" if name else "")
        about = _line((inspect.getdoc(sys.modules[type(family).__module__]) or "").partition("\n\n")[0])
        count = len(family.labels()) if hasattr(family, "labels") else None
        rows.append({"family": name or "S/R/G", "labels": count, "settings": ", ".join(field_docs(family.Settings))})
        rows[-1]["description"] = about
    return rows


def _runs(results: Path | None) -> Rows:
    store, runs = stored_runs(results)
    rows = [run_row(run) for run in runs]
    for problem in store.problems if store else ():
        print(f"warning: {problem}", file=sys.stderr)
    return rows


LISTINGS: dict[str, tuple[Callable[..., Rows], str, str]] = {
    "labels": (
        _labels,
        "labels of S/R/G; ls labels lists the paper's 33",
        "published: MAD average of the paper's Table 1, in percent",
    ),
    "variants": (_variants, "sets of labels", "madbench ls labels @NAME lists one; any command takes @NAME"),
    "tasks": (_tasks, "tasks besides language_model", "madbench data TASK shows examples"),
    "profiles": (_profiles, "sizes and schedules of an experiment", "runs: for one label and one seed"),
    "presets": (_presets, "sizes and schedules of a language model", "tokens: trained on, with one label and seed"),
    "families": (_families, "families of labels", "settings: what KEY can be after model."),
    "runs": (_runs, "stored runs", ""),
}
"""By kind: what lists it, what the overview calls it, and what stands below the list."""


def _overview(results: Path | None) -> Rows:
    from madbench.labels import all_labels, available_sets, families
    from madbench.suites import LANGUAGE, MAD
    from madbench.tasks import task_names

    names = {
        "variants": [f"@{name}" for name in available_sets()],
        "tasks": task_names(),
        "profiles": MAD.Profile.names(),
        "presets": LANGUAGE.Profile.names(),
        "families": [name or "S/R/G" for name in families()],
    }
    counts = {"labels": len(all_labels()), "runs": len(stored_runs(results)[1])}
    listed = {kind: f": {', '.join(of_kind)}" for kind, of_kind in names.items()} | {
        "runs": f" in {results or RESULTS}"
    }
    return [
        {"kind": kind, "count": counts.get(kind, len(names.get(kind, ()))), "what": what + listed.get(kind, "")}
        for kind, (_, what, _) in LISTINGS.items()
    ]


def _line(text: str) -> str:
    return " ".join(text.split())
