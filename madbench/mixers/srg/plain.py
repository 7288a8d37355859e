"""Attention from projected queries, keys and values, written with torch operators only.

The paths ``tiled`` and ``fused`` use its derivatives as their second derivatives.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from madbench.mixers.precision import wide, without_autocast
from madbench.mixers.srg.parts import activate, lag_readout, lag_scores, mix, newest_first


class Mixing(NamedTuple):
    """R = Diag(gain) + A Diag(s) B^T of every head and row at W slots."""

    s: Tensor  # (B, heads, T, R)
    A: Tensor  # (heads, W, R)
    B: Tensor  # (heads, W, R)
    gain: Tensor  # (heads, 1, W), 1 + p


def attend(
    base: str, by_lag: bool, q: Tensor, k: Tensor, v: Tensor, mix1: Mixing | None, mix2: Mixing | None
) -> Tensor:
    """Return the readout of the heads, o (B, H, T, V), divided by its norm.

    Take q and k (B, H_q, T, K) and v (B, H, T, V). For S, q must be scaled already. Compute in float32 or wider, also
    under autocast.
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
