"""Principle 5: the spread of accuracy over seeds, for labels that scale scores by different factors b."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pandas as pd

from madbench.analysis.frames import groups_of, records_of, rows_of
from madbench.analysis.inference import LEVEL
from madbench.analysis.quantities import p_text, title
from madbench.analysis.samples import whole_seeds
from madbench.analysis.scores import Results
from madbench.labels.names import display_name
from madbench.mixers.cd.grammar import CdLabel, twin
from madbench.papers.coefficients import Decision, Principle, coefficient_label, key_width
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED, principle_table
from madbench.suites.mad.suite import MAD
from madbench.suites.planning import LEAST_SEEDS

ADHERING = {"": True, "bzn": True, "b1": False, "bz": False}
"""Letters of the scale b in a label: True if b has the factor 1/sqrt(n), where b multiplies scores and n is the key
width.
"""
SCALES = {"": "1/sqrt(n)", "bzn": "bzn: gate/sqrt(n)", "b1": "b1: 1", "bz": "bz: gate"}
"""The names of scales b in figures: letters of the scale in a label to its name. b is the factor of scores."""


def spread_rows(results: Results) -> pd.DataFrame:
    """The accuracies over seeds in percent, one row per label, ``init_std``, key width and task.

    The column ``values`` has the accuracies of all seeds, ``low`` and ``high`` the lowest and the highest, and
    ``seeds`` their number. ``scaling`` has the letters of the scale b in the label, and ``group`` the label without
    them. ``init_std`` is the initial standard deviation of the weights of q, k, v and o.
    """
    scores = whole_seeds(results.scores)
    rows = []
    for suite_row in results.rows:
        label, job = coefficient_label(suite_row.row.label), suite_row.jobs[0]
        for task, values in scores[scores.label == suite_row.name].groupby("column").value:
            if task in suite_row.protocol.tasks:
                identity = {"task": task, "label": str(label), "scaling": label.scaling}
                identity |= {"group": str(replace(label, scaling="")), "key_width": key_width(job)}
                identity |= {"init_std": job.mixer["init_std"]}
                numbers = {"low": values.min(), "high": values.max(), "seeds": len(values)}
                rows.append(identity | numbers | {"values": values.to_numpy()})
    return pd.DataFrame(rows)


def brown_forsythe(rows: pd.DataFrame) -> tuple[float, float]:
    """Compare the spread of accuracy over seeds of labels that scale scores by 1/sqrt(n), and of other labels.

    n is the key width. ``rows`` are rows of the result of :func:`spread_rows`. Each accuracy enters as its difference
    from the median of its row. Return (difference, p): the pooled standard deviation of labels without the factor
    1/sqrt(n) minus that of labels with it, and the p-value of Brown and Forsythe's test. Both are NaN if ``rows`` has
    only one of the two kinds of labels. If no accuracy varies, the result is (0, NaN).
    """
    from scipy.stats import levene

    adheres = rows.scaling.map(ADHERING)
    kinds = [rows["values"][adheres == kind] for kind in (False, True)]
    if any(kind.empty for kind in kinds):
        return math.nan, math.nan
    groups = [np.concatenate([v - np.median(v) for v in kind]) for kind in kinds]
    without_change, with_it = (math.sqrt(float(np.square(group).mean())) for group in groups)
    if not any(group.any() for group in groups):
        return 0.0, math.nan
    return without_change - with_it, float(levene(*groups, center="median").pvalue)


def decide_spread(principle: Principle, results: Results) -> Decision:
    """Decide principle 5: the factor 1/sqrt(n) in the scale b makes the spread of accuracy over seeds smaller.

    There is one test (:func:`brown_forsythe`) for each task, each initial standard deviation, and each group of labels
    that differ only in their scale. A group on which the factor has no effect gets a verdict that says so.
    """
    rows = spread_rows(results)
    tests, verdicts, remarks = [], {}, {}
    for (task, group, start), of_group in groups_of(rows, ["task", "group", "init_std"]):
        gap, p = brown_forsythe(of_group)
        verdict, panel = (
            _verdict(gap, p, int(of_group.seeds.min()), coefficient_label(group)),
            _panel(group, start, task),
        )
        verdicts[panel] = verdict
        if not math.isnan(p):
            widths = [(n, brown_forsythe(of_width)[1]) for n, of_width in of_group.groupby("key_width")]
            widths_text = ", ".join(f"{p_text(p_of_width)} at n = {n}" for n, p_of_width in widths)
            remarks[panel] = f"p {p_text(p)}; alone {widths_text}" if len(widths) > 1 else f"p {p_text(p)}"
        identity = {"task": task, "group": group, "init_std": start}
        tests.append(identity | {"spread_gap": gap, "p": p, "verdict": verdict})
    lines = []
    for (task, label, start), of_label in groups_of(rows, ["task", "label", "init_std"]):
        lines.append([_panel(display_name(label), start, task)])
        for row in rows_of(of_label):
            numbers = (f"{number:.1f}" for number in (row.low, row.high, row.high - row.low))
            lines.append([f"  n = {row.key_width}", *numbers, str(row.seeds)])
    caption = (
        "Accuracy in percent over seeds; q, k, v and o start at init_std. Verdict, for each start by itself: Brown and"
        " Forsythe's test of the spread over seeds, pooled over key widths, of b = 1 and a gate against 1/sqrt(n) and a"
        " gate/sqrt(n)."
    )
    points = [
        {"panel": _panel(row.group, row.init_std, row.task), "series": SCALES[row.scaling], "label": row.label}
        | {"x": float(row.key_width), "y": end}
        for row in rows_of(rows)
        for end in (row.low, row.high)
    ]
    headings = ["Label, key width", "Lowest", "Highest", "Spread", "Seeds"]
    cells = [*records_of(rows.drop(columns="values")), *tests]
    table = principle_table(caption, headings, lines, cells)
    widths = sorted(rows.key_width.unique())
    ticks = {"xscale": "log", "xticks": widths, "xticklabels": widths}
    axes_of = {name: {"xlabel": "key width n", "ylabel": "accuracy, %", **ticks} for name in verdicts}
    notes = ["Lowest and highest accuracy over seeds.", principle.limits]
    return point_decision(
        principle, verdicts, table, points, " ".join(results.sentences(MAD)), axes_of, remarks, notes=notes
    )


def _panel(label: str, start: float, task: str) -> str:
    """The text that names a label or a group of labels, an initial standard deviation and a task.

    With a group as ``label``, it is the name of a verdict and of its panel in the figure. With a single label, it is
    the heading of the label's lines in the table. ``start`` is the initial standard deviation ``init_std``.
    """
    return f"{label}, init_std {start:g}, {title(task)}"


def _verdict(gap: float, p: float, seeds: int, label: CdLabel) -> str:
    if twin(label) is not None:
        return "cannot differ: one function"
    if seeds < LEAST_SEEDS or math.isnan(gap):
        return "too few seeds"
    if math.isnan(p):
        return "no variation"
    return OPEN if p > LEVEL else SUPPORTED if gap > 0 else CONTRADICTED
