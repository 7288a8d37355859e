"""The decision of a principle from its runs, by the method that the principle names."""

from __future__ import annotations

from madbench.analysis.samples import whole_seeds
from madbench.analysis.scores import Results
from madbench.errors import StoreError
from madbench.papers.coefficients import Decision, Principle, Study
from madbench.papers.coefficients.spread import decide_spread
from madbench.papers.coefficients.verdicts import decide_contrasts


def decide(principle: Principle, study: Study, results: Results) -> Decision:
    """Decide a principle from its runs, by its ``decision_method``.

    Trained models are measured first if the method needs measurements. Raises ``StoreError`` if no seed of any label is
    complete, for example while another process trains all of them.
    """
    if whole_seeds(results.scores).empty:
        raise StoreError("no seed of any label is done, so there is nothing to decide; run this again when one is")
    if principle.decision_method == "rank":
        from madbench.papers.coefficients.coefficients import decide_rank  # torch, and slower than reading results

        return decide_rank(principle, study, results)
    if principle.decision_method == "count":
        from madbench.papers.coefficients.suppression import decide_count

        return decide_count(principle, results)
    if principle.decision_method == "spread":
        return decide_spread(principle, results)
    return decide_contrasts(principle, study, results)
