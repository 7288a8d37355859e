"""The Python functions. ``run``, ``sweep`` and ``run_language_model`` train; the others show stored runs.

Jobs run in worker processes. A worker imports the user's script only if it trains a class that the script defines. Such
a script must call the functions that train under ``if __name__ == "__main__":``. The other functions return a figure,
or a frame with one row per cell, which a notebook shows as a table. They choose the stored runs by the same arguments,
which are like the options of the command line's verbs of the same names:

- labels: labels or sets of labels (``"G-cg-q-12o"``, ``["{S,R}-c", "@table1"]``). By default all stored labels.
- profile, overrides, tasks, fidelity, budget, results: as in :func:`run`. By default ``tasks`` are the six of MAD, and
  the language model if runs of one protocol are stored.
- protocol, corpus: the protocol and the corpus of the language model's runs, needed if several are stored.
- rename: display names of labels in figures and frames, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``. A frame has the
  canonical label of every other label.

They raise ``StoreError`` if the store has no run of that protocol. They warn (``UserWarning``) of damaged runs and of
labels that are left out.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import pandas as pd
from rich.console import Console
from rich.progress import Progress

from madbench.analysis.cost_table import cost_tables
from madbench.analysis.marked_text import Width
from madbench.analysis.notebook import NotebookProgress
from madbench.analysis.scores import Results
from madbench.analysis.shown_frame import ShownFrame
from madbench.analysis.stored import Selection
from madbench.config import check_seeds, override_of, plain_values, settings_of
from madbench.errors import ConfigError, TrainingError
from madbench.execute.base import Event, Policy, reason
from madbench.execute.main_module import check_is_not_imported
from madbench.experiment import Experiment, prepare
from madbench.grid import Grid, Mode, Row, is_grid_file, load_grid, parse_axes
from madbench.jobs import Budget, Fidelity, Precision
from madbench.labels import expand, texts_of, trust
from madbench.labels.names import DisplayNames, show, shown, shown_names, with_display_names
from madbench.labels.sets import names_of
from madbench.mixers.checks import run_checks
from madbench.mixers.random_state import kept_random_state
from madbench.store.runs import Snapshot
from madbench.suites import checks_of, main_suite, suite_of_task
from madbench.suites.scoring import scoring_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from madbench.training.measured import Compile


Changes = str | Sequence[str] | Mapping[str, Any]
"""Changes to a profile: ``"training.epochs=20"``, several of them, or ``{"training.epochs": 20}``."""


_P = ParamSpec("_P")
_R = TypeVar("_R")

LANGUAGE_TASK = "language_model"
TRAINING = ("run", "plan", "run_language_model")
"""The functions that plan or train labels; :func:`sweep` takes a grid (:func:`madbench.grid.load_grid`)."""
_LABELLED = ("label", "row", "baseline")
"""Columns of a frame whose values are labels, or begin with a label."""


def _public(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Wraps ``verb`` with the steps that all public functions share.

    Arguments of NumPy, torch and pandas are converted to Python's types. Figures and frames show labels by the names in
    ``rename``, whose keys are labels in any spelling. The caller's random state does not change. The code of the labels
    in the arguments may be imported (:mod:`madbench.labels.trust`).
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def called(*arguments: _P.args, **settings: _P.kwargs) -> _R:
        if "names" in settings:
            raise TypeError(f"{verb.__name__}() has no argument 'names'; display names are given as rename={{...}}")
        rename: Any = settings.get("rename")
        plain, plain_settings = plain_values(arguments), plain_values(settings)
        labels: Any = ()
        with suppress(TypeError):  # a wrong call: the verb itself raises the error
            labels = signature.bind(*plain, **plain_settings).arguments.get("labels", ())
            trust.allow_typed(labels, with_files=verb.__name__ in TRAINING)
        names = names_of(labels, DisplayNames().with_names(rename or {}))
        with shown(names), kept_random_state():
            result = verb(*plain, **plain_settings)
            if rename and isinstance(result, pd.DataFrame):
                labelled = {name: result[name] for name in _LABELLED if name in result}
                columns = {name: of.map(with_display_names, na_action="ignore") for name, of in labelled.items()}
                return result.renamed(**columns) if isinstance(result, ShownFrame) else result.assign(**columns)
            return result

    return called


@_public
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
    """Trains ``labels`` on tasks and returns the scores. Stored runs are not trained again.

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
    experiment = prepare(grid, device=device, results=results)
    execution = {"slots": slots, "threads": threads, "group": group, "keep_weights": keep_weights}
    return _trained(experiment, Policy(redo=force), **execution).scores.drop(columns=["heuristic"])


