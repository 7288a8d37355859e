"""The claims as the page shows them: a verdict a row, and everything about a claim below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from madbench.analysis.findings import Finding
from madbench.analysis.findings_table import FindingsTable
from madbench.analysis.quantities import LOSS
from madbench.language_jobs import TASK as LANGUAGE_MODEL
from madbench.report.tables import Cell, runs_link


@dataclass(frozen=True)
class PageVerdict:
    """A claim on one quantity."""

    title: str
    texts: list[str]
    """Published, ours, n."""
    verdict: str
    why: str
    quantity: str
    """In words."""
    reason: str
    pairs: list[tuple[Cell, Cell, str]]
    """Two labels, each with a link to its runs, and the gain."""
    command: str


@dataclass(frozen=True)
class PageClaim:
    """A claim and its verdicts; ``group`` is given where a new group begins."""

    finding: Finding
    group: str
    verdicts: list[PageVerdict] = field(default_factory=list)


def page_claims(table: FindingsTable, titles: dict[str, str]) -> list[PageClaim]:
    """The claims of ``table``; ``titles`` are the names of quantities."""
    _, lines = table.text_rows()
    rows = iter(table.rows)
    claims: list[PageClaim] = []
    group = ""
    for title, published, ours, n, verdict, why in lines:
        if not verdict:
            group = title
            continue
        row = next(rows)
        if not claims or claims[-1].finding.name != row.name or group:
            claims.append(PageClaim(row, group))
            group = ""
        command = row.command
        verdicts = claims[-1].verdicts
        pairs = _pairs(row)
        quantity = titles[row.quantity]
        verdicts.append(
            PageVerdict(title.strip(), [published, ours, n], verdict, why, quantity, row.reason, pairs, command)
        )
    return claims


def _pairs(row: Finding) -> list[tuple[Cell, Cell, str]]:
    column = LANGUAGE_MODEL if row.quantity == LOSS else row.quantity
    digits = 3 if row.quantity == LOSS else 1
    return [
        (
            Cell(given, link=runs_link(given, column)),
            Cell(without, link=runs_link(without, column)),
            f"{gain:+.{digits}f}",
        )
        for (given, without), gain in row.pairs.items()
    ]


def counts(claims: Sequence[PageClaim]) -> dict[str, int]:
    """How many verdicts are of each kind, the decided ones first."""
    found = [verdict.verdict for claim in claims for verdict in claim.verdicts]
    return {verdict: found.count(verdict) for verdict in ("supported", "contradicted", "not enough data")}
