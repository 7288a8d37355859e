"""The statements of Appendices C, D, E, G, H and I of the HyperMLP paper, as checks of a label."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import replace

from madbench.mixers import Check
from madbench.mixers.checks import sample
from madbench.mixers.checks.residuals import ROUNDING
from madbench.mixers.srg.theorems import boundaries, cells, kernel_regime, measures, pool, summaries, windows
from madbench.mixers.srg.theorems.statements import WITHIN, Statements, why_unselected

DIFFERENTIAL = 1e-6  # error of central differences


def checks(statements: Statements) -> Iterable[Check]:
    """The checks of statements of the appendices for a label, in the order of the paper."""
    label, check, differ = statements.label, statements.check, statements.differ
    wide, long = (functools.partial(sample, size=size) for size in (measures.WIDE, measures.MIXED))
    narrow = functools.partial(measures.with_ranks, qk=2 * label.query_heads(2))
    no_selection = why_unselected(label)
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
    yield from summaries.checks(statements)
