"""The theorems of the main text of the HyperMLP paper, as checks of a label."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from madbench.mixers import Check
from madbench.mixers.checks import sample
from madbench.mixers.srg.theorems import measures, windows
from madbench.mixers.srg.theorems.statements import Statements, why_unselected

MIXED_SCORES = 2e-2  # error of scores in bfloat16


def checks(statements: Statements) -> Iterable[Check]:
    """The checks of theorems of the main text for a label, and then those of letters that are not in Table 1."""
    label, check, differ = statements.label, statements.check, statements.differ
    wide = functools.partial(sample, size=measures.WIDE)
    by_lag, is_softmax = label.layout == "lag", label.has_softmax
    no_mixing = "" if label.has_mixing else "the label has no sequence mixing"
    no_gates = "" if label.gates else "the label has no gates"
    no_rope = "" if label.rope else "the label has no RoPE"
    no_selection = why_unselected(label)

    absolute = label.rope and label.gates
    slid = "a convolution reads tokens before the window" if label.conv else ""
    slid = slid or ("scores depend on absolute positions" if absolute else "")
    what = "Decoding in a sliding window gives the last row of the window alone."
    yield check("sliding window", what, "Theorem 2.3", measures.sliding, unless=slid)
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
    if label.registers:
        what = "k registers add k slots to every row and do not change the scores of other slots."
        yield check("registers", what, "Proposition H.5", measures.registers)
    if label.adapter:
        what = "The adapter of W_o adds updates in at most r_a directions. Both adapters can be merged with W_v, W_o."
        yield check("adapters", what, "Proposition 2.6 (ii)", measures.adapters)
    if label.base == "D":
        what = "The activations of a row are a difference of two softmaxes: they sum to 1 - lambda."
        yield check("differential softmax", what, "Ye et al. 2024, eq. 1", measures.differential)
