from __future__ import annotations

import csv
import inspect
import math
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from rich.cells import cell_len
from rich.console import Console

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
    unreadable,
)
from madbench.mixers.my import sources
from madbench.papers import loaded_papers
from madbench.store.runs import Run
from madbench.suites import Suite, broken_suites, main_suite, suites
from madbench.suites.profile import field_names
from madbench.tasks import broken_tasks, loaded_tasks

Rows = list[dict[str, Any]]


def ls(
    kind: argument(
        str | None,
        "KIND",
        "labels, variants, suites, tasks, profiles, presets, families, modules, papers, runs, or a suite's profiles.",
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
    """List what there is: labels, sets of labels, suites, tasks, profiles, families of labels, stored runs.

    Sets of labels are also looked up in the folder variants of the current
    folder; tasks and families also in installed packages.

    [bold]Examples[/bold]

      madbench ls                           an overview
      madbench ls labels                    the 33 labels of the paper
      madbench ls labels '~R-cg-q-12o'      a label and its one-factor neighbours
      madbench ls profiles                  and every KEY=VALUE of madbench run
      madbench ls presets                   and those of language models
      madbench ls interactions              and those of interacting agents
      madbench ls runs R-c training.epochs=20
      madbench ls runs --json               all of each run but its curve
    """
    kinds = listings()
    if kind is not None and kind not in kinds:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, kinds)}")
    if specs and kind not in ("labels", "runs"):
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels and runs are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    rows_of, _, caption = kinds[kind] if kind else (_overview, "", "madbench ls KIND lists one of these")
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
    if suite := {one.listing: one for one in suites().values()}.get(kind):
        verb = "run" if suite is main_suite() else f"run -t {','.join(suite.tasks()[:1])}"
        print_keys(console, suite, verb)


def print_keys(console: Console, suite: Suite, verb: str) -> None:
    """Prints what KEY=VALUE can change in the profiles of a suite."""
    keys = suite.Profile.docs()
    example = "model.d_model=96" if "model.d_model" in keys else "training.steps=500"
    console.print(f"\nWhat KEY=VALUE can change in madbench {verb}, for example {example}:\n")
    rows = [{"KEY": key, "what it is": text} for key, text in keys.items()]
    print_lines(console, table_lines(rows, width=console.width))


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
    rows, files = [], loaded_tasks()
    for suite in suites().values():
        for name in suite.tasks():
            if name in files:
                about = {"settings": len(files[name].settings), "description": _line(files[name].description)}
            elif name not in broken_tasks():
                about = {"settings": None, "description": suite.about_task(name)}
            else:
                continue
            rows.append({"task": name, "suite": suite.name} | about)
    return _with_broken(rows, broken_tasks())


def _profiles(suite: Suite) -> Rows:
    rows = []
    for name in suite.Profile.names():
        profile = suite.Profile.load(name)
        paper = "comparable" if profile.comparable_with_paper else "not comparable"
        about = {suite.Profile.noun.split()[-1]: name}
        for key, value in suite.about_profile(profile).items():
            about[key] = quantity(value) if isinstance(value, int) and value > 99_999 else value
        rows.append(about | {"paper": paper, "description": _line(profile.description)})
    return rows


def _suites() -> Rows:
    rows = []
    for suite in suites().values():
        about = {"suite": suite.name, "title": suite.title, "from": type(suite).__module__.partition(".")[0]}
        rows.append(about | {"tasks": len(suite.tasks()), "profiles": ", ".join(suite.Profile.names())})
    return _with_broken(rows, broken_suites())


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


def _modules() -> Rows:
    places, broken = sources.places(), sources.broken_modules()
    rows = [
        {"module": name, "label": f"my:{name}", "class": path, "from": place}
        for name, (path, place) in places.items()
        if name not in broken
    ]
    return _with_broken(rows, broken)


def _papers() -> Rows:
    papers, broken = loaded_papers()
    rows = [{"paper": name, "items": len(paper.items), "title": paper.title} for name, paper in papers.items()]
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
    suite = suites().get(job.suite)
    if suite is None or unreadable(job.label) or job.task in broken_tasks() or job.task not in suite.tasks():
        return [f"{key}={value}" for key, value in job.setting.items()]
    return suite.job_setting(job)


def _print_runs(console: Console, rows: Rows) -> None:
    """Prints a line a run where the terminal is wide enough for that, else two and its folder."""
    shown = []
    for row in rows:
        training, metrics, details = row["training"], row["metrics"], row["details"]
        speed = details.get("steps_per_second")
        if not speed and details.get("seconds"):
            speed = details["steps"] / details["seconds"]
        line = {"label": row["label"], "task": row["task"], "setting": row["setting_change"]}
        line |= {"lr": f"{training['learning_rate']:g}", "wd": f"{training['weight_decay']:g}"}
        line |= {"seed": row["seed"], "status": row["status"]}
        suite = suites().get(row["suite"])
        line["result"] = (suite and suite.result(metrics, in_list=True)) or None
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


def listings() -> dict[str, tuple[Callable[..., Rows], str, str]]:
    """By kind: what lists it, what the overview calls it, and what stands below the list."""
    profiles = {
        one.listing: (partial(_profiles, one), f"sizes and schedules: {one.title}", one.profiles_note)
        for one in suites().values()
    }
    return {
        "labels": (_labels, "labels of S/R/G; ls labels lists the paper's 33", _PUBLISHED),
        "variants": (_variants, "sets of labels", "madbench ls labels @NAME lists one; any command takes @NAME"),
        "suites": (_suites, "ways to train and judge a label", "-t TASK chooses; madbench ls tasks"),
        "tasks": (_tasks, "tasks", "madbench data TASK shows examples of token tasks"),
        **profiles,
        "families": (_families, "families of labels", _SYNTAX),
        "modules": (_modules, "modules of your own", "any torch.nn.Module in a file is my:FILE.CLASS without an entry"),
        "papers": (_papers, "papers", "madbench paper PAPER lists what one holds"),
        "runs": (_runs, "stored runs", ""),
    }


def _overview(results: Path | None) -> Rows:
    found = {"labels": (len(every_label()), ""), "runs": (len(_stored(results)), f" in {results or RESULTS}")}
    rows = []
    for kind, (rows_of, what, _) in listings().items():
        if kind not in found:
            named = {next(iter(row.values())): row.get("problem") for row in rows_of()}
            names = [f"{name} (broken)" if problem else name for name, problem in named.items()]
            found[kind] = sum(not problem for problem in named.values()), f": {', '.join(names)}"
        rows.append({"kind": kind, "count": found[kind][0], "what": what + found[kind][1]})
    return rows
