"""Each principle by the way it is decided."""

from __future__ import annotations

from madbench.analysis.scores import Results
from madbench.principles import Decision, Principle, Study
from madbench.principles.verdicts import decide_contrasts


def decide(principle: Principle, study: Study, results: Results) -> Decision:
    """What the results say of the principle; trained models are measured where it needs them."""
    return decide_contrasts(principle, study, results)
