"""The functions that train: ``run``, ``sweep`` and ``run_language_model``; ``plan`` says what ``run`` would train."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from madbench.analysis.comparison import rows_table
from madbench.analysis.notebook import NotebookProgress
from madbench.analysis.scores import Results
from madbench.analysis.shown_frame import ShownFrame
from madbench.api.arguments import (
    EXECUTION,
    GridArguments,
    LanguageArguments,
    PlanArguments,
    RunArguments,
    SweepArguments,
    field_values,
    tasks_of,
    with_arguments,
)
from madbench.api.calls import changes_of, public, words_of
from madbench.config import settings_of
from madbench.errors import ConfigError, TrainingError, no_effect
from madbench.execute.base import Event, OnEvent, Policy, reason
from madbench.execute.main_module import check_is_not_imported
from madbench.execute.options import MachineOptions, RunOptions
from madbench.execute.sweep_state import SweepState, event_line
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.experiment.options import GridOptions, SharedOptions, TrainingCorpus
from madbench.files import make_printable
from madbench.grid import GridFile, is_grid_file, load_grid, parse_axes
from madbench.labels import Labels, expand, texts_of
from madbench.labels.names import names_in_use, use_names
from madbench.rows import Grid, Row
from madbench.store.reading import Snapshot
from madbench.suites import main_suite, suite_of_task
from madbench.suites.scoring import scoring_of
from madbench.text.options import CorpusOptions
from madbench.trackers.options import TrackOptions

LANGUAGE_TASK = "language_model"


@public
@with_arguments(RunArguments, GridOptions, TrainingCorpus, SharedOptions, *EXECUTION)
def run(
    labels: Labels,
    *,
    force: bool = False,
    rename: Mapping[str, str] | None = None,
    **arguments: Unpack[RunArguments],
) -> pd.DataFrame:
    """Train ``labels`` on tasks and return the scores. Stored runs are not trained again.

    Args:
        tasks: Tasks of any suite, or a suite for its default tasks. Default: the six of MAD.

    Returns:
        One row per label, seed and task, and one row per label and seed for each average, such as ``mad_average``.
        :mod:`madbench.suites.scoring` describes the columns. ``value`` is in percent for the tasks of MAD.
    """
    check_is_not_imported()
    _, results = _train(_grid(labels, arguments), arguments, Policy(redo=force))
    return results.scores


@public
@with_arguments(PlanArguments, GridOptions, TrainingCorpus, SharedOptions)
def plan(
    labels: Labels,
    *,
    rename: Mapping[str, str] | None = None,
    **arguments: Unpack[PlanArguments],
) -> Experiment:
    """The plan of :func:`run` with the same arguments. ``print`` shows the jobs, parameters and FLOPs of each row.

    So does a notebook. Nothing is trained and nothing is written to the results folder.

    Args:
        tasks: Tasks of any suite, or a suite for its default tasks. Default: the six of MAD.
    """
    return prepare(_grid(labels, arguments), replace(_experiment_options(arguments), is_plan=True))


@public
@with_arguments(LanguageArguments, TrainingCorpus, SharedOptions, *EXECUTION)
def run_language_model(
    labels: Labels,
    *,
    profile: Path | str = "tiny",
    force: bool = False,
    rename: Mapping[str, str] | None = None,
    **arguments: Unpack[LanguageArguments],
) -> pd.DataFrame:
    """Train ``labels`` as language models and return their curves. Stored runs are not trained again.

    Args:
        profile: ``tiny``, ``mini``, ``gpt2`` or a YAML file.

    Returns:
        One row per label, seed and logged step, with the training loss and the number of tokens so far. Rows of
        evaluations also have the validation loss.
    """
    check_is_not_imported()
    grid = _grid(labels, {**arguments, "profile": profile, "tasks": LANGUAGE_TASK})
    _, results = _train(grid, arguments, Policy(redo=force))
    suite = suite_of_task(LANGUAGE_TASK)
    return scoring_of(suite).curves(results.runs(suite))


@public
@with_arguments(
    SweepArguments, GridFile, TrainingCorpus, SharedOptions, *EXECUTION, unset=GridArguments.__annotations__
)
def sweep(
    grid: Path | Labels,
    *,
    compare: bool = False,
    within: float | Mapping[str, float] | None = None,
    retry: bool = False,
    force: bool = False,
    rename: Mapping[str, str] | None = None,
    **arguments: Unpack[SweepArguments],
) -> pd.DataFrame:
    """Train a grid and return its scores. Stored runs are not trained again.

    Args:
        grid: A YAML file, or labels and sets of labels. The arguments from ``vary`` to ``rows`` are the keys of a grid
            (:class:`madbench.grid.GridFile`) and replace the keys of the file.
        vary: Settings in which rows differ: ``{"model.mix_rank": [4, 8]}``, or ``"model.mix_rank=4,8"``.
        overrides: Changes that all rows share, as for :func:`run`.
        compare: True to return the comparison of the rows with the baseline, with the columns of
            :func:`madbench.compare`. The tasks must be of one suite.
        within: The margin of a test of equivalence, as for :func:`madbench.compare`. Only with ``compare``.
        retry: True to train failed runs again, like ``madbench sweep --retry``.

    Returns:
        One row per row of the grid, seed and column of its table. The columns are ``row`` (the name of the row),
        ``label``, one per varied key, and those that :mod:`madbench.suites.scoring` describes. Accuracies are in
        percent, losses in nats per token.
    """
    if within is not None and not compare:
        raise no_effect("within", "without compare=True")
    keys: dict[str, Any] = {name: arguments.get(name) for name in GridArguments.__annotations__}
    if keys["vary"] is not None and not isinstance(keys["vary"], Mapping):
        keys["vary"] = parse_axes(words_of(keys["vary"]))
    if keys["tasks"] is not None:
        keys["tasks"] = tasks_of(keys["tasks"])
    if keys["profile"] is not None:
        keys["profile"] = str(keys["profile"])
    if overrides := arguments.get("overrides"):
        keys["set"] = {**(keys["set"] or {}), **settings_of(changes_of(overrides))}
    check_is_not_imported()
    source = str(grid) if is_grid_file(grid) else texts_of(grid)
    loaded = load_grid(source, {name: value for name, value in keys.items() if value is not None})
    use_names(names_in_use().completed_by(loaded.names))
    experiment, results = _train(loaded, arguments, Policy(redo=force, retry=retry), compares=compare)
    if compare:
        return ShownFrame.from_table(rows_table(results, within))
    scores = results.scores
    by_name = {row.name: row.row for row in experiment.rows}
    changes = {name: settings_of(row.changes) for name, row in by_name.items()}
    first = {"row": scores.label, "label": [by_name[name].label for name in scores.label]}
    first |= {key: [changes[name].get(key) for name in scores.label] for key in experiment.grid.axes}
    return pd.concat([pd.DataFrame(first), scores.drop(columns="label")], axis=1)


def _grid(labels: Labels, arguments: Mapping[str, Any]) -> Grid:
    """Make a grid with one row per label. ``arguments`` may have values for the fields of :class:`Grid`.

    If ``tasks`` is missing or None, the grid has the six tasks of MAD.
    """
    values = field_values(Grid, {"tasks": None, **arguments})
    values["profile"] = values.get("profile") or ""
    if values["tasks"] is None:
        values["tasks"] = tuple(main_suite().usual_tasks())
    return Grid(tuple(map(Row, expand(labels))), **values)


def _experiment_options(arguments: Mapping[str, Any]) -> ExperimentOptions:
    """The options for planning an experiment, from the ``arguments`` of a function of the API."""
    corpus = field_values(CorpusOptions, arguments)
    if corpus.get("corpus") is not None:
        corpus["corpus"] = Path(corpus["corpus"])
    return ExperimentOptions(data=CorpusOptions(**corpus), **field_values(ExperimentOptions, arguments))


def _train(
    grid: Grid, arguments: Mapping[str, Any], policy: Policy, compares: bool = False
) -> tuple[Experiment, Results]:
    """Train the jobs of a grid. Return its experiment and its results.

    ``arguments`` are the keyword arguments of the public function that was called, such as :func:`run`. They may have
    the options for planning an experiment and those of :data:`EXECUTION`. ``policy`` has the rules that this function
    takes as parameters of its own, ``force`` and ``retry``; ``arguments`` may set its other fields. ``compares`` is
    True if the rows will be compared, so that they must be of one suite.

    During training a terminal shows a progress bar. A notebook also shows the running jobs. Otherwise every job that
    ends is a line of stderr, as on the command line. It is printed and not logged, because a script that does not
    configure ``logging`` would show no message of level INFO.

    Raises ``TrainingError`` if some of the jobs failed, and ``ConfigError`` for rows that cannot be compared.
    """
    policy = replace(policy, **field_values(Policy, arguments))
    tracking = TrackOptions(**field_values(TrackOptions, arguments))
    machines = MachineOptions(**field_values(MachineOptions, arguments))
    options = RunOptions(**field_values(RunOptions, arguments))
    options, device = machines.resolve(options, arguments.get("device", SharedOptions.device))
    planning = _experiment_options({**arguments, "device": device})
    experiment = prepare(grid, replace(planning, is_remote=options.executor is not None))
    if compares and len(experiment.suites) > 1:
        raise ConfigError("compare=True is for the rows of one suite; choose its tasks with tasks")
    console = Console(stderr=True)

    def show_text(text: str) -> None:
        console.print(make_printable(text), markup=False, emoji=False, highlight=False, soft_wrap=True)

    def warn(text: str) -> None:
        show_text(f"warning: {text}")

    for note in experiment.notes_on_training(options, policy):
        show_text(note)

    with ExitStack() as stack:
        track = stack.enter_context(experiment.tracking(tracking, warn))
        show = stack.enter_context(_progress(experiment, console, show_text))

        def on_event(event: Event) -> None:
            track(event)
            show(event)

        summary = experiment.execute(on_event, options, policy)
    store = Snapshot.open(experiment.results)
    records = store.records(job.id for job in experiment.jobs).values()
    stored = [record for record in records if record.status == "failed"]
    if failed := max(summary.failed, len(stored)):  # a job that failed now may keep its earlier result
        hint = "" if policy.retry else "; retry=True trains them again"
        hint += f"; {summary.left} more were not started" if summary.left else ""
        hint += f"; one failed with: {reason(stored[0])}" if stored else ""
        raise TrainingError(f"{failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs{hint}")
    return experiment, Results.from_rows(experiment, store)


@contextmanager
def _progress(experiment: Experiment, console: Console, show_text: Callable[[str], None]) -> Iterator[OnEvent]:
    """A function that shows the progress of training: in a notebook the running jobs, in a terminal a bar.

    Otherwise it calls ``show_text`` with a line for every job that ends.
    """
    if console.is_jupyter:
        with NotebookProgress(experiment.jobs) as progress:
            yield progress.on_event
    elif console.is_terminal:
        with Progress(console=console) as bars:
            bar = bars.add_task("training", total=len(experiment.jobs))
            yield lambda event: bars.advance(bar, event["event"] in ("finished", "failed", "skipped"))
    else:
        state, began = SweepState(experiment.jobs, experiment.row_names), time.monotonic()

        def on_event(event: Event) -> None:
            if text := state.report(event_line(event), time.monotonic() - began):
                show_text(text)

        yield on_event
