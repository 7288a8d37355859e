"""Experiment: the rows of a grid as jobs of every suite on one store. The command line and the Python API share it."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from madbench.config import check_seeds, key_of
from madbench.errors import ConfigError, did_you_mean
from madbench.execute.base import Executor, OnEvent, Policy, Summary, ignore_event
from madbench.grid import LANGUAGE_MODEL, Grid, Row, errors_named, suite_of_override
from madbench.jobs import Budget, Fidelity, Job, Precision
from madbench.labels import family_of, parse
from madbench.mixers import solve
from madbench.store.runs import Store
from madbench.suites import LANGUAGE, MAD, SUITES, Suite
from madbench.suites.base import MOST_JOBS, Profile, field_names, unique
from madbench.suites.language import TASK
from madbench.suites.mad import MadProfile
from madbench.tasks import MAD_TASKS, check_task, task_names
from madbench.training.group import groups_of, usual_size

if TYPE_CHECKING:
    from madbench.text.corpus import Corpus
    from madbench.training.compiling import Compile

MEASURED = "measured"  # folder in the results for what was measured of this machine's speed


@dataclass(frozen=True)
class Protocol:
    """What the runs of one table share, whatever their label and seed."""

    suite: Suite
    profile: Profile
    profile_name: str
    overrides: tuple[str, ...]  # changes to the profile, as KEY=VALUE
    tasks: list[str]
    fidelity: Fidelity
    budget: Budget
    precision: Precision
    device: str
    corpus: Corpus | None = None

    @property
    def title(self) -> str:
        """The protocol in a line."""
        what = f"profile {self.profile_name}, {self.fidelity}, {self.device}"
        if self.corpus is not None:
            what = f"language model, preset {self.profile_name}, corpus {self.corpus.name}, {self.device}"
        return what if self.profile.comparable_with_paper else f"{what}; not comparable with the paper"

    def jobs(self, labels: Sequence[str], seeds: Sequence[int]) -> list[Job]:
        """The jobs of ``labels``; raises a ``MadbenchError`` for anything that could not be trained."""
        how: dict[str, Any] = {"seeds": seeds, "budget": self.budget, "precision": self.precision}
        if self.suite is LANGUAGE:
            return self.suite.jobs(labels, self.profile, corpus=self.corpus, **how)
        return self.suite.jobs(labels, self.profile, tasks=self.tasks, fidelity=self.fidelity, **how)


@dataclass(frozen=True)
class PlannedRow:
    """A row of one suite's table: what it is called, its protocol, and the jobs that it shows."""

    row: Row
    protocol: Protocol
    jobs: list[Job]

    @property
    def name(self) -> str:
        return self.row.name


