"""Functions on single rows for the reference loops of operators. They share no code with the layers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from madbench.mixers.named.widths import Dims


def convolved(x: Tensor, taps: Tensor, bias: Tensor | None = None) -> Tensor:
    """Apply a causal convolution and SiLU to x (T, C).

    The taps are (C, 1, taps), and the last is for the current token.
    """
    rows = []
    for t in range(len(x)):
        row = torch.zeros_like(x[t]) if bias is None else bias
        for lag in range(taps.shape[-1]):
            if lag <= t:
                row = row + taps[:, 0, taps.shape[-1] - 1 - lag] * x[t - lag]
        rows.append(silu(row))
    return torch.stack(rows)


def convolved_qkv(p: Mapping[str, Tensor], x: Tensor, dims: Dims) -> list[Tensor]:
    """The queries, keys and values of x (T, D) after projection, convolution and SiLU: (T, H, .) each.

    ``p`` has the parameters of the layer by name.
    """
    widths = {"q": dims.key, "k": dims.key, "v": dims.value}
    sides = {side: convolved(x @ p[f"{side}_proj.weight"].T, p[f"{side}_conv1d.weight"]) for side in widths}
    return [sides[side].view(len(x), -1, width) for side, width in widths.items()]


def silu(x: Tensor) -> Tensor:
    """The activation SiLU: x / (1 + e^-x)."""
    return x * torch.sigmoid(x)


def softplus(x: Tensor) -> Tensor:
    """The activation softplus: ln(1 + e^x)."""
    return torch.logaddexp(x, torch.zeros_like(x))


def unit(x: Tensor) -> Tensor:
    """Divide one vector x by its length: x / sqrt(|x|^2 + 1e-6)."""
    return x / torch.sqrt((x * x).sum() + 1e-6)


def normed(x: Tensor, gain: Tensor, eps: float = 1e-5) -> Tensor:
    """The RMSNorm of one vector x, multiplied by ``gain``."""
    return x / torch.sqrt((x * x).mean() + eps) * gain


def heads_of(p: Mapping[str, Tensor], side: str, x: Tensor, heads: int, eps: float = 1e-5) -> list[Tensor]:
    """Project one token x (D,) to its heads, a list of vectors. ``side`` is ``q`` for queries, ``k`` or ``v``.

    The vectors are normed if the parameters ``p`` have a gain for this side. The gain is shared by the heads, or has
    one number per channel of each head.
    """
    parts = (p[f"{side}_proj.weight"] @ x).view(heads, -1)
    if f"{side}_norm.weight" not in p:
        return list(parts)
    gains = p[f"{side}_norm.weight"].view(-1, parts.shape[-1]).expand_as(parts)
    return [normed(part, gain, eps) for part, gain in zip(parts, gains)]


def attention(q: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor]) -> Tensor:
    """The sum of ``values``, weighted by the softmax over ``keys`` of q . k / sqrt(K), where q has K channels.

    q, each key k and each value are vectors of one head.
    """
    weights = torch.softmax(torch.stack([q @ key / len(q) ** 0.5 for key in keys]), dim=0)
    output: Tensor = sum(weight * value for weight, value in zip(weights, values))
    return output


def rotated(x: Tensor, position: int, width: int | None = None) -> Tensor:
    """Rotate each pair (i, i + n/2) of the first n channels of a vector x by the angle position / 10000^(2i/n).

    n is ``width``. If ``width`` is None, all channels are rotated, or all but the last if their number is odd.
    """
    half = (len(x) if width is None else width) // 2
    turned = [torch.zeros(()) for _ in range(2 * half)]
    for i in range(half):
        angle = position / 10000 ** (2 * i / (2 * half))
        turned[i] = x[i] * math.cos(angle) - x[i + half] * math.sin(angle)
        turned[i + half] = x[i] * math.sin(angle) + x[i + half] * math.cos(angle)
    return torch.cat((torch.stack(turned), x[2 * half :]))


def rotated_pairs(x: Tensor, position: int) -> Tensor:
    """Rotate each pair (2i, 2i + 1) of channels of a vector x of even width n by the angle position / 10000^(2i/n)."""
    angles = [position / 10000 ** (2 * i / len(x)) for i in range(len(x) // 2)]
    pairs = zip(x[::2], x[1::2], angles, strict=True)
    turned = [
        (a * math.cos(angle) - b * math.sin(angle), a * math.sin(angle) + b * math.cos(angle)) for a, b, angle in pairs
    ]
    return torch.stack([number for pair in turned for number in pair])
