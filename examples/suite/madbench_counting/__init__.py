"""The counting suite: two tasks on bits, judged by their loss in nats per answer and not by accuracy."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

from madbench.suites.columns import Average, Column, ShownMetric
from madbench.suites.tokens import TokenProfile, TokenSuite
from madbench.tasks import settings_class


@dataclass(frozen=True, kw_only=True)
class CountingProfile(TokenProfile):
    """A profile with the keys of a MAD profile. Its files are in the folder ``profiles`` of this package."""

    folder = Path(__file__).parent / "profiles"
    noun = "counting profile"


class CountingSuite(TokenSuite):
    name = "counting"
    title = "Counting tasks"
    Profile = CountingProfile
    default = "small"
    measure = "loss in nats per answer"
    scoring = "madbench_counting.scores:LossScoring"
    averages = {
        "counting_average": Average(
            heading="Counting",
            title="mean loss of the counting tasks",
            tasks=("parity", "majority"),
        )
    }
    shown_metric = ShownMetric("test_loss", "{:.3f}", "loss {:.3f}")

    def task_column(self, task: str) -> Column:
        cls = settings_class(task)
        return Column(
            task,
            cls.heading,
            digits=3,
            better="lower",
            limits=(0.0, math.inf),
            resolution=0.001,
            title=cls.title,
            axis="nats per answer",
            unit="nats_per_answer",
            difference="nats per answer of a counting task",
        )


SUITE = CountingSuite()
