"""Tests of the claims of a paper on stored runs: one family of tests for all items and for ``madbench findings``.

Holm's correction depends on the claims that are tested together. So all claims of the paper are tested on all stored
runs of a protocol, and an item shows the findings on its own claims.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from madbench.errors import MadbenchError
from madbench.papers.making import Request

if TYPE_CHECKING:
    from madbench.analysis.claims import Claim
    from madbench.analysis.findings import Finding
    from madbench.analysis.scores import Results
    from madbench.analysis.selection import Selection


def judge_claims(results: Results, claims: Sequence[Claim]) -> tuple[dict[str, str], dict[str, str]]:
    """The verdicts on claims, and the reasons for them, each as statement to text.

    There is one statement per claim and quantity. All claims are tested together, so that their p-values are corrected
    for all of them.
    """
    from madbench.analysis.findings import findings

    return _lines(findings(results.scores, claims=claims))


def judge_item(request: Request, results: Results) -> tuple[dict[str, str], dict[str, str], str]:
    """The verdicts on an item's claims, the reasons for them, and the command that prints the same findings.

    Verdicts and reasons are mappings from statement to text. All claims of the paper are tested together on all stored
    runs of the protocol. If no protocol has all runs of the item, the claims are tested on the item's runs alone, and
    the command is empty. All three results are empty if the item names no claims.
    """
    from madbench.analysis.claims import load_claims
    from madbench.analysis.findings import findings
    from madbench.analysis.quantities import with_averages

    item = request.item
    if not item.claims:
        return {}, {}, ""
    assert request.paper.claims_file is not None  # checked when the paper is loaded
    claims, trained_ids = load_claims(request.paper.claims_file), _job_ids(results)
    quantities = with_averages(results.scores.column)
    for words, selection in _selections(request, results):
        with suppress(MadbenchError):  # the suite is not stored, or the protocol is ambiguous
            rows, _ = selection.available()
            shown = selection.results_of(rows)
            if trained_ids and trained_ids <= _job_ids(shown):
                family = findings(shown.scores, claims=claims)
                lines = [row for row in family if row.claim.name in item.claims and row.quantity in quantities]
                if lines:
                    command = ["madbench", "findings", "--claims", request.paper.name, *words]
                    return *_lines(lines), shlex.join(command)
    lines = [row for row in findings(results.scores, claims=claims) if row.claim.name in item.claims]
    return *_lines(lines), ""


def _lines(rows: Iterable[Finding]) -> tuple[dict[str, str], dict[str, str]]:
    from madbench.analysis.quantities import difference_text

    verdicts: dict[str, str] = {}
    remarks: dict[str, str] = {}
    for row in rows:
        statement = f"{row.claim.title}, {row.quantity}"
        gain = f"{difference_text(row.ours, row.quantity)}. " if row.ours else ""
        verdicts[statement], remarks[statement] = row.verdict, gain + row.reason
    return verdicts, remarks


def _selections(request: Request, results: Results) -> Iterator[tuple[list[str], Selection]]:
    """Yield two selections of stored runs in which an item's runs may be, each as (words, selection).

    The first is the default selection of ``madbench findings``. The second has the profile, tasks, changes and budget
    with which the item was made. ``words`` are the arguments with which ``madbench findings`` makes the selection.
    """
    from madbench.analysis.selection import Selection

    grid = results.grid
    yield [], Selection(results=request.results)
    words = [*(["-t", ",".join(grid.tasks)] if grid.tasks else []), "-p", grid.profile, *map(str, grid.overrides)]
    words += [] if grid.budget == "strict" else ["--budget", grid.budget]
    yield (
        words,
        Selection(
            results=request.results,
            profile=grid.profile,
            tasks=grid.tasks,
            overrides=grid.overrides,
            budget=grid.budget,
        ),
    )


def _job_ids(results: Results) -> set[str]:
    """The ids of the jobs that have a result."""
    return {run.job.id for suite in results.suites_with_result for run in results.runs(suite)}
