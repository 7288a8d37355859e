"""Gated short convolution, the cheap layer of LFM2 (LFM2 technical report, arXiv 2511.23404).

    y_t = W_o (C_t * sum_(j=0..2) w_j * (B_(t-j) * h_(t-j)))

One linear map of x_t gives B, C and h, of width d each. All products are elementwise, and w has three taps per channel.
There are no heads, and the state is the convolution's last two inputs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Linear, Part, Taps
from madbench.mixers.named.self_contained import SelfContained
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

TAPS = 3


@dataclass(frozen=True)
class ShortConv(SelfContained):
    """The named operator ShortConv: a gated short convolution, with neither keys nor values.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "ShortConv"
    title: ClassVar = "Gated short convolution"
    equation: ClassVar = "y_t = W_o (C_t * sum_j w_j * B_(t-j) * h_(t-j))"
    source: ClassVar = "LFM2, arXiv 2511.23404"
    library: ClassVar = "Lfm2ShortConv"
    origin: ClassVar = "transformers 5"
    parameters: ClassVar = "4*d*d + W*d"
    state: ClassVar = "(W-1)*d"
    output: ClassVar = "out_proj"
    has_heads: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return [self.library_dims(d, heads)]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, 0, 0)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d = dims.d
        return {"conv": Taps(d, taps=TAPS), "in_proj": Linear(d, 3 * d), "out_proj": Linear(d, d)}

    def flops(self, dims: Dims, length: int) -> float:
        """Zero: the taps of the convolution count as parameters, and products with gates are not counted."""
        return 0.0

    def outputs(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        from madbench.mixers.named import ops

        b, c, h = layer.in_proj(x).chunk(3, dim=-1)
        mixed, carried = ops.convolve(b * h, layer.conv.weight.squeeze(1), carried)
        return layer.out_proj(c * mixed), carried

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        rows, inputs = [], []
        for x_t in x:
            b, c, h = (p["in_proj.weight"] @ x_t).view(3, dims.d)
            inputs.append(b * h)
            taps = p["conv.weight"][:, 0].unbind(-1)[::-1]
            mixed = sum(tap * before for tap, before in zip(taps, inputs[::-1]))
            rows.append(p["out_proj.weight"] @ (c * mixed))
        return torch.stack(rows)
