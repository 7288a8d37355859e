"""Types of the experiments on the design principles of the paper: principles, studies, contrasts and decisions.

*Design Principles for Sequence Models via Coefficient Dynamics*, arXiv 2510.09389. A principle is one claim of the
paper. Its study names the labels and tasks that test it under a profile, and the contrasts, which are pairs of labels
to compare. Runs are trained and stored by :mod:`madbench.experiment` and compared by
:mod:`madbench.analysis.inference`, as for every other verb.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from madbench.config import Override
from madbench.labels import expand, parse
from madbench.mixers.cd.grammar import Label
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
    """A pair of labels of which the paper expects ``better`` to have the larger value than ``worse``."""

    group: str
    """The subject of the verdict, such as a readout."""
    better: str
    worse: str


@dataclass(frozen=True)
class Study:
    """The labels, tasks and settings that test a principle of the paper under one profile, with the contrasts."""

    patterns: tuple[str, ...]
    """Labels and sets of labels."""
    tasks: tuple[str, ...]
    overrides: tuple[Override, ...] = ()
    vary: Mapping[str, tuple[float, ...]] | None = None
    """Values of each setting in which rows differ."""
    contrasts: tuple[ExpectedContrast, ...] = ()
    shares: tuple[ExpectedContrast, ...] = ()
    """Contrasts in which the better label is expected to have more coefficients near zero."""
    shown: tuple[str, ...] = ()
    """Panels of the figure: quantities drawn against accuracy, or ``readout``. Empty for all panels."""

    @property
    def labels(self) -> list[str]:
        """The canonical texts of the labels that ``patterns`` stand for."""
        return expand(self.patterns)


def coefficient_label(text: str) -> Label:
    """Parse the text of a label of the family ``cd``."""
    label = parse(text)
    assert isinstance(label, Label)
    return label


@dataclass(frozen=True)
class Principle:
    """A design principle of the paper: its claim, and the studies that test it."""

    number: str
    title: str
    """Title of its figure."""
    claim: str
    source: str
    expected: str
    """Result of the paper."""
    decision_method: DecisionMethod
    """The method of the verdicts (:mod:`madbench.papers.coefficients.decisions`)."""
    studies: Mapping[str, Study]
    """The studies by profile."""
    limits: str = ""
    """Labels that cannot differ, and differences from the experiment of the paper."""
    keeps_weights: bool = False
    """True if the principle measures trained models."""

    @property
    def heading(self) -> str:
        """The heading of the principle's figure: its number and its title."""
        return f"Principle {self.number}: {self.title}"

    def study(self, profile: str) -> Study:
        """The study for a profile. If the principle has no study for it, the study for :data:`QUICK`."""
        return self.studies.get(profile, self.studies[QUICK])


@dataclass(frozen=True)
class Figure:
    """A figure of the paper, which consists of some panels of our figure for one principle."""

    principle: str
    """Number of the principle whose runs it shows."""
    shown: tuple[str, ...] = ()
    """Panels, as in :class:`Study`."""


@dataclass(frozen=True)
class Decision:
    """The verdicts on a principle, with the table and the figure that show the results of its runs."""

    table: TextTable
    verdicts: Mapping[str, str]
    """The verdicts by their subject."""
    frame: pd.DataFrame
    """The data of the figure."""
    draw: Callable[..., Page]
    """Draws the figure in a layout."""
    measured: TextTable | None = None
    """A second table, of measured numbers."""
    remarks: Mapping[str, str] = field(default_factory=dict)
    """Numbers behind a verdict, by its subject."""

    @property
    def figure(self) -> Page:
        """The figure in the default layout."""
        return self.draw()


def key_width(job: Job) -> int:
    """The key width n of one head: the key width of all heads, divided by the number of heads.

    The key width of all heads is the setting ``qk_rank``, or d_model if it is not set. The budget of the job must not
    choose ranks.
    """
    assert has_blocks(job)
    return (job.mixer["qk_rank"] or job.model.d_model) // job.model.n_head
