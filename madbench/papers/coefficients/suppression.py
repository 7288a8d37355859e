"""Principle 2.2: how many states of a kernel one query suppresses, and how many of them are independent."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import torch

from madbench.analysis.inspection import mixer_inputs
from madbench.analysis.quantities import title
from madbench.analysis.scores import Results
from madbench.jobs import Job
from madbench.papers.coefficients import Decision, Principle, key_width
from madbench.papers.coefficients.coefficients import EXAMPLES, first_examples, measured_runs
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.verdicts import CONTRADICTED, SUPPORTED, principle_table
from madbench.papers.quantities import Quantity, Values
from madbench.suites.mad.suite import MAD
from madbench.training.checkpoints import load_model

ZERO = 1e-6
"""A normalised coefficient up to this is suppressed."""
RANKED = 8
"""Sequences whose suppressed states have their rank computed."""
SUPPRESSED = Quantity("suppressed_states", {"zero": ZERO, "examples": EXAMPLES, "ranked": RANKED})
"""The most suppressed coefficients of a row and the largest rank of their states, of every run of principle 2.2."""


def suppressed(weights: Path, job: Job) -> tuple[np.ndarray, int]:
    """Suppressed coefficients of each row (layers, H, T), mean over sequences, and the largest rank of their states.

    A coefficient is suppressed where |a_ij| <= 1e-6, j <= i. Without gates and mirrors the states h_ij are the keys.
    """
    counts, largest = [], 0
    for mixer, x in mixer_inputs(load_model(weights)[0], first_examples(job)):
        a, keys = mixer.coefficients(x).a, mixer.dynamics(x)[0].k.double()
        is_zero = (a.abs() <= ZERO).tril()
        counts.append(is_zero.double().sum(-1).mean(0).numpy())
        for b, head in np.ndindex(min(RANKED, len(a)), a.shape[1]):
            for row in is_zero[b, head]:
                if int(row.sum()) > largest:  # a rank is at most their number
                    states = keys[b, head][row]
                    states = states / states.norm(dim=-1, keepdim=True).clamp(min=1e-30)
                    largest = max(largest, int(torch.linalg.matrix_rank(states, rtol=1e-6)))
    return np.stack(counts), largest


def measure_suppressed(weights: Path, job: Job) -> Values:
    """The most suppressed coefficients of a row and the largest rank of their states; by row, the most of any head."""
    counts, rank = suppressed(weights, job)
    return {"suppressed": float(counts.max()), "rank": rank}, {"of_rows": counts.max((0, 1)).tolist()}


def decide_count(principle: Principle, results: Results) -> Decision:
    """Whether a row's suppressed coefficients stay below the key width n."""
    rows, points, verdicts, remarks = [], [], {}, {}
    for run, job, measured in measured_runs(results, SUPPRESSED, measure_suppressed):
        of_rows, rank = measured.details["of_rows"], int(measured.values["rank"])
        bound = key_width(job) - 1
        identity = {"label": run.label, "task": run.column, "seed": run.seed}
        rows.append(identity | {"suppressed": measured.values["suppressed"], "rank": rank, "bound": bound})
        panel = f"{run.label}, {title(run.column)}"
        for i, value in enumerate(of_rows, start=1):
            points.append({"panel": panel, "series": f"seed {run.seed}", "label": run.label, "x": float(i), "y": value})
    frame = pd.DataFrame(rows)
    for (label, task), seeds in frame.groupby(["label", "task"], sort=False):
        panel, bound = {"panel": f"{label}, {title(task)}", "series": "bound n - 1"}, float(seeds.bound.min())
        ends = {point["x"] for point in points if point["panel"] == panel["panel"]}
        points += [panel | {"label": label, "x": x, "y": bound} for x in (min(ends), max(ends))]
        is_within = (seeds.suppressed <= seeds.bound).all()
        verdicts[f"{label}, {title(task)}"] = SUPPORTED if is_within else CONTRADICTED
        remarks[f"{label}, {title(task)}"] = (
            f"at most {seeds.suppressed.max():.1f} suppressed, of rank {seeds['rank'].max()}; the bound is"
            f" {seeds.bound.min()}"
        )
    caption = (
        f"Coefficients of at most {ZERO} in one row, mean over test sequences, the most over rows, layers and heads;"
        " largest rank of their states; the paper's bound on them."
    )
    headings = ["Label", "Task", "Seed", "Suppressed", "Rank", "n - 1"]
    lines = [
        [row.label, title(row.task), str(row.seed), f"{row.suppressed:.1f}", str(row.rank), str(row.bound)]
        for row in frame.itertuples()
    ]
    table = principle_table(caption, headings, lines, rows)
    axes_of = dict.fromkeys(verdicts, {"xlabel": "row i", "ylabel": "suppressed", "ylim": (0, None)})
    notes = ["Of the layer and head with the most; the bound is the paper's."]
    protocol = " ".join(results.sentences(MAD))
    return point_decision(principle, verdicts, table, points, protocol, axes_of, remarks, notes=notes, is_line=True)
