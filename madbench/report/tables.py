"""The tables and findings of a page, with sort keys and links to runs in their cells."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal, NamedTuple
from urllib.parse import quote

from madbench.analysis.attribution import AttributionTable
from madbench.analysis.claims import Claim
from madbench.analysis.comparison import Comparison
from madbench.analysis.findings import Finding
from madbench.analysis.findings_table import FindingsTable
from madbench.analysis.inference import LEVEL
from madbench.analysis.quantities import column, difference_text, heading, in_order, is_average
from madbench.analysis.rendering import Listing
from madbench.analysis.result_table import ResultTable
from madbench.errors import FamilyError
from madbench.jobs import Job, Record
from madbench.labels import is_shown_as_stored
from madbench.labels.budgets import BUDGETS
from madbench.labels.names import display_name, row_display_name
from madbench.mixers import Allocation
from madbench.mixers.costs import paper_total
from madbench.mixers.sequence import solve_blocks
from madbench.suites import Suite, block_count
from madbench.suites.code_marks import SIGN


@dataclass(frozen=True)
class PageCell:
    """A cell of a table on a page: its text and, if it has them, a sort key, a link and a mark."""

    text: str
    value: float | None = None
    """The sort key. None and NaN come last."""
    link: str = ""
    """The part of the same page that a click on the cell opens (:func:`page_link`). Empty if the cell is no link."""
    mark: str = ""
    """``best``, ``within_noise`` (not significantly worse than the best), or empty."""

    @property
    def parts(self) -> tuple[str, str]:
        """The text of the cell in two parts: the number, and what follows, such as an interval, if any."""
        starts = [self.text.index(start) for start in (" ±", " (", " n=", " [") if start in self.text]
        end = min(starts, default=len(self.text))
        return self.text[:end], self.text[end:]

    @property
    def sort_value(self) -> str:
        return "" if self.value is None or math.isnan(self.value) else f"{self.value:.10g}"


class RowGroup(NamedTuple):
    """Rows that stay together when the table is sorted. The cells of the first row have the sort keys."""

    rows: list[list[PageCell]]
    """The rows as lists of cells. The first cell of a row is its heading."""
    label: str = ""
    """The label by which a reader can filter the table. Empty if the rows belong to no label."""


class Heading(NamedTuple):
    """The heading of a column."""

    text: str
    is_ascending: bool = False
    """True if the first click on the heading sorts the column in ascending order."""


class PageTable(NamedTuple):
    """A table of a report or leaderboard page, which a reader can sort and filter."""

    id: str
    caption: str
    """A short title."""
    note: str
    """Sentences that explain how to read the table and under which protocol it was made."""
    headings: list[Heading]
    groups: list[RowGroup]


def page_link(kind: Literal["runs", "effect"], name: str, column: str = "") -> str:
    """The address of a view of the page, without ``#``: a list of runs, or the labels of an effect.

    For the kind ``runs``, ``name`` is a label, and the view lists its runs in ``column``, or all if ``column`` is
    empty. For the kind ``effect``, ``name`` is an effect, and the view lists its labels in ``column``.
    """
    return f"{kind}/{quote(name, safe='')}/{quote(column, safe='')}"


def result_page_table(table: ResultTable) -> PageTable:
    """The page's table of the results of one suite, with links to runs. ``table`` must have a single suite."""
    (suite,) = table.suites
    keys, marks = table.sort_keys(), table.marks()
    groups: list[RowGroup] = []
    for name in table.rows:
        sign = f" {SIGN}" if name in table.other_code else ""
        cells = [PageCell(f"{row_display_name(name)}{sign}", len(groups), page_link("runs", name))]
        for i, (quantity, text) in enumerate(zip(table.columns, table.texts(name)), 1):
            link = page_link("runs", name, _opens(suite, quantity.name)) if text.strip("-") else ""
            cells.append(PageCell(text, keys[quantity.name][0].get(name), link, marks.get((name, i), "")))
        rows, published = [cells], table.published_texts(name)
        if any(published):
            rows.append([PageCell("published"), *map(PageCell, published)])
        groups.append(RowGroup(rows, name))
    for name, texts in table.baseline_texts():
        values = [float(text) if text else None for text in texts]
        groups.append(RowGroup([[PageCell(name, len(groups)), *map(PageCell, texts, values)]]))
    headings = [Heading(column.heading, not keys[column.name][1]) for column in table.columns]
    return PageTable(suite.name, table.title, table.with_notes(), [Heading("Label", True), *headings], groups)


