"""From a grid to an experiment: its rows as jobs of every suite. The command line and the Python API share it."""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from madbench.config import check_seeds, convert, key_of
from madbench.errors import ConfigError
from madbench.experiment.plan import Experiment, PlannedRow, Protocol
from madbench.grid import LANGUAGE_MODEL, Grid, errors_named, suite_of_override
from madbench.jobs import Budget, Fidelity, Precision
from madbench.suites import LANGUAGE, MAD, Suite
from madbench.suites.base import MOST_JOBS, Profile, check_tasks_of
from madbench.suites.language import TASK, check_windows
from madbench.suites.mad import MadProfile
from madbench.suites.overrides import Plan, check_idle
from madbench.tasks import MAD_TASKS, check_task, task_names

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus

__all__ = ["Experiment", "PlannedRow", "Protocol", "load_mad", "prepare"]


def prepare(
    grid: Grid,
    *,
    device: str = "auto",
    is_remote: bool = False,
    results: Path | str = "results",
    corpus: Path | str | None = None,
    tokenizer: str | None = None,
    dtype: str | None = None,
    precision: Precision | None = None,
) -> Experiment:
    """Parses, budgets and plans every row, and opens the corpus.

    Args:
        grid: the rows (:func:`madbench.grid.expand_grid`).
        device: ``auto``, ``cpu``, ``cuda``, ``cuda:1``, ...
        is_remote: whether the device is that of the machines of an executor, ``cpu`` or ``cuda``; ``auto`` precision is
            bfloat16 on the second.
        results: folder of the run store; default corpora are below it.
        corpus: of the language model: folder made by ``madbench lm prepare``, or one with nanoGPT's train.bin and
            val.bin; its preset's own by default, which is prepared on first use.
        tokenizer: what made the ids of nanoGPT's files, ``gpt2`` by default.
        dtype: of nanoGPT's ids, such as ``uint32``; by default what they fit.
        precision: stands in for a profile's ``auto``, which otherwise depends on the device.

    Raises a ``MadbenchError`` for anything that has no effect or could not be trained.
    """
    from madbench.training.devices import resolve_device

    results = Path(results)
    with errors_named(grid.where):
        check_seeds(grid.seeds)
        convert(grid.fidelity, Fidelity, "fidelity")
        convert(grid.budget, Budget, "budget")
        if not grid.rows or not grid.seeds:
            raise ConfigError("nothing to train: give at least one label and one seed")
        device = resolve_device(device, is_here=not is_remote)
        planner = _Planner(grid, device, not is_remote, results, corpus, tokenizer, dtype, precision)
        rows = [row for suite in (MAD, LANGUAGE) for row in planner.rows(suite)]
        notes = [*planner.notes_on_corpus(), *planner.notes]
        has_preset = any(planner.presets.values()) or not MadProfile.load(grid.profile).language_model
        if grid.tasks is None and not has_preset:
            notes.append(
                "no language model: its preset needs a corpus, --corpus FOLDER; see madbench lm prepare --help"
            )
        return Experiment(grid, rows, device, results, notes)


def load_mad(name: str, overrides: Sequence[str], tasks: Iterable[str] | None) -> tuple[MadProfile, list[str]]:
    """The changed profile ``name`` and the MAD tasks, the six by default, in the order of their table.

    Raises ``ConfigError`` for an override that concerns none of the tasks.
    """
    profile = MadProfile.load(name, overrides)
    chosen = set(MAD_TASKS if tasks is None else tasks)
    ordered = [task for task in task_names() if task in chosen]
    check_tasks_of(overrides, ordered)
    return profile, ordered


