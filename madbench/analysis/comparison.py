"""Two labels compared on the runs they share: paired differences, their intervals, p-values and verdicts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.quantities import ALL_TASKS, LOSS, column, heading, signed, unit
from madbench.analysis.rendering import TextTable, known
from madbench.analysis.statistics import LEVEL, bootstrap_interval, holm, sign_flip_p, smallest_p
from madbench.suites import MAD

LANGUAGE_COLUMNS = (LOSS, "validation_loss")


@dataclass(frozen=True)
class Comparison:
    """One quantity of ``label`` minus that of the baseline: percentage points of accuracy, or nats per token."""

    label: str
    baseline: str
    quantity: str  # a task, all_tasks, loss_l5 or validation_loss
    unit: str
    n: int  # pairs: settings and seeds of a task, seeds of anything else
    seeds: int  # among the pairs
    begun: int  # pairs of which both sides are begun; those beyond n lack a job or an undiverged run
    difference: float  # mean over pairs; NaN without any, as everything below with fewer than two
    low: float
    high: float
    p: float
    p_holm: float = math.nan  # adjusted for the family, which is all rows of a table

    @property
    def verdict(self) -> str:
        """Whether the label's quantity differs from the baseline's, and in which direction."""
        if self.n < 2:
            return "single seed; excluded from tests" if self.n else "no pairs"
        if self.seeds < 2:
            return "single seed; no verdict"
        return "not significant" if self.p_holm > LEVEL else "higher" if self.difference > 0 else "lower"


@dataclass(frozen=True)
class ComparisonTable(TextTable):
    """Rows of :class:`Comparison`; see :func:`comparison_table`."""

    rows: list[Comparison]
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", "On", "Pairs", "Difference", "95% interval", "p", "Holm p", "Verdict"]
        return headings, [_text(row) for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        return [known(asdict(row)) | {"verdict": row.verdict} for row in self.rows]


def comparison_table(
    baseline: str, labels: Sequence[str], scores: pd.DataFrame, protocol: Sequence[str] = ()
) -> ComparisonTable:
    """Compares ``baseline`` with each of ``labels``; what the two do not both have is left out.

    Args:
        baseline: the label whose numbers are subtracted.
        labels: the other labels, in the order of the rows.
        scores: those of every setting (:attr:`madbench.analysis.scores.Results.setting_scores`), of one protocol.
        protocol: sentences about the protocols, which begin the caption.
    """
    scores = scores[(scores.suite == MAD.name) | scores.column.isin(LANGUAGE_COLUMNS)]
    rows = [row for label in labels for row in _comparisons(scores, baseline, label)]
    rows = [replace(row, p_holm=p) for row, p in zip(rows, holm([row.p for row in rows]))]
    return ComparisonTable(rows, " ".join([*protocol, *_sentences(baseline, rows)]))


def _comparisons(scores: pd.DataFrame, baseline: str, label: str) -> list[Comparison]:
    """A row a column, of the settings and seeds that both labels have begun; one over all tasks after these.

    Over all tasks a seed has a number where it has one for every setting of every task in ``scores``.
    """
    begun = scores[scores.done > 0]
    sides = [begun[begun.label == name] for name in (label, baseline)]
    pairs = sides[0].merge(sides[1], on=["suite", "column", "setting", "seed"], suffixes=("", "_of_baseline"))
    is_complete = (pairs.done == pairs.expected) & (pairs.done_of_baseline == pairs.expected_of_baseline)
    pairs["difference"] = (pairs.value - pairs.value_of_baseline).where(is_complete)
    by_column = pairs.set_index("seed").groupby("column", sort=False).difference
    rows = [_comparison(label, baseline, name, differences) for name, differences in by_column]
    on_tasks = pairs[pairs.suite == MAD.name]
    if (count := on_tasks.column.nunique()) > 1:
        keys = ["column", "setting"]
        asked = pd.MultiIndex.from_frame(scores.loc[scores.suite == MAD.name, keys].drop_duplicates())
        by_seed = on_tasks.pivot(index="seed", columns=keys, values="difference").reindex(columns=asked)
        of_whole_seeds = by_seed.dropna().T.groupby("column").mean().mean()
        rows.insert(count, _comparison(label, baseline, ALL_TASKS, of_whole_seeds.reindex(by_seed.index)))
    return rows


def _comparison(label: str, baseline: str, quantity: str, differences: pd.Series) -> Comparison:
    """Of ``differences`` by seed; NaN is a pair that is begun and has no number."""
    finished = differences.dropna()
    values, seeds = finished.to_numpy(), finished.index.nunique()
    estimate = float(finished.mean()), *bootstrap_interval(values), sign_flip_p(values)
    about = label, baseline, quantity, unit(quantity)
    return Comparison(*about, len(values), seeds, len(differences), *estimate)


def _sentences(baseline: str, rows: Sequence[Comparison]) -> list[str]:
    """How the rows are to be read: pairing, interval, test, family, and what so few pairs cannot show."""
    directions = {column(row.quantity).better for row in rows}
    tested = [row.n for row in rows if row.n > 1]
    sentences = {
        f"Difference: the label's mean minus that of {baseline}.": True,
        "Of tasks in percentage points, paired by setting and seed after the choice of learning rate and weight decay;"
        " All tasks: the mean over tasks, so that each counts the same, paired by seed.": "higher" in directions,
        "Of language models in nats per token, paired by seed; lower is better.": "lower" in directions,
        "Pairs n/m: of m begun, n are whole; a job is missing or every run diverged.": any(r.n < r.begun for r in rows),
        "No row has two pairs, so nothing is tested.": not tested,
    }
    shown = [sentence for sentence, is_shown in sentences.items() if is_shown]
    if not tested:
        return shown
    coverage = 1 - smallest_p(min(tested))
    limit = f"; it stays within their range and so covers at most {coverage:.0%} for {min(tested)} pairs"
    shown += [
        f"Interval: expanded percentile bootstrap over pairs, of one row alone{limit if coverage < 1 - LEVEL else ''}.",
        "p: two-sided sign-flip test over pairs, taken as independent; the smallest possible is "
        + ", ".join(f"{smallest_p(n):.2g} for {n} pairs" for n in sorted(set(tested)))
        + ".",
        f"Holm p: adjusted for the {len(tested)} p shown; significant at {LEVEL} or less, of two seeds or more.",
    ]
    enough = [n for n in range(2, 20) if len(tested) * smallest_p(n) <= LEVEL]  # for Holm's first step
    if max(tested) < min(enough, default=math.inf):
        remedy = f"in this family a row needs {enough[0]} pairs" if enough else "compare fewer labels"
        shown.append(f"With so few pairs no difference is significant, however large: {remedy}.")
    return shown


def _text(row: Comparison) -> list[str]:
    pairs = str(row.n) if row.n == row.begun else f"{row.n}/{row.begun}"
    difference = "-" if math.isnan(row.difference) else signed(row.difference, row.quantity)
    ends = [signed(end, row.quantity) for end in (row.low, row.high)]
    interval = "" if math.isnan(row.low) else f"[{', '.join(ends)}]"
    probabilities = ["" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}" for p in (row.p, row.p_holm)]
    return [row.label, heading(row.quantity), pairs, difference, interval, *probabilities, row.verdict]
