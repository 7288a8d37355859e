from __future__ import annotations

import dataclasses
import enum
import sys
from pathlib import Path

import typer

from madbench.cli import options
from madbench.cli.executors import ExecutorName, MachineOptions, place
from madbench.cli.options import argument, option
from madbench.cli.sweep_words import axes_of, baseline_of, gpus_of, replaced_keys, seconds_of, source_of
from madbench.cli.tables import PrintOptions
from madbench.config import parse_seeds
from madbench.errors import ConfigError


class Mode(str, enum.Enum):
    product = "product"
    one_at_a_time = "one_at_a_time"


@options.with_groups
def sweep(
    context: typer.Context,
    words: argument(
        list[str],
        "LABEL|KEY=VALUE|GRID.yaml",
        options.LABELS_HELP + " KEY=VALUE holds for all rows. Or one file with a grid, whose keys the options replace.",
    ),
    vary: option(list[str] | None, "A setting in which rows differ; may be repeated.", metavar="KEY=V1,V2,...") = None,
    mode: option(
        Mode, "product: every label with every combination. one_at_a_time: the baseline, one thing changed a row."
    ) = Mode.product,
    baseline: option(
        str | None,
        "The row that comes first and the others are compared with.",
        metavar="'LABEL KEY=VALUE'",
        show_default="the first label with the first values",
    ) = None,
    profile: options.ProfileOption = "quick",
    tasks: options.TasksOption = None,
    fidelity: options.FidelityOption = options.Fidelity.corrected,
    *,
    training: options.TrainingOptions,
    details: options.DetailsOption = False,
    machines: MachineOptions,
    devices: option(str | None, "GPUs such as 0,1 that the slots take in turn; one slot a GPU by default.") = None,
    retry: option(bool, "Also retry the jobs that are stored as failed.", "--retry") = False,
    fail_fast: option(bool, "Start no further job after one has failed.", "--fail-fast") = False,
    max_failures: option(int | None, "Start no further job after so many have failed.", min=1) = None,
    time_limit: option(
        str | None, "Stop a job after this time, such as 90s, 30m or 2h; it has failed.", metavar="TIME"
    ) = None,
    printed: PrintOptions,
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
    from madbench.cli.execution import carry_out
    from madbench.execute.base import Policy
    from madbench.grid import load_grid

    if fail_fast and max_failures not in (None, 1):
        raise ConfigError(f"--max-failures {max_failures} contradicts --fail-fast, which is --max-failures 1")
    if retry and training.force:
        raise ConfigError("--retry has no effect with --force, which trains every job again")
    executor = machines.executor
    if training.dry_run and executor is not ExecutorName.local:
        raise ConfigError(f"--dry-run times a few steps on this machine; leave out --executor {executor.value}")
    most = 1 if fail_fast else max_failures
    policy = Policy(
        redo=training.force, retry=retry, max_failures=most, time_limit=time_limit and seconds_of(time_limit)
    )
    gpus = devices and gpus_of(devices, training.device)
    if gpus and executor is not ExecutorName.local:
        raise ConfigError(f"--devices {devices}: has no effect with --executor {executor.value}; use --gpus-per-job")
    choices = vars(machines) | {"slots": training.slots, "device": "cuda" if gpus else training.device}
    placement = place(**choices)

    keys = {
        "mode": mode.value,
        "baseline": baseline and baseline_of(baseline),
        "profile": profile,
        "tasks": options.split_list(tasks),
        "seeds": parse_seeds(training.seeds),
        "fidelity": fidelity.value,
        "budget": training.budget.value,
        "vary": axes_of(vary or []),
    }
    source, overrides = source_of(words)
    changes = {key: value for key, value in keys.items() if context.get_parameter_source(key).name != "DEFAULT"}
    changes |= {"set": overrides} if overrides else {}
    if isinstance(source, Path):
        for sentence in replaced_keys(source, changes):
            print(sentence, file=sys.stderr)
    carry_out(
        load_grid(source, changes),
        policy,
        dataclasses.replace(training, device=placement.device, slots=placement.slots),
        executor=placement.executor,
        devices=gpus,
        details=details,
        has_baseline=True,
        format=printed.asked,
    )
