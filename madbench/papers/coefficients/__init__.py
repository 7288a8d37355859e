"""The design principles of the coefficient dynamics paper as experiments: what each trains, measures and decides.

*Design Principles for Sequence Models via Coefficient Dynamics*, arXiv 2510.09389. A principle is a claim, the labels
and tasks that test it under a profile, and the contrasts of labels that decide it. Training, storing and testing are
those of every other verb: :mod:`madbench.experiment` and :mod:`madbench.analysis.inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from madbench.labels import expand

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.figures.panels import Page
    from madbench.analysis.rendering import TextTable
    from madbench.jobs import Job

FULL, QUICK = "coefficients", "coefficients-quick"
"""Profiles: the paper's sizes, and a laptop's."""

Judge = Literal["contrasts", "rank", "spread", "time", "count"]


@dataclass(frozen=True)
class Contrast:
    """A label that the paper expects to do better than another one."""

    group: str  # what the verdict is about, such as a readout
    better: str
    worse: str


@dataclass(frozen=True)
class Study:
    """What a principle trains under one profile."""

    patterns: tuple[str, ...]  # labels and sets of labels
    tasks: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    vary: Mapping[str, tuple[float, ...]] | None = None  # settings in which rows differ
    contrasts: tuple[Contrast, ...] = ()
    shares: tuple[Contrast, ...] = ()  # of coefficients near zero, of which the better label is to have more
    shown: tuple[str, ...] = ()  # what is drawn against accuracy, and the readouts; all where none is named

    @property
    def labels(self) -> list[str]:
        """The canonical labels."""
        return expand(self.patterns)


@dataclass(frozen=True)
class Principle:
    """One claim of the paper."""

    number: str
    title: str  # of its figure
    claim: str
    source: str
    expected: str  # what the paper got
    judge: Judge  # how it is decided
    studies: Mapping[str, Study]  # by profile
    limits: str = ""  # what cannot differ, and where the experiment is not the paper's
    keeps_weights: bool = False  # whether it measures trained models

    @property
    def heading(self) -> str:
        """The heading of its figure."""
        return f"Principle {self.number}: {self.title}"

    def study(self, profile: str) -> Study:
        """What it trains; a profile of one's own trains the labels of the quick one."""
        return self.studies.get(profile, self.studies[QUICK])


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    principle: str  # whose runs it is of
    shown: tuple[str, ...] = ()  # see Study


@dataclass(frozen=True)
class Decision:
    """What the runs of a principle say."""

    table: TextTable
    verdicts: Mapping[str, str]  # by what they are about
    frame: pd.DataFrame  # what the figure draws
    draw: Callable[..., Page]  # the figure, of a layout
    measured: TextTable | None = None  # beside the contrasts
    remarks: Mapping[str, str] = field(default_factory=dict)  # numbers behind a verdict, by the same

    @property
    def figure(self) -> Page:
        """The figure, as wide as it needs."""
        return self.draw()


def key_width(job: Job) -> int:
    """n, the key width of one head of the job's mixers, whose ranks no budget decides."""
    return (job.mixer["qk_rank"] or job.model.d_model) // job.model.n_head
