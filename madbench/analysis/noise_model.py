"""How seeds of one column scatter, measured on many labels: what a few seeds of one label can borrow.

A noise model is a file of ``tasks/noise``, made by ``madbench.bench.noise`` from a store. It says of each column what
runs of one task setting, model size, training and fidelity do from seed to seed, and applies to runs of exactly these,
whatever their profile is called. It has no number of any single label, so what is inferred of two labels rests on these
two and on the file.

- Lent variance: spreads near the heuristic, midway and at the ceiling, joined by a curve, count like ``lent`` seeds.
  This is the moderated variance of Smyth (2004), "Linear models and empirical Bayes methods for assessing differential
  expression in microarray experiments", Statistical Applications in Genetics and Molecular Biology 3, with a trend. We
  differ in that it raises a small spread and never lowers a large one, as the spreads of labels differ by orders.
- Surprise: some labels have seeds that now and then fall elsewhere. After n seeds the next one does with probability
  ``surprises / (n + surprises)``, and by ``jump`` (Polya's urn; the share of such seeds has a U-shaped prior).
- Reach: how far apart seeds of one label may be. Of the many pairs that ranks order, those within it are ordered only
  if the counts of their seeds say so too.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from madbench.config import TASKS, convert, read_yaml
from madbench.errors import ConfigError
from madbench.jobs import Job, content_id, mapping_text

if TYPE_CHECKING:
    from madbench.suites.scoring import Outcome

FOLDER = TASKS / "noise"
WIDE_NOTE = (
    "No noise model is known for these runs: nothing is lent to their seeds, and the mean of seeds that may solve a"
    " task has a wide interval."
)


@dataclass(frozen=True)
class Noise:
    """What a noise model says of one column, in the column's units."""

    protocol: str
    """:func:`protocol_of` the runs that it was measured on."""
    heuristic: float
    """What the commonest answer so far scores."""
    ceiling: float
    """The best that the data allow."""
    low: float
    """Standard deviation of seeds whose mean is the heuristic's, or below."""
    middle: float
    """Its value midway, as far as the curve is pulled there."""
    high: float
    """At the ceiling."""
    lent: float
    """Seeds that the lent variance counts for."""
    surprises: float
    """Seeds beforehand that fell elsewhere."""
    jump: float
    """Root mean square of the way by which they do."""
    reach: float = math.inf
    """How far apart the seeds of one label may be; of a model that does not say, any distance."""
    source: str = ""
    """Name and version of the noise model."""

    def variance(self, mean: float) -> float:
        """Of seeds about ``mean``."""
        share = (mean - self.heuristic) / (self.ceiling - self.heuristic)
        return variance_curve(min(1.0, max(0.0, share)), self.low, self.middle, self.high)

    def lend(self, variance: float, mean: float, n: int) -> tuple[float, float]:
        """The variance of ``n`` seeds of which ``variance`` is their own, and its degrees of freedom."""
        freedom = self.lent + n - 1
        moderated = (self.lent * self.variance(mean) + (n - 1) * variance) / freedom
        return (moderated, freedom) if moderated >= variance else (variance, n - 1)

    def unseen_variance(self, n: int) -> float:
        """What seeds that would fall elsewhere add to the variance of the mean of ``n``."""
        return unseen_variance(n, self.surprises, self.jump)


def unseen_variance(n: int, surprises: float, jump: float) -> float:
    """Of the mean of ``n`` seeds, by a share of seeds elsewhere with the beta distribution (surprises, n)."""
    share = surprises / (n + surprises)
    return jump**2 * share * (1 - share) / (n + surprises + 1)


def variance_curve(share: float | np.ndarray, low: float, middle: float, high: float) -> float | np.ndarray:
    """The quadratic Bernstein curve of squared spreads at a share, or shares, of the way to the ceiling."""
    return low**2 * (1 - share) ** 2 + high**2 * share**2 + middle**2 * 2 * share * (1 - share)


@dataclass(frozen=True)
class NoiseModel:
    """The columns of one file."""

    name: str
    """With its version: ``quick-1``."""
    description: str
    """What it was made from."""
    columns: Mapping[str, Noise]

    @classmethod
    def load(cls, path: Path) -> NoiseModel:
        """Of a YAML file; raises ``ConfigError`` where a key is missing, unknown or of the wrong type."""
        content = read_yaml(path)
        if lacking := [key for key in ("name", "description", "columns") if key not in content]:
            raise ConfigError(f"{path}: a noise model needs {', '.join(lacking)}")
        columns = {}
        for column, numbers in content["columns"].items():
            columns[column] = convert({**numbers, "source": content["name"]}, Noise, f"{path}: {column}")
        return cls(content["name"], content["description"], columns)


@functools.cache
def noise_models() -> tuple[NoiseModel, ...]:
    """Those that are shipped."""
    return tuple(map(NoiseModel.load, sorted(FOLDER.glob("*.yaml"))))


def by_protocol(models: Iterable[NoiseModel]) -> dict[str, Noise]:
    """The columns of some models, by the protocol that each was measured on."""
    return {noise.protocol: noise for model in models for noise in model.columns.values()}


@functools.cache
def _shipped_by_protocol() -> dict[str, Noise]:
    return by_protocol(noise_models())


def protocol_of(job: Job) -> str:
    """12 hexadecimal digits of what a seed's scatter depends on besides the label: task, sizes, training, fidelity."""
    return _protocol_of(job.suite, job.task, mapping_text(job.setting), job.model, job.training, job.fidelity)


@functools.cache
def _protocol_of(suite: str, task: str, setting: str, model: Any, training: Any, fidelity: str) -> str:
    own = {"suite": suite, "task": task, "setting": json.loads(setting), "model": model, "training": training}
    return content_id({**own, "fidelity": fidelity})[:12]


def noise_of(jobs: Iterable[Job]) -> Noise | None:
    """What is known of the noise of a cell whose seeds rest on ``jobs``; None where it is not known of all."""
    protocols = {protocol_of(job) for job in jobs}
    return _shipped_by_protocol().get(protocols.pop()) if len(protocols) == 1 else None


def with_noise(scores: pd.DataFrame, outcomes: Sequence[Outcome]) -> pd.DataFrame:
    """A frame of scores with the column ``noise``: a :class:`Noise`, or None, of every row's label and column."""
    jobs: dict[tuple[str, str], list[Job]] = {}
    for outcome in outcomes:
        jobs.setdefault((outcome.row, outcome.job.task), []).append(outcome.job)
    noise_by_cell = {key: noise_of(of_cell) for key, of_cell in jobs.items()}
    return scores.assign(
        noise=pd.Series(
            [noise_by_cell.get(key) for key in zip(scores.label, scores.column)], scores.index, dtype=object
        )
    )


def noise_name(noises: Iterable[Noise | None]) -> str:
    """The noise models behind some samples by name and version, for captions.

    >>> noise_name([None])
    'No noise model'
    """
    sources = list(dict.fromkeys(noise.source if noise else "" for noise in noises))
    names = sorted(filter(None, sources))
    if not names:
        return "No noise model"
    return f"Noise model{'s' * (len(names) > 1)} {', '.join(names)}" + " for a part of the runs" * ("" in sources)


def noise_note(noises: Iterable[Noise | None]) -> str:
    """The noise models behind some samples, in a sentence."""
    sources = list(dict.fromkeys(noise.source if noise else "" for noise in noises))
    names = sorted(filter(None, sources))
    if not names:
        return WIDE_NOTE
    rest = " Nothing is lent to other seeds." if "" in sources else ""
    return f"Noise model {', '.join(names)} lends variance to the seeds of a label.{rest}"
