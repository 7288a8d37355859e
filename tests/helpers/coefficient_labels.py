"""Labels of coefficient dynamics drawn at random."""

from __future__ import annotations

import random
from contextlib import suppress

from madbench.errors import LabelError
from madbench.mixers.cd.grammar import GATES, MIRRORS, NORMS, READOUTS, SCALINGS, CdLabel


def random_label(seed: int) -> CdLabel:
    """A random valid label of coefficient dynamics, determined by ``seed``.

    The label names no budget. If its coefficient is a constant, the constant is 0.5, 0.95 or 1.05.
    """
    rng = random.Random(seed)
    while True:
        options = (READOUTS, ("", "0.5", "0.95", "1.05", *GATES), ("", "", *MIRRORS), ("", *SCALINGS))
        readout, gate, mirror, scaling = map(rng.choice, options)
        rope, conv, unit = (rng.random() < 0.3 for _ in range(3))
        norm, output = rng.choice(("", *NORMS)), rng.choice(("", "", "g", "o"))
        with suppress(LabelError):
            return CdLabel(readout, gate, mirror, scaling, norm, rope, conv, unit, output)
