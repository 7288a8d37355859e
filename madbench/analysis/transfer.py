"""Comparison of results under two profiles, called this profile and the other profile.

The comparison shows if labels have the same order, and if differences of labels have the same direction, under both.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.analysis.agreement import DRAWS, LEAST_LABELS, Agreement, rank_correlation
from madbench.analysis.audit import agreement_text
from madbench.analysis.inference import LEVEL, Sample, difference, holm
from madbench.analysis.quantities import heading, in_order, signed_text
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of, select_columns
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.labels.names import display_name
from madbench.suites.planning import LEAST_SEEDS

_MOST_REVERSED = 4  # the largest number of pairs per column that the notes name


@dataclass(frozen=True)
class PairTransfer:
    """The difference of two labels in one column, under two profiles: this profile, and another one.

    Under this profile, the mean of ``label`` is at least that of ``other``. Under the other profile, it may be lower.
    """

    label: str
    other: str
    here: float
    """The mean of ``label`` minus that of ``other`` under this profile, at least 0, in the units of the column."""
    p_holm: float
    """The p-value of ``here``, adjusted for all pairs of the column. NaN if nothing is tested."""
    there: float
    """The mean of ``label`` minus that of ``other`` under the other profile, in the units of the column."""

    @property
    def is_decided(self) -> bool:
        """True if the labels differ significantly under this profile."""
        return self.p_holm <= LEVEL

    @property
    def holds(self) -> bool:
        """True if ``label`` has a higher mean than ``other`` under the other profile, too."""
        return self.there > 0


@dataclass(frozen=True)
class Transfer:
    """The comparison of one column of results under two profiles, called this profile and the other profile."""

    column: str
    order: Agreement
    """Spearman's rank correlation between the means of the labels under this profile and under the other profile."""
    pairs: Sequence[PairTransfer]
    seeds: tuple[float, float]
    """The mean number of seeds per label under this profile, and under the other profile."""

    @property
    def decided_pairs(self) -> list[PairTransfer]:
        """The pairs of labels that differ significantly under this profile."""
        return [pair for pair in self.pairs if pair.is_decided]

    @property
    def reversed_pairs(self) -> list[PairTransfer]:
        """The :attr:`decided_pairs` in which ``label`` has no higher mean than ``other`` under the other profile."""
        return [pair for pair in self.decided_pairs if not pair.holds]


def transfer(here: Results, there: Results) -> list[Transfer]:
    """Compare results under two profiles. Return one :class:`Transfer` per column with two common labels or more.

    ``here`` has the results under this profile, ``there`` under the other. Only columns with ``is_attributed`` are
    compared. A seed counts if all its jobs are done.
    """
    ours, theirs = (
        samples_of(select_columns(results.scores, lambda column: column.is_attributed)) for results in (here, there)
    )
    rows = []
    for name in in_order(ours.keys() & theirs.keys()):
        labels = [label for label in ours[name] if label in theirs[name]]
        if len(labels) > 1:
            of_both = [{label: samples[name][label] for label in labels} for samples in (ours, theirs)]
            means = [{label: sample.mean for label, sample in samples.items()} for samples in of_both]
            seeds = [sum(sample.n for sample in samples.values()) / len(labels) for samples in of_both]
            rows.append(Transfer(name, rank_correlation(*means), _pairs(*of_both), (seeds[0], seeds[1])))
    return rows


def _pairs(here: Mapping[str, Sample], there: Mapping[str, Sample]) -> list[PairTransfer]:
    labels = sorted(here, key=lambda label: -here[label].mean)
    all_pairs = [*itertools.combinations(labels, 2)]
    differences = [difference(here[label], here[other]) for label, other in all_pairs]
    p_holm = holm([gain.p for gain in differences])
    of_both = zip(all_pairs, differences, p_holm)
    return [
        PairTransfer(*pair, ours.estimate, p, there[pair[0]].mean - there[pair[1]].mean) for pair, ours, p in of_both
    ]


