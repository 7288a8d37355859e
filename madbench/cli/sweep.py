from __future__ import annotations

import enum
import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from madbench.cli.executors import (
    AddressOption,
    CpusPerJobOption,
    ExecutorName,
    ExecutorOption,
    GpusPerJobOption,
    MemoryOption,
    PartitionOption,
    Placement,
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
    labels_and_overrides,
    parse_seeds,
    parse_trackers,
    split_list,
)
from madbench.cli.tables import PLAIN, Format, print_format, print_text_table
from madbench.errors import ConfigError

if TYPE_CHECKING:
    from rich.console import Console

    from madbench.jobs import JobBase
    from madbench.runs import Store
    from madbench.sweep_experiment import Sweep
    from madbench.sweeps.executor import Policy

MOST_FAILURES = 20
"""Failures that are listed; the JSON has all."""

_SECONDS = {"s": 1, "m": 60, "h": 3600}


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

    from madbench.sweep_experiment import prepare_sweep
    from madbench.sweeps.executor import Policy
    from madbench.sweeps.grid import load_grid

    format = print_format(format, as_json)
    if fail_fast and max_failures not in (None, 1):
        raise ConfigError(f"--max-failures {max_failures} contradicts --fail-fast, which is --max-failures 1")
    if retry and force:
        raise ConfigError("--retry has no effect with --force, which trains every job again")
    most = 1 if fail_fast else max_failures
    policy = Policy(redo=force, retry=retry, max_failures=most, time_limit=time_limit and _seconds_of(time_limit))
    gpus = devices and _gpus_of(devices, device)
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
        "baseline": baseline and _baseline_of(baseline),
        "profile": profile,
        "tasks": split_list(tasks),
        "seeds": seeds and parse_seeds(seeds),
        "fidelity": fidelity and fidelity.value,
        "budget": budget and budget.value,
        "vary": _axes_of(vary or []),
    }
    source, overrides = _source_of(words)
    changes = {key: value for key, value in {**given, "set": overrides}.items() if value}
    console = Console(stderr=True)
    if isinstance(source, Path):
        for replaced in _replaced(source, changes):
            console.print(replaced, **PLAIN)
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
        _train(made, policy, placement, gpus, format, console, trackers)


def _source_of(words: list[str]) -> tuple[Path | list[str], dict[str, Any]]:
    """The grid's file or the labels, and the settings that all rows share."""
    from madbench.sweeps.grid import is_grid_file, settings_of

    files = [word for word in words if is_grid_file(word) and "=" not in word]
    labels, overrides = labels_and_overrides([word for word in words if word not in files])
    if len(files) > 1:
        raise ConfigError(f"{files[1]}: give one grid; {files[0]} is one already")
    if files and labels:
        raise ConfigError(f"{labels[0]!r} has no effect: the labels are those of {files[0]}")
    return (Path(files[0]) if files else labels), settings_of(overrides)


def _axes_of(vary: list[str]) -> dict[str, Any]:
    from madbench.sweeps.grid import settings_of

    for word in vary:
        key, equals, values = word.partition("=")
        if not (key and equals and values.strip()):
            raise ConfigError(f"--vary {word!r}: expected KEY=V1,V2,... such as model.mix_rank=4,8")
    return settings_of([f"{key}=[{values}]" for key, _, values in (word.partition("=") for word in vary)])


def _baseline_of(text: str) -> dict[str, Any]:
    from madbench.sweeps.grid import settings_of

    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ConfigError(f"--baseline {text!r}: {error}") from None
    labels, overrides = labels_and_overrides(words)
    if len(labels) > 1 or not words:
        raise ConfigError(f"--baseline {text!r}: expected one label, settings KEY=VALUE, or both")
    return {"label": labels[0], **settings_of(overrides)} if labels else settings_of(overrides)


def _seconds_of(text: str) -> float:
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([smh])", text.strip())
    if not found:
        raise ConfigError(f"--time-limit {text!r}: expected a number and its unit, such as 90s, 30m or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def _gpus_of(text: str, device: str) -> list[str]:
    from madbench.devices import resolve_device

    gpus = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch("[0-9]{1,4}", gpu) for gpu in gpus) or len(set(gpus)) < len(gpus):
        raise ConfigError(f"--devices {text!r}: expected numbers of GPUs, each once, such as 0,1")
    if device not in ("auto", "cuda"):
        raise ConfigError(f"--devices {text}: has no effect with --device {device}")
    for gpu in gpus:
        resolve_device(f"cuda:{gpu}")
    return gpus


