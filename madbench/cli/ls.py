from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import RESULTS, JsonOption

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from madbench.jobs import Job
    from madbench.runs import Run, Store

KINDS = ("labels", "variants", "tasks", "profiles", "families", "runs")
WIDEST = 1000  # columns of a terminal in which every table fits


def ls(
    kind: Annotated[str | None, typer.Argument(metavar="[KIND]", help=f"{', '.join(KINDS)}.")] = None,
    specs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[LABEL]", help="For labels: which ones.", show_default="@table1"),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="For runs: folder of the run store.", show_default=str(RESULTS))
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what there is: labels, sets of labels, tasks, profiles, families of labels, stored runs.

    [bold]Examples[/bold]

      madbench ls                           an overview
      madbench ls labels                    the 33 labels of the paper
      madbench ls labels '~R-cg-q-12o'      a label and its one-factor neighbours
      madbench ls profiles                  and every KEY=VALUE of madbench run
      madbench ls runs --results elsewhere
      madbench ls runs --json               everything about each run but its curve
    """
    import json
    import sys

    from rich.console import Console

    from madbench.errors import ConfigError, did_you_mean

    if kind is not None and kind not in KINDS:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, KINDS)}")
    if specs and kind != "labels":
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    console = Console(highlight=False)
    if kind == "runs":
        store, runs = _stored(results)
        named = _named_settings()
        rows = [_run_row(run, named) for run in runs]
        for problem in store.problems if store else ():
            print(f"warning: {problem}", file=sys.stderr)
        shown = _runs(rows, console) if rows else f"no runs in {results or RESULTS}; madbench run G-cg-q-12o makes some"
    elif kind == "labels":
        rows = _label_rows(specs or ["@table1"])
        shown = _table(rows, right=("published",), caption="published: MAD average of the paper's Table 1, in percent")
    elif kind == "variants":
        rows = _variant_rows()
        shown = _table(rows, right=("labels",), caption="madbench ls labels @NAME lists one; any command takes @NAME")
    elif kind == "tasks":
        rows = _task_rows()
        shown = _table(rows, right=("settings",), caption="madbench data TASK shows examples")
    elif kind == "profiles":
        rows = _profile_rows()
        shown = _profiles(rows)
    elif kind == "families":
        rows = _family_rows()
        shown = _table(rows, right=("labels",))
    else:
        rows = _overview_rows(results)
        shown = _table(rows, right=("count",), caption="madbench ls KIND lists one of these; madbench ls --help says more")
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        console.print(shown)


def _table(rows: list[dict[str, Any]], right: tuple[str, ...] = (), caption: str | None = None) -> RenderableType:
    """One column a key; the last one takes what is left of the width and folds."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 0), caption=caption, caption_justify="left"
    )
    names = list(rows[0])
    for name in names:
        last = name == names[-1]
        table.add_column(name, justify="right" if name in right else "left", no_wrap=not last, overflow="fold")
    for row in rows:
        table.add_row(*(Text("-" if value is None else f"{value}") for value in row.values()))
    return table


def _label_rows(specs: list[str]) -> list[dict[str, Any]]:
    from madbench.analysis.scores import MAD_AVERAGE, published_scores
    from madbench.labels import Variant, expand, explain, parse

    rows = []
    for label in expand(specs):
        variant = parse(label)
        names = [row.name for row in explain(variant)] if isinstance(variant, Variant) else [variant.family]
        published = published_scores().get(label, {}).get(MAD_AVERAGE)
        rows.append({"label": label, "published": published, "meaning": ", ".join(names)})
    return rows


def _variant_rows() -> list[dict[str, Any]]:
    from madbench.config import from_mapping, read_yaml
    from madbench.labels import LabelSet, available_sets, expand

    rows = []
    for name, path in available_sets().items():
        content = from_mapping(LabelSet, read_yaml(path), str(path))
        rows.append({"set": f"@{name}", "labels": len(expand([f"@{name}"])), "description": content.description.strip()})
    return rows


def _task_rows() -> list[dict[str, Any]]:
    from madbench.tasks import TASK_NAMES, load_task

    files = {name: load_task(name) for name in TASK_NAMES}
    return [
        {"task": name, "settings": len(file.settings), "description": file.description} for name, file in files.items()
    ]


def _profile_rows() -> list[dict[str, Any]]:
    from madbench.sweeps.plan import task_settings
    from madbench.sweeps.profile import load_profile, profile_names
    from madbench.tasks import TASK_NAMES

    rows = []
    for name in profile_names():
        profile = load_profile(name)
        settings = sum(len(task_settings(task, profile)) for task in TASK_NAMES)
        runs = settings * len(profile.learning_rates) * len(profile.weight_decays)
        rows.append(
            {
                "profile": name,
                "runs": runs,
                "paper": "comparable" if profile.comparable_with_paper else "not comparable",
                "description": " ".join(profile.description.split()),
            }
        )
    return rows


def _profiles(rows: list[dict[str, Any]]) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from madbench.sweeps.profile import override_docs

    keys = [{"KEY": key, "what it is": sentence} for key, sentence in override_docs().items()]
    title = Text("\nWhat KEY=VALUE can change in madbench run, for example training.epochs=20:\n")
    return Group(_table(rows, right=("runs",), caption="runs: for one label and one seed"), title, _table(keys))


