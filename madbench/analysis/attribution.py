"""The effect of each factor of a label, from all stored pairs of labels that differ only in this factor.

A contrast is a difference in one factor, such as "with a convolution vs. without" (:mod:`madbench.analysis.contrasts`).
Its effect is the mean difference over its pairs. The effect of a single pair is the difference between its two labels,
as ``madbench compare`` shows it. A label is in at most one pair of a contrast.

The interaction of two contrasts, such as those of a convolution and of gates, shows how much larger the effect of a
convolution is among labels with gates than among labels without them. It is the mean over squares. A square has four
labels: one with both a convolution and gates, two with only one of them, and one with neither.

Intervals and tests treat seeds as random and labels as fixed (:mod:`madbench.analysis.inference`). They do not
generalize to other labels with the same factor.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pandas as pd

from madbench.analysis.contrasts import Contrast, LabelPair, Square, find_pairs, find_squares
from madbench.analysis.inference import LEVEL, Difference, Sample, combination, difference, holm
from madbench.analysis.marked_text import MINUS
from madbench.analysis.quantities import difference_text, differences_text, direction_text, heading, in_order, unit
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import count_left_out, samples_of, select_columns
from madbench.labels.names import display_name

EFFECTS_SHARE = 0.8
"""The part of the table's error rate of 5% that Holm's correction of the effects may use. Interactions get the rest."""

Cases = Mapping[tuple[Contrast, ...], Sequence[LabelPair | Square]]
"""The pairs of labels by contrast, which is a tuple of one, or the squares of four labels by pair of contrasts."""
_SIGNS = (1.0, -1.0, -1.0, 1.0)  # weights of the four labels of a square; a pair uses the first two


@dataclass(frozen=True)
class Effect:
    """The mean effect of a contrast on one column of results, or the interaction of two contrasts in this column.

    A contrast is a difference in one factor of a label, such as with or without a convolution.
    """

    contrasts: tuple[Contrast, ...]
    """The contrast of an effect, or the two contrasts of an interaction."""
    quantity: str
    """The name of the column, such as a task, ``mad_average`` or ``loss_l5``."""
    estimate: Difference
    cases: Mapping[LabelPair | Square, Difference | None]
    """For the effect of one contrast: its pairs of labels, each with the difference of the two labels. For an
    interaction: its squares of four labels, each with None, because only their mean is computed."""
    p_holm: float = math.nan
    """The p-value after Holm's correction. The effects of a table are corrected together, and so are its interactions.
    NaN without a test."""

    @property
    def is_significant(self) -> bool:
        """True if the estimate differs significantly from zero after Holm's correction (at 5%)."""
        return self.p_holm <= LEVEL

    @property
    def name(self) -> str:
        """The name in tables, such as ``conv: c vs. none`` for an effect or ``c x 1o`` for an interaction."""
        if self.is_interaction:
            return " x ".join(contrast.short_name for contrast in self.contrasts)
        return self.contrasts[0].name

    @property
    def pairs(self) -> dict[LabelPair, Difference]:
        """The pairs of labels of an effect, each with the difference of its two labels. Empty for an interaction."""
        return {case: gap for case, gap in self.cases.items() if len(case) == 2 and gap is not None}

    @property
    def is_interaction(self) -> bool:
        return len(self.contrasts) > 1


def attribute(scores: pd.DataFrame) -> list[Effect]:
    """The effects of all single factors of the labels in ``scores``, then the interactions of two factors.

    There is one :class:`Effect` per column and contrast, or per column and pair of contrasts. Interactions that cannot
    be tested are left out. Effects are sorted by column and then by contrast, and so are interactions. ``scores`` must
    have one protocol per suite (:mod:`madbench.analysis.scores`).
    """
    samples = samples_of(select_columns(scores, lambda column: column.is_attributed))
    pairs = find_pairs(dict.fromkeys(label for of_column in samples.values() for label in of_column))
    of_one: Cases = {(contrast,): of_contrast for contrast, of_contrast in pairs.items()}
    of_two: Cases = dict(find_squares(pairs).items())
    all_effects: list[Effect] = []
    for cases, share in ((of_one, EFFECTS_SHARE), (of_two, 1 - EFFECTS_SHARE)):
        effects = [effect for name in in_order(samples) for effect in _effects(name, cases, samples[name])]
        p_values = holm([effect.estimate.p for effect in effects], share)
        all_effects += [replace(effect, p_holm=p) for effect, p in zip(effects, p_values)]
    return all_effects


