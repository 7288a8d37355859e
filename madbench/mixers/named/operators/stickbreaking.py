"""Stick-breaking attention: a token gets a share of what nearer tokens leave (Tan et al. 2025, arXiv 2410.17980).

    o_t = sum_(j<t) sigmoid(z_tj) prod_(j<l<t) (1 - sigmoid(z_tl)) v_j,    z_tj = q_t . k_j / sqrt(K)

The weights of a row sum to at most 1. The order of the products encodes positions, so q and k are not rotated. A row
does not see its own token, and the first row is 0. With ``current`` a row sees its own token: j <= t and l <= t. With
``norm`` q and k are normed per head, with a gain shared by the heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.parts import Linear, Part, qk_gains, qkv_maps
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

EPS = 1e-6  # epsilon of the norms of queries and keys
SMALLEST_WEIGHT = 0.7
"""An exponent p: weights below tiny^p are raised to tiny^p, because very small numbers would make products slow. tiny
is the smallest normal number of the dtype. In float32, tiny^p is 3e-27."""


@dataclass(frozen=True)
class StickBreaking(Attention):
    """The named operator StickBreaking: attention in which a token gets a share of what nearer tokens leave.

    The equation is in the docstring of this module. A weight is computed as exp(z_tj - sum_(j<=l<t) softplus(z_tl)),
    whose exponent is negative.
    """

    current: bool = False
    norm: bool = False

    name: ClassVar = "StickBreaking"
    title: ClassVar = "Stick-breaking attention"
    equation: ClassVar = (
        "o_t = sum_(j<t) sigmoid(z_tj) prod_(j<l<t) (1 - sigmoid(z_tl)) v_j, z_tj = q_t . k_j / sqrt(K)"
    )
    source: ClassVar = "Tan et al. 2025, arXiv 2410.17980"
    library: ClassVar = "StickBreakingAttention"
    meanings: ClassVar = {
        "current": "a row sees its own token, too",
        "norm": "queries and keys normed per head",
    }
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + norm*2*K"
    state: ClassVar = "T*(H*K + H*V)"

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            **qkv_maps(dims),
            "o_proj": Linear(dims.value_dim, dims.d),
            **(qk_gains(dims.key) if self.norm else {}),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import attention_ops

        q, k, v = attention_ops.heads_of(layer, x, (layer.q_norm, layer.k_norm) if self.norm else (), EPS)
        return Tokens(q, {"k": k, "v": v}, {})

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        import math

        import torch

        from madbench.mixers.named import attention_ops, ops

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        last = z.shape[-1] - z.shape[-2] if first is None else first
        last = last if self.current else last - 1  # the last token that the first row sees
        exponent = z - attention_ops.sums_from_each(ops.softplus(z).tril(last))
        # subnormal weights would make products slow; for tokens that are not seen, the exponent may be positive
        least = SMALLEST_WEIGHT * math.log(torch.finfo(z.dtype).tiny)
        return exponent.clamp(least, 1).exp().tril(last)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        k, v, rows = [], [], []
        for t, x_t in enumerate(x):
            q, keys, values = (loops.heads_of(p, side, x_t, heads, eps=1e-6) for side in "qkv")
            k.append(keys)
            v.append(values)
            outputs = []
            for h in range(heads):
                left, o = x.new_ones(()), x.new_zeros(value)
                for j in range(t if self.current else t - 1, -1, -1):
                    share = torch.sigmoid(q[h] @ k[j][h] / key**0.5)
                    o = o + left * share * v[j][h]
                    left = left * (1 - share)
                outputs.append(o)
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
