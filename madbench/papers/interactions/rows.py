"""Rows of tables of the interactions suite, and the statements of the paper that they decide.

A row has the stored runs of a label in one task setting, with their errors by length, lowest possible errors and
predicted errors.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, cast

from madbench.jobs import Record
from madbench.labels import parse
from madbench.labels.names import display_name
from madbench.papers.interactions.profile import InteractionJob, world_of
from madbench.papers.interactions.worlds import Colliding, Genotype, Pixels, Plane, Series, World
from madbench.papers.making import CONTRADICTED
from madbench.rows import SuiteRow

LEARNED_MSE = 1e-6
"""The largest mean squared error at which values count as learned: ten times the paper's errors of about 1e-7."""
PAPER_ERROR, PAPER_DISTANCE = 1e-7, 1e-4
"""The mean squared errors that the paper reports for colliding agents (7.1): of their values at every length, and of
the learned matrix of effects.
"""
RELATIVE_DIFFERENCE = 0.05
"""The largest relative difference at which an error counts as equal to its prediction. Test agents are random, so it is
not 0.
"""
VARIANTS = {"one_hot": "one-hot", "sinusoidal": "sinusoidal", "without_itself": "no self", "distinct": "distinct"}
"""Embeddings and controls of a task setting: value to the words for it in the name of a row."""


@dataclass(frozen=True)
class InteractionRow:
    """The finished and diverged runs of a label in one task setting, over seeds."""

    name: str
    task: str
    label: str
    jobs: Sequence[InteractionJob]
    """The jobs of the runs, one per seed."""
    records: Sequence[Record]
    """The records of the runs, in the order of ``jobs``."""

    @cached_property
    def world(self) -> World:
        return world_of(self.jobs[0])

    @property
    def seeds(self) -> list[int]:
        return [job.seed for job in self.jobs]

    @property
    def control(self) -> str:
        return getattr(self.world, "control", "")

    @property
    def parameters(self) -> int:
        return int(self.records[0].details.get("model_parameters", 0))

    def errors(self, length: int) -> list[float]:
        """The mean squared error per agent in test samples of ``length`` agents, one per seed.

        Infinite for a run without this number, such as a diverged run.
        """
        return [record.metrics.get(f"mse_{length}", math.inf) for record in self.records]

    def metric(self, name: str) -> list[float]:
        """The metric ``name`` of the records, one value per seed. NaN for a run that does not have it."""
        return [record.metrics.get(name, math.nan) for record in self.records]

    @property
    def distance(self) -> float | None:
        """The mean squared difference between the entries of learned and theoretical effects, for the worst seed.

        Infinite if some seeds have no such number because they diverged. None if no seed has it, as for mixers without
        a matrix of effects.
        """
        values = self.metric("effects_error")
        if all(map(math.isnan, values)):
            return None
        return math.inf if any(map(math.isnan, values)) else max(values)

    def variance(self, length: int) -> float:
        """The variance of the agents' values in test samples of ``length`` agents. NaN if no run has it.

        It is the mean squared error of the best constant prediction.
        """
        variances = (value for value in self.metric(f"variance_{length}") if not math.isnan(value))
        return max(variances, default=math.nan)

    def floor(self, length: int) -> float | None:
        """The lowest mean squared error at a length that a mixer of this kind can reach. None if it is not known.

        It is not known for softmax. Theory may give a floor of 0. The result is then None for labels without full
        couplings, because their factors may be too narrow to reach 0.
        """
        label: Any = parse(self.label)
        order = max(getattr(label, "orders", None) or [getattr(label, "degree", 0)])
        floor = self.world.floor(self.label.partition(":")[0], order, length) if label.base else None  # softmax
        return None if floor == 0.0 and label.base != "C" else floor  # factors may be too narrow to reach 0

    def predicted(self, length: int) -> list[float]:
        """The mean squared errors at a length that the theory predicts for a control, one per seed.

        A control breaks a condition of the theorem. The prediction assumes a perfect fit at the training length. Empty
        if the row is not a control.
        """
        world = self.world
        if not isinstance(world, Colliding) or not world.control:
            return []
        errors = (0.0 if math.isnan(error) else error for error in self.metric("diagonal_error"))
        return [world.control_error(length, error) for error in errors]

    def reference(self, length: int) -> float | None:
        """The mean squared error at a length that theory gives: the largest predicted error, or else :meth:`floor`.

        None if neither is known.
        """
        return max(self.predicted(length), default=self.floor(length))

    @property
    def is_learned(self) -> bool:
        """True if every seed has an error of at most :data:`LEARNED_MSE` at the training length."""
        return max(self.errors(self.world.length)) <= LEARNED_MSE

    @property
    def is_general(self) -> bool:
        """True if every seed has an error of at most :data:`LEARNED_MSE` at every test length."""
        return all(max(self.errors(length)) <= LEARNED_MSE for length in self.world.lengths)

    @property
    def verdict(self) -> str:
        """The result of the row in a few words, such as ``exact at every length``."""
        length = self.world.length
        if self.control:
            is_as_predicted = self.is_learned and all(
                abs(error - predicted) <= RELATIVE_DIFFERENCE * predicted + LEARNED_MSE
                for n in self.world.lengths
                for error, predicted in zip(self.errors(n), self.predicted(n))
            )
            return "fits L* alone, and misses as predicted" if is_as_predicted else "not as predicted"
        floor = self.floor(length)
        if self.is_general:
            return "exact at every length"
        if self.is_learned:
            return "exact at L* alone"
        if floor and min(self.errors(length)) >= (1 - RELATIVE_DIFFERENCE) * floor:
            return "at its floor or above"
        return "below its floor" if floor else "not exact"

    def summary(self) -> dict[str, Any]:
        """The row as a mapping for JSON: errors by length and seed, floors, predictions, and the verdict."""
        lengths = {
            str(n): {
                "mse": list(map(_finite, self.errors(n))),
                "floor": self.floor(n),
                **({"predicted": self.predicted(n)} if self.control else {}),
                "variance": _finite(self.variance(n)),
            }
            for n in self.world.lengths
        }
        content: dict[str, Any] = {
            "name": self.name,
            "task": self.task,
            "label": self.label,
            "setting": dict(self.jobs[0].setting),
        }
        content |= {"n_head": self.jobs[0].model.n_head, "parameters": self.parameters}
        content |= {"seeds": self.seeds, "lengths": lengths}
        distances = list(map(_finite, self.metric("effects_error")))
        return content | {"effects_error": distances, "verdict": self.verdict}