@_public
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
    return prepare(_grid(labels, profile, overrides, tasks, seeds, fidelity, budget), device=device, results=results)


@_public
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
    """Trains ``labels`` as language models and returns their curves. Stored runs are not trained again.

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
        _rows(labels), (LANGUAGE_TASK,), check_seeds(seeds), str(profile), "corrected", budget, _changes(overrides)
    )
    data: dict[str, Any] = {"corpus": corpus, "tokenizer": tokenizer, "dtype": dtype}
    experiment = prepare(grid, device=device, results=results, precision=precision, **data)
    trained = _trained(
        experiment, Policy(redo=force), slots=slots, threads=threads, micro_batch=micro_batch, compile=compile
    )
    suite = suite_of_task(LANGUAGE_TASK)
    return scoring_of(suite).curves(trained.runs(suite))


@_public
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
    """Trains a grid and returns its scores. Stored runs are not trained again.

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
        vary = parse_axes(_words(vary))
    if overrides:
        set = {**(set or {}), **settings_of(_changes(overrides))}
    arguments: dict[str, Any] = {"vary": vary, "tasks": tasks, "seeds": seeds, "profile": profile, "fidelity": fidelity}
    arguments |= {"budget": budget, "set": set, "mode": mode, "baseline": baseline, "rows": rows}
    keys = {name: value for name, value in arguments.items() if value is not None}
    check_is_not_imported()
    source = grid if is_grid_file(grid) else texts_of(grid)
    data: dict[str, Any] = {"corpus": corpus, "tokenizer": tokenizer, "dtype": dtype}
    loaded = load_grid(source, keys)
    show(shown_names().over(loaded.names))
    experiment = prepare(loaded, device=device, results=results, **data)
    policy = Policy(redo=force, retry=retry)
    execution = {"slots": slots, "threads": threads, "group": group, "keep_weights": keep_weights}
    scores = _trained(experiment, policy, **execution).scores.drop(columns=["heuristic"])
    by_name = {row.name: row.row for row in experiment.rows}
    changes = {name: settings_of(row.changes) for name, row in by_name.items()}
    first = {"row": scores.label, "label": [by_name[name].label for name in scores.label]}
    first |= {key: [changes[name].get(key) for name in scores.label] for key in experiment.grid.axes}
    return pd.concat([pd.DataFrame(first), scores.drop(columns="label")], axis=1)


@dataclass(frozen=True)
class StoredResults:
    """A results folder that is open for reading. :func:`open` makes it."""

    results: Path

    @_public
    def select(
        self,
        labels: str | Sequence[str] = (),
        *,
        profile: str | None = None,
        overrides: Changes = (),
        tasks: str | Iterable[str] | None = None,
        fidelity: Fidelity = "corrected",
        budget: Budget | None = "strict",
        protocol: str | None = None,
        corpus: str | None = None,
    ) -> Selection:
        """The stored runs of labels under one protocol. The arguments are those that all functions share.

        Nothing is read before a method of the selection asks for it.
        """
        return Selection(
            labels=expand(labels),
            overrides=_changes(overrides),
            profile=None if profile is None else str(profile),
            tasks=None if tasks is None else _words(tasks),
            fidelity=fidelity,
            budget=budget,
            protocol=protocol,
            corpus=corpus,
            results=self.results,
            warn=functools.partial(warnings.warn, stacklevel=2),
        )


def open(results: Path | str = "results") -> StoredResults:
    """Opens a results folder for reading: ``madbench.open("results").select("@table1").table()``."""
    return StoredResults(Path(results))


