"""Attention of a block of M query rows of an S/R/G mixer: scores, R(1), activation, R(2), and the readout of values.

R(1) and R(2) are matrices that mix scores and activations over slots. A slot is an index into a row of scores, by
position or by lag (:mod:`madbench.mixers.srg.parts`). ``mixer`` is the
:class:`madbench.mixers.srg.dynamic_mlp.DynamicMLP`, ``p`` are the projections of the block, and ``first_row`` is the
position of its first row. ``is_step`` is true if the block is the single row of a decoding step.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.ops.precision import without_autocast
from madbench.mixers.ops.recompute import recompute
from madbench.mixers.srg.parts import (
    Projected,
    Seen,
    activate,
    append_slots,
    in_window,
    lag_readout,
    lag_scores,
    mask_slots,
    newest_first,
    split_slots,
    swap_position_and_lag,
)

if TYPE_CHECKING:
    from madbench.mixers.srg.dynamic_mlp import DynamicMLP


def ordered(mixer: DynamicMLP, p: Projected) -> Projected:
    """Put keys and values in the order in which :func:`attend` reads them.

    This is newest first for causal mixers in the lag layout (:func:`madbench.mixers.srg.parts.newest_first`), and the
    order of position otherwise.
    """
    return replace(p, k=newest_first(p.k), v=newest_first(p.v)) if mixer.by_lag and mixer.causal else p


def _last_token(mixer: DynamicMLP, first_row: int, p: Projected) -> int:
    """The position of the last token that has a slot in the scores of the first row of a block.

    In a causal mixer this is the token of the row itself. Otherwise it is the last token of the input, even if a window
    hides this token from the row.
    """
    return first_row if mixer.causal else p.k.shape[2] - 1


def seen_slots(mixer: DynamicMLP, first_row: int, p: Projected, is_step: bool = False) -> Seen:
    """The slots that the rows of a block see, in one of the forms of :data:`madbench.mixers.srg.parts.Seen`.

    In a decoding step, ``p`` has only the keys that the row sees. The exception is a label with a window (w) and mixing
    in the position layout. Tokens before its window keep their slots, so ``p`` has the keys of all tokens.
    """
    rows, tokens = p.q.shape[2], p.k.shape[2]
    if not mixer.window or mixer.has_slots_of_window:
        return None if is_step else _last_token(mixer, first_row, p) + mixer.register_slots
    if is_step and tokens <= mixer.window:
        return None
    visible = in_window(rows, tokens, first_row, mixer.window, mixer.causal, p.q.device)
    if not mixer.register_slots:
        return visible
    registers = visible.new_ones(rows, mixer.register_slots)
    if mixer.register_place == "first":
        return torch.cat((registers, visible), dim=-1)
    last = _last_token(mixer, first_row, p)
    return append_slots(visible, registers, last).tril(last + mixer.register_slots)


def scores(mixer: DynamicMLP, p: Projected, first_row: int, is_step: bool = False) -> Tensor:
    """The scores (B, H_q, M, W + registers) of the M rows of a block: a slot for each of W keys and for each register.

    Slots are ordered by position or by lag, as the label says. With a window in the lag layout (letters w and o), W is
    at most ``mixer.window``. For bases with a softmax, scores are divided by sqrt(d_qk). Scores in slots that a row
    cannot see are undefined.
    """
    q = p.q * mixer.scale if mixer.label.has_softmax else p.q
    if mixer.by_lag and mixer.causal and not is_step:
        z = lag_scores(q, p.k)
        z = z[..., : mixer.window] if mixer.window else z
    else:
        z = _by_slot(mixer, q @ p.k.transpose(-1, -2), first_row, is_step)
    if p.to_registers is None:
        return z
    to_registers = p.to_registers * mixer.scale
    if mixer.register_place == "first":
        return torch.cat((to_registers, z), dim=-1)
    return append_slots(z, to_registers, _last_token(mixer, first_row, p))


def _by_slot(mixer: DynamicMLP, z: Tensor, first_row: int, is_step: bool) -> Tensor:
    """Reorder the last axis of z (B, heads, M, W) from the order of key positions to the order of slots, or back.

    Both directions are the same operation. It is for decoding steps and for rows that see all tokens.
    """
    if not mixer.by_lag:
        return z
    return z.flip(-1) if is_step else swap_position_and_lag(z, first_row)


def split_registers(mixer: DynamicMLP, w: Tensor, last: int) -> tuple[Tensor, Tensor]:
    """Split w (..., M, W + k) into the slots of tokens (..., M, W) and those of the k registers (..., M, k).

    ``last`` is the position of the last token that the first row sees.
    """
    if mixer.register_place == "first":
        return w[..., mixer.register_slots :], w[..., : mixer.register_slots]
    return split_slots(w, mixer.register_slots, last)


def weights(mixer: DynamicMLP, z: Tensor, p: Projected, seen: Seen) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return (h, a, w, norm), computed from the scores z (B, H_q, M, S) of M rows and S slots.

    h are the scores after R(1) has mixed them over slots, a are the activations of h, and w are the activations after
    R(2) has mixed them over slots. a and w must still be divided by norm (B, H, M, 1), unless norm is None. ``seen``
    tells which slots a row sees. See also :class:`madbench.mixers.srg.maps.Maps`.
    """
    h = mixer.mix1.right(mask_slots(z, seen), p.s1) if mixer.mix1 and p.s1 is not None else z
    a, norm = activate(mixer.label.base, h, seen, contrast(mixer, p), mixer.sink)
    w = a
    if mixer.mix2 and p.s2 is not None:
        w = mask_slots(mixer.mix2.right_transposed(a, p.s2), seen)
    return h, a, w, norm


