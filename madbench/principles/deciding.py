"""Each principle by the way it is decided."""

from __future__ import annotations

from madbench.analysis.scores import Results
from madbench.principles import Decision, Principle, Study


def decide(principle: Principle, study: Study, results: Results) -> Decision:
    """What the results say of the principle; trained models are measured where it needs them."""
    if principle.judge == "rank":
        from madbench.principles.coefficients import decide_rank  # torch, and slower than reading results

        return decide_rank(principle, study, results)
    if principle.judge == "count":
        from madbench.principles.suppression import decide_count

        return decide_count(principle, study, results)
    if principle.judge == "spread":
        from madbench.principles.spread import decide_spread

        return decide_spread(principle, study, results)
    from madbench.principles.verdicts import decide_contrasts

    return decide_contrasts(principle, study, results)
