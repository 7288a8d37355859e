"""The findings on one screen, and everything about one of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from madbench.analysis.attribution import left_out_sentences
from madbench.analysis.claims import HYPERMLP, MARGIN_LABELS, MARGIN_SHARE, margin, orientation, published_gain
from madbench.analysis.findings import ASKED_SEEDS, Finding, choice_note
from madbench.analysis.inference import LEAST_SEEDS, LEVEL
from madbench.analysis.marked_text import MINUS
from madbench.analysis.quantities import column, difference_text, heading, p_text, signed, unit
from madbench.analysis.rendering import Listing, without_nan
from madbench.config import seed_list

if TYPE_CHECKING:
    from rich.table import Table

_STYLES = {"supported": "green", "contradicted": "red", "not testable": "dim", "not enough data": "dim"}
_LEAST_WHY = 16  # columns
CHOSEN = "§"
"""The sign beside a verdict from settings that were chosen by the published order of labels."""


class FindingsTable(Listing):
    """Rows of :class:`madbench.analysis.findings.Finding` under the heading of their group."""

    def to_rich(self, width: int, has_styles: bool = True) -> Table:
        """One line a finding; where the terminal is too narrow for it, without the reasons."""
        from rich import box
        from rich.table import Table
        from rich.text import Text

        headings, lines = self.text_rows()
        widths = [max(map(len, column)) for column in zip(headings, *lines)][:-1]
        if sum(widths) + len(widths) - 1 > width:
            return super().to_rich(width, has_styles)
        count = len(headings) - (sum(widths) + len(widths) + _LEAST_WHY > width)
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=0)
        for name in headings[:count]:
            justify = "right" if name in ("Published", "Ours", "n") else "left"
            table.add_column(name, justify=justify, no_wrap=name != "Why")
        for line in lines:
            usual = "" if line[4] else "bold"  # the heading of a group
            table.add_row(*(Text(cell, _STYLES.get(_bare(cell), usual)) for cell in line[:count]))
        return table


def findings_table(rows: list[Finding], protocol: Sequence[str] = (), left_out: int = 0) -> FindingsTable:
    """The table of ``rows``; sentences about the protocols begin its notes, which count the results left out."""
    published = "Published: Table 1, one seed; *: against the claim. " if _are_published(rows) else ""
    caption = (
        f"Gain, more is better: accuracy in points, loss saved in nats per token. {published}"
        "Ours: of the pairs of labels that isolate the claim, with a 95% interval."
    )
    if choice := choice_note(row.chosen_on for row in rows):
        caption += f" {CHOSEN}: {choice}, so the verdict is no evidence for that order."
    headings, lines = ["Claim", "Published", "Ours", "n", "Verdict", "Why"], []
    for last, row in zip([None, *rows], rows):
        if last is None or row.claim.group != last.claim.group:
            where = "the task" if row.claim.group == HYPERMLP.by_task else heading(row.quantity)
            lines.append([f"{row.claim.group}: {where}", "", "", "", "", ""])
        is_same = last is not None and last.claim is row.claim
        title = f"  on {heading(row.quantity)}" if is_same else row.claim.title
        why = "the same" if last is not None and row.missing and row.missing == last.missing else _why(row)
        lines.append([title, _published(row), _ours(row), str(row.n or ""), _verdict(row), why])
    notes = " ".join([*protocol, *_notes(rows, left_out)])
    return FindingsTable(rows, headings, lines, [*map(_record, rows)], caption, notes, "tab:findings", "%s")


def explanation(rows: Sequence[Finding]) -> list[tuple[str, str]]:
    """What there is to know about the claim that ``rows`` are findings of: a heading and a text each."""
    claim = rows[0].claim
    sides = {"gain": "above 0", "no loss": "above minus the margin", "no gain": "below the margin"}
    sides["equal"] = "and a loss, both below the margin"
    if claim.within:
        sides = {key: f"{text} of {claim.within:g}" for key, text in sides.items()}
    if claim.by:
        sides["gain"] = f"above {claim.by:g}"
    if claim.reach:
        sides["gain"] = f"above {claim.reach:.0%} of the published gain"
    expected = {heading(row.quantity): sides[claim.expectation(row.quantity)] for row in rows}
    texts = set(expected.values())
    side = texts.pop() if len(texts) == 1 else "; ".join(f"on {name} {text}" for name, text in expected.items())
    differing = f"; the labels of a pair differ in {', '.join(claim.factors)}" if claim.factors else ""
    lines = [
        ("claim", f"{claim.sentence or claim.title}{claim.source and f' ({claim.source})'}"),
        *([("theory", claim.theory)] if claim.theory else []),
        ("test", f"a gain {side}{differing}"),
    ]
    if claim.rivals:
        lines.append(("rivals", f"{', '.join(claim.rivals)}; shown is the gain over the next largest of them"))
    if claim.judges == "every pair":
        lines.append(("pairs", "every one has to hold; shown is the smallest gain"))
    for row in rows:
        lines.append((heading(row.quantity), f"{_with_choice(row)}. {row.reason}"))
        published = _published(row)
        lines.append(("", f"{published and f'published {published}; '}ours {_interval(row)}"))
        for case, pair in enumerate(claim.pairs):
            ours = signed(row.pairs[pair], row.quantity) if pair in row.pairs else "not counted"
            gain = "" if claim.rivals else _signed(published_gain(claim, row.quantity, [case]), row.quantity)
            lines.append(("", f"{pair[0]} {MINUS} {pair[1]}: {gain and f'published {gain}, '}ours {ours}"))
        if row.command:
            lines.append(("", row.command))
    return [*lines, ("note", claim.note)] if claim.note else lines


def _verdict(row: Finding) -> str:
    """The verdict of a table's line, with a sign if the settings were chosen, and with its marks in brackets."""
    sign = f" {CHOSEN}" if row.chosen_on else ""
    return row.verdict_text.replace(row.verdict, f"{row.verdict}{sign}", 1)


