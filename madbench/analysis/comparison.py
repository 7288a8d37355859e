"""The comparison of two labels in each column: the difference of their means, its interval, p-value and verdict."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Self

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
from madbench.errors import ConfigError, StoreError, did_you_mean
from madbench.labels.budgets import LEAST_MATCHED, MOST_MATCHED
from madbench.labels.names import display_name
from madbench.suites import suites
from madbench.suites.planning import LEAST_SEEDS

if TYPE_CHECKING:
    from madbench.analysis.scores import Results


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
    rows = _comparisons(baseline, labels, samples_by_column, margins)
    budgets = BudgetRatios.of_scores(scores, baseline)
    first = "Means ±sd" if has_deviations else "Solved"
    headings, lines = ["Label", first, "Difference", "95% interval", "p", "Verdict"], []
    if margins:
        headings.append("Within margin")
    for label, of_label in itertools.groupby(rows, key=lambda row: row.label):
        differing = budgets.differing(label).values()
        lines.append([label, f"budget {max(differing):.3f}" if differing else "", *[""] * (len(headings) - 2)])
        lines += [_text(row, bool(margins), has_deviations) for row in of_label]
    suite_by_column = dict(zip(scores.column, scores.suite))
    json_rows = [_json_row(row, bool(margins)) | budgets.cells(row, suite_by_column[row.quantity]) for row in rows]
    caption = _caption(baseline, rows, margins, has_deviations) + budgets.text(labels, matched)
    notes = " ".join([*protocol, _notes(rows, bool(margins))])
    return Listing(rows, headings, lines, json_rows, caption, notes, "tab:comparison")


def rows_table(results: Results, within: float | Mapping[str, float] | None = None) -> Listing:
    """The table that compares the rows of a sweep with its first row, the baseline. All rows belong to one suite.

    A row with the same runs as an earlier row is left out: the setting in which they differ has no effect on its label,
    so that there is nothing to test. ``within`` and the errors are those of :func:`comparison_table`. Raises
    ``StoreError`` if no row shares a column with the baseline in which both have a complete seed.
    """
    ids_by_row = {row.name: frozenset(job.id for job in row.jobs) for row in results.rows}
    first_with = {ids_by_row[name]: name for name in reversed(results.names)}
    baseline, *others = (name for name in results.names if first_with[ids_by_row[name]] == name)
    table = comparison_table(
        baseline, others, results.scores, results.sentences(), within, matched=results.matched_quantity
    )
    if not table.rows:
        raise StoreError(f"no row has a complete seed of a column together with one of the baseline {baseline}")
    return table.of_origin(results.origin(names_profiles=True))


def _comparisons(
    baseline: str,
    labels: Sequence[str],
    samples_by_column: Mapping[str, Mapping[str, Sample]],
    margins: Mapping[str, float],
) -> list[Comparison]:
    """The comparisons of ``labels`` with ``baseline``, in the order of the labels, with corrected p-values.

    ``samples_by_column`` has the seeds of each label, and ``margins`` the margin of equivalence, if the column has one.
    """
    rows = []
    for label, name in itertools.product(labels, in_order(samples_by_column)):
        if {label, baseline} <= samples_by_column[name].keys():
            pair = samples_by_column[name][label], samples_by_column[name][baseline]
            margin_test = equivalence(*pair, margins[name]) if name in margins else None
            rows.append(Comparison(label, baseline, name, *pair, difference(*pair), equivalence=margin_test))
    return _with_holm(rows)


def _caption(baseline: str, rows: Sequence[Comparison], margins: Mapping[str, float], has_deviations: bool) -> str:
    """The caption of the table, without the sentences on budgets."""
    legend = [f"Difference to {display_name(baseline)} in {differences_text(row.quantity for row in rows)}"]
    if has_deviations:
        legend.append("Means ±sd: label, then baseline, with the standard deviation over (n) seeds")
    elif any(row.sample.has_threshold for row in rows):
        legend.append("Solved: seeds that solve the task, label:baseline")
    caption = f"{'; '.join(legend)}; p: Holm-corrected."
    if not margins:
        return caption
    about_margins = ", ".join(f"{heading(name)} {margins[name]:g}" for name in in_order(margins))
    if len(set(margins.values())) == 1 and len(margins) > 1:
        about_margins = f"{next(iter(margins.values())):g} points, in every column measured in points"
    return f"{caption} Margin: {about_margins}."


def _notes(rows: Sequence[Comparison], has_margins: bool) -> str:
    test_count = sum(bool(row.difference.test) for row in rows)
    notes = (
        "Each seed is one observation: the settings of a task are averaged per seed. "
        f"{direction_text(row.quantity for row in rows)}Solved: seeds that solve the task, label:baseline. {_TEST_NOTE}"
        f" p: two-sided, Holm-corrected for {test_count} {'test' if test_count == 1 else 'tests'}; significant if at"
        f" most {LEVEL}. A test needs at least {LEAST_SEEDS} seeds of both labels."
    )
    return f"{notes} {_MARGIN_NOTE}" if has_margins else notes


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


@dataclass(frozen=True)
class BudgetRatios:
    """The budget ratios of the labels, and which of them differ too much from that of the baseline.

    A budget ratio is the matched quantity, such as parameters, divided by that of softmax attention.
    """

    baseline: str
    by_suite: Mapping[str, Mapping[str, float]]
    """The budget ratio of each label, by suite and label."""

    @classmethod
    def of_scores(cls, scores: pd.DataFrame, baseline: str) -> Self:
        return cls(baseline, {name: budget_ratios(of_suite) for name, of_suite in groups_of(scores, "suite")})

    def differing(self, label: str) -> dict[str, float]:
        """The budget ratio of ``label``, by suite, in the suites in which it differs too much from the baseline's."""
        return {
            suite: by_label[label]
            for suite, by_label in self.by_suite.items()
            if _budgets_differ(by_label.get(label), by_label.get(self.baseline))
        }

    def text(self, labels: Sequence[str], matched: str) -> str:
        """Sentences that name those of ``labels`` whose budget ratio differs too much, one per suite.

        Empty if there are none. ``matched`` is the quantity that the budget makes equal, such as ``parameters``.
        """
        text, differing = "", {label: self.differing(label) for label in labels}
        for suite, by_label in self.by_suite.items():
            if unequal := [
                f"{display_name(label)} {each[suite]:.3f}" for label, each in differing.items() if suite in each
            ]:
                where = f" ({suites()[suite].title})" if len(self.by_suite) > 1 else ""
                baseline = f"{display_name(self.baseline)} {by_label[self.baseline]:.3f}"
                text += f" Budgets differ{where}: {', '.join(unequal)}, {baseline}"
                text += f" times the {matched} of softmax attention."
        return text

    def cells(self, row: Comparison, suite: str) -> dict[str, Any]:
        """The fields of a JSON row on budgets: the ratios of both labels, None if unknown, and whether they differ.

        ``suite`` is the name of the suite of the row's column.
        """
        ratios = self.by_suite[suite]
        first, second = ratios.get(row.label), ratios.get(row.baseline)
        differ = _budgets_differ(first, second)
        return {"budget_ratio": first, "baseline_budget_ratio": second, "budgets_differ": differ}


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
