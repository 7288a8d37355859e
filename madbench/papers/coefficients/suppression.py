"""Principle 2.2: the number of states that one query of a kernel suppresses, and the rank of these states.

A kernel is a readout that multiplies features of query and key, psi(q) . psi(k). A query suppresses a state if its
coefficient for this state is about 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd
import torch

from madbench.analysis.frames import groups_of
from madbench.analysis.inspection import mixer_inputs
from madbench.analysis.quantities import title
from madbench.analysis.scores import Results
from madbench.jobs import Job
from madbench.papers.coefficients import Decision, Principle, key_width
from madbench.papers.coefficients.coefficients import EXAMPLES, first_examples, measured_runs
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.verdicts import CONTRADICTED, SUPPORTED, principle_table
from madbench.papers.quantities import MeasuredQuantity, Values
from madbench.suites.mad.suite import MAD
from madbench.training.checkpoints import load_model

if TYPE_CHECKING:
    from madbench.analysis.rendering import Listing
    from madbench.mixers.cd.operator import CoefficientMixer
    from madbench.store.format import Measurement

ZERO = 1e-6
"""The largest absolute value of a normalized coefficient that counts as suppressed."""
RANKED = 8
"""The number of sequences for which the rank of suppressed states is computed."""
SUPPRESSED = MeasuredQuantity("suppressed_states", {"zero": ZERO, "examples": EXAMPLES, "ranked": RANKED})
"""The measurement that is stored with a run: the largest number of suppressed coefficients in a row, and the largest
rank of the states of such coefficients.
"""


def count_suppressed(weights: Path, job: Job) -> tuple[np.ndarray, int]:
    """Return the number of suppressed coefficients in each row, (layers, H, T), and the largest rank of their states.

    A coefficient a_ij of row i and token j <= i is suppressed if |a_ij| <= 1e-6. Numbers are means over 64 test
    sequences. The states of the suppressed coefficients of a row are the keys of the tokens j, because the labels have
    no gates or mirrors. The rank is the largest over the rows of 8 sequences, all layers and all heads.
    """
    counts, largest = [], 0
    for mixer, x in mixer_inputs(load_model(weights)[0], first_examples(job)):
        a, keys = mixer.coefficients(x).a, cast("CoefficientMixer", mixer).dynamics(x)[0].k.double()
        is_zero = (a.abs() <= ZERO).tril()
        counts.append(is_zero.double().sum(-1).mean(0).numpy())
        for b, head in np.ndindex(min(RANKED, len(a)), a.shape[1]):
            for row in is_zero[b, head]:
                if int(row.sum()) > largest:  # the rank of states is at most their number
                    states = keys[b, head][row]
                    states = states / states.norm(dim=-1, keepdim=True).clamp(min=1e-30)
                    largest = max(largest, int(torch.linalg.matrix_rank(states, rtol=1e-6)))
    return np.stack(counts), largest


def measure_suppressed(weights: Path, job: Job) -> Values:
    """Measure the suppressed coefficients of a trained model by :func:`count_suppressed`. Return numbers and details.

    The number ``suppressed`` is the mean over sequences of the suppressed coefficients in a row, for the layer, head
    and row in which it is largest. The number ``rank`` is the largest rank of the states of one row's suppressed
    coefficients. The details have the list ``of_rows``, with the largest mean over layers and heads for each row.
    """
    counts, rank = count_suppressed(weights, job)
    return {"suppressed": float(counts.max()), "rank": rank}, {"of_rows": counts.max((0, 1)).tolist()}


def count_row(label: str, seed: int, job: Job, measured: Measurement, **place: Any) -> dict[str, Any]:
    """A row of the table of suppressed coefficients, for one run, as a mapping.

    ``bound`` is the number that the paper allows, n - 1 for the key width n. ``place`` has further cells, such as the
    task, which distinguish the rows of one label and seed.
    """
    numbers = {"suppressed": measured.values["suppressed"], "rank": int(measured.values["rank"])}
    return {"label": label, **place, "seed": seed, **numbers, "bound": key_width(job) - 1}


def count_points(label: str, seed: int, measured: Measurement, panel: str) -> list[dict[str, Any]]:
    """The points of one run in a figure: x is the row i from 1 on, and y its number of suppressed coefficients."""
    place = {"panel": panel, "series": f"seed {seed}", "label": label}
    return [place | {"x": float(i), "y": value} for i, value in enumerate(measured.details["of_rows"], start=1)]


def count_table(
    rows: Sequence[dict[str, Any]], place: str, text_of: Callable[[Any], str], group_columns: str = ""
) -> Listing:
    """The table of ``rows``, which are results of :func:`count_row`.

    ``place`` is the key of the second column, and ``text_of`` formats its values. The caption says that the counts are
    maxima over rows, layers and heads; ``group_columns``, such as ``, by length of the task``, is put after these
    words.
    """
    caption = (
        f"Coefficients of at most {ZERO} in one row, mean over test sequences, the most over rows, layers and"
        f" heads{group_columns}; largest rank of their states; the paper's bound on them."
    )
    lines = [
        [
            row["label"],
            text_of(row[place]),
            *(str(row["seed"]), f"{row['suppressed']:.1f}", str(row["rank"])),
            str(row["bound"]),
        ]
        for row in rows
    ]
    headings = ["Label", place.capitalize(), "Seed", "Suppressed", "Rank", "n - 1"]
    return principle_table(caption, headings, lines, [*rows])


def decide_count(principle: Principle, results: Results) -> Decision:
    """Decide principle 2.2, one verdict per label and task.

    The principle is supported if the largest number of suppressed coefficients in a row, a mean over sequences, is at
    most n - 1 for every seed. n is the key width. Otherwise it is contradicted.
    """
    rows, points, verdicts, remarks = [], [], {}, {}
    for run, job, measured in measured_runs(results, SUPPRESSED, measure_suppressed):
        rows.append(count_row(run.label, run.seed, job, measured, task=run.column))
        points += count_points(run.label, run.seed, measured, f"{run.label}, {title(run.column)}")
    frame = pd.DataFrame(rows)
    for (label, task), seeds in groups_of(frame, ["label", "task"]):
        panel, bound = {"panel": f"{label}, {title(task)}", "series": "bound n - 1"}, float(seeds.bound.min())
        ends = {point["x"] for point in points if point["panel"] == panel["panel"]}
        points += [panel | {"label": label, "x": x, "y": bound} for x in (min(ends), max(ends))]
        is_within = (seeds.suppressed <= seeds.bound).all()
        verdicts[f"{label}, {title(task)}"] = SUPPORTED if is_within else CONTRADICTED
        remarks[f"{label}, {title(task)}"] = (
            f"at most {seeds.suppressed.max():.1f} suppressed, of rank {seeds['rank'].max()}; the bound is"
            f" {seeds.bound.min()}"
        )
    table = count_table(rows, "task", title)
    axes_of = {name: {"xlabel": "row i", "ylabel": "suppressed", "ylim": (0, None)} for name in verdicts}
    notes = ["Of the layer and head with the most; the bound is the paper's."]
    protocol = " ".join(results.sentences(MAD))
    return point_decision(principle, verdicts, table, points, protocol, axes_of, remarks, notes=notes, is_line=True)
