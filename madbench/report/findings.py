"""The claims as the page shows them: a verdict a row, and everything about a claim below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from madbench.analysis.claims import Claim
from madbench.analysis.findings import Finding
from madbench.analysis.findings_table import FindingsTable
from madbench.analysis.quantities import signed, title
from madbench.report.tables import Cell, runs_link


@dataclass(frozen=True)
class PageVerdict:
    """A claim on one quantity."""

    finding: Finding
    title: str
    numbers: list[str]
    """Published, ours, n."""
    why: str
    quantity: str
    """In words."""
    pairs: list[tuple[Cell, Cell, str]]
    """Two labels, each with a link to its runs, and the gain."""


@dataclass(frozen=True)
class PageClaim:
    """A claim and its verdicts."""

    claim: Claim
    group: str
    """Heading of the group of claims that begins with this one, else empty."""
    verdicts: list[PageVerdict] = field(default_factory=list)


def page_claims(table: FindingsTable) -> list[PageClaim]:
    """The claims of ``table``."""
    _, lines = table.text_rows()
    rows = iter(table.rows)
    claims: list[PageClaim] = []
    group = ""
    for heading, *numbers, verdict, why in lines:
        if not verdict:
            group = heading
            continue
        row = next(rows)
        if group or not claims or claims[-1].claim is not row.claim:
            claims.append(PageClaim(row.claim, group))
            group = ""
        claims[-1].verdicts.append(PageVerdict(row, heading.strip(), numbers, why, title(row.quantity), _pairs(row)))
    return claims


def _pairs(row: Finding) -> list[tuple[Cell, Cell, str]]:
    found = []
    for pair, gain in row.pairs.items():
        given, without = (Cell(label, link=runs_link(label, row.quantity)) for label in pair)
        found.append((given, without, signed(gain, row.quantity)))
    return found


def verdict_counts(claims: Sequence[PageClaim]) -> dict[str, int]:
    """How many verdicts there are of each, the decided ones first."""
    found = [one.finding.verdict for claim in claims for one in claim.verdicts]
    return {verdict: found.count(verdict) for verdict in ("supported", "contradicted", "not enough data")}
