"""Principles 2 and 2.1: the accuracy of trained models against their shares of coefficients near zero and near one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor

from madbench.analysis.frames import groups_of, records_of, rows_of
from madbench.analysis.inference import Sample, Scale
from madbench.analysis.inspection import NEAR_ONE, NEAR_ZERO, inspect, mixer_inputs
from madbench.analysis.marked_text import with_minus
from madbench.analysis.quantities import title
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.jobs import Job
from madbench.labels.names import display_name
from madbench.mixers.cd.parts import read_out
from madbench.papers.coefficients import Decision, Principle, Study, coefficient_label
from madbench.papers.coefficients.figures import point_decision
from madbench.papers.coefficients.shares import compare_shares
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED, compare_contrasts, principle_table
from madbench.papers.coefficients.verdicts import verdicts as group_verdicts
from madbench.papers.quantities import MeasuredQuantity, Values
from madbench.store.format import Measurement
from madbench.store.runs import Store
from madbench.suites import suite_of
from madbench.suites.mad.suite import MAD
from madbench.suites.planning import LEAST_SEEDS
from madbench.suites.scoring import scoring_of
from madbench.training.checkpoints import load_model

EXAMPLES = 64  # number of test sequences that are measured
SHARES = MeasuredQuantity("coefficients", {"near_zero": NEAR_ZERO, "near_one": NEAR_ONE, "examples": EXAMPLES})
"""The stored measurement of a run of principles 2 and 2.1: its shares of coefficients near zero and near one."""
CORRELATED = {"near_zero": "share near zero", "ratio": "near one / near zero"}
"""The quantities that are correlated with accuracy: name to text on the axis of the figure."""
COLUMNS = {"accuracy": ("Accuracy", "{:.1f}"), "near_zero": ("Near zero", "{:.3f}"), "raw_near_zero": ("raw", "{:.3f}")}
COLUMNS |= {"near_one": ("Near one", "{:.4f}"), "ratio": ("Ratio", "{:.3g}")}
"""The columns of numbers in the table: quantity to (heading, format)."""
READOUT, READOUT_PANEL = "readout", "φ near zero"
"""The panel that plots the readout functions phi(s) of labels: its name in ``Study.shown``, and its title."""


def measure_coefficients(results: Results) -> pd.DataFrame:
    """Measure the shares of normalized coefficients a_ij near zero and near one in trained models.

    Return one row per model, with the columns ``label``, ``task``, ``seed``, ``accuracy`` in percent, and:

    - ``near_zero``: the share with |a_ij| <= 0.001;
    - ``near_one``: the share with 0.9 <= a_ij <= 1;
    - ``ratio``: ``near_one`` divided by ``near_zero``;
    - ``raw_near_zero``: the share with |alpha_ij| <= 0.001 of coefficients alpha_ij before normalization.

    Shares are over pairs j <= i of rows i >= 2 of the first test sequences, as means over rows, layers and heads. The
    first row is left out, because its only coefficient is 1 if coefficients are divided by their sum. Measurements are
    stored with the runs. Raises the errors of :func:`measured_runs`.
    """
    rows = []
    for run, _, measured in measured_runs(results, SHARES, lambda weights, job: (coefficient_shares(weights, job), {})):
        identity = {"label": run.label, "task": run.column, "seed": run.seed, "accuracy": run.value}
        rows.append(identity | measured.values)
    return pd.DataFrame(rows)


def measured_runs(
    results: Results, quantity: MeasuredQuantity, measure: Callable[[Path, Job], Values]
) -> Iterator[tuple[Any, Job, Measurement]]:
    """Yield (row, job, measurement) for each finished run with the learning rate chosen by validation, in job order.

    ``row`` has the label, column, seed and value of the run as attributes. The measurement is read from the run. If it
    is not stored yet, ``measure`` is called with the weights file and the job of the run, and its result is stored as
    ``quantity``.

    Raises ``StoreError`` if no run has finished, or if a run has neither the measurement nor weights.
    """
    chosen_rows = scoring_of(MAD).chosen_rows(results.job_frame(MAD)).sort_index()  # in the order of the jobs
    if chosen_rows.empty:
        raise StoreError("no run has finished, so there is no model to measure")
    store = Store(results.store.root)
    jobs = {job.id: job for job in results.jobs}
    for row in rows_of(chosen_rows):
        job = jobs[row.id]

        def of_weights(weights: Path, job: Job = job) -> Values:
            return measure(weights, job)

        yield row, job, quantity.of_run(store, job, of_weights)


def coefficient_shares(weights: Path, job: Job) -> dict[str, float]:
    """The shares of coefficients of one trained model, by the names that :func:`measure_coefficients` lists."""
    model, inputs = load_model(weights)[0], first_examples(job)
    rows = pd.DataFrame(inspect(model, inputs).tables["weights"])
    near_zero, near_one = rows.near_zero.mean(), rows.near_one.mean()
    raw = []
    for mixer, x in mixer_inputs(model, inputs):
        is_zero = (mixer.coefficients(x).alpha.abs() <= NEAR_ZERO).tril().sum(-1)[..., 1:]
        raw.append(float((is_zero / torch.arange(2, x.shape[1] + 1)).mean()))
    ratio = near_one / max(near_zero, 1e-12)
    return {"near_zero": near_zero, "near_one": near_one, "ratio": ratio, "raw_near_zero": float(np.mean(raw))}


def first_examples(job: Job) -> Tensor:
    """The token ids (64, T) of the first 64 test sequences of a job."""
    return suite_of(job).Trial.examples(job, EXAMPLES, {})


def decide_rank(principle: Principle, study: Study, results: Results) -> Decision:
    """Decide a principle by Spearman's correlation of accuracy with shares of coefficients.

    Two quantities are correlated with accuracy (:data:`CORRELATED`): the share of coefficients near zero, and the share
    near one divided by it. There is one correlation per seed, over labels, and one verdict per task and quantity. The
    contrasts of ``study``, of accuracies and of shares, get verdicts too.
    """
    rows, panels = measure_coefficients(results), study.shown or (*CORRELATED, READOUT)
    lines, of_correlations, verdicts, listings = [], [], {}, []
    for task, of_task in groups_of(rows, "task"):
        lines.append([title(task)])
        for label, seeds in groups_of(of_task, "label"):
            means = (form.format(seeds[quantity].mean()) for quantity, (_, form) in COLUMNS.items())
            lines.append([f"  {display_name(label)}", *means, str(len(seeds))])
        for quantity in filter(panels.__contains__, CORRELATED):
            sample, panel = correlations(of_task, quantity), _panel(task, quantity)
            verdicts[panel] = correlation_verdict(sample)
            listings.append(f"{panel}: {', '.join(with_minus(f'{rho:+.2f}') for rho in sample.values)}")
            identity = {"task": task, "quantity": quantity, "correlations": sample.values.tolist()}
            numbers = dict(zip(("estimate", "low", "high"), (sample.mean, *sample.interval)))
            of_correlations.append(identity | numbers | {"seeds": sample.n, "verdict": verdicts[panel]})
    contrasts = compare_contrasts(study.contrasts, results.scores[results.scores.column.isin(study.tasks)])
    caption = (
        f"Accuracy in percent; shares of normalized coefficients near zero (at most {NEAR_ZERO}; raw: before"
        f" normalization) and near one (from {NEAR_ONE}) on {EXAMPLES} test sequences; means over n seeds. Spearman's"
        f" correlation of accuracy over labels, by seed: {'; '.join(listings)}."
    )
    headings = ["Label", *(heading for heading, _ in COLUMNS.values()), "n"]
    table = principle_table(caption, headings, lines, [*records_of(rows), *of_correlations])
    axes_of: dict[str, dict[str, Any]] = {
        _panel(task, quantity): {"xlabel": name, "ylabel": "accuracy, %", "xscale": scale}
        for task in study.tasks
        for (quantity, name), scale in zip(CORRELATED.items(), ("linear", "log"))
        if quantity in panels
    }
    notes, protocol = ["A point a seed."], " ".join(results.sentences(MAD))
    bands: dict[str, float] = {}
    if READOUT in panels:
        axes_of[READOUT_PANEL] = {"xlabel": "score s", "ylabel": "φ(s)", "xticks": (-12, -8, -4, 0)}
        notes.append(f"Shaded: |φ(s)| up to {NEAR_ZERO}, its near-zero set.")
        bands[READOUT_PANEL] = NEAR_ZERO
    verdicts |= group_verdicts(contrasts)
    of_shares, remarks = compare_shares(study.shares, rows)
    verdicts |= of_shares
    points = figure_points(rows, panels)
    return point_decision(principle, verdicts, table, points, protocol, axes_of, remarks, notes=notes, bands=bands)


def correlations(rows: pd.DataFrame, quantity: str) -> Sample:
    """Spearman's correlation over labels between ``quantity`` and accuracy, one value per seed that has all labels.

    ``rows`` are rows of one task of the result of :func:`measure_coefficients`.
    """
    from scipy.stats import spearmanr

    values = rows.pivot(index="seed", columns="label", values=[quantity, "accuracy"]).dropna()
    by_seed = [spearmanr(seed[quantity], seed["accuracy"]).statistic for _, seed in values.iterrows()]
    return Sample(np.array(by_seed, dtype=float), Scale(limits=(-1.0, 1.0), resolution=0.01))


def correlation_verdict(sample: Sample) -> str:
    """The verdict on the statement that correlations are positive. ``sample`` has one correlation per seed.

    Supported if the correlations of all seeds are positive and the interval of their mean is above 0. Contradicted if
    all are negative and the interval is below 0. Otherwise not significant. There are two more verdicts: ``too few
    seeds``, and ``no variation`` if a correlation is not defined.
    """
    if sample.n < LEAST_SEEDS:
        return "too few seeds"
    if np.isnan(sample.values).any():
        return "no variation"
    low, high = sample.interval
    if low > 0 and sample.values.min() > 0:
        return SUPPORTED
    return CONTRADICTED if high < 0 and sample.values.max() < 0 else OPEN


def _panel(task: str, quantity: str) -> str:
    return f"{title(task)}, {CORRELATED[quantity]}"


def figure_points(rows: pd.DataFrame, panels: Sequence[str]) -> list[dict[str, Any]]:
    points = [
        {"panel": _panel(row.task, quantity), "series": row.label, "label": row.label}
        | {"x": max(getattr(row, quantity), 1e-6) if quantity == "ratio" else getattr(row, quantity), "y": row.accuracy}
        for row in rows_of(rows)
        for quantity in filter(panels.__contains__, CORRELATED)
    ]
    return [*points, *readout_points(rows.label.unique())] if READOUT in panels else points


def readout_points(labels: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield the points (s, phi(s)) of every label with a pointwise readout phi, for scores s from -12 to 3.

    A point is a row of the data of a figure (:data:`madbench.papers.coefficients.figures.POINT_COLUMNS`). Kernels are
    left out, because their coefficients are not functions of the score.
    """
    s = torch.linspace(-12, 3, 301, dtype=torch.float64)
    for label in labels:
        parsed = coefficient_label(label)
        if not parsed.is_kernel:
            for x, y in zip(s.tolist(), read_out(parsed.readout, s).tolist()):
                yield {"panel": READOUT_PANEL, "series": label, "label": label, "x": x, "y": y}
