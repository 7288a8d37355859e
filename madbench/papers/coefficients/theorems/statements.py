"""The paper's statements as checks of a label, and the letters of labels for which the statements were worked out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import fields, replace

from torch import Tensor

from madbench.mixers import Check
from madbench.mixers.cd.grammar import PRESETS, CdLabel
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.sample_mixers import HEADS, SampleMixers, relative
from madbench.papers.coefficients.theorems import cases, lemmas
from madbench.papers.coefficients.theorems.table1 import closed_form, row_of

WORKED_OUT = {
    "readout": ("exp", "relu", "softplus", "elu", "sigmoid", "id", "krelu", "kelu", "ksoftplus", "kexp"),
    "gate": ("ss", "sg", "sm", "se", "dg", "dm"),
    "mirror": ("hk1", "hk2", "hkr", "hz1", "hz2", "hzr"),
    "scaling": ("b1", "bz", "bzn", "bd", "bdn", "bw", "bwn", "bi", "bin", "bu", "bun"),
    "norm": ("sum", "max", "pow", "wx"),
    "rope": (True,),
    "conv": (True,),
    "unit": (True,),
    "output": ("g", "o"),
    "rank": ("v",),
    "over": (True,),
}
"""The values of each field of a label for which the paper's statements were worked out, by name of the field.

Empty values and constant gates are worked out too. The list is not derived from the grammar, because a lemma may not
hold for a value that is new there. No statement applies to a label with such a value until the value is added here.
"""
FIRST_LEMMA = 7
"""The number of the paper's lemma on the first preset, which is the first row of Table 1.

The lemmas on the other presets follow in the order of the table.
"""


def checks(samples: SampleMixers) -> Iterator[Check]:
    """The checks of Table 1, of the lemmas, and of cases that the lemmas leave open, for the label of ``samples``.

    If the label has a value outside :data:`WORKED_OUT`, the checks are those of softmax attention, all marked as not
    applicable.
    """
    if not (reason := why_not_worked_out(samples.label)):
        yield from itertools.chain(_table1(samples), lemmas.checks(samples), cases.checks(samples))
        return
    for check in checks(replace(samples, label=CdLabel("exp", norm="sum"))):
        yield replace(check, reason=reason)


def why_not_worked_out(label: CdLabel) -> str:
    """The reason why the paper's statements were not worked out for a label. Empty if they were."""
    words = ((field.name, getattr(label, field.name)) for field in fields(label))
    unknown = [
        f"{name} {word!r}"
        for name, word in words
        if word and word not in WORKED_OUT.get(name, ()) and not (name == "gate" and label.is_constant)
    ]
    return f"it is not worked out for {', '.join(unknown)}" if unknown else ""


def _table1(samples: SampleMixers) -> Iterator[Check]:
    preset = row_of(samples.label)

    def measure(mixer: CoefficientMixer, x: Tensor) -> Tensor:
        assert preset is not None
        return relative(mixer(x)[0], closed_form(preset, mixer.state_dict(), HEADS, x[0]))

    statement = "The mixer equals its row of Table 1, coded as in the paper that the row cites."
    source, reason = "Table 1", "this label is not a row of Table 1"
    if preset:
        source, reason = f"Lemma {FIRST_LEMMA + [*PRESETS].index(preset)}, Table 1, {preset}", ""
    yield Check("V3 Table 1", statement, source, samples.largest(measure), 1e-11, reason=reason)
