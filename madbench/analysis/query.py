"""Queries over the result store, and the stored runs from which a query is answered."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from madbench.analysis.choice import Choice
from madbench.analysis.versions import Versions
from madbench.config import Override
from madbench.errors import ConfigError, LabelError, no_effect
from madbench.jobs import Job
from madbench.labels import every_label, expand, is_shown_as_stored, label_identity, reading_problem
from madbench.store.columns import IndexEntry
from madbench.store.index import Track
from madbench.store.reading import Run, Snapshot, StoredRuns
from madbench.suites import Suite, broken_suites, main_suite, suites
from madbench.suites.addressing import (
    has_profile,
    overrides_outside,
    own_overrides,
    suite_of_override,
    tasks_by_suite,
)
from madbench.suites.changes import setting_change
from madbench.suites.protocol import by_protocol
from madbench.tasks import is_built_in, task_problem


@dataclass(frozen=True)
class Query(Choice):
    """A choice of stored runs, and the store from which they are read.

    Raises ``ConfigError`` if an option has no effect on the requested tasks, or contradicts ``--protocol``. The names
    of fidelity and budget are not checked here, but where the user's input is read. The leading suite is the suite that
    profile and overrides belong to by default (:attr:`leading`).
    """

    given: Collection[str] = ()
    """The names of the fields that the user gave explicitly, even if the value is the default."""
    given_store: StoredRuns | None = None
    """The open store of :attr:`results`. If None, the store is opened when it is first needed."""
    track: Track = iter
    """Wraps an iteration over many runs, for example to show a progress bar."""
    warn: Callable[[str], None] = field(default=lambda _: None)
    """Called with one sentence per warning, such as a damaged run or a label that is left out."""

    def __post_init__(self) -> None:
        requested_tasks, names = self.requested_tasks, self.suite_names
        is_alone = requested_tasks is not None and len(requested_tasks) == 1
        choices = [f"--corpus {self.corpus}"] if self.corpus else []
        if is_alone:  # of several suites, one follows the protocol and the others these choices
            values = {name: getattr(self, name) for name in ("profile", "fidelity", "budget")}
            choices += [
                f"--{name} {value}"
                for name, value in values.items()
                if value is not None and (name in self.given or value != getattr(Choice, name))
            ]
        choices += [str(override) for override in self.overrides if is_alone or override.suite]
        if self.protocol and choices:
            raise ConfigError(f"--protocol {self.protocol}, {choices[0]}: each chooses the runs; give only one")
        if requested_tasks is None:
            return
        requested_suites = [suites()[name] for name in requested_tasks]
        if self.fidelity != "corrected" and all(self.fidelity not in suite.fidelities for suite in requested_suites):
            raise no_effect(f"--fidelity {self.fidelity}", because=self._tasks_text)
        for override in overrides_outside(self.overrides, names, self.leading):
            raise no_effect(str(override), because=self._tasks_text)

    @functools.cached_property
    def requested_tasks(self) -> dict[str, list[str]] | None:
        """The requested tasks by the name of their suite. None if no task was requested."""
        return None if self.tasks is None else tasks_by_suite(self.tasks)

    @property
    def suite_names(self) -> list[str]:
        """The names of the suites of the requested tasks, or of all suites if no task was requested."""
        return [*(suites() if self.requested_tasks is None else self.requested_tasks)]

    @functools.cached_property
    def leading(self) -> Suite:
        """The suite that :attr:`profile` applies to. Overrides without a suite's name at their beginning apply to it
        too.

        This is the suite of the first requested task. If no task was requested, it is the first suite that has stored
        runs and, if a profile was requested, has this profile. If there is no such suite, it is the main suite.
        """
        if self.requested_tasks is not None:
            return suites()[next(iter(self.requested_tasks), main_suite().name)]
        names = {job.suite for job in self.jobs.values()} if self.results.exists() else set()
        stored_suites = [suite for suite in suites().values() if suite.name in names]
        if self.profile is not None:
            stored_suites = [
                suite for suite in dict.fromkeys((*stored_suites, main_suite())) if has_profile(suite, self.profile)
            ]
        return next(iter(stored_suites), main_suite())

    def tasks_of(self, suite: Suite) -> list[str]:
        """The tasks of a suite to show: its requested tasks, or its usual tasks if no task was requested."""
        return list(suite.usual_tasks()) if self.requested_tasks is None else self.requested_tasks.get(suite.name, [])

    @functools.cached_property
    def store(self) -> StoredRuns:
        """The result store. It is opened and read on first use, with a warning for each damaged run."""
        store = self.given_store
        if store is None:
            store = Snapshot.open(self.results)
            store.track = self.track
        store.jobs()
        for problem in store.problems:
            self.warn(problem)
        return store

    @functools.cached_property
    def jobs(self) -> dict[str, Job]:
        """The stored jobs that can be shown, by id.

        A job can be shown if its label can be read, and its task and suite are installed. A job of one of this
        package's families is left out if it was trained by another version of the family than the installed one. Jobs
        with code outside of this package are included in all versions of this code.
        """
        stored_jobs = self.store.jobs()
        others = {name: job for name, job in stored_jobs.items() if not self.is_known(job)}
        unreadable = self._unreadable_labels(dict.fromkeys(job.label for job in others.values()))
        tasks = self._installed_tasks(others.values())
        jobs = {
            name: job
            for name, job in stored_jobs.items()
            if name not in others or (job.label not in unreadable and (job.suite, job.task) in tasks)
        }
        return self._of_present_families(jobs)

    def is_known(self, job: Job) -> bool:
        """True if the store's index says that the code of this package is enough to show the stored run of ``job``.

        If False, other code may be needed: that of the label and of the task must be loaded to find out.
        """
        return bool(self.store.index_entries[job.id].is_known)

    def index_entries(self, suite: Suite) -> Iterator[IndexEntry]:
        """The index entries of the stored jobs of one suite."""
        return (self.store.index_entries[job.id] for job in self.jobs_of(suite))

    @functools.cached_property
    def known_labels(self) -> frozenset[str]:
        """The labels of stored runs that can be shown with the code of this package alone (:meth:`is_known`)."""
        return known_labels(self.store)

    def _unreadable_labels(self, labels: Iterable[str]) -> set[str]:
        """The ``labels`` that no installed family can read.

        If the query requests no label, there is a warning for each of them. Raises ``LabelError`` if such a label was
        requested.
        """
        unreadable = set()
        for label in labels:
            if not self.is_shown_as_stored(label) and (problem := reading_problem(label)):
                if label in self.labels:
                    raise LabelError(problem)
                unreadable.add(label)
                if not self.labels:
                    self.warn(f"{label} is left out; {problem}")
        return unreadable

    def _installed_tasks(self, jobs: Collection[Job]) -> set[tuple[str, str]]:
        """The installed tasks of the suites of ``jobs``, as pairs (name of the suite, name of the task).

        Tasks and suites that cannot be imported are left out, with a warning for each.
        """
        names, task_names = {job.suite for job in jobs}, {job.task for job in jobs}
        tasks = {(name, task) for name, suite in suites().items() if name in names for task in suite.tasks()}
        requested_names = None if self.requested_tasks is None else {*itertools.chain(*self.requested_tasks.values())}
        for task in sorted(task_names):
            is_shown = requested_names is None or task in requested_names
            if (is_shown or not is_built_in(task)) and (problem := task_problem(task)):
                tasks -= {(suite, task) for suite in suites()}
                if is_shown:
                    self.warn(f"{task} is left out; {problem}")
        for suite in names & broken_suites().keys():
            self.warn(f"{suite} is left out; {broken_suites()[suite]}")
        return tasks

    def _of_present_families(self, jobs: Mapping[str, Job]) -> dict[str, Job]:
        """``jobs`` without those that were trained by another version of their family than the installed one.

        There is a warning if jobs are left out. All jobs with code outside of this package are kept, and so are jobs of
        labels that are shown without importing their code.
        """
        identity = functools.cache(label_identity)
        present_jobs = {
            name: job
            for name, job in jobs.items()
            if job.has_outside_mixer or self.is_shown_as_stored(job.label) or self._is_present(job, identity)
        }
        if count := len(jobs) - len(present_jobs):
            labels = first_labels(job.label for name, job in jobs.items() if name not in present_jobs)
            self.warn(f"{_runs(count)} of {labels} left out: of another version of their family than this madbench has")
        return present_jobs

    def _is_present(self, job: Job, identity: Callable[..., str]) -> bool:
        """True if the installed version of the label's family is the version that trained the run of ``job``.

        ``identity`` maps a label to the installed version of its family. It is called only if the store's index does
        not have the answer.
        """
        entry = self.store.index_entries[job.id]
        if entry.is_known:
            return bool(entry.is_present)
        return identity(job.label) == job.family

    @functools.cached_property
    def versions(self) -> Versions:
        """The object that chooses one of several stored versions of code outside of this package, for :attr:`jobs`.

        Each of its warnings is given only once.
        """
        given_warnings: set[str] = set()  # rows are planned once per precision and profile that is tried

        def warn(text: str) -> None:
            if text not in given_warnings:
                given_warnings.add(text)
                self.warn(text)

        return Versions(self.jobs, self.store, warn, self.is_shown_as_stored)

    @functools.cached_property
    def is_shown_as_stored(self) -> Callable[[str], bool]:
        """A function that is True for a label whose stored runs are shown without importing the label's code.

        It calls :func:`madbench.labels.is_shown_as_stored` once per label. It is False for :attr:`known_labels`.
        """
        return functools.cache(lambda label: label not in self.known_labels and is_shown_as_stored(label))

    def own_overrides(self, suite: Suite) -> tuple[Override, ...]:
        """The overrides that belong to ``suite``. A suite's name at their beginning is removed."""
        return own_overrides(self.overrides, suite, self.leading)

    def is_changed(self, suite: Suite) -> bool:
        """True if any override belongs to ``suite``."""
        return any(suite_of_override(override, self.leading) is suite for override in self.overrides)

    def is_given(self, suite: Suite) -> bool:
        """True if the requested profile or an override belongs to the suite."""
        return self.is_changed(suite) or (suite is self.leading and self.profile is not None)

    def has_corpus(self, suite: Suite) -> bool:
        """True if runs of the suite are stored that were trained on a corpus of text."""
        return any(suite.corpus_of(job) for job in self.jobs_of(suite))

    @property
    def _tasks_text(self) -> str:
        """Words with the requested tasks, as the reason why an option that does not apply to them has no effect."""
        return f"the tasks are {', '.join(self.tasks or ())}"

    def check_corpus(self) -> None:
        """Raise ``ConfigError`` if a corpus was requested and the requested suites have only runs without a corpus."""
        stored_suites = [suites()[name] for name in self.requested_tasks or () if self.jobs_of(suites()[name])]
        if self.corpus and stored_suites and not any(map(self.has_corpus, stored_suites)):
            raise no_effect(f"--corpus {self.corpus}", because=self._tasks_text)

    def jobs_of(self, suite: Suite) -> list[Job]:
        """The stored jobs of one suite."""
        return [job for job in self.jobs.values() if job.suite == suite.name]

    def runs_of(self, jobs: Sequence[Job]) -> list[Run]:
        """The stored runs of ``jobs``, without their curves."""
        ids = {job.id for job in jobs}
        return [run for run in self.store.runs(with_curves=False) if run.job.id in ids]

    def every_run(self) -> list[Run]:
        """The stored runs of the requested labels that were trained with all requested overrides, without curves.

        They are sorted by label, task and seed. Only the labels and the overrides of the query have an effect: runs of
        any protocol are included, also runs whose label or task is not installed.
        """
        runs = [run for run in self.store.runs(with_curves=False) if not self.labels or run.job.label in self.labels]
        changes = set(map(str, self.overrides))
        chosen_runs = [run for run in runs if not changes or changes <= set(setting_change(run.job).split())]
        return sorted(chosen_runs, key=lambda run: (run.job.label, run.job.task, run.job.seed))

    def protocols(self, suite: Suite) -> dict[str, list[Run]]:
        """The stored runs of ``suite`` that have a result, by the id of their protocol."""
        runs = [run for run in self.runs_of(self.jobs_of(suite)) if run.record.status != "failed"]
        return by_protocol(suite, runs, lambda run: run.job)

    def is_stored(self, protocol: str) -> bool:
        """True if a stored run with a result follows the protocol with the id ``protocol``.

        Only the suites of the requested tasks are searched, or all suites if no task was requested.
        """
        named_suites = [suite for suite in suites().values() if suite.name in self.suite_names]
        return any(protocol in self.protocols(suite) for suite in named_suites)


