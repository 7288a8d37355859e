"""Whether what one profile shows holds under another: the order of the labels, and the direction of differences."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from madbench.analysis.agreement import DRAWS, LEAST_LABELS, Agreement, rank_correlation
from madbench.analysis.audit import agreement_text
from madbench.analysis.inference import LEAST_SEEDS, LEVEL, Sample, difference, holm
from madbench.analysis.quantities import heading, in_order, signed
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import columns_that, samples_of
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.labels.names import display_name

_MOST_TURNED = 4  # of a column, that are named in the notes


@dataclass(frozen=True)
class Pair:
    """Two labels of one column, the one with the higher mean here first."""

    label: str
    other: str
    here: float
    """Difference of their means, 0 or more."""
    p_holm: float
    """Of no difference here, adjusted for all pairs of the column; NaN where nothing is tested."""
    there: float
    """Difference of their means under the other profile."""

    @property
    def is_decided(self) -> bool:
        """Whether the labels differ significantly here."""
        return self.p_holm <= LEVEL

    @property
    def holds(self) -> bool:
        """Whether the means differ in the same direction under the other profile."""
        return self.there > 0


@dataclass(frozen=True)
class Transfer:
    """One column under two profiles."""

    column: str
    order: Agreement
    """Spearman's correlation of the labels' means."""
    pairs: Sequence[Pair]
    seeds: tuple[float, float]
    """A label, on average: here, and under the other profile."""

    @property
    def decided(self) -> list[Pair]:
        """The pairs that differ significantly here."""
        return [pair for pair in self.pairs if pair.is_decided]

    @property
    def turned(self) -> list[Pair]:
        """Those of :attr:`decided` whose means do not differ in the same direction under the other profile."""
        return [pair for pair in self.decided if not pair.holds]


def transfer(here: Results, there: Results) -> list[Transfer]:
    """Every column that two labels have in both, each of one protocol a suite; a seed counts once all of it is done."""
    ours, theirs = (
        samples_of(columns_that(each.scores, lambda column: column.is_attributed)) for each in (here, there)
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


def _pairs(here: Mapping[str, Sample], there: Mapping[str, Sample]) -> list[Pair]:
    ordered = sorted(here, key=lambda label: -here[label].mean)
    every = [*itertools.combinations(ordered, 2)]
    differences = [difference(here[label], here[other]) for label, other in every]
    adjusted = holm([each.p for each in differences])
    of_both = zip(every, differences, adjusted)
    return [Pair(*pair, ours.estimate, p, there[pair[0]].mean - there[pair[1]].mean) for pair, ours, p in of_both]


def transfer_table(here: Results, there: Results, name: str) -> Listing:
    """:func:`transfer` as a table, a column of the results a row; ``name`` is the other profile's.

    Raises ``StoreError`` where no column has two labels in both.
    """
    rows = transfer(here, there)
    if not rows:
        raise StoreError(f"{here.store.root}: no two labels have a whole seed of the same column here and under {name}")
    headings = ["Column", "Labels", "Order", "Seeds", "Pairs", "Differ", "Hold", "Turned"]
    lines = []
    for row in rows:
        decided, turned = len(row.decided), len(row.turned)
        seeds = ":".join(f"{count:.3g}" for count in row.seeds)
        counts = [str(len(row.pairs)), str(decided), str(decided - turned), str(turned)]
        lines.append([heading(row.column), str(row.order.labels), agreement_text(row.order), seeds, *counts])
    caption = (
        f"Order: Spearman's correlation with the labels' means under {name}, with [95%]. Differ: pairs of labels that"
        " differ significantly here; they hold where the means differ in the same direction there, and are turned"
        f" where they do not. {here.origin()}"
    )
    sides = [f"Here: {' '.join(here.sentences())}", f"There: {' '.join([*there.sentences(), there.origin()])}"]
    notes = (
        f"Correlations over {LEAST_LABELS} labels or more; intervals: {DRAWS:,} bootstraps over labels. Seeds of a"
        f" label: here:there. Significant: p of {LEVEL} or less, after Holm for all pairs of a column; nothing is"
        f" tested with fewer than {LEAST_SEEDS} seeds. Whether a turned pair differs significantly there is not tested."
    )
    turned = "; ".join(f"{heading(row.column)} {_turned_text(row)}" for row in rows if row.turned)
    notes = " ".join([*sides, notes, *([f"Turned: {turned}."] if turned else [])])
    cells = [_record(row) for row in rows]
    return Listing(rows, headings, lines, cells, caption.strip(), notes, "tab:transfer", "%s")


def _turned_text(row: Transfer) -> str:
    """The turned pairs of a column, those first whose difference here is the largest."""
    pairs = sorted(row.turned, key=lambda pair: -pair.here)
    texts = [
        f"{display_name(pair.label)} above {display_name(pair.other)}"
        f" ({signed(pair.here, row.column)} here, {signed(pair.there, row.column)} there)"
        for pair in pairs[:_MOST_TURNED]
    ]
    more = f", and {len(pairs) - _MOST_TURNED} more" if len(pairs) > _MOST_TURNED else ""
    return ", ".join(texts) + more


def _record(row: Transfer) -> dict[str, Any]:
    order = row.order
    record: dict[str, Any] = {"column": row.column, "labels": order.labels, "seeds": row.seeds[0]}
    record |= {"seeds_there": row.seeds[1], "order": order.value, "order_low": order.low, "order_high": order.high}
    record |= {"pairs": len(row.pairs), "differ": len(row.decided), "hold": len(row.decided) - len(row.turned)}
    named = [f"{pair.label} > {pair.other}" for pair in row.turned]
    return without_nan(record | {"turned": len(row.turned), "turned_pairs": ", ".join(named) or None})
