"""The leaderboard: the runs of several archives, with one table per protocol."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from madbench.analysis.cells import Shows
from madbench.analysis.scores import Results
from madbench.analysis.selection import Selection
from madbench.analysis.tables import TableOptions, result_table
from madbench.errors import ConfigError, MadbenchError, StoreError
from madbench.files import file_digest
from madbench.jobs import Job
from madbench.report.rendering import render
from madbench.report.tables import Heading, PageCell, PageTable, RowGroup, result_page_table
from madbench.store.archive import SUFFIX, unpack
from madbench.store.runs import Run, Snapshot, Store
from madbench.suites import Suite, suites
from madbench.suites.protocol import Protocol, by_protocol, protocol_id, rate_changes


class ProtocolTable(NamedTuple):
    """The table of one protocol."""

    heading: str
    table: PageTable


@dataclass(frozen=True)
class Leaderboard:
    """The content of a leaderboard."""

    boards: list[ProtocolTable]
    archives: list[tuple[str, str]]
    """The name of each archive, and a text with its number of runs and its digest."""
    left_out: list[str]
    """One line per part that is not shown."""

    def render(self, command: str, written: str) -> bytes:
        """The HTML (:func:`madbench.report.rendering.render`)."""
        sections = [(board.table.id, ", ".join(board.heading.split(", ")[:2])) for board in self.boards]
        content = {"boards": self.boards, "archives": self.archives, "left_out": self.left_out, "data": "{}"}
        content |= {"sections": [*sections, ("archives", "Archives")]}
        content["lead"] = ", ".join(name for name, _ in self.archives)
        return render("leaderboard.html.j2", content, command, written)


def leaderboard(
    archives: Sequence[Path], work: Path, shows: Shows = "interval", profile: str | None = None
) -> Leaderboard:
    """The leaderboard of ``archives``, which are unpacked into the empty folder ``work``.

    If several archives have the same run with the same numbers, it counts once and belongs to all of them. If the
    numbers differ, those of the first archive are used. ``profile`` is the profile for runs that follow no shipped
    profile. Raises ``ConfigError`` for two archives with the same name, and ``StoreError`` if no run can be shown.
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
    snapshot, boards = Snapshot.open(work, create=False), list[ProtocolTable]()
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
    """The runs whose protocol is known here, and one line per reason for other runs, such as an unknown task."""
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
    suite: Suite, protocol: str, jobs: Sequence[Job], store: Store, profile: str | None, warn: Callable[[str], None]
) -> Results:
    """The results of the ``jobs`` of a protocol, under the shipped profile that trained them.

    If no shipped profile trained them, the results are those under ``profile``. Raises ``MadbenchError`` if ``profile``
    is then None, and ``StoreError`` if none of the jobs follows it.
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
    """The table of a protocol. Empty if none of its runs has a result."""
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
    """The cell without its link, as this page has no runs."""
    return replace(cell, link="")


def _sources(results: Results, owners: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """The archives of each row, by the name of the row."""
    return {row.name: ", ".join(_in_order(owners, (job.id for job in row.jobs))) for row in results.rows}


def _in_order(owners: Mapping[str, Sequence[str]], ids: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(name for job_id in ids for name in owners.get(job_id, ())))


def _heading(protocol: Protocol) -> str:
    fidelity = f", {protocol.fidelity}" if len(protocol.suite.fidelities) > 1 else ""
    corpus = f", corpus {protocol.corpus.name}" if protocol.corpus else ""
    terms = f"{protocol.profile.noun} {protocol.name}{fidelity}{corpus}"
    return f"{protocol.suite.title}, {terms}, {protocol.precision}, budget {protocol.budget}"
