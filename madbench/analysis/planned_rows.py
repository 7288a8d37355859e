"""The rows of a suite that a profile plans, where runs of them are stored."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import replace

from madbench.analysis.protocols import protocol_list
from madbench.analysis.query import Query, in_grammar_order
from madbench.config import key_of
from madbench.errors import BudgetError, ConfigError, FamilyError, LabelError, MadbenchError, StoreError
from madbench.experiment import PlannedRow, Protocol, load_profile
from madbench.grid import Row
from madbench.jobs import Job
from madbench.suites import Suite
from madbench.suites.overrides import check_effect
from madbench.suites.planning import StoredCode, plan_as_stored

_UNREAD_WITHOUT_CODE = ("model.n_head",)
"""Changes that some mixers do not read, which only their code tells."""


class NothingStored(StoreError):
    """No run of the protocol that was asked for; ``reason`` is the message without what shows other protocols."""

    reason = ""


def planned_rows(query: Query, suite: Suite, name: str, stored: Sequence[Job]) -> list[PlannedRow]:
    """The rows of the profile ``name``.

    If no run of it is stored and no profile was asked for, the rows of the only profile of which runs are stored.
    """
    protocols, begun = _stored_protocols(query, suite, name, stored)
    if not begun and not _names_profile(query, suite) and len(others := _profiles_of(query, suite, stored)) == 1:
        noun = suite.Profile.noun
        query.warn(f"no run is of the {noun} {name}, which is the usual one; shown are those of {others[0]}")
        protocols, begun = _stored_protocols(query, suite, others[0], stored)
    if len(begun) > 1:
        words = [f"precision={rows[0].protocol.precision}" for rows in begun]
        precisions_text = " and in ".join(rows[0].protocol.precision for rows in begun)
        raise ConfigError(f"{query.results}: runs in {precisions_text}; add {' or '.join(words)}")
    if not begun:
        reason, commands = _what_is_stored(query, suite, stored, protocols[0])
        error = NothingStored(f"{query.results}: {reason}{commands}")
        trains = "" if query.labels else f"madbench run LABEL --profile {name} makes some"
        error.reason = f"{query.results}: {reason}{trains}".strip()
        raise error
    return begun[0]


def _names_profile(query: Query, suite: Suite) -> bool:
    """True if a profile of the suite was asked for."""
    is_leading = suite is query.leading and query.profile is not None
    return is_leading or any(f"{key_of(word)}." == suite.prefix for word in query.overrides)


def _profiles_of(query: Query, suite: Suite, stored: Sequence[Job]) -> list[str]:
    """The shipped profiles that, with the changes that were asked for, train some of the stored jobs."""
    own, names = query.own_overrides(suite), []
    wanted = (job for job in stored if not query.labels or job.label in query.labels)
    kinds = {(job.label, job.task, str(job.setting), job.model, job.training): job for job in wanted}
    for name in suite.Profile.names():
        try:
            profile = suite.Profile.load(name, own)
        except ConfigError:  # it has nothing of the kind to change
            continue
        if any(map(profile.trains_job, kinds.values())):
            names.append(name)
    return names


def _stored_protocols(
    query: Query, suite: Suite, name: str, stored: Sequence[Job]
) -> tuple[list[Protocol], list[list[PlannedRow]]]:
    """The protocols of a profile, one a precision, and the rows of each of which runs are stored."""
    own = query.own_overrides(suite)
    profile, tasks = load_profile(suite, name, own, query.tasks_of(suite))
    fidelity = suite.fidelity_of(query.fidelity)
    budget = query.budget or "strict"
    alike = [job for job in stored if (job.fidelity, job.budget) == (fidelity, budget)]
    precisions = {job.training.precision for job in alike} or {"float32"}
    if profile.precision != "auto":
        precisions = {profile.precision}
    labels = query.labels or in_grammar_order({job.label for job in alike})
    seeds = sorted({job.seed for job in stored})
    terms = (suite, profile, name, own, tasks, fidelity, budget)
    protocols = [Protocol(*terms, precision) for precision in sorted(precisions)]
    return protocols, [rows for each in protocols if (rows := _rows_begun(query, _rows(query, each, labels, seeds)))]


def _what_is_stored(query: Query, suite: Suite, stored: Sequence[Job], protocol: Protocol) -> tuple[str, str]:
    """Two sentences for an error: no run of ``protocol`` is stored, with what trains it; commands that show others."""
    listed = protocol_list(suite, query.details(stored), query.results)
    commands = f"each of these commands shows one protocol:\n{listed}"
    changes = f" with {' '.join(protocol.overrides)}" if protocol.overrides else ""
    terms = f", fidelity {protocol.fidelity}" if len(suite.fidelities) > 1 else ""
    asked = f"{protocol.profile.noun} {protocol.profile_name}{changes}{terms}, budget {protocol.budget}"
    nothing, trains = f"none of its {len(stored)} runs belongs to {asked}; ", ""
    if query.labels:
        words = [*query.labels, *protocol.overrides, *(["-t", ",".join(protocol.tasks)] if query.tasks else [])]
        words += ["--profile", protocol.profile_name]
        words += ["--fidelity", protocol.fidelity] if len(suite.fidelities) > 1 else []
        words += ["--budget", protocol.budget]
        nothing = f"no run of {' or '.join(query.labels)} belongs to {asked}; "
        trains = f"this trains it:\n  {shlex.join(['madbench', 'run', *words, '--results', str(query.results)])}\n"
    return f"{nothing}{trains}", commands


def _rows(query: Query, protocol: Protocol, labels: Iterable[str], seeds: Sequence[int]) -> list[PlannedRow]:
    """The row of each label: the jobs that the profile trains, stored or not.

    The runs that are stored say which labels have a row. A plan is made of a label that was named and has no run, of
    one whose code is outside of this package, and under changes of the profile, which need not concern every label.
    A label that was not named may not fit the profile: it is left out.
    """
    rows, planned = [], []
    stored = {} if protocol.profile.overrides else _runs_of_profile(query, protocol)
    for label in labels:
        if query.is_shown_as_stored(label):
            rows += _row_as_stored(query, protocol, label, seeds)
            continue
        if runs := stored.get(label):
            with plan_as_stored({label: StoredCode.from_jobs(runs)}):
                rows.append(PlannedRow(Row(label), protocol, protocol.plan([label], seeds).jobs))
            continue
        if label in stored and not query.labels:
            continue
        try:
            planned.append(protocol.plan([label], seeds))
        except (BudgetError, ConfigError, LabelError) as error:
            if query.labels:
                raise
            if isinstance(error, (BudgetError, FamilyError)):  # else no run of the label can have these settings
                query.warn(f"{label} is left out; {error}")
            continue
        if query.labels or not planned[-1].without_effect:  # a label that was not named is one that the changes concern
            rows.append(PlannedRow(Row(label), protocol, planned[-1].jobs))
    for word in protocol.profile.overrides:
        check_effect(key_of(word), planned)
    return list(map(query.versions.of_row, rows))


def _runs_of_profile(query: Query, protocol: Protocol) -> dict[str, list[Job]]:
    """The stored runs of a protocol by label, of labels of this package's families. A list may be empty."""
    suite, profile, name = protocol.suite, protocol.profile, protocol.profile_name
    is_shipped = name in suite.Profile.names()
    terms = (protocol.fidelity, protocol.budget, protocol.precision)
    by_label: dict[str, list[Job]] = {}
    for job in query.stored(suite):
        if query.versions.has_versions(job):
            continue
        runs = by_label.setdefault(job.label, [])
        if (job.fidelity, job.budget, job.training.precision) == terms and job.task in protocol.tasks:
            columns = query.store.columns(job) if is_shipped else None
            is_known = columns is not None and bool(columns.profile)
            if columns.is_of_profile(name) if is_known else profile.trains_job(job):
                runs.append(job)
    return by_label