def expand_stored(words: Sequence[str], store: StoredRuns | None) -> list[str]:
    """Expand words to labels as :func:`madbench.labels.expand` does, but keep words that are labels in ``store``.

    Only the known labels (:func:`known_labels`) are kept. ``store`` is None if no store is open.
    """
    known_words = set(words) & known_labels(store) if store and words else set()
    if not known_words:
        return expand(words)
    labels = [[word] if word in known_words else expand([word]) for word in words]
    return list(dict.fromkeys(itertools.chain.from_iterable(labels)))


def known_labels(store: StoredRuns) -> frozenset[str]:
    """The labels of those runs in ``store`` that can be shown with the code of this package alone."""
    return frozenset(job.label for name, job in store.jobs().items() if store.index_entries[name].is_known)


def in_grammar_order(labels: Iterable[str]) -> list[str]:
    """S/R/G labels in the order of their grammar, then the labels of other families by name."""
    position = {label: i for i, label in enumerate(every_label())}
    return sorted(labels, key=lambda label: (position.get(label, len(position)), label))


def first_labels(labels: Iterable[str]) -> str:
    """The sorted, distinct labels as text. If there are more than four, only the first four and how many follow."""
    distinct = sorted(set(labels))
    return ", ".join(distinct[:4]) + (f" and {len(distinct) - 4} more" if len(distinct) > 4 else "")


def plural(suite: Suite) -> str:
    """The plural of a suite's title within a sentence, such as ``MAD tasks`` or ``language models``."""
    title = suite.title if suite.title[:2].isupper() else suite.title.lower()
    return title if title.endswith("s") else f"{title}s"


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count} runs"
