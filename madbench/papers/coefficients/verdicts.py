"""Verdicts on a principle of the paper from contrasts: differences between two labels, such as those of accuracy.

Contrasts with the same subject, such as a readout, decide one verdict together (:attr:`ExpectedContrast.group`).
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

import pandas as pd

from madbench.analysis.comparison import Comparison
from madbench.analysis.inference import difference, holm
from madbench.analysis.quantities import heading, interval_text, p_text, signed_text
from madbench.analysis.rendering import Listing, without_nan
from madbench.analysis.samples import samples_of
from madbench.analysis.scores import Results
from madbench.labels.names import display_name
from madbench.papers.coefficients import Decision, ExpectedContrast, Principle, Study
from madbench.papers.coefficients.figures import bar_figure, bar_frame
from madbench.suites.mad.suite import MAD
from madbench.suites.planning import LEAST_SEEDS
from madbench.suites.tokens import LARGEST_COEFFICIENT

SUPPORTED, OPEN, CONTRADICTED = "supported", "not significant", "contradicted"
"""The verdicts on a contrast, and on a group of contrasts."""
Outcome = tuple[ExpectedContrast, Comparison]
"""A contrast, and the comparison of its two labels on one task.

The comparison's ``p_holm`` is corrected for all comparisons in the contrast's group.
"""


def principle_table(caption: str, headings: list[str], lines: list[list[str]], cells: list[dict[str, Any]]) -> Listing:
    """A table about a principle, with texts for the user and numbers for programs.

    ``lines`` has the texts of each line, which may be fewer than ``headings``. ``cells`` has the numbers as mappings
    that can be written as JSON.
    """
    padded_lines = [line + [""] * (len(headings) - len(line)) for line in lines]
    return Listing(cells, headings, padded_lines, [*map(without_nan, cells)], caption, "", "tab:principle")


def compare_contrasts(contrasts: Sequence[ExpectedContrast], scores: pd.DataFrame) -> list[Outcome]:
    """Compare the two labels of every contrast on every task for which ``scores`` have both labels.

    p-values are corrected by Holm's method within each group. Contrasts of a group must follow each other.
    """
    samples = samples_of(scores)
    rows = [
        (contrast, Comparison(contrast.better, contrast.worse, task, *pair, difference(*pair)))
        for contrast in contrasts
        for task, of_label in samples.items()
        if {contrast.better, contrast.worse} <= of_label.keys()
        for pair in [(of_label[contrast.better], of_label[contrast.worse])]
    ]
    adjusted = []
    for _, group in itertools.groupby(rows, lambda row: row[0].group):
        of_group = list(group)
        p_values = holm([row.difference.p for _, row in of_group])
        adjusted += [(contrast, replace(row, p_holm=p)) for (contrast, row), p in zip(of_group, p_values)]
    return adjusted


def decide_contrasts(principle: Principle, study: Study, results: Results) -> Decision:
    """Decide a principle by its contrasts: the differences of accuracy between pairs of labels in ``study``.

    Only results on the tasks of ``study`` count. The figure of the decision shows accuracies as bars.
    """
    scores = results.scores[results.scores.column.isin(study.tasks)]
    decisions = compare_contrasts(study.contrasts, scores)
    frame = bar_frame(scores, " ".join(results.sentences(MAD)))
    draw = functools.partial(bar_figure, frame, principle)
    return Decision(_contrast_table(decisions), verdicts(decisions), frame, draw, measured=_growth(results))


def _contrast_table(decisions: Sequence[Outcome]) -> Listing:
    lines: list[list[str]] = []
    for contrast, rows in itertools.groupby(decisions, lambda row: row[0]):
        lines += [[contrast.better], [f"less {display_name(contrast.worse)}"], *(_text(row) for _, row in rows)]
    caption = (
        "Percentage points of accuracy by which the label that the paper expects to be better is; p two-sided, after"
        f" Holm for the tests of one verdict. Nothing is tested with fewer than {LEAST_SEEDS} seeds."
    )
    headings = ["Contrast", "Difference", "95% interval", "p", "Verdict"]
    return principle_table(caption, headings, lines, [_json_row(*outcome) for outcome in decisions])


def _growth(results: Results) -> Listing | None:
    """A table of the largest coefficient |a_ij| of each label and seed. None if no run has recorded it in its curve."""
    seeds = sorted({job.seed for row in results.rows_of(MAD) for job in row.jobs})
    largest: dict[str, list[float]] = {}
    for row in results.rows_of(MAD):
        of_seed: dict[int, list[float]] = {seed: [] for seed in seeds}
        for job in row.jobs:
            curve = results.store.read(job.id).record.curve if results.store.has(job) else []
            values = (metrics.get(LARGEST_COEFFICIENT, math.nan) for metrics in curve)
            of_seed[job.seed] += [value for value in values if not math.isnan(value)]
        if any(of_seed.values()):
            largest[row.name] = [max(values, default=math.nan) for values in of_seed.values()]
    caption = (
        "Largest |a_ij| of any layer on 16 validation examples, over all evaluations of a run; nan: the weights were "
        "not numbers at the first of them."
    )
    lines = [[label, *(f"{value:.3g}" for value in values)] for label, values in largest.items()]
    cells = [
        {"label": label, "seed": seed, LARGEST_COEFFICIENT: value if math.isfinite(value) else math.nan}
        for label, values in largest.items()
        for seed, value in zip(seeds, values)
    ]
    return principle_table(caption, ["Label", *(f"seed {seed}" for seed in seeds)], lines, cells) if largest else None


def verdicts(rows: Sequence[Outcome]) -> dict[str, str]:
    """The verdict on each group of contrasts, by name of the group.

    Supported if every comparison of the group is supported, contradicted if one is contradicted. Otherwise the distinct
    verdicts on the comparisons that are not supported, joined by semicolons.
    """
    verdict_of: dict[str, str] = {}
    for group in dict.fromkeys(contrast.group for contrast, _ in rows):
        of_group = [_verdict(row) for contrast, row in rows if contrast.group == group]
        others = [verdict for verdict in of_group if verdict != SUPPORTED]
        verdict_of[group] = CONTRADICTED if CONTRADICTED in others else "; ".join(dict.fromkeys(others)) or SUPPORTED
    return verdict_of


def _verdict(row: Comparison) -> str:
    """The verdict on a contrast, from the comparison of its two labels.

    Supported if the label that is expected to be better is significantly better, contradicted if it is significantly
    worse. If neither, the comparison's own verdict, such as the reason why nothing is tested.
    """
    return {"higher": SUPPORTED, "lower": CONTRADICTED}.get(row.verdict, row.verdict)


def _text(row: Comparison) -> list[str]:
    difference = signed_text(row.difference.estimate, row.quantity), interval_text(row.difference, row.quantity)
    return [f"  {heading(row.quantity)}", *difference, p_text(row.p_holm), _verdict(row)]


def _json_row(contrast: ExpectedContrast, row: Comparison) -> dict[str, Any]:
    identity = {**asdict(contrast), "task": row.quantity}
    means = {"better_mean": row.sample.mean, "worse_mean": row.of_baseline.mean, "seeds": row.difference.n}
    statistics = {name: getattr(row.difference, name) for name in ("estimate", "low", "high", "p", "test", "reason")}
    return identity | means | statistics | {"p_holm": row.p_holm, "verdict": _verdict(row)}