def _row_as_stored(query: Query, protocol: Protocol, label: str, seeds: Sequence[int]) -> list[PlannedRow]:
    """The row of a label without its code, planned as a version of which runs are stored. Empty if none has any."""
    stored = [job for job in query.stored(protocol.suite) if job.label == label]
    overrides = protocol.profile.overrides
    kept = tuple(word for word in overrides if key_of(word) not in _UNREAD_WITHOUT_CODE)
    tried = [protocol]
    if query.labels and kept != overrides:  # a mixer need not read what was changed, as of a label with code
        tried.append(replace(protocol, profile=protocol.profile.under(kept)))
    for each, jobs in itertools.product(tried, query.versions.ordered(stored).values()):
        with plan_as_stored({label: StoredCode.from_jobs(jobs)}):
            try:
                planned = each.plan([label], seeds).jobs
            except MadbenchError as error:
                if query.labels:
                    raise
                query.warn(f"{label} is left out; {error}")
                return []
        if query.versions.is_begun(planned):
            return [PlannedRow(Row(label), protocol, planned)]
    return []


def _rows_begun(query: Query, rows: Sequence[PlannedRow]) -> list[PlannedRow]:
    """The rows and seeds of which at least one job is stored, and labels that were named; none without any."""
    jobs_with_runs = ((row.name, job) for row in rows for job in row.jobs if job.label in query.stored_labels)
    pairs = {(name, job.seed) for name, job in jobs_with_runs if job.id in query.jobs}
    names, seeds = {name for name, _ in pairs}, {seed for _, seed in pairs}
    begun = []
    for row in rows:
        is_whole = bool(query.labels) and row.name not in names
        jobs = [job for job in row.jobs if (row.name, job.seed) in pairs or (is_whole and job.seed in seeds)]
        if jobs:
            begun.append(replace(row, jobs=jobs))
    return begun
