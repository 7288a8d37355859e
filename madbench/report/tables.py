"""The tables as the page needs them: every cell with the number that sorts it and the runs that it opens."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from urllib.parse import quote

from madbench.analysis.attribution_table import AttributionTable
from madbench.analysis.language_table import LanguageTable
from madbench.analysis.quantities import LOSS
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.tables import AblationTable
from madbench.language_jobs import TASK as LANGUAGE_MODEL
from madbench.report.runs import Allocation


@dataclass(frozen=True)
class Cell:
    """One number or text of a table."""

    text: str
    value: float | None = None
    """What sorts it; None, or NaN, goes last."""
    link: str = ""
    """What the page opens for it, as its hash has it; empty for nothing."""
    mark: str = ""
    """``best``, ``within_noise`` of the best, or nothing."""

    @property
    def parts(self) -> tuple[str, str]:
        """The number and what follows it: its interval, how complete it is."""
        cut = min(
            (self.text.index(start) for start in (" ±", " (", " n=") if start in self.text), default=len(self.text)
        )
        return self.text[:cut], self.text[cut:]

    @property
    def sort_value(self) -> str:
        return "" if self.value is None or math.isnan(self.value) else f"{self.value:.10g}"


@dataclass(frozen=True)
class Row:
    """A heading and its cells."""

    heading: Cell
    cells: list[Cell]


@dataclass(frozen=True)
class Group:
    """Rows that stay together when the table is sorted, by the cells of the first one."""

    rows: list[Row]
    label: str = ""
    """What a filter looks at; empty where the group is of no label."""


@dataclass(frozen=True)
class Heading:
    """Title of a column and the direction of a first click on it."""

    text: str
    is_ascending: bool = False


@dataclass(frozen=True)
class PageTable:
    """A table of the page."""

    id: str
    caption: str
    """Short; what the table is."""
    note: str
    """Everything a reader must know to trust it."""
    headings: list[Heading]
    groups: list[Group] = field(default_factory=list)


def runs_link(label: str, column: str = "") -> str:
    """The hash that opens the runs of ``label`` on a task, or all its runs."""
    return f"runs/{quote(label, safe='')}/{quote(column, safe='')}"


def effect_link(name: str, quantity: str) -> str:
    """The hash that opens the pairs or squares of labels behind an effect."""
    return f"effect/{quote(name, safe='')}/{quote(quantity, safe='')}"


def mad_page_table(table: AblationTable) -> PageTable:
    names = [*table.tasks, "budget_ratio", "n"]
    links = {name: name if name in table.tasks else "" for name in names}
    return _label_table(table, "mad", "MAD: accuracy by task, percent", names, links)


def language_page_table(table: LanguageTable) -> PageTable:
    names = [*(column.name for column in table.columns), "n"]
    links = dict.fromkeys(names, LANGUAGE_MODEL)
    return _label_table(table, "language", "Language model: losses and steps", names, links)


def _label_table(
    table: AblationTable | LanguageTable, id: str, caption: str, names: Sequence[str], links: Mapping[str, str]
) -> PageTable:
    """``names`` are the columns after the first one; their cells open what ``links`` says of the label's runs."""
    keys, marks = table.sort_keys(), table.marks()

    def cell(label: str, i: int, text: str) -> Cell:
        name = names[i]
        link = runs_link(label, links[name]) if text.strip("-") else ""
        return Cell(text, keys[name][0].get(label), link, marks.get((label, i + 1), ""))

    return _from_text(table, id, caption, cell, [not keys[name][1] for name in names])


def attribution_page_table(table: AttributionTable) -> PageTable:
    """A row a factor and an interaction; the cells open the labels that they rest on."""
    values = {(effect.contrast.name, effect.task): effect.estimate.mean for effect in table.effects}
    values |= {(one.name, one.task): one.estimate.mean for one in table.interactions}

    def cell(name: str, column: int, text: str) -> Cell:
        if column >= len(table.tasks):
            return Cell(text, _number(text))
        task = table.tasks[column]
        return Cell(text, values.get((name, task)) if text else None, effect_link(name, task) if text else "")

    caption = "What each factor is worth, and the interactions beyond the noise"
    ascending = [task == LOSS for task in table.tasks]
    return _from_text(table, "factors", caption, cell, [*ascending, False, False], of_labels=False)


def _from_text(
    table: TextTable,
    name: str,
    caption: str,
    cell: Callable[[str, int, str], Cell],
    ascending: Sequence[bool],
    of_labels: bool = True,
) -> PageTable:
    """``table`` with ``cell(heading of the row, column, text)`` for its cells; published rows are of the row above."""
    (corner, *headings), lines = table.text_rows()
    groups: list[Group] = []
    for first, *texts in lines:
        if first == PUBLISHED:
            groups[-1].rows.append(Row(Cell("published"), [Cell(text) for text in texts]))
            continue
        link = runs_link(first) if of_labels else ""
        heading = Row(Cell(first, len(groups), link), [cell(first, i, text) for i, text in enumerate(texts)])
        groups.append(Group([heading], first if of_labels else ""))
    columns = [Heading(corner, True), *map(Heading, headings, ascending)]
    return PageTable(name, caption, table.caption, columns, groups)


def _number(text: str) -> float | None:
    """The first number of ``3``, ``2-3`` or ``1,200``."""
    digits = text.split("-")[0].replace(",", "")
    return float(digits) if digits.isdigit() else None


def budget_page_table(allocations: Iterable[Allocation]) -> PageTable:
    """A row a label and size."""
    titles = ["Where", "r_qk", "r_vo", "r", "Parameters", "Budget B", "Ratio", "Ratio, published counting"]
    groups = []
    for one in allocations:
        numbers = [one.ranks["qk"], one.ranks["vo"], one.ranks["mix"], one.parameters, one.budget]
        cells = [Cell(one.where, one.length), *(Cell(f"{number:,}", number) for number in numbers)]
        cells += [
            Cell(f"{count / one.budget:.3f}", count / one.budget)
            for count in (one.parameters, one.published_parameters)
        ]
        heading = Cell(one.label, len(groups), runs_link(one.label, LANGUAGE_MODEL if one.is_language else ""))
        groups.append(Group([Row(heading, cells)], one.label))
    note = (
        "Parameters of one mixer as it was built; B is softmax attention's, 4 d² with the conv taps of the label. r_qk and"
        " r_vo are summed over heads, r is the rank of R(1) and R(2). Published counting leaves out the tables of R(1) and"
        " R(2)."
    )
    headings = [Heading("Label", True), *(Heading(title, title == "Where") for title in titles)]
    return PageTable("budget", "The budget of each label", note, headings, groups)