@dataclass(frozen=True)
class StatementVerdict:
    """A statement of the paper, and the verdict of the stored runs on it."""

    task: str
    statement: str
    source: str
    verdict: str
    """``reproduced``, ``not reproduced``, or ``contradicted`` if the runs contradict what the paper prints."""
    numbers: str


def _finite(value: float) -> float | None:
    """The number for JSON. None if it is infinite or NaN."""
    return value if math.isfinite(value) else None


def row_name(job: InteractionJob) -> str:
    """The label with words for its task setting and model, such as ``hfa:C1 one-hot, distinct`` or ``hfa:C1 ReLU``."""
    parts = [VARIANTS[part] for key in ("embedding", "control") if (part := job.setting.get(key))]
    if job.setting.get("fewest"):
        parts.append("mixed lengths")
    if job.model.relu:
        parts.append("ReLU")
    return " ".join([job.label, ", ".join(parts)]).strip()


def shown_row_name(name: str) -> str:
    """The name of a row (:func:`row_name`) with the display name of its label."""
    label, space, words = name.partition(" ")
    return f"{display_name(label)}{space}{words}"


def interaction_rows(planned: Iterable[SuiteRow], records: Mapping[str, Record]) -> list[InteractionRow]:
    """The rows of ``planned`` that have at least one finished or diverged run.

    ``records`` has the stored records, by job id.
    """
    rows = []
    for row in planned:
        suite_jobs = cast("list[InteractionJob]", row.jobs)
        jobs = [job for job in suite_jobs if job.id in records and records[job.id].status != "failed"]
        if jobs:
            first = jobs[0]
            rows.append(
                InteractionRow(row_name(first), first.task, first.label, jobs, [records[job.id] for job in jobs])
            )
    return rows


def statement_verdicts(rows: Sequence[InteractionRow]) -> list[StatementVerdict]:
    """The verdicts on all statements of the paper that these rows can decide. Empty if there are none."""
    statements = []
    for row in rows:
        if isinstance(row.world, Colliding) and row.label == "hfa:C1":
            statements += _colliding_verdicts(row, row.world)
        if isinstance(row.world, Plane | Pixels | Series) and row.floor(row.world.length) == 0.0:
            worst = max(max(row.errors(n)) for n in row.world.lengths)
            source = {"plane": "B.1.3", "pixels": "B.3", "series": "B.4"}[row.task]
            numbers = f"at most {worst:.1e}"
            statements.append(_verdict(row, f"{row.name}: no error at any length", source, row.is_general, numbers))
        if isinstance(row.world, Genotype) and row.label == "hfa:C1":
            statements += _genotype_verdicts(row)
    for task in ("hunters", "alliances"):
        task_rows = [row for row in rows if row.task == task]
        able = [row for row in task_rows if row.floor(row.world.length) == 0.0]
        unable = [row for row in task_rows if row.floor(row.world.length)]
        if able and unable:
            statements.append(_expressiveness_verdict(task, able, unable))
        if task == "alliances":
            for row in able:
                worst = max(max(row.errors(n)) for n in row.world.lengths)
                text = f"{row.label}: no error at any length"
                statements.append(_verdict(row, text, "Theorem G.7", row.is_general, f"at most {worst:.1e}"))
    return statements


