from __future__ import annotations

import enum
import json
from pathlib import Path
from typing import Annotated

import typer

from madbench.cli.executors import (
    AddressOption,
    CpusPerJobOption,
    ExecutorName,
    ExecutorOption,
    GpusPerJobOption,
    MemoryOption,
    PartitionOption,
    SbatchOption,
    SharedOption,
    WallTimeOption,
    place,
)
from madbench.cli.options import (
    LABELS_HELP,
    RESULTS,
    CorpusOption,
    Counting,
    Fidelity,
    JsonOption,
    ResultsOption,
    TrackOption,
    parse_trackers,
    split_list,
)
from madbench.cli.sweep_words import axes_of, baseline_of, gpus_of, replaced_keys, seconds_of, source_of
from madbench.cli.tables import PLAIN, Format, print_format
from madbench.config import parse_seeds
from madbench.errors import ConfigError


class Mode(str, enum.Enum):
    product = "product"
    one_at_a_time = "one_at_a_time"


def sweep(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="LABEL|KEY=VALUE|GRID.yaml",
            help=LABELS_HELP
            + " KEY=VALUE holds for all rows. Or one file with a grid, whose keys the options replace.",
        ),
    ],
    vary: Annotated[
        list[str] | None,
        typer.Option("--vary", metavar="KEY=V1,V2,...", help="A setting in which rows differ; may be repeated."),
    ] = None,
    mode: Annotated[
        Mode | None,
        typer.Option(
            help="product: every label with every combination. one_at_a_time: the baseline, one thing changed a row.",
            show_default="product",
        ),
    ] = None,
    baseline: Annotated[
        str | None,
        typer.Option(
            metavar="'LABEL KEY=VALUE'",
            help="The row that comes first and the others are compared with.",
            show_default="the first label with the first values",
        ),
    ] = None,
    profile: Annotated[
        str | None,
        typer.Option(
            "--profile", "-p", help="quick, full, or a YAML file like those in tasks/profiles.", show_default="quick"
        ),
    ] = None,
    tasks: Annotated[
        list[str] | None,
        typer.Option("--tasks", "-t", help="MAD tasks and language_model, comma-separated; all seven by default."),
    ] = None,
    corpus: CorpusOption = None,
    seeds: Annotated[
        str | None, typer.Option(help="Seeds such as 0,1,2 or 0-4; one decides init, data and order.", show_default="0")
    ] = None,
    fidelity: Annotated[
        Fidelity | None,
        typer.Option(
            help="corrected: our protocol. published: the reference implementation's, quirks included.",
            show_default="corrected",
        ),
    ] = None,
    budget: Annotated[
        Counting | None,
        typer.Option(
            "--budget",
            help="strict: every parameter counts. published: the tables of R(1), R(2) do not.",
            show_default="strict",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")] = "auto",
    executor: ExecutorOption = ExecutorName.local,
    address: AddressOption = None,
    cpus_per_job: CpusPerJobOption = None,
    gpus_per_job: GpusPerJobOption = None,
    shared: SharedOption = False,
    partition: PartitionOption = None,
    wall_time: WallTimeOption = None,
    memory: MemoryOption = None,
    sbatch: SbatchOption = None,
    devices: Annotated[
        str | None, typer.Option(help="GPUs such as 0,1 that the slots take in turn; one slot a GPU by default.")
    ] = None,
    slots: Annotated[
        int | None, typer.Option(min=1, help="Jobs at a time; one a CPU core or one on a GPU by default.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Also try the jobs again that are stored as failed.")] = False,
    fail_fast: Annotated[bool, typer.Option("--fail-fast", help="Start no further job after one has failed.")] = False,
    max_failures: Annotated[
        int | None, typer.Option(min=1, help="Start no further job after so many have failed.")
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Stop a job after this time, such as 90s, 30m or 2h; it has failed."),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Train again what the store has already.")] = False,
    track: TrackOption = None,
    results: ResultsOption = RESULTS,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show rows, jobs, parameters, FLOPs and a time estimate; train nothing.")
    ] = False,
    format: Annotated[Format, typer.Option("--format", "-f", help="How to print the tables.")] = Format.terminal,
    as_json: JsonOption = False,
) -> None:
    """Train a grid of labels and settings, and tabulate it row by row against a baseline.

    The same command again does only what is missing, and a larger grid only what
    is new. A grid in a file has the keys labels, tasks, seeds, profile, fidelity,
    budget, set, vary, mode, baseline, rows and description:

      labels: \\[S-p, '~R-cg-q-12o']
      seeds: 0-2
      set: {training.epochs: 10}
      vary: {model.d_model: \\[64, 96], learning_rates: \\[\\[1.0e-3], \\[3.0e-3]]}
      mode: one_at_a_time
      baseline: {label: R-cg-q-12o, model.d_model: 64}

    Or every row, in mode list:

      rows: \\[{label: S-p}, {label: R-cg-q-12o, model.d_model: 96}]

    [bold]Examples[/bold]

      madbench sweep '~R-cg-q-12o' --seeds 0-2
      madbench sweep R-12! R-12o! --vary model.mix_rank=4,8 -t in_context_recall
      madbench sweep S R-c --vary training.epochs=8,20 --mode one_at_a_time
      madbench sweep @table1 --profile full --devices 0,1 --slots 4 --dry-run
      madbench sweep grid.yaml --retry --time-limit 30m
      madbench sweep @table1 --executor ray --address head:6379 --gpus-per-job 0.5
    """
    from rich.console import Console

    from madbench.cli.sweep_execution import train_and_show
    from madbench.execute.base import Policy
    from madbench.grid import load_grid
    from madbench.sweep_experiment import prepare_sweep

    format = print_format(format, as_json)
    if fail_fast and max_failures not in (None, 1):
        raise ConfigError(f"--max-failures {max_failures} contradicts --fail-fast, which is --max-failures 1")
    if retry and force:
        raise ConfigError("--retry has no effect with --force, which trains every job again")
    most = 1 if fail_fast else max_failures
    policy = Policy(redo=force, retry=retry, max_failures=most, time_limit=time_limit and seconds_of(time_limit))
    gpus = devices and gpus_of(devices, device)
    if gpus and executor is not ExecutorName.local:
        raise ConfigError(f"--devices {devices}: has no effect with --executor {executor.value}; use --gpus-per-job")
    placement = place(
        executor,
        "cuda" if gpus else device,
        slots,
        address=address,
        cpus_per_job=cpus_per_job,
        gpus_per_job=gpus_per_job,
        shared=shared,
        partition=partition,
        wall_time=wall_time,
        memory=memory,
        sbatch=sbatch,
    )
    if dry_run and placement.is_remote:
        raise ConfigError(f"--dry-run times a few steps on this machine; leave out --executor {executor.value}")
    trackers = parse_trackers(track)
    given = {
        "mode": mode and mode.value,
        "baseline": baseline and baseline_of(baseline),
        "profile": profile,
        "tasks": split_list(tasks),
        "seeds": seeds and parse_seeds(seeds),
        "fidelity": fidelity and fidelity.value,
        "budget": budget and budget.value,
        "vary": axes_of(vary or []),
    }
    source, overrides = source_of(words)
    changes = {key: value for key, value in {**given, "set": overrides}.items() if value}
    console = Console(stderr=True)
    if isinstance(source, Path):
        for sentence in replaced_keys(source, changes):
            console.print(sentence, **PLAIN)
    grid = load_grid(source, changes)
    with console.status("planning"):
        made = prepare_sweep(
            grid, device=placement.device, is_remote=placement.is_remote, results=results, corpus=corpus
        )
    if format is Format.csv and made.mad and made.language:
        raise ConfigError("--format csv is for one table; choose the MAD tasks or language_model with --tasks")
    for note in made.notes:
        console.print(note, **PLAIN)
    if dry_run:
        from madbench.cli.sweep_plan import print_sweep_plan, sweep_plan

        plan = sweep_plan(made, slots or (gpus and len(gpus)), policy, console)
        print(json.dumps(plan, indent=2)) if format is Format.json else print_sweep_plan(made, plan)
    else:
        train_and_show(made, policy, placement, gpus, format, console, trackers)


def add_to(app: typer.Typer) -> None:
    app.command()(sweep)