def _replaced(path: Path, changes: dict[str, Any]) -> list[str]:
    """A sentence for every key of the file that the command line replaces."""
    from madbench.config import read_yaml

    def differing(of_file: Any, given: dict[str, Any], prefix: str) -> list[str]:
        return [
            f"{path}: {prefix}{key} {json.dumps(value)} instead of {json.dumps(of_file[key], default=str)}"
            for key, value in given.items()
            if isinstance(of_file, dict) and key in of_file and of_file[key] != value
        ]

    mapping = read_yaml(path)
    plain = {key: value for key, value in changes.items() if key not in ("set", "vary")}
    nested = [differing(mapping.get(key), changes.get(key, {}), f"{key}: ") for key in ("set", "vary")]
    return [*differing(mapping, plain, ""), *nested[0], *nested[1]]


def _train(
    sweep: Sweep,
    policy: Policy,
    placement: Placement,
    gpus: list[str] | None,
    format: Format,
    console: Console,
    trackers: list[str],
) -> None:
    from madbench.cli.observation import observed
    from madbench.cli.text import count_of_jobs
    from madbench.sweeps.failure import reason

    failed: dict[str, str | None] = {}

    try:
        with observed(sweep.jobs, sweep.title, sweep.results, console, trackers) as (show, _):

            def on_event(event: dict[str, Any]) -> None:
                show(event)
                if event["event"] == "failed":
                    failed[event["job"].id] = reason(event["record"])
                elif event["event"] == "skipped" and event["reason"] == "failed":
                    failed[event["job"].id] = None

            how = {"slots": placement.slots, "executor": placement.executor, "devices": gpus}
            summary = sweep.execute(on_event, policy=policy, **how)
    except KeyboardInterrupt:
        rest = (
            "what was not done again keeps its earlier result" if policy.redo else "the same command goes on from here"
        )
        console.print(f"stopped; finished runs are in {sweep.results}, {rest}", **PLAIN)
        raise
    tables = sweep.tabulate()
    failures = _failures(sweep, failed)
    if format is Format.json:
        content = [{"caption": table.caption, "cells": table.records()} for table in tables]
        of_mad = content.pop(0) if tables and tables[0].shown != "loss_l5" else {}
        language = {"language_model": content[0]} if content else {}
        print(json.dumps(of_mad | language | {"failed": failures, "left": summary.left}, indent=2))
    else:
        for i, table in enumerate(tables):
            if i:
                print()
            print_text_table(table, format)
    if tables:
        console.print(f"runs: {sweep.results}/runs    the same command shows this again", **PLAIN)
    if summary.busy:
        console.print(f"{count_of_jobs(summary.busy)} left to another process; run this again when it is done")
    if summary.left:
        most = f"after {count_of_jobs(policy.max_failures)} had failed"
        console.print(f"{count_of_jobs(summary.left)} not started {most}; the same command goes on with them")
    if failures:
        console.print(f"{len(failures)} of {len(sweep.jobs)} jobs failed:")
        for failure in failures[:MOST_FAILURES]:
            where = f"{failure['row']} {failure['task']} seed {failure['seed']}"
            console.print(f"  {where}: {failure['reason']}", **PLAIN)
        if len(failures) > MOST_FAILURES:
            console.print(f"  and {len(failures) - MOST_FAILURES:,} more; --json has them all")
        console.print(f"to try them again: {_again()}", **PLAIN)
        raise typer.Exit(1)


def _failures(sweep: Sweep, failed: dict[str, str | None]) -> list[dict[str, Any]]:
    """The failed jobs in the order of the rows, with the last line of the error, from the store where it is not known."""
    from madbench.runs import Store

    store = Store.open(sweep.results, create=False)
    found: dict[str, dict[str, Any]] = {}
    for row in [*sweep.mad, *sweep.language]:
        for job in row.jobs:
            if job.id in failed and job.id not in found:
                why = failed[job.id] or _stored_reason(store, job)
                found[job.id] = {"row": row.row.name, "label": job.label, "task": job.task, "seed": job.seed}
                found[job.id] |= {"id": job.id, "reason": why}
    return list(found.values())


def _stored_reason(store: Store, job: JobBase) -> str:
    from madbench.errors import StoreError
    from madbench.sweeps.failure import reason

    try:
        return reason(store.read(job.id).record)
    except StoreError as problem:
        return str(problem)


def _again() -> str:
    """The command that was given, with --retry."""
    words = [word for word in sys.argv[1:] if word not in ("--force", "--retry")]
    return shlex.join(["madbench", *words, "--retry"])


def add_to(app: typer.Typer) -> None:
    app.command()(sweep)
