"""What the columns of a profile are worth: how far seeds agree, how many labels say nothing, what they predict."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.analysis.agreement import DRAWS, LEAST_LABELS, Agreement, intraclass_correlation, rank_correlation
from madbench.analysis.inference import LEAST_SEEDS, UNLEARNED_SHARE, Sample
from madbench.analysis.quantities import averages_of, heading, in_order, is_average, parts_of, suite_of_column
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import columns_that, samples_of
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.suites import Suite, default_headline
from madbench.suites.published import published_numbers

RELIABLE = 0.9
"""Of a mean over seeds: the share of its variance that is the label's, at which seeds are enough."""
REDUNDANT = 0.9
"""Rank correlation with a column that is kept, from which on another one adds little."""
MOST_LEVEL = 0.5
"""Share of labels that may be level, at what a heuristic answers or at the ceiling, in a column that is kept."""


@dataclass(frozen=True)
class ColumnAudit:
    """One column under one protocol; shares are of the labels, and NaN where they mean nothing."""

    column: str
    labels: int
    seeds: float
    """A label, on average."""
    reliability: Agreement
    """ICC(1) over seeds: the share of the variance of a run that is its label's."""
    at_chance: float
    at_heuristic: float
    solved: float
    """By every seed."""
    split: float
    """Solved by some seeds and not by others."""
    seconds: float
    """Of training a seed of a label."""
    correlations: Mapping[str, Agreement]
    """With the other columns, of which it is no part."""
    published: Agreement
    """With its own published column."""
    outcome: Agreement
    """With the published column of another suite, such as the loss of a language model."""
    judged: Agreement
    """As ``published``, without the labels on which the settings were chosen; without a number where there are none."""

    @property
    def tells_apart(self) -> bool:
        """True if seeds agree about the labels: the interval of :attr:`reliability` lies above 0."""
        return self.reliability.low > 0

    @property
    def bits(self) -> float:
        """Information of a run about its label, 0 if none: the capacity of a Gaussian channel of this reliability."""
        if math.isnan(self.reliability.value):
            return math.nan
        share = min(self.reliability.value, 1 - 1e-9) if self.tells_apart else 0.0
        return abs(math.log2(1 - share)) / 2

    @property
    def seconds_per_bit(self) -> float:
        """NaN where a run says nothing."""
        return self.seconds / self.bits if self.bits else math.nan

    @property
    def seeds_needed(self) -> int | None:
        """For a mean that is :data:`RELIABLE`, by Spearman and Brown's formula; None where seeds do not agree.

        It is about the order of these labels. A difference of two needs ``LEAST_SEEDS`` of each at least.
        """
        share = self.reliability.value
        if not self.tells_apart:
            return None
        return max(1, math.ceil(RELIABLE / (1 - RELIABLE) * (1 - share) / share - 1e-9))

    @property
    def nearest(self) -> str:
        """The column that orders the labels most like this one; empty for none."""
        agreements = self.correlations.items()
        numbers = {name: abs(agreement.value) for name, agreement in agreements if not math.isnan(agreement.value)}
        return max(numbers, key=numbers.__getitem__) if numbers and not is_average(self.column) else ""


def audit(results: Results) -> list[ColumnAudit]:
    """An audit of every column of what is stored, of one protocol a suite; averages with their tasks."""
    samples_by_column = samples_of(columns_that(results.scores, lambda column: column.is_attributed))
    means = {
        name: {label: sample.mean for label, sample in samples_by_column[name].items()}
        for name in in_order(samples_by_column)
    }
    seconds, published = _seconds(results), published_columns(results)
    chosen, rows = _chosen_labels(results), []
    for name, ours in means.items():
        of_suite = chosen.get(suite_of_column(name), frozenset())
        samples, tasks = list(samples_by_column[name].values()), _tasks_of(name)
        tested = [sample for sample in samples if sample.has_threshold]
        rows.append(
            ColumnAudit(
                column=name,
                labels=len(samples),
                seeds=sum(sample.n for sample in samples) / len(samples),
                reliability=intraclass_correlation([sample.values for sample in samples]),
                at_chance=_share([_is_unlearned(sample, sample.scale.chance) for sample in tested]),
                at_heuristic=_share([_is_unlearned(sample, sample.scale.heuristic) for sample in tested]),
                solved=_share([sample.solved == sample.n for sample in tested]),
                split=_share([0 < sample.solved < sample.n for sample in tested]),
                seconds=sum(seconds.get(task, math.nan) for task in tasks),
                correlations={
                    other: rank_correlation(ours, theirs)
                    for other, theirs in means.items()
                    if other not in (name, *tasks, *averages_of(name))
                },
                published=rank_correlation(ours, published.get(name, {})),
                outcome=rank_correlation(ours, published.get(outcome_column(name), {})),
                judged=rank_correlation(
                    {label: mean for label, mean in ours.items() if of_suite and label not in of_suite},
                    published.get(name, {}),
                ),
            )
        )
    return rows


