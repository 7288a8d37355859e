"""Operations in torch for named operators with a growing cache: heads, scores, and decay by position."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers.named.ops import NORM_EPS
from madbench.mixers.named.rotations import rotate_first
from madbench.mixers.ops.heads import split_heads
from madbench.mixers.ops.linear_maps import call_in_dtype_of_input, project
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.tracing import is_symbolic

if TYPE_CHECKING:
    from madbench.mixers.named.layer import NamedLayer, NormGain

PART = 32  # entries per part in sums_from_each


def scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """The scores q . k * ``scale`` in float32 or wider: q (B, H, M, K), k (B, H, N, K) -> (B, H, M, N)."""
    return (wide(q) * scale) @ wide(k).mT


def future(z: Tensor, first: int) -> Tensor:
    """A mask (M, N) that is True for the tokens that a row of scores z (..., M, N) does not see.

    Row m sees the tokens 0 to ``first`` + m.
    """
    return torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).triu(first + 1)


def softmax(z: Tensor, first: int | None) -> Tensor:
    """The softmax of scores z (..., M, N) over those of the N tokens that each row sees.

    Row m sees the tokens 0 to ``first`` + m. If ``first`` is None, every row sees all tokens.
    """
    return (z if first is None else z.masked_fill(future(z, first), -math.inf)).softmax(-1)


def heads_of(
    layer: NamedLayer,
    x: Tensor,
    norms: Sequence[NormGain] = (),
    eps: float = NORM_EPS,
    *,
    sides: str = "qkv",
    position: int | None = None,
) -> list[Tensor]:
    """Project x (B, T, D) to heads (B, H, T, .), by default those of queries, keys and values.

    Each letter of ``sides`` names a projection: ``q`` is the layer's ``q_proj``. The last letter stands for the values,
    which are only split into heads. The other projections are also normed and rotated by :func:`place`, which explains
    ``norms``, ``eps`` and ``position``. All heads are in the dtype of the values.
    """
    *others, values = project(x, *(layer.get_submodule(f"{side}_proj") for side in sides))
    heads = layer.dims.heads
    with without_autocast(x):
        others = place(others, heads, norms, eps, position)
    return [*(side.to(values.dtype) for side in others), split_heads(values, heads)]


def place(
    sides: Sequence[Tensor], heads: int, norms: Sequence[NormGain], eps: float, position: int | None
) -> list[Tensor]:
    """Split projected queries or keys into heads, then norm and rotate them: (B, T, H n) -> (B, H, T, n) each.

    ``norms`` has one module per tensor, whose ``weight`` is the gain of an RMSNorm per head. If it is empty, there is
    no norm. ``position`` is the position of the first token. All channels are rotated by position (RoPE), or all but
    the last if their number is odd. If ``position`` is None, there is no rotation.
    """
    if norms:
        placed = [head_norm(side, heads, norm.weight, eps) for side, norm in zip(sides, norms)]
    else:
        placed = [split_heads(side, heads) for side in sides]
    width = placed[0].shape[-1]
    return placed if position is None else rotate_first(position, width - width % 2, *placed)


def head_norm(x: Tensor, heads: int, gain: Tensor, eps: float) -> Tensor:
    """Apply an RMSNorm to each head, in float32 or wider: (B, T, H n) -> (B, H, T, n).

    The gain is (n,) if the heads share it, else (H n,).
    """
    x = split_heads(wide(x), heads)
    normed = F.rms_norm(x, x.shape[-1:], None, eps)
    return normed * (gain if gain.shape[0] == x.shape[-1] else gain.view(heads, 1, -1)).to(x.dtype)


def decay(gate: nn.Module, x: Tensor) -> Tensor:
    """The sums of the logarithms of the forget gates up to each token, in float64: x (B, T, D) -> (B, H, T, 1).

    The forget gates of x are sigmoid(gate(x)), where ``gate`` is a linear map to one number per head.
    """
    with without_autocast(x):
        return F.logsigmoid(call_in_dtype_of_input(gate, wide(x))).mT.double().cumsum(-1)[..., None]


def gate_of(total: Tensor) -> Tensor:
    """Recover the forget gates (B, T, H) from ``total`` (B, H, T, 1), the sums of their logarithms up to each token."""
    return F.pad(total.squeeze(-1), (1, 0)).diff().exp().mT


def decay_since(total: Tensor, row: int) -> Tensor:
    """The decay from each of N tokens to the token ``row``, as a logarithm: (B, H, N, 1) -> (B, H, 1, N), in float64.

    ``total`` has the sums of the logarithms of the forget gates from the start of the sequence up to each token. Entry
    s of the result is ``total[row] - total[s]``, the sum over the tokens after s and up to ``row``. The sums may be
    large, so float64 is needed.
    """
    return (total[..., row, :].unsqueeze(-1) - total).mT


def sums_from_each(x: Tensor) -> Tensor:
    """For each entry of x (..., N), the sum from this entry to the last one: (..., N) -> (..., N).

    An x of more than 32 entries is split into parts of 32. Within a part, sums are products with a triangular matrix of
    ones, because the backward pass of these products is faster than that of ``cumsum``.
    """
    length = x.shape[-1]
    if is_symbolic(length) or length <= PART:
        return x.flip(-1).cumsum(-1).flip(-1)
    parts = torch.unflatten(F.pad(x, (0, -length % PART)), -1, (-1, PART))
    within = torch.ones(PART, PART, dtype=x.dtype, device=x.device).tril()
    later = torch.ones(parts.shape[-2], parts.shape[-2], dtype=x.dtype, device=x.device).tril(-1)
    return (parts @ within + (parts.sum(-1) @ later)[..., None]).flatten(-2)[..., :length]