def attend(mixer: DynamicMLP, p: Projected, first_row: int, is_step: bool = False) -> Tensor:
    """The readout (B, H, M, V) of M rows, the first at position ``first_row``. Each row reads the keys that it sees.

    The keys and values of ``p`` are in the order of :func:`ordered`. In a decoding step they are in order of position
    instead, in both layouts.

    Labels of base R, G or L divide by the norm only at the end. Before that, their scores and activations may be too
    small for float16, so inputs in float16 are converted to float32 and the readout is converted back.
    """
    if exceeds_float16(mixer, p):
        with without_autocast(p.q):
            return mixer.attend(p.in_float32(), first_row, is_step).to(p.q.dtype)
    seen = seen_slots(mixer, first_row, p, is_step)
    *_, w, norm = weights(mixer, scores(mixer, p, first_row, is_step), p, seen)
    last = _last_token(mixer, first_row, p)
    of_tokens, of_registers = split_registers(mixer, w, last) if mixer.register_slots else (w, None)
    if mixer.by_lag and mixer.causal and not is_step:
        slots = p.v.shape[2] - 1
        of_tokens = F.pad(of_tokens, (0, slots - of_tokens.shape[-1])) if mixer.window else of_tokens
        o = lag_readout(of_tokens, p.v)
    else:
        o = _by_slot(mixer, of_tokens, first_row, is_step) @ p.v
    if of_registers is not None:
        o = o + of_registers @ mixer.register_values().to(of_registers.dtype)
    return o if norm is None else (o / norm).to(o.dtype)


def attend_in_chunks(mixer: DynamicMLP, p: Projected) -> Tensor:
    """The readout (B, H, T, V) of all rows, computed in blocks of ``mixer.chunk`` rows.

    The backward pass computes each block again instead of keeping its scores.
    """
    whole, length, blocks = ordered(mixer, p), p.q.shape[2], []
    for start in range(0, length, mixer.chunk):
        end = min(start + mixer.chunk, length)
        of_rows = (p.q, p.s1, p.s2, p.to_registers, p.contrast)
        q, s1, s2, *others = (None if t is None else t[:, :, start:end] for t in of_rows)
        seen = _keys_of_rows(mixer, start, end, length)
        first_row = start - seen.start
        if mixer.by_lag and mixer.causal:
            seen = slice(length - end, length + 1 - seen.start)  # one more row, as in newest_first
        block = (q, whole.k[:, :, seen], whole.v[:, :, seen], s1, s2, *others)
        blocks.append(recompute(functools.partial(attend_block, mixer), first_row, *block, module=mixer))
    return torch.cat(blocks, dim=2)


def _keys_of_rows(mixer: DynamicMLP, start: int, end: int, length: int) -> slice:
    """The positions of the keys that are passed to the block of rows from ``start`` to below ``end``.

    They include all keys that the rows see. ``length`` is the number of rows of the input.
    """
    first, last = 0, end if mixer.causal and not mixer.is_from_end else length
    if skips_hidden_keys(mixer):
        first, last = max(0, start - mixer.window + 1), min(last, end + mixer.window - 1)
    return slice(first, last)


def skips_hidden_keys(mixer: DynamicMLP) -> bool:
    """True if a block of rows gets only the keys in the windows of its rows.

    False if the label has no window, and also if it has mixing in the position layout, where hidden keys have slots
    too.
    """
    return mixer.window > 0 and (mixer.has_slots_of_window or not mixer.label.has_mixing)


def attend_block(mixer: DynamicMLP, first_row: int, q: Tensor, k: Tensor, v: Tensor, *others: Tensor | None) -> Tensor:
    """The readout (B, H, M, V) of one block of rows, whose projections are given as the fields of :class:`Projected`.

    Tensors are separate arguments so that the backward pass can compute the block again from them.
    """
    return mixer.attend(Projected(q, k, v, *others), first_row)


def exceeds_float16(mixer: DynamicMLP, p: Projected) -> bool:
    """True if ``p`` is in float16 but attention must be computed in float32, because the label's base is R, G or L.

    See :func:`attend` for the reason.
    """
    return p.q.dtype == torch.float16 and not mixer.label.has_softmax


def contrast(mixer: DynamicMLP, p: Projected) -> Tensor | None:
    """The weight of the second softmax of base D: a scalar, or (B, H, M, 1) in DIFF V2. None for other bases."""
    return mixer.contrast() if mixer.contrast else p.contrast