def audit_table(results: Results) -> Listing:
    """:func:`audit` as a table, a column of the results a row; ``StoreError`` where no label has a whole seed."""
    rows, published = audit(results), published_columns(results)
    if not rows:
        raise StoreError(
            f"{results.store.root}: no label has a seed of which all runs are done; madbench ls sweeps says why"
        )
    outcomes = list(dict.fromkeys(name for row in rows if published.get(name := outcome_column(row.column))))
    outcome = heading(outcomes[0]) if len(outcomes) == 1 else "Outcome"
    of_outcome = "the published one" if len(outcomes) == 1 else f"the published {' or '.join(map(heading, outcomes))}"
    headings = ["Column", "ICC", "Heur.", "Solved", "Split", "Published", outcome, "Near", "s/bit", "Seeds"]
    theirs = {
        (row.column, name): rank_correlation(published[row.column], published[name])
        for row in rows
        if published.get(name := outcome_column(row.column)) and row.column in published
    }
    own = [
        f"{heading(name)} {agreement_text(correlation)} with {heading(other)}"
        for (name, other), correlation in theirs.items()
    ]
    reasons = left_out(rows)
    texts = {row.column: agreement_text(row.reliability).replace("+", "") for row in rows}
    shares = [f"{heading(name)} {text}" for name, text in texts.items() if text]
    parts = {
        f"{_counted(rows)}; correlations are Spearman's over labels with [95%].": True,
        f"ICC with [95%]: {'; '.join(shares)}.": shares,
        f"{outcome}: with {of_outcome}.": outcomes,
        f"Worth keeping, with the seeds that order these labels: {_listed(rows, reasons)}.": True,
        f"A difference of two labels needs {LEAST_SEEDS} seeds of each or more.": True,
    }
    notes = (
        "ICC: share of the variance of a run that is its label's. Heur.: labels within"
        f" {UNLEARNED_SHARE:.0%} of what the best answer without context gives. Solved: by every seed; split: by"
        " some seeds. Near: the other column whose order is the most similar or opposite. s/bit: seconds of training"
        " for each bit that a run says of its label, -log2(1 - ICC) / 2. Seeds: for means over seeds that order"
        f" these labels, {RELIABLE:.0%} of their variance being the labels' own; neither where the interval of the ICC"
        f" reaches 0. Not worth keeping: more than {MOST_LEVEL:.0%} of the labels"
        f" at the heuristic or solved, or a correlation of {REDUNDANT} with a column of cheaper bits. Intervals:"
        f" {DRAWS:,} bootstraps over labels."
    )
    notes += f" Published columns with each other: {'; '.join(own)}." if own else ""
    chosen = frozenset().union(*_chosen_labels(results).values()).intersection(results.labels)
    parts[f"{results.origin()} {len(chosen)} of these labels had part in that." if chosen else results.origin()] = True
    judged = [f"{heading(row.column)} {text}" for row in rows if (text := agreement_text(row.judged))]
    notes += f" Published, over the labels without a part in choosing: {'; '.join(judged)}." if judged else ""
    lines = [_line(row) for row in rows]
    caption = " ".join(text for text, is_shown in parts.items() if is_shown)
    records = [_record(row, reasons, theirs) for row in rows]
    notes = " ".join([*results.sentences(), notes])
    return Listing(rows, headings, lines, records, caption, notes, "tab:audit", "%s")


def left_out(rows: Sequence[ColumnAudit]) -> dict[str, str]:
    """By column why a study can do without it, empty for one to keep; averages apart, the cheapest bits first."""
    reasons: dict[str, str] = {}
    columns = [row for row in rows if not is_average(row.column)]
    for row in sorted(columns, key=lambda row: (math.isnan(row.seconds_per_bit), row.seconds_per_bit)):
        near = {name: row.correlations[name].value for name, why in reasons.items() if not why}
        like = [name for name, value in near.items() if value >= REDUNDANT]
        checks = {
            "most labels are at the heuristic": row.at_heuristic > MOST_LEVEL,
            "most labels solve it": row.solved > MOST_LEVEL,
            f"needs {LEAST_LABELS} labels with two seeds each": math.isnan(row.reliability.value),
            "seeds do not agree": row.seeds_needed is None,
            f"ordered as {' and '.join(map(heading, like))}": like,
        }
        reasons[row.column] = next((why for why, is_so in checks.items() if is_so), "")
    return {row.column: reasons[row.column] for row in columns}


def published_columns(results: Results) -> dict[str, dict[str, float]]:
    """The published numbers of the rows by column and label, whatever the size of the profile."""
    numbers: dict[str, dict[str, float]] = {}
    for row in results.experiment.rows:
        for name, number in published_numbers(row.protocol, row.row.label, shows_always=True).items():
            numbers.setdefault(name, {})[row.name] = number
    return numbers


