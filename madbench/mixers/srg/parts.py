"""What a mixer is made of beside its projections: hidden activations, rotary positions, short convolutions."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.srg.allocation import CONV_TAPS

EPS = 1e-12
ROPE_BASE = 10000.0


def activate(base: str, h: Tensor, first_row: int) -> tuple[Tensor, Tensor | None]:
    """Hidden scores (B, heads, M, W) -> activations (B, H, M, W) and the norm (B, H, M, 1) still to divide by.

    S is softmax, R is ReLU of L2Norm, G is Softplus times ReLU of L2Norm (paper, eq. 11) and takes 2H heads: the first H
    gate, the last H scale. Slots a row cannot see come out as zero. L2Norm divides a row by one positive number and
    everything after it is linear, so R and G return the row unnormalised together with its norm, and the caller divides
    the (much shorter) output row instead (paper, Lemma B.2).
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


def rotate(x: Tensor, first_position: int, style: str = "rotation") -> Tensor:
    """Rotary position embedding (Su et al. 2021): x (..., T, K), K even; row t is at position ``first_position + t``.

    ``style="rotation"``: every pair turns by one angle, so scores depend on the offset of two positions only.
    ``style="mispaired"``: the angles are laid out for half-split pairs and applied to interleaved pairs
    (2i, 2i + 1), as the paper's public code does; the two coordinates of a pair turn by different angles.
    """
    length, width = x.shape[-2:]
    frequency = ROPE_BASE ** (-torch.arange(0, width, 2, device=x.device, dtype=torch.float64) / width)
    position = torch.arange(first_position, first_position + length, device=x.device, dtype=torch.float64)
    angle = torch.outer(position, frequency)
    angle = torch.cat((angle, angle), dim=-1)
    dtype = torch.promote_types(x.dtype, torch.float32)
    cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
    if style == "rotation":
        first, second = x.chunk(2, dim=-1)
        quarter_turn = torch.cat((-second, first), dim=-1)
    else:
        first, second = x[..., 0::2], x[..., 1::2]
        quarter_turn = torch.stack((-second, first), dim=-1).flatten(-2)
    return (x * cos + quarter_turn * sin).to(x.dtype)


class ShortConv(nn.Module):
    """Depthwise causal convolution without a bias: y_t = sum_j w[:, j] x_{t - 3 + j}.

    The last of the four taps meets the current token. ``weight`` is (D, 4).
    """

    def __init__(self, d_model: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model, CONV_TAPS))

    def forward(self, x: Tensor, before: Tensor | None = None) -> Tensor:
        """x (B, T, D), the three inputs before it (B, 3, D) or zeros -> (B, T, D)."""
        length = x.shape[1]
        padded = F.pad(x, (0, 0, CONV_TAPS - 1, 0)) if before is None else torch.cat((before, x), dim=1)
        taps = self.weight.unbind(-1)
        return sum(padded[:, j : j + length] * tap for j, tap in enumerate(taps))
