"""The scores of the counting suite: the loss on the test examples, by which rates are chosen too."""

from __future__ import annotations

import math

from madbench.jobs import Job
from madbench.suites.scoring import Scoring
from madbench.suites.tokens import setting_of


class LossScoring(Scoring):
    """Scores in nats per answer. Chance is the entropy of a uniform guess."""

    metric = "test_loss"
    selection = "test_loss"
    ceiling = ""
    factor = 1.0
    is_lower_better = True
    limit = math.nan

    def chance(self, job: Job) -> float:
        return math.log(setting_of(job).num_answers)