def outcome_column(name: str) -> str:
    """The first headline of the suites that run by default other than the column's own: what it should predict."""
    own = suite_of_column(name)
    return next((other for other in default_headline() if suite_of_column(other) is not own), "")


def _chosen_labels(results: Results) -> dict[Suite | None, frozenset[str]]:
    """By suite the labels on which the settings of its profile were chosen."""
    return {suite: results.rows(suite)[0].protocol.profile.chosen_labels() for suite in results.suites}


def _seconds(results: Results) -> dict[str, float]:
    """By task how long one seed of a label trains, over all settings and rates."""
    totals: dict[str, float] = defaultdict(float)
    pairs: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for suite in results.suites:
        for run in results.runs(suite):
            totals[run.job.task] += run.details.get("seconds", math.nan)
            pairs[run.job.task].add((run.row, run.job.seed))
    return {task: total / len(pairs[task]) for task, total in totals.items()}


def _tasks_of(name: str) -> tuple[str, ...]:
    """The tasks whose runs a column is of."""
    suite = suite_of_column(name)
    return parts_of(name) or ((name,) if suite is None or name in suite.tasks() else tuple(suite.tasks()))


def _is_unlearned(sample: Sample, line: float) -> bool:
    """Whether a mean is within :data:`UNLEARNED_SHARE` of the way from ``line`` to the ceiling; never of NaN."""
    return sample.mean <= line + UNLEARNED_SHARE * (sample.scale.ceiling - line)


def _share(which: Sequence[bool]) -> float:
    return sum(which) / len(which) if which else math.nan


def _counted(rows: Sequence[ColumnAudit]) -> str:
    labels, seeds = max(row.labels for row in rows), max(row.seeds for row in rows)
    per_label = f"{seeds:.3g} {'seed' if seeds == 1 else 'seeds'}"
    if seeds % 1 > 0:
        per_label += " on average"
    return f"{labels} {'label' if labels == 1 else 'labels'}, {per_label}"


def _listed(rows: Sequence[ColumnAudit], reasons: Mapping[str, str]) -> str:
    """Which columns to keep, and why not the others."""
    texts = {row.column: f"{heading(row.column)} ({reasons.get(row.column) or row.seeds_needed})" for row in rows}
    keep, others = ([texts[name] for name, why in reasons.items() if bool(why) is x] for x in (False, True))
    return (", ".join(keep) or "none") + (f"; not {', '.join(others)}" if others else "")


def _line(row: ColumnAudit) -> list[str]:
    nearest = f"{heading(row.nearest)} {row.correlations[row.nearest].value:+.2f}" if row.nearest else ""
    shares = [_percent(share) for share in (row.at_heuristic, row.solved, row.split)]
    correlations = [agreement_text(row.published), agreement_text(row.outcome), nearest]
    icc = "" if math.isnan(row.reliability.value) else f"{row.reliability.value:.2f}"
    cost = row.seconds_per_bit
    per_bit = "" if math.isnan(cost) else f"{cost:.{int(cost < 100)}f}"
    return [heading(row.column), icc, *shares, *correlations, per_bit, str(row.seeds_needed or "-")]


def agreement_text(agreement: Agreement) -> str:
    """``+0.38 [+.01,+.67]``; empty without a number."""
    if math.isnan(agreement.value):
        return ""
    low, high = (f"{end + 0.0:+.2f}".replace("0.", ".").replace("1.00", "1") for end in (agreement.low, agreement.high))
    return f"{agreement.value + 0.0:+.2f} [{low},{high}]"


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _record(
    row: ColumnAudit, reasons: Mapping[str, str], theirs: Mapping[tuple[str, str], Agreement]
) -> dict[str, Any]:
    name, outcome = row.column, outcome_column(row.column)
    record = {"column": name, "labels": row.labels, "seeds": row.seeds, **_numbers("icc", row.reliability)}
    shares = ("at_chance", "at_heuristic", "solved", "split")
    record |= {f"share_{share}": getattr(row, share) for share in shares}
    record |= {"seconds": row.seconds, "bits": row.bits, "seconds_per_bit": row.seconds_per_bit}
    record |= {"seeds_needed": row.seeds_needed, "nearest": row.nearest or None}
    is_kept = not reasons[name] if name in reasons else None
    record |= {"is_kept": is_kept, "left_out": reasons.get(name) or None, "outcome": outcome or None}
    record |= _numbers("published", row.published) | _numbers("outcome_correlation", row.outcome)
    record |= _numbers("judged", row.judged) | {"judged_labels": row.judged.labels or None}
    record |= _numbers("published_with_outcome", theirs.get((name, outcome), Agreement()))
    for other, correlation in row.correlations.items():
        record |= _numbers(f"with_{other}", correlation)
    return without_nan(record)


def _numbers(name: str, agreement: Agreement) -> dict[str, float]:
    return {name: agreement.value, f"{name}_low": agreement.low, f"{name}_high": agreement.high}
