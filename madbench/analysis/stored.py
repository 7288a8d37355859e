"""Which stored runs are shown: one protocol of every suite, by what a user asked for."""

from __future__ import annotations

import functools
import shlex
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from madbench.analysis.protocols import (
    by_protocol,
    check_one_protocol,
    language_protocol,
    mad_protocol_list,
    plans,
    protocol_list,
    trains,
)
from madbench.analysis.scores import Results
from madbench.config import convert, key_of
from madbench.errors import BudgetError, ConfigError, StoreError
from madbench.experiment import Experiment, PlannedRow, Protocol, load_mad
from madbench.grid import LANGUAGE_MODEL, Grid, Row, suite_of_override
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels import every_label, unreadable
from madbench.store.runs import Run, Snapshot, Store
from madbench.suites import LANGUAGE, MAD, Suite
from madbench.suites.base import Profile, mixer_identity
from madbench.suites.language import TASK
from madbench.suites.overrides import check_idle
from madbench.tasks import broken_tasks, check_task, loaded_tasks


def in_grammar_order(labels: Iterable[str]) -> list[str]:
    """S/R/G labels in the order of their grammar, then those of other families by name."""
    position = {label: i for i, label in enumerate(every_label())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))


@dataclass(frozen=True)
class Selection:
    """What a user asked to see of a store: one protocol of every suite, as far as it is stored."""

    labels: Sequence[str] = ()
    """Canonical labels; without any all in the store count."""
    overrides: Sequence[str] = ()
    """Changes to the profile, as KEY=VALUE; ``language_model=PRESET``, ``language_model.KEY=VALUE`` to the preset."""
    profile: str = "quick"
    tasks: Sequence[str] | None = None
    """MAD tasks and language_model; None for the six, and for the language model too where one protocol is stored."""
    fidelity: Fidelity = "corrected"
    budget: Budget | None = "strict"
    """None for any, which only language models allow."""
    protocol: str | None = None
    """Id of a protocol of language models."""
    corpus: str | None = None
    """Name, folder or digest of the language models' corpus."""
    results: Path = Path("results")
    opened: Callable[[Path], Store] = functools.partial(Snapshot.open, create=False)
    """Opens the store, once it is needed."""
    warn: Callable[[str], None] = field(default=lambda _: None)
    """Told of damaged runs and of labels that are left out."""

    def __post_init__(self):
        convert(self.fidelity, Fidelity, "fidelity")
        convert(self.budget, Budget | None, "budget")
        for task in self.mad_tasks or ():
            check_task(task)
        if not self.has_mad:
            unused = [word for word in self.overrides if suite_of_override(word) == MAD.name]
            unused += ["--profile"] * (self.profile != "quick") + ["--fidelity"] * (self.fidelity != "corrected")
            if unused:
                raise ConfigError(f"{unused[0]}: has no effect on language models; --protocol chooses among those")
        if not self.has_language:
            chosen = {"--protocol": self.protocol, "--corpus": self.corpus}
            unused = [f"{option} {value}" for option, value in chosen.items() if value] + self._of_preset
            if unused:
                raise ConfigError(f"{unused[0]}: has no effect, the tasks are {', '.join(self.tasks)}")
        if self.protocol and (self.corpus or self._of_preset):
            raise ConfigError(
                f"--protocol {self.protocol}: other choices have no effect beside it; give one or the other"
            )

    @property
    def mad_tasks(self) -> list[str] | None:
        """The MAD tasks among those asked for, None for the six."""
        return None if self.tasks is None else [task for task in self.tasks if task != TASK]

    @property
    def has_mad(self) -> bool:
        return self.mad_tasks != []

    @property
    def has_language(self) -> bool:
        return self.tasks is None or TASK in self.tasks

    @property
    def _of_preset(self) -> list[str]:
        return [word for word in self.overrides if suite_of_override(word) == LANGUAGE.name]

    @functools.cached_property
    def store(self) -> Store:
        """The store, opened at the first question; its damaged runs are warned of."""
        store = self.opened(self.results)
        store.jobs()
        for problem in store.problems:
            self.warn(problem)
        return store

    @functools.cached_property
    def jobs(self) -> dict[str, Job]:
        """The stored jobs by id, of labels and tasks that can be trained here, each as it would be trained now."""
        found = self.store.jobs()
        known = set()
        for label in dict.fromkeys(job.label for job in found.values()):
            if not (problem := unreadable(label)):
                known.add(label)
            elif not self.labels or label in self.labels:
                self.warn(f"{label} is left out; {problem}")
        stored = {job.task for job in found.values()}
        for task in stored & broken_tasks().keys() - loaded_tasks().keys():
            if self.tasks is None or task in self.tasks:
                self.warn(f"{task} is left out; {broken_tasks()[task]}")
        tasks = (*loaded_tasks(), TASK)
        identity = functools.cache(mixer_identity)
        can_train = {name: job for name, job in found.items() if job.label in known and job.task in tasks}
        return {
            name: one for name, one in can_train.items() if identity(one.label, one.task, one.fidelity) == one.family
        }

    def select(
        self, nothing: str = "none of its language-model runs is as asked", is_enough: Callable[[set[str]], bool] = bool
    ) -> Results:
        """The rows of both suites. A suite that is neither stored nor asked for is left out.

        Raises what :meth:`mad` and :meth:`language` do.
        """
        has_mad = self.has_mad and (self.tasks is not None or self._stored(MAD) or not self._stored(LANGUAGE))
        rows = self.mad() if has_mad else []
        if self.has_language:
            rows += self.language(nothing, is_enough)
        if not rows:
            raise StoreError(f"{self.results}: no language-model runs of one protocol; choose one with --protocol ID")
        return self.results_of(rows)

    def available(
        self, suites: Collection[str] = ("mad", "language")
    ) -> tuple[list[PlannedRow], dict[str, StoreError]]:
        """The rows of both suites, or of those named, as far as they are stored; by its name why a suite is left out.

        Raises what else :meth:`mad` and :meth:`language` do.
        """
        rows: list[PlannedRow] = []
        missing = {}
        asked = {MAD.name: (self.has_mad, self.mad), LANGUAGE.name: (self.has_language, self.language)}
        for name, (is_asked, planned) in asked.items():
            try:
                rows += planned() if is_asked and name in suites else []
            except StoreError as error:
                missing[name] = error
        return rows, missing

    def results_of(self, rows: Sequence[PlannedRow]) -> Results:
        """What the jobs of these rows gave; labels are in the order given, or else in that of the grammar."""
        found = {row.row.label for row in rows}
        labels = [label for label in self.labels or in_grammar_order(found) if label in found]
        seeds = tuple(sorted({job.seed for row in rows for job in row.jobs}))
        asked = (self.profile, self.fidelity, self.budget or "strict", tuple(self.overrides))
        grid = Grid(tuple(map(Row, labels)), self.tasks and tuple(self.tasks), seeds, *asked)
        return Results(Experiment(grid, list(rows), "cpu", self.results), self.store)

    def mad(self) -> list[PlannedRow]:
        """The rows of the labels on MAD tasks, as far as they have begun, with the jobs that a run of them trains.

        Warns of every label that is left out because it does not fit. Raises ``StoreError`` where nothing of the
        protocol is stored, with the protocols that are, and ``ConfigError`` where it is stored in two precisions.
        """
        stored = self._stored(MAD)
        if not stored:
            instead = "; its language models are in madbench lm table" if self.jobs else ""
            raise StoreError(f"{self.results}: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some{instead}")
        asked = (self.fidelity, self.budget or "strict")
        alike = [job for job in stored if (job.fidelity, job.budget) == asked]
        overrides = tuple(word for word in self.overrides if suite_of_override(word) == MAD.name)
        profile, tasks = load_mad(self.profile, overrides, self.mad_tasks)
        trained = {job.training.precision for job in alike} or {"float32"}
        precisions = trained if profile.precision == "auto" else {profile.precision}
        labels = self.labels or in_grammar_order({job.label for job in alike})
        seeds = sorted({job.seed for job in stored})
        about = (MAD, profile, self.profile, overrides, tasks, *asked)
        protocols = [Protocol(*about, precision, "cpu") for precision in precisions]
        begun = [rows for one in protocols if (rows := self._begun(self._rows(one, labels, seeds)))]
        if len(begun) > 1:
            raise ConfigError(
                f"{self.results}: runs in float32 and in bfloat16; add precision=float32 or precision=bfloat16"
            )
        if not begun:
            raise StoreError(f"{self.results}: {self._instead(stored, protocols[0])}")
        return begun[0]

    def _instead(self, stored: Sequence[Job], protocol: Protocol) -> str:
        """What there is where nothing of ``protocol`` is stored: commands that train or show something."""
        changes = f" with {' '.join(protocol.overrides)}" if protocol.overrides else ""
        asked = f"profile {self.profile}{changes}, fidelity {protocol.fidelity}, budget {protocol.budget}"
        nothing, trains = f"none of its {len(stored)} runs belongs to {asked}; ", ""
        if self.labels:
            words = [*self.labels, *protocol.overrides, *(["-t", ",".join(protocol.tasks)] if self.tasks else [])]
            words += ["--profile", self.profile, "--fidelity", protocol.fidelity, "--budget", protocol.budget]
            nothing = f"no run of {' or '.join(self.labels)} belongs to {asked}; "
            trains = f"this trains it:\n  {shlex.join(['madbench', 'run', *words, '--results', str(self.results)])}\n"
        shown = mad_protocol_list(stored, self.results)
        return f"{nothing}{trains}each of these commands shows one protocol:\n{shown}"

    def _rows(self, protocol: Protocol, labels: Iterable[str], seeds: Sequence[int]) -> list[PlannedRow]:
        """A row a label; one that was not named may not fit: it is stored for one task, or for other sizes, alone."""
        rows, planned = [], []
        for label in labels:
            try:
                planned.append(protocol.plan([label], seeds))
            except (BudgetError, ConfigError) as error:
                if self.labels:
                    raise
                if isinstance(error, BudgetError):  # else no run of the label can have these settings
                    self.warn(f"{label} is left out; {error}")
                continue
            if self.labels or not planned[-1].idle:  # a label that was not named is one that the changes concern
                rows.append(PlannedRow(Row(label), protocol, planned[-1].jobs))
        for word in protocol.profile.overrides:
            check_idle(key_of(word), planned)
        return rows

    def _begun(self, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
        """Only rows and seeds of which at least one job is stored, and labels that were named; none without any."""
        pairs = {(row.name, job.seed) for row in rows for job in row.jobs if job.id in self.jobs}
        names, seeds = {name for name, _ in pairs}, {seed for _, seed in pairs}
        found = []
        for row in rows:
            is_whole = bool(self.labels) and row.name not in names
            jobs = [job for job in row.jobs if (row.name, job.seed) in pairs or (is_whole and job.seed in seeds)]
            if jobs:
                found.append(replace(row, jobs=jobs))
        return found

    def language(
        self, nothing: str = "none of its language-model runs is as asked", is_enough: Callable[[set[str]], bool] = bool
    ) -> list[PlannedRow]:
        """The rows of the language models of the one protocol whose labels are enough.

        None where there is no such protocol, or several, unless the language model was asked for: then that is a
        ``MadbenchError``, which says ``nothing`` where there is none, and lists the protocols that are stored.
        """
        runs = self.store.runs(with_curves=False, suite=LANGUAGE.name)
        stored = [run for run in runs if run.record.status != "failed" and run.job.id in self.jobs]
        groups = by_protocol(run for run in stored if self._is_asked_for(run))
        if self.protocol:
            groups = {name: found for name, found in groups.items() if name == self.protocol}
        groups = {name: found for name, found in groups.items() if is_enough({run.job.label for run in found})}
        chosen = [run for found in groups.values() for run in found]
        if self.tasks is not None or self.protocol or self.corpus or self._of_preset:
            if not stored:
                raise StoreError(f"{self.results}: no language-model runs yet; madbench lm G-cg-q-12o makes some")
            if not chosen:
                raise StoreError(f"{self.results}: {nothing}; it has:\n{protocol_list(stored)}")
            check_one_protocol(chosen)
        elif len(groups) > 1:
            self.warn(f"language models are left out; choose a protocol with --protocol ID:\n{protocol_list(chosen)}")
        if len(groups) != 1:
            return []
        jobs = defaultdict(list)
        for run in sorted(chosen, key=lambda run: run.job.seed):
            jobs[run.job.label].append(run.job)
        for label in self.labels if not self.has_mad else ():
            if label not in jobs:
                self.warn(f"no run of {label} is as asked")
        labels, protocol = self.labels or in_grammar_order(jobs), language_protocol(*chosen)
        return [PlannedRow(Row(label), protocol, jobs[label]) for label in labels if label in jobs]

    def _is_asked_for(self, run: Run) -> bool:
        """Whether a language-model run has the label, budget, corpus and preset that were asked for."""
        job, digest = run.job, run.job.setting["corpus"]
        corpus = run.record.details.get("corpus", {}).get("name", digest)
        return (
            (not self.labels or job.label in self.labels)
            and self.budget in (None, job.budget)
            and (self.corpus is None or Path(self.corpus).name == corpus or digest.startswith(self.corpus))
            and (self._preset is None or trains(self._preset, job) or (self.labels and plans(self._preset, job)))
        )

    @functools.cached_property
    def _preset(self) -> Profile | None:
        """The preset that was asked for, with its changes."""
        if not self._of_preset:
            return None
        name = next((word.partition("=")[2] for word in self._of_preset if key_of(word) == "language_model"), "tiny")
        changes = [word.removeprefix(LANGUAGE_MODEL) for word in self._of_preset if word.startswith(LANGUAGE_MODEL)]
        return LANGUAGE.Profile.load(name, changes)

    def _stored(self, suite: Suite) -> list[Job]:
        return [job for job in self.jobs.values() if job.suite == suite.name]
