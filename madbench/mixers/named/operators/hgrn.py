"""HGRN: an elementwise gated recurrence (Qin et al. 2023, arXiv 2311.04823).

    h_t = f_t * h_(t-1) + (1 - f_t) * SiLU(i_t)

h is (V,), and all products are elementwise. f_t = b + (1 - b) sigmoid(W_f x_t) in (b, 1)^V, and i_t = W_i x_t. The
output is W_o (RMSNorm(h_t) * SiLU(W_g x_t)). There are no heads. b is 0, or with ``bound`` it is l / L in layer
l = 0, 1, ... of L layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named import bounded_decay
from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.self_contained import SelfContained
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class HGRN(bounded_decay.BoundedDecay, SelfContained):
    """The named operator HGRN: an elementwise gated recurrence, with one head of value channels and without keys.

    The equation is in the docstring of this module.
    """

    name: ClassVar = "HGRN"
    title: ClassVar = "HGRN"
    equation: ClassVar = "h_t = f_t * h_(t-1) + (1 - f_t) * SiLU(i_t)"
    source: ClassVar = "Qin et al. 2023, arXiv 2311.04823"
    library: ClassVar = "HGRNAttention"
    differs: ClassVar = (
        "As in the library, h is real, and in the paper it is complex with a learned phase. "
        + bounded_decay.BoundedDecay.differs
    )
    parameters: ClassVar = "4*d*V + V"
    state: ClassVar = "V"
    has_heads: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return [Dims(d, 1, 0, width) for width in widths(step, d)]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, 1, 0, d)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, width = dims.d, dims.value
        return {
            "i_proj": Linear(d, width),
            "f_proj": Linear(d, width),
            "g_proj": Linear(d, width),
            "g_norm": Gain(width),
            "o_proj": Linear(width, d),
        }

    def carried(self, dims: Dims) -> Mapping[str, int]:
        return {"h": dims.value}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        Each channel takes 1 for the decay and 2 for what is written.
        """
        return 3 * dims.value

    def outputs(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        from torch.nn.functional import silu

        from madbench.mixers.named import ops, recurrent_ops

        i, gate = ops.project(x, layer.i_proj, layer.g_proj)
        with ops.without_autocast(x):
            log_f, written = bounded_decay.decay(ops.linear_in_float32(layer.f_proj, x), layer.dims)
            h = recurrent_ops.scan(log_f, written * silu(ops.wide(i)), carried["h"] if carried else None)
            gated = ops.norm(h, layer.g_norm.weight) * silu(ops.wide(gate))
        return ops.write(layer.o_proj, gated), {"h": h[:, -1]}

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        h, bound, rows = x.new_zeros(dims.value), bounded_decay.bound_of(dims), []
        for x_t in x:
            i, g = p["i_proj.weight"] @ x_t, p["g_proj.weight"] @ x_t
            f = bound + (1 - bound) * torch.sigmoid(p["f_proj.weight"] @ x_t)
            h = f * h + (1 - f) * loops.silu(i)
            rows.append(p["o_proj.weight"] @ (loops.normed(h, p["g_norm.weight"]) * loops.silu(g)))
        return torch.stack(rows)
