"""The choice of blocks of tokens in sparse attention, in torch.

Each query chooses the blocks that it reads. No gradient passes through the choice.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.named.attention_ops import place
from madbench.mixers.named.ops import NORM_EPS, linear_in_float32
from madbench.mixers.ops.precision import wide, without_autocast

if TYPE_CHECKING:
    from madbench.mixers.named.layer import NamedLayer, NormGain

BLOCK = 16
"""Tokens per block."""


def precise_heads(layer: NamedLayer, x: Tensor, position: int, norms: Sequence[NormGain] = ()) -> list[Tensor]:
    """Compute the queries and keys of x (B, T, D), each (B, H, T, K), in float32 or wider even under autocast.

    In 16 bits, rounding would make some queries choose other blocks. Queries and keys are rotated by position, and the
    first token is at ``position``. ``norms`` are two modules, whose ``weight`` is the gain of an RMSNorm per head. If
    ``norms`` is empty, there is no norm.
    """
    with without_autocast(x):
        sides = [linear_in_float32(maps, x) for maps in (layer.q_proj, layer.k_proj)]
        return place(sides, layer.dims.heads, norms, NORM_EPS, position)


def means(x: Tensor) -> Tensor:
    """The mean of each block of ``BLOCK`` tokens: (B, H, N, C) -> (B, H, blocks, C).

    If the last block is incomplete, zeros fill it up before its mean is computed.
    """
    first = torch.arange(0, x.shape[2], BLOCK, device=x.device)[:, None]
    return F.pad(wide(x), (0, 0, 0, BLOCK - 1))[:, :, first + torch.arange(BLOCK, device=x.device)].mean(3)


def best(score: Tensor, is_candidate: Tensor, count: int) -> Tensor:
    """A mask (..., M, blocks) that is True for the ``count`` candidates with the largest scores in each row.

    ``score`` is (..., M, blocks), and ``is_candidate`` (M, blocks) is True for the blocks that a row may choose. If a
    row has fewer than ``count`` candidates, all are chosen. Candidates whose score equals the lowest chosen score are
    chosen, too.
    """
    if count == 0:
        return torch.zeros_like(score, dtype=torch.bool)
    score = score.masked_fill(~is_candidate, -math.inf)
    least = F.pad(score, (0, count), value=-math.inf).topk(count).values[..., -1:]
    return (score >= least) & is_candidate


def spread(of_blocks: Tensor, tokens: int) -> Tensor:
    """Give all tokens of a block the value of the block: (..., blocks) -> (..., ``tokens``)."""
    return of_blocks[..., torch.arange(tokens, device=of_blocks.device) // BLOCK]


def positions(z: Tensor, first: int | None) -> tuple[Tensor, Tensor]:
    """The positions of the M rows, as (M, 1), and of the N tokens, as (N,), for scores z (..., M, N).

    Tokens have the positions 0, 1, ..., and the first row has the position ``first``. If ``first`` is None, the last
    row has the position of the last token.
    """
    rows, tokens = z.shape[-2:]
    first = tokens - rows if first is None else first
    return first + torch.arange(rows, device=z.device)[:, None], torch.arange(tokens, device=z.device)
