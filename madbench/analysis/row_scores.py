"""Scores of the rows of a table. Rows without a result that share their jobs are scored once."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import pandas as pd

from madbench.analysis.baselines import with_heuristics
from madbench.suites.scoring import JobOutcome, Scoring

if TYPE_CHECKING:
    from collections.abc import Mapping


def scores_of_rows(scoring: Scoring, outcomes: Sequence[JobOutcome], thresholds: Sequence[float]) -> pd.DataFrame:
    """The frame of scores of ``outcomes`` with the column ``heuristic``."""
    kept, alike = without_alike_rows(outcomes)
    scores = with_heuristics(scoring.frame(kept, thresholds), kept)
    return _repeated(scores, alike) if len(kept) < len(outcomes) else scores


def without_alike_rows(outcomes: Sequence[JobOutcome]) -> tuple[list[JobOutcome], dict[str, list[str]]]:
    """Returns the outcomes without repeated rows, and for each kept row the names of the rows that it represents.

    A row without a result represents the rows next to it whose jobs differ only in the label, as all of these have the
    same numbers in a frame of scores. A row with a result represents itself.
    """
    kept: list[JobOutcome] = []
    alike: dict[str, list[str]] = {}
    first, last_jobs = "", None
    for name, group in itertools.groupby(outcomes, lambda outcome: outcome.row):
        row = list(group)
        jobs = None if any(outcome.record for outcome in row) else [_but_label(outcome) for outcome in row]
        if jobs is not None and jobs == last_jobs:
            alike[first].append(name)
            continue
        first, last_jobs = name, jobs
        kept += row
        alike[name] = [name]
    return kept, alike


def _but_label(outcome: JobOutcome) -> tuple[Any, ...]:
    """The parts of a job that scores read if it has no result. One plan shares these objects, so they compare fast."""
    job = outcome.job
    return job.suite, job.task, job.seed, job.fidelity, job.setting, job.model, job.training


def _repeated(scores: pd.DataFrame, alike: Mapping[str, Sequence[str]]) -> pd.DataFrame:
    """The frame with the scores of each row repeated for every row that it represents."""
    places: list[int] = []
    labels: list[str] = []
    numbered = enumerate(scores.label)
    for name, group in itertools.groupby(numbered, lambda pair: pair[1]):
        own = [place for place, _ in group]
        for label in alike[name]:
            places += own
            labels += [label] * len(own)
    repeated = scores.take(places).reset_index(drop=True)
    return repeated.assign(label=pd.Series(labels, dtype=scores.label.dtype))