def _effects(
    quantity: str,
    cases_by_contrasts: Cases,
    samples: Mapping[str, Sample],
) -> list[Effect]:
    """The effects or interactions on the column ``quantity``, with ``p_holm`` NaN.

    A pair or square is left out unless ``samples`` has all its labels. Interactions that cannot be tested are left out.

    Args:
        quantity: the name of the column.
        cases_by_contrasts: the pairs of labels of each contrast, or the squares of labels of each pair of contrasts.
        samples: the seeds of each label in the column.
    """
    effects = []
    for contrasts, of_contrasts in cases_by_contrasts.items():
        stored_cases = [case for case in of_contrasts if set(case) <= samples.keys()]
        if not stored_cases:
            continue
        estimate = combination(
            [(sign / len(stored_cases), samples[x]) for case in stored_cases for sign, x in zip(_SIGNS, case)]
        )
        if len(contrasts) == 1:
            differences = {pair: difference(samples[pair[0]], samples[pair[1]]) for pair in stored_cases}
            effects.append(Effect(contrasts, quantity, estimate, differences))
        elif estimate.test:
            effects.append(Effect(contrasts, quantity, estimate, dict.fromkeys(stored_cases)))
    return effects


class AttributionTable(Listing):
    """The table that :func:`attribution_table` makes.

    ``rows`` has one :class:`Effect` per contrast and column, also for interactions that the printed table does not
    show.
    """

    @property
    def quantities(self) -> list[str]:
        """The names of the columns of results with at least one effect, in the order of tables."""
        return in_order(effect.quantity for effect in self.rows)


def attribution_table(
    scores: pd.DataFrame, protocol: Sequence[str] = (), shows_pairs: bool = False
) -> AttributionTable:
    """The table of the effect of each factor on the main columns of each suite, and of the significant interactions.

    Args:
        scores: the scores of one protocol per suite (:mod:`madbench.analysis.scores`). A seed counts if all its jobs
            are done.
        protocol: sentences about the protocols, which begin the notes.
        shows_pairs: True if the printed table also has one row per pair of labels.
    """
    effects = attribute(scores)
    caption = (
        "Mean difference between labels that differ only in this factor, in "
        f"{differences_text(effect.quantity for effect in effects)}; *: p at most {LEVEL}, Holm-corrected."
    )
    notes = " ".join([*protocol, _notes(effects), *left_out_sentences(count_left_out(scores))])
    quantities = in_order(effect.quantity for effect in effects)
    headings = ["Factor", *map(heading, quantities), "Pairs", "n"]
    lines = _lines(effects, quantities, shows_pairs)
    return AttributionTable(effects, headings, lines, _json_rows(effects), caption, notes, "tab:effects")