def _bare(cell: str) -> str:
    """A cell without sign and marks."""
    return cell.partition(" (")[0].removesuffix(f" {CHOSEN}")


def _with_choice(row: Finding) -> str:
    return f"{row.verdict_text} ({row.choice_note})" if row.choice_note else row.verdict_text


def _why(row: Finding) -> str:
    """The reason in a few words."""
    if row.missing:
        return f"needs {' '.join(row.missing) if len(row.missing) <= 2 else f'{len(row.missing)} labels'}"
    if math.isnan(row.p):
        return row.detail
    at_line = "at the line" if row.is_at_line else ""
    return ", ".join(filter(None, [f"p {p_text(row.p_holm)}", at_line, row.detail]))


def _are_published(rows: Sequence[Finding]) -> bool:
    """Whether one of the claims is about numbers of the paper's table; so it is without any."""
    return not rows or any(not math.isnan(row.published) for row in rows)


def _signed(value: float, quantity: str) -> str:
    return "" if math.isnan(value) else signed(value, quantity)


def _published(row: Finding) -> str:
    text = _signed(row.published, row.quantity)
    return f"{text}*" if text and not row.published_agrees else text


def _ours(row: Finding) -> str:
    """``+12.3 ±4.1``; in brackets where there is no interval."""
    return difference_text(row.ours, row.quantity) if row.ours else ""


def _interval(row: Finding) -> str:
    if row.ours is None or math.isnan(row.ours.low):
        return _ours(row) or "none"
    ours, low, high = (signed(value, row.quantity) for value in (row.ours.estimate, row.ours.low, row.ours.high))
    over = f" ({row.gain_name})" if row.gain_name else ""
    return f"{ours}{over}, 95% interval [{low}, {high}], n {row.n}"


