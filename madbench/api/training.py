"""The functions that train: ``run``, ``sweep`` and ``run_language_model``; ``plan`` says what ``run`` would train."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from madbench.analysis.notebook import NotebookProgress
from madbench.analysis.scores import Results
from madbench.api.calls import Changes, changes_of, public, words_of
from madbench.config import check_seeds, settings_of
from madbench.errors import TrainingError
from madbench.execute.base import Event, Policy, reason
from madbench.execute.main_module import check_is_not_imported
from madbench.execute.options import RunOptions
from madbench.experiment import Experiment, ExperimentOptions, prepare
from madbench.grid import Mode, is_grid_file, load_grid, parse_axes
from madbench.jobs import Budget, Fidelity, Precision
from madbench.labels import expand, texts_of
from madbench.labels.names import names_in_use, use_names
from madbench.rows import Grid, Row
from madbench.store.runs import Snapshot
from madbench.suites import main_suite, suite_of_task
from madbench.suites.scoring import scoring_of
from madbench.text.options import CorpusOptions

if TYPE_CHECKING:
    from madbench.training.measured import Compile

LANGUAGE_TASK = "language_model"


@public
def run(
    labels: str | Sequence[str],
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    seeds: int | Sequence[int] = (0,),
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    device: str = "auto",
    results: Path | str = "results",
    slots: int | None = None,
    threads: int | None = None,
    group: int | None = None,
    force: bool = False,
    keep_weights: bool = False,
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Train ``labels`` on tasks and return the scores. Stored runs are not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        profile: ``evening``, ``quick``, ``full`` or a YAML file; by default the usual one of the suite of the tasks.
        overrides: changes to the profile, such as ``"training.epochs=20"`` or ``{"training.epochs": 20}``.
        tasks: names of tasks; the six of MAD by default.
        seeds: seeds of initialization, data and order.
        fidelity: ``corrected``, or ``published`` for the reference implementation's protocol.
        budget: quantity matched to softmax attention: parameters (``strict``, ``paper``), ``flops``, ``state`` or
            ``compute``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        slots: jobs at a time. By default one per core on the CPU, and one on a GPU.
        threads: threads of each job on a CPU. By default the number in OMP_NUM_THREADS, or else one; a language model
            that trains alone uses the free cores. The number of threads affects the last digits of results.
        group: number of jobs of equal shapes that are trained together in one step. By default jobs train together if a
            timing test shows a speed-up.
        force: True to train stored runs again.
        keep_weights: True to store the weights of new runs.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row per label, seed and task, and rows of ``mad_average`` (:mod:`madbench.analysis.scores`). ``value`` is in
        percent.
    """
    check_is_not_imported()
    grid = _grid(labels, profile, overrides, tasks, seeds, fidelity, budget)
    experiment = prepare(grid, ExperimentOptions(device, results))
    execution = RunOptions(slots, threads, group=group, keep_weights=keep_weights)
    return _trained(experiment, execution, Policy(redo=force)).scores.drop(columns=["heuristic"])


@public
def plan(
    labels: str | Sequence[str],
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    seeds: int | Sequence[int] = (0,),
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    device: str = "auto",
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
) -> Experiment:
    """The plan of :func:`run` with the same arguments. A notebook shows jobs, parameters and FLOPs of each row."""
    return prepare(
        _grid(labels, profile, overrides, tasks, seeds, fidelity, budget), ExperimentOptions(device, results)
    )


