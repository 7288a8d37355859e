from __future__ import annotations

import csv
import inspect
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import RESULTS, JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

    from madbench.suites.profile import Profile

Rows = list[dict[str, Any]]


def ls(
    kind: Annotated[
        str | None,
        typer.Argument(metavar="KIND", help="labels, variants, tasks, profiles, presets, families, runs."),
    ] = None,
    specs: Annotated[
        list[str] | None,
        typer.Argument(metavar="LABEL", help="For labels: which ones.", show_default="@table1"),
    ] = None,
    results: Annotated[
        Path | None, typer.Option(help="For runs: folder of the run store.", show_default=str(RESULTS))
    ] = None,
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
    from rich.console import Console

    from madbench.cli.tables import plain_table
    from madbench.errors import ConfigError, did_you_mean

    if kind is not None and kind not in KINDS:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, KINDS)}")
    if specs and kind != "labels":
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    console = Console(highlight=False)
    below: RenderableType = ""
    if kind == "runs":
        from madbench.cli.stored_runs import runs_table

        rows = _runs(results)
        nothing = f"no runs in {results or RESULTS}; madbench run G-cg-q-12o makes some"
        shown = runs_table(rows, console) if rows else nothing
    elif kind is None:
        rows = _overview(results)
        shown = plain_table(rows, right=("count",), caption="madbench ls KIND lists one of these")
    else:
        listing = KINDS[kind]
        rows = listing.rows(specs or ["@table1"]) if kind == "labels" else listing.rows()
        shown = plain_table(rows, right=(listing.count,), caption=listing.caption)
        below = _keys(kind) if kind in ("profiles", "presets") else ""
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    console.print(shown)
    if below:
        console.print(below)


def _labels(specs: list[str]) -> Rows:
    from madbench.config import PUBLISHED
    from madbench.labels import expand, explain, parse

    with open(PUBLISHED / "hypermlp_table1.csv", newline="", encoding="utf-8") as file:
        published = {row["label"]: float(row["mad_average"]) for row in csv.DictReader(file)}
    return [
        {
            "label": label,
            "published": published.get(label),
            "meaning": ", ".join(row.name for row in explain(parse(label))),
        }
        for label in expand(specs)
    ]


def _variants() -> Rows:
    from madbench.config import from_mapping, read_yaml
    from madbench.labels import LabelSet, available_sets, expand

    return [
        {
            "set": f"@{name}",
            "labels": len(expand([f"@{name}"])),
            "description": from_mapping(LabelSet, read_yaml(path), str(path)).description.strip(),
        }
        for name, path in available_sets().items()
    ]


def _tasks() -> Rows:
    from madbench.tasks import MAD_TASKS, load_task, settings_class, task_names

    return [
        {
            "task": name,
            "settings": len(load_task(name).settings),
            "from": "MAD" if name in MAD_TASKS else settings_class(name).__module__.partition(".")[0],
            "description": " ".join(load_task(name).description.split()),
        }
        for name in task_names()
    ]


def _profiles() -> Rows:
    from madbench.suites import MAD
    from madbench.tasks import MAD_TASKS

    def count(profile: Profile) -> int:
        """Runs of one label and one seed."""
        return sum(len(profile.settings(task)) * len(profile.trainings(task, "float32")) for task in MAD_TASKS)

    return [
        {"profile": name, "runs": count(profile), "paper": _paper(profile), "description": _line(profile.description)}
        for name, profile in ((name, MAD.Profile.load(name)) for name in MAD.Profile.names())
    ]


def _presets() -> Rows:
    from madbench.cli.text import quantity
    from madbench.suites import LANGUAGE

    return [
        {
            "preset": name,
            "tokens": quantity(preset.training["steps"] * preset.training["tokens_per_step"]),
            "corpus": preset.corpus or "to be named",
            "paper": _paper(preset),
            "description": _line(preset.description),
        }
        for name, preset in ((name, LANGUAGE.Profile.load(name)) for name in LANGUAGE.Profile.names())
    ]


