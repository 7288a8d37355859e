"""Two labels compared: paired differences of their runs, how sure they are, and what may be claimed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.rendering import TextTable
from madbench.analysis.statistics import LEVEL, bootstrap_interval, holm, sign_flip_p, smallest_p
from madbench.analysis.tables import HEADINGS

ALL_TASKS = "all_tasks"
LOSSES = ("loss_l5", "validation_loss")

_HEADINGS = HEADINGS | {ALL_TASKS: "All tasks", "loss_l5": "L5 loss", "validation_loss": "Val loss"}


@dataclass(frozen=True)
class Comparison:
    """One quantity of ``label`` minus that of the baseline: percentage points of accuracy, or nats per token."""

    label: str
    quantity: str
    """A MAD task, ``all_tasks``, ``loss_l5`` or ``validation_loss``."""
    n: int
    """Pairs: settings and seeds of a task, seeds of anything else."""
    seeds: int
    """Seeds among the pairs."""
    begun: int
    """Pairs of which both sides are begun; those beyond ``n`` lack a job or an undiverged run."""
    difference: float
    """Mean over pairs; NaN without any, as everything below with fewer than two."""
    low: float
    high: float
    p: float
    p_holm: float = math.nan
    """``p`` adjusted for the family, which is all rows of a table."""

    @property
    def verdict(self) -> str:
        """What may be claimed of the label's quantity against the baseline's."""
        if self.n < 2:
            return "one pair: no claim" if self.n else "no pairs"
        if self.seeds < 2:
            return "one seed: no claim"
        if self.p_holm > LEVEL:
            return "not told apart"
        return "higher" if self.difference > 0 else "lower"


@dataclass(frozen=True)
class ComparisonTable(TextTable):
    """Rows of :class:`Comparison`; see :func:`comparison_table`."""

    baseline: str
    rows: list[Comparison]
    caption: str

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        headings = ["Label", "On", "Pairs", "Difference", "95% interval", "p", "Holm p", "Verdict"]
        return headings, [_text(row) for row in self.rows]

    def records(self) -> list[dict[str, Any]]:
        records = []
        for row in self.rows:
            unit = "nats_per_token" if row.quantity in LOSSES else "points"
            numbers = {name: getattr(row, name) for name in ("difference", "low", "high", "p", "p_holm")}
            numbers = {name: None if math.isnan(value) else value for name, value in numbers.items()}
            records.append(
                {"label": row.label, "baseline": self.baseline, "quantity": row.quantity, "unit": unit}
                | {"n": row.n, "seeds": row.seeds, "begun": row.begun, **numbers, "verdict": row.verdict}
            )
        return records


def comparison_table(
    baseline: str,
    labels: Sequence[str],
    settings: pd.DataFrame | None = None,
    losses: pd.DataFrame | None = None,
    protocol: Sequence[str] = (),
) -> ComparisonTable:
    """Compares ``baseline`` with each of ``labels``; what the two do not both have is left out.

    Args:
        baseline: the label whose numbers are subtracted.
        labels: the other labels, in the order of the rows.
        settings: :func:`madbench.analysis.scores.setting_scores` of one protocol.
        losses: :func:`madbench.analysis.loss_curves.run_losses` of one protocol.
        protocol: sentences about the protocols, which begin the caption.
    """
    rows = []
    for label in labels:
        if settings is not None:
            rows += _on_tasks(settings, baseline, label)
        if losses is not None:
            rows += _on_losses(losses, baseline, label)
    adjusted = holm([row.p for row in rows])
    rows = [replace(row, p_holm=p) for row, p in zip(rows, adjusted)]
    return ComparisonTable(baseline, rows, " ".join([*protocol, *_sentences(baseline, rows)]))


def _on_tasks(settings: pd.DataFrame, baseline: str, label: str) -> list[Comparison]:
    """A row a task, and one over all of them, of the settings and seeds that both labels have begun.

    Over all tasks a seed has a number where it has one for every setting of every task in ``settings``.
    """
    begun = settings[settings.done > 0]
    pairs = _pairs(begun, ["task", "setting", "seed"], baseline, label)
    complete = (pairs.done == pairs.expected) & (pairs.done_of_baseline == pairs.expected_of_baseline)
    difference = pairs.accuracy - pairs.accuracy_of_baseline
    pairs = pairs.assign(difference=difference.where(complete))[["task", "setting", "seed", "difference"]]
    by_task = dict(list(pairs.set_index("seed").groupby("task", sort=False)))
    rows = [_comparison(label, task, of_task.difference) for task, of_task in by_task.items()]
    if len(by_task) > 1:
        asked = pd.MultiIndex.from_frame(settings[["task", "setting"]].drop_duplicates())
        by_seed = pairs.pivot(index="seed", columns=["task", "setting"], values="difference").reindex(columns=asked)
        of_whole_seeds = by_seed.dropna().T.groupby("task").mean().mean()
        rows.append(_comparison(label, ALL_TASKS, of_whole_seeds.reindex(by_seed.index)))
    return rows


def _on_losses(losses: pd.DataFrame, baseline: str, label: str) -> list[Comparison]:
    pairs = _pairs(losses, ["seed"], baseline, label).set_index("seed")
    return [_comparison(label, name, pairs[name] - pairs[f"{name}_of_baseline"]) for name in LOSSES if len(pairs)]


def _pairs(frame: pd.DataFrame, keys: list[str], baseline: str, label: str) -> pd.DataFrame:
    """The rows of ``label`` beside those of ``baseline`` with the same ``keys``, whose columns end in _of_baseline."""
    of_label, of_baseline = (frame[frame.label == name] for name in (label, baseline))
    return of_label.merge(of_baseline, on=keys, suffixes=("", "_of_baseline"))


def _comparison(label: str, quantity: str, differences: pd.Series) -> Comparison:
    """Of ``differences`` by seed; NaN is a pair that is begun and has no number."""
    known = differences.dropna()
    values, seeds = known.to_numpy(), known.index.nunique()
    interval, p = bootstrap_interval(values), sign_flip_p(values)
    return Comparison(label, quantity, len(known), seeds, len(differences), float(known.mean()), *interval, p)


def _sentences(baseline: str, rows: Sequence[Comparison]) -> list[str]:
    """How the rows are to be read: pairing, interval, test, family, and what so few pairs can say at all."""
    on_tasks = any(row.quantity not in LOSSES for row in rows)
    on_losses = any(row.quantity in LOSSES for row in rows)
    sentences = [f"Difference: the label's mean minus that of {baseline}."]
    if on_tasks:
        sentences.append(
            "Of MAD tasks in percentage points, paired by setting and seed after the choice of learning rate and weight"
            " decay; All tasks: the mean over tasks, so that each counts the same, paired by seed."
        )
    if on_losses:
        sentences.append("Of the language model in nats per token, paired by seed; of its losses lower is better.")
    if any(row.n < row.begun for row in rows):
        sentences.append("Pairs n/m: of m begun, those with a job missing or nothing but diverged runs are left out.")
    tested = [row.n for row in rows if row.n > 1]
    if not tested:
        return [*sentences, "One pair is no repetition: nothing is claimed."]
    fewest = min(tested)
    coverage = 1 - smallest_p(fewest)
    smallest = ", ".join(f"{smallest_p(n):.2g} for {n} pairs" for n in sorted(set(tested)))
    limit = f"; it stays within their range and so covers at most {coverage:.0%} for {fewest} pairs"
    sentences += [
        f"Interval: expanded percentile bootstrap over pairs, of one row alone{limit if coverage < 0.95 else ''}.",
        f"p: two-sided sign-flip test over pairs, taken as independent; the smallest possible is {smallest}.",
        f"Holm p: adjusted for the family, the {len(tested)} p shown; {LEVEL} or less of two seeds or more is a claim.",
    ]
    if len(tested) * smallest_p(max(tested)) > LEVEL:  # Holm's first step
        needed = next((n for n in range(2, 20) if len(tested) * smallest_p(n) <= LEVEL), None)
        remedy = f"in this family a row needs {needed} pairs" if needed else "compare fewer labels"
        sentences.append(f"So few pairs cannot tell apart a difference, however large: {remedy}.")
    return sentences


def _text(row: Comparison) -> list[str]:
    digits = 3 if row.quantity in LOSSES else 1
    pairs = str(row.n) if row.n == row.begun else f"{row.n}/{row.begun}"
    difference = "-" if math.isnan(row.difference) else f"{row.difference:+.{digits}f}"
    interval = "" if math.isnan(row.low) else f"[{row.low:+.{digits}f}, {row.high:+.{digits}f}]"
    probabilities = ["" if math.isnan(p) else "<0.001" if p < 0.001 else f"{p:.3f}" for p in (row.p, row.p_holm)]
    return [row.label, _HEADINGS[row.quantity], pairs, difference, interval, *probabilities, row.verdict]
