"""``madbench ls``: list labels, sets, tasks, profiles, families, runs and sweeps."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from rich.cells import cell_len
from rich.console import Console

from madbench.cli.ls.listings import ListRows, listings, overview
from madbench.cli.ls.sweeps import print_sweeps
from madbench.cli.shared.options import RESULTS
from madbench.cli.shared.print_options import FormatOption
from madbench.cli.shared.printing import PLAIN, print_json, print_lines, table_lines
from madbench.config import short_repr
from madbench.config.options import argument, option
from madbench.errors import ConfigError, did_you_mean, no_effect
from madbench.labels.names import display_name, typed_label
from madbench.store.results_folder import training_command
from madbench.suites import Suite, find_suite, main_suite, suites

KIND_ALIASES = {"sets": "variants"}
"""Other words that ``madbench ls`` accepts for a kind, such as ``sets`` for ``variants``."""


def ls(
    kind: Annotated[
        str | None,
        argument(
            "KIND",
            "labels, variants (sets), operators, suites, tasks, profiles, families, modules, papers, runs or sweeps.",
        ),
    ] = None,
    specs: Annotated[
        list[str] | None,
        argument(
            "LABEL|SUITE|KEY=VALUE",
            "For labels and runs: which ones; KEY=VALUE chooses runs with this change. For profiles: which suites.",
            show_default="@table1 of labels, all runs, all suites",
        ),
    ] = None,
    results: Annotated[
        Path | None, option("For runs and sweeps: folder of the run store.", show_default=str(RESULTS))
    ] = None,
    watch: Annotated[bool, option("For sweeps: refresh every second until all finish.", "--watch")] = False,
    format: FormatOption = "terminal",
) -> None:
    """List labels, operators, tasks, profiles, runs and sweeps.

    Sets of labels are also looked up in the folder variants of the current
    folder; tasks and families also in installed packages.

    ls sweeps shows each running sweep and the last three finished ones: jobs
    done, rate, time left, running jobs, and failed jobs with the reason. It works
    from another terminal or machine. To resume a killed sweep repeat its command.
    The verbs run, lm and sweep write their progress to RESULTS/sweeps.

    [bold]Examples[/bold]

      madbench ls                           an overview
      madbench ls labels                    the 33 labels of the paper
      madbench ls labels '~R-cg-q-12o'      a label and its one-factor neighbors
      madbench ls operators                 published layers, such as KDA
      madbench ls profiles                  sizes and schedules, suite by suite
      madbench ls profiles mad              and what KEY=VALUE changes in MAD
      madbench ls runs R-c training.epochs=20
      madbench ls runs -f json               all of each run except its curve
      madbench ls sweeps --results /data/runs --watch
    """
    as_json = format == "json"
    kinds, kind = listings(), kind and KIND_ALIASES.get(kind, kind)
    _check_options(kind, specs, results, watch)
    if kind == "sweeps":
        print_sweeps(results or RESULTS, watch, as_json)
        return
    rows_of, _, caption = kinds[kind] if kind else (overview, "", "madbench ls KIND lists one of these")
    arguments: dict[str | None, list[Any]] = {
        "labels": [specs or ["@table1"]],
        "profiles": [specs or []],
        "runs": [results, specs or []],
        None: [results],
    }
    rows = rows_of(*arguments.get(kind, []))
    console = Console(highlight=False)
    if as_json:
        print_json(rows)
    elif kind == "runs" and not rows:
        folder = results or RESULTS
        which_runs = " of these labels and changes" if specs else f"; {training_command(folder)} makes some"
        console.print(f"no runs in {folder}{which_runs}", **PLAIN)
    elif kind == "runs":
        _print_runs(console, rows)
    elif kind == "profiles":
        _print_profiles(console, rows, has_keys=bool(specs))
    else:
        _print_rows(console, rows, caption, is_of_families=kind == "families")


def _check_options(kind: str | None, specs: list[str] | None, results: Path | None, watch: bool) -> None:
    """Raise ``ConfigError`` for an unknown kind, and for an argument or option that has no effect on the kind."""
    kinds = listings()
    if kind is not None and kind not in kinds:
        raise ConfigError(f"ls: unknown kind {short_repr(kind)}{did_you_mean(kind, kinds, 'madbench ls')}")
    if specs and kind not in ("labels", "profiles", "runs"):
        raise no_effect(
            f"ls {kind}: {short_repr(specs[0])}", because="only labels, profiles and runs are selected by name"
        )
    if results is not None and kind not in (None, "runs", "sweeps"):
        raise no_effect(f"ls {kind}: --results", because="only runs and sweeps are in a results folder")
    if watch and kind != "sweeps":
        raise ConfigError("--watch has an effect only on sweeps: madbench ls sweeps --watch")


def _print_rows(console: Console, rows: ListRows, caption: str, is_of_families: bool) -> None:
    """Print a table of rows with the same columns, and below it the problems of the rows that cannot be loaded.

    The settings of families are a second table.
    """
    sound = [row for row in rows if "problem" not in row]
    if is_of_families:
        settings = [{"family": row["family"], "settings": row.pop("settings") or "none"} for row in sound]
    numbers = [name for name in sound[0] if any(isinstance(row[name], (int, float)) for row in sound)]
    cells = [row | ({"label": display_name(row["label"])} if "label" in row else {}) for row in sound]
    print_lines(console, table_lines(cells, numbers, console.width))
    console.print(caption, style="table.caption")
    if is_of_families:
        console.print("\nWhat KEY can be in model.KEY=VALUE:\n")
        print_lines(console, table_lines(settings, width=console.width))
    for row in rows[len(sound) :]:
        console.print(f"broken: {row['problem']}", **PLAIN)


def _print_profiles(console: Console, rows: ListRows, has_keys: bool) -> None:
    """Print one table of profiles per suite, with the description of a profile below its row.

    With ``has_keys`` also print the settings that can be changed.
    """
    for i, (name, of_suite) in enumerate(itertools.groupby(rows, key=lambda row: row["suite"])):
        suite = find_suite(name)
        cells = [{key: value for key, value in row.items() if key != "suite"} for row in of_suite]
        console.print(end="\n" if i else "")
        console.print(f"{suite.title} (suite {name})", style="bold", **PLAIN)
        descriptions = [str(row.pop("description")) for row in cells]
        numbers = [key for key in cells[0] if any(isinstance(row[key], (int, float)) for row in cells)]
        heading, rule, *lines = table_lines(cells, numbers)
        texts = [textwrap.fill(text, max(20, console.width - 2), break_on_hyphens=False) for text in descriptions]
        print_lines(console, [heading, rule])
        for line, text in zip(lines, texts):
            console.out(line, style="bold", highlight=False)
            console.print(textwrap.indent(text, "  "), **PLAIN)
        console.print(suite.profiles_note, style="table.caption")
        if has_keys:
            verb = "run" if suite is main_suite() else f"run -t {','.join(suite.tasks()[:1])}"
            print_keys(console, suite, verb)
    if not has_keys:
        console.print("\nmadbench ls profiles SUITE: every KEY=VALUE that changes its profiles", **PLAIN)


def print_keys(console: Console, suite: Suite, verb: str) -> None:
    """Print the settings that KEY=VALUE can change in profiles of a suite. ``verb`` is the command that takes them."""
    keys = suite.Profile.docs()
    example = "model.d_model=96" if "model.d_model" in keys else "training.steps=500"
    console.print(f"\nWhat KEY=VALUE can change in madbench {verb}, for example {example}:\n")
    rows = [{"KEY": key, "what it is": text} for key, text in keys.items()]
    print_lines(console, table_lines(rows, width=console.width))


def _print_runs(console: Console, rows: ListRows) -> None:
    """Print the runs, and below them the libraries that computed matrix products on a CPU."""
    cells_of_runs = []
    have_other_code = any(row["code"] for row in rows)
    for row in rows:
        training, metrics, details = row["training"], row["metrics"], row["details"]
        speed = details.get("steps_per_second")
        if not speed and details.get("steps") and details.get("seconds"):
            speed = details["steps"] / details["seconds"]
        line = {"label": typed_label(row["label"]), "task": row["task"], "setting": row["setting_change"]}
        line |= {"lr": f"{training['learning_rate']:g}", "wd": f"{training['weight_decay']:g}"}
        line |= {"seed": row["seed"], "status": row["status"]}
        suite = suites().get(row["suite"])
        line["result"] = (suite and suite.shown_metric.text(metrics, is_named=True)) or None
        line |= {"steps/s": None if speed is None else f"{speed:.1f}"}
        line |= {"code": row["code"] or None} if have_other_code else {}
        cells_of_runs.append(line | {"folder": row["folder"]})
    _print_run_lines(console, cells_of_runs)
    libraries = dict.fromkeys(row["details"]["products"] for row in rows if "products" in row["details"])
    if libraries:
        console.print(f"matrix products on a CPU: {'; '.join([*libraries][:3])}", **PLAIN)


def _print_run_lines(console: Console, cells_of_runs: Sequence[dict[str, Any]]) -> None:
    """Print one line per run. If the terminal is too narrow, print three lines per run, with the folder in the last."""
    lines = table_lines(cells_of_runs, right=("lr", "wd", "seed", "result", "steps/s"))
    if cell_len(lines[0]) <= console.width:
        print_lines(console, lines)
        return
    for line in cells_of_runs:
        label, task, setting, *cells, folder = line.items()
        console.print("  ".join(value for _, value in (label, task, setting)), style="bold", **PLAIN)
        console.print("  " + "  ".join(f"{name} {value}" for name, value in cells if value is not None), **PLAIN)
        console.print(f"  {folder[1]}", style="dim", **PLAIN)
