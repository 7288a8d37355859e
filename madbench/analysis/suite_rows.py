"""The rows of a suite's table, from its stored runs.

A stored run belongs to a table if it has the requested label, task, profile, fidelity, budget, precision, corpus and
protocol. A row has all jobs that its profile trains, also those that are not stored yet. These jobs are derived from
the stored jobs where possible. The jobs of a label are planned anew, which is slow, in two cases only: if a requested
label has no stored run, and if changes of the profile may have no effect on some jobs of the label.
"""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from madbench.analysis.protocols import nothing_stored, protocol_list, with_changes
from madbench.analysis.query import Query, in_grammar_order, plural
from madbench.errors import BudgetError, ConfigError, FamilyError, LabelError, StoreError
from madbench.jobs import Job
from madbench.labels.traits import SOMETIMES_UNUSED
from madbench.rows import Row, SuiteRow
from madbench.store.columns import StoredProfile
from madbench.store.reading import Run
from madbench.store.results_folder import command_on, training_command
from madbench.suites import Suite, main_suite, suites
from madbench.suites.addressing import profile_named, tasks_in_order
from madbench.suites.overrides import Plan, check_effect
from madbench.suites.profile import Profile, ProfileFacts
from madbench.suites.protocol import Protocol, by_protocol, recognize_protocol


class SeveralProtocols(StoreError, ConfigError):
    """Raised if runs of several protocols match a query, so that the user must choose one.

    ``listed`` is a text with one line per protocol.
    """

    listed = ""


def rows_of_suite(query: Query, suite: Suite, nothing: str, is_enough: Callable[[set[str]], bool]) -> list[SuiteRow]:
    """The rows of one suite under the requested protocol.

    If the suite has no runs on a corpus and the query names no protocol id, a row has the jobs that the profile trains,
    for the seeds with a stored run. Otherwise a row has the stored jobs of a protocol. ``is_enough`` can exclude such a
    protocol: it gets the set of the protocol's labels.

    Raises ``StoreError`` if no run matches. ``nothing`` is the reason in its message if runs have results but no
    protocol matches. If ``nothing`` is empty, the message has a general reason. Raises ``ConfigError`` if several
    protocols or precisions match. Its message has the ways to choose one.
    """
    name = profile_named(suite, query.overrides, query.leading, query.profile, True)
    profile = _profile(query, suite, name)
    if not query.jobs_of(suite):
        unreadable = len(query.store.problems)
        why = command_on(query.results, "validate", "--store")
        found = f"that can be read, and {unreadable} of any suite that cannot; {why} says why" if unreadable else "yet"
        raise StoreError(f"{query.results}: no runs of {plural(suite)} {found}; {_makes_some(query, suite)}")
    is_chosen = query.protocol is not None and query.protocol in query.protocols(suite)
    if not is_chosen and not query.has_corpus(suite):
        return _rows_of_profile(query, suite, profile)
    return _rows_of_protocol(query, suite, profile if query.is_given(suite) else None, nothing, is_enough)


def _profile(query: Query, suite: Suite, name: str) -> ProfileFacts:
    """The profile ``name`` of the suite, with the overrides of the query.

    If there are no overrides and the store has runs of the profile, it is a :class:`StoredProfile` from the store's
    index, which is faster than loading the profile.
    """
    overrides = query.own_overrides(suite)
    jobs_in_profile = () if overrides else (entry.in_profile(name) for entry in query.index_entries(suite))
    if job_in_profile := next(filter(None, jobs_in_profile), None):
        return StoredProfile(suite.Profile, name, job_in_profile)
    return suite.Profile.load(name, overrides)


def _makes_some(query: Query, suite: Suite) -> str:
    """The end of an error message for a suite without runs: the command that trains some.

    If any suite has stored runs, the command that shows the runs of the first such suite follows.
    """
    tasks = query.tasks_of(suite) if query.tasks else suite.tasks()[:1] if suite is not main_suite() else []
    task_words = ["-t", ",".join(tasks)] if tasks else []
    profile_words = ["-p", query.profile] if query.profile and suite is query.leading else []
    words = [*map(str, query.own_overrides(suite)), *task_words, *profile_words]
    labels = {"labels": query.labels} if query.labels else {}
    command = training_command(query.results, *words, **labels)
    others = [other for other in suites().values() if query.jobs_of(other)]
    hints = [f"; its {plural(other)} are in {_table_of(query, other)}" for other in others[:1]]
    return f"{command} makes some{''.join(hints)}"


def _table_of(query: Query, suite: Suite) -> str:
    """The command that shows the stored runs of ``suite`` as a table."""
    task_names = {job.task for job in query.jobs_of(suite)}
    task = next(task for task in suite.tasks() if task in task_names)
    return command_on(query.results, "table", "-t", task)


