"""The audit of a profile: how well each column of its table ranks labels, and whether the column is worth its time.

For each column, the audit has the agreement of the seeds, the shares of labels that do not learn and that solve the
task, and rank correlations with other columns and with published numbers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.analysis.agreement import DRAWS, LEAST_LABELS, Agreement, intraclass_correlation, rank_correlation
from madbench.analysis.inference import UNLEARNED_SHARE, Sample
from madbench.analysis.quantities import averages_of, heading, in_order, is_average, parts_of, suite_of_column
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of, select_columns
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.store.results_folder import command_on
from madbench.suites import Suite, default_headline
from madbench.suites.planning import LEAST_SEEDS
from madbench.suites.published import published_numbers

RELIABLE = 0.9
"""The reliability that the means of labels over seeds must have: the share of the variance of these means that is due
to the labels."""
REDUNDANT = 0.9
"""A column is redundant if its rank correlation with a cheaper column that is kept is at least this."""
MOST_LEVEL = 0.5
"""A column is not worth keeping if more than this share of the labels solves its task, or if more than this share is
not better than the best answer that ignores the context."""


@dataclass(frozen=True)
class ColumnAudit:
    """The audit of one column under one protocol.

    ``at_chance`` is the share of labels that are not better than a random guess. A label is better if its mean exceeds
    the score of a guess by more than the share ``UNLEARNED_SHARE`` of the distance from this score to the best score
    that the data allow. ``at_heuristic`` is the share of labels that are not better, in the same sense, than the best
    answer that ignores the context.

    ``at_chance``, ``at_heuristic``, ``solved`` and ``split`` are from 0 to 1. They are NaN if it is not known which
    score solves the task of the column, as for averages.
    """

    column: str
    labels: int
    seeds: float
    """The mean number of seeds per label."""
    reliability: Agreement
    """ICC(1) over seeds: the share of the variance between runs that is due to their labels."""
    at_chance: float
    at_heuristic: float
    solved: float
    """The share of labels whose seeds all solve the task."""
    split: float
    """The share of labels with some seeds that solve the task and some that do not."""
    seconds: float
    """The seconds of training that one seed of a label takes in all runs from which the column is computed, as a mean
    over labels and seeds."""
    correlations: Mapping[str, Agreement]
    """The rank correlation with each other column, by the name of that column. Averages are not correlated with the
    tasks that they include."""
    published: Agreement
    """The rank correlation with the published numbers of the same column."""
    outcome: Agreement
    """The rank correlation with the published numbers of another column, such as a language model's loss, which
    :func:`outcome_column` names."""
    judged: Agreement
    """Like ``published``, but without the labels whose results were used to choose the profile's settings.

    NaN if the settings were not chosen by results of labels.
    """

    @property
    def separates_labels(self) -> bool:
        """True if seeds agree about the labels: the interval of :attr:`reliability` lies above 0."""
        return self.reliability.low > 0

    @property
    def bits(self) -> float:
        """The bits of information of a run about its label: -log2(1 - reliability) / 2, as for a Gaussian channel.

        0 if seeds do not agree about the labels (:attr:`separates_labels`). NaN if the reliability is unknown.
        """
        if math.isnan(self.reliability.value):
            return math.nan
        share = min(self.reliability.value, 1 - 1e-9) if self.separates_labels else 0.0
        return abs(math.log2(1 - share)) / 2

    @property
    def seconds_per_bit(self) -> float:
        """The seconds of training per bit of information about the label. NaN if :attr:`bits` is 0 or NaN."""
        return self.seconds / self.bits if self.bits else math.nan

    @property
    def seeds_needed(self) -> int | None:
        """The number of seeds per label that makes the reliability of the means at least :data:`RELIABLE`.

        It is computed by the Spearman-Brown formula. With this number of seeds, the order of the means is reliable. A
        test of two labels may need more, because it needs at least ``LEAST_SEEDS`` seeds of each. None if seeds do not
        agree about the labels (:attr:`separates_labels`).
        """
        share = self.reliability.value
        if not self.separates_labels:
            return None
        return max(1, math.ceil(RELIABLE / (1 - RELIABLE) * (1 - share) / share - 1e-9))

    @property
    def nearest(self) -> str:
        """The column whose rank correlation with this one has the largest absolute value.

        Empty if this column is an average, or if no correlation is known.
        """
        agreements = self.correlations.items()
        numbers = {name: abs(agreement.value) for name, agreement in agreements if not math.isnan(agreement.value)}
        return max(numbers, key=numbers.__getitem__) if numbers and not is_average(self.column) else ""


def audit(results: Results) -> list[ColumnAudit]:
    """Return the audits of the columns of ``results`` in which effects of factors are computed.

    These columns have a true :attr:`madbench.suites.columns.Column.is_attributed`. ``results`` must have one protocol
    per suite. An average comes after the tasks that it averages.
    """
    samples_by_column = samples_of(select_columns(results.scores, lambda column: column.is_attributed))
    means = {
        name: {label: sample.mean for label, sample in samples_by_column[name].items()}
        for name in in_order(samples_by_column)
    }
    seconds, published = _seconds(results), published_columns(results)
    chosen_labels, rows = _chosen_labels(results), []
    for name, ours in means.items():
        of_suite = chosen_labels.get(suite_of_column(name), frozenset())
        samples, tasks = list(samples_by_column[name].values()), _tasks_of(name)
        with_threshold = [sample for sample in samples if sample.has_threshold]
        rows.append(
            ColumnAudit(
                column=name,
                labels=len(samples),
                seeds=sum(sample.n for sample in samples) / len(samples),
                reliability=intraclass_correlation([sample.values for sample in samples]),
                at_chance=_share([_is_unlearned(sample, sample.scale.chance) for sample in with_threshold]),
                at_heuristic=_share([_is_unlearned(sample, sample.scale.heuristic) for sample in with_threshold]),
                solved=_share([sample.solved == sample.n for sample in with_threshold]),
                split=_share([0 < sample.solved < sample.n for sample in with_threshold]),
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
    """A table of how well each column of ``results`` ranks labels, one row per column.

    A row has:

    - the agreement of the seeds (ICC);
    - the shares of labels that are not better than the best answer that ignores the context, that solve the task, and
      that solve it in some seeds only;
    - the rank correlations with the published numbers of the column, with those of its outcome (:func:`outcome_column`)
      and with the nearest other column;
    - the seconds per bit, and the number of seeds needed.

    Raises ``StoreError`` if no label has a seed with all its runs done in a column.
    """
    rows, published = audit(results), published_columns(results)
    if not rows:
        why = command_on(results.store.root, "ls", "sweeps")
        raise StoreError(f"{results.store.root}: no label has a seed with all of its runs; {why} says why")
    outcomes = list(dict.fromkeys(name for row in rows if published.get(name := outcome_column(row.column))))
    theirs = {
        (row.column, name): rank_correlation(published[row.column], published[name])
        for row in rows
        if published.get(name := outcome_column(row.column)) and row.column in published
    }
    reasons = left_out(rows)
    outcome = _outcome_heading(outcomes)
    headings = ["Column", "ICC", "Heur.", "Solved", "Split", "Published", outcome, "Near", "s/bit", "Seeds"]
    return Listing(
        rows,
        headings,
        [_line(row) for row in rows],
        [_json_row(row, reasons, theirs) for row in rows],
        _caption(results, rows, outcomes, reasons),
        " ".join([*results.sentences(), *_notes(rows, theirs)]),
        "tab:audit",
        "%s",
        notes_explain=f"ICC, Heur., Split, Near, s/bit, and {Listing.notes_explain}",
    )


def _outcome_heading(outcomes: Sequence[str]) -> str:
    """The heading of the correlation with the outcome: that of the outcome column, if all columns have the same."""
    return heading(outcomes[0]) if len(outcomes) == 1 else "Outcome"


def _caption(results: Results, rows: Sequence[ColumnAudit], outcomes: Sequence[str], reasons: Mapping[str, str]) -> str:
    """The caption of the table. ``reasons`` are those of :func:`left_out`, ``outcomes`` the outcomes with numbers."""
    texts = {row.column: agreement_text(row.reliability).replace("+", "") for row in rows}
    shares = [f"{heading(name)} {text}" for name, text in texts.items() if text]
    of_outcome = "its published column" if len(outcomes) == 1 else f"published {' or '.join(map(heading, outcomes))}"
    chosen_labels = frozenset().union(*_chosen_labels(results).values()).intersection(results.labels)
    origin = results.origin()
    sentences = [
        f"{_seeds_text(rows)}. Correlations: Spearman's over labels, with [95% interval].",
        f"ICC with [95% interval]: {'; '.join(shares)}." if shares else "",
        f"{_outcome_heading(outcomes)}: correlation with {of_outcome}." if outcomes else "",
        f"Columns to keep, with the number of seeds that order these labels: {_kept_and_left(rows, reasons)}.",
        f"A difference of two labels needs at least {LEAST_SEEDS} seeds of each.",
        origin.in_caption(in_paper=True),
        origin.notes,
        f"{len(chosen_labels)} of these labels were among them." if chosen_labels else "",
    ]
    return " ".join(filter(None, sentences))


def _notes(rows: Sequence[ColumnAudit], theirs: Mapping[tuple[str, str], Agreement]) -> list[str]:
    """The sentences below the table.

    ``theirs`` has the correlations of published columns with each other, by the names of the two columns.
    """
    meanings = (
        "ICC: the share of the variance between runs that is due to their labels. Heur.: labels within"
        f" {UNLEARNED_SHARE:.0%} of the best answer that ignores the context. Solved: labels that solve the task in"
        " every seed; split: in some seeds. Near: the other column with the most similar or most opposite order. s/bit:"
        " seconds of training per bit of information about the label, -log2(1 - ICC) / 2. Seeds: the number at which"
        f" {RELIABLE:.0%} of the variance of the means is due to the labels. s/bit and Seeds are empty if the interval"
        f" of the ICC includes 0. A column is not kept if more than {MOST_LEVEL:.0%} of the labels are at the heuristic"
        f" or solve it, or if its correlation with a column of cheaper bits is at least {REDUNDANT}. Intervals:"
        f" {DRAWS:,} bootstrap draws of the labels."
    )
    notes = [meanings]
    correlations = [
        f"{heading(name)} {agreement_text(correlation)} with {heading(other)}"
        for (name, other), correlation in theirs.items()
    ]
    if correlations:
        notes.append(f"Correlations of published columns with each other: {'; '.join(correlations)}.")
    agreements = [f"{heading(row.column)} {text}" for row in rows if (text := agreement_text(row.judged))]
    if agreements:
        notes.append(f"Published, without the labels on which settings were chosen: {'; '.join(agreements)}.")
    return notes


def left_out(rows: Sequence[ColumnAudit]) -> dict[str, str]:
    """The reason why each column is not worth keeping, by column. The reason is empty for a column to keep.

    Columns are examined in the order of their seconds per bit, so the cheaper of two redundant columns is kept. The
    result lacks averages, which are not examined.
    """
    reasons: dict[str, str] = {}
    columns = [row for row in rows if not is_average(row.column)]
    for row in sorted(columns, key=lambda row: (math.isnan(row.seconds_per_bit), row.seconds_per_bit)):
        correlations = {name: row.correlations[name].value for name, reason in reasons.items() if not reason}
        redundant = [name for name, value in correlations.items() if value >= REDUNDANT]
        checks = {
            "most labels are at the heuristic": row.at_heuristic > MOST_LEVEL,
            "most labels solve it": row.solved > MOST_LEVEL,
            f"needs {LEAST_LABELS} labels with two seeds each": math.isnan(row.reliability.value),
            "seeds do not agree": row.seeds_needed is None,
            f"ordered as {' and '.join(map(heading, redundant))}": redundant,
        }
        reasons[row.column] = next((reason for reason, is_so in checks.items() if is_so), "")
    return {row.column: reasons[row.column] for row in columns}


def published_columns(results: Results) -> dict[str, dict[str, float]]:
    """The published numbers of the rows of ``results``, by the name of the column and then of the row.

    Numbers are included even if the sizes of the profile differ from those of the paper.
    """
    numbers: dict[str, dict[str, float]] = {}
    for row in results.rows:
        for name, number in published_numbers(row.protocol, row.row.label, shows_always=True).items():
            numbers.setdefault(name, {})[row.name] = number
    return numbers


def outcome_column(name: str) -> str:
    """The name of the column that the audit uses as the outcome of the column ``name``. Empty if there is none.

    The outcome is the first main column that belongs to another suite than ``name``, among the suites that are trained
    by default. For a MAD task, it is the loss of the language model. The audit measures how well the column ``name``
    predicts its outcome.
    """
    suite_here = suite_of_column(name)
    return next((other for other in default_headline() if suite_of_column(other) is not suite_here), "")


def _chosen_labels(results: Results) -> dict[Suite | None, frozenset[str]]:
    """The labels whose results were used to choose the settings of the profile, by suite.

    A suite without such labels has an empty set. Suites without a result are left out.
    """
    rows = {suite: results.rows_of(suite)[0] for suite in results.suites_with_result}
    return {suite: row.protocol.profile.loaded.chosen_labels() for suite, row in rows.items()}


def _seconds(results: Results) -> dict[str, float]:
    """The mean seconds of training per seed and label, by task. NaN if the time of a run is unknown.

    The seconds of a seed are the sum over the task's settings, learning rates and weight decays.
    """
    totals: dict[str, float] = defaultdict(float)
    pairs: dict[str, set[tuple[str, int]]] = defaultdict(set)
    for suite in results.suites_with_result:
        for run in results.runs(suite):
            totals[run.job.task] += run.details.get("seconds", math.nan)
            pairs[run.job.task].add((run.row, run.job.seed))
    return {task: total / len(pairs[task]) for task, total in totals.items()}


def _tasks_of(name: str) -> tuple[str, ...]:
    """The tasks whose runs the column ``name`` is computed from."""
    suite = suite_of_column(name)
    return parts_of(name) or ((name,) if suite is None or name in suite.tasks() else tuple(suite.tasks()))


def _is_unlearned(sample: Sample, line: float) -> bool:
    """True if the label is not better than a score that needs no learning.

    It is better if its mean exceeds this score, ``line``, by more than the share :data:`UNLEARNED_SHARE` of the
    distance from ``line`` to the ceiling, the best score that the data allow. ``line`` is the score of a random guess
    or of the best answer that ignores the context. False if a number is NaN.
    """
    return sample.mean <= line + UNLEARNED_SHARE * (sample.scale.ceiling - line)


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / len(flags) if flags else math.nan


def _seeds_text(rows: Sequence[ColumnAudit]) -> str:
    labels, seeds = max(row.labels for row in rows), max(row.seeds for row in rows)
    per_label = f"{seeds:.3g} {'seed' if seeds == 1 else 'seeds'}"
    if seeds % 1 > 0:
        per_label += " on average"
    return f"{labels} {'label' if labels == 1 else 'labels'}, {per_label}"


def _kept_and_left(rows: Sequence[ColumnAudit], reasons: Mapping[str, str]) -> str:
    """The columns to keep with their numbers of seeds, and then the columns to leave out with the reasons, as text."""
    texts = {row.column: f"{heading(row.column)} ({reasons.get(row.column) or row.seeds_needed})" for row in rows}
    keep, others = ([texts[name] for name, reason in reasons.items() if bool(reason) is x] for x in (False, True))
    return (", ".join(keep) or "none") + (f"; to leave out: {', '.join(others)}" if others else "")


def _line(row: ColumnAudit) -> list[str]:
    nearest = f"{heading(row.nearest)} {row.correlations[row.nearest].value:+.2f}" if row.nearest else ""
    shares = [_percent(share) for share in (row.at_heuristic, row.solved, row.split)]
    correlations = [agreement_text(row.published), agreement_text(row.outcome), nearest]
    icc = "" if math.isnan(row.reliability.value) else f"{row.reliability.value:.2f}"
    cost = row.seconds_per_bit
    per_bit = "" if math.isnan(cost) else f"{cost:.{int(cost < 100)}f}"
    return [heading(row.column), icc, *shares, *correlations, per_bit, str(row.seeds_needed or "-")]


def agreement_text(agreement: Agreement) -> str:
    """A correlation with its 95% interval as text, such as ``+0.38 [+.01,+.67]``. Empty if it is NaN."""
    if math.isnan(agreement.value):
        return ""
    low, high = (f"{end + 0.0:+.2f}".replace("0.", ".").replace("1.00", "1") for end in (agreement.low, agreement.high))
    return f"{agreement.value + 0.0:+.2f} [{low},{high}]"


def _percent(share: float) -> str:
    return "" if math.isnan(share) else f"{share:.0%}"


def _json_row(
    row: ColumnAudit, reasons: Mapping[str, str], theirs: Mapping[tuple[str, str], Agreement]
) -> dict[str, Any]:
    name, outcome = row.column, outcome_column(row.column)
    json_row = {"column": name, "labels": row.labels, "seeds": row.seeds, **_numbers("icc", row.reliability)}
    shares = ("at_chance", "at_heuristic", "solved", "split")
    json_row |= {f"share_{share}": getattr(row, share) for share in shares}
    json_row |= {"seconds": row.seconds, "bits": row.bits, "seconds_per_bit": row.seconds_per_bit}
    json_row |= {"seeds_needed": row.seeds_needed, "nearest": row.nearest or None}
    is_kept = not reasons[name] if name in reasons else None
    json_row |= {"is_kept": is_kept, "left_out": reasons.get(name) or None, "outcome": outcome or None}
    json_row |= _numbers("published", row.published) | _numbers("outcome_correlation", row.outcome)
    json_row |= _numbers("judged", row.judged) | {"judged_labels": row.judged.labels or None}
    json_row |= _numbers("published_with_outcome", theirs.get((name, outcome), Agreement()))
    for other, correlation in row.correlations.items():
        json_row |= _numbers(f"with_{other}", correlation)
    return without_nan(json_row)


def _numbers(name: str, agreement: Agreement) -> dict[str, float]:
    return {name: agreement.value, f"{name}_low": agreement.low, f"{name}_high": agreement.high}
