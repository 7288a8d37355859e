"""The table of findings on claims (:mod:`madbench.analysis.findings`), and the explanation of one claim."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from madbench.analysis.attribution import left_out_sentences
from madbench.analysis.claims.thresholds import published_gain
from madbench.analysis.findings import ADVISED_SEEDS, Finding, choice_note
from madbench.analysis.inference import LEVEL
from madbench.analysis.marked_text import MINUS
from madbench.analysis.quantities import (
    averages_of,
    column,
    difference_text,
    differences_text,
    heading,
    p_text,
    signed_text,
    unit,
)
from madbench.analysis.references import Reference, gain_sign
from madbench.analysis.rendering import Listing, without_nan
from madbench.config import seed_list
from madbench.labels.names import display_name, typed_label
from madbench.suites.planning import LEAST_SEEDS

if TYPE_CHECKING:
    from rich.console import RenderableType

_STYLES = {"supported": "green", "contradicted": "red"}
_STYLES |= dict.fromkeys(("not decided", "not testable", "not enough data"), "dim")
_LEAST_WHY = 16  # smallest width of the column of reasons, in characters
CHOSEN = "§"
"""The sign of a verdict if the settings of the runs were chosen by the published order of labels."""


class FindingsTable(Listing):
    """A table with one row per :class:`madbench.analysis.findings.Finding`, below headings for papers and groups.

    A group has the claims with the same ``Claim.group``.
    """

    def to_rich(self, width: int, has_styles: bool = True) -> RenderableType:
        """The table for a terminal of ``width`` columns, with one line per finding.

        The column of reasons is left out if the terminal is too narrow. On a very narrow terminal a finding has several
        lines.
        """
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
            justify: Literal["left", "right"] = "right" if name in ("Published", "Ours", "n") else "left"
            table.add_column(name, justify=justify, no_wrap=name != "Why")
        for line in lines:
            usual = "" if line[4] else "bold"  # the heading of a group
            table.add_row(*(Text(cell, _STYLES.get(_bare(cell), usual)) for cell in line[:count]))
        return table


def findings_table(rows: Sequence[Finding], protocol: Sequence[str] = (), left_out: int = 0) -> FindingsTable:
    """The table of findings, one row per finding.

    If all findings with marks have the same marks, the marks are in the caption and not in the cells.

    Args:
        rows: the findings, sorted by paper and then by the group of the claim.
        protocol: sentences about the protocols of the runs, which begin the notes.
        left_out: the number of unfinished results that are left out, for the notes.
    """
    papers, marks = dict.fromkeys(row.paper for row in rows), dict.fromkeys(row.marks for row in rows if row.marks)
    shared = next(iter(marks)) if len(marks) == 1 else ()
    headings, lines = ["Claim", "Published", "Ours", "n", "Verdict", "Why"], []
    for last, row in zip([None, *rows], rows):
        is_new_paper = last is None or row.paper != last.paper
        if is_new_paper and len(papers) > 1:
            lines.append([f"Paper {row.paper}", "", "", "", "", ""])
        if last is None or is_new_paper or row.claim.group != last.claim.group:
            where = "the task" if _is_by_task(row, rows) else heading(row.quantity)
            lines.append([f"{row.claim.group}: {where}", "", "", "", "", ""])
        is_same = last is not None and last.claim is row.claim
        title = f"  on {heading(row.quantity)}" if is_same else row.claim.title
        reason = "the same" if last is not None and row.missing and row.missing == last.missing else _reason(row)
        lines.append(
            [title, _published_text(row), _ours(row), str(row.n or ""), _verdict(row, row.marks == shared), reason]
        )
    units = differences_text(row.quantity for row in rows) or "points"
    caption = (
        f"Gains in {units}; more is better. {_published_caption(rows)}"
        "Ours: mean over the pairs of labels that isolate the claim, with its 95% interval."
    )
    if any(row.ours for row in rows):
        caption += " n: seeds of the label in these pairs that has the fewest."
    if any(0 < len(row.pairs) < len(row.claim.pairs) and not math.isnan(row.published) for row in rows):
        caption += " If only some pairs of a claim have enough runs, Published and Ours are of these pairs alone."
    if shared:
        subject = "All verdicts" if all(row.marks for row in rows) else "All verdicts on registered claims"
        caption = f"{subject}: {', '.join(shared)}. {caption}"
    if note := choice_note(row.chosen_on for row in rows):  # cells have this sign, so the caption explains it
        caption += f" {CHOSEN}: {note}."
    notes = " ".join([*protocol, *_notes(rows, left_out)])
    return FindingsTable(list(rows), headings, lines, [*map(_json_row, rows)], caption, notes, "tab:findings", "%s")


def _is_by_task(row: Finding, rows: Sequence[Finding]) -> bool:
    """True if each claim in the group of ``row`` is about a single column, and these columns differ.

    Then the heading of the group names no column. ``rows`` has all findings of the table.
    """
    group = row.paper, row.claim.group
    columns = {other.claim.quantities for other in rows if (other.paper, other.claim.group) == group}
    return len(columns) > 1 and all(len(names) == 1 for names in columns)


def _published_caption(rows: Sequence[Finding]) -> str:
    """The sentence that explains the column of published gains. Empty if there are no published gains."""
    titles = dict.fromkeys(
        row.claim.reference.title for row in rows if not math.isnan(row.published) and row.claim.reference.title
    )
    return f"Published: {'; '.join(titles)}; *: against the claim. " if titles else ""


def explanation(rows: Sequence[Finding]) -> list[tuple[str, str]]:
    """The explanation of one claim, as pairs (heading, text). ``rows`` has the findings on this claim, one per column.

    It has the sentence of the claim, its test, and for each column the verdict and the gain of each pair.
    """
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
        published = _published_text(row)
        lines.append(("", f"{published and f'published {published}; '}ours {_interval(row)}"))
        for case, pair in enumerate(claim.pairs):
            ours = signed_text(row.pairs[pair], row.quantity) if pair in row.pairs else "not counted"
            gain = "" if claim.rivals else _signed_or_empty(published_gain(claim, row.quantity, [case]), row.quantity)
            lines.append(("", f"{pair[0]} {MINUS} {pair[1]}: {gain and f'published {gain}, '}ours {ours}"))
        if row.command:
            lines.append(("", row.command))
    return [*lines, ("note", claim.note)] if claim.note else lines


def _verdict(row: Finding, is_bare: bool) -> str:
    """The verdict of a finding as text in a cell, with the sign :data:`CHOSEN` if it applies, and marks in brackets.

    With ``is_bare``, the marks are left out.
    """
    sign = f" {CHOSEN}" if row.chosen_on else ""
    if is_bare:
        return f"{row.verdict}{sign}"
    return row.verdict_text.replace(row.verdict, f"{row.verdict}{sign}", 1)


def _bare(cell: str) -> str:
    """The plain verdict in a text that :func:`_verdict` returns, without sign and marks."""
    return cell.partition(" (")[0].removesuffix(f" {CHOSEN}")


def _with_choice(row: Finding) -> str:
    return f"{row.verdict_text} ({row.choice_note})" if row.choice_note else row.verdict_text


def _reason(row: Finding) -> str:
    """The reason of a verdict in a few words, such as ``p 0.031`` or ``needs S-p``."""
    if row.missing:
        return f"needs {' '.join(row.missing) if len(row.missing) <= 2 else f'{len(row.missing)} labels'}"
    if math.isnan(row.p):
        return row.detail
    at_threshold = "at the threshold" if row.is_at_threshold else ""
    return ", ".join(filter(None, [f"p {p_text(row.p_holm)}", at_threshold, row.detail]))


def _signed_or_empty(value: float, quantity: str) -> str:
    return "" if math.isnan(value) else signed_text(value, quantity)


def _published_text(row: Finding) -> str:
    text = _signed_or_empty(row.published, row.quantity)
    return f"{text}*" if text and not row.published_agrees else text


def _ours(row: Finding) -> str:
    """The measured gain as text: ``+12.3 ±4.1``, or ``(+12.3)`` without an interval. Empty if no pair is stored."""
    return difference_text(row.ours, row.quantity) if row.ours else ""


def _interval(row: Finding) -> str:
    if row.ours is None or math.isnan(row.ours.low):
        return _ours(row) or "none"
    ours, low, high = (signed_text(value, row.quantity) for value in (row.ours.estimate, row.ours.low, row.ours.high))
    gain_note = f" ({row.gain_name})" if row.gain_name else ""
    return f"{ours}{gain_note}, 95% interval [{low}, {high}], n {row.n}"


def _notes(rows: Sequence[Finding], left_out: int) -> list[str]:
    """The notes of the table of findings: sentences on how to read it, and commands that train missing runs.

    ``left_out`` is the number of unfinished results that are left out.
    """
    texts = []
    if scaled_row := next((row for row in rows if not math.isnan(row.published_threshold)), None):
        scaling = scaled_row.threshold / scaled_row.published_threshold
        texts.append(
            "Thresholds that are shares of published accuracies are scaled by the distance from the heuristic to a"
            f" perfect score, on {heading(scaled_row.quantity)} by {scaling:.2f}."
            " --unscaled keeps the paper's points."
        )
    texts += [
        (
            "Ours: mean over seeds and pairs. ±: half-width of its 95% confidence interval, or [low, high] if some"
            " seeds solve the task. In brackets: no interval."
        ),
        (
            f"Verdict: the gain is on this side of the threshold, with p of at most {LEVEL}, Holm-corrected for"
            f" {_tests(rows)}. The threshold is 0 unless the claim asks for more (--explain NAME)."
        ),
        *_margins(rows),
        (
            "Not decided: tested, but the gain may be on either side of the threshold. Not testable: neither label has"
            " learned the task, or both solve it. Not enough data: not tested, because runs are missing, or with fewer"
            f" than {LEAST_SEEDS} seeds."
        ),
    ]
    return [
        *texts,
        *left_out_sentences(left_out),
        f"--explain NAME shows one claim: {', '.join(dict.fromkeys(row.claim.name for row in rows))}.",
        *(f"What is not stored: {command}" for command in open_commands(rows)),
    ]


def _tests(rows: Sequence[Finding]) -> str:
    """The number of tests in each Holm correction, as text.

    Examples: ``33 tests``, or ``33 tests (PAPER) and 9 tests (OTHER)`` for findings of two papers.
    """
    counts = {row.paper: row.tested for row in rows} or {"": 0}
    texts = {paper: f"{count} test{'s' if count != 1 else ''}" for paper, count in counts.items()}
    return " and ".join(f"{text} ({paper})" if len(texts) > 1 else text for paper, text in texts.items())


def _margins(rows: Sequence[Finding]) -> list[str]:
    """Sentences that state the default margins of claims of no difference, one sentence per paper.

    The default margin is a share of a published gain. Claims with a margin of their own are left out.
    """
    margins: dict[str, tuple[Reference, dict[str, None]]] = {}
    for row in rows:
        if row.claim.expectation(row.quantity) != "gain" and not row.claim.within:
            reference = row.claim.reference
            _, names = margins.setdefault(reference.paper, (reference, {}))
            names[next(iter(averages_of(row.quantity)), row.quantity)] = None
    sentences = []
    for reference, names in margins.values():
        margins_text = " or ".join(_margin(reference, name) for name in names)
        labels = " over ".join(map(display_name, reference.margin_labels))
        sentences.append(
            f"A claim of no difference has a margin of {margins_text}: {reference.margin_share:.0%} of the published"
            f" gain of {labels}."
        )
    return sentences


def _margin(reference: Reference, quantity: str) -> str:
    """The margin of a claim of no difference as text, such as ``3.6 points``.

    For a loss the text adds that the margin is scaled by the stored loss.
    """
    text = f"{reference.margin(quantity):.{column(quantity).digits}f} {unit(quantity).replace('_', ' ')}"
    return text if gain_sign(quantity) > 0 else f"{text} (in proportion to the stored loss)"


def open_commands(rows: Sequence[Finding]) -> list[str]:
    """The commands that train the missing seeds of findings with too few seeds for a verdict, one command per suite.

    Equal commands are listed once. Empty if every finding has at least ``LEAST_SEEDS`` seeds.
    """
    commands: dict[str, str] = {}
    for suite in dict.fromkeys(row.suite for row in rows):
        if small := [row for row in rows if row.n < LEAST_SEEDS and row.suite == suite]:
            labels = dict.fromkeys(label for row in small for label in row.labels)
            tasks = min((row.task_words for row in small), key=len)
            words = [*map(typed_label, labels), "--seeds", seed_list(range(ADVISED_SEEDS)), *tasks, small[0].options]
            command = " ".join(filter(None, ["madbench", "run", *words]))
            commands.setdefault(command, command)
    return list(commands.values())


def _json_row(row: Finding) -> dict[str, Any]:
    claim = row.claim
    identity = {"paper": row.paper} if row.paper else {}
    identity |= {"name": claim.name, "title": claim.title, "group": claim.group, "claim": claim.sentence}
    identity |= {"source": claim.source, "factors": " ".join(claim.factors), "quantity": row.quantity}
    identity |= {"unit": unit(row.quantity), "expects": claim.expectation(row.quantity)}
    names = (
        "threshold",
        "published_threshold",
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
    rounded_values = {name: round(x, 9) if isinstance(x, float) else x for name, x in {**ours, **numbers}.items()}
    pairs = ", ".join(f"{label} - {other_label}" for label, other_label in row.pairs)
    rounded_values["verdict"] = row.verdict_text
    last_fields = {"verdict_note": row.choice_note, "pairs": pairs}
    last_fields |= {"command": row.command, "theory": claim.theory, "note": claim.note}
    return identity | without_nan(rounded_values) | last_fields
