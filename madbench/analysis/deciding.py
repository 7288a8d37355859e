"""What decides a verdict of stored runs and is in none of them: values, and the code that makes it."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from madbench.analysis import (
    baselines,
    claims,
    findings,
    inference,
    noise_model,
    quantities,
    row_scores,
    samples,
    scores,
)
from madbench.analysis.baselines import BASELINES, baseline_values
from madbench.analysis.claims import MARGIN_LABELS, Claim, line_of
from madbench.analysis.inference import counts, differences, distributions, many, sample
from madbench.analysis.noise_model import Noise
from madbench.analysis.quantities import column, is_average, parts_of
from madbench.analysis.scores import columns_of
from madbench.experiment import Experiment
from madbench.files import file_digest
from madbench.jobs import Job, mapping_text
from madbench.suites import base as suite_base
from madbench.suites import columns as suite_columns
from madbench.suites import published, scoring, suite_of
from madbench.suites.base import Suite
from madbench.suites.published import published_scores
from madbench.suites.scoring import scoring_of
from madbench.tasks import base

DECIDING: Sequence[Any] = (
    inference,
    counts,
    differences,
    distributions,
    many,
    sample,
    baselines,
    noise_model,
    samples,
    row_scores,
    scores,
    claims,
    findings,
    quantities,
    suite_base,
    suite_columns,
    scoring,
    published,
    base,
)
"""The modules of which the code makes a verdict of stored runs, whatever the tasks."""


def deciding_values(frozen: Sequence[Claim], made: Experiment) -> dict[str, Any]:
    """Every value that enters the verdicts on ``frozen`` of the runs of ``made`` and is in no job and no claim.

    ``columns``: direction, resolution and limits of each quantity. ``lines``: what the gain of each claim has to be
    beyond, scaled as accuracies are, and at the paper's losses. ``noise``: what is known of each task's.
    ``published``: the numbers behind the lines. ``chance``, ``heuristic``: of each task, in percent. All as JSON gives
    it back.
    """
    given_columns = columns_of(made)
    judged = {claim.name: [name for name in claim.quantities if name in given_columns] for claim in frozen}
    names = dict.fromkeys(name for of_claim in judged.values() for name in of_claim)
    settings: dict[str, dict[str, Job]] = {}
    for job in made.jobs:
        settings.setdefault(job.task, {})[mapping_text(job.setting)] = job
    shares = {task: scoring_of(_suite(of_task)).solved_share(task) for task, of_task in settings.items()}
    labels = [*(label for claim in frozen for label in claim.labels(range(len(claim.pairs)))), *MARGIN_LABELS]
    numbers_of = {label: published_scores().get(label, {}) for label in dict.fromkeys(labels)}
    noise_by_task = _noise(made)
    columns = {name: column(name) for name in (*names, *(task for task in settings if task not in names))}
    values = {
        "level": inference.LEVEL,
        "seeds": list(made.grid.seeds),
        "correction": "Holm, over all registered claims and quantities",
        "least_seeds": inference.LEAST_SEEDS,
        "least_for_level": inference.LEAST_FOR_LEVEL,
        "unlearned_share": inference.UNLEARNED_SHARE,
        "bimodal_share": inference.BIMODAL_SHARE,
        "margin_share": claims.MARGIN_SHARE,
        "last_evaluations": suite_columns.LAST_EVALUATIONS,
        "noise": {task: asdict(noise) for task, noise in noise_by_task.items()},
        "quantities": judged,
        "columns": {
            name: {
                "better": quantity_column.better,
                "resolution": quantity_column.resolution,
                "limits": [*map(_finite, quantity_column.limits)],
            }
            for name, quantity_column in columns.items()
        },
        "solved_share": {task: share for task, share in shares.items() if math.isfinite(share)},
        **{baseline.name: {**baseline_values(baseline, made.jobs, averages=False)} for baseline in BASELINES},
        "lines": {
            claim.name: {
                name: _finite(line_of(claim, name, range(len(claim.pairs)), {}, _way(name, noise_by_task)))
                for name in judged[claim.name]
            }
            for claim in frozen
        },
        "published": {
            label: {name: value for name, value in numbers.items() if name in names or is_average(name)}
            for label, numbers in numbers_of.items()
        },
    }
    return json.loads(json.dumps(values, allow_nan=False))


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The values that are others ``now``, by their dotted names: ``level 0.05, now 0.1``."""
    before, after = dict(_flat(then)), dict(_flat(now))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]

    def text(values: Mapping[str, Any], name: str) -> str:
        value = values.get(name, "not there")
        return f"{value:.10g}" if isinstance(value, float) else str(value)

    return [f"{name} {text(before, name)}, now {text(after, name)}" for name in names]


def analysis_hash(made: Experiment) -> str:
    """Hash of the code that makes a verdict of stored runs: :data:`DECIDING`, and the suites with their tasks."""
    names = [name for suite in made.suites for name in scoring_of(suite).sources(made.of(suite).protocol.tasks)]
    modules = [*DECIDING, *(sys.modules[name] for name in names)]
    files = dict.fromkeys(Path(module.__file__) for module in modules)
    return hashlib.sha256(" ".join(map(file_digest, files)).encode()).hexdigest()[:16]


def _way(quantity: str, noise_by_task: Mapping[str, Noise]) -> float:
    """From the heuristic to the ceiling of a quantity; NaN where the noise of one of its tasks is not known."""
    noises = [noise_by_task.get(name) for name in parts_of(quantity) or (quantity,)]
    return sum(noise.ceiling - noise.heuristic for noise in noises) / len(noises) if all(noises) else math.nan


def _noise(made: Experiment) -> dict[str, Noise]:
    """What the noise models say of each task of whose jobs all are of one protocol that has one."""
    jobs: dict[str, list[Job]] = {}
    for job in made.jobs:
        jobs.setdefault(job.task, []).append(job)
    noise_by_task = {task: noise_model.noise_of(of_task) for task, of_task in jobs.items()}
    return {task: noise for task, noise in noise_by_task.items() if noise}


def _suite(jobs: Mapping[str, Job]) -> Suite:
    return suite_of(next(iter(jobs.values())))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values with dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
