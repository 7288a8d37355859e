"""The initial values of an RWKV-7 layer, as in flash-linear-attention 0.6 and in the authors' code."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from madbench.mixers.named.layer import LowRankMap

if TYPE_CHECKING:
    from madbench.mixers.named.layer import NamedLayer

POWERS = {"r": 0.2, "w": 0.9, "k": 0.7, "v": 0.7, "a": 0.9, "g": 0.2}
"""By name of the mixed input: an exponent p. In channel i of d, the initial weight of the previous input is 1 - (i /
d)^(p (1 - l / L)) for layer l = 0, 1, ... of a model of L layers."""


@torch.no_grad()
def initialize(layer: NamedLayer) -> None:
    """Set the initial values of all parameters of an RWKV-7 layer.

    The linear maps to r, k and v are multiples of orthogonal matrices. The output map is zero. The first factor of each
    low-rank map is zero, so the products of these maps are zero, too.
    """
    place, dims = layer.allocation.size.layer, layer.dims
    depth = place.index / max(place.count - 1, 1)  # from 0 to 1
    remaining = 1 - place.index / place.count  # from 1 to nearly 0
    for name, power in POWERS.items():
        shares = torch.arange(dims.d) / dims.d
        layer.get_parameter(f"x_{name}").copy_(1 - shares ** (power * remaining))
    at, centered = _places(dims.key_dim), _centered(dims.key_dim)
    of_head = 2 * _centered(dims.key)
    zigzag = (of_head * of_head.abs()).repeat(dims.heads)
    layer.k_k.copy_(0.71 - 0.1 * centered)
    layer.k_a.fill_(1.02)
    layer.r_k.fill_(-0.04)
    for name, gain in (("r", 1.0), ("k", 0.1), ("v", 1.0)):
        _draw_orthogonal(getattr(layer, f"{name}_proj").weight, gain)
    layer.o_proj.weight.zero_()
    _draw_low_rank(layer.w_lora, -5.5 + 6 * at ** (1 + depth**0.3) + 2.5 * zigzag)
    _draw_low_rank(layer.a_lora, -0.19 + 0.3 * zigzag + 0.4 * centered)
    _draw_low_rank(layer.g_lora)
    if hasattr(layer, "v_lora"):
        _draw_low_rank(layer.v_lora, 0.73 - 0.4 * _centered(dims.value_dim))
    layer.g_norm.weight.fill_(((place.index + 1) / place.count) ** 0.7)
    layer.g_norm.bias.zero_()


def _places(width: int) -> Tensor:
    """Evenly spaced numbers from 0 to 1, one per channel."""
    return torch.arange(width) / max(width - 1, 1)


def _centered(width: int) -> Tensor:
    """Evenly spaced numbers from -1/2 to 1/2, one per channel. A single channel has 0."""
    return _places(width) - 0.5 if width > 1 else torch.zeros(1)


def _draw_orthogonal(weight: Tensor, gain: float) -> None:
    """Set ``weight`` to a random orthogonal matrix times ``gain``.

    It is drawn in float32, because torch has no QR decomposition in 16 bits.
    """
    drawn = torch.empty_like(weight, dtype=torch.promote_types(weight.dtype, torch.float32))
    weight.copy_(nn.init.orthogonal_(drawn, gain=gain))


def _draw_low_rank(maps: LowRankMap, bias: Tensor | None = None) -> None:
    """Set the first map to zero, the second to a small multiple of an orthogonal matrix, and its bias to ``bias``.

    ``bias`` is None if the second map has no bias.
    """
    down, _, up = cast("tuple[nn.Linear, nn.Identity, nn.Linear]", maps.lora)
    down.weight.zero_()
    outputs, rank = up.weight.shape
    _draw_orthogonal(up.weight, 0.1 * max(1, rank / outputs) ** 0.5)
    if bias is not None:
        up.bias.copy_(bias)
