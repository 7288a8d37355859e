"""Heads of attention whose queries and keys are rotated by position: their widths, and their projections."""

from __future__ import annotations

from typing import TYPE_CHECKING

from madbench.mixers.named.operator import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor, nn

EPS = 1e-5  # epsilon of the norms of heads


def rotated(width: int) -> int:
    """The number of rotated channels of a head with ``width`` channels: all, or all but the last if it is odd."""
    return width - width % 2


def even_keys(d: int, heads: int, step: int) -> list[Dims]:
    """Widths with an even number of key channels, in ascending order of keys plus values.

    Values are a step narrower than keys, as wide, or slightly wider.
    """
    key_step = max(2, step)
    pairs = (
        (key, value)
        for key in widths(key_step, 2 * d // heads)
        for value in range(key - step, key + 2 * key_step - step, step)
    )
    return [Dims(d, heads, key, value) for key, value in pairs if value > 0]


def heads_of(layer: nn.Module, x: Tensor, position: int, sides: str, is_normed: bool) -> list[Tensor]:
    """The heads (B, H, T, .) of x (B, T, D) on several sides, such as ``qkv``. The last side are values.

    The other sides are rotated by position, and normed before if ``is_normed``. The first token is at ``position``.
    """
    from madbench.mixers.cd.parts import split_heads
    from madbench.mixers.linear_maps import project
    from madbench.mixers.named import attention_ops as ops
    from madbench.mixers.precision import without_autocast

    heads = layer.dims.heads
    *turned, values = project(x, *(layer.get_submodule(f"{side}_proj") for side in sides))
    with without_autocast(x):
        if is_normed:
            gains = [layer.get_submodule(f"{side}_norm").weight for side in sides[:-1]]
            turned = [ops.head_norm(side, heads, gain, EPS) for side, gain in zip(turned, gains)]
        else:
            turned = [split_heads(side, heads) for side in turned]
        turned = ops.rotate_first(position, rotated(layer.dims.key), *turned)
    return [*(side.to(values.dtype) for side in turned), split_heads(values, heads)]
