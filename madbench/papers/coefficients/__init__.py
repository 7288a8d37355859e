"""Types for experiments on the design principles of a paper: principles, studies, contrasts and decisions.

The paper is *Design Principles for Sequence Models via Coefficient Dynamics*, arXiv 2510.09389. A principle is one
claim of the paper. Its study names the labels and tasks that test it under a profile, and the contrasts, which are
pairs of labels to compare. Runs are trained and stored by :mod:`madbench.experiment` and compared by
:mod:`madbench.analysis.inference`, as for every other verb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from madbench.config import Override
from madbench.labels import expand, parse
from madbench.mixers.cd.grammar import CdLabel
from madbench.suites import has_blocks

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.figures.panels import Page
    from madbench.analysis.rendering import TextTable
    from madbench.jobs import Job

FULL, QUICK = "coefficients", "coefficients-quick"
"""The names of the two profiles: one with the sizes of the paper, and one with sizes for a laptop."""

DecisionMethod = Literal["contrasts", "rank", "spread", "time", "count"]


@dataclass(frozen=True)
class ExpectedContrast:
    """A pair of labels to compare. The paper expects a larger value for ``better`` than for ``worse``.

    The value is the accuracy, or for ``Study.shares`` the share of coefficients near zero.
    """

    group: str
    """The subject of the verdict that this and other contrasts decide together, such as a readout."""
    better: str
    worse: str


@dataclass(frozen=True)
class Study:
    """The labels, tasks, settings and contrasts that test a principle of the paper under one profile."""

    patterns: tuple[str, ...]
    """Labels, patterns of labels such as ``cd:{exp,id}-sum``, and sets of labels such as ``@principle4``."""
    tasks: tuple[str, ...]
    overrides: tuple[Override, ...] = ()
    vary: Mapping[str, tuple[float, ...]] | None = None
    """Settings that change from row to row: key to values. Each label has one row per combination of values. None if a
    label has only one row."""
    contrasts: tuple[ExpectedContrast, ...] = ()
    """The contrasts that compare accuracies."""
    shares: tuple[ExpectedContrast, ...] = ()
    """The contrasts that compare shares of coefficients near zero."""
    shown: tuple[str, ...] = ()
    """The panels of the figure: names of quantities that are drawn against accuracy, or ``readout`` for the panel of
    readout functions. Empty for all panels."""

    @property
    def labels(self) -> list[str]:
        """The canonical texts of the labels that ``patterns`` stand for."""
        return expand(self.patterns)


def coefficient_label(text: str) -> CdLabel:
    """Parse the text of a label of the family ``cd``, such as ``cd:exp-sum``."""
    label = parse(text)
    assert isinstance(label, CdLabel)
    return label


@dataclass(frozen=True)
class Principle:
    """A design principle of the paper: its claim, and the studies that test it."""

    number: str
    title: str
    """The title of the principle's figure."""
    claim: str
    source: str
    expected: str
    """The result that the paper expects or reports, as a text."""
    decision_method: DecisionMethod
    """The method that decides the principle (:func:`madbench.papers.coefficients.decisions.decide`).

    All methods decide from runs except ``time``, which measures times and needs no runs.
    """
    studies: Mapping[str, Study]
    """The study to use under each profile: name of the profile to study."""
    limits: str = ""
    """A note that names labels that cannot differ, and differences from the experiment of the paper."""

    @property
    def heading(self) -> str:
        """The heading of the principle's figure: its number and its title."""
        return f"Principle {self.number}: {self.title}"

    def study(self, profile: str) -> Study:
        """The study for a profile, or the study for :data:`QUICK` if the principle has none for the profile."""
        return self.studies.get(profile, self.studies[QUICK])


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, which we draw as some of the panels of a principle's figure."""

    principle: str
    """The number of the principle whose runs the figure shows."""
    shown: tuple[str, ...] = ()
    """The panels of the figure, as in ``Study.shown``. Empty for all."""


@dataclass(frozen=True)
class Decision:
    """The verdicts on a principle, with the table and the figure that show the results of its runs."""

    table: TextTable
    verdicts: Mapping[str, str]
    """The verdicts: subject of a verdict, such as the group of a contrast, to its text."""
    frame: pd.DataFrame
    """The data of the figure."""
    draw: Callable[..., Page]
    """A function that draws the figure in the layout that it is given, or without an argument in the default layout."""
    measured: TextTable | None = None
    """A second table with numbers measured on the runs. None if there is none."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """The numbers behind verdicts: subject of a verdict to a text. Some verdicts have none."""

    @property
    def figure(self) -> Page:
        """The figure in the default layout."""
        return self.draw()


def key_width(job: Job) -> int:
    """The key width n of one head of a ``cd`` mixer: the key width of all heads, divided by the number of heads.

    The key width of all heads is the setting ``qk_rank``, or d_model if it is not set. This holds only for budgets that
    do not choose ranks, such as ``paper``.
    """
    assert has_blocks(job)
    return (job.mixer["qk_rank"] or job.model.d_model) // job.model.n_head
