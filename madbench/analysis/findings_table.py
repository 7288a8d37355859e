"""The findings on one screen, and everything about one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from madbench.analysis.attribution_table import left_out_sentences
from madbench.analysis.claim_tests import MARGIN_SHARE, MOST_SEEDS, margin, published_gain
from madbench.analysis.claims import PREDICTIONS
from madbench.analysis.findings import Finding, p_text
from madbench.analysis.quantities import LOSS, MAD_AVERAGE, heading, signed, unit, with_interval
from madbench.analysis.rendering import TextTable, known
from madbench.analysis.statistics import LEVEL
from madbench.config import seed_list

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"supported": "green", "contradicted": "red", "not enough data": "dim"}
_LEAST_WHY = 16  # columns


@dataclass(frozen=True)
class FindingsTable(TextTable):
    """Rows of :class:`madbench.analysis.findings.Finding` under the heading of their group."""

    rows: list[Finding]
    caption: str
    latex_name: ClassVar[str] = "%s"

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = []
        for last, row in zip([None, *self.rows], self.rows):
            if last is None or row.claim.group != last.claim.group:
                where = "the task" if row.claim.group == PREDICTIONS else heading(row.quantity)
                lines.append([f"{row.claim.group}: {where}", "", "", "", "", ""])
            is_same = last is not None and last.claim is row.claim
            title = f"  on {heading(row.quantity)}" if is_same else row.claim.title
            why = "the same" if last is not None and row.missing and row.missing == last.missing else _why(row)
            lines.append([title, _published(row), _ours(row), str(row.n or ""), row.verdict, why])
        return ["Claim", "Published", "Ours", "n", "Verdict", "Why"], lines

    def to_rich(self, width: int, has_styles: bool = True) -> Table:
        """One line a finding; where the terminal is too narrow for it, without the reasons."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        headings, lines = self.text_rows()
        widths = [max(map(len, column)) for column in zip(headings, *lines)][:-1]
        if sum(widths) + len(widths) - 1 > width:
            return super().to_rich(width, has_styles)
        shown = len(headings) - (sum(widths) + len(widths) + _LEAST_WHY > width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0))
        for name in headings[:shown]:
            justify = "right" if name in ("Published", "Ours", "n") else "left"
            table.add_column(name, justify=justify, no_wrap=name != "Why")
        for line in lines:
            usual = "" if line[4] else "bold"  # the heading of a group
            table.add_row(*(Text(cell, _STYLES.get(cell, usual)) for cell in line[:shown]))
        return table

    def records(self) -> list[dict[str, Any]]:
        return [_record(row) for row in self.rows]


def findings_table(rows: list[Finding], protocol: Sequence[str] = (), left_out: int = 0) -> FindingsTable:
    """The table of ``rows``; sentences about the protocols begin its caption, and it says how many results are left out."""
    return FindingsTable(rows, " ".join([*protocol, *_sentences(rows, left_out)]))


def explanation(rows: Sequence[Finding]) -> list[tuple[str, str]]:
    """All about the claim that ``rows`` are findings of: a heading and a text each."""
    claim = rows[0].claim
    side = {"gain": "above 0", "no loss": "above minus the margin", "no gain": "below the margin"}[claim.expects]
    lines = [
        ("claim", f"{claim.sentence} ({claim.source})"),
        ("theory", claim.theory),
        ("test", f"a gain {side}; the labels of a pair differ in {', '.join(claim.factors)}"),
    ]
    if claim.rivals:
        lines.append(("rivals", f"{', '.join(claim.rivals)}; shown is the gain over the next largest of them"))
    for row in rows:
        lines.append((heading(row.quantity), f"{row.verdict}. {row.reason}"))
        lines.append(("", f"published {_published(row)}; ours {_interval(row)}"))
        for case, pair in enumerate(claim.pairs):
            ours = signed(row.pairs[pair], row.quantity) if pair in row.pairs else "not counted"
            gain = "" if claim.rivals else signed(published_gain(claim, row.quantity, [case]), row.quantity)
            lines.append(("", f"{pair[0]} - {pair[1]}: {gain and f'published {gain}, '}ours {ours}"))
        if row.command:
            lines.append(("", row.command))
    return [*lines, ("note", claim.note)] if claim.note else lines


