"""Labels of coefficient dynamics drawn at random."""

from __future__ import annotations

import random
from contextlib import suppress

from madbench.errors import LabelError
from madbench.mixers.cd.grammar import GATES, MIRRORS, NORMS, READOUTS, SCALINGS, CdLabel


def random_label(seed):
    """A random valid label of coefficient dynamics, determined by ``seed``.

    The label names no budget. If its coefficient is a constant, the constant is 0.5, 0.95 or 1.05.
    """
    rng = random.Random(seed)
    while True:
        fields = [
            rng.choice(options)
            for options in (READOUTS, ("", "0.5", "0.95", "1.05", *GATES), ("", "", *MIRRORS), ("", *SCALINGS))
        ]
        features = [rng.random() < 0.3 for _ in range(3)]
        with suppress(LabelError):
            return CdLabel(*fields, rng.choice(("", *NORMS)), *features, rng.choice(("", "", "g", "o")))
