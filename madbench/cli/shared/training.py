"""The training of a grid by a verb of the command line: its plan, or its progress, tables and failures."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console

from madbench.cli.shared.options import TrainingOptions
from madbench.cli.shared.plan import make_plan, print_plan
from madbench.cli.shared.print_options import CostsOptions, PrintOptions
from madbench.cli.shared.printing import (
    FORMATS,
    PLAIN,
    count_text,
    first_of,
    in_words,
    print_json,
    print_text_table,
    with_costs,
)
from madbench.cli.shared.progress import train_on_screen
from madbench.config import Override, parse_seeds
from madbench.errors import ConfigError, MadbenchError, no_effect
from madbench.execute.base import Policy, Summary, reason
from madbench.execute.sweep_state import distinctions, job_name
from madbench.experiment import Experiment, ExperimentOptions, labels_of_tasks, prepare
from madbench.experiment.commands import option_words
from madbench.experiment.options import GridOptions
from madbench.labels import expand
from madbench.labels.names import names_in_use, use_names
from madbench.rows import Grid, Row
from madbench.store.reading import Snapshot, StoredRuns
from madbench.store.results_folder import command_on

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.analysis.result_table import ResultTable
    from madbench.analysis.scores import Results
    from madbench.execute.options import RunOptions
    from madbench.suites.base import Suite

MOST_FAILURES = 20  # the most failures that are listed; the JSON has all


def train_labels(
    labels: list[str],
    overrides: Sequence[Override],
    grid_options: GridOptions,
    training: TrainingOptions,
    print_options: PrintOptions,
    costs: CostsOptions,
) -> None:
    """Train ``labels`` on the tasks of ``grid_options``, and print progress and results.

    ``overrides`` are changes to the profile, and ``training`` has the other options of training.

    If there are no labels, the labels that the profile lists for the tasks are trained. Raises ``ConfigError`` if it
    lists none. Exits with code 1 if jobs failed.
    """
    tasks = grid_options.tasks
    grid = Grid(
        tuple(map(Row, expand(labels))),
        None if tasks is None else tuple(tasks),
        tuple(parse_seeds(training.seeds)),
        grid_options.profile or "",
        grid_options.fidelity,
        training.budget,
        tuple(overrides),
    )
    if not grid.rows:
        grid = replace(grid, rows=tuple(map(Row, labels_of_tasks(grid))))
    if not grid.rows:
        of_tasks = f"for {', '.join(tasks)}" if tasks else "of its own"
        raise ConfigError(
            f"nothing to train: give at least one label and one seed; the profile lists no labels {of_tasks}"
        )
    train_grid(grid, training, print_options=print_options, costs=costs)


def train_grid(
    grid: Grid,
    options: TrainingOptions,
    *,
    has_baseline: bool = False,
    has_tables: bool = True,
    comparison: Callable[[Results], Listing] | None = None,
    print_options: PrintOptions,
    costs: CostsOptions = CostsOptions(),
) -> Results | None:
    """Train the rows of a grid and print their tables, or print their plan with ``--dry-run``.

    ``has_tables`` is False to print no tables. ``has_baseline`` is True for a sweep: rows are compared with the first
    row, and failed jobs are not retried by default. ``comparison`` makes the table that is printed in place of the
    tables of results. Under torchrun only the first process prints. Exits with code 1 if jobs failed. Return the
    results, or None for a plan and for the other processes of torchrun.
    """
    from madbench.training.processes import is_first

    use_names(names_in_use().completed_by(grid.names))
    policy, (execution, device) = options.policy_of_verb(retries=not has_baseline), options.resolve_place()
    if costs.costs and options.dry_run:
        raise no_effect("--costs", "with --dry-run; madbench explain --cost LABEL shows costs")
    if print_options.notes and options.dry_run:
        raise no_effect("--notes", "with --dry-run, which shows no results")
    if comparison and options.dry_run:
        raise no_effect("--compare", "with --dry-run, which shows no results")
    console = Console(stderr=True, quiet=not is_first())
    experiment = _prepare(grid, options, device, execution.executor is not None, console)
    if comparison and len(experiment.suites) > 1:
        raise ConfigError("--compare is for the rows of one suite; choose its tasks with --tasks")
    if FORMATS[print_options.format].is_for_one_table and len(experiment.suites) > 1:
        raise ConfigError(
            f"--format {print_options.format} is for one table; choose the tasks of one suite with --tasks"
        )
    _print_notes(experiment, execution, policy, console)
    if options.dry_run:
        if is_first():
            plan = make_plan(experiment, execution, policy, console, options.details)
            if print_options.format == "json":
                print_json(plan)
            else:
                print_plan(experiment, plan, by_task=not has_baseline)
        return None
    names = experiment.row_names
    summary, failed_now = train_on_screen(experiment, execution, policy, console, names, options.tracking)
    if not is_first():
        return None
    from madbench.analysis.scores import Results
    from madbench.analysis.tables import result_tables

    results = Results.from_rows(experiment, Snapshot.open(experiment.results))
    failures = _failures(results, failed_now)
    try:
        compared = comparison(results) if comparison else None
    except MadbenchError:  # after failures, which may be the reason
        _print_rest(summary, failures, experiment, policy, console)
        raise
    tables = result_tables(results, has_baseline) if has_tables and not compared else []
    costs_by_suite = costs.tables(results) if tables or compared else {}
    if print_options.format == "json" and has_tables:
        content = compared.content() if compared else _contents(tables, costs_by_suite, experiment.grid.leading)
        content = with_costs(content, costs_by_suite) if compared else content
        print_json(content | {"failed": failures, "left": summary.left})
    elif compared:
        print_text_table(compared, print_options, costs=costs_by_suite)
    elif print_options.format != "json":
        _print_tables(tables, costs_by_suite, print_options)
    if tables or compared:
        hint = "the same command shows this again"
        if not has_baseline:
            hint = f"again as a table: {_table_command(experiment, results.store)}"
        console.print(f"runs: {experiment.results}/runs    {hint}", **PLAIN)
    _print_rest(summary, failures, experiment, policy, console)
    return results


def _prepare(grid: Grid, options: TrainingOptions, device: str, is_remote: bool, console: Console) -> Experiment:
    """Plan and check the experiment of a grid. ``is_remote`` is True if other machines train it."""
    with console.status("opening the corpus and planning"):
        experiment_options = ExperimentOptions(
            device, options.results, options.data, is_remote=is_remote, is_plan=options.dry_run
        )
        experiment = prepare(grid, experiment_options)
    if options.dry_run and not is_remote:
        experiment.check_processes()
    return experiment


def _print_notes(experiment: Experiment, execution: RunOptions, policy: Policy, console: Console) -> None:
    """Print the notes that a user should read before the training or its plan."""
    for note in [*experiment.notes, *experiment.notes_on_training(execution, policy)]:
        console.print(in_words(note, console), **PLAIN)
    if execution.compile == "auto" and execution.executor is None:
        from madbench.training.measured import has_compiler

        if not has_compiler():
            console.print("no C++ compiler here: models are not compiled", **PLAIN)


def _print_tables(tables: Sequence[ResultTable], costs: Mapping[str, Listing], print_options: PrintOptions) -> None:
    """Print tables of results with an empty line between them. ``costs`` has the table of costs of each suite."""
    for i, table in enumerate(tables):
        if i > 0:
            print()
        print_text_table(table, print_options, i, _costs_of(table, costs))


def _contents(tables: Sequence[ResultTable], costs: Mapping[str, Listing], leading: Suite) -> dict[str, Any]:
    """The JSON content of tables, each of one suite, in one mapping.

    The content of the suite ``leading`` is at the top level. The content of every other suite is under its
    ``override_name``, such as ``language_model``.
    """
    content: dict[str, Any] = {}
    for table in tables:
        (suite,) = table.suites
        of_suite = with_costs(table.content(), _costs_of(table, costs))
        content |= of_suite if suite is leading else {suite.override_name: of_suite}
    return content


def _costs_of(table: ResultTable, costs: Mapping[str, Listing]) -> dict[str, Listing]:
    """The tables of costs that belong to the suites of ``table``, by suite."""
    return {suite.name: costs[suite.name] for suite in table.suites if suite.name in costs}


def _print_rest(
    summary: Summary, failures: Sequence[Mapping[str, Any]], experiment: Experiment, policy: Policy, console: Console
) -> None:
    """Print how many jobs were not trained and why, and which jobs failed. Exits with code 1 if jobs failed."""
    if summary.busy:
        console.print(f"{count_text(summary.busy, 'job')} left to another process; run this again when it is done")
    if summary.left:
        most = f"after {count_text(policy.max_failures or 0, 'job')} had failed"
        console.print(f"{count_text(summary.left, 'job')} not started {most}; the same command trains them")
    if failures:
        console.print(f"{len(failures)} of {len(experiment.jobs)} jobs failed:")
        lines = [f"  {job_name({**failure, 'label': failure['row']})}: {failure['reason']}" for failure in failures]
        for line in first_of(lines, MOST_FAILURES, "  and {:,} more; -f json has them all"):
            console.print(line, **PLAIN)
        words = [word for word in sys.argv[1:] if word not in ("--force", "--retry")]
        command = "the same command" if policy.retry else shlex.join(["madbench", *words, "--retry"])
        console.print(f"to retry them: {command}", **PLAIN)
        raise typer.Exit(1)


def _failures(results: Results, failed_now: Mapping[str, str]) -> list[dict[str, Any]]:
    """The jobs that failed, one entry per job in the order of the rows: row, label, task, seed, id and reason.

    They are the jobs that are stored as failed, and those that failed in this command. ``failed_now`` has the reasons
    of the latter, by id.
    """
    records = results.store.records({job.id for job in results.jobs})
    reasons = {name: reason(record) for name, record in records.items() if record.status == "failed"}
    reasons |= failed_now
    failures: dict[str, dict[str, Any]] = {}
    row_names = {job.id: row.name for row in results.rows for job in row.jobs}
    details = distinctions(results.jobs, row_names)
    for row in results.rows:
        for job in row.jobs:
            if job.id in reasons:
                names = {"row": row.name, "label": job.label, "task": job.task, "seed": job.seed}
                names |= {"detail": details[job.id]} if details[job.id] else {}
                failures.setdefault(job.id, names | {"id": job.id, "reason": reasons[job.id]})
    return list(failures.values())


def _table_command(experiment: Experiment, store: StoredRuns) -> str:
    """The ``madbench table`` command that shows the results of an experiment whose rows differ only in their labels."""
    grid, protocol = experiment.grid, experiment.protocol
    suite = protocol.suite
    profile = protocol.profile_name if protocol.corpus is not None else grid.profile  # several profiles may be stored
    is_mixed = protocol.profile.overrides and protocol.plan(experiment.labels, [0]).without_effect
    words = ["table", *(experiment.labels if is_mixed else ()), *map(str, grid.overrides)]
    words += option_words({"--profile": profile or None, "--fidelity": grid.fidelity}, grid.budget)
    words += ["--tasks", ",".join(grid.tasks)] if grid.tasks else []
    corpora = {row.protocol.corpus.digest: row.protocol.corpus for row in experiment.rows if row.protocol.corpus}
    if experiment.suites == [suite] and len(corpora) == 1:
        (corpus,) = corpora.values()
        manifests = (run.record.details.get("corpus", {}) for run in store.runs(with_curves=False, suite=suite.name))
        is_unique = not any(
            manifest.get("name") == corpus.name and manifest.get("digest") != corpus.digest for manifest in manifests
        )
        words += ["--corpus", corpus.name if is_unique else corpus.digest]
    return command_on(experiment.results, *words)