def _why(row: Finding) -> str:
    """The reason in a few words."""
    if row.missing:
        return f"needs {' '.join(row.missing) if len(row.missing) <= 2 else f'{len(row.missing)} labels'}"
    if row.n < 2:
        return "single seed" if row.n else "no seed in common"
    p = p_text(row.p_holm)
    if row.verdict != "not enough data":
        return p
    return f"{p}, solved anyway" if row.solved else f"{p}, needs n {len(row.seeds) or f'>{MOST_SEEDS}'}"


def _published(row: Finding) -> str:
    return signed(row.published, row.quantity) + ("" if row.published_agrees else "*")


def _ours(row: Finding) -> str:
    """``+12.3 ±4.1``; in brackets where there is no interval."""
    return "" if math.isnan(row.ours) else with_interval(row.ours, row.high, row.quantity)


def _interval(row: Finding) -> str:
    if math.isnan(row.low):
        return _ours(row) or "none"
    ours, low, high = (signed(value, row.quantity) for value in (row.ours, row.low, row.high))
    over = f" over {row.rival}" if row.rival else ""
    return f"{ours}{over}, 95% interval [{low}, {high}], n {row.n}"


def _sentences(rows: Sequence[Finding], left_out: int) -> list[str]:
    """How the rows are to be read, and what would give more of them a verdict."""
    of_tasks = ("accuracy in points", f"{margin(MAD_AVERAGE):.1f} points")
    of_losses = ("L5 saved in nats per token", f"{margin(LOSS):.3f} nats")
    units = sorted({of_losses if row.quantity == LOSS else of_tasks for row in rows}, reverse=True)
    has_brackets = any(math.isnan(row.low) and row.n for row in rows)
    return [
        f"Gain, more is better: {', '.join(unit for unit, _ in units)}. Published: Table 1, one seed; *: against the"
        " claim. Ours: mean over seeds and the pairs of labels that isolate the claim; ±: half of the 95% interval over"
        " seeds (Student's t), of this row and these labels alone.",
        *(["In brackets: single seed; excluded from tests."] if has_brackets else []),
        f"Verdict: p of at most {LEVEL} after Holm over {max((row.tested for row in rows), default=0)} tests that the"
        f" gain is on this side of 0; for 'not essential' of minus {' or '.join(one for _, one in units)}, for 'hardly' of plus as much:"
        f" {MARGIN_SHARE:.0%} of what mixing gains from R-cg-q to R-cg-q-12o in Table 1.",
        *left_out_sentences(left_out),
        f"--explain NAME: {', '.join(dict.fromkeys(row.claim.name for row in rows))}.",
        *(f"What is not stored: {command}" for command in open_commands(rows)),
    ]


def open_commands(rows: Sequence[Finding]) -> list[str]:
    """One command a suite for all of ``rows`` that have no two seeds, or one for both where that trains both."""
    commands: dict[str, str] = {}
    for verb in ("run", "lm"):
        if found := [row for row in rows if row.n < 2 and row.verb == verb]:
            labels = dict.fromkeys(label for row in found for label in row.labels)
            seeds = seed_list({seed for row in found for seed in row.seeds})
            words = " ".join(filter(None, [*labels, "--seeds", seeds, found[0].options]))
            commands.setdefault(words, f"madbench {verb} {words}")
    return list(commands.values())


def _record(row: Finding) -> dict[str, Any]:
    claim = row.claim
    about = {"name": claim.name, "title": claim.title, "group": claim.group, "claim": claim.sentence}
    about |= {"source": claim.source, "factors": " ".join(claim.factors), "quantity": row.quantity}
    about |= {"unit": unit(row.quantity), "expects": claim.expects}
    names = ("line", "published", "ours", "low", "high", "p", "p_holm", "published_agrees", "n", "verdict", "reason")
    found = {name: getattr(row, name) for name in names}
    found = {name: round(value, 9) if isinstance(value, float) else value for name, value in found.items()}
    pairs = ", ".join(f"{given} - {without}" for given, without in row.pairs)
    rest = {"pairs": pairs, "command": row.command, "theory": claim.theory, "note": claim.note}
    return about | known(found) | rest