@dataclass
class _Planner:
    """From a grid to the rows of each suite: one protocol for all labels that share their changes."""

    grid: Grid
    device: str
    is_here: bool
    results: Path
    corpus: Path | str | None
    tokenizer: str | None
    dtype: str | None
    precision: Precision | None

    def __post_init__(self):
        grid = self.grid
        for name in ("tokenizer", "dtype"):
            if self.corpus is None and (value := getattr(self, name)) is not None:
                raise ConfigError(f"--{name} {value}: has no effect without --corpus")
        self.tasks = None if grid.tasks is None else [task for task in grid.tasks if task != TASK]
        """MAD tasks; None for the six."""
        for task in self.tasks or ():
            check_task(task)
        if self.tasks == [] and grid.fidelity != "corrected":
            raise ConfigError(f"fidelity {grid.fidelity}: has no effect, only MAD tasks have a fidelity")
        self.notes: list[str] = []
        """What a user should know of rows that train the same."""
        self.presets = {changes: self._preset(changes) for changes in dict.fromkeys(row.changes for row in grid.rows)}

    def rows(self, suite: Suite) -> list[PlannedRow]:
        """The rows of one suite, each once; ``ConfigError`` for an override that decides nothing of any of them."""
        if suite is MAD and self.tasks == []:
            return []
        wanted = {
            row.of_suite(suite.name): self.presets[row.changes]
            for row in self.grid.rows
            if suite is MAD or self.presets[row.changes]
        }
        protocols: dict[tuple, Protocol] = {}
        planned, plans, count = [], [], 0
        for row, preset in wanted.items():
            key = (row.changes, preset if suite is LANGUAGE else "")
            if key not in protocols:
                shared = (word for word in self.grid.overrides if suite_of_override(word) == suite.name)
                protocols[key] = self._protocol(suite, (*shared, *row.changes), preset)
            plans.append(protocols[key].plan([row.label], self.grid.seeds))
            planned.append(PlannedRow(row, protocols[key], plans[-1].jobs))
            count += len(plans[-1].jobs)
            if count > MOST_JOBS:
                raise ConfigError(f"more than {MOST_JOBS:,} jobs; make a grid of fewer rows or seeds")
        self.notes += _notes_on_equal_rows(planned, plans)
        for key in dict.fromkeys(key_of(word) for plan in plans for word in plan.idle):
            check_idle(key, [plan for row, plan in zip(planned, plans) if key in map(key_of, row.protocol.overrides)])
        shared = [_of_preset(word) for word in self.grid.overrides]
        self.notes += [note for word in shared if (note := _note_on_idle(word, plans))]
        return planned

    def _protocol(self, suite: Suite, overrides: tuple[str, ...], preset: str) -> Protocol:
        grid = self.grid
        if suite is LANGUAGE:
            own = tuple(word.removeprefix(LANGUAGE_MODEL) for word in overrides if word.startswith(LANGUAGE_MODEL))
            profile = suite.Profile.load(preset, own)
            corpus = self._corpus(profile, preset)
            shared = (self._precision(profile), self.device, corpus)
            return Protocol(suite, profile, preset, own, [TASK], "corrected", grid.budget, *shared)
        profile, tasks = load_mad(grid.profile, overrides, self.tasks)
        shared = (grid.fidelity, grid.budget, self._precision(profile), self.device)
        return Protocol(suite, profile, grid.profile, overrides, tasks, *shared)

    def _precision(self, profile: Profile) -> Precision:
        from madbench.training.devices import resolve_precision

        if self.precision is not None and profile.precision == "auto":
            return self.precision
        return resolve_precision(profile.precision, self.device, is_here=self.is_here)

    def _preset(self, changes: tuple[str, ...]) -> str:
        """The preset of the language model under these changes; empty where none is trained."""
        grid, corpus = self.grid, self.corpus
        overrides = (*grid.overrides, *changes)
        named = [word for word in overrides if key_of(word) == "language_model"]
        preset = wanted = MadProfile.load(grid.profile, named).language_model
        is_asked = grid.tasks is not None and TASK in grid.tasks
        if is_asked and not preset:
            raise ConfigError(
                f"profile {grid.profile} has no language model; name its preset, such as language_model=tiny"
            )
        is_default = grid.tasks is None and preset
        if not is_asked and not (is_default and (corpus is not None or LANGUAGE.Profile.load(preset).corpus)):
            preset = ""
        for override in overrides:
            is_idle = override.startswith(LANGUAGE_MODEL) or (override in named and (wanted or self.tasks is not None))
            if is_idle and not preset:
                raise ConfigError(f"override {override!r} has no effect: no language model is trained")
            if self.tasks == [] and suite_of_override(override) == "mad":
                raise ConfigError(
                    f"override {override!r} has no effect on the language model; write language_model.KEY=VALUE"
                )
        if corpus is not None and not preset:
            raise ConfigError(f"--corpus {corpus}: has no effect, no language model is trained")
        return preset

    def _corpus(self, profile: Profile, preset: str) -> Corpus:
        if self.corpus is None and profile.corpus != "stdlib":
            raise ConfigError(
                f"preset {preset} has no corpus of its own: give --corpus FOLDER, made by madbench lm prepare, or with "
                "nanoGPT's train.bin and val.bin"
            )
        check_windows(self.opened, profile.model_config().seq_len)
        return self.opened

    def notes_on_corpus(self) -> list[str]:
        """A sentence where the ids of another program's files are not of nanoGPT's type, and nobody said of which."""
        opened = self.opened if self.corpus is not None else None
        if opened is None or opened.manifest.recipe or self.dtype or opened.manifest.dtype == "uint16":
            return []
        return [f"{self.corpus}: read as {opened.manifest.dtype}, which is what its ids fit; --dtype says otherwise"]

    @functools.cached_property
    def opened(self) -> Corpus:
        """The corpus of all presets."""
        from madbench.text.corpus import open_corpus
        from madbench.text.prepare import default_corpus

        if self.corpus is None:
            return default_corpus(self.results)
        return open_corpus(self.corpus, self.tokenizer, self.results / "corpora", self.dtype)


