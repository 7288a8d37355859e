from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    CorpusOption,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    ProfileOption,
    ResultsOption,
    TrackOption,
    labels_and_overrides,
    parse_trackers,
    split_list,
)
from madbench.config import parse_seeds

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.experiment import Experiment
    from madbench.language_experiment import LanguageExperiment


def run(
    words: Annotated[
        list[str],
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " KEY=VALUE changes the profile."),
    ],
    profile: ProfileOption = "quick",
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", "-t", help="MAD tasks and language_model, comma-separated; all seven by default."),
    ] = None,
    corpus: CorpusOption = None,
    seeds: Annotated[str, typer.Option(help="Seeds such as 0,1,2 or 0-4; one decides init, data and order.")] = "0",
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: ResultsOption = RESULTS,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Jobs at a time; one a CPU core or one on a GPU by default.")
    ] = None,
    track: TrackOption = None,
    force: Annotated[bool, typer.Option("--force", help="Train again what the store has already.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show jobs, parameters, FLOPs and a time estimate; train nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train labels on the MAD tasks and as language models, and print the tables.

    The same command again does only what is missing. Ctrl-C keeps what is done
    and where the rest was; the same command goes on from there. madbench ls
    profiles lists what KEY can be, madbench ls presets what it can be after
    language_model, the half that --tasks names like a task.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run S-p -t language_model language_model.training.steps=600
      madbench run @table1 --profile full --device cuda --dry-run
    """
    from rich.console import Console

    from madbench.cli.tables import PLAIN
    from madbench.grid import Grid, Row
    from madbench.labels import expand
    from madbench.sweep_experiment import prepare_sweep

    labels, overrides = labels_and_overrides(words)
    asked = split_list(tasks)
    grid = Grid(
        tuple(map(Row, expand(labels))),
        tasks=asked and tuple(asked),
        seeds=tuple(parse_seeds(seeds)),
        profile=profile,
        fidelity=fidelity.value,
        counting=budget.value,
        overrides=tuple(overrides),
    )
    trackers = parse_trackers(track)
    console = Console(stderr=True)
    with console.status("opening the corpus"):
        sweep = prepare_sweep(grid, device=device, results=results, corpus=corpus)
    for note in sweep.notes:
        console.print(note, **PLAIN)
    mad = sweep.mad[0].experiment if sweep.mad else None
    language = sweep.language[0].experiment if sweep.language else None
    if dry_run:
        _print_plans(mad, language, slots, as_json, console)
    else:
        _execute(mad, language, slots, force, as_json, console, trackers)


def _execute(
    mad: Experiment | None,
    language: LanguageExperiment | None,
    slots: int | None,
    force: bool,
    as_json: bool,
    console: Console,
    track: list[str],
) -> None:
    from madbench.cli.execution import train_and_show
    from madbench.cli.lm.train import table_command as language_table_command
    from madbench.experiment import tabulate
    from madbench.language_experiment import tabulate_language

    output: dict[str, Any] = {}
    failed = {"mad": False, "language": False}
    how = {"console": console, "force": force, "as_json": as_json, "track": track, "slots": slots}
    if mad:
        output, failed["mad"] = train_and_show(mad, tabulate, _table_command(mad), **how)
    if language:
        command = language_table_command(language)
        output["language_model"], failed["language"] = train_and_show(language, tabulate_language, command, **how)
    if as_json:
        print(json.dumps(output, indent=2))
    if any(failed.values()):
        raise typer.Exit(1)


def _print_plans(
    mad: Experiment | None, language: LanguageExperiment | None, slots: int | None, as_json: bool, console: Console
) -> None:
    from madbench.cli.lm.plan import language_plan, print_language_plan
    from madbench.cli.plan import mad_plan, print_mad_plan

    output: dict[str, Any] = {}
    if mad:
        output = mad_plan(mad, slots, console)
        if not as_json:
            print_mad_plan(mad, output)
    if language:
        output["language_model"] = language_plan(language, slots, console)
        if not as_json:
            print_language_plan(language, output["language_model"])
    if as_json:
        print(json.dumps(output, indent=2))


def _table_command(experiment: Experiment) -> str:
    from madbench.tasks.registry import TASK_NAMES

    given = {
        "--profile": experiment.profile_name,
        "--fidelity": experiment.fidelity,
        "--budget": experiment.counting,
        "--results": str(experiment.results),
    }
    usual = {"--profile": "quick", "--fidelity": "corrected", "--budget": "strict", "--results": str(RESULTS)}
    options = [word for option in given.items() if option not in usual.items() for word in option]
    if len(experiment.tasks) < len(TASK_NAMES):
        options += ["--tasks", ",".join(experiment.tasks)]
    return shlex.join(["madbench", "table", *experiment.overrides, *options])


def add_to(app: typer.Typer) -> None:
    app.command()(run)
