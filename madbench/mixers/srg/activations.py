"""The three hidden activations: S softmax, R ReLU of L2Norm, G Softplus times ReLU of L2Norm (paper, eq. 11).

L2Norm divides a row by one positive number and everything after it is linear, so R and G return the row unnormalised
together with its norm, and the caller divides the (much shorter) output row instead (paper, Lemma B.2).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

EPS = 1e-12


def activate(base: str, h: Tensor, first_row: int) -> tuple[Tensor, Tensor | None]:
    """Hidden scores (B, heads, M, W) -> activations (B, H, M, W) and the norm (B, H, M, 1) still to divide by.

    Slots a row cannot see come out as zero. G takes 2H heads: the first H gate, the last H scale.
    """
    if base == "S":
        visible = torch.ones(h.shape[-2:], dtype=torch.bool, device=h.device).tril(first_row)
        return h.masked_fill(~visible, float("-inf")).softmax(-1), None
    if base == "R":
        h = h.tril(first_row)
        return F.relu(h), _norm(h)
    gate, scale = h.chunk(2, dim=-3)
    gate = gate.tril(first_row)
    return F.softplus(scale) * F.relu(gate), _norm(gate)


def _norm(h: Tensor) -> Tensor:
    """In float32 at least: EPS and a long sum are beyond bfloat16."""
    h = h.to(torch.promote_types(h.dtype, torch.float32))
    return h.square().sum(-1, keepdim=True).add(EPS).sqrt()
