"""The scores of the counting suite: the loss on the test examples. Rates are chosen by the loss on validation."""

from __future__ import annotations

import math

from madbench.jobs import Job, Record
from madbench.suites.scoring import Scoring
from madbench.suites.tokens import setting_of


class LossScoring(Scoring):
    """Scores in nats per answer. Chance is the entropy of a uniform guess."""

    has_curves = True
    metric = "test_loss"
    ceiling = ""
    factor = 1.0
    is_lower_better = True
    limit = math.nan

    def selection_value(self, record: Record) -> float | None:
        return record.curve[-1].get("validation_loss") if record.curve else None

    def chance(self, job: Job) -> float:
        return math.log(setting_of(job).num_answers)
