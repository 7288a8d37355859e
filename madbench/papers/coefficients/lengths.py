"""Figure 9 at two sequence lengths: the number of coefficients near zero in a row of a trained model.

The models are kernels: the coefficient of a query and a key is a product of features of both, psi(q) . psi(k).
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pandas as pd

from madbench.analysis.figures.files import frame_of
from madbench.analysis.frames import groups_of
from madbench.analysis.inference import LEVEL, Sample, Scale, difference, holm
from madbench.analysis.marked_text import with_minus
from madbench.analysis.quantities import p_text
from madbench.analysis.tables import result_tables
from madbench.papers.coefficients.coefficients import measured_runs
from madbench.papers.coefficients.figures import POINT_COLUMNS, point_figure
from madbench.papers.coefficients.studies import principle
from madbench.papers.coefficients.suppression import (
    SUPPRESSED,
    count_points,
    count_row,
    count_table,
    measure_suppressed,
)
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED
from madbench.papers.making import DrawnFigure, ItemResult, Request
from madbench.suites.mad.suite import MAD
from madbench.suites.planning import LEAST_SEEDS

if TYPE_CHECKING:
    from madbench.analysis.scores import Results

COUNT = Scale(resolution=1 / 64)
"""The scale of numbers of suppressed coefficients in significance tests. A number is a mean over 64 sequences.

The scale has no limits, because with limits the test would assume a larger spread over seeds.
"""


def decide_lengths(request: Request, results: Results) -> ItemResult:
    """The result of the item figure9_lengths: suppressed coefficients of every run, and a verdict for each kernel."""
    rows, points = [], []
    for _, job, measured in measured_runs(results, SUPPRESSED, measure_suppressed):
        length = int(job.setting["seq_len"])
        rows.append(count_row(job.label, job.seed, job, measured, length=length))
        points += count_points(job.label, job.seed, measured, f"{job.label}, {length} tokens")
    verdicts, remarks = judge_lengths(pd.DataFrame(rows))
    table = count_table(rows, "length", str, ", by length of the task")
    frame = frame_of(points, POINT_COLUMNS, " ".join(results.sentences(MAD)))
    axes = {panel: {"xlabel": "row i", "ylabel": "suppressed", "ylim": (0, None)} for panel in frame.panel}
    notes = ["The layer and head with the most."]
    draw = functools.partial(point_figure, frame, principle("2.2"), axes, notes=notes, is_line=True)
    figure = DrawnFigure(f"coefficients_{request.item.id}", draw, frame)
    tables = [*result_tables(results), table]
    return ItemResult(tables, verdicts, {"rows": table.json_rows()}, [figure], remarks)


def judge_lengths(rows: pd.DataFrame) -> tuple[dict[str, str], dict[str, str]]:
    """Test for each label whether more coefficients of a row are suppressed in the longest task than in the shortest.

    ``rows`` has one row per label, length and seed, with the columns ``label``, ``length`` and ``suppressed``. p-values
    are corrected for all labels by Holm's method. Return the verdicts and the numbers behind them, each as statement to
    text. Labels without rows of both lengths are left out.
    """
    shortest, longest = rows.length.min(), rows.length.max()
    gaps = {}
    for label, of_label in groups_of(rows, "label"):
        samples = {n: Sample(of_length.suppressed.to_numpy(), COUNT) for n, of_length in of_label.groupby("length")}
        if shortest < longest and {shortest, longest} <= samples.keys():
            gaps[label] = difference(samples[longest], samples[shortest])
    verdicts, remarks = {}, {}
    for (label, gap), p in zip(gaps.items(), holm([gap.p for gap in gaps.values()])):
        sentence = f"{label}: more coefficients are zero at {longest} tokens than at {shortest}"
        if gap.n < LEAST_SEEDS:
            verdicts[sentence] = "too few seeds"
        elif p <= LEVEL:
            verdicts[sentence] = SUPPORTED if gap.estimate > 0 else CONTRADICTED
        else:
            verdicts[sentence] = OPEN
        remarks[sentence] = with_minus(f"{gap.estimate:+.1f} of a row, p {p_text(p)}, {gap.n} seeds")
    return verdicts, remarks
