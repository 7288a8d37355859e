"""How the counting suite reads a record: the loss on the test examples, rates chosen by the loss on validation."""

from __future__ import annotations

import math

from madbench.jobs import Job
from madbench.suites.scoring import Scoring
from madbench.suites.tokens import setting_of


class LossScoring(Scoring):
    """Nats per answer; a model that has learned nothing has the entropy of a guess."""

    metric = "test_loss"
    selection = "test_loss"
    ceiling = ""
    factor = 1.0
    is_lower_better = True
    limit = math.nan

    def chance(self, job: Job) -> float:
        return math.log(setting_of(job).num_answers)