def _rows_of_profile(query: Query, suite: Suite, profile: ProfileFacts) -> list[SuiteRow]:
    """The rows of ``suite`` under ``profile``, for runs without a corpus.

    The rows are those of another shipped profile, with a warning, if the user requested no profile, ``profile`` has no
    stored run, and exactly one other shipped profile has any. Raises ``ConfigError`` if the runs have several
    precisions, and ``NothingStored`` if there are no runs.
    """
    by_precision = _rows_by_precision(query, suite, profile)
    if not by_precision and not _names_profile(query, suite) and len(others := _profiles_of(query, suite)) == 1:
        usual, other = f"{profile.noun} {profile.source}", others[0]
        shown = f"shown are those of {other.source}{_commands_of_others(query, suite, other)}"
        query.warn(f"no run is of the {usual}, which is the usual one; {shown}")
        profile = other
        by_precision = _rows_by_precision(query, suite, profile)
    if len(by_precision) > 1:
        words = [f"precision={rows[0].protocol.precision}" for rows in by_precision]
        precisions_text = " and in ".join(rows[0].protocol.precision for rows in by_precision)
        raise ConfigError(f"{query.results}: runs in {precisions_text}; add {' or '.join(words)}")
    if not by_precision:
        raise nothing_stored(query, suite, profile.source)
    return by_precision[0]


def _names_profile(query: Query, suite: Suite) -> bool:
    """True if the user requested a profile for ``suite``, by the option or by an override."""
    is_leading = suite is query.leading and query.profile is not None
    return is_leading or any(
        override.names_profile and override.suite == suite.override_name for override in query.overrides
    )


def _profiles_of(query: Query, suite: Suite) -> list[Profile]:
    """The shipped profiles that, with the requested changes, train at least one stored job of the requested labels."""
    suite_overrides, profiles = query.own_overrides(suite), []
    wanted_jobs = (job for job in query.jobs_of(suite) if not query.labels or job.label in query.labels)
    kinds = {(job.label, job.task, str(job.setting), job.model, job.training): job for job in wanted_jobs}
    for name in suite.Profile.names():
        try:
            profile = suite.Profile.load(name, suite_overrides)
        except ConfigError:  # the profile has no such setting
            continue
        if any(_trains(query, profile, job) for job in kinds.values()):
            profiles.append(profile)
    return profiles


def _commands_of_others(query: Query, suite: Suite, profile: Profile) -> str:
    """The end of a warning: the commands that show the requested runs that ``profile`` does not train.

    Empty if there are no such runs, or if the user chose runs by changes of a profile.
    """
    requested_jobs = [] if profile.overrides else query.jobs_of(suite)
    others = [
        job
        for job in requested_jobs
        if job.task in query.tasks_of(suite)
        and (not query.labels or job.label in query.labels)
        and not _trains(query, profile, job)
    ]
    if not others:
        return ""
    return f"; these commands show the others:\n{protocol_list(suite, query.runs_of(others), query.results)}"


def _trains(query: Query, profile: ProfileFacts, job: Job) -> bool:
    """True if ``profile`` trains the stored job ``job``.

    For a shipped profile, this is read from the index entry of the run. Otherwise, or if the entry lacks it, the
    settings of job and profile are compared.
    """
    entry = query.store.index_entries[job.id]
    if entry.profile and profile.is_shipped:
        return profile.precision in ("auto", job.precision) and entry.is_of_profile(profile.source)
    return profile.loaded.trains_job(job)


def _rows_by_precision(query: Query, suite: Suite, profile: ProfileFacts) -> list[list[SuiteRow]]:
    """The rows of ``suite`` under ``profile``, as one list for each precision in which runs are stored."""
    suite_overrides, stored_jobs = query.own_overrides(suite), query.jobs_of(suite)
    tasks = tasks_in_order(suite, suite_overrides, query.tasks_of(suite))
    fidelity, budget = suite.fidelity_of(query.fidelity), query.budget or "strict"
    alike = [job for job in stored_jobs if (job.fidelity, job.budget) == (fidelity, budget)]
    precisions = {job.precision for job in alike} if profile.precision == "auto" else {profile.precision}
    labels = query.labels or in_grammar_order({job.label for job in alike})
    by_precision = []
    for precision in sorted(precisions):
        protocol = Protocol(suite, profile, profile.source, suite_overrides, tasks, fidelity, budget, precision)
        jobs = [job for job in alike if job.precision == precision and job.task in tasks]
        by_precision.append(_rows_with_runs(query, _rows(query, protocol, labels, jobs)))
    return list(filter(None, by_precision))


