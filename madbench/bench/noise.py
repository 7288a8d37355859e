"""Makes a noise model (:mod:`madbench.analysis.noise_model`) from the seeds of one or more stores.

    python -m madbench.bench.noise STORE ... --name evening-2 [--profile evening] > tasks/noise/evening.yaml

Each column is fitted alone: groups of three and of four seeds of a label (of two, where no label has more than three),
drawn at random, have to predict one more seed of it. The prediction is Student's t with the lent variance, and with the
probability of a surprise a Laplace distribution about the mean of the group; the numbers are those of the largest
likelihood, times weak priors that keep them from running off where a column says nothing of one. Labels weigh alike
from ten seeds on. How far apart the seeds of one label may be (``reach``) follows from the largest distance of two. The
store's labels are folded into these numbers; ``--half even`` or ``odd`` uses every other label, to test them on the
rest.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import minimize
from scipy.special import gammaln

from madbench.analysis.noise_model import Noise, protocol_of, variance_curve
from madbench.analysis.stored import Selection
from madbench.errors import ConfigError, MadbenchError
from madbench.suites import Suite, main_suite
from madbench.suites.scoring import scoring_of

GROUPS = (3, 4)
"""Seeds that predict one more; two where no label has more than three."""
DRAWS = 40
"""Of groups, of each label and size."""
MOST_WEIGHT = 10
"""Seeds of a label that weigh in a fit."""
JUMP_SHARE = math.sqrt(0.3)
"""Of the Laplace distribution's standard deviation that enters a variance.

With all of it intervals of a mean cover 97% and more, with this 95 to 96% (labels of the profile ``quick`` that had no
part in the fit): its tail is that of one seed and not of a mean.
"""
REACH = 1.5
"""Times the largest distance of two seeds of one label, of any label, is the reach of a column.

Seeds of a label with shares p and 1 - p on two levels are three times on one of them with p**3 + (1 - p)**3, so that
three seeds of most labels do not show how far apart theirs may be.
"""
FITTED = ("low", "middle", "high", "lent", "surprises", "scale")
PRIORS = ((1.0, 1.0), (2.7, 1.0), (0.14, 1.0), (2.7, 1.0), (0.14, 1.0), (10.0, 0.7))
"""Medians and logarithmic standard deviations of the fitted numbers; spreads in percentage points."""


def groups_of(cells: Sequence[np.ndarray], rng: np.random.Generator) -> list[tuple[np.ndarray, ...]]:
    """Of each size of group: mean, variance, the next seed and its weight, of every draw.

    Raises ``ConfigError`` where no label has the three seeds that two and the next one are.
    """
    groups, most = [], max(map(len, cells), default=0)
    if most < 3:
        raise ConfigError(f"a noise model needs 3 seeds of a label; the most here is {most}: name more stores")
    for n in [n for n in GROUPS if n < most] or [2]:
        rows = []
        for values in cells:
            if len(values) <= n:
                continue
            weight = min(len(values), MOST_WEIGHT) / 2 / DRAWS
            for _ in range(DRAWS):
                drawn = rng.permutation(values)[: n + 1]
                rows.append((drawn[:n].mean(), drawn[:n].var(ddof=1), drawn[n], weight))
        groups.append((n, *np.array(rows).T))
    return groups


def surprise(numbers: np.ndarray, groups: Sequence[tuple], heuristic: float, ceiling: float, step: float) -> float:
    """Minus the logarithm of what the numbers' probability of the next seeds is, times the priors."""
    low, middle, high, lent, surprises, scale = np.exp(numbers)
    total = sum(((x - math.log(median)) / width) ** 2 / 2 for x, (median, width) in zip(numbers, PRIORS))
    for n, mean, variance, value, weight in groups:
        share = np.clip((mean - heuristic) / (ceiling - heuristic), 0, 1)
        trend = variance_curve(share, low, middle, high)
        variance = np.maximum(variance, step**2 / 12)
        moderated = (lent * trend + (n - 1) * variance) / (lent + n - 1)
        freedom = np.where(variance > moderated, n - 1, lent + n - 1)
        variance = np.maximum(moderated, variance) * (1 + 1 / n)
        usual = gammaln((freedom + 1) / 2) - gammaln(freedom / 2) - np.log(np.pi * freedom * variance) / 2
        usual = usual - (freedom + 1) / 2 * np.log1p((value - mean) ** 2 / (freedom * variance))
        unusual = -np.abs(value - mean) / scale - math.log(2 * scale)
        share = surprises / (n + surprises)
        total -= float((weight * np.logaddexp(math.log1p(-share) + usual, math.log(share) + unusual)).sum())
    return total


