"""Checks of mixing that is extended by zero from a window to more slots (HyperMLP, Theorem 2.3, Appendix F.1).

R_t is R for the t slots of a window, and R_T that for T slots. R_T = P R_t P^T keeps the first t slots: the newest
tokens in the lag layout, the oldest in the position layout. R_T = Q R_t Q^T keeps the last t slots.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from madbench.mixers.checks.residuals import difference, maximum
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import SequenceMixing
from madbench.mixers.srg.theorems.measures import WINDOW, dynamic_weights, row_of
from madbench.mixers.srg.theorems.pool import pool


def _mixings(mixer: DynamicMLP) -> Iterator[SequenceMixing]:
    return filter(None, (mixer.mix1, mixer.mix2))


def _extend_by_zero(mixer: DynamicMLP) -> int:
    """Extend the mixing matrices R(1) and R(2) of a window by zero to the slots behind it (Lemma C.6).

    For these slots, p is set to -1, and A and B to 0. Return the number of slots of the window, registers included.
    """
    first = WINDOW + mixer.register_slots
    for mix in _mixings(mixer):
        mix.A[:, first:], mix.B[:, first:], mix.p[:, first:] = 0, 0, -1
    return first


def _clear_before_window(mixer: DynamicMLP, x: Tensor) -> None:
    """Set the three tokens before the last ``WINDOW`` tokens to zero, if the label has a convolution to read them."""
    if mixer.label.conv:
        x[:, -WINDOW - 3 : -WINDOW] = 0


def zero_extension(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare a mixing matrix whose tables are extended by zero with that of the window padded by zeros (Lemma C.6).

    R(1) and R(2) are compared for the strengths of every token. Return the largest relative difference.
    """
    before = [(mix, mix.strengths(x).unbind(2)) for mix in _mixings(mixer)]
    count, slots = WINDOW + mixer.register_slots, mixer.allocation.slots
    blocks = [[mix.right(torch.eye(count).to(x), s[:, :, None]) for s in tokens] for mix, tokens in before]
    _extend_by_zero(mixer)
    residuals = []
    for (mix, tokens), of_tokens in zip(before, blocks):
        for s, block in zip(tokens, of_tokens):
            whole = mix.right(torch.eye(slots).to(x), s[:, :, None])
            expected = torch.zeros_like(whole)
            expected[..., :count, :count] = block
            residuals.append(difference(whole, expected))
    return maximum(*residuals)


def truncation(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the last output row for a window alone with that for a longer input (Theorem F.1 (i)).

    The longer input ends with the window and has older tokens before it. The mixing matrices of the window are extended
    by zero to all slots.
    """
    _extend_by_zero(mixer)
    _clear_before_window(mixer, x)
    return difference(mixer(x[:, -WINDOW:])[:, -1], mixer(x)[:, -1])


def dummy_slots(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the atoms of a window with those of a longer input that ends with the window (Corollary C.7).

    The atom of slot j is the pair of row j of R(1)^T X and row j of R(2)^T X, where X is the context
    (:mod:`madbench.mixers.srg.theorems.pool`). The mixing matrices are first extended by zero to the slots behind the
    window. The atoms of the window must then be equal, and the other atoms of the longer input must be zero.

    Return the largest, over heads and sequences, of three numbers: the relative difference of the window's atoms, the
    largest absolute entry of the other atoms, and the number of slots of the last row that are active in only one of
    the two inputs.
    """
    count = _extend_by_zero(mixer)
    _clear_before_window(mixer, x)
    residuals = []
    for head in range(mixer.n_head):
        for sequence in x:
            short, whole = (pool(mixer, tokens, head) for tokens in (sequence[-WINDOW:], sequence))
            for own, longer in ((short.u, whole.u), (short.v, whole.v)):
                residuals += [difference(longer[:count], own), float(longer[count:].abs().max())]
            active = [each.coefficients(each.u) > 0 for each in (short, whole)]
            residuals.append(float((active[1][:count] != active[0]).sum() + active[1][count:].sum()))
    return maximum(*residuals)


def oldest_window(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the last row with a row of the same token that sees only the oldest tokens (Theorem F.1 (ii), eq. 51).

    The mixing matrices for the oldest tokens are first extended by zero for all later slots. Only for the position
    layout.
    """
    _extend_by_zero(mixer)
    rows = [
        row_of(mixer, sequence[-1], *dynamic_weights(mixer, sequence[:WINDOW], sequence[-1], sequence[-1]))
        for sequence in x
    ]
    return difference(torch.stack(rows), mixer(x)[:, -1])


def suffix_extension(mixer: DynamicMLP, x: Tensor) -> float:
    """Compare the last row for a window with the last row for a longer input that ends with the window (Remark F.2).

    The mixing matrices of the window are extended by zero for all earlier slots, so that the last slots keep them. Only
    for the position layout.
    """
    _clear_before_window(mixer, x)
    alone, length = mixer(x[:, -WINDOW:])[:, -1], x.shape[1]
    for mix in _mixings(mixer):
        for table, nothing in ((mix.A, 0.0), (mix.B, 0.0), (mix.p, -1.0)):
            window = table[:, :WINDOW].clone()
            table[:, :length] = nothing
            table[:, length - WINDOW : length] = window
    return difference(mixer(x)[:, -1], alone)
