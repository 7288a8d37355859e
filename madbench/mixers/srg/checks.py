"""The theorems of the HyperMLP paper, as checks on the built S/R/G mixer."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from madbench.mixers import Check
from madbench.mixers.checks import general_checks, sample
from madbench.mixers.residuals import ROUNDING
from madbench.mixers.srg import choices
from madbench.mixers.srg.grammar import Variant
from madbench.mixers.srg.theorems import boundaries, cells, kernel_regime, measures, pool, summaries, windows

NOTICEABLE = 1e-3
EXACT_NORM = 1e-5  # error of sums in float32
MIXED_SCORES = 2e-2  # error of scores in bfloat16
DIFFERENTIAL = 1e-6  # error of central differences
WITHIN = 1 + 1e-12  # largest ratio of a bounded quantity to its bound


def checks(family: Any, label: Variant) -> Iterable[Check]:
    """The general checks, the budget, and then the paper's theorems in order."""
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
    no_selection = _why_unselected(label)
    no_budget = "! lifts the budget" if label.over else ""

    what = "Tiles of many sequences give the same outputs and gradients as the dense path."
    tiled = "" if sample(family, label)[0].has_tiles else "the label has no tiled path"
    yield check("sequences", what, "eq. 7-11", measures.sequences, unless=tiled, make=lambda *of: of)
    absolute = label.rope and label.gates
    slid = "a convolution reads tokens before the window" if label.conv else ""
    slid = slid or ("scores depend on absolute positions" if absolute else "")
    what = "Decoding in a sliding window gives the last row of the window alone."
    yield check("sliding window", what, "Theorem 2.3", measures.sliding, unless=slid)
    what = "Under bfloat16 autocast the norm of hidden scores equals that of float64."
    mixed = functools.partial(sample, size=measures.MIXED)
    divides = "softmax divides by its sum" if is_softmax else ""
    yield check("norm", what, "eq. 8", measures.norm, EXACT_NORM, divides, mixed)
    what = "A shorter input gives the first rows of a longer one."
    yield check("lengths", what, "slicing, Appendix J.1", measures.lengths)
    what = "Ranks stay within the budget, and the next larger admissible rank would not."
    yield check("budget", what, "Section 2.6", measures.budget, 0, no_budget, make=lambda *of: of)
    what = "A row is sigma(x W1(X)) W2(X), with both matrices computed explicitly."
    between = "a norm comes between V and W_o" if label.base == "D" else ""
    yield check("dynamic MLP", what, "Theorem 2.1, Proposition C.3, eq. 9-10", measures.dynamic_mlp, unless=between)
    what = "With R(1) = R(2) = I, a row is that of token-wise attention."
    yield check("token-wise case", what, "Theorem 2.1 (iii), Proposition I.1", measures.token_wise, unless=no_mixing)
    what = "R of a short prefix is the upper left block of R of a longer one, I + Diag(p) + A Diag(s) B^T."
    yield check("extension", what, "Section 2.5, footnote 4, Lemma G.1, eq. 68", measures.extension, unless=no_mixing)
    what = "With p = -1 and A = B = 0 behind a window, R equals that of the window and is zero elsewhere."
    yield check("zero extension", what, "Lemma C.6, eq. 20", windows.zero_extension, unless=no_mixing)

    cannot = no_mixing or ("slots with a score of zero have weight in softmax" if is_softmax else "")
    cannot = cannot or ("" if label.mix1 else "without R(1) the norm includes older scores")
    if cannot or (by_lag and not absolute):
        what = "Extended by zero, R makes tokens before its window irrelevant."
        source = "Theorem 2.3, Theorem F.1 (i), Corollary C.7, Corollary H.4, Remark H.2"
        yield check("truncation", what, source, windows.truncation, unless=cannot)
    else:
        why = "RoPE before the gate reveals the place of the window" if by_lag else "slots count from the oldest token"
        what = f"This label is an exception ({why}): extended by zero, R does not remove tokens before its window."
        yield differ("truncation", what, "Theorem F.1 (ii)", windows.truncation)
    forward = cannot or ("slots count from the newest token" if by_lag else "")
    rotated = "RoPE rotates scores by the position of the token" if label.rope else ""
    what = "Extended by zero, R keeps the oldest tokens: a row equals the row with these as its context."
    source = "Theorem F.1 (ii), eq. 51"
    yield check("oldest window", what, source, windows.oldest_window, unless=forward or rotated)
    what = "Extended by zero before the window instead of behind it, R makes tokens before its window irrelevant."
    unless = forward or ("registers are the first slots" if label.registers else "")
    unless = unless or ("scores depend on absolute positions" if absolute else "")
    yield check("suffix extension", what, "Remark F.2", windows.suffix_extension, unless=unless)
    what = "A slot is active if its hidden score is positive. A positive factor on the scores changes nothing."
    source = "Proposition 2.4, Lemma B.2, Remark C.16" if label.base == "G" else "Lemma B.2, Remark C.16"
    yield check("routing", what, source, measures.routing, 0, no_selection)
    what = "The scale scores change the weights of active slots, but not the set of active slots."
    no_branch = "" if label.base == "G" else "only GLU has scale scores"
    yield check("scale branch", what, "Proposition 2.4, eq. 60-61", measures.scale_branch, 0, no_branch)
    what = "If L(1) and R(1) are constant, a slot switches at a hyperplane."
    when_static = functools.partial(measures.bend, is_static=True)
    source = "Corollary 2.2, Theorem C.10, Proposition I.1"
    yield check("straight boundaries", what, source, when_static, 1e-6, no_selection, wide)
    what = "If L(1) or R(1) depends on the token, boundaries are curved."
    constant = "" if label.mix1 or label.gates else "L(1) and R(1) are constant without g and 1"
    source = "Corollary 2.2, Theorem C.13, Proposition H.8, Proposition I.1"
    yield differ("bent boundaries", what, source, measures.bend, unless=no_selection or constant, make=wide)
    narrow, what = functools.partial(measures.with_ranks, vo=4), "Updates span at most r_vo dimensions."
    source = "Theorem 2.5 (i), Theorem F.3, Corollary F.4"
    yield check("update subspace", what, source, measures.update_subspace, make=narrow)
    what = "If W_q maps a direction to zero, it does not affect the routing of the token."
    narrow = functools.partial(measures.with_ranks, qk=2 * label.query_heads(2))
    yield check("null directions", what, "Theorem 2.5 (ii), Theorem F.5", measures.null_directions, make=narrow)
    if label.has_selection:
        yield differ("active set", "Some slots are inactive.", "C.1", measures.inactive, tolerance=0)
    else:
        source = "Section 2.2" if is_softmax else "Proposition H.10, Remark H.11"
        yield check("active set", "Every visible slot has a weight.", source, measures.inactive, 0)
    what = "Without ReLU every slot is read with a signed weight: there is no active set."
    yield check("linear readout", what, "Proposition H.10", measures.linear, unless=no_selection)
    if label.base == "L":
        what = "A row is that of R minus that of R with negated scores: all slots, with their signs."
        yield check("full pool", what, "Proposition H.10, eq. 80", measures.full_pool)
    what = "VO gates change the readout but not the active set."
    yield check("VO gate", what, "Appendix H.7", measures.vo_gate, 0, no_gates)
    what = "With gates=qk or gates=vo, the mixer equals that with two gates, the other of which is open."
    yield check("one gate", what, "Appendix H.7, eq. 84", choices.one_gate, unless=no_gates, make=lambda *of: of)
    what = f"Scores depend on offsets alone{' if the gate is even' if label.gates else ''}."
    even_gate = functools.partial(measures.rope, has_even_gate=True)
    yield check("RoPE", what, "Section 2.2", even_gate, unless=no_rope, make=wide)
    what = "Under bfloat16 autocast scores depend on offsets alone, even at positions that bfloat16 cannot represent."
    far = functools.partial(measures.rope, has_even_gate=True, positions=measures.FAR, is_mixed=True)
    yield check("RoPE in bfloat16", what, "Section 2.2", far, MIXED_SCORES, no_rope, wide)
    if absolute:
        what = "If the gate follows RoPE, scores depend on absolute positions."
        yield differ("RoPE and gate", what, "Section 2.2", measures.rope, make=wide)
        what = "With rope_order=after_gate, scores depend on offsets alone."
        after_gate = functools.partial(measures.rope, order="after_gate")
        yield check("RoPE after gate", what, "Section 2.2", after_gate, make=wide)
    yield from _appendices(label, check, differ)
    what = "If rows see all tokens, the last row equals that of the causal mixer."
    yield check("all tokens", what, "eq. 7-11", choices.of_all_tokens, make=lambda *of: of)
    if label.registers and label.has_mixing:
        what = "With register_place=last, registers are the slots behind the tokens. Without mixing, the place is moot."
        source = "Proposition 2.6 (iv), Remark H.6"
        yield check("appended registers", what, source, choices.registers_at_the_end, make=lambda *of: of)
    if label.registers:
        what = "k registers add k slots to every row and do not change the scores of other slots."
        yield check("registers", what, "Proposition H.5", measures.registers)
    if label.adapter:
        what = "The adapter of W_o adds updates in at most r_a directions. Both adapters can be merged with W_v, W_o."
        yield check("adapters", what, "Proposition 2.6 (ii)", measures.adapters)
    if label.base == "D":
        what = "The activations of a row are a difference of two softmaxes: they sum to 1 - lambda."
        yield check("differential softmax", what, "Ye et al. 2024, eq. 1", measures.differential)