def _opens(suite: Suite, column: str) -> str:
    """The name of the column whose runs are listed after a click on a cell of ``column``.

    For a task or an average, it is ``column`` itself. For any other column, such as a count of steps, it is the only
    task of the suite. If the suite has several tasks, the name is empty, which lists the runs of all tasks.
    """
    tasks = suite.tasks()
    return column if column in tasks or is_average(column) else tasks[0] if len(tasks) == 1 else ""


def comparison_page_table(table: Listing, baseline: str) -> PageTable | None:
    """The page's table of the differences from the label ``baseline``, with one row per other label.

    ``table`` is the result of :func:`madbench.analysis.comparison.comparison_table`. None if it has no other label.
    """
    rows: list[Comparison] = table.rows
    quantities = in_order(row.quantity for row in rows)
    cells = {(row.label, row.quantity): row for row in rows}
    groups: list[RowGroup] = []
    for label in dict.fromkeys(row.label for row in rows):
        line = [PageCell(display_name(label), len(groups), page_link("runs", label))]
        for quantity in quantities:
            row = cells.get((label, quantity))
            line.append(_difference_cell(row) if row else PageCell(""))
        groups.append(RowGroup([line], label))
    if not groups:
        return None
    headings = [Heading(heading(quantity), column(quantity).better == "lower") for quantity in quantities]
    note = f"{table.caption} *: p at most {LEVEL}, Holm-corrected. In brackets: not tested. {table.notes}"
    title = f"Difference to {display_name(baseline)}"
    return PageTable("comparison", title, note, [Heading("Label", True), *headings], groups)


def _difference_cell(row: Comparison) -> PageCell:
    mark = "*" if row.verdict in ("higher", "lower") else ""
    text = f"{difference_text(row.difference, row.quantity)}{mark}"
    return PageCell(text, row.difference.estimate, page_link("runs", row.label, row.quantity))


def factor_page_table(table: AttributionTable) -> PageTable:
    """The page's table of effects, with one row per factor or interaction. A cell links to the labels of its effect."""
    values = {(row.name, row.quantity): row.estimate.estimate for row in table.rows}
    (corner, *headings), lines = table.text_rows()
    groups: list[RowGroup] = []
    for name, *texts in lines:
        cells = [
            PageCell(text, values.get((name, quantity)), page_link("effect", name, quantity)) if text else PageCell("")
            for quantity, text in zip(table.quantities, texts)
        ]
        cells += [PageCell(text, _first_number(text)) for text in texts[len(table.quantities) :]]
        groups.append(RowGroup([[PageCell(name, len(groups)), *cells]]))
    ascending = [column(quantity).better == "lower" for quantity in table.quantities] + [False, False]
    columns = [Heading(corner, True), *map(Heading, headings, ascending)]
    return PageTable(
        "factors",
        "What each factor is worth, and the significant interactions",
        f"{table.caption} {table.notes}",
        columns,
        groups,
    )


def _first_number(text: str) -> float | None:
    digits = text.split("-")[0]  # "3" or "2-3"
    return float(digits) if digits.isdigit() else None


def cost_page_table(suite: Suite, table: Listing) -> PageTable:
    """The page's table of the costs of one suite, with one row per label.

    ``table`` is the result of :func:`madbench.analysis.cost_table.cost_table`.
    """
    values = {(cell["label"], cell["task"]): cell["mean"] for cell in table.cells}
    names = list(dict.fromkeys(cell["task"] for cell in table.cells))
    groups: list[RowGroup] = []
    for name, *texts in table.lines:
        cells = [PageCell(text, values[name, column]) for column, text in zip(names, texts, strict=True)]
        first = PageCell(row_display_name(name), len(groups), page_link("runs", name))
        groups.append(RowGroup([[first, *cells]], name))
    headings = [Heading(heading, True) for heading in table.headings]
    note = f"{table.caption} {table.notes}"
    return PageTable(f"costs-{suite.name}", f"Costs ({suite.title})", note, headings, groups)


