"""The planner of experiments: each row of a grid becomes jobs of every suite.

The command line and the Python API both call :func:`prepare`.
"""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from madbench.config import Override, check_seeds, convert, short_repr
from madbench.errors import ConfigError, StoreError, no_effect, prefix_errors
from madbench.experiment.experiment import Experiment
from madbench.experiment.notes import (
    note_without_effect,
    notes_on_budget,
    notes_on_compute,
    notes_on_equal_rows,
    notes_on_heads,
    notes_on_rates,
    notes_on_schedules,
)
from madbench.jobs import Budget, Fidelity
from madbench.rows import Grid, SuiteRow
from madbench.store.edited_code import notes_on_earlier_code
from madbench.suites import Suite, suites
from madbench.suites.addressing import (
    beside_profiles,
    overrides_outside,
    own_overrides,
    profile_named,
    suite_of_override,
    tasks_by_suite,
    tasks_in_order,
)
from madbench.suites.corpora import NoCorpusError
from madbench.suites.overrides import check_effect
from madbench.suites.planning import MOST_JOBS
from madbench.suites.protocol import Protocol
from madbench.text.options import CorpusOptions

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus


@dataclass(frozen=True)
class ExperimentOptions:
    """The options of :func:`prepare`: everything besides the grid that the experiment depends on."""

    device: str = "auto"
    """``auto``, ``cpu``, ``cuda``, ``cuda:1``, ..."""
    results: Path | str = "results"
    """Folder of the run store and of default corpora."""
    data: CorpusOptions = CorpusOptions()
    """Corpus of the language model. By default the profile's corpus, which is prepared on first use."""
    is_remote: bool = False
    """True if ``device``, ``cpu`` or ``cuda``, is a device of an executor's machines and not of this one.

    The precision ``auto`` then means bfloat16 on ``cuda``."""
    is_plan: bool = False
    """True if nothing will be trained.

    Nothing is then written to ``results``, and a profile that states its vocabulary size needs no corpus."""
    makes_corpus: bool = True
    """True if a missing default corpus is prepared. If False, its absence raises ``NoCorpusError``."""


def prepare(grid: Grid, options: ExperimentOptions = ExperimentOptions()) -> Experiment:
    """Plan the jobs of all rows of a grid, check that they can be trained, and open the corpus.

    Raises a ``MadbenchError`` if an option has no effect or a job cannot be trained.
    """
    from madbench.training.devices import resolve_device

    results, corpus = Path(options.results), options.data.corpus
    if os.path.isfile(results):
        raise StoreError(f"{results}: a file is where a folder should be; choose another results folder")
    with prefix_errors(grid.where):
        check_seeds(grid.seeds)
        convert(grid.fidelity, Fidelity, "fidelity")
        convert(grid.budget, Budget, "budget")
        if not grid.rows or not grid.seeds:
            raise ConfigError("nothing to train: give at least one label and one seed")
        device = resolve_device(options.device, is_here=not options.is_remote)
        planner = _Planner(grid, replace(options, device=device, results=results))
        rows = [row for suite in suites().values() for row in planner.rows(suite)]
        if corpus is not None and not any(row.protocol.corpus for row in rows):
            raise no_effect(f"--corpus {corpus}", because="no language model is trained")
        notes = [*planner.notes_on_corpus(), *planner.notes, *planner.notes_on_left_out()]
        notes += notes_on_earlier_code((job for row in rows for job in row.jobs), results)
        return Experiment(grid, rows, device, results, notes)


def labels_of_tasks(grid: Grid) -> tuple[str, ...]:
    """The labels to train if the user names none: those that profiles list for the grid's tasks.

    Empty if none are listed. Raises ``ConfigError`` if the tasks have different default labels, because one table
    cannot show them.
    """
    labels_by_task: dict[str, tuple[str, ...]] = {}
    for name, tasks in tasks_by_suite(grid.tasks).items():
        suite = suites()[name]
        name = profile_named(suite, grid.overrides, grid.leading, grid.profile, is_asked=True)
        overrides = own_overrides(grid.overrides, suite, grid.leading)
        profile = suite.Profile.load(name, overrides)
        labels_by_task |= {
            task: tuple(suite.labels_of(profile, task)) for task in tasks_in_order(suite, overrides, tasks)
        }
    if len(set(labels_by_task.values())) > 1:
        sets = "; ".join(f"{task}: {' '.join(labels) or 'none of its own'}" for task, labels in labels_by_task.items())
        raise ConfigError(f"name labels, or one task: the tasks have different labels of their own ({sets})")
    return next(iter(labels_by_task.values()), ())


