"""Versions of code outside of this package among stored runs. A row shows one version, and warnings name the others.

Such code (a user's module, an installed family or task) is part of a run's id, so runs before and after an edit of the
code are different runs, of two versions. A row shows the version that would be trained now, if a run of it is stored.
Otherwise it shows a version that has a result. If there are several, the version whose code is installed is preferred,
and then the newest. Tables mark versions that are not installed (:mod:`madbench.suites.code_marks`).
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from madbench.identity.listing import code_state
from madbench.jobs import Job
from madbench.labels import label_identity
from madbench.rows import SuiteRow
from madbench.store.edited_code import counts_by_file
from madbench.store.reading import StoredRuns
from madbench.suites.code import listed_code
from madbench.suites.identity import mixer_version, without_code
from madbench.tasks import task_source


@dataclass(frozen=True)
class Versions:
    """The object that chooses which version of the code is shown if stored jobs were trained by several versions.

    ``jobs`` has the stored jobs by id. ``warn`` is called with a sentence on runs that are left out.
    ``is_shown_as_stored`` returns True for a label whose stored runs are shown without importing its code.
    """

    jobs: Mapping[str, Job]
    store: StoredRuns
    warn: Callable[[str], None]
    is_shown_as_stored: Callable[[str], bool]

    def has_versions(self, job: Job) -> bool:
        """True if the store may have runs of ``job`` by several versions of its code.

        This holds if code outside of this package defines the job's mixer or task. It also holds if stored runs of the
        job's label are shown without importing its code (:attr:`is_shown_as_stored`), because it is then not known
        which version is installed.
        """
        return job.has_outside_code or self.is_shown_as_stored(job.label)

    def by_version(self, jobs: Iterable[Job]) -> dict[str, list[Job]]:
        """``jobs``, grouped by the version of their mixer's code. The preferred version comes first.

        A version with a result is preferred to one without. Among these, the installed version is preferred, then the
        version with the newest run.
        """
        by_version: dict[str, list[Job]] = defaultdict(list)
        for job in jobs:
            by_version[mixer_version(job)].append(job)
        if len(by_version) < 2:
            return by_version
        names = sorted(by_version, key=lambda name: self._rank(by_version[name]), reverse=True)
        return {name: by_version[name] for name in names}

    def shown_first(self, jobs: Sequence[Job]) -> list[Job]:
        """Select the jobs that were trained by the version of the code to show. All ``jobs`` must have one label.

        This is the installed version of the mixer's code or, if none of ``jobs`` has it, the first version in
        :meth:`by_version`. For each task, jobs of only one version of the task's code are returned, too.
        """
        if not any(map(self.has_versions, jobs)):
            return list(jobs)
        versions = list(self.by_version(jobs).values())
        chosen_version = next(filter(self._is_installed, versions), versions[0]) if len(versions) > 1 else versions[0]
        now = {job.task: task_source(job.task) if job.task_source else "" for job in chosen_version}
        sources = self._sources(now, chosen_version)
        return [job for job in chosen_version if job.task_source == sources[job.task]]

    def _is_installed(self, jobs: Sequence[Job]) -> bool:
        """True if ``jobs`` were trained by the installed version of their mixer's code.

        All ``jobs`` have the same label and version. False for code that is not imported to show stored runs.
        """
        job = jobs[0]
        is_readable = not self.is_shown_as_stored(job.label)
        return is_readable and label_identity(job.label) == job.family

    def of_row(self, row: SuiteRow) -> SuiteRow:
        """A copy of ``row`` whose jobs have one version of the mixer's code, and one version of each task's code.

        Each job of the row is replaced by the stored job that differs from it only in the code outside of this package.
        It is kept if there is no such job.
        """
        if not any(map(self.has_versions, row.jobs)):
            return row
        alike = {job.id: self._alike_to(job) for job in row.jobs}
        stored_jobs = [stored_job for jobs_alike in alike.values() for stored_job in jobs_alike]
        planned_versions = {mixer_version(job) for job in row.jobs}
        versions = self.by_version(stored_jobs)
        version = next((name for name in versions if name in planned_versions), next(iter(versions), ""))
        sources = self._sources({job.task: job.task_source for job in row.jobs}, versions.get(version, ()))
        jobs = []
        for job in row.jobs:
            wanted_sources = (version, sources.get(job.task, job.task_source))
            matching = (
                stored_job
                for stored_job in alike[job.id]
                if (mixer_version(stored_job), stored_job.task_source) == wanted_sources
            )
            jobs.append(next(matching, job))
        self.leave_out((stored_job for stored_job in stored_jobs if stored_job not in jobs), jobs)
        return replace(row, jobs=jobs)

    def leave_out(self, others: Iterable[Job], shown_jobs: Iterable[Job]) -> None:
        """Warn that the stored jobs ``others`` are left out, because their code is not that of ``shown_jobs``."""
        by_key = {without_code(job): job for job in shown_jobs}
        pairs = [(job, by_key.get(without_code(job), next(iter(by_key.values())))) for job in others]
        for runs in counts_by_file(pairs, self.store):
            self.warn(f"{runs.text}; left out, as a row shows one version")

    def _sources(self, now: Mapping[str, str], stored_jobs: Sequence[Job]) -> dict[str, str]:
        """The version of each task's code to show, by task, for the tasks of ``stored_jobs``.

        It is the version in ``now``, a mapping from task to preferred version, if one of ``stored_jobs`` has it.
        Otherwise, it is the version of the newest run.
        """
        jobs_by_source: dict[str, dict[str, list[Job]]] = defaultdict(lambda: defaultdict(list))
        for job in stored_jobs:
            jobs_by_source[job.task][job.task_source].append(job)
        return {
            task: now[task]
            if now[task] in groups
            else max(groups, key=lambda source: max(self._end_times(groups[source]).values()))
            for task, groups in jobs_by_source.items()
        }

    def _rank(self, jobs: Sequence[Job]) -> tuple[bool, bool, str]:
        """The sort key of the version of code that trained ``jobs``. The version with the largest key is preferred.

        The entries are: True if at least one run has a result, True if the version is the installed code, and the time
        at which the newest run ended.
        """
        records = self.store.records({job.id for job in jobs})
        end_times = self._end_times(jobs)
        newest = max(jobs, key=lambda job: end_times[job.id])
        details = records[newest.id].details if newest.id in records else {}
        has_result = any(record.status != "failed" for record in records.values())
        return has_result, code_state(listed_code(details, "mixer")).kind == "same", end_times[newest.id]

    def _end_times(self, jobs: Sequence[Job]) -> dict[str, str]:
        """The time at which the run of each job ended, in UTC as an ISO text, by id.

        The time is read from the record, because an import of runs changes the times of files. If the record has no
        time, the time at which its file was written is used.
        """
        records = self.store.records({job.id for job in jobs})
        recorded_times = {name: str(record.details.get("ended", "")) for name, record in records.items()}
        return {job.id: recorded_times.get(job.id) or self.store.time_written(job.id).replace(" ", "T") for job in jobs}

    def _alike_to(self, job: Job) -> list[Job]:
        """The stored jobs that equal ``job``, or differ from it only in code outside of this package."""
        if job.id in self.jobs and not self.has_versions(job):
            return [self.jobs[job.id]]
        return self._alike.get(without_code(job), [])

    @functools.cached_property
    def _alike(self) -> dict[str, list[Job]]:
        alike: dict[str, list[Job]] = defaultdict(list)
        for job in self.jobs.values():
            if self.has_versions(job):
                alike[without_code(job)].append(job)
        return alike
