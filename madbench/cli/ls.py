from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import RESULTS, JsonOption

if TYPE_CHECKING:
    from rich.console import RenderableType

KINDS = ("labels", "variants", "tasks", "profiles", "presets", "families", "runs")


def ls(
    kind: Annotated[str | None, typer.Argument(metavar="KIND", help=f"{', '.join(KINDS)}.")] = None,
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

    Labels are looked up in the S/R/G grammar, sets of labels also in the
    folder variants of the current folder.

    [bold]Examples[/bold]

      madbench ls                           an overview
      madbench ls labels                    the 33 labels of the paper
      madbench ls labels '~R-cg-q-12o'      a label and its one-factor neighbours
      madbench ls profiles                  and every KEY=VALUE of madbench run
      madbench ls presets                   and every KEY=VALUE of madbench lm
      madbench ls runs --results elsewhere
      madbench ls runs --json               all of each run but its curve
    """
    import json
    import sys

    from rich.console import Console

    from madbench.cli.stored_runs import named_settings, run_row, runs_table, stored_runs
    from madbench.cli.tables import plain_table
    from madbench.errors import ConfigError, did_you_mean
    from madbench.suites.preset import preset_docs
    from madbench.suites.profile import override_docs

    if kind is not None and kind not in KINDS:
        raise ConfigError(f"ls: unknown kind {kind!r}{did_you_mean(kind, KINDS)}")
    if specs and kind != "labels":
        raise ConfigError(f"ls {kind}: {specs[0]!r} has no effect; only labels are chosen by name")
    if results is not None and kind not in (None, "runs"):
        raise ConfigError(f"ls {kind}: --results has no effect; only runs are in a results folder")

    console = Console(highlight=False)
    if kind == "runs":
        store, runs = stored_runs(results)
        named = named_settings()
        rows = [run_row(run, named) for run in runs]
        for problem in store.problems if store else ():
            print(f"warning: {problem}", file=sys.stderr)
        nothing = f"no runs in {results or RESULTS}; madbench run G-cg-q-12o makes some"
        shown = runs_table(rows, console) if rows else nothing
    elif kind == "labels":
        rows = _label_rows(specs or ["@table1"])
        caption = "published: MAD average of the paper's Table 1, in percent"
        shown = plain_table(rows, right=("published",), caption=caption)
    elif kind == "variants":
        rows = _variant_rows()
        caption = "madbench ls labels @NAME lists one; any command takes @NAME"
        shown = plain_table(rows, right=("labels",), caption=caption)
    elif kind == "tasks":
        rows = _task_rows()
        shown = plain_table(rows, right=("settings",), caption="madbench data TASK shows examples")
    elif kind == "profiles":
        rows = _profile_rows()
        shown = _with_keys(rows, override_docs(), "madbench run", "training.epochs=20", "for one label and one seed")
    elif kind == "presets":
        rows = _preset_rows()
        shown = _with_keys(
            rows, preset_docs(), "madbench lm", "training.steps=600", "trained on, with one label and seed"
        )
    elif kind == "families":
        rows = _family_rows()
        shown = plain_table(rows, right=("labels",))
    else:
        rows = _overview_rows(results)
        caption = "madbench ls KIND lists one of these; madbench ls --help says more"
        shown = plain_table(rows, right=("count",), caption=caption)
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        console.print(shown)


def _label_rows(specs: list[str]) -> list[dict[str, Any]]:
    from madbench.analysis.quantities import MAD_AVERAGE
    from madbench.analysis.scores import published_scores
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
        labels = expand([f"@{name}"])
        rows.append({"set": f"@{name}", "labels": len(labels), "description": content.description.strip()})
    return rows


def _task_rows() -> list[dict[str, Any]]:
    from madbench.tasks import TASK_NAMES, load_task

    files = {name: load_task(name) for name in TASK_NAMES}
    return [
        {"task": name, "settings": len(file.settings), "description": file.description} for name, file in files.items()
    ]


def _profile_rows() -> list[dict[str, Any]]:
    from madbench.suites.plan import task_settings
    from madbench.suites.profile import load_profile, profile_names
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


def _preset_rows() -> list[dict[str, Any]]:
    from madbench.cli.text import quantity
    from madbench.suites.preset import load_preset, preset_names

    presets = {name: load_preset(name) for name in preset_names()}
    return [
        {
            "preset": name,
            "tokens": quantity(preset.training["steps"] * preset.training["tokens_per_step"]),
            "corpus": preset.corpus or "to be named",
            "paper": "comparable" if preset.comparable_with_paper else "not comparable",
            "description": " ".join(preset.description.split()),
        }
        for name, preset in presets.items()
    ]


def _with_keys(
    rows: list[dict[str, Any]], docs: dict[str, str], command: str, example: str, counted: str
) -> RenderableType:
    """Profiles or presets, and below them every key that can be changed."""
    from rich.console import Group
    from rich.text import Text

    from madbench.cli.tables import plain_table

    count = list(rows[0])[1]
    keys = [{"KEY": key, "what it is": sentence} for key, sentence in docs.items()]
    title = Text(f"\nWhat KEY=VALUE can change in {command}, for example {example}:\n")
    return Group(plain_table(rows, right=(count,), caption=f"{count}: {counted}"), title, plain_table(keys))


def _family_rows() -> list[dict[str, Any]]:
    from madbench.labels import all_labels, families

    grammar = {"family": "S/R/G", "labels": len(all_labels()), "description": "HyperMLP's letters, such as G-cg-q-12o"}
    installed = [{"family": name, "labels": None, "description": f"labels begin with {name}:"} for name in families()]
    return [grammar, *installed]


def _overview_rows(results: Path | None) -> list[dict[str, Any]]:
    from madbench.cli.stored_runs import stored_runs
    from madbench.labels import all_labels, available_sets, families
    from madbench.suites.preset import preset_names
    from madbench.suites.profile import profile_names
    from madbench.tasks import TASK_NAMES

    _, runs = stored_runs(results)
    sets, profiles, presets = available_sets(), profile_names(), preset_names()
    rows = {
        "labels": (len(all_labels()), "labels of the S/R/G grammar; ls labels lists the paper's 33"),
        "variants": (len(sets), f"sets of labels: {', '.join(f'@{name}' for name in sets)}"),
        "tasks": (len(TASK_NAMES), f"MAD tasks: {', '.join(TASK_NAMES)}"),
        "profiles": (len(profiles), f"sizes and schedules of an experiment: {', '.join(profiles)}"),
        "presets": (len(presets), f"sizes and schedules of a language model: {', '.join(presets)}"),
        "families": (1 + len(families()), f"kinds of label: {', '.join(['S/R/G', *families()])}"),
        "runs": (len(runs), f"stored runs in {results or RESULTS}"),
    }
    return [{"kind": kind, "count": count, "what": what} for kind, (count, what) in rows.items()]


def add_to(app: typer.Typer) -> None:
    app.command()(ls)
