"""What the HyperMLP paper proves of an S/R/G mixer, as checks on the mixer as it is built."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from madbench.mixers import Check
from madbench.mixers.checks import general_checks, sample
from madbench.mixers.residuals import ROUNDING
from madbench.mixers.srg import measures
from madbench.mixers.srg.grammar import Variant

NOTICEABLE = 1e-3
EXACT_NORM = 1e-5  # of sums in float32
MIXED_SCORES = 2e-2  # of scores in bfloat16


def checks(family: Any, label: Variant) -> Iterable[Check]:
    """The general checks, the budget, then the paper's theorems in their order."""
    yield from general_checks(family, label, terms=2 if label.base == "D" else 1)  # D subtracts two softmax maps

    def check(
        name: str, what: str, source: str, measure: Callable[..., float], tolerance: float = ROUNDING, unless: str = "",
        make: Callable[..., Any] = sample,
    ) -> Check:  # fmt: skip
        run = None if unless else lambda: measure(*make(family, label))
        return Check(name, what, source, run, tolerance, reason=unless)

    def differ(*arguments: Any, tolerance: float = NOTICEABLE, **options: Any) -> Check:
        return replace(check(*arguments, tolerance, **options), is_difference=True)

    wide = functools.partial(sample, size=measures.WIDE)

    by_lag, is_softmax = label.layout == "lag", label.has_softmax
    no_mixing = "" if label.has_mixing else "the label has no sequence mixing"
    no_gates = "" if label.gates else "the label has no gates"
    no_rope = "" if label.rope else "the label has no RoPE"
    no_selection = "softmax weighs every slot" if is_softmax else ""
    no_budget = "! lifts the budget" if label.over else ""

    what = "Tiles of many sequences compute what all pairs at once do, outputs and every gradient."
    tiled = "" if sample(family, label)[0].has_tiles else "no tiles compute it"
    yield check("sequences", what, "eq. 7-11", measures.sequences, unless=tiled, make=lambda *of: of)
    absolute = label.rope and label.gates
    slid = "a convolution reads tokens before the window" if label.conv else ""
    slid = slid or ("scores depend on absolute positions" if absolute else "")
    what = "Decoding in a sliding window gives the last row of the window alone."
    yield check("sliding window", what, "Theorem 2.3", measures.sliding, unless=slid)
    what = "Under bfloat16 autocast the norm of hidden scores is that of float64."
    mixed = functools.partial(sample, size=measures.MIXED)
    yield check("norm", what, "eq. 8", measures.norm, EXACT_NORM, "softmax divides by its sum" * is_softmax, mixed)
    what = "A shorter input gives the first rows of a longer one."
    yield check("lengths", what, "slicing, Appendix J.1", measures.lengths)
    what = "Ranks stay within 4 d^2 and the next admissible one would not."
    yield check("budget", what, "Section 2.6", measures.budget, 0, no_budget, make=lambda *of: of)
    what = "A row is sigma(x W1(X)) W2(X), its two matrices multiplied out."
    between = "a norm stands between V and W_o" if label.base == "D" else ""
    yield check("dynamic MLP", what, "Theorem 2.1, eq. 9-10", measures.dynamic_mlp, unless=between)
    what = "R of a short prefix is the upper left block of R of a longer one, I + Diag(p) + A Diag(s) B^T."
    yield check("extension", what, "eq. 20, Lemma G.1", measures.extension, unless=no_mixing)

    cannot = no_mixing or ("slots with a score of zero weigh in softmax" if is_softmax else "")
    cannot = cannot or ("" if label.mix1 else "without R(1) the norm runs over older scores")
    if cannot or (by_lag and not absolute):
        what = "Extended by zero, R makes tokens before its window irrelevant."
        yield check("truncation", what, "Theorem 2.3, F.1", measures.truncation, unless=cannot)
    else:
        why = "RoPE before the gate tells where the window is" if by_lag else "counted from the oldest token"
        what = f"Not so here, {why}: extended by zero, R does not make tokens before its window irrelevant."
        yield differ("truncation", what, "Theorem 2.3, F.1 (ii)", measures.truncation)
    what = "Slots are active where their hidden score is positive, at any positive scale of the scores."
    yield check("routing", what, "Lemma B.2", measures.routing, 0, no_selection)
    what = "With L(1) and R(1) constant, a slot switches at a hyperplane."
    when_static = functools.partial(measures.bend, is_static=True)
    yield check("straight boundaries", what, "Corollary 2.2", when_static, 1e-6, no_selection, wide)
    what = "With L(1) or R(1) depending on the token, boundaries are curved."
    constant = "" if label.mix1 or label.gates else "L(1) and R(1) are constant without g and 1"
    yield differ(
        "bent boundaries", what, "Corollary 2.2, H.8", measures.bend, unless=no_selection or constant, make=wide
    )
    narrow, what = functools.partial(measures.with_ranks, vo=4), "Updates span at most r_vo dimensions."
    yield check("update subspace", what, "Theorem F.3", measures.update_subspace, make=narrow)
    what = "Where W_q maps a direction to zero, the token's routing does not see it."
    narrow = functools.partial(measures.with_ranks, qk=2 * label.query_heads(2))
    yield check("null directions", what, "Theorem F.5", measures.null_directions, make=narrow)
    if is_softmax:
        yield check("active set", "Every visible slot has a weight.", "Section 2.2", measures.inactive, 0)
    else:
        yield differ("active set", "Some slots are left out.", "C.1", measures.inactive, tolerance=0)
    what = "Without ReLU every slot is read with a signed weight: there is no active set."
    yield check("linear readout", what, "Proposition H.10", measures.linear, unless=no_selection)
    what = "VO gates change the readout and leave the active set."
    yield check("VO gate", what, "Appendix H.7", measures.vo_gate, 0, no_gates)
    what = f"Scores depend on offsets alone{' where the gate is even' * label.gates}."
    even_gate = functools.partial(measures.rope, has_even_gate=True)
    yield check("RoPE", what, "Section 2.2", even_gate, unless=no_rope, make=wide)
    what = "Under bfloat16 autocast scores depend on offsets alone, at positions that it has no number for."
    far = functools.partial(measures.rope, has_even_gate=True, positions=measures.FAR, is_mixed=True)
    yield check("RoPE in bfloat16", what, "Section 2.2", far, MIXED_SCORES, no_rope, wide)
    if absolute:
        what = "Scaled by the gate after RoPE, scores depend on absolute positions."
        yield differ("RoPE and gate", what, "Section 2.2", measures.rope, make=wide)
        what = "With rope_order=after_gate, scores depend on offsets alone."
        after_gate = functools.partial(measures.rope, order="after_gate")
        yield check("RoPE after gate", what, "Section 2.2", after_gate, make=wide)
    if label.registers:
        what = "k registers add k slots to every row and leave the scores of the others."
        yield check("registers", what, "Proposition H.5", measures.registers)
    if label.adapter:
        what = "The adapter of W_o adds updates in at most r_a directions; both are sums with W_v and W_o."
        yield check("adapters", what, "Proposition 2.6 (ii)", measures.adapters)
    if label.base == "D":
        what = "Activations of a row are two softmaxes: they sum to 1 - lambda."
        yield check("differential softmax", what, "Ye et al. 2024, eq. 1", measures.differential)