def _notes(rows: Sequence[Finding], left_out: int) -> list[str]:
    """How the rows are to be read, and what would give more of them a verdict."""
    has_losses = any(orientation(row.quantity) < 0 for row in rows)
    margins = " or ".join(map(_margin, (name for name in HYPERMLP.quantities if orientation(name) > 0 or has_losses)))
    tested = max((row.tested for row in rows), default=0)
    lines = "0, or of what the claim asks for beside it: --explain NAME."
    if not rows or any(row.claim.uses_published_gains for row in rows):
        lines = (
            "0; for 'large' and 'collapse' of half of the published gain, for 'not essential' of minus, for 'hardly' of"
            f" plus the margin: {margins}, {MARGIN_SHARE:.0%} of what {' gains over '.join(MARGIN_LABELS)} in Table 1."
        )
    scaled = next((row for row in rows if not math.isnan(row.published_line)), None)
    scaling = (
        "Shares of published accuracies are shares of the way from a heuristic to the ceiling, times"
        f" {scaled.line / scaled.published_line:.2f} on {heading(scaled.quantity)} here: --unscaled leaves them in the"
        " paper's points."
        if scaled
        else ""
    )
    return [
        *filter(None, [scaling]),
        "Ours: mean over seeds and pairs; ±: half of the 95% interval over seeds, [low, high] where some seeds solve"
        " the task; in brackets: no interval.",
        f"Verdict: p of at most {LEVEL} after Holm over {tested} tests that the gain is on this side of {lines}",
        "Not testable: neither label has learned the task, or both solve it. No verdict of fewer than "
        f"{LEAST_SEEDS} seeds.",
        *left_out_sentences(left_out),
        f"--explain NAME: {', '.join(dict.fromkeys(row.claim.name for row in rows))}.",
        *(f"What is not stored: {command}" for command in open_commands(rows)),
    ]


def _margin(quantity: str) -> str:
    """``3.6 points``; of a loss, that it is the published one's."""
    text = f"{margin(quantity):.{column(quantity).digits}f} {unit(quantity).replace('_', ' ')}"
    return text if orientation(quantity) > 0 else f"{text} of the paper's loss, in proportion to the stored one"


def open_commands(rows: Sequence[Finding]) -> list[str]:
    """One command a suite for all of ``rows`` that have too few seeds, or one for both where that trains both."""
    commands: dict[str, str] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        if small := [row for row in rows if row.n < LEAST_SEEDS and row.suite == suite]:
            labels = dict.fromkeys(label for row in small for label in row.labels)
            tasks = min((row.task_words for row in small), key=len)
            words = [*labels, "--seeds", seed_list(range(ASKED_SEEDS)), *tasks, small[0].options]
            command = " ".join(filter(None, ["madbench", "run", *words]))
            commands.setdefault(command, command)
    return list(commands.values())


def _record(row: Finding) -> dict[str, Any]:
    claim = row.claim
    identity = {"name": claim.name, "title": claim.title, "group": claim.group, "claim": claim.sentence}
    identity |= {"source": claim.source, "factors": " ".join(claim.factors), "quantity": row.quantity}
    identity |= {"unit": unit(row.quantity), "expects": claim.expectation(row.quantity)}
    names = (
        "line",
        "published_line",
        "published",
        "p",
        "p_holm",
        "published_agrees",
        "n",
        "verdict",
        "detail",
        "reason",
    )
    numbers = {name: getattr(row, name) for name in names}
    ours = {name: getattr(row.ours, name, math.nan) for name in ("estimate", "low", "high")}
    rounded = {name: round(x, 9) if isinstance(x, float) else x for name, x in {**ours, **numbers}.items()}
    pairs = ", ".join(f"{label} - {without}" for label, without in row.pairs)
    rounded["verdict"] = row.verdict_text
    rest = {"verdict_note": row.choice_note, "pairs": pairs}
    rest |= {"command": row.command, "theory": claim.theory, "note": claim.note}
    return identity | without_nan(rounded) | rest
