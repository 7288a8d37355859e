"""The stored runs that figures are made of; drawing them, which takes matplotlib, is :mod:`kinds`'.

Nor does it take pandas until runs become frames.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from madbench.analysis.frames import NothingToDrawError
from madbench.experiment import Experiment, accuracy_meaning, protocol_sentences
from madbench.store.runs import Run, Store

if TYPE_CHECKING:
    import pandas as pd

    from madbench.analysis.attribution_table import AttributionTable
    from madbench.analysis.figures.style import LabelStyle


@dataclass(frozen=True)
class Material:
    """What figures are made of: runs of one protocol of either half, or of both."""

    store: Store
    experiment: Experiment | None = None
    """The MAD half."""
    language_runs: list[Run] = field(default_factory=list)
    """The language models, with their curves."""
    language_sentences: list[str] = field(default_factory=list)
    """What those share."""
    why_no_mad: str = "there are no runs of MAD tasks"

    @property
    def labels(self) -> list[str]:
        """All labels, in the order of their styles."""
        jobs = [*(self.experiment.jobs if self.experiment else ()), *(run.job for run in self.language_runs)]
        return list(dict.fromkeys(job.label for job in jobs))

    @functools.cached_property
    def styles(self) -> dict[str, LabelStyle]:
        """One style a label, the same in every figure; the best labels have those that differ most."""
        from madbench.analysis.figures.highlights import MOST, best_first, in_turns
        from madbench.analysis.figures.style import label_styles

        if len(self.labels) <= MOST:
            return label_styles(self.labels)
        rankings = []
        if self.experiment:
            rankings.append(best_first(self.cells.groupby("label").accuracy.agg(list).to_dict()))
        if self.language_runs:
            losses = self.language_losses.groupby("label").loss_l5.agg(list).to_dict()
            rankings.append(best_first(losses, is_lower_better=True))
        return label_styles(in_turns(rankings))

    @functools.cached_property
    def language_losses(self) -> pd.DataFrame:
        """:func:`madbench.analysis.loss_curves.run_losses` of the language models."""
        from madbench.analysis.loss_curves import run_losses

        return run_losses(self.language_runs, ())

    @functools.cached_property
    def attribution(self) -> AttributionTable:
        """What the factors are worth on either half."""
        from madbench.analysis.attribution_table import attribution_table

        cells = self.cells if self.experiment else None
        losses = self.language_losses if self.language_runs else None
        return attribution_table(cells, losses, [self.both_sentences])

    @functools.cached_property
    def collected(self) -> pd.DataFrame:
        from madbench.analysis.scores import collect

        return collect(self.mad.jobs, self.store)

    @functools.cached_property
    def cells(self) -> pd.DataFrame:
        from madbench.analysis.scores import scores

        return scores(self.collected)

    @property
    def mad(self) -> Experiment:
        """The MAD half; raises ``NothingToDrawError`` without one."""
        if self.experiment is None:
            raise NothingToDrawError(self.why_no_mad)
        return self.experiment

    @property
    def mad_sentences(self) -> list[str]:
        if self.experiment is None:
            return []
        meaning = accuracy_meaning(self.experiment.fidelity)
        return [f"{meaning[:1].upper()}{meaning[1:]}.", *protocol_sentences(self.experiment, self.collected)]

    @property
    def both_sentences(self) -> str:
        return " ".join([*self.mad_sentences, *self.language_sentences])