@_public
def table(
    labels: str | Sequence[str] = (),
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    ranks: bool = False,
    costs: bool = False,
    full_square: bool = False,
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The table of the stored runs, one row per label and column.

    The columns are the mean, its interval, the standard deviation (``spread``), the solved seeds, the published number,
    and the scores of a guess (``chance``) and of the best answer without context (``heuristic``). With ``ranks`` there
    are also ``rank``, ``rank_low`` and ``rank_high``: a simultaneous 95% interval for all labels of a column.

    With ``costs`` a row per label and cost follows, as with ``madbench table --costs``: ``task`` is ``parameters``,
    ``flops_per_token``, ``state``, ``step_ms`` or ``memory_mib``, ``mean`` the cost in ``unit``, and ``ratio`` the
    ratio to the label ``baseline``. With ``full_square`` FLOPs count all T pairs of a token, in place of the causal
    half. The tables of costs are ``below`` of the frame, one per suite.
    """
    _check_full_square(full_square, costs)
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    selected = selection.select()
    shown = selection.table_of(selected, shows="rank" if ranks else "interval")
    return ShownFrame.of(shown, cost_tables(selected, full_square, list(shown.rows)).values() if costs else ())


@_public
def compare(
    labels: Sequence[str],
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    within: float | Mapping[str, float] | None = None,
    costs: bool = False,
    full_square: bool = False,
) -> pd.DataFrame:
    """The comparison of the first label with each of the others: difference, interval, p and verdict per column.

    ``within`` is a margin for all columns in points, or by column, such as ``{"mad_average": 2, "loss_l5": 0.02}``. If
    it is given, a test of whether the difference is within the margin is added (``equivalence``: equivalent, no worse,
    no better, not shown).

    With ``costs`` a row per label and cost follows, as for :func:`table`.
    """
    _check_full_square(full_square, costs)
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    shown = selection.compare(within)
    if not costs:
        return ShownFrame.of(shown)
    return ShownFrame.of(shown, cost_tables(selection.select(is_enough=lambda of: len(of) > 1), full_square).values())


@_public
def attribute(
    labels: str | Sequence[str] = (),
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The effect of each factor of the labels, with its pairs of labels, and the interactions of two factors.

    Raises ``StoreError`` if no two labels differ in exactly one factor.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return ShownFrame.of(selection.attribute())


@_public
def audit(
    labels: str | Sequence[str] = (),
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    against: str | None = None,
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """The audit of a profile: one row per column.

    It has the agreement of seeds about the labels, the shares of labels that the column cannot separate, and the rank
    correlations with other columns. ``against`` is another profile. If it is given, the frame instead says which orders
    of labels and which differences also hold under that profile.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    if against is None:
        return ShownFrame.of(selection.audit())
    others = _selection(labels, against, overrides, tasks, fidelity, budget, None, corpus, results)
    return ShownFrame.of(selection.audit(others))


@_public
def findings(
    labels: str | Sequence[str] = (),
    *,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
    claims: Path | str | None = None,
    unscaled: bool = False,
) -> pd.DataFrame:
    """The verdicts of the stored runs on claims: one row per claim and quantity.

    Args:
        claims: a file of claims or the name of a paper. Default: every paper with claims on the stored labels.
        unscaled: True to keep thresholds that are shares of published accuracies in the paper's points. By default
            these thresholds are scaled to the profile.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return ShownFrame.of(selection.findings(claims, unscaled))


@_public
def plot(
    figure: str,
    labels: str | Sequence[str] = (),
    *,
    width: Width | None = None,
    title: bool = True,
    caption: bool = True,
    profile: str | None = None,
    overrides: Changes = (),
    tasks: str | Iterable[str] | None = None,
    fidelity: Fidelity = "corrected",
    budget: Budget = "strict",
    protocol: str | None = None,
    corpus: str | None = None,
    results: Path | str = "results",
    rename: Mapping[str, str] | None = None,
) -> Figure:
    """A Matplotlib figure of the stored runs: ``scores``, ``learning``, ``difficulty``, ``loss``, ``effects`` or
    ``budget``.

    ``width`` is ``single`` for one column of a paper, 3.3 inches, or ``double`` for the page, 6.9 inches. By default
    the figure is as wide as it needs. A figure of a single column is 2.5 inches high; its attribute ``following`` has
    further pages, and ``caption`` has the title and the sentences.

    Raises ``NothingToDrawError`` if there is nothing to draw.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return selection.plot(figure, width, title, caption)


@_public
def verify(labels: str | Sequence[str], *, rename: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The checks of the mixers of ``labels``: one row per check, as in ``madbench verify -f json``.

    ``verdict`` is ``pass``, ``fail`` or ``not applicable``. ``residual`` is missing if nothing could be measured.
    """
    outcomes = {label: run_checks(label, checks_of) for label in expand(labels)}
    return pd.DataFrame([{"label": label} | outcome.row for label in outcomes for outcome in outcomes[label]])


def _grid(
    labels: str | Sequence[str],
    profile: str | None,
    overrides: Changes,
    tasks: str | Iterable[str] | None,
    seeds: int | Sequence[int],
    fidelity: Fidelity,
    budget: Budget,
) -> Grid:
    chosen = tuple(main_suite().usual_tasks()) if tasks is None else _words(tasks)
    return Grid(_rows(labels), chosen, check_seeds(seeds), str(profile or ""), fidelity, budget, _changes(overrides))


def _selection(
    labels: str | Sequence[str],
    profile: str | None,
    overrides: Changes,
    tasks: str | Iterable[str] | None,
    fidelity: Fidelity,
    budget: Budget,
    protocol: str | None,
    corpus: str | None,
    results: Path | str,
) -> Selection:
    return open(results).select(
        labels,
        profile=profile,
        overrides=overrides,
        tasks=tasks,
        fidelity=fidelity,
        budget=budget,
        protocol=protocol,
        corpus=corpus,
    )


def _check_full_square(full_square: bool, costs: bool) -> None:
    if full_square and not costs:
        raise ConfigError("full_square=True has no effect without costs=True")


def _trained(experiment: Experiment, policy: Policy, **options: Any) -> Results:
    """Trains the jobs of an experiment and returns their results. Raises ``TrainingError`` if some of them failed.

    During training a terminal shows a progress bar. A notebook also shows the running jobs.
    """
    console = Console(stderr=True)
    if options.get("keep_weights") and (note := experiment.note_on_weights()) and not policy.redo:
        console.print(note)
    if console.is_jupyter:
        with NotebookProgress(experiment.jobs) as progress:
            summary = experiment.execute(progress.on_event, policy=policy, **options)
    else:
        with Progress(console=console, disable=not console.is_terminal) as bars:
            bar = bars.add_task("training", total=len(experiment.jobs))

            def on_event(event: Event) -> None:
                bars.advance(bar, event["event"] in ("finished", "failed", "skipped"))

            summary = experiment.execute(on_event, policy=policy, **options)
    store = Snapshot.open(experiment.results, create=False)
    records = store.records(job.id for job in experiment.jobs).values()
    stored = [record for record in records if record.status == "failed"]
    if failed := max(summary.failed, len(stored)):  # a job that failed now may keep its earlier result
        hint = "" if policy.retry else "; retry=True trains them again"
        hint += f"; one failed with: {reason(stored[0])}" if stored else ""
        raise TrainingError(f"{failed} of {len(experiment.jobs)} jobs failed; see {experiment.results}/runs{hint}")
    return Results(experiment, store)


def _rows(labels: str | Sequence[str]) -> tuple[Row, ...]:
    return tuple(map(Row, expand(labels)))


def _changes(overrides: Changes) -> tuple[str, ...]:
    """The changes as texts ``KEY=VALUE``."""
    if isinstance(overrides, Mapping):
        return tuple(override_of(key, value, "overrides") for key, value in overrides.items())
    return _words(overrides)


def _words(words: str | Iterable[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)