def _rows(query: Query, protocol: Protocol, labels: Sequence[str], stored_jobs: Sequence[Job]) -> list[SuiteRow]:
    """One row per label, with all jobs that the profile of ``protocol`` trains, stored or not.

    ``stored_jobs`` are the stored jobs that may belong to the profile. A label that was not requested is left out if
    the profile trains none of its stored jobs, if the label does not fit the profile, or if the changes of the profile
    have no effect on the label.
    """
    jobs_of = _jobs_by_label(query, protocol.profile, stored_jobs)
    changes = protocol.profile.overrides
    rows: list[SuiteRow] = []
    plans: list[Plan] = []
    for label in labels:
        if jobs := jobs_of.get(label):
            row = _row_of_jobs(query, protocol, label, jobs)
            if not changes or query.is_shown_as_stored(label) or all(job.id in query.jobs for job in row.jobs):
                rows.append(row)
                continue
        elif query.is_shown_as_stored(label) or (not query.labels and (jobs_of or not changes)):
            if query.labels and jobs_of:
                under = f"{protocol.title}{with_changes(protocol.overrides)}"
                query.warn(f"{label} is left out; it has no run under {under}")
            continue
        if plan := _plan(query, protocol, label):
            plans.append(plan)
            if query.labels or not plan.without_effect:
                rows.append(query.versions.of_row(SuiteRow(Row(label), protocol, plan.jobs)))
    for change in changes if not jobs_of else ():
        check_effect(change, plans)
    return rows


def _plan(query: Query, protocol: Protocol, label: str) -> Plan | None:
    """The plan of the jobs of ``label`` under ``protocol``, for every seed of any stored run of the suite.

    If the jobs cannot be planned, the error is raised if the query requests labels. Otherwise the result is None.
    """
    try:
        return protocol.plan([label], sorted({job.seed for job in query.jobs_of(protocol.suite)}))
    except (BudgetError, ConfigError, LabelError) as error:
        if query.labels:
            raise
        if isinstance(error, (BudgetError, FamilyError)):  # else no run of the label can have these settings
            query.warn(f"{label} is left out; {error}")
        return None


def _jobs_by_label(query: Query, profile: ProfileFacts, stored_jobs: Sequence[Job]) -> dict[str, list[Job]]:
    """The ``stored_jobs`` that ``profile`` trains, by label. If the query requests labels, others are left out."""
    unread = [f"model.{name}" for name in SOMETIMES_UNUSED]
    kept_overrides = tuple(change for change in profile.overrides if change.key not in unread)
    fewer = profile.loaded.under(kept_overrides) if query.labels and kept_overrides != profile.overrides else None
    by_label: dict[str, list[Job]] = defaultdict(list)
    for job in stored_jobs:
        if query.labels and job.label not in query.labels:
            continue
        if _trains(query, profile, job) or (
            fewer and query.is_shown_as_stored(job.label) and _trains(query, fewer, job)
        ):
            by_label[job.label].append(job)
    return by_label


def _row_of_jobs(query: Query, protocol: Protocol, label: str, jobs: Sequence[Job]) -> SuiteRow:
    """The row of ``label``: all jobs that the profile of ``protocol`` trains, for each seed of the stored ``jobs``.

    The profile is loaded only if jobs are missing, or if the index entries do not say which jobs it trains.
    """
    seeds = sorted({job.seed for job in jobs})
    tasks = [_stored_task(query, protocol, [job for job in jobs if job.task == task], seeds) for task in protocol.tasks]
    if all(tasks):
        return SuiteRow(Row(label), protocol, list(itertools.chain.from_iterable(tasks)))
    shown_jobs = query.versions.shown_first(jobs)
    by_task = {job.task: job for job in shown_jobs}
    expected: dict[str, Job] = {}
    for task in protocol.tasks:
        similar_job = by_task.get(task) or replace(shown_jobs[0], task=task, task_source="")
        cells = protocol.profile.loaded.jobs_like(similar_job)
        same_seed = [replace(cell, seed=seed) for cell in cells for seed in seeds]
        expected |= {job.id: job for job in same_seed or jobs if job.task == task}
    return query.versions.of_row(SuiteRow(Row(label), protocol, list(expected.values())))


def _stored_task(query: Query, protocol: Protocol, jobs: Sequence[Job], seeds: Sequence[int]) -> list[Job]:
    """The stored ``jobs`` of one row and task, in the order of the profile.

    Empty if a job of the profile is not stored for one of ``seeds``, if the profile is not a shipped one, or if a run
    has code outside of this package, because several versions of such code may be stored.
    """
    counts: set[int] = set()
    by_place: dict[tuple[int, int], Job] = {}
    for job in jobs if protocol.profile.is_shipped else ():
        entry = query.store.index_entries[job.id]
        job_in_profile = entry.in_profile(protocol.profile.source) if entry.is_known else None
        if job_in_profile is None:
            return []
        counts.add(job_in_profile.count)
        by_place[job_in_profile.place, job.seed] = job
    kinds = {(job.family, repr(job.mixer), job.steps) for job in jobs}
    is_whole = len(kinds) == len(counts) == 1 and len(jobs) == len(by_place) == len(seeds) * counts.pop()
    return [by_place[place] for place in sorted(by_place)] if is_whole else []


