"""Attention from projected queries, keys and values, written with torch operators only.

The paths ``tiled`` and ``fused`` take their second and higher derivatives from it.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.srg.parts import activate, lag_readout, lag_scores, mix, newest_first


class Mixing(NamedTuple):
    """The mixing matrix R = Diag(gain) + A Diag(s) B^T of each head and row, for rows of W slots and rank R."""

    s: Tensor  # (B, heads, T, R)
    A: Tensor  # (heads, W, R)
    B: Tensor  # (heads, W, R)
    gain: Tensor  # (heads, 1, W), 1 + p


def attend(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> Tensor:
    """Causal attention with mixing: the output of the heads (B, H, T, V), in the dtype of q.

    q and k are (B, H_q, T, K), and v is (B, H, T, V). For base S, q must already be scaled by 1/sqrt(K). ``mix1`` is
    R(1), which mixes scores over slots, and ``mix2`` is R(2), which mixes activations. Each is None without this
    mixing. If ``by_lag`` is true, their slots are ordered by lag, otherwise by position. Base D and sinks are not
    supported. All arithmetic is in float32 or wider, also under autocast.
    """
    dtype = q.dtype
    with without_autocast(q):
        q, k, v = wide(q), wide(k), wide(v)
        mix1, mix2 = (mixing and Mixing(*map(wide, mixing)) for mixing in (mix1, mix2))
        k, v = (newest_first(k), newest_first(v)) if by_lag else (k, v)
        z = lag_scores(q, k) if by_lag else q @ k.mT
        h = mix(z.tril(), mix1.A, mix1.s, mix1.B, mix1.gain) if mix1 else z
        w, norm = activate(base, h, 0)
        w = mix(w, mix2.B, mix2.s, mix2.A, mix2.gain).tril() if mix2 else w
        o = lag_readout(w, v) if by_lag else w @ v
        return (o if norm is None else o / norm).to(dtype)