@public
def run_language_model(
    labels: str | Sequence[str],
    *,
    profile: str = "tiny",
    overrides: Changes = (),
    corpus: Path | str | None = None,
    tokenizer: str | None = None,
    dtype: str | None = None,
    seeds: int | Sequence[int] = (0,),
    budget: Budget = "strict",
    device: str = "auto",
    results: Path | str = "results",
    precision: Precision | None = None,
    slots: int | None = None,
    threads: int | None = None,
    force: bool = False,
    micro_batch: int | None = None,
    compile: Compile = "never",
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Train ``labels`` as language models and return their curves. Stored runs are not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        profile: ``tiny``, ``mini``, ``gpt2`` or a YAML file.
        overrides: changes to the profile, such as ``"training.steps=1000"`` or ``{"training.steps": 1000}``.
        corpus: folder made by ``madbench lm prepare``, or a folder with nanoGPT's train.bin and val.bin. By default the
            profile's own corpus, which is prepared on first use.
        tokenizer: tokenizer of the ids in nanoGPT's files, ``gpt2`` by default.
        dtype: type of nanoGPT's ids, such as ``uint32``. By default the smallest that fits.
        seeds: seeds of initialization and batches.
        budget: quantity matched to softmax attention: parameters (``strict``, ``paper``), ``flops``, ``state`` or
            ``compute``.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store. Default corpora are below it.
        precision: precision of a profile with ``auto``, which by default depends on the device.
        slots: number of runs at a time. They share the cores.
        threads: threads of each job on a CPU. By default the number in OMP_NUM_THREADS, or else one; a language model
            that trains alone uses the free cores. The number of threads affects the last digits of results.
        force: True to train stored runs again.
        micro_batch: number of windows in memory at a time.
        compile: use of ``torch.compile`` for the models. With ``auto`` it is used if it saves time.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row per label, seed and logged step: the training loss and the tokens so far. At evaluations also the
        validation loss.
    """
    check_is_not_imported()
    grid = Grid(
        _rows(labels),
        (LANGUAGE_TASK,),
        check_seeds(seeds),
        str(profile),
        "corrected",
        budget,
        changes_of(overrides),
    )
    data = CorpusOptions(None if corpus is None else Path(corpus), tokenizer, dtype)
    experiment = prepare(grid, ExperimentOptions(device, results, data, precision))
    execution = RunOptions(slots, threads, micro_batch, compile=compile)
    trained = _trained(experiment, execution, Policy(redo=force))
    suite = suite_of_task(LANGUAGE_TASK)
    return scoring_of(suite).curves(trained.runs(suite))


@public
def sweep(
    grid: str | Path | Sequence[str],
    *,
    vary: Mapping[str, Any] | str | Sequence[str] | None = None,
    tasks: str | Sequence[str] | None = None,
    seeds: str | int | Sequence[int] | None = None,
    profile: str | None = None,
    fidelity: Fidelity | None = None,
    budget: Budget | None = None,
    set: Mapping[str, Any] | None = None,
    mode: Mode | None = None,
    baseline: Mapping[str, Any] | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    device: str = "auto",
    results: Path | str = "results",
    corpus: Path | str | None = None,
    tokenizer: str | None = None,
    dtype: str | None = None,
    overrides: Changes = (),
    slots: int | None = None,
    threads: int | None = None,
    group: int | None = None,
    retry: bool = False,
    force: bool = False,
    keep_weights: bool = False,
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """Train a grid and return its scores. Stored runs are not trained again.

    Args:
        grid: a YAML file, or labels and sets of labels. The next arguments are the keys of a grid
            (:class:`madbench.grid.GridFile`) and replace the keys of the file.
        vary: settings in which rows differ: ``{"model.mix_rank": [4, 8]}``, or ``"model.mix_rank=4,8"``.
        tasks: MAD tasks and ``language_model``; all seven by default.
        seeds: ``[0, 1]`` or ``"0-4"``; 0 by default.
        profile: as for :func:`run`.
        fidelity: ``corrected``, or ``published`` for the reference implementation's protocol.
        budget: quantity matched to softmax attention: parameters (``strict``, ``paper``), ``flops``, ``state`` or
            ``compute``.
        set: settings that all rows share, by key.
        mode: ``product``, ``one_at_a_time`` or ``list``.
        baseline: the row that all other rows are compared with; the first by default.
        rows: the rows of mode ``list``, each a label and its own settings.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        corpus: corpus of the language model, as for :func:`run_language_model`. By default its profile's own.
        tokenizer: tokenizer of the ids in nanoGPT's files, ``gpt2`` by default.
        dtype: type of nanoGPT's ids, such as ``uint32``. By default the smallest that fits.
        overrides: changes that all rows share, as for :func:`run`.
        slots: jobs at a time.
        threads: threads of each job on a CPU. By default the number in OMP_NUM_THREADS, or else one; a language model
            that trains alone uses the free cores. The number of threads affects the last digits of results.
        group: number of jobs of equal shapes that are trained together in one step. By default jobs train together if a
            timing test shows a speed-up.
        retry: True to train failed runs again, like ``madbench sweep --retry``.
        force: True to train stored runs again.
        keep_weights: True to store the weights of new MAD runs.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row per row of the grid, seed and column of its table. The columns are ``row`` (the name of the row),
        ``label``, one per varied key, and those of :mod:`madbench.analysis.scores`. Accuracies are in percent, losses
        in nats per token.
    """
    if vary is not None and not isinstance(vary, Mapping):
        vary = parse_axes(words_of(vary))
    if overrides:
        set = {**(set or {}), **settings_of(changes_of(overrides))}
    arguments: dict[str, Any] = {"vary": vary, "tasks": tasks, "seeds": seeds, "profile": profile, "fidelity": fidelity}
    arguments |= {"budget": budget, "set": set, "mode": mode, "baseline": baseline, "rows": rows}
    keys = {name: value for name, value in arguments.items() if value is not None}
    check_is_not_imported()
    source = grid if is_grid_file(grid) else texts_of(grid)
    loaded = load_grid(source, keys)
    use_names(names_in_use().completed_by(loaded.names))
    data = CorpusOptions(None if corpus is None else Path(corpus), tokenizer, dtype)
    experiment = prepare(loaded, ExperimentOptions(device, results, data))
    execution = RunOptions(slots, threads, group=group, keep_weights=keep_weights)
    trained = _trained(experiment, execution, Policy(redo=force, retry=retry))
    scores = trained.scores.drop(columns=["heuristic"])
    by_name = {row.name: row.row for row in experiment.rows}
    changes = {name: settings_of(row.changes) for name, row in by_name.items()}
    first = {"row": scores.label, "label": [by_name[name].label for name in scores.label]}
    first |= {key: [changes[name].get(key) for name in scores.label] for key in experiment.grid.axes}
    return pd.concat([pd.DataFrame(first), scores.drop(columns="label")], axis=1)


def _grid(
    labels: str | Sequence[str],
    profile: str | None,
    overrides: Changes,
    tasks: str | Iterable[str] | None,
    seeds: int | Sequence[int],
    fidelity: Fidelity,
    budget: Budget,
) -> Grid:
    chosen_tasks = tuple(main_suite().usual_tasks()) if tasks is None else words_of(tasks)
    return Grid(
        _rows(labels), chosen_tasks, check_seeds(seeds), str(profile or ""), fidelity, budget, changes_of(overrides)
    )


def _trained(experiment: Experiment, options: RunOptions, policy: Policy) -> Results:
    """Train the jobs of an experiment and return their results. Raises ``TrainingError`` if some of them failed.

    During training a terminal shows a progress bar. A notebook also shows the running jobs.
    """
    console = Console(stderr=True)
    for note in experiment.notes_on_options(options, policy):
        console.print(note)
    if console.is_jupyter:
        with NotebookProgress(experiment.jobs) as progress:
            summary = experiment.execute(progress.on_event, options, policy)
    else:
        with Progress(console=console, disable=not console.is_terminal) as bars:
            bar = bars.add_task("training", total=len(experiment.jobs))

            def on_event(event: Event) -> None:
                bars.advance(bar, event["event"] in ("finished", "failed", "skipped"))

            summary = experiment.execute(on_event, options, policy)
    store = Snapshot.open(experiment.results, create=False)
    records = store.records(job.id for job in experiment.jobs).values()
    stored = [record for record in records if record.status == "failed"]
    if failed := max(summary.failed, len(stored)):  # a job that failed now may keep its earlier result
        hint = "" if policy.retry else "; retry=True trains them again"
        hint += f"; one failed with: {reason(stored[0])}" if stored else ""
        raise TrainingError(f"{failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs{hint}")
    return Results.from_rows(experiment, store)


def _rows(labels: str | Sequence[str]) -> tuple[Row, ...]:
    return tuple(map(Row, expand(labels)))
