from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    Counting,
    CountingOption,
    Fidelity,
    FidelityOption,
    JsonOption,
    ProfileOption,
    ResultsOption,
    TasksOption,
    labels_and_overrides,
    parse_seeds,
    split_list,
)

if TYPE_CHECKING:
    from madbench.experiment import Experiment


def run(
    words: Annotated[
        list[str],
        typer.Argument(metavar="LABEL|KEY=VALUE", help=LABELS_HELP + " KEY=VALUE changes the profile."),
    ],
    profile: ProfileOption = "quick",
    tasks: TasksOption = None,
    seeds: Annotated[str, typer.Option(help="Seeds such as 0,1,2 or 0-4; one decides init, data and order.")] = "0",
    fidelity: FidelityOption = Fidelity.corrected,
    budget: CountingOption = Counting.strict,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    results: ResultsOption = RESULTS,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Jobs at a time; one a CPU core or one on a GPU by default.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train again what the store has already.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show jobs, parameters, FLOPs and a time estimate; train nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Train labels on the MAD tasks and print the table. The same command again does only what is missing.

    Ctrl-C keeps what is done and where the rest was; the same command goes on
    from there. madbench ls profiles lists what KEY can be.

    [bold]Examples[/bold]

      madbench run G-cg-q-12o
      madbench run R-12! R-12o! --tasks in_context_recall --seeds 0,1,2
      madbench run '{S,R,G}-c' training.epochs=20 model.d_model=32
      madbench run @table1 --profile full --device cuda --dry-run
    """
    from madbench.experiment import prepare

    labels, overrides = labels_and_overrides(words)
    experiment = prepare(
        labels,
        profile=profile,
        overrides=overrides,
        tasks=split_list(tasks),
        seeds=parse_seeds(seeds),
        fidelity=fidelity.value,
        counting=budget.value,
        device=device,
        results=results,
    )
    if dry_run:
        _print_plan(experiment, slots, as_json)
    else:
        _execute(experiment, slots, force, as_json)


def _execute(experiment: Experiment, slots: int | None, force: bool, as_json: bool) -> None:
    from rich.console import Console

    from madbench.cli.progress import RunScreen
    from madbench.cli.table import Format, print_table

    console = Console(stderr=True)
    plain = {"markup": False, "highlight": False, "soft_wrap": True}
    screen = RunScreen(experiment, console)
    try:
        with screen:
            summary = experiment.execute(screen.on_event, slots, force)
    except KeyboardInterrupt:
        rest = "what was not done again keeps its earlier result" if force else "the same command goes on from here"
        console.print(f"stopped; finished runs are in {experiment.results}, {rest}", **plain)
        raise
    print_table(experiment, Format.json if as_json else Format.terminal)
    console.print(f"runs: {experiment.results}/runs    again as a table: {_table_command(experiment)}", **plain)
    if summary.busy:
        console.print(f"{_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.failed:
        console.print(f"{summary.failed} of {len(experiment.jobs)} jobs failed; the same command tries them again:")
        for job, reason in screen.failures:
            console.print(f"  {job.label} {job.task} seed {job.seed}: {reason}", **plain)
        raise typer.Exit(1)


def _jobs(count: int) -> str:
    return f"{count} job{'s' * (count != 1)}"


def _table_command(experiment: Experiment) -> str:
    import shlex

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


def _print_plan(experiment: Experiment, slots: int | None, as_json: bool) -> None:
    import json

    from rich import box
    from rich.console import Console
    from rich.table import Table

    from madbench.cli.tables import print_whole
    from madbench.cli.text import duration, quantity
    from madbench.devices import default_slots
    from madbench.runs import Store
    from madbench.training.cost import estimate_seconds, job_cost

    missing = experiment.jobs
    if (experiment.results / "runs").exists():
        missing = Store.open(experiment.results, create=False).missing(experiment.jobs)
    todo = {job.id for job in missing}
    rows: dict[tuple[str, str], dict] = {}
    for job in experiment.jobs:
        cost = job_cost(job)
        row = rows.setdefault((job.label, job.task), {"jobs": 0, "todo": 0, "steps": 0, "flops": 0.0})
        row["jobs"] += 1
        row["todo"] += job.id in todo
        row["steps"] += cost.steps
        row["flops"] += cost.flops
        row["model_parameters"] = cost.model_parameters
    slots = min(slots or default_slots(experiment.device), max(1, len(missing)))
    console = Console(stderr=as_json)
    with console.status("timing a few steps of each task"):
        seconds = estimate_seconds(missing, experiment.device) / slots
    if as_json:
        cells = [{"label": label, "task": task, **row} for (label, task), row in rows.items()]
        print(json.dumps({"cells": cells, "todo": len(todo), "slots": slots, "estimated_seconds": seconds}, indent=2))
        return
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False)
    for heading in ("Label", "Task", "Jobs", "To do", "Params", "Steps", "FLOPs"):
        table.add_column(heading, justify="left" if heading in ("Label", "Task") else "right", overflow="fold")
    for (label, task), row in rows.items():
        numbers = (row["model_parameters"], row["steps"], row["flops"])
        table.add_row(label, task, str(row["jobs"]), str(row["todo"]), *map(quantity, numbers))
    print_whole(console, table)
    console.print(
        f"{_jobs(len(experiment.jobs))}, {len(todo)} to do; about {duration(seconds)} on {experiment.device} "
        f"with {slots} at a time, less where runs stop early. Parameters are the whole model's; "
        "madbench budget shows the mixer's."
    )


def add_to(app: typer.Typer) -> None:
    app.command()(run)