def _rows_with_runs(query: Query, rows: Sequence[SuiteRow]) -> list[SuiteRow]:
    """The rows that have a stored job, without the jobs of seeds for which the row has no stored job.

    The row of a requested label without any stored job is kept, with the seeds of the other rows. Empty if no row has a
    stored job.
    """
    pairs = {(row.name, job.seed) for row in rows for job in row.jobs if job.id in query.jobs}
    names, seeds = {name for name, _ in pairs}, {seed for _, seed in pairs}
    started_rows = []
    for row in rows:
        is_whole = bool(query.labels) and row.name not in names
        jobs = [job for job in row.jobs if (row.name, job.seed) in pairs or (is_whole and job.seed in seeds)]
        if jobs:
            started_rows.append(replace(row, jobs=jobs))
    return started_rows


def _rows_of_protocol(
    query: Query, suite: Suite, profile: ProfileFacts | None, nothing: str, is_enough: Callable[[set[str]], bool]
) -> list[SuiteRow]:
    """The rows of the only protocol with results that matches the query, with one row per label.

    If ``profile`` is not None, only runs that this profile trains match. The other arguments and the errors are those
    of :func:`rows_of_suite`.
    """
    runs = [run for run in query.runs_of(query.jobs_of(suite)) if run.record.status != "failed"]
    requested_runs = [run for run in runs if _is_requested(query, suite, run, profile)]
    if query.protocol:  # a protocol also has runs that were not requested
        ids = {run.job.id for run in requested_runs}
        alike = [run for run in query.protocols(suite).get(query.protocol, ()) if run.job.id in ids]
        groups = {query.protocol: alike} if alike else {}
    else:
        groups = by_protocol(suite, requested_runs, lambda run: run.job)
    groups = {name: alike for name, alike in groups.items() if is_enough({run.job.label for run in alike})}
    list_protocols = functools.partial(protocol_list, suite, results=query.results)
    if not runs:
        why = command_on(query.results, "ls", "sweeps")
        raise StoreError(f"{query.results}: no run of {plural(suite)} has a result; {why} says why")
    if not groups:
        reason = nothing or f"none of its runs of {plural(suite)} is as asked"
        raise StoreError(f"{query.results}: {reason}; it has:\n{list_protocols(runs)}")
    chosen_runs = [run for alike in groups.values() for run in alike]
    if len(groups) > 1:
        error = SeveralProtocols(
            f"the runs of {plural(suite)} follow {len(groups)} protocols, which cannot be compared; choose one "
            f"with --protocol ID, or with the options that only it has:\n{list_protocols(chosen_runs)}"
        )
        error.listed = list_protocols(chosen_runs)
        raise error
    jobs: dict[str, list[Job]] = defaultdict(list)
    for run in sorted(chosen_runs, key=lambda run: run.job.seed):
        jobs[run.job.label].append(run.job)
    for label, of_label in jobs.items():
        if any(map(query.versions.has_versions, of_label)):
            jobs[label], *others = query.versions.by_version(of_label).values()
            query.versions.leave_out(itertools.chain(*others), jobs[label])
    for label in query.labels if len(query.requested_tasks or ()) == 1 else ():
        if label not in jobs:
            query.warn(f"no run of {label} is as asked")
    protocol = recognize_protocol(suite, [(run.job, run.record.details) for run in chosen_runs])
    labels = query.labels or in_grammar_order(jobs)
    return [SuiteRow(Row(label), protocol, jobs[label]) for label in labels if label in jobs]


def _is_requested(query: Query, suite: Suite, run: Run, profile: ProfileFacts | None) -> bool:
    """True if ``run`` has the requested label, task, budget and corpus, and belongs to ``profile``, if not None."""
    job, corpus = run.job, suite.corpus_of(run.job, run.record.details)
    if (query.labels and job.label not in query.labels) or job.task not in query.tasks_of(suite):
        return False
    if query.protocol is None and query.budget not in (None, job.budget):
        return False
    if corpus and query.corpus and not corpus.is_called(query.corpus):
        return False
    if profile is None or _trains(query, profile, job):
        return True
    if not query.labels or query.is_shown_as_stored(job.label):
        return False
    shared = (job.fidelity, job.budget, job.precision, "cpu", corpus)
    return Protocol(suite, profile, "", (), [job.task], *shared).plans(job)  # changes that the label may not use
