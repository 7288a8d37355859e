"""The table of factor effects: a contrast a row, a task a column, the interactions beyond the noise below."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from madbench.analysis.attribution import Effect, Estimate, Interaction, attribute
from madbench.analysis.quantities import LOSS, MAD_AVERAGE
from madbench.analysis.rendering import TextTable
from madbench.analysis.scores import with_average
from madbench.analysis.tables import HEADINGS

_HEADINGS = HEADINGS | {LOSS: "L5 loss"}


@dataclass(frozen=True)
class AttributionTable(TextTable):
    """Effects and interactions by task; see :func:`attribution_table`."""

    effects: list[Effect]
    interactions: list[Interaction]
    shows_pairs: bool
    """Whether the text has a row a pair; the records have it anyway."""
    caption: str

    @property
    def tasks(self) -> list[str]:
        """The columns: tasks of which there is a pair, in the order of the headings."""
        found = {effect.task for effect in self.effects}
        return [task for task in _HEADINGS if task in found]

    def text_rows(self) -> tuple[list[str], list[list[str]]]:
        contrasts = sorted({effect.contrast for effect in self.effects})
        by_task = {(effect.contrast, effect.task): effect for effect in self.effects}
        lines = []
        for contrast in contrasts:
            effects = {task: by_task[contrast, task] for task in self.tasks if (contrast, task) in by_task}
            estimates = {task: effect.estimate for task, effect in effects.items()}
            lines.append(self._line(contrast.name, estimates, [len(effect.pairs) for effect in effects.values()]))
            if self.shows_pairs:
                pairs = dict.fromkeys(pair for effect in effects.values() for pair in effect.pairs)
                for pair in pairs:
                    of_pair = {task: effect.pairs[pair] for task, effect in effects.items() if pair in effect.pairs}
                    lines.append(self._line(f"  {pair[0]} - {pair[1]}", of_pair, []))
        larger = [interaction for interaction in self.interactions if interaction.estimate.is_significant]
        for first, second in sorted({(interaction.first, interaction.second) for interaction in larger}):
            found = {one.task: one for one in larger if (one.first, one.second) == (first, second)}
            estimates = {task: interaction.estimate for task, interaction in found.items()}
            counts = [len(interaction.squares) for interaction in found.values()]
            lines.append(self._line(f"{first.short_name} x {second.short_name}", estimates, counts))
        return ["Factor", *(_HEADINGS[task] for task in self.tasks), "Pairs", "n"], lines

    def _line(self, name: str, estimates: dict[str, Estimate], counts: Sequence[int]) -> list[str]:
        cells = [estimate_text(estimates[task], task) if task in estimates else "" for task in self.tasks]
        return [name, *cells, _range(counts), _range([estimate.seeds for estimate in estimates.values()])]

    def records(self) -> list[dict[str, Any]]:
        """Kinds: ``effect``, ``pair`` of the effect before it, ``interaction``, whatever its p-value."""
        records = []
        for effect in self.effects:
            contrast = {"contrast": effect.contrast.name, "second": None, "given": None, "without": None}
            counts = {"pairs": len(effect.pairs)}
            records.append({"kind": "effect", **contrast, **counts, **_numbers(effect.estimate, effect.task)})
            for (given, without), estimate in effect.pairs.items():
                pair = {"given": given, "without": without, "pairs": 1}
                records.append({"kind": "pair", **contrast, **pair, **_numbers(estimate, effect.task)})
        for interaction in self.interactions:
            contrasts = {"contrast": interaction.first.name, "second": interaction.second.name}
            rest = {"given": None, "without": None, "pairs": len(interaction.squares)}
            numbers = _numbers(interaction.estimate, interaction.task)
            records.append({"kind": "interaction", **contrasts, **rest, **numbers})
        return records


def attribution_table(
    cells: pd.DataFrame | None = None,
    losses: pd.DataFrame | None = None,
    protocol: Sequence[str] = (),
    shows_pairs: bool = False,
) -> AttributionTable:
    """The effect of every factor on what is given, and the interactions of every two.

    Args:
        cells: :func:`madbench.analysis.scores.scores` of one protocol; a cell counts once all its jobs are done.
        losses: :func:`madbench.analysis.loss_curves.run_losses` of one protocol.
        protocol: sentences about the protocols, which begin the caption.
        shows_pairs: whether the text has a row a pair as well.
    """
    values, left_out = measured_values(cells, losses)
    effects, interactions = attribute(values)
    caption = " ".join([*protocol, *_sentences(effects, interactions, left_out, shows_pairs)])
    return AttributionTable(effects, interactions, shows_pairs, caption)


def measured_values(cells: pd.DataFrame | None, losses: pd.DataFrame | None) -> tuple[pd.DataFrame, int]:
    """One row a label, task (``mad_average`` and ``loss_l5`` too) and seed: its value; and how many results have none.

    A cell of ``cells`` counts once all its jobs are done. One of the two has to be given.
    """
    parts, begun = [], 0
    if cells is not None:
        begun += int((cells.done > 0).sum())
        whole = with_average(cells[cells.done == cells.expected])
        parts.append(whole.rename(columns={"accuracy": "value"}))
    if losses is not None:
        begun += len(losses)
        parts.append(losses.rename(columns={LOSS: "value"}).assign(task=LOSS))
    values = pd.concat([part[["label", "task", "seed", "value"]] for part in parts], ignore_index=True)
    left_out = begun - int(values[values.task != MAD_AVERAGE].value.notna().sum())
    return values, left_out


def _sentences(
    effects: Sequence[Effect], interactions: Sequence[Interaction], left_out: int, shows_pairs: bool
) -> list[str]:
    """How the rows are to be read: effect, interval, claim, interactions, and what is left out."""
    has_losses = any(effect.task == LOSS for effect in effects)
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
            "Where no factor has two pairs, ± is half of the 95% interval over the seeds of one pair: it speaks of that"
            " pair and claims nothing of the factor."
        )
    if shows_pairs:
        sentences.append("Of a pair, ± is over its seeds.")
    shown = [effect.estimate for effect in effects]
    shown += [estimate for effect in effects for estimate in effect.pairs.values() if shows_pairs]
    if any(math.isnan(estimate.low) for estimate in shown):
        sentences.append("In brackets: one pair of one seed, or of seeds that agree exactly; it claims nothing.")
    sentences.append("*: p of at most 0.05 after Holm over the factors of the column.")
    sentences += _of_interactions(interactions)
    if left_out:
        sentences.append(f"{left_out} results of a label, task and seed are left out: unfinished, or diverged.")
    return sentences


def _of_interactions(interactions: Sequence[Interaction]) -> list[str]:
    if not interactions:
        return ["No interactions: of no two factors are all four combinations stored with two seeds."]
    tested = len({(interaction.first, interaction.second) for interaction in interactions})
    larger = [interaction for interaction in interactions if interaction.estimate.is_significant]
    if not larger:
        return [f"Interactions of two factors tested: {tested}; none is larger than the noise of the seeds."]
    return [
        "a x b: by how much more a is worth where b is given, mean over the stored sets of four labels, which Pairs"
        f" counts. Interactions tested: {tested}; shown are those larger than the noise of the seeds (Welch's t, Holm"
        " over the column)."
    ]


def estimate_text(estimate: Estimate, task: str) -> str:
    """``+12.3 ±4.1*``; in brackets where there is no interval."""
    digits = 3 if task == LOSS else 1
    if math.isnan(estimate.low):
        return f"({estimate.mean:+.{digits}f})"
    half = estimate.high - estimate.mean
    return f"{estimate.mean:+.{digits}f} ±{half:.{digits}f}{'*' * estimate.is_significant}"


def _range(counts: Sequence[int]) -> str:
    """``3``, or ``3-4`` where the columns differ."""
    return "-".join(map(str, sorted({min(counts), max(counts)}))) if counts else ""


def _numbers(estimate: Estimate, task: str) -> dict[str, Any]:
    numbers = {"difference": estimate.mean, "low": estimate.low, "high": estimate.high}
    numbers |= {"p": estimate.p, "p_holm": estimate.p_adjusted}
    numbers = {name: None if math.isnan(value) else value for name, value in numbers.items()}
    unit = "nats_per_token" if task == LOSS else "points"
    return {"quantity": task, "unit": unit, "seeds": estimate.seeds, **numbers}
