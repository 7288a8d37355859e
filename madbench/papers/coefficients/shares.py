"""Verdicts on the two comparisons of shares of coefficients near zero in Appendix D.2.

Labels with kernels, ``exp`` and ``id`` as readouts are compared. The paper expects that kernels have smaller shares
than ``exp``, and that all kernels but ``krelu`` have larger shares than ``id``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from madbench.analysis.frames import groups_of
from madbench.analysis.inference import LEVEL, Sample, Scale, difference, holm
from madbench.analysis.marked_text import with_minus
from madbench.analysis.quantities import p_text, title
from madbench.papers.coefficients import ExpectedContrast
from madbench.papers.coefficients.verdicts import CONTRADICTED, OPEN, SUPPORTED
from madbench.suites.planning import LEAST_SEEDS

SHARE = Scale(resolution=1e-3)
"""The scale of shares in significance tests: without limits, although shares are between 0 and 1.

With limits, the test would assume that the spread over seeds is in proportion to the range, as for an accuracy. Shares
are means over many pairs of tokens and vary less.
"""


def compare_shares(contrasts: Sequence[ExpectedContrast], rows: pd.DataFrame) -> tuple[dict[str, str], dict[str, str]]:
    """Test contrasts of the share of coefficients near zero: ``better`` is expected to have the larger share.

    ``rows`` is the result of :func:`madbench.papers.coefficients.coefficients.measure_coefficients`. There is one
    verdict per task and group of contrasts. A group is supported if all its contrasts are, and contradicted if one is.
    It is left out if one of its labels has no finished run. p-values are corrected by Holm's method within a task and
    group.

    Return the verdicts and the numbers behind them. The keys of both are texts such as ``TASK, GROUP``.
    """
    verdicts, remarks = {}, {}
    for task, of_task in groups_of(rows, "task"):
        samples = {label: Sample(of_label.near_zero.to_numpy(), SHARE) for label, of_label in of_task.groupby("label")}
        for group in dict.fromkeys(contrast.group for contrast in contrasts):
            in_group = [contrast for contrast in contrasts if contrast.group == group]
            pairs = [(samples[c.better], samples[c.worse]) for c in in_group if {c.better, c.worse} <= samples.keys()]
            if len(pairs) < len(in_group):
                continue  # a label without a finished run
            gaps = [difference(*pair) for pair in pairs]
            p_values, prefix = holm([gap.p for gap in gaps]), f"{title(task)}, {group}"
            verdicts[prefix] = _verdict([gap.estimate for gap in gaps], p_values, min(gap.n for gap in gaps))
            gap_texts = (f"{c.better} less {c.worse} {gap.estimate:+.3f}" for c, gap in zip(in_group, gaps))
            largest = max((p for p in p_values if not math.isnan(p)), default=math.nan)
            remarks[prefix] = with_minus(f"{'; '.join(gap_texts)}; largest p {p_text(largest)}")
    return verdicts, remarks


def _verdict(gaps: Sequence[float], p_values: Sequence[float], seeds: int) -> str:
    if seeds < LEAST_SEEDS:
        return "too few seeds"
    if any(p <= LEVEL and gap < 0 for gap, p in zip(gaps, p_values)):
        return CONTRADICTED
    return SUPPORTED if all(p <= LEVEL and gap > 0 for gap, p in zip(gaps, p_values)) else OPEN
