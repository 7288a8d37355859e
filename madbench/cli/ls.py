from __future__ import annotations

import csv
import dataclasses
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console

from madbench.analysis.protocols import interaction_change, nearest_profile, shipped_profiles
from madbench.cli.options import RESULTS, JsonOption, argument, labels_and_overrides, open_stored, option, warn
from madbench.cli.printing import PLAIN, print_json, print_lines, quantity, table_lines
from madbench.config import PUBLISHED, from_mapping, read_yaml
from madbench.errors import ConfigError, did_you_mean
from madbench.jobs import Job
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
from madbench.store.runs import Run
from madbench.suites import INTERACTIONS, LANGUAGE, MAD, Suite, suite_of
from madbench.suites.base import field_names
from madbench.tasks import MAD_TASKS, broken_tasks, loaded_tasks, settings_class

Rows = list[dict[str, Any]]


def ls(
    kind: argument(
        str | None, "KIND", "labels, variants, tasks, profiles, presets, interactions, families or runs."
    ) = None,
    specs: argument(
        list[str] | None,
        "LABEL|KEY=VALUE",
        "For labels and runs: which ones; KEY=VALUE chooses runs with this change.",
        show_default="@table1 of labels, all runs",
    ) = None,
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
      madbench ls interactions              and every KEY=VALUE of its worlds
      madbench ls runs R-c training.epochs=20
      madbench ls runs --json               all of each run but its curve
    """
    if kind is not None and kind not in LISTINGS:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, LISTINGS)}")
    if specs and kind not in ("labels", "runs"):
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels and runs are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    rows_of, _, caption = LISTINGS[kind] if kind else (_overview, "", "madbench ls KIND lists one of these")
    arguments = {"labels": [specs or ["@table1"]], "runs": [results, specs or []], None: [results]}
    rows = rows_of(*arguments.get(kind, ()))
    if as_json:
        print_json(rows)
        return
    console = Console(highlight=False)
    if kind == "runs":
        if rows:
            _print_runs(console, rows)
        else:
            which = " of these labels and changes" if specs else "; madbench run G-cg-q-12o makes some"
            console.print(f"no runs in {results or RESULTS}{which}")
        return
    sound = [row for row in rows if "problem" not in row]
    if kind == "families":
        settings = [{"family": row["family"], "settings": row.pop("settings") or "none"} for row in sound]
    numbers = [name for name in sound[0] if any(isinstance(row[name], (int, float)) for row in sound)]
    print_lines(console, table_lines(sound, numbers, console.width))
    console.print(caption, style="table.caption")
    if kind == "families":
        console.print("\nWhat KEY can be in model.KEY=VALUE:\n")
        print_lines(console, table_lines(settings, width=console.width))
    for row in rows[len(sound) :]:
        console.print(f"broken: {row['problem']}", **PLAIN)
    suites = {"profiles": ("run", MAD), "presets": ("lm", LANGUAGE)}
    suites["interactions"] = "paper interactions worlds", INTERACTIONS
    if kind in suites:
        verb, suite = suites[kind]
        example = "training.steps=500" if suite is INTERACTIONS else "model.d_model=96"
        console.print(f"\nWhat KEY=VALUE can change in madbench {verb}, for example {example}:\n")
        keys = [{"KEY": key, "what it is": text} for key, text in suite.Profile.docs().items()]
        print_lines(console, table_lines(keys, width=console.width))


def _labels(specs: list[str]) -> Rows:
    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        published = {row["label"]: float(row["mad_average"]) for row in csv.DictReader(file)}
    meaning = {label: ", ".join(row.name for row in explain(parse(label))) for label in expand(specs)}
    return [{"label": label, "published": published.get(label), "meaning": text} for label, text in meaning.items()]


def _variants() -> Rows:
    sets = {name: from_mapping(LabelSet, read_yaml(path), str(path)) for name, path in available_sets().items()}
    return [
        {"set": f"@{name}", "labels": len(expand([f"@{name}"])), "description": _line(content.description)}
        for name, content in sets.items()
    ]


def _tasks() -> Rows:
    rows = []
    for name, file in loaded_tasks().items():
        package = "MAD" if name in MAD_TASKS else settings_class(name).__module__.partition(".")[0]
        about = {"from": package, "description": _line(file.description)}
        rows.append({"task": name, "settings": len(file.settings)} | about)
    return _with_broken(rows, broken_tasks())


def _profiles(suite: Suite) -> Rows:
    rows = []
    for name in suite.Profile.names():
        profile = suite.Profile.load(name)
        if suite is MAD:
            runs = sum(len(profile.settings(task)) * len(profile.trainings(task, "float32")) for task in MAD_TASKS)
            row = {"profile": name, "runs": runs}
        elif suite is INTERACTIONS:
            row = {"profile": name, "runs": len(suite.jobs((), profile))}
        else:
            tokens = quantity(profile.training["steps"] * profile.training["tokens_per_step"])
            row = {"preset": name, "tokens": tokens, "corpus": profile.corpus or "give --corpus"}
        paper = "comparable" if profile.comparable_with_paper else "not comparable"
        rows.append(row | {"paper": paper, "description": _line(profile.description)})
    return rows


def _families() -> Rows:
    rows, broken = [], broken_families()
    for name, family in loaded_families().items():
        module = sys.modules.get(type(family).__module__)  # none of a class that is made by code
        about = ((module and inspect.getdoc(module)) or "").partition("\n\n")[0]
        try:
            count = len(family.labels()) if hasattr(family, "labels") else None
        except Exception as error:  # of another package's code
            broken[name] = f"family {name!r}: its labels cannot be listed: {type(error).__name__}: {error}"
            continue
        row = {"family": name or "S/R/G", "labels": count, "settings": ", ".join(field_names(family.Settings))}
        row |= {name: getattr(family, name, None) for name in ("example", "syntax")}
        rows.append(row | {"description": _line(about)})
    return _with_broken(rows, broken)


def _with_broken(rows: Rows, broken: Mapping[str, str]) -> Rows:
    """The rows, and one with its ``problem`` for each that installed packages have besides and that is broken."""
    nothing = dict.fromkeys(rows[0])
    return rows + [nothing | {next(iter(nothing)): name, "problem": why} for name, why in broken.items()]


def _line(text: str) -> str:
    return " ".join(text.split())


def _runs(results: Path | None, words: list[str]) -> Rows:
    """The runs of these labels and changes as JSON has them: what is not a finite number is null."""
    rows, (labels, changes) = [], labels_and_overrides(words)
    labels = expand(labels)
    for run in _stored(results):
        shown = setting_change(run.job).split()
        if (labels and run.job.label not in labels) or not set(changes) <= set(shown):
            continue
        metrics = {name: value if math.isfinite(value) else None for name, value in run.record.metrics.items()}
        about = {"setting_change": setting_change(run.job), "status": run.record.status, "metrics": metrics}
        about |= {"details": run.record.details, "error": run.record.error, "folder": str(run.folder)}
        rows.append(run.job.to_dict() | about)
    return rows


def _stored(results: Path | None) -> list[Run]:
    """The readable runs, by label and task. The default folder may not be there yet; one that was named has to be."""
    if results is None and not (RESULTS / "runs").exists():
        return []
    store = open_stored(results or RESULTS)
    runs = sorted(store.runs(with_curves=False), key=lambda run: (run.job.label, run.job.task, run.job.seed))
    for problem in store.problems:
        warn(problem)
    return runs


_SETTING_CHANGES: dict[str, str] = {}


def setting_change(job: Job) -> str:
    """The named setting nearest to the job's, what it changes, and what else the job changes of a shipped profile.

    Of a language model the nearest preset and its changes; of a label or task that is not installed, or is broken, the
    whole setting.
    """
    key = repr((_family_name(job.label), job.task, job.family, job.setting, job.model, job.mixer, job.training))
    if key not in _SETTING_CHANGES:
        _SETTING_CHANGES[key] = " ".join(_setting_change(job))
    return _SETTING_CHANGES[key]


def _family_name(label: str) -> str:
    return label.partition(":")[0] if ":" in label else ""


def _setting_change(job: Job) -> list[str]:
    if suite_of(job) is INTERACTIONS:
        return interaction_change(job)
    is_known = _family_name(job.label) in loaded_families() and (
        suite_of(job) is LANGUAGE or job.task in loaded_tasks()
    )
    if not is_known:
        return [f"{key}={value}" for key, value in job.setting.items()]
    profile, changes = nearest_profile(job, most_changes=math.inf)
    if suite_of(job) is LANGUAGE:
        return [profile, *changes]
    profiles = {name: profile for name, profile in shipped_profiles(MAD).items() if profile.difficulty == "baseline"}
    named = {"baseline": dataclasses.asdict(loaded_tasks()[job.task].baseline)}
    named |= {name: profile.settings(job.task)[0] for name, profile in profiles.items()}
    settings = [
        [name, *(f"{key}={value}" for key, value in job.setting.items() if setting.get(key) != value)]
        for name, setting in named.items()
    ]
    others = [change for change in changes if not change.startswith(("tasks.", "learning_rates", "weight_decays"))]
    return [*min(settings, key=len), *others]


def _print_runs(console: Console, rows: Rows) -> None:
    """Prints a line a run where the terminal is wide enough for that, else two and its folder."""
    shown = []
    for row in rows:
        training, metrics, details = row["training"], row["metrics"], row["details"]
        speed = details.get("steps_per_second")
        if not speed and details.get("seconds"):
            speed = details["steps"] / details["seconds"]
        results = {"loss {:.3f}": "loss_l5", "acc {:.3f}": "accuracy", "mse {:.2g}": "mse"}
        line = {"label": row["label"], "task": row["task"], "setting": row["setting_change"]}
        line |= {"lr": f"{training['learning_rate']:g}", "wd": f"{training['weight_decay']:g}"}
        line |= {"seed": row["seed"], "status": row["status"]}
        found = (text.format(metrics[name]) for text, name in results.items() if metrics.get(name) is not None)
        line["result"] = next(found, None)
        shown.append(line | {"steps/s": None if speed is None else f"{speed:.1f}", "folder": row["folder"]})
    lines = table_lines(shown, right=("lr", "wd", "seed", "result", "steps/s"))
    if cell_len(lines[0]) <= console.width:
        print_lines(console, lines)
        return
    for line in shown:
        label, task, setting, *about, folder = line.items()
        console.print("  ".join(value for _, value in (label, task, setting)), style="bold", **PLAIN)
        console.print("  " + "  ".join(f"{name} {value}" for name, value in about if value is not None), **PLAIN)
        console.print(f"  {folder[1]}", style="dim", **PLAIN)


_PUBLISHED = "published: MAD average of the paper's Table 1, in percent"
_SYNTAX = "[ ]: may be absent, |: or; madbench explain EXAMPLE says what its letters mean"
_TOKENS = "tokens: trained on, with one label and seed"
LISTINGS: dict[str, tuple[Callable[..., Rows], str, str]] = {
    "labels": (_labels, "labels of S/R/G; ls labels lists the paper's 33", _PUBLISHED),
    "variants": (_variants, "sets of labels", "madbench ls labels @NAME lists one; any command takes @NAME"),
    "tasks": (_tasks, "tasks besides language_model", "madbench data TASK shows examples"),
    "profiles": (partial(_profiles, MAD), "sizes and schedules of an experiment", "runs: for one label and one seed"),
    "presets": (partial(_profiles, LANGUAGE), "sizes and schedules of a language model", _TOKENS),
    "interactions": (partial(_profiles, INTERACTIONS), "sizes of worlds of agents", "runs: for one seed"),
    "families": (_families, "families of labels", _SYNTAX),
    "runs": (_runs, "stored runs", ""),
}
"""By kind: what lists it, what the overview calls it, and what stands below the list."""


def _overview(results: Path | None) -> Rows:
    found = {"labels": (len(every_label()), ""), "runs": (len(_stored(results)), f" in {results or RESULTS}")}
    rows = []
    for kind, (rows_of, what, _) in LISTINGS.items():
        if kind not in found:
            named = {next(iter(row.values())): row.get("problem") for row in rows_of()}
            names = [f"{name} (broken)" if problem else name for name, problem in named.items()]
            found[kind] = sum(not problem for problem in named.values()), f": {', '.join(names)}"
        rows.append({"kind": kind, "count": found[kind][0], "what": what + found[kind][1]})
    return rows