def budget_page_table(runs: Iterable[tuple[Job, Record | None]]) -> PageTable:
    """The page's table of budgets, with one row per label and size of mixer.

    Jobs with different input lengths share a row if their mixers are equal. ``runs`` has pairs of a job and its record.
    The record is None if nothing is stored.

    The mixers of a job cannot be computed if the code of its label must not be run or fails, or if its suite states no
    width and length. Then the number of parameters is read from the record, and the ranks are empty. The job is left
    out if the record lacks the number, or if its budget does not count parameters.
    """
    lengths: dict[tuple[str, int, str, float, float, float], list[int]] = {}
    for job, record in {(*_size(job), str(job.mixer)): (job, record) for job, record in runs}.values():
        label, d_model, _, length = _size(job)
        mixers = _mixers(job)
        for mixer in mixers:
            ranks = ", ".join(f"{name} {rank:,}" for name, rank in mixer.ranks.items())
            counts = (mixer.total, mixer.target, paper_total(mixer))
            lengths.setdefault((str(mixer.label), d_model, ranks, *counts), []).append(length)
        details = record.details if record else {}
        total, ratio = details.get("mixer_parameters"), details.get("budget_ratio")
        if total and ratio and not mixers and BUDGETS[job.budget].quantity == "parameters":
            lengths.setdefault((label, d_model, "", total, round(total / ratio), total), []).append(length)
    groups: list[RowGroup] = []
    for (label, d_model, ranks, total, target, of_paper), seq_lens in lengths.items():
        size = f"d_model {d_model}" if d_model else ""
        if any(seq_lens):
            size += f", length {', '.join(f'{length:,}' for length in sorted(filter(None, seq_lens)))}"
        cells = [PageCell(display_name(label), len(groups), page_link("runs", label))]
        cells += [PageCell(size, min(seq_lens)), PageCell(ranks)]
        cells += [PageCell(f"{number:,}", number) for number in (total, target)]
        cells += [PageCell(f"{ratio:.3f}", ratio) for ratio in (total / target, of_paper / target)]
        groups.append(RowGroup([cells], label))
    note = (
        "Parameters of one mixer; the budget is softmax attention's, 4 d² with the convolution taps of the label. Ranks"
        " qk and vo are summed over heads, mix is the rank of R(1) and R(2). Paper ratio: as the budget 'paper'"
        " counts, without the tables of R(1) and R(2)."
    )
    titles = ["Size", "Ranks", "Parameters", "Budget", "Ratio", "Paper ratio"]
    headings = [Heading("Label", True), *(Heading(text, text == "Size") for text in titles)]
    return PageTable("budget", "The budget of each label", note, headings, groups)


def _mixers(job: Job) -> list[Allocation]:
    """The allocations of the mixers in a job's model, without repeats.

    Empty if the code of the label fails or must not be run, or if the suite's jobs have no width or length.
    """
    label, d_model, n_head, length = _size(job)
    if not is_shown_as_stored(label) and d_model and length:
        blocks = block_count(job)
        with suppress(FamilyError):
            allocations = solve_blocks(label, blocks, d_model, n_head, length, job.budget, **job.mixer)
            return [mixer for mixer, _ in allocations.kinds]
    return []


def _size(job: Job) -> tuple[str, int, int, int]:
    """Label, width, number of heads and input length of a job. A width or length is 0 if the suite's jobs have none."""
    length = getattr(job.model, "seq_len", None) or job.setting.get("seq_len", 0)
    return job.label, getattr(job.model, "d_model", 0), job.model.n_head, length


class PageClaim(NamedTuple):
    """A claim on the page of a report, with its findings."""

    claim: Claim
    id: str
    """The name of the claim. If an earlier claim has this name, ``PAPER-`` is put before it."""
    group: str
    """The headings above the claim in the table, joined by commas. Empty if it follows a claim of its group."""
    findings: list[tuple[Finding, list[str]]]
    """One finding per column of the claim, with the texts of its line in the table: title, published, ours, n, verdict,
    why."""


def page_claims(table: FindingsTable) -> list[PageClaim]:
    """The claims of ``table`` with their findings, in the order of the table."""
    rows, headings = iter(table.rows), list[str]()
    claims: list[PageClaim] = []
    for texts in table.text_rows()[1]:
        if not any(texts[1:]):
            headings.append(texts[0])
            continue
        row = next(rows)
        if headings or claims[-1].claim is not row.claim:
            is_taken = any(claim.id == row.claim.name for claim in claims)
            name = f"{row.paper}-{row.claim.name}" if is_taken else row.claim.name
            claims.append(PageClaim(row.claim, name, ", ".join(headings), []))
            headings = []
        claims[-1].findings.append((row, texts))
    return claims
