"""The leaderboard: the runs of several archives, with one table per protocol."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from madbench.analysis.marked_text import Shows
from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.analysis.tables import TableOptions, result_table
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.files import file_digest
from madbench.jobs import Job
from madbench.report.rendering import render
from madbench.report.tables import Heading, PageCell, PageTable, RowGroup, result_page_table
from madbench.store.archive import SUFFIX, unpack
from madbench.store.reading import Run, Snapshot, StoredRuns
from madbench.store.runs import Store
from madbench.suites import Suite, suites
from madbench.suites.protocol import Protocol, by_protocol, protocol_id, rate_changes


class ProtocolTable(NamedTuple):
    """The table of one protocol on a leaderboard, with its heading."""

    heading: str
    table: PageTable


@dataclass(frozen=True)
class Leaderboard:
    """The content of the page of a leaderboard."""

    boards: list[ProtocolTable]
    archives: list[tuple[str, str]]
    """One pair per archive: its name, and a text with its number of runs and its digest."""
    left_out: list[str]
    """One sentence per group of runs that are not shown, such as those of a family that is not installed."""

    def render(self, command: str, written: str) -> bytes:
        """The HTML file, with the ``command`` that wrote it and the date ``written``.

        It needs no other file and no network.
        """
        sections = [(board.table.id, ", ".join(board.heading.split(", ")[:2])) for board in self.boards]
        content = {"boards": self.boards, "archives": self.archives, "left_out": self.left_out, "data": "{}"}
        content |= {"sections": [*sections, ("archives", "Archives")]}
        content["lead"] = ", ".join(name for name, _ in self.archives)
        return render("leaderboard.html.j2", content, command, written)


def leaderboard(
    archives: Sequence[Path], work: Path, shows: Shows = "interval", profile: str | None = None
) -> Leaderboard:
    """The leaderboard of the runs in ``archives``, with one table per protocol.

    If several archives have the same run with the same numbers, it counts once and belongs to all of them. If the
    numbers differ, those of the first archive are used. Raises ``ConfigError`` for two archives with the same name, and
    ``StoreError`` if no run can be shown.

    Args:
        archives: the archive files. Earlier ones have precedence.
        work: an empty folder, into which the archives are unpacked.
        shows: the content of a cell.
        profile: the name or the YAML file of a profile, for runs that no shipped profile trains. If None, such runs are
            left out.
    """
    names = [path.name.removesuffix(SUFFIX) for path in archives]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"two archives are called {min(twice)!r}; rename one, as rows are marked by it")
    store, owners, descriptions, left_out = Store.open(work), dict[str, list[str]](), [], list[str]()
    for name, path in zip(names, archives):
        report = unpack(path, store)
        for job_id in (*report.added, *report.already_stored):
            owners.setdefault(job_id, []).append(name)
        count = len(report.added) + len(report.already_stored) + len(report.conflicts)
        descriptions.append((name, f"{count:,} runs, SHA-256 {file_digest(path)}"))
        if report.conflicts:
            first = ", ".join(dict.fromkeys(owner for job_id in report.conflicts for owner in owners[job_id]))
            left_out.append(
                f"{len(report.conflicts):,} runs of {name} have other numbers than in {first}, which counts."
            )
        left_out += report.problems
    snapshot, boards = Snapshot.open(work), list[ProtocolTable]()
    for suite in suites().values():
        known_runs, unreadable = _known_runs(suite, snapshot.runs(with_curves=False, suite=suite.name))
        left_out += unreadable
        for protocol, runs in by_protocol(suite, known_runs, lambda run: run.job).items():
            try:
                results = _results(suite, protocol, [run.job for run in runs], snapshot, profile, left_out.append)
                boards += _boards(protocol, results, owners, shows)
            except MadbenchError as error:  # for example of a family that is not installed
                left_out.append(f"{suite.title}: protocol {protocol} is left out; {error}")
    if not boards:
        raise StoreError("\n".join(["no run of these archives can be shown", *left_out]))
    return Leaderboard(boards, descriptions, list(dict.fromkeys(line.replace(f"{work}: ", "") for line in left_out)))


def _known_runs(suite: Suite, runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """Return the runs whose protocol is known, and one line per reason why other runs are left out.

    A reason is, for example, a task that is not installed.
    """
    known_runs, reasons = [], Counter[str]()
    for run in runs:
        try:
            protocol_id(suite, run.job)
        except MadbenchError as error:
            reasons[str(error)] += 1
        else:
            known_runs.append(run)
    runs_text = {count: f"{count:,} run{'s' if count > 1 else ''}" for count in reasons.values()}
    return known_runs, [f"{suite.title}: {runs_text[count]} left out; {reason}" for reason, count in reasons.items()]


def _results(
    suite: Suite,
    protocol: str,
    jobs: Sequence[Job],
    store: StoredRuns,
    profile: str | None,
    warn: Callable[[str], None],
) -> Results:
    """The results of ``jobs``, the stored jobs of one protocol, under the shipped profile that trained them.

    If no shipped profile trained them, ``profile`` must be the one that did. Raises ``MadbenchError`` if it is None,
    and ``StoreError`` if it would train none of the jobs.

    Args:
        suite: the suite of the jobs.
        protocol: the id of the protocol.
        jobs: the jobs.
        store: the store of the runs.
        profile: the name or the YAML file of a profile, or None.
        warn: called with a sentence for everything that is left out.
    """
    task_names = {job.task for job in jobs}
    tasks = [f"{suite.name}/{task}" for task in suite.tasks() if task in task_names]
    shared_choices: dict[str, Any] = {"tasks": tasks, "results": store.root, "given_store": store, "warn": warn}
    try:
        return Selection(protocol=protocol, budget=None, **shared_choices).select()
    except MadbenchError:  # the runs follow no shipped profile
        if profile is None:
            raise
    changes = rate_changes(jobs, suite.Profile.load(profile))
    results = Selection(
        profile=profile, overrides=changes, fidelity=jobs[0].fidelity, budget=jobs[0].budget, **shared_choices
    ).select()
    planned_ids = {job.id for row in results.rows for job in row.jobs}
    if not planned_ids & {job.id for job in jobs}:
        raise StoreError(f"its {len(jobs):,} runs do not follow {Path(profile).name}")
    return results


def _boards(protocol: str, results: Results, owners: Mapping[str, Sequence[str]], shows: Shows) -> list[ProtocolTable]:
    """A list with the only table of a protocol. Empty if no run of the protocol has a result.

    The last column of the table names the archives of each row. ``owners`` has the names of the archives that have a
    run, by the id of its job.
    """
    table = result_table(results, TableOptions(shows=shows))
    if table is None:
        return []
    page_table = result_page_table(table)
    sources = _sources(results, owners)
    groups = [
        RowGroup([[*map(_plain, group.rows[0]), PageCell(sources.get(group.label, ""))], *group.rows[1:]], group.label)
        for group in page_table.groups
    ]
    terms = results.rows[0].protocol
    name = f"board-{hashlib.sha256(protocol.encode()).hexdigest()[:12]}"
    headings = [*page_table.headings, Heading("From")]
    return [ProtocolTable(_heading(terms), PageTable(name, f"Protocol {protocol}", page_table.note, headings, groups))]


def _plain(cell: PageCell) -> PageCell:
    """A copy of ``cell`` without its link, because the page of a leaderboard has no list of runs."""
    return replace(cell, link="")


def _sources(results: Results, owners: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The names of the archives that have runs of a row, as text, by the name of the row."""
    return {row.name: ", ".join(_in_order(owners, (job.id for job in row.jobs))) for row in results.rows}


def _in_order(owners: Mapping[str, Sequence[str]], ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for job_id in ids for name in owners.get(job_id, ())))


def _heading(protocol: Protocol) -> str:
    fidelity = f", {protocol.fidelity}" if len(protocol.suite.fidelities) > 1 else ""
    corpus = f", corpus {protocol.corpus.name}" if protocol.corpus else ""
    terms = f"{protocol.profile.noun} {protocol.name}{fidelity}{corpus}"
    return f"{protocol.suite.title}, {terms}, {protocol.precision}, budget {protocol.budget}"
