"""The function that checks mixers."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from madbench.api.calls import public
from madbench.labels import Labels, expand
from madbench.mixers.checks import run_checks
from madbench.suites import checks_of


@public
def verify(labels: Labels, *, rename: Mapping[str, str] | None = None) -> pd.DataFrame:
    """Check the mixers of ``labels``. The frame has one row per label and check, as in ``madbench verify -f json``.

    ``verdict`` is ``pass``, ``fail`` or ``not applicable``. ``residual`` is missing if nothing could be measured.
    ``rename`` has display names of labels.
    """
    outcomes = {label: run_checks(label, checks_of) for label in expand(labels)}
    return pd.DataFrame([{"label": label} | outcome.row for label in outcomes for outcome in outcomes[label]])
