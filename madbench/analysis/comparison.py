"""The comparison of two labels in each column: the difference of their means, its interval, p-value and verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.frames import groups_of
from madbench.analysis.inference import LEVEL, Difference, Equivalence, Sample, difference, equivalence, holm
from madbench.analysis.quantities import (
    column,
    differences_text,
    direction_text,
    heading,
    in_order,
    interval_text,
    mean_text,
    p_text,
    signed_text,
    unit,
)
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of, select_columns
from madbench.analysis.scores import budget_ratios
from madbench.errors import ConfigError, did_you_mean
from madbench.labels.budgets import LEAST_MATCHED, MOST_MATCHED
from madbench.labels.names import display_name
from madbench.suites import suites
from madbench.suites.planning import LEAST_SEEDS


@dataclass(frozen=True)
class Comparison:
    """The comparison of a label with a baseline label in one column: ``label`` minus ``baseline``.

    Differences are in the units of the column. ``sample`` has the seeds of the label, ``of_baseline`` those of the
    baseline.
    """

    label: str
    baseline: str
    quantity: str
    sample: Sample
    of_baseline: Sample
    difference: Difference
    p_holm: float = math.nan
    """The p-value of the difference, adjusted for all tests of the table. NaN if nothing is tested."""
    equivalence: Equivalence | None = None
    """Two one-sided tests against the margin of the column, with adjusted p-values. None without a margin."""

    @property
    def equivalence_verdict(self) -> str:
        """The verdict on the margin: ``equivalent``, ``no worse``, ``no better`` or ``not shown``.

        If nothing is tested, it is the reason for this in words. Empty if the column has no margin.
        """
        if self.equivalence is None or self.equivalence.reason:
            return self.equivalence.reason if self.equivalence else ""
        is_above, is_below = (p <= LEVEL for p in (self.equivalence.p_above, self.equivalence.p_below))
        if is_above and is_below:
            return "equivalent"
        if not is_above and not is_below:
            return "not shown"
        return "no worse" if is_above == (column(self.quantity).better != "lower") else "no better"

    @property
    def equivalence_p(self) -> float:
        """The p-value of :attr:`equivalence_verdict`. NaN without a margin or a test.

        There are two one-sided tests. ``no worse`` and ``no better`` need only one of them, so their p-value is the
        smaller one. Otherwise, it is the larger one.
        """
        tests = self.equivalence
        if tests is None:
            return math.nan
        return min(tests.p_above, tests.p_below) if self.equivalence_verdict.startswith("no ") else tests.p

    @property
    def verdict(self) -> str:
        """The verdict on the difference: ``higher``, ``lower`` or ``not significant``.

        If nothing is tested, it is the reason for this in words.
        """
        if self.difference.reason:
            return self.difference.reason
        return "not significant" if self.p_holm > LEVEL else "higher" if self.difference.estimate > 0 else "lower"


def comparison_table(
    baseline: str,
    labels: Sequence[str],
    scores: pd.DataFrame,
    protocol: Sequence[str] = (),
    within: float | Mapping[str, float] | None = None,
    has_deviations: bool = False,
    matched: str = "parameters",
) -> Listing:
    """The table of ``labels`` compared with ``baseline``, with one :class:`Comparison` per label and column.

    A column is left out for a label if the label or the baseline has no complete seed in it.

    Args:
        baseline: the label whose numbers are subtracted.
        labels: the other labels, in the order of the rows.
        scores: the scores of one protocol per suite (:mod:`madbench.analysis.scores`).
        protocol: sentences about the protocols, which begin the notes.
        within: the margin: labels are equivalent if their difference is smaller. A number is a margin in points of
            accuracy for all columns of accuracies. A mapping has the margin of each column in the units of the column.
        has_deviations: True to show means with standard deviations in place of the counts of solved seeds.
        matched: the quantity that the budget makes equal for all mixers, such as ``parameters``.

    Raises ``ConfigError`` for a margin that is not a finite number above 0, for a margin of a column that is not in the
    table, and for a single number if no column is in points.
    """
    samples_by_column = samples_of(select_columns(scores, lambda column: column.is_compared))
    margins = _margins(within, samples_by_column)
    rows = []
    for label, name in itertools.product(labels, in_order(samples_by_column)):
        if {label, baseline} <= samples_by_column[name].keys():
            pair = samples_by_column[name][label], samples_by_column[name][baseline]
            margin_test = equivalence(*pair, margins[name]) if name in margins else None
            rows.append(Comparison(label, baseline, name, *pair, difference(*pair), equivalence=margin_test))
    rows = _with_holm(rows)
    first = "Means ±sd" if has_deviations else "Solved"
    headings, lines = ["Label", first, "Difference", "95% interval", "p", "Verdict"], []
    if margins:
        headings.append("Within margin")
    ratios, suite_by_column = _budget_ratios(scores), dict(zip(scores.column, scores.suite))
    differing = {label: _differing_ratios(label, baseline, ratios) for label in labels}
    for label, of_label in itertools.groupby(rows, key=lambda row: row.label):
        budget = f"budget {max(differing[label].values()):.3f}" if differing[label] else ""
        lines += [
            [label, budget, *[""] * (len(headings) - 2)],
            *(_text(row, bool(margins), has_deviations) for row in of_label),
        ]
    about_margins = ", ".join(f"{heading(name)} {margins[name]:g}" for name in in_order(margins))
    if len(set(margins.values())) == 1 and len(margins) > 1:
        about_margins = f"{next(iter(margins.values())):g} points, in every column measured in points"
    units = differences_text(row.quantity for row in rows)
    legend = [f"Difference to {display_name(baseline)} in {units}"]
    if has_deviations:
        legend.append("Means ±sd: label, then baseline, with the standard deviation over (n) seeds")
    elif any(row.sample.has_threshold for row in rows):
        legend.append("Solved: seeds that solve the task, label:baseline")
    caption = f"{'; '.join(legend)}; p: Holm-corrected."
    if margins:
        caption += f" Margin: {about_margins}."
    caption += _budget_text(baseline, ratios, differing, matched)
    test_count = sum(bool(row.difference.test) for row in rows)
    notes = (
        "Each seed is one observation: the settings of a task are averaged per seed. "
        f"{direction_text(row.quantity for row in rows)}Solved: seeds that solve the task, label:baseline. {_TEST_NOTE}"
        f" p: two-sided, Holm-corrected for {test_count} {'test' if test_count == 1 else 'tests'}; significant if at"
        f" most {LEVEL}. A test needs at least {LEAST_SEEDS} seeds of both labels."
    )
    if margins:
        notes += f" {_MARGIN_NOTE}"
    return Listing(
        rows,
        headings,
        lines,
        [_json_row(row, bool(margins)) | _budget_cells(row, ratios[suite_by_column[row.quantity]]) for row in rows],
        caption,
        " ".join([*protocol, notes]),
        "tab:comparison",
    )


_TEST_NOTE = (
    "Test: Student's t. A variance of few seeds is increased, because few seeds can hide a larger spread, or a label"
    " that solves a task in some seeds only. The test is the same for every profile and column."
)

_MARGIN_NOTE = (
    "Within margin: two one-sided tests with the same variances. Equivalent: the difference is above minus the margin"
    " and below the margin. No worse, no better: one of the two is shown. p is that of both tests, or of the one that"
    " rejects. In a row at most one of three hypotheses is true: no difference, and a difference of the margin or more"
    " in either direction. So p-values are multiplied by the number of rows with a hypothesis left (Shaffer), and a"
    f" table has a false verdict of any kind with a probability of at most {LEVEL}."
)


Ratios = Mapping[str, Mapping[str, float]]
"""Budget ratios by suite and label: the matched quantity, such as parameters, divided by that of softmax attention."""


def _budget_ratios(scores: pd.DataFrame) -> Ratios:
    return {name: budget_ratios(of_suite) for name, of_suite in groups_of(scores, "suite")}


def _differing_ratios(label: str, baseline: str, ratios: Ratios) -> dict[str, float]:
    """The budget ratio of ``label``, by suite, in suites in which it differs too much from that of ``baseline``."""
    return {
        suite: by_label[label]
        for suite, by_label in ratios.items()
        if _budgets_differ(by_label.get(label), by_label.get(baseline))
    }


def _budget_text(baseline: str, ratios: Ratios, differing: Mapping[str, Mapping[str, float]], matched: str) -> str:
    """Sentences that name the labels whose budget ratio differs too much from that of the baseline, one per suite.

    ``differing`` has the ratios that differ too much, by label and suite (:func:`_differing_ratios`). Empty if there
    are none. ``matched`` is the quantity that the budget makes equal, such as ``parameters``.
    """
    text = ""
    for suite, by_label in ratios.items():
        if unequal := [
            f"{display_name(label)} {each[suite]:.3f}" for label, each in differing.items() if suite in each
        ]:
            where = f" ({suites()[suite].title})" if len(ratios) > 1 else ""
            text += f" Budgets differ{where}: {', '.join(unequal)}, {display_name(baseline)} {by_label[baseline]:.3f}"
            text += f" times the {matched} of softmax attention."
    return text


def _budget_cells(row: Comparison, ratios: Mapping[str, float]) -> dict[str, Any]:
    """The fields of a JSON row on budgets: the budget ratios of both labels, None if unknown, and whether they differ.

    ``ratios`` has the budget ratio of each label in the suite of the row.
    """
    first, second = ratios.get(row.label), ratios.get(row.baseline)
    return {"budget_ratio": first, "baseline_budget_ratio": second, "budgets_differ": _budgets_differ(first, second)}


def _budgets_differ(first: float | None, second: float | None) -> bool:
    """True if two budget ratios differ too much for a fair comparison. False if a ratio is None.

    Two ratios from ``LEAST_MATCHED`` to ``MOST_MATCHED`` never differ too much. Other ratios do if the larger one
    divided by the smaller one exceeds ``MOST_MATCHED``.
    """
    if first is None or second is None:
        return False
    are_matched = all(LEAST_MATCHED <= ratio <= MOST_MATCHED for ratio in (first, second))
    return max(first, second) > MOST_MATCHED * min(first, second) and not are_matched


def _margins(within: float | Mapping[str, float] | None, columns: Collection[str]) -> dict[str, float]:
    """The margin of equivalence by column, in the units of the column. Empty if ``within`` is None.

    ``within`` has the margins by column. A single number is the margin of all columns whose unit is points. ``columns``
    are the names of all columns of the table.

    Raises ``ConfigError`` for a margin that is not a finite number above 0 or that is 100 points or more, for a column
    that is not in ``columns``, and for a single number if no column is in points.
    """
    if within is None:
        return {}
    margin_by_name = (
        {f"{name}=": margin for name, margin in within.items()} if isinstance(within, Mapping) else {"": within}
    )
    for name, margin in margin_by_name.items():
        if not 0 < margin < math.inf:
            raise ConfigError(f"within {name}{margin:g}: expected a number above 0")
    if not isinstance(within, Mapping):
        margins = dict.fromkeys((name for name in columns if unit(name) == "points"), within)
        if not margins:
            names = ", ".join(in_order(columns)) or "none"
            raise ConfigError(f"within {within:g}: no column here is in points; name one of {names}: COLUMN=NUMBER")
    else:
        margins = dict(within)
    for name, margin in margins.items():
        if name not in columns:
            raise ConfigError(f"within {name}={margin:g}: no such column here{did_you_mean(name, in_order(columns))}")
        if unit(name) == "points" and margin >= 100:
            raise ConfigError(f"within {margin:g}: expected less than 100 points, the range of a score")
    return margins


def _with_holm(rows: Sequence[Comparison]) -> list[Comparison]:
    """The rows with p-values adjusted by one Holm correction over all tests of differences and of margins."""
    p_values, groups = [], []
    for i, row in enumerate(rows):
        of_row = [row.difference.p]
        if row.equivalence:
            of_row += [row.equivalence.p_above, row.equivalence.p_below]
        p_values += of_row
        groups += [i] * len(of_row)
    p_holm = iter(holm(p_values, groups=groups))
    of_rows = []
    for row in rows:
        row = replace(row, p_holm=next(p_holm))
        if row.equivalence:
            row = replace(row, equivalence=replace(row.equivalence, p_above=next(p_holm), p_below=next(p_holm)))
        of_rows.append(row)
    return of_rows


def _text(row: Comparison, has_margins: bool, has_deviations: bool) -> list[str]:
    gain, solved = row.difference, f"n={row.difference.n}"
    if has_deviations:
        solved = " ".join(mean_text(sample, row.quantity) for sample in (row.sample, row.of_baseline))
    elif row.sample.has_threshold:
        solved = ":".join(f"{sample.solved}/{sample.n}" for sample in (row.sample, row.of_baseline))
    numbers = [solved, signed_text(gain.estimate, row.quantity), interval_text(gain, row.quantity), p_text(row.p_holm)]
    line = [f"  {heading(row.quantity)}", *numbers, row.verdict]
    if has_margins:
        p = p_text(row.equivalence_p)
        line.append(row.equivalence_verdict + (f", p {p}" if p else ""))
    return line


def _json_row(row: Comparison, has_margins: bool) -> dict[str, Any]:
    json_row: dict[str, Any] = {
        "label": row.label,
        "baseline": row.baseline,
        "quantity": row.quantity,
        "unit": unit(row.quantity),
    }
    for prefix, sample in (("", row.sample), ("baseline_", row.of_baseline)):
        json_row |= {f"{prefix}mean": sample.mean, f"{prefix}spread": sample.deviation, f"{prefix}seeds": sample.n}
        json_row |= {f"{prefix}solved": sample.solved if sample.has_threshold else None}
    json_row |= asdict(row.difference) | {"p_holm": row.p_holm, "verdict": row.verdict}
    if has_margins:
        margin_test = row.equivalence or Equivalence(math.nan, math.nan, math.nan)
        json_row |= {"margin": margin_test.margin, "p_equivalence": row.equivalence_p, "p_above": margin_test.p_above}
        json_row |= {"p_below": margin_test.p_below, "equivalence": row.equivalence_verdict}
    return without_nan(json_row)