def _why_unselected(label: Variant) -> str:
    if label.has_softmax:
        return "softmax weights every slot"
    return "" if label.has_selection else "without a gate every slot is read"


def _appendices(label: Variant, check: Callable[..., Check], differ: Callable[..., Check]) -> Iterable[Check]:
    """The statements of Appendices C, D, E, G, H and I, in order."""
    wide, long = (functools.partial(sample, size=size) for size in (measures.WIDE, measures.MIXED))
    narrow = functools.partial(measures.with_ranks, qk=2 * label.query_heads(2))
    no_selection = _why_unselected(label)
    no_mixing = "" if label.mix1 else "the label has no R(1)"

    what = "A constant diagonal R(1) keeps every hyperplane at which a slot switches."
    unless = no_selection or no_mixing
    yield check("diagonal mixing", what, "Corollary C.12", boundaries.diagonal_mixing, 1e-6, unless, wide)
    what = "If R(1) is constant, normals of hyperplanes are combinations, by its columns, of those without R(1)."
    source = "Corollary C.12, eq. 42, Proposition H.7"
    yield check("mixed normals", what, source, boundaries.mixed_normals, 1e-7, unless, wide)
    what = "With a random R(1), which is not diagonal, some hyperplanes differ from those without R(1)."
    source = "Corollary C.12, Proposition H.7"
    yield differ("turned normals", what, source, boundaries.rotated_normals, unless=unless, make=wide)
    what = "With an R(1) that swaps two slots, which is not diagonal, the hyperplanes are the same as without R(1)."
    swapped = check("swapped normals", what, source, boundaries.swapped_normals, 1e-6, unless, wide)
    yield replace(swapped, contradicts=True)
    what = "With constant gates, a row times its norm is x B(X) D_s W2 on a cell of constant signs: linear in x."
    unless = no_selection or ("GLU has two scores per slot" if label.base == "G" else "")
    source = "Theorem C.10, eq. 41, Lemma C.1, Theorem C.2"
    yield check("linear cells", what, source, cells.linear, 1e-6, unless, wide)
    what = "The norm makes the row nonlinear within the cell."
    yield differ("bent cells", what, "Remark C.11", cells.bend, tolerance=1e-6, unless=unless, make=wide)
    what = "If all gates depend on the token, a row has the same slope on both sides of a token within its cell."
    yield check("smooth cells", what, "Theorem C.13, Proposition H.8", cells.smooth, 1e-3, no_selection, wide)
    what = "The differential of hidden scores is the sum of the terms of dx, dL(1) and dR(1)."
    source = "Proposition C.14, Proposition H.8, eq. 43"
    yield check("differential", what, source, boundaries.differential, DIFFERENTIAL, make=wide)
    constant = "" if label.mix1 or label.gates else "L(1) and R(1) are constant without g and 1"
    what = "The differential is not that of constant L(1) and R(1): boundaries move and bend."
    yield differ("deformation", what, "Proposition C.14", boundaries.deformation, unless=constant, make=wide)

    what = "The change of R(1) by a change of the token has rank at most r_s."
    source = "Remark C.15, Remark H.9"
    yield check("low-rank deformation", what, source, boundaries.low_rank_deformation, unless=no_mixing, make=long)

    unless = no_selection or ("GLU has two scores per slot" if label.base == "G" else "")
    unless = unless or ("RoPE rotates the address of every slot" if label.rope else "")
    what = "A row is the sum over heads of the integral of Psi over the pool, divided by the norm of the scores."
    source = "Lemma B.2, Theorem C.5, Proposition C.8, Theorem D.4, eq. 45, Proposition E.1, Lemma E.2, Proposition H.3"
    yield check("pool", what, source, pool.integral, unless=unless)
    what = "Extended by zero, R adds only zero slots to the pool of its window, and no active slot."
    window = unless or ("" if label.mix1 and label.mix2 else "without R(1) and R(2) older atoms stay")
    window = window or ("" if label.layout == "lag" else "slots count from the oldest token")
    yield check("dummy slots", what, "Corollary C.7", windows.dummy_slots, unless=window)
    own = unless or ("mixing makes each slot from all tokens" if label.has_mixing else "")
    own = own or ("a convolution scales the token" if label.conv else "")
    what = "A context of one token has one atom, that token twice. There are as many such atoms as tokens."
    yield check("reachable atoms", what, "Proposition C.9, Remark E.5", pool.reachable, unless=own)
    what = "The norm of instantiated atoms is at most |R| |X|."
    yield check("atoms", what, "Lemma D.2", pool.atoms, WITHIN, unless)
    what = "On all reachable atoms, Psi is bounded by the product of the five norms."
    yield check("bounded features", what, "Lemma D.3", pool.features, WITHIN, unless)
    what = "Integrals of Psi over signed measures are at most sup |Psi| times their total variation."
    yield check("bounded readout", what, "Theorem D.4", pool.readouts, WITHIN, unless)
    what = "Selection does not add total variation: it keeps exactly the atoms with a positive score."
    source = "Theorem D.6, Lemma E.6, Remark E.4, Remark E.7"
    yield check("restriction", what, source, pool.restriction, ROUNDING, unless)
    what = "On finitely many atoms, the least total variation that represents a function is a norm and bounds it."
    yield check("variation norm", what, "Theorem D.7, Remark E.9", pool.variation_norm, 1e-7, unless)
    what = "A head's row, times the norm of its scores, is at most sup |Psi| times the number of its active slots."
    yield check("bounded output", what, "Proposition E.8, Remark D.5", pool.outputs, WITHIN, unless)

    what = "Along the gradient flow on two sequences, other rows change by the sum of their tangent kernels."
    source = "Theorem D.9"
    yield check("tangent kernel", what, source, kernel_regime.prediction_dynamics, DIFFERENTIAL)
    what = "Descent in W_o alone, in which the mixer is linear, equals descent with its constant kernel."
    yield check("constant kernel", what, "Corollary D.10", kernel_regime.constant_kernel)
    what = "Ten times closer to its start, descent in all parameters is ten times closer to that with the first kernel."
    yield check("lazy descent", what, "Corollary D.10", kernel_regime.laziness, 0.12)
    what = "Rows whose scores move by less than their margin select the same slots."
    yield check("stable selection", what, "Lemma D.11, Remark E.10", kernel_regime.stability, 0, no_selection)

    by_lag, what = (
        label.layout == "lag",
        "Contractions with A and B are causal convolutions: computed by FFT, the rows are the same.",
    )
    registers = "registers are the first slots" if label.registers else ""
    unless = registers or ("" if label.has_mixing else "the label has no sequence mixing")
    if by_lag or unless:
        yield check("convolution", what, "Remark G.5, eq. 76", boundaries.convolution, unless=unless)
    else:
        what = "This label counts slots from the oldest token, so that convolutions with A and B give other rows."
        yield differ("convolution", what, "Remark G.5, eq. 76", boundaries.convolution)

    what = "For any diagonal, an R(2) of rank 16 misses most of a shift of 128 slots, which has full rank."
    unless = "" if label.mix2 else "the label has no R(2)"
    unheld = functools.partial(boundaries.uncovered_shift, boundaries.SLOTS, boundaries.MIXING_RANK)
    shift = differ("shift", what, "Appendix I.3.4", unheld, tolerance=0.5, unless=unless, make=lambda *_: ())
    yield replace(shift, contradicts=True)

    mixes = "mixing makes each slot from all tokens" if label.has_mixing else ""
    unless = no_selection or ("GLU has two scores per slot" if label.base == "G" else "") or mixes
    unless = unless or ("RoPE rotates the address of every slot" if label.rope else "")
    unless = unless or ("a convolution reads across documents" if label.conv else "")
    what = "An earlier document changes a row in two ways: its atoms are added, and the norm changes."
    yield check("added document", what, "Proposition H.1", pool.prompt, unless=unless)
    unless = no_selection or ("R(1) mixes noise with other slots" if label.mix1 else "")
    what = "If noise is as likely as its negative, half of the noise slots are active on average."
    yield check("spurious slots", what, "Proposition I.3", pool.spurious, 0, unless)

    unless = no_selection or ("GLU has two scores per slot" if label.base == "G" else "") or no_mixing
    unless = unless or ("RoPE rotates the scores" if label.rope else "") or registers
    what = "With the paper's weights, a row is ReLU(x2 + phi(c x1) x1) divided by the norm."
    yield check("explicit construction", what, "Proposition I.2", boundaries.construction, unless=unless, make=narrow)
    what = "The kinks of these rows lie on a curve, where the slope jumps: no union of hyperplanes."
    source = "Proposition I.2, Proposition I.1"
    yield differ("curved kink", what, source, boundaries.curved_kink, unless=unless, make=narrow)
    what = "With a suitable R(1), a hidden score is x b + sum_k phi(w_k x) x a_k."
    yield check("warped sum", what, "Appendix I.2, examples 2 and 3", boundaries.warped_sum, unless=unless, make=narrow)
    yield from summaries.checks(label, check, differ, no_selection)
