"""The types of the experiments on the paper's design principles: labels, tasks, contrasts and decisions.

*Design Principles for Sequence Models via Coefficient Dynamics*, arXiv 2510.09389. A principle is a claim, the labels
and tasks that test it under a profile, and the contrasts of labels that decide it. Training, storing and testing are
the same as for every other verb: :mod:`madbench.experiment` and :mod:`madbench.analysis.inference`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from madbench.labels import expand, parse
from madbench.mixers.cd.grammar import Label

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.figures.panels import Page
    from madbench.analysis.rendering import TextTable
    from madbench.jobs import Job

FULL, QUICK = "coefficients", "coefficients-quick"
"""The profiles: the sizes of the paper, and sizes for a laptop."""

Judge = Literal["contrasts", "rank", "spread", "time", "count"]


@dataclass(frozen=True)
class Contrast:
    """A pair of labels of which the paper expects one to do better than the other."""

    group: str  # the subject of the verdict, such as a readout
    better: str
    worse: str


@dataclass(frozen=True)
class Study:
    """The labels, tasks and settings that a principle trains under one profile."""

    patterns: tuple[str, ...]  # labels and sets of labels
    tasks: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    vary: Mapping[str, tuple[float, ...]] | None = None  # values of each setting in which rows differ
    contrasts: tuple[Contrast, ...] = ()
    shares: tuple[Contrast, ...] = ()  # the better label is expected to have more coefficients near zero
    shown: tuple[str, ...] = ()  # panels: quantities drawn against accuracy, or ``readout``. Empty for all panels

    @property
    def labels(self) -> list[str]:
        """The canonical labels."""
        return expand(self.patterns)


def coefficient_label(text: str) -> Label:
    """A label of the family cd, parsed."""
    label = parse(text)
    assert isinstance(label, Label)
    return label


@dataclass(frozen=True)
class Principle:
    """One claim of the paper."""

    number: str
    title: str  # title of its figure
    claim: str
    source: str
    expected: str  # result of the paper
    judge: Judge  # the way in which it is decided
    studies: Mapping[str, Study]  # by profile
    limits: str = ""  # labels that cannot differ, and differences from the experiment of the paper
    keeps_weights: bool = False  # True if it measures trained models

    @property
    def heading(self) -> str:
        """The heading of its figure."""
        return f"Principle {self.number}: {self.title}"

    def study(self, profile: str) -> Study:
        """The study of a profile. A profile other than :data:`FULL` and :data:`QUICK` has the quick study."""
        return self.studies.get(profile, self.studies[QUICK])


@dataclass(frozen=True)
class Figure:
    """A figure of the paper."""

    principle: str  # number of the principle whose runs it shows
    shown: tuple[str, ...] = ()  # panels, as in Study


@dataclass(frozen=True)
class Decision:
    """The result of a principle's runs: verdicts, a table and a figure."""

    table: TextTable
    verdicts: Mapping[str, str]  # by their subject
    frame: pd.DataFrame  # the data of the figure
    draw: Callable[..., Page]  # draws the figure in a layout
    measured: TextTable | None = None  # a second table, of measured numbers
    remarks: Mapping[str, str] = field(default_factory=dict)  # numbers behind a verdict, by its subject

    @property
    def figure(self) -> Page:
        """The figure at its own width."""
        return self.draw()


def key_width(job: Job) -> int:
    """n, the key width of one head of the job's mixers, whose ranks do not depend on a budget."""
    return (job.mixer["qk_rank"] or job.model.d_model) // job.model.n_head
