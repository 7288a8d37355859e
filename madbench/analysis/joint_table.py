"""Both halves of the paper's Table 1 side by side: MAD tasks, then the language model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from madbench.analysis.cells import legend, sorted_labels
from madbench.analysis.language_table import LanguageTable
from madbench.analysis.rendering import PUBLISHED, TextTable
from madbench.analysis.tables import AblationTable


@dataclass(frozen=True)
class JointTable(TextTable):
    """A row for every label that either half has, each half under its own protocol."""

    mad: AblationTable
    language: LanguageTable
    labels: Sequence[str]
    """Order of the rows."""

    @property
    def caption(self) -> str:
        names = {"MAD tasks": self.mad.rows, "the language model": self.language.rows}
        lacking = {name: [label for label in self.labels if label not in rows] for name, rows in names.items()}
        columns = [*self.mad.columns, *self.language.columns]
        rows = {label: self.mad.rows.get(label, {}) | self.language.rows.get(label, {}) for label in self.labels}
        sentences = [f"MAD tasks: {self.mad.protocol}", f"Language model: {self.language.protocol}"]
        sentences += [f"Without runs of {name}: {', '.join(labels)}." for name, labels in lacking.items() if labels]
        return " ".join([*sentences, *legend(columns, rows, bool(self.mad.over_budget or self.language.over_budget))])

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings, halves = [], []
        for table in (self.mad, self.language):
            names, lines = table.text_rows()
            headings.append(names[1:])
            halves.append(_by_row(lines))
        for_language = {"Budget": "LM budget", "n": "LM n"}
        headings[1] = [for_language.get(name, name) for name in headings[1]]
        nothing = ["-"] * len(self.mad.tasks) + ["", ""], [""] * len(headings[1])
        rows = []
        for label in self.labels:
            ours = [half.get((label, False), none) for half, none in zip(halves, nothing)]
            rows.append([label, *ours[0], *ours[1]])
            theirs = [half.get((label, True), [""] * len(names)) for half, names in zip(halves, headings)]
            if any(map(any, theirs)):
                rows.append([PUBLISHED, *theirs[0], *theirs[1]])
        return ["Label", *headings[0], *headings[1]], rows

    def marks(self) -> dict[tuple[str, int], str]:
        shift = len(self.mad.tasks) + 2  # Budget and n
        of_language = {(label, i + shift): mark for (label, i), mark in self.language.marks().items()}
        return self.mad.marks() | of_language

    def records(self) -> list[dict[str, Any]]:
        """Those of the MAD tasks; then of the language model, of which ``task`` is the quantity."""
        records = self.mad.records()
        for record in self.language.records():
            label, name, seeds = record.pop("label"), record.pop("quantity"), record.pop("seeds")
            cell, ratio = self.language.rows[label][name], self.language.rows[label]["budget_ratio"].mean
            published = record.pop("published")
            counts = {"done": cell.done, "expected": seeds, "diverged": record.pop("diverged")}
            if name != "budget_ratio":
                rest = {"budget_ratio": None if math.isnan(ratio) else ratio, "published": published}
                records.append({"label": label, "task": name} | record | counts | rest)
        return records

    def sorted_by(self, key: str) -> JointTable:
        """With the best row of column ``key`` first; ``ConfigError`` where there is no such column."""
        keys = self.language.sort_keys() | self.mad.sort_keys()
        return replace(self, labels=sorted_labels(keys, key, self.labels))


def _by_row(lines: list[list[str]]) -> dict[tuple[str, bool], list[str]]:
    """Cells of each row by its label and whether its numbers are the published ones."""
    found, label = {}, ""
    for first, *cells in lines:
        label = label if first == PUBLISHED else first
        found[label, first == PUBLISHED] = cells
    return found
