"""The values on which verdicts on claims depend and that are part of no job, such as thresholds.

A registration (:mod:`madbench.analysis.registration`) stores them, so that a later change is noticed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from madbench.analysis import inference
from madbench.analysis.baselines import BASELINES, HEURISTIC, baseline_values
from madbench.analysis.claims import Claim
from madbench.analysis.claims.thresholds import claim_threshold
from madbench.analysis.quantities import column, is_average
from madbench.analysis.references import headroom
from madbench.analysis.scores import columns_of
from madbench.config import flatten
from madbench.jobs import Job, mapping_text
from madbench.rows import TableRows
from madbench.suites import columns as suite_columns
from madbench.suites import suite_of
from madbench.suites.base import Suite
from madbench.suites.planning import LEAST_SEEDS
from madbench.suites.scoring import scoring_of

TEST = {"name": inference.TEST, "version": inference.VERSION}
"""Name and version of the test behind the verdicts. A registration contains both."""


def verdict_inputs(frozen: Sequence[Claim], table: TableRows) -> dict[str, Any]:
    """The values, by name, on which the verdicts of the claims ``frozen`` on the rows of ``table`` depend.

    Values that are part of the jobs of ``table`` are left out. Some of the names are:

    - ``columns``: direction, resolution and limits of each quantity;
    - ``lines``: the threshold of each claim, by column. The name is an older word for thresholds, which the format of
      registrations keeps. Thresholds for accuracies are scaled to the profile, those for losses are not;
    - ``published``: the published numbers from which thresholds are computed;
    - ``chance``, ``heuristic``: the scores of a random guess and of the best answer that ignores the context, in
      percent, by task.

    All values have types that JSON reads back unchanged.
    """
    given_columns = columns_of(table)
    columns_by_claim = {claim.name: [name for name in claim.quantities if name in given_columns] for claim in frozen}
    names = dict.fromkeys(name for of_claim in columns_by_claim.values() for name in of_claim)
    settings: dict[str, dict[str, Job]] = {}
    for job in table.jobs:
        settings.setdefault(job.task, {})[mapping_text(job.setting)] = job
    shares = {task: scoring_of(_suite(of_task)).solved_share(task) for task, of_task in settings.items()}
    references = [claim.reference for claim in frozen]
    numbers_of = {
        label: reference.scores.get(label, {})
        for claim, reference in zip(frozen, references)
        for label in (*claim.labels(range(len(claim.pairs))), *reference.margin_labels)
    }
    heuristics = baseline_values(HEURISTIC, table.jobs, averages=False)
    columns = {name: column(name) for name in (*names, *(task for task in settings if task not in names))}
    values = {
        "level": inference.LEVEL,
        "seeds": list(table.grid.seeds),
        "correction": "Holm, over all registered claims and quantities",
        "least_seeds": LEAST_SEEDS,
        "unlearned_share": inference.UNLEARNED_SHARE,
        "margin_share": max((reference.margin_share for reference in references), default=0.0),
        "last_evaluations": suite_columns.LAST_EVALUATIONS,
        "quantities": columns_by_claim,
        "columns": {
            name: {
                "better": quantity_column.better,
                "resolution": quantity_column.resolution,
                "limits": [*map(_finite, quantity_column.limits)],
            }
            for name, quantity_column in columns.items()
        },
        "solved_share": {task: share for task, share in shares.items() if math.isfinite(share)},
        **{baseline.name: {**baseline_values(baseline, table.jobs, averages=False)} for baseline in BASELINES},
        "lines": {
            claim.name: {
                name: _finite(claim_threshold(claim, name, range(len(claim.pairs)), {}, headroom(name, heuristics)))
                for name in columns_by_claim[claim.name]
            }
            for claim in frozen
        },
        "published": {
            label: {name: value for name, value in numbers.items() if name in names or is_average(name)}
            for label, numbers in numbers_of.items()
        },
    }
    plain_values: dict[str, Any] = json.loads(json.dumps(values, allow_nan=False))
    return plain_values


def changed_inputs(registered: Mapping[str, object], present: Mapping[str, object]) -> list[str]:
    """The differences between two results of :func:`verdict_inputs`, as texts such as ``level 0.05, now 0.1``.

    A nested value has a dotted name. A value that only one of the results has is called ``missing`` in the other.
    """
    old_values, new_values = flatten(registered), flatten(present)
    names = [name for name in {**old_values, **new_values} if old_values.get(name) != new_values.get(name)]

    def text(values: Mapping[str, object], name: str) -> str:
        value = values.get(name, "missing")
        return f"{value:.10g}" if isinstance(value, float) else str(value)

    return [f"{name} {text(old_values, name)}, now {text(new_values, name)}" for name in names]


def _suite(jobs: Mapping[str, Job]) -> Suite:
    return suite_of(next(iter(jobs.values())))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