def _family_rows() -> list[dict[str, Any]]:
    from madbench.labels import all_labels, families

    grammar = {"family": "S/R/G", "labels": len(all_labels()), "description": "HyperMLP's letters, such as G-cg-q-12o"}
    installed = [
        {"family": name, "labels": None, "description": f"labels begin with {name}:"} for name in families()
    ]
    return [grammar, *installed]


def _overview_rows(results: Path | None) -> list[dict[str, Any]]:
    from madbench.labels import all_labels, available_sets, families
    from madbench.sweeps.profile import profile_names
    from madbench.tasks import TASK_NAMES

    _, runs = _stored(results)
    sets, profiles = available_sets(), profile_names()
    rows = {
        "labels": (len(all_labels()), "labels of the S/R/G grammar; ls labels lists the paper's 33"),
        "variants": (len(sets), f"sets of labels: {', '.join(f'@{name}' for name in sets)}"),
        "tasks": (len(TASK_NAMES), f"MAD tasks: {', '.join(TASK_NAMES)}"),
        "profiles": (len(profiles), f"sizes and schedules of an experiment: {', '.join(profiles)}"),
        "families": (1 + len(families()), f"kinds of label: {', '.join(['S/R/G', *families()])}"),
        "runs": (len(runs), f"stored runs in {results or RESULTS}"),
    }
    return [{"kind": kind, "count": count, "what": what} for kind, (count, what) in rows.items()]


def _stored(results: Path | None) -> tuple[Store | None, list[Run]]:
    """The readable runs, by label and task. The default folder may not be there yet; one that was named has to be."""
    from madbench.runs import Store

    if results is None and not (RESULTS / "runs").exists():
        return None, []
    store = Store.open(results or RESULTS, create=False)
    runs = sorted(store.runs(with_curves=False), key=lambda run: (run.job.label, run.job.task, run.job.seed))
    return store, runs


def _run_row(run: Run, named: dict[str, dict[str, dict[str, Any]]]) -> dict[str, Any]:
    """A run as JSON has it: what is not a finite number is null."""
    import math

    job, record = run.job, run.record
    metrics = {name: value if math.isfinite(value) else None for name, value in record.metrics.items()}
    return {
        **job.to_dict(),
        "setting_change": _change(job, named),
        "status": record.status,
        "metrics": metrics,
        "details": record.details,
        "error": record.error,
        "folder": str(run.folder),
    }


def _change(job: Job, named: dict[str, dict[str, dict[str, Any]]]) -> str:
    """The name of the job's setting, or the fields that differ from the baseline."""
    of_task = named.get(job.task, {"baseline": {}})
    for name, setting in of_task.items():
        if setting == job.setting:
            return name
    return " ".join(f"{key}={value}" for key, value in job.setting.items() if of_task["baseline"].get(key) != value)


def _named_settings() -> dict[str, dict[str, dict[str, Any]]]:
    """The settings that have a name, by task: ``baseline``, and those of the profiles with one setting a task."""
    import dataclasses

    from madbench.sweeps.plan import task_settings
    from madbench.sweeps.profile import load_profile, profile_names
    from madbench.tasks import TASK_NAMES, load_task

    named = {task: {"baseline": dataclasses.asdict(load_task(task).baseline)} for task in TASK_NAMES}
    for name in profile_names():
        profile = load_profile(name)
        if profile.difficulty == "baseline":
            for task in TASK_NAMES:
                named[task].setdefault(name, task_settings(task, profile)[0])
    return named


def _runs(rows: list[dict[str, Any]], console: Console) -> RenderableType:
    """A line a run where the terminal is wide enough for that, else two."""
    from rich.console import Group
    from rich.measure import Measurement
    from rich.text import Text

    table = _table([_run_columns(row) for row in rows], right=("lr", "wd", "seed", "acc", "steps/s"))
    if Measurement.get(console, console.options.update(width=WIDEST), table).maximum <= console.width:
        return table
    lines = []
    for row in rows:
        shown = _run_columns(row)
        lines.append(Text(f"{shown.pop('label')}  {shown.pop('task')}  {shown.pop('setting')}", "bold"))
        folder = shown.pop("folder")
        lines.append(Text("  " + "  ".join(f"{name} {value}" for name, value in shown.items() if value is not None)))
        lines.append(Text(f"  {folder}", "dim", overflow="fold"))
    return Group(*lines)


def _run_columns(row: dict[str, Any]) -> dict[str, Any]:
    accuracy, speed = row["metrics"].get("accuracy"), row["details"].get("steps_per_second")
    return {
        "label": row["label"],
        "task": row["task"],
        "setting": row["setting_change"],
        "lr": f"{row['training']['learning_rate']:g}",
        "wd": f"{row['training']['weight_decay']:g}",
        "seed": row["seed"],
        "status": row["status"],
        "acc": None if accuracy is None else f"{accuracy:.3f}",
        "steps/s": None if speed is None else f"{speed:.1f}",
        "folder": row["folder"],
    }


def add_to(app: typer.Typer) -> None:
    app.command()(ls)