def _families() -> Rows:
    """Families with the settings of their mixers: what KEY can be after ``model.``."""
    from madbench.config import field_docs
    from madbench.labels import families, family_of

    rows = []
    for name in families():
        family = family_of(f"{name}:" if name else "")
        module = sys.modules[type(family).__module__]
        rows.append(
            {
                "family": name or "S/R/G",
                "labels": len(family.labels()) if hasattr(family, "labels") else None,
                "settings": ", ".join(field_docs(family.Settings)),
                "description": _line((inspect.getdoc(module) or "").partition("\n\n")[0]),
            }
        )
    return rows


def _runs(results: Path | None) -> Rows:
    from madbench.cli.stored_runs import run_row, stored_runs

    store, runs = stored_runs(results)
    rows = [run_row(run) for run in runs]
    for problem in store.problems if store else ():
        print(f"warning: {problem}", file=sys.stderr)
    return rows


@dataclass(frozen=True)
class Listing:
    """How one kind is listed."""

    rows: Callable[..., Rows]
    what: str
    """What the overview calls it."""
    count: str = ""
    """Its column of numbers."""
    caption: str | None = None


KINDS = {
    "labels": Listing(
        _labels,
        "labels of the S/R/G grammar; ls labels lists the paper's 33",
        "published",
        "published: MAD average of the paper's Table 1, in percent",
    ),
    "variants": Listing(
        _variants, "sets of labels", "labels", "madbench ls labels @NAME lists one; any command takes @NAME"
    ),
    "tasks": Listing(_tasks, "tasks besides language_model", "settings", "madbench data TASK shows examples"),
    "profiles": Listing(_profiles, "sizes and schedules of an experiment", "runs", "runs: for one label and one seed"),
    "presets": Listing(
        _presets, "sizes and schedules of a language model", "tokens", "tokens: trained on, with one label and seed"
    ),
    "families": Listing(_families, "families of labels", "labels", "settings: what KEY can be after model."),
    "runs": Listing(_runs, "stored runs"),
}


def _overview(results: Path | None) -> Rows:
    from madbench.cli.stored_runs import stored_runs
    from madbench.labels import all_labels, available_sets, families
    from madbench.suites import LANGUAGE, MAD
    from madbench.tasks import task_names

    _, runs = stored_runs(results)
    names = {
        "variants": [f"@{name}" for name in available_sets()],
        "tasks": task_names(),
        "profiles": MAD.Profile.names(),
        "presets": LANGUAGE.Profile.names(),
        "families": [name or "S/R/G" for name in families()],
    }
    rows = []
    for kind, listing in KINDS.items():
        listed = f": {', '.join(names[kind])}" if kind in names else f" in {results or RESULTS}" * (kind == "runs")
        count = len(runs) if kind == "runs" else len(all_labels() if kind == "labels" else names[kind])
        rows.append({"kind": kind, "count": count, "what": listing.what + listed})
    return rows


def _keys(kind: str) -> RenderableType:
    """Every key of profiles or presets that can be changed."""
    from rich.console import Group
    from rich.text import Text

    from madbench.cli.tables import plain_table
    from madbench.suites import LANGUAGE, MAD

    suite, command, example = (
        (MAD, "madbench run", "training.epochs=20")
        if kind == "profiles"
        else (LANGUAGE, "madbench lm", "training.steps=600")
    )
    keys = [{"KEY": key, "what it is": sentence} for key, sentence in suite.Profile.docs().items()]
    title = Text(f"\nWhat KEY=VALUE can change in {command}, for example {example}:\n")
    return Group(title, plain_table(keys))


def _paper(profile: Profile) -> str:
    return "comparable" if profile.comparable_with_paper else "not comparable"


def _line(text: str) -> str:
    return " ".join(text.split())


def add_to(app: typer.Typer) -> None:
    app.command()(ls)