def transfer_table(here: Results, there: Results, name: str) -> Listing:
    """The comparison of results under two profiles (:func:`transfer`) as a table with one row per column.

    ``name`` is the name of the other profile. Raises ``StoreError`` if no column has two labels with a complete seed
    in both results.
    """
    rows = transfer(here, there)
    if not rows:
        raise StoreError(
            f"{here.store.root}: no two labels have a complete seed of the same column both here and under {name}"
        )
    headings = ["Column", "Labels", "Order", "Seeds", "Pairs", "Differ", "Hold", "Reversed"]
    lines = []
    for row in rows:
        decided_count, opposite = len(row.decided_pairs), len(row.reversed_pairs)
        seeds = ":".join(f"{count:.3g}" for count in row.seeds)
        counts = [str(len(row.pairs)), str(decided_count), str(decided_count - opposite), str(opposite)]
        lines.append([heading(row.column), str(row.order.labels), agreement_text(row.order), seeds, *counts])
    origin_here, origin_there = here.origin(), there.origin()
    caption = (
        f"Order: Spearman's correlation with the labels' means under {name}, with [95% interval]. Differ: pairs of"
        " labels that differ significantly here. Hold: of these, pairs that differ in the same direction there."
        f" Reversed: the others. {origin_here.in_caption(in_paper=True)}"
    )
    sides = [
        " ".join(["Here:", *here.sentences(), origin_here.notes]),
        " ".join(
            filter(None, ["There:", *there.sentences(), origin_there.in_caption(in_paper=True), origin_there.notes])
        ),
    ]
    notes = (
        f"Correlations need at least {LEAST_LABELS} labels; intervals: {DRAWS:,} bootstrap draws of the labels. Seeds:"
        f" mean number per label, here:there. Significant: p at most {LEVEL}, Holm-corrected for all pairs of a column,"
        f" with at least {LEAST_SEEDS} seeds. It is not tested whether a reversed pair differs significantly there."
    )
    reversed_texts = "; ".join(f"{heading(row.column)} {_reversed_text(row)}" for row in rows if row.reversed_pairs)
    notes = " ".join(
        [*(side.strip() for side in sides), notes, f"Reversed: {reversed_texts}." if reversed_texts else ""]
    ).strip()
    cells = [_json_row(row) for row in rows]
    return Listing(rows, headings, lines, cells, caption.strip(), notes, "tab:transfer", "%s")


def _reversed_text(row: Transfer) -> str:
    """The reversed pairs of a column as text, the pair with the largest difference under this profile first.

    Of many pairs, only the first ones are named.
    """
    pairs = sorted(row.reversed_pairs, key=lambda pair: -pair.here)
    texts = [
        f"{display_name(pair.label)} above {display_name(pair.other)}"
        f" ({signed_text(pair.here, row.column)} here, {signed_text(pair.there, row.column)} there)"
        for pair in pairs[:_MOST_REVERSED]
    ]
    and_more = f", and {len(pairs) - _MOST_REVERSED} more" if len(pairs) > _MOST_REVERSED else ""
    return ", ".join(texts) + and_more


def _json_row(row: Transfer) -> dict[str, Any]:
    order = row.order
    json_row: dict[str, Any] = {"column": row.column, "labels": order.labels, "seeds": row.seeds[0]}
    json_row |= {"seeds_there": row.seeds[1], "order": order.value, "order_low": order.low, "order_high": order.high}
    differ, opposite = len(row.decided_pairs), len(row.reversed_pairs)
    json_row |= {"pairs": len(row.pairs), "differ": differ, "hold": differ - opposite}
    reversed_names = [f"{pair.label} > {pair.other}" for pair in row.reversed_pairs]
    return without_nan(json_row | {"reversed": opposite, "reversed_pairs": ", ".join(reversed_names) or None})