def _notes_on_equal_rows(rows: Sequence[PlannedRow], plans: Sequence[Plan]) -> list[str]:
    """A sentence where rows of a suite train the same model, as the label or its budget leaves no choice.

    Raises ``ConfigError`` for other rows of the same jobs, and for a change that changes no row at all.
    """
    by_jobs: dict[frozenset[str], PlannedRow] = {}
    idle = {row.row: set(plan.idle) for row, plan in zip(rows, plans)}
    for row in rows:
        other = by_jobs.setdefault(frozenset(job.id for job in row.jobs), row)
        differing = {*map(_of_preset, row.row.changes)} ^ {*map(_of_preset, other.row.changes)}
        if other is not row and not differing & (idle[row.row] | idle[other.row]):
            raise ConfigError(f"the rows {other.name!r} and {row.name!r} train the same jobs; leave one out")
    trained = {row.row: _trained(row) for row in rows}
    for key in dict.fromkeys(key_of(change) for row in rows for change in row.row.changes):
        groups: dict[tuple, list[tuple]] = {}
        for row, what in trained.items():
            rest = (row.label, *(change for change in row.changes if key_of(change) != key))
            groups.setdefault(rest, []).append(what)
        compared = [group for group in groups.values() if len(group) > 1]
        if compared and all(len(set(group)) == 1 for group in compared):
            raise ConfigError(f"{key} has no effect on any row: each label trains the same model for all its values")
    same: dict[Any, list[str]] = {}
    for row, what in trained.items():
        same.setdefault(what, []).append(row.name)
    doubled = [" = ".join(names) for names in same.values() if len(names) > 1]
    more = f" and {len(doubled) - 3} more" if len(doubled) > 3 else ""
    shown = f"{'; '.join(doubled[:3])}{more}"
    return [f"rows that train the same model, as the label or its budget leaves no choice: {shown}"] if doubled else []


def _note_on_idle(word: str, plans: Sequence[Plan]) -> str:
    """Which labels an override of all rows decides nothing about; empty for none."""
    labels = dict.fromkeys(label for plan in plans for label in plan.idle.get(word, ()))
    return f"{word} decides nothing about {', '.join(labels)}, trained and stored as without it" if labels else ""


def _of_preset(change: str) -> str:
    """A change as the profile of its suite has it."""
    return change.removeprefix(LANGUAGE_MODEL)


def _trained(row: PlannedRow) -> Hashable:
    """What the row trains, however its settings spell it; a row without changes is its label alone."""
    if not row.row.changes:
        return row.row.label
    return frozenset(row.protocol.suite.trained(job) for job in row.jobs if job.seed == row.jobs[0].seed)
