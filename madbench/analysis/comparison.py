"""Two labels compared, column by column: the difference of their means, its interval, p-value and verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.captions import TEST_NOTE
from madbench.analysis.inference import LEAST_SEEDS, LEVEL, Difference, Sample, difference, holm, noises
from madbench.analysis.noise_model import noise_note
from madbench.analysis.quantities import (
    differences_text,
    direction_text,
    heading,
    in_order,
    interval_text,
    p_text,
    signed,
    unit,
)
from madbench.analysis.rendering import Listing, known
from madbench.analysis.samples import columns_that, samples_of
from madbench.labels.names import shown


@dataclass(frozen=True)
class Comparison:
    """One column of ``label`` minus that of the baseline, in the units of the column."""

    label: str
    baseline: str
    quantity: str
    sample: Sample
    of_baseline: Sample
    difference: Difference
    p_holm: float = math.nan
    """Adjusted for all rows of the table."""

    @property
    def verdict(self) -> str:
        """Whether the label's number differs from the baseline's, and in which direction; or why nothing is tested."""
        if self.difference.reason:
            return self.difference.reason
        return "not significant" if self.p_holm > LEVEL else "higher" if self.difference.estimate > 0 else "lower"


def comparison_table(
    baseline: str, labels: Sequence[str], scores: pd.DataFrame, protocol: Sequence[str] = ()
) -> Listing:
    """``baseline`` compared with each of ``labels``, a :class:`Comparison` a row; a column that one lacks is left out.

    Args:
        baseline: the label whose numbers are subtracted.
        labels: the other labels, in the order of the rows.
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`).
        protocol: sentences about the protocols, which begin the notes.
    """
    samples_by_column = samples_of(columns_that(scores, lambda one: one.is_compared))
    rows = []
    for label, name in itertools.product(labels, in_order(samples_by_column)):
        if {label, baseline} <= samples_by_column[name].keys():
            pair = samples_by_column[name][label], samples_by_column[name][baseline]
            rows.append(Comparison(label, baseline, name, *pair, difference(*pair)))
    rows = [replace(row, p_holm=p) for row, p in zip(rows, holm([row.difference.p for row in rows]))]
    headings, lines = ["Label", "Solved", "Difference", "95% interval", "p", "Verdict"], []
    for label, of_label in itertools.groupby(rows, key=lambda row: row.label):
        lines += [[label, *[""] * 5], *map(_text, of_label)]
    caption = f"Each label less {shown(baseline)}: {differences_text(row.quantity for row in rows)}; p after Holm."
    tested = sum(bool(row.difference.test) for row in rows)
    samples = [one for row in rows for one in (row.sample, row.of_baseline)]
    notes = (
        "The unit is the seed; settings of a task are averaged within it. "
        f"{direction_text(row.quantity for row in rows)}Solved: seeds that"
        f" solve the task, label:baseline. {TEST_NOTE} {noise_note(noises(samples))} p: two-sided, adjusted by Holm's"
        f" method for {tested} tests; significant at {LEVEL} or less. Nothing is tested with fewer than {LEAST_SEEDS}"
        " seeds."
    )
    return Listing(
        rows, headings, lines, [*map(_record, rows)], caption, " ".join([*protocol, notes]), "tab:comparison"
    )


def _text(row: Comparison) -> list[str]:
    gain, solved = row.difference, f"n={row.difference.n}"
    if row.sample.has_threshold:
        solved = ":".join(f"{sample.solved}/{sample.n}" for sample in (row.sample, row.of_baseline))
    numbers = [solved, signed(gain.estimate, row.quantity), interval_text(gain, row.quantity), p_text(row.p_holm)]
    return [f"  {heading(row.quantity)}", *numbers, row.verdict]


def _record(row: Comparison) -> dict[str, Any]:
    record = {"label": row.label, "baseline": row.baseline, "quantity": row.quantity, "unit": unit(row.quantity)}
    for prefix, sample in (("", row.sample), ("baseline_", row.of_baseline)):
        record |= {f"{prefix}mean": sample.mean, f"{prefix}seeds": sample.n}
        record |= {f"{prefix}solved": sample.solved if sample.has_threshold else None}
    return known(record | asdict(row.difference) | {"p_holm": row.p_holm, "verdict": row.verdict})
