"""The table of factor effects: a contrast a row, a quantity a column, the significant interactions below."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import pandas as pd

from madbench.analysis.attribution import Effect, Estimate, Interaction, attribute, measured_values
from madbench.analysis.quantities import column, heading, in_order, unit, with_interval
from madbench.analysis.rendering import TextTable, known
from madbench.analysis.statistics import LEVEL


@dataclass(frozen=True)
class AttributionTable(TextTable):
    """Effects and interactions by quantity; see :func:`attribution_table`."""

    effects: list[Effect]
    interactions: list[Interaction]
    shows_pairs: bool
    """Whether the text has a row a pair; the records have it anyway."""
    caption: str

    @property
    def quantities(self) -> list[str]:
        """The columns: those of which there is a pair, losses last."""
        return in_order(effect.quantity for effect in self.effects)

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        lines = []
        for contrast in sorted({effect.contrast for effect in self.effects}):
            effects = {one.quantity: one for one in self.effects if one.contrast == contrast}
            estimates = {quantity: effect.estimate for quantity, effect in effects.items()}
            lines.append(self._line(contrast.name, estimates, [len(effect.pairs) for effect in effects.values()]))
            pairs = dict.fromkeys(pair for one in effects.values() for pair in one.pairs if self.shows_pairs)
            for pair in pairs:
                of_pair = {quantity: one.pairs[pair] for quantity, one in effects.items() if pair in one.pairs}
                lines.append(self._line(f"  {pair[0]} - {pair[1]}", of_pair, []))
        larger: dict[tuple, dict[str, Interaction]] = {}
        for one in self.interactions:
            if one.estimate.is_significant:
                larger.setdefault((one.first, one.second), {})[one.quantity] = one
        for _, found in sorted(larger.items()):
            estimates = {quantity: one.estimate for quantity, one in found.items()}
            name = next(one.name for one in found.values())
            lines.append(self._line(name, estimates, [len(one.squares) for one in found.values()]))
        return ["Factor", *map(heading, self.quantities), "Pairs", "n"], lines

    def _line(self, name: str, estimates: dict[str, Estimate], counts: Sequence[int]) -> list[str]:
        cells = [estimate_text(estimates[name], name) if name in estimates else "" for name in self.quantities]
        return [name, *cells, _range(counts), _range([estimate.seeds for estimate in estimates.values()])]

    def records(self) -> list[dict[str, Any]]:
        """Kinds: ``effect``, ``pair`` of the effect before it, ``interaction``, whatever its p-value."""
        nothing = {"second": None, "given": None, "without": None}
        records = []
        for one in self.effects:
            shared = {"contrast": one.contrast.name, **nothing}
            records.append({"kind": "effect", **shared, "pairs": len(one.pairs)} | _numbers(one.estimate, one.quantity))
            for (given, without), estimate in one.pairs.items():
                pair = {"given": given, "without": without, "pairs": 1}
                records.append({"kind": "pair", **shared, **pair} | _numbers(estimate, one.quantity))
        for one in self.interactions:
            shared = {"contrast": one.first.name, **nothing, "second": one.second.name, "pairs": len(one.squares)}
            records.append({"kind": "interaction", **shared} | _numbers(one.estimate, one.quantity))
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
    effects, interactions = attribute(values)
    caption = " ".join([*protocol, *_sentences(effects, interactions, left_out, shows_pairs)])
    return AttributionTable(effects, interactions, shows_pairs, caption)


def left_out_sentences(count: int) -> list[str]:
    """A sentence where results were left out."""
    return [f"{count} results of a label, task and seed are left out: unfinished, or diverged."] if count else []


def _sentences(
    effects: Sequence[Effect], interactions: Sequence[Interaction], left_out: int, shows_pairs: bool
) -> list[str]:
    """How the rows are to be read: effect, interval, significance, interactions, and what is left out."""
    has_losses = any(column(effect.quantity).better == "lower" for effect in effects)
    less = "; of L5 in nats per token, where less is better" if has_losses else ""
    sentences = [
        "Effect: the first label's number less the second's, paired by seed, mean over all stored pairs of labels that"
        f" differ in this factor alone; in percentage points{less}."
    ]
    if any(len(effect.pairs) > 1 for effect in effects):
        sentences.append(
            "±: half of the 95% interval, Student's t over pairs with the variance moderated by the other factors' (as"
            " four more pairs); of one pair the wider of this and the interval over its seeds."
        )
    if any(math.isnan(effect.estimate.p) and not math.isnan(effect.estimate.low) for effect in effects):
        sentences.append(
            "Where no factor has two pairs, ± is half of the 95% interval over the seeds of one pair: of that pair"
            " alone, and excluded from tests."
        )
    if shows_pairs:
        sentences.append("Of a pair, ± is over its seeds.")
    shown = [effect.estimate for effect in effects]
    shown += [estimate for effect in effects for estimate in effect.pairs.values() if shows_pairs]
    if any(math.isnan(estimate.low) for estimate in shown):
        sentences.append("In brackets: one pair of a single seed, or zero variance; no interval, excluded from tests.")
    sentences.append(f"*: p of at most {LEVEL} after Holm over the factors of the column.")
    return [*sentences, _of_interactions(interactions), *left_out_sentences(left_out)]


def _of_interactions(interactions: Sequence[Interaction]) -> str:
    if not interactions:
        return "No interactions: of no two factors are all four combinations stored with two seeds."
    tested = len({(interaction.first, interaction.second) for interaction in interactions})
    if not any(interaction.estimate.is_significant for interaction in interactions):
        return f"Interactions of two factors tested: {tested}; none is significant."
    return (
        "a x b: by how much more a is worth where b is given, mean over the stored sets of four labels, which Pairs"
        f" counts. Interactions tested: {tested}; shown are the significant ones (Welch's t over seeds, Holm over the"
        " column)."
    )


def estimate_text(estimate: Estimate, quantity: str) -> str:
    """``+12.3 ±4.1*``; in brackets where there is no interval."""
    return with_interval(estimate.difference, estimate.high, quantity) + "*" * estimate.is_significant


def _range(counts: Iterable[int]) -> str:
    """``3``, or ``3-4`` where the columns differ."""
    return "-".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


def _numbers(estimate: Estimate, quantity: str) -> dict[str, Any]:
    return {"quantity": quantity, "unit": unit(quantity)} | known(asdict(estimate))