@dataclass
class _Planner:
    """A planner of the rows of a grid, for one suite at a time. Labels with equal changes share one protocol."""

    grid: Grid
    options: ExperimentOptions
    """The options. The device ``auto`` is already replaced by ``cpu`` or a GPU."""

    def __post_init__(self) -> None:
        grid, data = self.grid, self.options.data
        for name in ("tokenizer", "dtype"):
            if data.corpus is None and (value := getattr(data, name)) is not None:
                raise no_effect(f"--{name} {value}", "without --corpus")
        self.tasks = tasks_by_suite(grid.tasks)
        """The requested tasks by suite name. If the grid names no tasks: the usual tasks of the main suite."""
        self.leading = grid.leading
        requested_suites = [suites()[name] for name in self.tasks]
        if all(grid.fidelity not in suite.fidelities for suite in requested_suites):
            raise no_effect(f"fidelity {grid.fidelity}", f"on the {_titles(requested_suites)}")
        for suite in requested_suites:
            if grid.budget not in suite.budgets:
                raise no_effect(f"budget {grid.budget}", f"on {_titles([suite])}")
        self.notes: list[str] = []
        """Notes for the user, such as a note on rows that train the same model."""
        self.profiles = {
            changes: self._profiles(changes) for changes in dict.fromkeys(row.changes for row in grid.rows)
        }
        """The names of the profiles to train, by suite name, for each row's changes."""

    def rows(self, suite: Suite) -> list[SuiteRow]:
        """Plan the rows of a grid for one suite, without duplicates, and add notes on them to ``self.notes``.

        Raises ``ConfigError`` if an override has no effect on any row.
        """
        profile_by_row = {
            row.for_suite(suite, self.leading): self.profiles[row.changes][suite.name]
            for row in self.grid.rows
            if suite.name in self.profiles[row.changes]
        }
        protocols: dict[tuple[tuple[Override, ...], str], Protocol] = {}
        planned_rows, plans, count = [], [], 0
        for row, profile in profile_by_row.items():
            of_protocol = (row.changes, profile)
            if of_protocol not in protocols:
                protocols[of_protocol] = self._protocol(suite, (*self.grid.overrides, *row.changes), profile)
            plans.append(protocols[of_protocol].plan([row.label], self.grid.seeds))
            planned_rows.append(SuiteRow(row, protocols[of_protocol], plans[-1].jobs))
            count += len(plans[-1].jobs)
            if count > MOST_JOBS:
                raise ConfigError(f"more than {MOST_JOBS:,} jobs; make a grid of fewer rows or seeds")
        self.notes += notes_on_equal_rows(planned_rows, plans)
        for plan in plans:
            plan.check_spelling()
        for key, override in {override.key: override for plan in plans for override in plan.without_effect}.items():
            keys = [{override.key for override in row.protocol.overrides} for row in planned_rows]
            check_effect(override, [plan for of_row, plan in zip(keys, plans) if key in of_row])
        shared = [override.without_suite() for override in self.grid.overrides]
        self.notes += [note for override in shared if (note := note_without_effect(override, plans))]
        self.notes += [*notes_on_schedules(suite, planned_rows), *notes_on_rates(planned_rows)]
        self.notes += [
            *notes_on_heads(planned_rows),
            *notes_on_budget(planned_rows),
            *notes_on_compute(suite, planned_rows),
        ]
        return planned_rows

    def _protocol(self, suite: Suite, overrides: Sequence[Override], name: str) -> Protocol:
        from madbench.training.devices import resolve_precision

        suite_overrides = own_overrides(overrides, suite, self.leading)
        profile = suite.Profile.load(name, suite_overrides)
        tasks = tasks_in_order(suite, suite_overrides, self.tasks.get(suite.name))
        fidelity = suite.fidelity_of(self.grid.fidelity)
        precision = resolve_precision(profile.precision, self.options.device, is_here=not self.options.is_remote)
        shared = (fidelity, self.grid.budget, precision, self.options.device)
        return Protocol(suite, profile, name, suite_overrides, tasks, *shared, suite.corpus_for(profile, self))

    def _profiles(self, changes: tuple[Override, ...]) -> dict[str, str]:
        """The names of the profiles that are trained, by suite name, for a row with these changes.

        Raises ``ConfigError`` for an override of a suite that is not trained, and for an override that leaves out a
        suite whose tasks are requested.
        """
        overrides = (*self.grid.overrides, *changes)
        profiles: dict[str, str] = {}
        for override in overrides:
            suite = suite_of_override(override, self.leading)
            if override.names_profile and not override.value and suite.name in self.tasks:
                title = suite.title.lower()
                what = f"leaves out the {title}, which the tasks name"
                raise ConfigError(f"override {short_repr(str(override))} {what}; give only one")
        for suite in suites().values():
            is_asked = suite.name in self.tasks
            if is_asked or self.grid.tasks is None:
                name = profile_named(suite, overrides, self.leading, self.grid.profile, is_asked)
                if name and (is_asked or self._has_corpus(suite, name)):
                    profiles[suite.name] = name
        for override in overrides_outside(overrides, profiles, self.leading):
            leaves_out = override.names_profile and not override.value
            if not leaves_out or self.grid.tasks is not None:
                title = suite_of_override(override, self.leading).title.lower()
                raise no_effect(f"override {short_repr(str(override))}", because=f"no {title} is trained")
        return profiles

    def _has_corpus(self, suite: Suite, name: str) -> bool:
        return self.is_named or not suite.lacks_corpus(suite.Profile.load(name))

    @property
    def is_named(self) -> bool:
        """True if the user named a corpus."""
        return self.options.data.corpus is not None

    def imagined(self, vocab_size: int, profile: str) -> Corpus | None:
        """A corpus with ``vocab_size`` token ids but no text, with which a plan counts the costs of a profile.

        It is only used if nothing is trained. A note that says so is then added to ``notes``. None if jobs are trained.
        """
        from madbench.text.corpus import imagined_corpus

        if not self.options.is_plan:
            return None
        way = "--corpus FOLDER trains it (in Python: run_language_model or sweep with corpus=FOLDER)"
        note = f"no corpus: {profile} is counted with its {vocab_size:,} ids; {way}"
        if note not in self.notes:
            self.notes.append(note)
        return imagined_corpus(vocab_size)

    def notes_on_left_out(self) -> list[str]:
        """Notes on suites that are left out because they need a corpus, one note per suite.

        These suites would be trained too, because the profile of the leading suite names them under ``beside``.
        Empty if the user named tasks.
        """
        if self.grid.tasks is not None:
            return []
        profile_by_suite = beside_profiles(self.leading, self.grid.profile)
        lacking = [
            suite
            for suite in suites().values()
            if suite.override_name in profile_by_suite
            and not any(suite.name in profiles for profiles in self.profiles.values())
        ]
        return [
            f"no {suite.title.lower()}: its {suite.Profile.noun} needs a corpus, --corpus FOLDER; see madbench lm "
            "prepare --help"
            for suite in lacking
        ]

    def notes_on_corpus(self) -> list[str]:
        """A list with a note on the integer type with which the token ids of the user's corpus are read.

        Empty if the type is ``uint16``, as in nanoGPT, if the user named the type, or if madbench prepared the corpus.
        """
        data, corpus = self.options.data, self.opened if self.is_named else None
        if corpus is None or corpus.manifest.recipe or data.dtype or corpus.manifest.dtype == "uint16":
            return []
        return [f"{data.corpus}: read as {corpus.manifest.dtype}, which fits its ids; --dtype gives another type"]

    @functools.cached_property
    def opened(self) -> Corpus:
        """The corpus that the user named, or else the default corpus, which is prepared on first use.

        If nothing will be trained, nothing is written to the results folder: a missing default corpus is prepared in a
        temporary folder, which also gets a copy of the cache of verified token files. Raises ``NoCorpusError`` if the
        default corpus is missing and ``makes_corpus`` is False.
        """
        from madbench.text.corpus import open_corpus
        from madbench.text.prepare import default_corpus, has_default_corpus

        options, results = self.options, Path(self.options.results)
        cache = _copied_cache(results / "corpora") if options.is_plan else results / "corpora"
        if options.data.corpus is not None:
            return open_corpus(options.data.corpus, options.data.tokenizer, cache, options.data.dtype)
        if has_default_corpus(results):
            return default_corpus(results, cache)
        if not options.makes_corpus:
            raise NoCorpusError("the default corpus is not prepared yet; madbench lm prepare makes it")
        return default_corpus(_temporary_folder() if options.is_plan else results)


@functools.cache
def _temporary_folder() -> Path:
    """A folder that is deleted when the process ends. Every call returns the same one."""
    folder = tempfile.mkdtemp(prefix="madbench-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def _copied_cache(cache: Path) -> Path:
    """A temporary copy of ``cache``, the records of verified token files.

    With it, a plan need not read the files again.
    """
    folder = _temporary_folder() / "verified"
    folder.mkdir(exist_ok=True)
    for record in cache.glob("*.json"):
        with suppress(OSError):  # without a record, files are read again
            shutil.copy(record, folder)
    return folder


def _titles(chosen_suites: Iterable[Suite]) -> str:
    return " and ".join(suite.title.lower() for suite in chosen_suites)
