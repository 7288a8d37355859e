"""The rows of a suite under a protocol that is recognised from stored runs."""

from __future__ import annotations

import functools
import itertools
from collections import defaultdict
from collections.abc import Callable, Sequence

from madbench.analysis.protocols import protocol_list
from madbench.analysis.query import Query, in_grammar_order, plural
from madbench.errors import ConfigError, StoreError
from madbench.experiment import PlannedRow, Protocol
from madbench.grid import Row
from madbench.jobs import Job
from madbench.store.runs import Run
from madbench.suites import Suite
from madbench.suites.corpora import StoredCorpus
from madbench.suites.profile import Profile
from madbench.suites.protocol import by_protocol, recognise_protocol


class SeveralProtocols(StoreError, ConfigError):
    """Runs of several protocols, of which one has to be chosen; ``listed`` has a line for each."""

    listed = ""


def recognised_rows(
    query: Query, suite: Suite, stored: Sequence[Job], name: str, nothing: str, is_enough: Callable[[set[str]], bool]
) -> list[PlannedRow]:
    """The rows of the one protocol, recognised from the jobs, whose labels are enough."""
    runs = [run for run in query.details(stored) if run.record.status != "failed"]
    own = query.own_overrides(suite)
    profile = suite.Profile.load(name, own) if name else None
    asked = [run for run in runs if _is_asked_for(query, suite, run, profile)]
    if query.protocol:  # which the runs that were not asked for decide, too
        ids = {run.job.id for run in asked}
        alike = [run for run in query.protocols(suite).get(query.protocol, ()) if run.job.id in ids]
        groups = {query.protocol: alike} if alike else {}
    else:
        groups = by_protocol(suite, asked, lambda run: run.job)
    groups = {name: alike for name, alike in groups.items() if is_enough({run.job.label for run in alike})}
    listed = functools.partial(protocol_list, suite, results=query.results)
    if not runs:
        raise StoreError(f"{query.results}: no run of {plural(suite)} has a result; madbench ls sweeps says why")
    if not groups:
        why = nothing or f"none of its runs of {plural(suite)} is as asked"
        raise StoreError(f"{query.results}: {why}; it has:\n{listed(runs)}")
    chosen = [run for alike in groups.values() for run in alike]
    if len(groups) > 1:
        error = SeveralProtocols(
            f"the runs of {plural(suite)} follow {len(groups)} protocols, which cannot be compared; choose one "
            f"with --protocol ID, or with what tells it apart:\n{listed(chosen)}"
        )
        error.listed = listed(chosen)
        raise error
    jobs = defaultdict(list)
    for run in sorted(chosen, key=lambda run: run.job.seed):
        jobs[run.job.label].append(run.job)
    for label, runs_of_label in jobs.items():
        if any(map(query.versions.has_versions, runs_of_label)):
            jobs[label], *others = query.versions.ordered(runs_of_label).values()
            query.versions.leave_out(itertools.chain(*others), jobs[label])
    for label in query.labels if len(query.asked or ()) == 1 else ():
        if label not in jobs:
            query.warn(f"no run of {label} is as asked")
    protocol = recognise_protocol(suite, [(run.job, run.record.details) for run in chosen])
    labels = query.labels or in_grammar_order(jobs)
    return [PlannedRow(Row(label), protocol, jobs[label]) for label in labels if label in jobs]


def _is_asked_for(query: Query, suite: Suite, run: Run, profile: Profile | None) -> bool:
    """True if a run has the label, budget, corpus and profile that were asked for."""
    job = run.job
    corpus = suite.corpus_of(job, run.record.details)
    return (
        (not query.labels or job.label in query.labels)
        and job.task in query.tasks_of(suite)
        and (query.protocol is not None or query.budget in (None, job.budget))
        and (corpus is None or query.corpus is None or corpus.is_called(query.corpus))
        and (profile is None or profile.trains_job(job) or _is_planned(query, suite, job, profile, corpus))
    )


def _is_planned(query: Query, suite: Suite, job: Job, profile: Profile, corpus: StoredCorpus | None) -> bool:
    """True if a profile plans a job of a label that was named, with changes that the label does not read."""
    shared = (job.fidelity, job.budget, job.training.precision, "cpu", corpus)
    if not query.labels or query.is_shown_as_stored(job.label):
        return False
    return Protocol(suite, profile, "", (), [job.task], *shared).plans(job)
