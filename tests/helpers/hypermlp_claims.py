"""The claims of the HyperMLP paper with their published numbers, and findings on them."""

from __future__ import annotations

from typing import Any

from madbench.analysis import findings as core
from madbench.analysis.claims import load_claims
from madbench.analysis.references import references

CLAIMS = load_claims("hypermlp")
REFERENCE = references()["hypermlp"]
BY_NAME = {claim.name: claim for claim in CLAIMS}


def findings(scores: Any = None, *arguments: Any, **choices: Any) -> list[core.Finding]:
    """The findings on ``scores``, by default on the claims of the paper.

    The other arguments are those of :func:`madbench.analysis.findings.findings`.
    """
    return core.findings(scores, *arguments, **{"claims": CLAIMS, **choices})
