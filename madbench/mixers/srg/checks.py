"""The checks of a built S/R/G mixer: general checks, checks of this operator, and the theorems of its paper."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

from madbench.mixers import Check
from madbench.mixers.checks import general_checks, sample
from madbench.mixers.srg import letter_checks
from madbench.mixers.srg.grammar import SrgLabel
from madbench.mixers.srg.theorems import appendices, main_text, measures
from madbench.mixers.srg.theorems.statements import Statements

EXACT_NORM = 1e-5  # error of sums in float32


def checks(family: Any, label: SrgLabel) -> Iterable[Check]:
    """All checks of a label: those of every mixer, those of the S/R/G operator, and the theorems of the HyperMLP paper.

    A theorem is checked only for labels whose letters it was worked out for (see :class:`Statements`).
    """
    yield from general_checks(family, label, terms=2 if label.base == "D" else 1)  # D subtracts two softmax maps
    yield from _operator_checks(Statements(family, label, letters=None))
    theorems = Statements(family, label)
    yield from main_text.checks(theorems)
    yield from appendices.checks(theorems)


def _operator_checks(of_label: Statements) -> Iterable[Check]:
    """The checks of the S/R/G operator that are not theorems of the paper. They apply to labels with any letters."""
    family, label, check = of_label.family, of_label.label, of_label.check
    is_softmax = label.has_softmax
    no_gates = "" if label.gates else "the label has no gates"
    no_budget = "! lifts the budget" if label.over else ""
    what = "Tiles of many sequences give the same outputs and gradients as the dense path."
    tiled = "" if sample(family, label)[0].has_tiles else "the label has no tiled path"
    yield check("sequences", what, "eq. 7-11", measures.sequences, unless=tiled, make=lambda *of: of)
    what = "Under bfloat16 autocast the norm of hidden scores equals that of float64."
    mixed = functools.partial(sample, size=measures.MIXED)
    divides = "softmax divides by its sum" if is_softmax else ""
    yield check("norm", what, "eq. 8", measures.norm, EXACT_NORM, divides, mixed)
    what = "A shorter input gives the first rows of a longer one."
    yield check("lengths", what, "slicing, Appendix J.1", measures.lengths)
    what = "Ranks stay within the budget, and the next larger admissible rank would not."
    yield check("budget", what, "Section 2.6", measures.budget, 0, no_budget, make=lambda *of: of)
    what = "With gates=qk or gates=vo, the mixer equals that with two gates, the other of which is open."
    yield check("one gate", what, "Appendix H.7, eq. 84", letter_checks.one_gate, unless=no_gates, make=lambda *of: of)
    what = "If rows see all tokens, the last row equals that of the causal mixer."
    is_causal = "mixing tables of a window in lag order have no rows for later tokens"
    is_causal = is_causal if label.window and label.layout == "lag" else ""
    yield check("all tokens", what, "eq. 7-11", letter_checks.of_all_tokens, unless=is_causal, make=lambda *of: of)
    if label.sink:
        what = "With a logit of minus infinity, the mixer is that without a sink."
        yield check("sink", what, "arXiv 2508.10925", letter_checks.closed_sinks, make=lambda *of: of)
    if label.shared_kv:
        what = "Heads that share keys and values are separate heads with equal weights."
        source = "arXiv 1911.02150, arXiv 2305.13245"
        yield check("shared heads", what, source, letter_checks.equal_heads, make=lambda *of: of)
    if label.head_gate:
        what = "With open gates, the mixer is that without gates of heads."
        yield check("open head gates", what, "arXiv 2505.06708", letter_checks.open_head_gates, make=lambda *of: of)
    if label.exclusive:
        what = "What a head reads out is orthogonal to its own value, and only that component is removed."
        yield check("exclusion", what, "arXiv 2603.09078", letter_checks.exclusion, make=lambda *of: of)
    if label.window:
        what = "Windows of any size give the results of the reference, and a window of all tokens has no effect."
        yield check("window", what, "Beltagy et al. 2020, Section 3.1", letter_checks.windows, make=lambda *of: of)
    if label.registers and label.has_mixing:
        what = "With register_place=last, registers are the slots behind the tokens. Without mixing, the place is moot."
        source = "Proposition 2.6 (iv), Remark H.6"
        yield check("appended registers", what, source, letter_checks.registers_at_the_end, make=lambda *of: of)
