"""The Python functions: ``run``, ``sweep`` and ``run_language_model`` train; the others show what is stored.

Jobs run in processes of their own, which import no script but one that defines a class that they train: such a script
calls those that train under ``if __name__ == "__main__":``. Functions that show return a frame with a row per cell,
which a notebook shows as a table, or a figure. Which runs they show is decided by the same arguments in all of them, as
by the options of the verbs of the same names:

- labels: labels or sets of labels (``"G-cg-q-12o"``, ``["{S,R}-c", "@table1"]``); without any all that are stored;
- profile, overrides, tasks, fidelity, budget, results: as in :func:`run`; without ``tasks`` the six of MAD, and the
  language model where runs of one protocol are stored;
- protocol, corpus: of the language model's runs, where several are stored;
- rename: display names of labels in figures and frames, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``. A frame has the
  canonical label of every other label.

They raise ``StoreError`` where nothing of that protocol is stored, and warn (``UserWarning``) of damaged runs and of
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

from madbench.analysis.marked_text import Width
from madbench.analysis.notebook import NotebookProgress
from madbench.analysis.scores import Results
from madbench.analysis.shown_frame import ShownFrame
from madbench.analysis.stored import Selection
from madbench.config import check_seeds, override_of, plain_values, settings_of
from madbench.errors import TrainingError
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
"""Columns of a frame that are of labels, or begin with one."""


def _public(verb: Callable[_P, _R]) -> Callable[_P, _R]:
    """Adds to ``verb`` what every public function does for its caller.

    Arguments of the types of NumPy, torch and pandas become Python's. Figures and frames show labels by the names of
    ``rename``, whose keys are labels in any spelling. The caller's random state stays as it is. The code of the labels
    that ``verb`` is called with may be imported (:mod:`madbench.labels.trust`).
    """
    signature = inspect.signature(verb)

    @functools.wraps(verb)
    def called(*arguments: _P.args, **settings: _P.kwargs) -> _R:
        if "names" in settings:
            raise TypeError(f"{verb.__name__}() has no argument 'names'; display names are given as rename={{...}}")
        rename: Any = settings.get("rename")
        plain, plain_settings = plain_values(arguments), plain_values(settings)
        labels: Any = ()
        with suppress(TypeError):  # of a wrong call, which the verb itself raises
            labels = signature.bind(*plain, **plain_settings).arguments.get("labels", ())
            trust.allow_typed(labels, with_files=verb.__name__ in TRAINING)
        names = names_of(labels, DisplayNames().with_names(rename or {}))
        with shown(names), kept_random_state():
            result = verb(*plain, **plain_settings)
            if rename and isinstance(result, pd.DataFrame):
                columns = {name: result[name].map(with_display_names) for name in _LABELLED if name in result}
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
    """Trains ``labels`` on tasks and returns the scores; what the store has already is not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        profile: ``evening``, ``quick``, ``full`` or a YAML file; by default the usual one of the suite of the tasks.
        overrides: changes to the profile, such as ``"training.epochs=20"`` or ``{"training.epochs": 20}``.
        tasks: names of tasks; the six of MAD by default.
        seeds: each decides initialisation, data and order.
        fidelity: ``corrected``, or ``published`` for the reference implementation's protocol.
        budget: ``strict`` or ``paper``: what the parameter budget counts.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        slots: jobs at a time; one a core on the CPU, one on a GPU.
        threads: of each job on a CPU; by default as OMP_NUM_THREADS says, else one, and the free cores for a language
            model that has them to itself. Another number changes the last digits of results.
        group: jobs of equal shapes that share a step; by default if a timing test shows a speed-up.
        force: train again what is already there.
        keep_weights: keep the weights of new runs with them.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row a label, seed and task, and ``mad_average`` (:mod:`madbench.analysis.scores`); ``value`` is in percent.
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
    """What :func:`run` would train with the same arguments; a notebook shows jobs, parameters and FLOPs a row."""
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
    """Trains ``labels`` as language models and returns their curves; what the store has already is not trained again.

    Args:
        labels: labels or sets of labels (``"G-cg-q-12o"``, ``"{S,R}-c"``, ``"@table1"``).
        profile: ``tiny``, ``mini``, ``gpt2`` or a YAML file.
        overrides: changes to the profile, such as ``"training.steps=1000"`` or ``{"training.steps": 1000}``.
        corpus: folder made by ``madbench lm prepare``, or one with nanoGPT's train.bin and val.bin; by default the
            profile's own, which is prepared on first use.
        tokenizer: what made the ids of nanoGPT's files, ``gpt2`` by default.
        dtype: of nanoGPT's ids, such as ``uint32``; by default what they fit.
        seeds: each decides initialisation and batches.
        budget: ``strict`` or ``paper``: what the parameter budget counts.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store; default corpora are below it.
        precision: stands in for a profile's ``auto``, which otherwise depends on the device.
        slots: runs at a time, which share the cores.
        threads: of each job on a CPU; by default as OMP_NUM_THREADS says, else one, and the free cores for a language
            model that has them to itself. Another number changes the last digits of results.
        force: train again what is already there.
        micro_batch: windows in memory at a time.
        compile: whether models go through ``torch.compile``; ``auto``: when it saves time.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row a label, seed and logged step: training loss and tokens so far, at evaluations also the validation loss.
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
    """Trains a grid and returns its scores; what the store has already is not trained again.

    Args:
        grid: a YAML file, or labels and sets of labels. The next arguments are the keys of a grid
            (:class:`madbench.grid.GridFile`), and stand instead of the file's.
        vary: what rows differ in: ``{"model.mix_rank": [4, 8]}``, or ``"model.mix_rank=4,8"``.
        tasks: MAD tasks and ``language_model``; all seven by default.
        seeds: ``[0, 1]`` or ``"0-4"``; 0 by default.
        profile: as for :func:`run`.
        fidelity: ``corrected``, or ``published`` for the reference implementation's protocol.
        budget: ``strict`` or ``paper``: what the parameter budget counts.
        set: settings that all rows share, by key.
        mode: ``product``, ``one_at_a_time`` or ``list``.
        baseline: the row that others are compared with; the first by default.
        rows: in mode ``list`` each a label and settings of its own.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        corpus: of the language model, as for :func:`run_language_model`; its profile's own by default.
        tokenizer: what made the ids of nanoGPT's files, ``gpt2`` by default.
        dtype: of nanoGPT's ids, such as ``uint32``; by default what they fit.
        overrides: changes that all rows share, as for :func:`run`.
        slots: jobs at a time.
        threads: of each job on a CPU; by default as OMP_NUM_THREADS says, else one, and the free cores for a language
            model that has them to itself. Another number changes the last digits of results.
        group: jobs of equal shapes that share a step; by default if a timing test shows a speed-up.
        retry: also train jobs that are stored as failed, as ``madbench sweep --retry``.
        force: train again what is already there.
        keep_weights: keep the weights of new MAD runs with them.
        rename: display names of labels in the frame, such as ``{"cd:gdn-cg": "Gated DeltaNet"}``.

    Returns:
        One row a row of the grid, seed and column: ``row`` (its name), ``label``, a column a key that varies, then
        those of :mod:`madbench.analysis.scores`, with accuracies in percent and losses in nats per token.
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
    """A results folder, opened for reading; :func:`open` makes one."""

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
        """The stored runs of labels under one protocol, with the arguments that all functions share.

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
    """A results folder for reading: ``madbench.open("results").select("@table1").table()``."""
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
    rename: Mapping[str, str] | None = None,
) -> pd.DataFrame:
    """What the store holds, a row a label and column.

    Mean, interval, standard deviation (``spread``), solved seeds, published number, what a guess (``chance``) and the
    best answer without context (``heuristic``) score. With ``ranks`` also ``rank``, and ``rank_low`` and ``rank_high``,
    which hold with 95% for all labels of a column at once.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return ShownFrame.of(selection.table(shows="rank" if ranks else "interval"))


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
) -> pd.DataFrame:
    """The first of ``labels`` compared with each of the others: difference, interval, p and verdict a column.

    ``within`` is a margin for all columns in points, or by column, such as ``{"mad_average": 2, "loss_l5": 0.02}``:
    whether the difference is within it is tested as well (``equivalence``: equivalent, no worse, no better, not shown).
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return ShownFrame.of(selection.compare(within))


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
    """What each factor of the labels is worth, its pairs of labels, and the interactions of two factors.

    Raises ``StoreError`` where no two labels differ in one factor alone.
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
    """What the columns of a profile are worth: noise, level labels, what they predict, cost of a bit, seeds needed.

    With ``against``, another profile: which orders of labels and which differences hold there too.
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
    """Claims against the stored runs: one row per claim and quantity.

    Args:
        claims: a file of claims or the name of a paper. Default: every paper with claims on the stored labels.
        unscaled: True keeps lines that are shares of published accuracies in the paper's points.
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

    ``width`` is a column of a paper, 3.3 inches, or both, 6.9; without, the figure is as wide as it needs. Of a single
    column this is the first page, of 2.5 inches; ``following`` has the others, and ``caption`` title and sentences.

    Raises ``NothingToDrawError`` where there is nothing to draw.
    """
    selection = _selection(labels, profile, overrides, tasks, fidelity, budget, protocol, corpus, results)
    return selection.plot(figure, width, title, caption)


@_public
def verify(labels: str | Sequence[str], *, rename: Mapping[str, str] | None = None) -> pd.DataFrame:
    """The checks of ``labels``, on a small mixer in float64: a row a check, as ``madbench verify -f json`` has it.

    ``verdict`` is ``pass``, ``fail`` or ``not applicable``; ``residual`` is missing where nothing could be measured.
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


def _trained(experiment: Experiment, policy: Policy, **options: Any) -> Results:
    """What the jobs gave once all are trained; raises ``TrainingError`` where some failed.

    A terminal shows a bar meanwhile, and a notebook the jobs in training too.
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
    """Changes as KEY=VALUE."""
    if isinstance(overrides, Mapping):
        return tuple(override_of(key, value, "overrides") for key, value in overrides.items())
    return _words(overrides)


def _words(words: str | Iterable[str]) -> tuple[str, ...]:
    return (words,) if isinstance(words, str) else tuple(words)
