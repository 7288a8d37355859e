"""Which stored runs are shown: one protocol of every suite, by what a user asked for."""

from __future__ import annotations

import functools
import itertools
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from madbench.analysis.protocols import first_labels, protocol_list
from madbench.analysis.scores import Results
from madbench.analysis.versions import Versions
from madbench.config import convert, key_of
from madbench.errors import BudgetError, ConfigError, FamilyError, LabelError, MadbenchError, StoreError
from madbench.experiment import Experiment, PlannedRow, Protocol, load_profile
from madbench.grid import Grid, Row
from madbench.jobs import Budget, Fidelity, Job
from madbench.labels import every_label, is_shown_as_stored, unreadable
from madbench.store.runs import Run, Snapshot, Store
from madbench.suites import Suite, broken_suites, main_suite, suites
from madbench.suites.addressing import (
    concerned,
    names_profile,
    own_overrides,
    plain,
    profile_named,
    suite_of_override,
    tasks_by_suite,
)
from madbench.suites.code import names_outside_code
from madbench.suites.overrides import check_idle
from madbench.suites.planning import StoredCode, mixer_identity, planned_as_stored
from madbench.suites.profile import Profile
from madbench.suites.protocol import StoredCorpus, by_protocol, recognised
from madbench.tasks import broken_tasks


def in_grammar_order(labels: Iterable[str]) -> list[str]:
    """S/R/G labels in the order of their grammar, then those of other families by name."""
    position = {label: i for i, label in enumerate(every_label())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))