def _colliding_verdicts(row: InteractionRow, world: Colliding) -> list[StatementVerdict]:
    """The verdicts on statements about colliding agents, for one row. ``world`` is the world of the row."""
    name = row.name
    if world.control:
        sources = {"without_itself": "against eq. 4 without j = i", "distinct": "Remark D.1, Appendix D.2"}
        holds = row.verdict.startswith("fits L*")
        errors = (f"{max(row.errors(n)):.3g} for {row.reference(n):.3g} at L {n}" for n in world.lengths)
        text = f"{name}: no error at L*, and elsewhere the one predicted"
        verdict = _verdict(row, text, sources[world.control], holds, ", ".join(errors))
        if world.control == "without_itself" and holds:
            verdict = replace(verdict, verdict=CONTRADICTED)
        return [verdict]
    length, others = max(row.errors(world.length)), [n for n in world.lengths if n != world.length]
    distance = math.inf if row.distance is None else row.distance
    paper = f"the paper, at N 360: {PAPER_ERROR:.0e}"
    verdicts = [
        _verdict(
            row, f"{name}: no error on fresh agents", "Theorem 4.6", length <= LEARNED_MSE, f"{length:.1e}; {paper}"
        )
    ]
    if others:
        elsewhere = max(max(row.errors(n)) for n in others)
        text = f"{name}: no error at other lengths"
        verdicts.append(
            _verdict(row, text, "Theorem 4.8", elsewhere <= LEARNED_MSE, f"at most {elsewhere:.1e}; {paper}")
        )
    text = f"{name}: the learned matrix is the devised one"
    numbers = f"mean square {distance:.1e}; the paper: {PAPER_DISTANCE:.0e} in its text, 1e-5 in its captions"
    return [*verdicts, _verdict(row, text, "Corollary D.3", distance <= PAPER_DISTANCE, numbers)]


def _genotype_verdicts(row: InteractionRow) -> list[StatementVerdict]:
    """The verdicts on B.2: linear attention fits all lengths with a ReLU layer, else only the training length."""
    world = row.world
    numbers = ", ".join(f"L {n}: {max(row.errors(n)):.1e}" for n in world.lengths)
    fits = _verdict(row, f"{row.name}: no error at L*", "B.2", row.is_learned, numbers)
    others = [n for n in world.lengths if n != world.length]
    if not others:
        return [fits]
    if row.jobs[0].model.relu:
        text, holds = f"{row.name}: no error at other lengths", row.is_general
    else:
        text = f"{row.name}: errs at other lengths, as linear attention does not generalize in length"
        holds = all(max(row.errors(n)) > LEARNED_MSE for n in others)
    return [fits, _verdict(row, text, "B.2", holds, numbers)]


def _expressiveness_verdict(
    task: str, able: Sequence[InteractionRow], unable: Sequence[InteractionRow]
) -> StatementVerdict:
    length = able[0].world.length
    floor = min(floor for row in unable if (floor := row.floor(length)) is not None)
    holds = all(max(row.errors(length)) < floor for row in able)
    holds &= all(row.verdict == "at its floor or above" for row in unable)
    text = " learns what ".join(", ".join(row.label for row in side) for side in (able, unable)) + " cannot"
    numbers = "; ".join(
        f"{row.label} ({row.parameters:,} parameters) {', '.join(f'{error:.2g}' for error in row.errors(length))}"
        for row in (*able, *unable)
    )
    source = {"hunters": "section 5, eq. 3", "alliances": "section 6"}[task]
    return _verdict(able[0], text, source, holds, f"by seed at L {length}: {numbers}; floor {floor:.3g}")


def _verdict(row: InteractionRow, statement: str, source: str, holds: bool, numbers: str) -> StatementVerdict:
    return StatementVerdict(row.task, statement, source, "reproduced" if holds else "not reproduced", numbers)