@dataclass(frozen=True)
class Experiment:
    """A checked plan: nothing has been trained or written yet."""

    grid: Grid
    rows: list[PlannedRow]  # of every suite, suite by suite, the baseline first
    device: str
    results: Path
    notes: list[str] = field(default_factory=list)  # what a user should know before anything trains

    def of(self, suite: Suite) -> Experiment:
        """The part of one suite."""
        return replace(self, rows=[row for row in self.rows if row.protocol.suite is suite])

    @property
    def suites(self) -> list[Suite]:
        """Those that have rows."""
        return [suite for suite in SUITES.values() if any(row.protocol.suite is suite for row in self.rows)]

    @functools.cached_property
    def jobs(self) -> list[Job]:
        """All jobs, each once, in the order of the rows."""
        return unique(job for row in self.rows for job in row.jobs)

    @property
    def protocol(self) -> Protocol:
        """That of the first row, the baseline."""
        return self.rows[0].protocol

    @property
    def labels(self) -> list[str]:
        """The labels of the rows, each once."""
        return list(dict.fromkeys(row.row.label for row in self.rows))

    @property
    def title(self) -> str:
        """The protocols in a line."""
        titles = "; ".join(self.of(suite).protocol.title for suite in self.suites)
        if all(not row.row.changes for row in self.rows):
            return titles
        return f"{len(self.grid.rows)} rows, the baseline {self.grid.rows[0].name}; {titles}"

    def note_on_weights(self) -> str:
        """What to do about stored runs whose weights were not kept; empty where there is none.

        Raises ``ConfigError`` where keeping weights has no effect.
        """
        if MAD not in self.suites:
            raise ConfigError("--keep-weights has no effect: language models keep theirs, and no MAD task is trained")
        store = Store(self.results)
        if not (self.results / "runs").is_dir():
            return ""
        records = store.records(job.id for job in self.jobs).items()
        found = [job_id for job_id, record in records if record.status == "finished" and not store.has_weights(job_id)]
        if not found:
            return ""
        counted = "1 stored run has" if len(found) == 1 else f"{len(found)} stored runs have"
        return f"{counted} no weights and will not be trained again; with --force they are, and keep them"

    def execute(
        self,
        on_event: OnEvent = ignore_event,
        slots: int | None = None,
        policy: Policy = Policy(),
        executor: Executor | None = None,
        devices: Sequence[str] | None = None,
        micro_batch: int | None = None,
        compile: Compile = "never",
        keep_weights: bool = False,
        group: int | None = None,
        cuda_graph: bool = True,
    ) -> Summary:
        """Trains what the store lacks; ``policy.max_failures`` counts over all.

        On this machine, ``slots`` jobs at a time, on the GPUs ``devices`` in turn, on the CPU all suites in one pool
        (:func:`madbench.execute.slots.plan_shifts`); or suite by suite where ``executor`` does it; under torchrun, all
        processes as one. ``micro_batch`` sequences go through the model at once; it and ``compile``
        change the speed, not the result. ``keep_weights`` keeps those of MAD runs too.

        ``group`` jobs of equal shapes share a step, which changes the result by rounding only. Without a number at most 8
        do, on this machine and where a few steps of them are measured to be faster so; with a time limit, which is a
        job's, or unless ``compile`` is ``never``, none. ``cuda_graph`` launches a step on a GPU as one graph.
        """
        from madbench.execute.local import run_jobs
        from madbench.execute.slots import Shift, plan_shifts
        from madbench.execute.torchrun import train_distributed
        from madbench.training.compiling import has_compiler
        from madbench.training.distributed import is_distributed, is_first
        from madbench.training.loop import train

        if is_distributed():
            for name, value in {"slots": slots, "executor": executor, "devices": devices, "group": group}.items():
                if value is not None:
                    raise ConfigError(
                        f"--{name} has no effect under torchrun: all its processes train one run together"
                    )
            executor = functools.partial(train_distributed, device=self.device)
        if group is not None and group > 1 and compile != "never":
            raise ConfigError(
                f"--group {group} has no effect with --compile {compile}: compiled models train one by one"
            )
        if compile == "always" and executor is None and not has_compiler():
            raise ConfigError("--compile always: there is no C++ compiler here; install g++, or take auto or never")
        if not cuda_graph and self.device == "cpu":
            raise ConfigError("--no-cuda-graph has no effect with --device cpu")
        store = Store.open(self.results) if is_first() else Store(self.results)
        corpora = {  # absolute: workers have another working directory
            corpus.digest: replace(
                corpus, folder=corpus.folder.absolute(), cache=corpus.cache and corpus.cache.absolute()
            )
            for row in self.rows
            if (corpus := row.protocol.corpus)
        }
        training = functools.partial(
            train,
            device=self.device,
            corpora=corpora,
            micro_batch=micro_batch,
            compile=compile,
            keep_weights=keep_weights,
            cuda_graph=cuda_graph,
            stacking="measured" if group is None else "always",
            measurements=self.results.absolute() / MEASURED,
        )
        if executor is not None:
            shifts = [Shift(self.of(suite).jobs, 1, 1) for suite in self.suites]
        else:
            statuses = {job_id: record.status for job_id, record in store.records(job.id for job in self.jobs).items()}
            left = [job for job in self.jobs if not policy.skips(statuses.get(job.id))]
            shifts = plan_shifts(self.jobs, self.device, slots, devices, micro_batch, left)
        total = Summary()
        for shift in shifts:
            is_usual = executor is None and compile == "never" and policy.time_limit is None
            most = group or (usual_size(len(shift.jobs), shift.slots) if is_usual else 1)
            groups = groups_of(shift.jobs, most)
            allowed = policy.max_failures and policy.max_failures - total.failed
            if allowed is not None and allowed < 1:
                total.left += len(store.missing(shift.jobs))
                continue
            how = {"slots": min(shift.slots, len(groups)), "threads_per_slot": shift.threads, "devices": devices}
            run = executor or functools.partial(run_jobs, **how)
            total += run(groups, store, training, on_event=on_event, policy=replace(policy, max_failures=allowed))
        return total