def _lines(all_effects: Sequence[Effect], quantities: Sequence[str], shows_pairs: bool) -> list[list[str]]:
    """The cells of the printed table as text, one list per line.

    There is one line per contrast, then one line per pair of contrasts with a significant interaction in any column.
    With ``shows_pairs``, the line of a contrast is followed by one line per pair of labels.
    """
    rows: dict[tuple[Contrast, ...], dict[str, Effect]] = {}
    for effect in all_effects:
        if effect.is_significant or not effect.is_interaction:
            rows.setdefault(effect.contrasts, {})[effect.quantity] = effect
    lines = []

    def add(name: str, cells: Mapping[str, str], pairs: str, seeds: Iterable[int]) -> None:
        lines.append([name, *(cells.get(quantity, "") for quantity in quantities), pairs, _range(seeds)])

    for contrasts in sorted(rows, key=lambda contrasts: (len(contrasts), contrasts)):
        effects = rows[contrasts]
        cells = {name: _text(effect.estimate, name, effect.is_significant) for name, effect in effects.items()}
        counts = _range(len(effect.cases) for effect in effects.values())
        add(next(iter(effects.values())).name, cells, counts, (effect.estimate.n for effect in effects.values()))
        if shows_pairs and len(contrasts) == 1:
            for pair in dict.fromkeys(pair for effect in effects.values() for pair in effect.pairs):
                of_pair = {quantity: effect.pairs[pair] for quantity, effect in effects.items() if pair in effect.pairs}
                cells = {quantity: _text(gap, quantity) for quantity, gap in of_pair.items()}
                add(f"  {f' {MINUS} '.join(map(display_name, pair))}", cells, "", (gap.n for gap in of_pair.values()))
    return lines


def _json_rows(effects: Sequence[Effect]) -> list[dict[str, Any]]:
    """The content of the table for programs: one dictionary per effect, per interaction and per pair of labels.

    Effects and interactions are included even if they are not significant. The key ``kind`` is ``effect``,
    ``interaction`` or ``pair``. An effect is followed by its pairs.
    """
    json_rows = []
    for effect in effects:
        names = [contrast.name for contrast in effect.contrasts]
        identity: dict[str, Any] = {"contrast": names[0], "second": names[1] if effect.is_interaction else None}
        identity |= {"given": None, "without": None, "pairs": len(effect.cases)}
        common_fields = {"quantity": effect.quantity, "unit": unit(effect.quantity)}
        kind = "interaction" if effect.is_interaction else "effect"
        json_rows.append(
            {
                "kind": kind,
                **identity,
                **common_fields,
                **without_nan(asdict(effect.estimate) | {"p_holm": effect.p_holm}),
            }
        )
        for (label, other_label), estimate in effect.pairs.items():
            pair = identity | {"given": label, "without": other_label, "pairs": 1}
            json_rows.append({"kind": "pair", **pair, **common_fields, **without_nan(asdict(estimate))})
    return json_rows


def left_out_sentences(count: int) -> list[str]:
    """A list with one sentence: that ``count`` unfinished results were left out. Empty if ``count`` is 0."""
    if not count:
        return []
    what = "result of a label, task and seed is" if count == 1 else "results of a label, task and seed are"
    return [f"{count} {what} left out: unfinished."]


def _notes(rows: Sequence[Effect]) -> str:
    effects, interactions = ([row for row in rows if row.is_interaction is x] for x in (False, True))
    test_count = sum(bool(effect.estimate.test) for effect in effects)
    notes = (
        "Each seed is one observation: settings of a task and pairs of labels are averaged per seed. "
        f"{direction_text(row.quantity for row in rows)}±: half-width of the 95% interval over seeds. In brackets: no"
        f" interval; a single seed. p: Holm-corrected over {test_count} {'effect' if test_count == 1 else 'effects'},"
        f" which use {EFFECTS_SHARE:.0%} of the error rate of the table. "
    )
    if not interactions:
        return notes + "No interactions: no two factors have all four combinations stored with three seeds."
    return notes + (
        "a x b: how much larger the effect of a is with b, as the mean over the sets of four labels that Pairs counts."
        f" Of {len(interactions)} tested interactions the significant ones are shown."
    )


def _text(estimate: Difference, quantity: str, is_significant: bool = False) -> str:
    return difference_text(estimate, quantity) + ("*" if is_significant else "")


def _range(counts: Iterable[int]) -> str:
    """The range of ``counts`` as text: ``3-4``, or ``3`` if all counts are equal. There must be at least one."""
    sizes = sorted(set(counts))
    return f"{sizes[0]}-{sizes[-1]}" if len(sizes) > 1 else str(sizes[0])
