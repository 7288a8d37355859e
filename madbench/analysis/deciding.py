"""What decides a verdict of stored runs and is in none of them: values, and the code that makes it."""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from madbench.analysis import claims, findings, inference, loss_curves, quantities, samples, scores
from madbench.analysis.claims import MARGIN_LABELS, Claim, line_of
from madbench.analysis.quantities import MAD_AVERAGE, column
from madbench.analysis.scores import chance_of, columns_of
from madbench.experiment import Experiment
from madbench.files import file_digest
from madbench.jobs import mapping_text
from madbench.suites import MAD, language
from madbench.tasks import base, settings_class

DECIDING: Sequence[Any] = (
    inference,
    samples,
    scores,
    claims,
    findings,
    quantities,
    loss_curves,
    language,
    base,
)
"""The modules of which the code makes a verdict of stored runs, whatever the tasks."""


def deciding_values(frozen: Sequence[Claim], made: Experiment) -> dict[str, Any]:
    """Every value that enters the verdicts on ``frozen`` of the runs of ``made`` and is in no job and no claim.

    ``columns``: direction, resolution and limits of each quantity. ``lines``: what the gain of each claim has to be
    beyond, at the paper's size. ``published``: the numbers behind the lines. ``chance``: of each task, in percent. All
    as JSON gives it back.
    """
    given = columns_of(made)
    judged = {claim.name: [name for name in claim.quantities if name in given] for claim in frozen}
    names = dict.fromkeys(name for of_claim in judged.values() for name in of_claim)
    settings: dict[str, dict[str, None]] = {}
    for job in made.of(MAD).jobs:
        settings.setdefault(job.task, {})[mapping_text(job.setting)] = None
    chances = {task: [chance_of(task, text) for text in of_task] for task, of_task in settings.items()}
    labels = [*(label for claim in frozen for label in claim.labels(range(len(claim.pairs)))), *MARGIN_LABELS]
    published = {label: scores.published_scores().get(label, {}) for label in dict.fromkeys(labels)}
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
        "last_evaluations": language.LAST_EVALUATIONS,
        "quantities": judged,
        "columns": {
            name: {
                "better": one.better,
                "resolution": one.resolution,
                "limits": [*map(_finite, one.limits)],
            }
            for name, one in columns.items()
        },
        "solved_share": {task: settings_class(task).solved_share for task in settings},
        "chance": {task: 100 * sum(of_task) / len(of_task) for task, of_task in chances.items()},
        "lines": {
            claim.name: {
                name: _finite(line_of(claim, name, range(len(claim.pairs)), {})) for name in judged[claim.name]
            }
            for claim in frozen
        },
        "published": {
            label: {name: numbers[name] for name in dict.fromkeys([*names, MAD_AVERAGE]) if name in numbers}
            for label, numbers in published.items()
        },
    }
    return json.loads(json.dumps(values, allow_nan=False))


def changes(then: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """The values that are others ``now``, by their dotted names: ``level 0.05, now 0.1``."""
    before, after = dict(_flat(then)), dict(_flat(now))
    names = [name for name in {**before, **after} if before.get(name) != after.get(name)]
    return [f"{name} {before.get(name, 'not there')}, now {after.get(name, 'not there')}" for name in names]


def analysis_hash(made: Experiment) -> str:
    """Hash of the code that makes a verdict of stored runs: :data:`DECIDING`, and the tasks with their ceilings."""
    tasks = dict.fromkeys(job.task for job in made.of(MAD).jobs)
    modules = [*DECIDING, *(sys.modules[settings_class(task).__module__] for task in tasks)]
    files = dict.fromkeys(Path(module.__file__) for module in modules)
    return hashlib.sha256(" ".join(map(file_digest, files)).encode()).hexdigest()[:16]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values with dotted names."""
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value
