"""A sweep: the experiments of a grid, both halves, on one store. ``madbench sweep``, ``madbench run`` and
``madbench.sweep`` share it."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.errors import ConfigError, TrainingError
from madbench.execute.base import Executor, OnEvent, Policy, Summary, ignore_event
from madbench.experiment import Experiment, prepare
from madbench.grid import Grid, Row, errors_named, is_grid_file, load_grid
from madbench.jobs import JobBase
from madbench.language_experiment import LanguageExperiment, prepare_language
from madbench.language_jobs import TASK
from madbench.store.runs import Store
from madbench.suites.equal_rows import notes_on_equal_rows
from madbench.suites.overrides import LANGUAGE_MODEL, LANGUAGE_MODELS
from madbench.suites.preset import load_preset
from madbench.suites.profile import load_profile

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.rendering import TextTable


@dataclass(frozen=True)
class RowOf:
    """A row of one half's table: what it is called, and the experiment whose jobs of this label it shows."""

    row: Row
    experiment: Experiment | LanguageExperiment
    jobs: list[JobBase]


@dataclass(frozen=True)
class Sweep:
    """A checked plan: nothing has been trained or written yet. Either half may be empty."""

    grid: Grid
    mad: list[RowOf]
    language: list[RowOf]
    device: str
    results: Path
    notes: list[str] = field(default_factory=list)
    """What a user should know before anything trains."""

    @functools.cached_property
    def jobs(self) -> list[JobBase]:
        """All jobs of both halves, each once, in the order of the rows."""
        return _unique(job for half in (self.mad, self.language) for row in half for job in row.jobs)

    @property
    def title(self) -> str:
        """The protocol in a line."""
        if len(self.grid.rows) == 1 and self.mad + self.language:
            return (self.mad + self.language)[0].experiment.title
        return f"{len(self.grid.rows)} rows, the baseline {self.grid.rows[0].name}; " + "; ".join(
            half[0].experiment.title for half in (self.mad, self.language) if half
        )

    def execute(
        self,
        on_event: OnEvent = ignore_event,
        slots: int | None = None,
        policy: Policy = Policy(),
        executor: Executor | None = None,
        devices: Sequence[str] | None = None,
    ) -> Summary:
        """Trains what the store lacks: the MAD jobs of all rows in one go, so that no slot waits for a protocol's end,
        then the language models. ``policy.max_failures`` counts over both.

        On this machine, ``slots`` jobs at a time, on the GPUs ``devices`` in turn; or where ``executor`` does it.
        """
        total = Summary()
        for experiment in self._calls():
            allowed = policy.max_failures and policy.max_failures - total.failed
            if allowed is not None and allowed < 1:
                total.left += len(Store.open(self.results).missing(experiment.jobs))
                continue
            where = executor or _on_devices(devices, slots, experiment)
            of_call = experiment.execute(
                on_event, slots=slots, policy=replace(policy, max_failures=allowed), executor=where
            )
            for counter in dataclasses.fields(Summary):
                setattr(total, counter.name, getattr(total, counter.name) + getattr(of_call, counter.name))
        return total

    def _calls(self) -> list[Experiment | LanguageExperiment]:
        """Experiments that hold the jobs of all rows that can train in one call; they share nothing but those."""
        groups: dict[str, list[RowOf]] = {"": self.mad} if self.mad else {}
        for row in self.language:
            groups.setdefault(row.experiment.corpus.digest, []).append(row)
        return [
            replace(rows[0].experiment, jobs=_unique(job for row in rows for job in row.jobs))
            for rows in groups.values()
        ]

    def tabulate(self) -> list[TextTable]:
        """The tables of both halves, as far as their jobs are in the store; none for a half without a result."""
        from madbench.analysis.sweep_table import language_sweep_table, mad_sweep_table

        made = [mad_sweep_table(self) if self.mad else None, language_sweep_table(self) if self.language else None]
        return [table for table in made if table]


