"""The table of factor effects: a contrast a row, a quantity a column, the significant interactions below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from madbench.analysis.attribution import Effect, Estimate, attribute, measured_values
from madbench.analysis.contrasts import Contrast
from madbench.analysis.quantities import column, heading, in_order, unit, with_interval
from madbench.analysis.rendering import TextTable, known
from madbench.analysis.statistics import LEVEL


@dataclass(frozen=True)
class AttributionTable(TextTable):
    """Effects and interactions by quantity; see :func:`attribution_table`."""

    effects: list[Effect]  # and interactions
    shows_pairs: bool  # whether the text has a row a pair; the records have it anyway
    caption: str

    @property
    def quantities(self) -> list[str]:
        """The columns: those of which there is a pair, losses last."""
        return in_order(effect.quantity for effect in self.effects)

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        shown: dict[tuple[Contrast, ...], dict[str, Effect]] = {}
        for one in self.effects:
            if one.estimate.is_significant or not one.is_interaction:
                shown.setdefault(one.contrasts, {})[one.quantity] = one
        lines = []
        for contrasts in sorted(shown, key=lambda contrasts: (len(contrasts), contrasts)):
            effects = shown[contrasts]
            (name, *_), counts = (one.name for one in effects.values()), [len(one.cases) for one in effects.values()]
            lines.append(self._line(name, {quantity: one.estimate for quantity, one in effects.items()}, counts))
            if self.shows_pairs and len(contrasts) == 1:
                for pair in dict.fromkeys(pair for one in effects.values() for pair in one.cases):
                    of_pair = {quantity: one.cases[pair] for quantity, one in effects.items() if pair in one.cases}
                    lines.append(self._line(f"  {pair[0]} - {pair[1]}", of_pair, []))
        return ["Factor", *map(heading, self.quantities), "Pairs", "n"], lines

    def _line(self, name: str, estimates: dict[str, Estimate], counts: Sequence[int]) -> list[str]:
        cells = [estimate_text(estimates[column], column) if column in estimates else "" for column in self.quantities]
        return [name, *cells, _range(counts), _range([estimate.seeds for estimate in estimates.values()])]

    def records(self) -> list[dict[str, Any]]:
        """Kinds: ``effect``, ``pair`` of the effect before it, ``interaction``, whatever its p-value."""
        records = []
        for one in self.effects:
            contrast, second = (*(contrast.name for contrast in one.contrasts), None)[:2]
            about = {"contrast": contrast, "second": second, "given": None, "without": None, "pairs": len(one.cases)}
            rest = {"quantity": one.quantity, "unit": unit(one.quantity)}
            kind = "interaction" if one.is_interaction else "effect"
            records.append({"kind": kind, **about, **rest, **known(asdict(one.estimate))})
            for (given, without), estimate in () if one.is_interaction else one.cases.items():
                pair = about | {"given": given, "without": without, "pairs": 1}
                records.append({"kind": "pair", **pair, **rest, **known(asdict(estimate))})
        return records


def attribution_table(
    scores: pd.DataFrame, protocol: Sequence[str] = (), shows_pairs: bool = False
) -> AttributionTable:
    """The effect of every factor on tasks, MAD average and L5, and the interactions of every two.

    Args:
        scores: those of one protocol of every suite (:mod:`madbench.analysis.scores`); a seed counts once its jobs are
            done.
        protocol: sentences about the protocols, which begin the caption.
        shows_pairs: whether the text has a row a pair as well.
    """
    values, left_out = measured_values(scores)
    effects = attribute(values)
    caption = " ".join([*protocol, *_sentences(effects, left_out, shows_pairs)])
    return AttributionTable(effects, shows_pairs, caption)


def left_out_sentences(count: int) -> list[str]:
    """A sentence where results were left out."""
    return [f"{count} results of a label, task and seed are left out: unfinished, or diverged."] if count else []


def _sentences(found: Sequence[Effect], left_out: int, shows_pairs: bool) -> list[str]:
    """How the rows are to be read: effect, interval, significance, interactions, and what is left out."""
    effects = [one for one in found if not one.is_interaction]
    estimates = [effect.estimate for effect in effects]
    shown = estimates + [estimate for effect in effects for estimate in effect.cases.values() if shows_pairs]
    tested = len({one.contrasts for one in found if one.is_interaction})
    has_larger = any(one.estimate.is_significant for one in found if one.is_interaction)
    sentences = {
        "Effect: the first label's number less the second's, paired by seed, mean over all stored pairs of labels that"
        " differ in this factor alone.": True,
        "Of tasks in percentage points.": any(column(effect.quantity).better == "higher" for effect in effects),
        "Of L5 in nats per token, where less is better.": any(
            column(one.quantity).better == "lower" for one in effects
        ),
        "±: half of the 95% interval, Student's t over pairs with the variance moderated by the other factors' (as four"
        " more pairs); of one pair the wider of this and the interval over its seeds.": any(
            len(effect.cases) > 1 for effect in effects
        ),
        "Where no factor has two pairs, ± is half of the 95% interval over the seeds of one pair: of that pair alone,"
        " and excluded from tests.": any(math.isnan(one.p) and not math.isnan(one.low) for one in estimates),
        "Of a pair, ± is over its seeds.": shows_pairs,
        "In brackets: one pair of a single seed, or zero variance; no interval, excluded from tests.": any(
            math.isnan(estimate.low) for estimate in shown
        ),
        f"*: p of at most {LEVEL} after Holm over the factors of the column.": True,
        "No interactions: of no two factors are all four combinations stored with two seeds.": not tested,
        f"Interactions of two factors tested: {tested}; none is significant.": tested and not has_larger,
        "a x b: by how much more a is worth where b is given, mean over the stored sets of four labels, which Pairs"
        f" counts. Interactions tested: {tested}; shown are the significant ones (Welch's t over seeds, Holm over the"
        " column).": has_larger,
    }
    return [text for text, is_shown in sentences.items() if is_shown] + left_out_sentences(left_out)


def estimate_text(estimate: Estimate, quantity: str) -> str:
    """``+12.3 ±4.1*``; in brackets where there is no interval."""
    star = "*" if estimate.is_significant else ""
    return with_interval(estimate.difference, estimate.high, quantity) + star


def _range(counts: Sequence[int]) -> str:
    """``3``, or ``3-4`` where the columns differ."""
    return "-".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""