def fit(cells: Sequence[np.ndarray], heuristic: float, ceiling: float, step: float) -> dict[str, float]:
    """The numbers of one column, from the seeds of its labels."""
    groups = groups_of(cells, np.random.default_rng(0))
    start = np.log([median for median, _ in PRIORS])
    simplex = start + np.vstack([np.zeros(len(start)), np.eye(len(start)) / 2])
    options = {"maxiter": 4000, "maxfev": 4000, "xatol": 1e-3, "fatol": 1e-3, "initial_simplex": simplex}
    best = minimize(surprise, start, (groups, heuristic, ceiling, step), method="Nelder-Mead", options=options)
    numbers = dict(zip(FITTED, np.exp(best.x).tolist()))
    numbers["jump"] = JUMP_SHARE * math.sqrt(2) * numbers.pop("scale")
    numbers["reach"] = REACH * max(float(np.ptp(values)) for values in cells)
    return numbers


def measured(
    stores: Sequence[Path], profile: str | None, suite: Suite | None = None
) -> tuple[pd.DataFrame, dict[str, tuple[str, float]]]:
    """The scores of all stores, each label's seed once, and of each task the protocol and the heuristic in percent.

    Of a ``suite``, the main one by default, and the usual profile of it where ``profile`` is None.
    """
    suite = suite or main_suite()
    frames: list[pd.DataFrame] = []
    protocols: dict[str, tuple[str, float]] = {}
    for store in stores:
        results = Selection(tasks=suite.usual_tasks(), profile=profile or suite.default, results=store).select()
        frames.append(results.scores)
        for job in (run.job for run in results.runs(suite)):
            if job.task not in protocols:
                protocols[job.task] = (protocol_of(job), scoring_of(suite).heuristic(job))
    scores = pd.concat(frames, ignore_index=True).dropna(subset="value")
    return scores[~scores.is_diverged].drop_duplicates(["label", "column", "seed"]), protocols


def cells_of(scores: pd.DataFrame, task: str) -> dict[str, np.ndarray]:
    """The values of the seeds of each label, labels in alphabetical order, seeds in theirs."""
    rows = scores[scores.column == task].sort_values(["label", "seed"])
    return {label: of_label.value.to_numpy() for label, of_label in rows.groupby("label")}


def text(name: str, description: str, columns: dict[str, Noise]) -> str:
    """A noise model's file."""
    lines = [f"name: {name}", "description: >", f"  {description}", "columns:"]
    for column, noise in columns.items():
        lines.append(f"  {column}:")
        numbers = {key: value for key, value in vars(noise).items() if key != "source"}
        lines += [f"    {key}: {repr(v) if isinstance(v, str) else f'{v:.4g}'}" for key, v in numbers.items()]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stores", nargs="+", type=Path, help="results folders")
    parser.add_argument("--name", required=True, help="of the model, with its version")
    parser.add_argument("--profile", default=main_suite().default, help="that the runs follow")
    parser.add_argument("--half", choices=["even", "odd"], help="of the labels, in alphabetical order")
    options = parser.parse_args(arguments)
    try:
        print(model_text(options), end="")
    except MadbenchError as error:
        sys.exit(str(error))


def model_text(options: argparse.Namespace) -> str:
    """The file of the noise model that the command line asks for."""
    scores, known = measured(options.stores, options.profile)
    labels, seeds, columns = set(), 0, {}
    for task, (protocol, heuristic) in known.items():
        cells = cells_of(scores, task)
        chosen = [*cells][{"even": slice(0, None, 2), "odd": slice(1, None, 2), None: slice(None)}[options.half]]
        ceiling = float(scores[scores.column == task].ceiling.mean())
        numbers = fit([cells[label] for label in chosen], heuristic, ceiling, 0.1)
        columns[task] = Noise(protocol=protocol, heuristic=heuristic, ceiling=ceiling, **numbers)
        labels |= set(chosen)
        seeds += sum(len(cells[label]) for label in chosen)
    half = f", every {options.half} one" if options.half else ""
    description = f"Profile {options.profile}, {len(labels)} labels{half}, {seeds:,} runs."
    return text(options.name, description, columns)


if __name__ == "__main__":
    main()