def _on_devices(
    devices: Sequence[str] | None, slots: int | None, experiment: Experiment | LanguageExperiment
) -> Executor | None:
    if devices is None:
        return None
    from madbench.execute.local import run_jobs
    from madbench.training.devices import available_cores

    slots = min(slots or len(devices), max(1, len(experiment.jobs)))
    threads = max(1, available_cores() // slots) if isinstance(experiment, LanguageExperiment) else 1
    return functools.partial(run_jobs, slots=slots, devices=list(devices), threads_per_slot=threads)


def _unique(jobs: Iterable[JobBase]) -> list[Any]:
    return list({job.id: job for job in jobs}.values())


def prepare_sweep(
    grid: Grid,
    *,
    device: str = "auto",
    is_remote: bool = False,
    results: Path | str = "results",
    corpus: Path | str | None = None,
) -> Sweep:
    """Parses, budgets and plans every row, and opens the corpus.

    Raises a ``MadbenchError`` for anything that has no effect or could not be trained.

    Args:
        grid: the rows (:func:`madbench.grid.expand_grid`).
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        is_remote: whether the device is that of the machines of an executor, ``cpu`` or ``cuda``.
        results: folder of the run store.
        corpus: of the language model; its preset's own by default.
    """
    common = {"seeds": grid.seeds, "counting": grid.counting, "results": results}
    common |= {"device": device, "is_remote": is_remote}
    with errors_named(grid.where):
        if not grid.rows:
            raise ConfigError("nothing to train: give at least one label and one seed")
        halves = {
            changes: split_halves(grid.profile, grid.tasks, (*grid.overrides, *changes), corpus)
            for changes in dict.fromkeys(row.changes for row in grid.rows)
        }
        mad_tasks = next(iter(halves.values()))[0]
        if mad_tasks == [] and grid.fidelity != "corrected":
            raise ConfigError(f"fidelity {grid.fidelity}: has no effect, only MAD tasks have a fidelity")

        def mad(labels: list[str], overrides: list[str], _: str) -> Experiment:
            choices = {"profile": grid.profile, "tasks": mad_tasks, "fidelity": grid.fidelity}
            return prepare(labels, overrides=overrides, **choices, **common)

        def language(labels: list[str], overrides: list[str], preset: str) -> LanguageExperiment:
            own = [word.removeprefix(LANGUAGE_MODEL) for word in overrides if word.startswith(LANGUAGE_MODEL)]
            return prepare_language(labels, preset=preset, overrides=own, corpus=corpus, **common)

        mad_rows = _rows_of_half(grid, False, mad, dict.fromkeys(halves, "")) if mad_tasks != [] else []
        presets = {changes: preset for changes, (_, preset) in halves.items() if preset}
        language_rows = _rows_of_half(grid, True, language, presets)
        notes = [note for half in (mad_rows, language_rows) for note in notes_on_equal_rows(half)]
        if grid.tasks is None and not presets and load_profile(grid.profile).language_model:
            notes.append(
                "no language model: its preset needs a corpus, --corpus FOLDER; see madbench lm prepare --help"
            )
        device = (mad_rows + language_rows)[0].experiment.device
        return Sweep(grid, mad_rows, language_rows, device, Path(results), notes)


def split_halves(
    profile: str, tasks: Sequence[str] | None, overrides: Sequence[str], corpus: Path | str | None
) -> tuple[list[str] | None, str]:
    """The MAD tasks, None for all of them, and the language model's preset, empty for none."""
    whole = [override for override in overrides if override.startswith("language_model=")]
    preset = load_profile(profile, whole).language_model
    is_asked = tasks is not None and TASK in tasks
    if is_asked and not preset:
        raise ConfigError(f"profile {profile} has no language model; name its preset, such as language_model=tiny")
    if tasks is not None and not is_asked:
        preset = ""
    if preset and not is_asked and corpus is None and not load_preset(preset).corpus:
        preset = ""
    only_language = tasks is not None and set(tasks) == {TASK}
    for override in overrides:
        if override.startswith(LANGUAGE_MODEL) and not preset:
            raise ConfigError(f"override {override!r} has no effect: no language model is trained")
        if only_language and not override.startswith(LANGUAGE_MODELS):
            raise ConfigError(
                f"override {override!r} has no effect on the language model; write language_model.KEY=VALUE"
            )
    if corpus is not None and not preset:
        raise ConfigError(f"--corpus {corpus}: has no effect, no language model is trained")
    return None if tasks is None else [task for task in tasks if task != TASK], preset


def _rows_of_half(
    grid: Grid,
    is_language: bool,
    prepare_one: Callable[[list[str], list[str], str], Any],
    presets: Mapping[tuple[str, ...], str],
) -> list[RowOf]:
    """The rows of one half whose changes are among ``presets``, each once; one experiment for all labels that share
    their changes."""
    rows = {row.of_half(is_language): presets[row.changes] for row in grid.rows if row.changes in presets}
    labels: dict[tuple, list[str]] = {}
    for row, preset in rows.items():
        labels.setdefault((row.changes, preset), []).append(row.label)
    shared = [word for word in grid.overrides if word.startswith(LANGUAGE_MODELS) == is_language]
    experiments = {
        (changes, preset): prepare_one(of_it, [*shared, *changes], preset)
        for (changes, preset), of_it in labels.items()
    }
    jobs: dict[tuple, list[JobBase]] = {}
    for (changes, preset), experiment in experiments.items():
        for job in experiment.jobs:
            jobs.setdefault((changes, preset, job.label), []).append(job)
    return [
        RowOf(row, experiments[row.changes, preset], jobs[row.changes, preset, row.label])
        for row, preset in rows.items()
    ]


def sweep(
    grid: str | Path | Sequence[str],
    *,
    device: str = "auto",
    results: Path | str = "results",
    corpus: Path | str | None = None,
    slots: int | None = None,
    retry: bool = True,
    force: bool = False,
    **keys: Any,
) -> pd.DataFrame:
    """Trains a grid and returns its scores; what the store has already is not trained again.

    Args:
        grid: a YAML file, or labels and sets of labels.
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        results: folder of the run store.
        corpus: of the language model; its preset's own by default.
        slots: jobs at a time.
        retry: try failed jobs again.
        force: train again what is already there.
        keys: those of a grid, instead of the file's: ``vary={"model.mix_rank": [4, 8]}``, ``seeds=[0, 1]``, tasks,
            profile, fidelity, budget, set, mode, baseline (:class:`madbench.grid.GridFile`).

    Returns:
        One row a row of the grid, task and seed: ``row`` (its name), ``label``, a column a key that varies, ``task``,
        ``seed``, and the columns of :func:`madbench.analysis.scores.scores`, accuracies in percent; of the task
        ``language_model`` instead those of :func:`madbench.analysis.loss_curves.run_losses`, losses in nats per token.

    Jobs run in processes of their own: call this under ``if __name__ == "__main__":`` in a script.
    """
    from madbench.analysis.sweep_table import sweep_scores

    source = [grid] if isinstance(grid, str) and not is_grid_file(grid) else grid
    prepared = prepare_sweep(load_grid(source, keys), device=device, results=results, corpus=corpus)
    summary = prepared.execute(slots=slots, policy=Policy(redo=force, retry=retry))
    if summary.failed:
        raise TrainingError(f"{summary.failed} of {len(prepared.jobs)} jobs failed; see {prepared.results}/runs")
    return sweep_scores(prepared)