@dataclass(frozen=True)
class Selection:
    """What a user asked to see of a store: one protocol of every suite, as far as it is stored.

    A suite whose tasks were asked for is shown, or it is an error that it cannot be. Without any task those are shown
    that are stored: the first of them, and what its profile names beside it.
    """

    labels: Sequence[str] = ()
    """Canonical labels; without any all in the store count."""
    overrides: Sequence[str] = ()
    """Changes to the profile, as KEY=VALUE; those of a suite that does not lead with its name before them."""
    profile: str | None = None
    """Of the suite that leads; None for its usual one, or whichever is stored."""
    tasks: Sequence[str] | None = None
    fidelity: Fidelity = "corrected"
    budget: Budget | None = "strict"
    """None for any."""
    protocol: str | None = None
    """Id of the protocol of a suite of which several may be stored."""
    corpus: str | None = None
    """Name, folder or digest of the corpus of the suites that take one."""
    results: Path = Path("results")
    opened: Callable[[Path], Store] = functools.partial(Snapshot.open, create=False)
    """Opens the store, once it is needed."""
    warn: Callable[[str], None] = field(default=lambda _: None)
    """Told of damaged runs and of labels that are left out."""

    def __post_init__(self):
        convert(self.fidelity, Fidelity, "fidelity")
        convert(self.budget, Budget | None, "budget")
        asked, names = self._asked, self._named
        is_alone = asked is not None and len(asked) == 1
        named = [word for word in self.overrides if is_alone or plain(word) != word or names_profile(word)]
        profile = self.profile if is_alone else None
        if self.protocol and (self.corpus or profile or named):
            other = f"--corpus {self.corpus}" if self.corpus else f"--profile {profile}" if profile else named[0]
            raise ConfigError(f"--protocol {self.protocol} and {other}: each chooses the runs alone; give one of both")
        if asked is None:
            return
        chosen = [suites()[name] for name in asked]
        of_tasks = f"has no effect, the tasks are {', '.join(self.tasks)}"
        if self.fidelity != "corrected" and all(self.fidelity not in suite.fidelities for suite in chosen):
            raise ConfigError(f"--fidelity {self.fidelity}: {of_tasks}")
        for word in concerned(self.overrides, names, self.leading):
            raise ConfigError(f"{word}: {of_tasks}")
        if self.corpus and not any(suite.takes_corpus for suite in chosen):
            raise ConfigError(f"--corpus {self.corpus}: {of_tasks}")

    @functools.cached_property
    def _asked(self) -> dict[str, list[str]] | None:
        """The tasks that were asked for by suite; None for none."""
        return None if self.tasks is None else tasks_by_suite(self.tasks)

    @property
    def _named(self) -> list[str]:
        """The suites that were asked for, or may be shown."""
        return [*(suites() if self._asked is None else self._asked)]

    @functools.cached_property
    def leading(self) -> Suite:
        """The suite whose profile and overrides need no name before them."""
        if self._asked is not None:
            return suites()[next(iter(self._asked), main_suite().name)]
        names = {job.suite for job in self.jobs.values()} if self.results.exists() else set()
        stored = [suite for suite in suites().values() if suite.name in names]
        if self.profile is not None:
            stored = [suite for suite in dict.fromkeys((*stored, main_suite())) if suite.has_profile(self.profile)]
        return next(iter(stored), main_suite())

    def tasks_of(self, suite: Suite) -> list[str]:
        """The tasks of a suite that are shown."""
        return list(suite.usual_tasks()) if self._asked is None else self._asked.get(suite.name, [])

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
        """The stored jobs by id, of tasks that are here.

        Of code outside of this package they are of every version; of this package's own families only of the one that
        would be trained now.
        """
        stored_jobs = self.store.jobs()
        stored = {job.task for job in stored_jobs.values()}
        tasks = {(suite.name, task) for suite in suites().values() for task in suite.tasks()}
        for task in stored & broken_tasks().keys():
            tasks -= {(suite, task) for suite in suites()}
            if self.tasks is None or task in self.tasks:
                self.warn(f"{task} is left out; {broken_tasks()[task]}")
        for suite in {job.suite for job in stored_jobs.values()} & broken_suites().keys():
            self.warn(f"{suite} is left out; {broken_suites()[suite]}")
        identity = functools.cache(mixer_identity)
        jobs = {name: job for name, job in stored_jobs.items() if (job.suite, job.task) in tasks}
        kept = {
            name: job
            for name, job in jobs.items()
            if "+" in job.family
            or self._is_shown_as_stored(job.label)
            or identity(job.label, job.task, job.fidelity) == job.family
        }
        if count := len(jobs) - len(kept):
            labels = first_labels(job.label for name, job in jobs.items() if name not in kept)
            self.warn(f"{_runs(count)} of {labels} left out: of another version of their family than this madbench has")
        return kept

    @functools.cached_property
    def _versions(self) -> Versions:
        said: set[str] = set()  # rows are planned once per precision and profile that is tried

        def warn(text: str) -> None:
            if text not in said:
                said.add(text)
                self.warn(text)

        return Versions(self.jobs, self.store, warn)

    @functools.cached_property
    def _is_shown_as_stored(self) -> Callable[[str], bool]:
        return functools.cache(is_shown_as_stored)

    def select(self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool) -> Results:
        """The rows of every suite that is asked for or stored.

        Raises a ``MadbenchError`` where a suite that was asked for has none, and where no suite has any. Of several
        protocols that are stored the one is shown whose labels are enough; where there is none, the error says
        ``nothing``.
        """
        rows, missing = self.available(nothing=nothing, is_enough=is_enough)
        asked = self.lacking(missing)
        if asked or not rows:
            raise (asked or list(missing.values()))[0]
        return self.results_of(rows)

    def lacking(self, missing: Mapping[str, StoreError]) -> list[StoreError]:
        """Why suites are left out that were asked for by a task, by a profile or by an override."""
        return [error for name, error in missing.items() if self._names_suite(suites()[name])]

    def _names_suite(self, suite: Suite) -> bool:
        """True if a suite was asked for: by a task, or as that of the profile or of an override."""
        if self._asked is not None:
            return suite.name in self._asked
        names_one = any(suite_of_override(word, self.leading) is suite for word in self.overrides)
        return names_one or (suite is self.leading and self.profile is not None)

    def available(
        self, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool
    ) -> tuple[list[PlannedRow], dict[str, StoreError]]:
        """The rows of every suite as far as they are stored; by its name why a suite is left out.

        Raises ``ConfigError`` for what cannot be told apart, or cannot be.
        """
        rows: list[PlannedRow] = []
        missing = {}
        for suite in suites().values():
            if suite.name in self._named and self._is_shown(suite):
                try:
                    rows += self.rows(suite, nothing, is_enough)
                except StoreError as error:
                    missing[suite.name] = error
                    if isinstance(error, SeveralProtocols) and self._asked is None:
                        choose = "choose a protocol with --protocol ID"
                        self.warn(f"{_plural(suite)} are left out; {choose}:\n{error.listed}")
        shown = {row.row.label for row in rows}
        for label in dict.fromkeys(job.label for job in self.jobs.values()) if not self.labels else ():
            if label not in shown and (problem := unreadable(label)):
                self.warn(f"{label} is left out; {problem}")
        if self.protocol and self.jobs and not self._is_stored(self.protocol):
            by_suite = [(suite, self._stored(suite)) for suite in suites().values()]
            lists = [protocol_list(suite, self._details(jobs), self.results) for suite, jobs in by_suite if jobs]
            listed = "\n".join(lists)
            raise StoreError(f"{self.results}: no run follows protocol {self.protocol}; it has:\n{listed}")
        return rows, missing

    def _is_shown(self, suite: Suite) -> bool:
        """Whether a suite is shown: one that was asked for, the one that leads, one beside it, or one on a corpus."""
        if self._asked is not None or suite is self.leading or suite.takes_corpus:
            return True
        profile = self.leading.Profile.load(self.profile or self.leading.default)
        is_named = any(suite_of_override(word, self.leading) is suite for word in self.overrides)
        return suite.address in profile.beside or is_named

    def results_of(self, rows: Sequence[PlannedRow]) -> Results:
        """What the jobs of these rows gave; labels are in the order given, or else in that of the grammar."""
        with_rows = {row.row.label for row in rows}
        labels = [label for label in self.labels or in_grammar_order(with_rows) if label in with_rows]
        seeds = tuple(sorted({job.seed for row in rows for job in row.jobs}))
        asked = (self.profile or "", self.fidelity, self.budget or "strict", tuple(self.overrides))
        grid = Grid(tuple(map(Row, labels)), self.tasks and tuple(self.tasks), seeds, *asked)
        return Results(Experiment(grid, list(rows), "cpu", self.results), self.store)

    def rows(self, suite: Suite, nothing: str = "", is_enough: Callable[[set[str]], bool] = bool) -> list[PlannedRow]:
        """The rows of one suite under the one protocol that was asked for.

        Where a profile is known, each row has the jobs that a run of it trains, for the seeds that have begun; else
        those that are stored. Raises ``StoreError`` where nothing is stored of what was asked for, and ``ConfigError``
        for several protocols, with the commands that show each.
        """
        profile = profile_named(suite, self.overrides, self.leading, self.profile, True)
        suite.Profile.load(profile, own_overrides(self.overrides, suite, self.leading))  # which has to be one
        stored = self._stored(suite)
        if not stored:
            example = f"-t {suite.tasks()[0]}" if suite is not main_suite() else ""
            named = ["-p", self.profile] if self.profile and suite is self.leading else []
            command = shlex.join(["madbench", "run", "G-cg-q-12o", *example.split(), *named])
            others = [other for other in suites().values() if self._stored(other)]
            hints = [f"; its {_plural(other)} are in madbench table -t {other.tasks()[0]}" for other in others[:1]]
            raise StoreError(f"{self.results}: no runs of {_plural(suite)} yet; {command} makes some{''.join(hints)}")
        names_one = any(suite_of_override(word, self.leading) is suite for word in self.overrides)
        is_chosen = self.protocol is not None and self.protocol in self._protocols(suite)
        if not is_chosen and not suite.takes_corpus:
            return self._planned_rows(suite, profile, stored)
        is_given = (suite is self.leading and self.profile is not None) or names_one
        return self._stored_rows(suite, stored, profile if is_given else "", nothing, is_enough)

    def _planned_rows(self, suite: Suite, name: str, stored: Sequence[Job]) -> list[PlannedRow]:
        """The rows of a profile; without any of the usual one, where none was named, those of the only one stored."""
        protocols, begun = self._stored_protocols(suite, name, stored)
        if not begun and not self._names_profile(suite) and len(others := self._profiles_of(suite, stored)) == 1:
            noun = suite.Profile.noun
            self.warn(f"no run is of the {noun} {name}, which is the usual one; shown are those of {others[0]}")
            protocols, begun = self._stored_protocols(suite, others[0], stored)
        if len(begun) > 1:
            words = [f"precision={rows[0].protocol.precision}" for rows in begun]
            precisions_text = " and in ".join(rows[0].protocol.precision for rows in begun)
            raise ConfigError(f"{self.results}: runs in {precisions_text}; add {' or '.join(words)}")
        if not begun:
            reason, commands = self._what_is_stored(suite, stored, protocols[0])
            error = NothingStored(f"{self.results}: {reason}{commands}")
            trains = "" if self.labels else f"madbench run LABEL --profile {name} makes some"
            error.reason = f"{self.results}: {reason}{trains}".strip()
            raise error
        return begun[0]

    def _names_profile(self, suite: Suite) -> bool:
        """Whether a profile of the suite was asked for."""
        is_leading = suite is self.leading and self.profile is not None
        return is_leading or any(f"{key_of(word)}." == suite.prefix for word in self.overrides)

    def _profiles_of(self, suite: Suite, stored: Sequence[Job]) -> list[str]:
        """The shipped profiles that, with the changes that were asked for, train some of the stored jobs."""
        own, names = own_overrides(self.overrides, suite, self.leading), []
        wanted = (job for job in stored if not self.labels or job.label in self.labels)
        kinds = {(job.label, job.task, str(job.setting), job.model, job.training): job for job in wanted}
        for name in suite.Profile.names():
            try:
                profile = suite.Profile.load(name, own)
            except ConfigError:  # it has nothing of the kind to change
                continue
            names += [name] * any(map(profile.trains_job, kinds.values()))
        return names

    def _stored_protocols(
        self, suite: Suite, name: str, stored: Sequence[Job]
    ) -> tuple[list[Protocol], list[list[PlannedRow]]]:
        """The protocols of a profile, one a precision, and the rows of each of which runs are stored."""
        own = own_overrides(self.overrides, suite, self.leading)
        profile, tasks = load_profile(suite, name, own, self.tasks_of(suite))
        fidelity = suite.fidelity_of(self.fidelity)
        budget = self.budget or "strict"
        alike = [job for job in stored if (job.fidelity, job.budget) == (fidelity, budget)]
        precisions = {job.training.precision for job in alike} or {"float32"}
        if profile.precision != "auto":
            precisions = {profile.precision}
        labels = self.labels or in_grammar_order({job.label for job in alike})
        seeds = sorted({job.seed for job in stored})
        terms = (suite, profile, name, own, tasks, fidelity, budget)
        protocols = [Protocol(*terms, precision) for precision in sorted(precisions)]
        return protocols, [rows for each in protocols if (rows := self._rows_begun(self._rows(each, labels, seeds)))]

    def _what_is_stored(self, suite: Suite, stored: Sequence[Job], protocol: Protocol) -> tuple[str, str]:
        """That nothing of ``protocol`` is stored, with what trains it; and the commands that show what is stored."""
        listed = protocol_list(suite, self._details(stored), self.results)
        commands = f"each of these commands shows one protocol:\n{listed}"
        changes = f" with {' '.join(protocol.overrides)}" if protocol.overrides else ""
        terms = f", fidelity {protocol.fidelity}" if len(suite.fidelities) > 1 else ""
        asked = f"{protocol.profile.noun} {protocol.profile_name}{changes}{terms}, budget {protocol.budget}"
        nothing, trains = f"none of its {len(stored)} runs belongs to {asked}; ", ""
        if self.labels:
            words = [*self.labels, *protocol.overrides, *(["-t", ",".join(protocol.tasks)] if self.tasks else [])]
            words += ["--profile", protocol.profile_name]
            words += ["--fidelity", protocol.fidelity] if len(suite.fidelities) > 1 else []
            words += ["--budget", protocol.budget]
            nothing = f"no run of {' or '.join(self.labels)} belongs to {asked}; "
            trains = f"this trains it:\n  {shlex.join(['madbench', 'run', *words, '--results', str(self.results)])}\n"
        return f"{nothing}{trains}", commands

    def _rows(self, protocol: Protocol, labels: Iterable[str], seeds: Sequence[int]) -> list[PlannedRow]:
        """A row a label; one that was not named may not fit: it is stored for one task, or for other sizes, alone."""
        rows, planned = [], []
        for label in labels:
            if self._is_shown_as_stored(label):
                rows += self._row_as_stored(protocol, label, seeds)
                continue
            try:
                planned.append(protocol.plan([label], seeds))
            except (BudgetError, ConfigError, LabelError) as error:
                if self.labels:
                    raise
                if isinstance(error, (BudgetError, FamilyError)):  # else no run of the label can have these settings
                    self.warn(f"{label} is left out; {error}")
                continue
            if self.labels or not planned[-1].idle:  # a label that was not named is one that the changes concern
                rows.append(PlannedRow(Row(label), protocol, planned[-1].jobs))
        for word in protocol.profile.overrides:
            check_idle(key_of(word), planned)
        return list(map(self._versions.of_row, rows))

    def _row_as_stored(self, protocol: Protocol, label: str, seeds: Sequence[int]) -> list[PlannedRow]:
        """The row of a label without its code, planned as a version of which runs are stored. Empty if none has any."""
        stored = [job for job in self._stored(protocol.suite) if job.label == label]
        overrides = protocol.profile.overrides
        kept = tuple(word for word in overrides if key_of(word) not in _UNREAD_WITHOUT_CODE)
        tried = [protocol]
        if self.labels and kept != overrides:  # a mixer need not read what was changed, as of a label with code
            tried.append(replace(protocol, profile=protocol.profile.under(kept)))
        for each, jobs in itertools.product(tried, self._versions.ordered(stored).values()):
            with planned_as_stored({label: StoredCode.from_jobs(jobs)}):
                try:
                    planned = each.plan([label], seeds).jobs
                except MadbenchError as error:
                    if self.labels:
                        raise
                    self.warn(f"{label} is left out; {error}")
                    return []
            if self._versions.is_begun(planned):
                return [PlannedRow(Row(label), protocol, planned)]
        return []

    def _rows_begun(self, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
        """The rows and seeds of which at least one job is stored, and labels that were named; none without any."""
        pairs = {(row.name, job.seed) for row in rows for job in row.jobs if job.id in self.jobs}
        names, seeds = {name for name, _ in pairs}, {seed for _, seed in pairs}
        begun = []
        for row in rows:
            is_whole = bool(self.labels) and row.name not in names
            jobs = [job for job in row.jobs if (row.name, job.seed) in pairs or (is_whole and job.seed in seeds)]
            if jobs:
                begun.append(replace(row, jobs=jobs))
        return begun

    def _stored_rows(
        self, suite: Suite, stored: Sequence[Job], name: str, nothing: str, is_enough: Callable[[set[str]], bool]
    ) -> list[PlannedRow]:
        """The rows of the one protocol, recognised from the jobs, whose labels are enough."""
        runs = [run for run in self._details(stored) if run.record.status != "failed"]
        own = own_overrides(self.overrides, suite, self.leading)
        profile = suite.Profile.load(name, own) if name else None
        asked = [run for run in runs if self._is_asked_for(suite, run, profile)]
        if self.protocol:  # which the runs that were not asked for decide, too
            ids = {run.job.id for run in asked}
            alike = [run for run in self._protocols(suite).get(self.protocol, ()) if run.job.id in ids]
            groups = {self.protocol: alike} if alike else {}
        else:
            groups = by_protocol(suite, asked, lambda run: run.job)
        groups = {name: alike for name, alike in groups.items() if is_enough({run.job.label for run in alike})}
        listed = functools.partial(protocol_list, suite, results=self.results)
        if not runs:
            raise StoreError(f"{self.results}: no run of {_plural(suite)} has a result; madbench ls sweeps says why")
        if not groups:
            why = nothing or f"none of its runs of {_plural(suite)} is as asked"
            raise StoreError(f"{self.results}: {why}; it has:\n{listed(runs)}")
        chosen = [run for alike in groups.values() for run in alike]
        if len(groups) > 1:
            error = SeveralProtocols(
                f"the runs of {_plural(suite)} follow {len(groups)} protocols, which cannot be compared; choose one "
                f"with --protocol ID, or with what tells it apart:\n{listed(chosen)}"
            )
            error.listed = listed(chosen)
            raise error
        jobs = defaultdict(list)
        for run in sorted(chosen, key=lambda run: run.job.seed):
            jobs[run.job.label].append(run.job)
        for label, runs_of_label in jobs.items():
            if any(map(names_outside_code, runs_of_label)):
                jobs[label], *others = self._versions.ordered(runs_of_label).values()
                self._versions.leave_out(itertools.chain(*others), jobs[label])
        for label in self.labels if len(self._asked or ()) == 1 else ():
            if label not in jobs:
                self.warn(f"no run of {label} is as asked")
        protocol = recognised(suite, [(run.job, run.record.details) for run in chosen])
        labels = self.labels or in_grammar_order(jobs)
        return [PlannedRow(Row(label), protocol, jobs[label]) for label in labels if label in jobs]

    def _is_asked_for(self, suite: Suite, run: Run, profile: Profile | None) -> bool:
        """Whether a run has the label, budget, corpus and profile that were asked for."""
        job = run.job
        corpus = StoredCorpus.of(job, run.record.details) if suite.takes_corpus else None
        return (
            (not self.labels or job.label in self.labels)
            and job.task in self.tasks_of(suite)
            and (self.protocol is not None or self.budget in (None, job.budget))
            and (corpus is None or self.corpus is None or corpus.is_called(self.corpus))
            and (profile is None or profile.trains_job(job) or self._is_planned(suite, job, profile, corpus))
        )

    def _is_planned(self, suite: Suite, job: Job, profile: Profile, corpus: StoredCorpus | None) -> bool:
        """Whether a profile plans a job of a label that was named, with changes that the label does not read."""
        shared = (job.fidelity, job.budget, job.training.precision, "cpu", corpus)
        if not self.labels or self._is_shown_as_stored(job.label):
            return False
        return Protocol(suite, profile, "", (), [job.task], *shared).plans(job)

    def _details(self, jobs: Sequence[Job]) -> list[Run]:
        """The runs of stored jobs, without their curves."""
        ids = {job.id for job in jobs}
        return [run for run in self.store.runs(with_curves=False) if run.job.id in ids]

    def _is_stored(self, protocol: str) -> bool:
        """Whether a run that may be shown follows the protocol of this id."""
        named = [suite for suite in suites().values() if suite.name in self._named]
        return any(protocol in self._protocols(suite) for suite in named)

    def _protocols(self, suite: Suite) -> dict[str, list[Run]]:
        """The stored runs that have a result, by the id of their protocol."""
        runs = [run for run in self._details(self._stored(suite)) if run.record.status != "failed"]
        return by_protocol(suite, runs, lambda run: run.job)

    def _stored(self, suite: Suite) -> list[Job]:
        return [job for job in self.jobs.values() if job.suite == suite.name]


_UNREAD_WITHOUT_CODE = ("model.n_head",)
"""Changes that some mixers do not read, which only their code tells."""


class SeveralProtocols(StoreError, ConfigError):
    """Runs of several protocols, of which one has to be chosen; ``listed`` has a line for each."""

    listed = ""


class NothingStored(StoreError):
    """No run of the protocol that was asked for; ``reason`` is the message without what shows other protocols."""

    reason = ""


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"


def _plural(suite: Suite) -> str:
    """The suite in words that follow "runs of": MAD tasks, language models."""
    title = suite.title if suite.title[:2].isupper() else suite.title.lower()
    return title if title.endswith("s") else f"{title}s"