def prepare(
    grid: Grid,
    *,
    device: str = "auto",
    is_remote: bool = False,
    results: Path | str = "results",
    corpus: Path | str | None = None,
    tokenizer: str | None = None,
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
        precision: stands in for a profile's ``auto``, which otherwise depends on the device.

    Raises a ``MadbenchError`` for anything that has no effect or could not be trained.
    """
    from madbench.training.devices import resolve_device

    results = Path(results)
    with errors_named(grid.where):
        check_seeds(grid.seeds)
        for name, value, allowed in (("fidelity", grid.fidelity, Fidelity), ("budget", grid.budget, Budget)):
            if value not in get_args(allowed):
                raise ConfigError(f"{name}: {value!r} is not allowed{did_you_mean(value, get_args(allowed))}")
        if not grid.rows or not grid.seeds:
            raise ConfigError("nothing to train: give at least one label and one seed")
        device = resolve_device(device, is_here=not is_remote)
        planner = _Planner(grid, device, not is_remote, results, corpus, tokenizer, precision)
        rows = [row for suite in (MAD, LANGUAGE) for row in planner.rows(suite)]
        notes = [note for suite in (MAD, LANGUAGE) for note in _notes_on_equal_rows(rows, suite)]
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
    for override in overrides:
        first, _, rest = override.partition(".")
        if first == "tasks" and rest.partition(".")[0] not in ordered:
            raise ConfigError(f"override {override!r} has no effect: the tasks are {', '.join(ordered)}")
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
    precision: Precision | None

    def __post_init__(self):
        grid = self.grid
        self.tasks = None if grid.tasks is None else [task for task in grid.tasks if task != TASK]
        """MAD tasks; None for the six."""
        for task in self.tasks or ():
            check_task(task)
        if self.tasks == [] and grid.fidelity != "corrected":
            raise ConfigError(f"fidelity {grid.fidelity}: has no effect, only MAD tasks have a fidelity")
        self.presets = {changes: self._preset(changes) for changes in dict.fromkeys(row.changes for row in grid.rows)}
        self.opened: Corpus | None = None

    def rows(self, suite: Suite) -> list[PlannedRow]:
        """The rows of one suite, each once."""
        if suite is MAD and self.tasks == []:
            return []
        wanted = {
            row.of_suite(suite.name): self.presets[row.changes]
            for row in self.grid.rows
            if suite is MAD or self.presets[row.changes]
        }
        protocols: dict[tuple, Protocol] = {}
        planned, count = [], 0
        for row, preset in wanted.items():
            key = (row.changes, preset if suite is LANGUAGE else "")
            if key not in protocols:
                shared = (word for word in self.grid.overrides if suite_of_override(word) == suite.name)
                protocols[key] = self._protocol(suite, (*shared, *row.changes), preset)
            planned.append(PlannedRow(row, protocols[key], protocols[key].jobs([row.label], self.grid.seeds)))
            count += len(planned[-1].jobs)
            if count > MOST_JOBS:
                raise ConfigError(f"more than {MOST_JOBS:,} jobs; make a grid of fewer rows or seeds")
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
        preset = MadProfile.load(grid.profile, named).language_model
        is_asked = grid.tasks is not None and TASK in grid.tasks
        if is_asked and not preset:
            raise ConfigError(
                f"profile {grid.profile} has no language model; name its preset, such as language_model=tiny"
            )
        is_default = grid.tasks is None and preset
        if not is_asked and not (is_default and (corpus is not None or LANGUAGE.Profile.load(preset).corpus)):
            preset = ""
        for override in overrides:
            if override.startswith(LANGUAGE_MODEL) and not preset:
                raise ConfigError(f"override {override!r} has no effect: no language model is trained")
            if self.tasks == [] and suite_of_override(override) == "mad":
                raise ConfigError(
                    f"override {override!r} has no effect on the language model; write language_model.KEY=VALUE"
                )
        if corpus is not None and not preset:
            raise ConfigError(f"--corpus {corpus}: has no effect, no language model is trained")
        return preset

    def _corpus(self, profile: Profile, preset: str) -> Corpus:
        from madbench.text.corpus import open_corpus
        from madbench.text.prepare import default_corpus

        if self.corpus is None and self.tokenizer is not None:
            raise ConfigError(f"--tokenizer {self.tokenizer}: has no effect without --corpus")
        if self.corpus is None and profile.corpus != "stdlib":
            raise ConfigError(
                f"preset {preset} has no corpus of its own: give --corpus FOLDER, made by madbench lm prepare, or with "
                "nanoGPT's train.bin and val.bin"
            )
        if self.opened is None and self.corpus is None:
            self.opened = default_corpus(self.results)
        elif self.opened is None:
            cache = self.results / "corpora"
            self.opened = open_corpus(Path(self.corpus), tokenizer=self.tokenizer, cache=cache)
        return self.opened


def _notes_on_equal_rows(planned: Iterable[PlannedRow], suite: Suite) -> list[str]:
    """A sentence where rows train the same model; raises ``ConfigError`` for a change that changes no row at all."""
    rows = [row for row in planned if row.protocol.suite is suite]
    by_jobs: dict[frozenset[str], str] = {}
    for row in rows:
        other = by_jobs.setdefault(frozenset(job.id for job in row.jobs), row.name)
        if other != row.name:
            raise ConfigError(f"the rows {other!r} and {row.name!r} train the same jobs; leave one out")
    trained = {row.row: _trained(row) for row in rows}
    for key in dict.fromkeys(key_of(change) for row in rows for change in row.row.changes):
        groups: dict[tuple, list[tuple]] = {}
        for row, what in trained.items():
            rest = (row.label, *(change for change in row.changes if key_of(change) != key))
            groups.setdefault(rest, []).append(what)
        compared = [group for group in groups.values() if len(group) > 1]
        if compared and all(len(set(group)) == 1 for group in compared):
            raise ConfigError(
                f"{key} has no effect on any row: each label gets the same mixer for all its values; madbench budget"
                " LABEL shows which"
            )
    same: dict[Any, list[str]] = {}
    for row, what in trained.items():
        same.setdefault(what, []).append(row.name)
    doubled = [" = ".join(names) for names in same.values() if len(names) > 1]
    more = f" and {len(doubled) - 3} more" if len(doubled) > 3 else ""
    shown = f"{'; '.join(doubled[:3])}{more}"
    return [f"rows that train the same model, as the label or its budget leaves no choice: {shown}"] if doubled else []


def _trained(row: PlannedRow) -> tuple:
    """What the row trains: rows with an equal one differ in settings of mixers that their label does not use."""
    label, job = row.row.label, row.jobs[0]
    family, parsed = family_of(label), parse(label)
    of_mixer = tuple(f"model.{name}" for name in field_names(family.Settings))
    rest = [word for word in row.row.changes if key_of(word).removeprefix(LANGUAGE_MODEL) not in of_mixer]
    lengths = sorted({getattr(job.model, "seq_len", None) or job.setting["seq_len"] for job in row.jobs})
    solved = [solve(label, job.model.d_model, job.model.n_head, n, job.budget, **job.mixer) for n in lengths]
    ranks = tuple(tuple(allocation.ranks.items()) for allocation in solved)
    effective = getattr(family, "effective", lambda _, settings: settings)
    return label, *rest, ranks, tuple(effective(parsed, job.mixer).items())
