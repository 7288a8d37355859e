"""DeltaFormer: softmax attention over values that were corrected by the delta rule (arXiv 2505.19488).

    u_t = v_t - beta_t sum_(j<t) softmax_(j<t)(q_t . k_j / sqrt(K)) u_j,    beta_t = w_b x_t + b
    o_t = sum_(j<=t) softmax_(j<=t)(q_t . k_j / sqrt(K)) u_j

With P the matrix of the softmax over earlier tokens, U = (I + Diag(beta) P)^-1 V. The first token has no earlier token,
so u_0 = v_0. beta has one number per head. It may have any sign and is near 0 initially. q and k are rotated by
position. With ``norm`` they are normed per head before the rotation, with a gain shared by the heads. Decoding keeps k
and u. If decoding drops tokens beyond the context, u of a new token is corrected by the cached u only, and cached u
stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import SOFTMAX_PATHS, Attention, Tokens
from madbench.mixers.named.parts import Linear, Part, qk_gains, qkv_maps
from madbench.mixers.named.widths import Dims, even_keys

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class DeltaFormer(Attention):
    """The named operator DeltaFormer: softmax attention over values that were corrected by the delta rule.

    The equations are in the docstring of this module. For a sequence, the values in :class:`Tokens` are already the
    corrected values u, which are computed in blocks of rows. For a single decoded token they are the projected values
    v, and :meth:`extend` corrects them before they enter the cache.
    """

    norm: bool = False

    name: ClassVar = "DeltaFormer"
    title: ClassVar = "DeltaFormer"
    equation: ClassVar = (
        "u_t = v_t - beta_t sum_(j<t) softmax_(j<t)(q_t . k_j / sqrt(K)) u_j, "
        "o_t = sum_(j<=t) softmax_(j<=t)(q_t . k_j / sqrt(K)) u_j"
    )
    source: ClassVar = "Zhong et al. 2025, arXiv 2505.19488"
    library: ClassVar = "DeltaFormerAttention"
    differs: ClassVar = (
        "The library's widths are d / H; at the budget values are narrower. As in the library's code, u compares the "
        "query of a token with earlier keys, although its docstring says that keys are compared with keys."
    )
    meanings: ClassVar = {"norm": "queries and keys normed per head"}
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + d*H + H + norm*2*K"
    state: ClassVar = "T*(H*K + H*V)"
    paths: ClassVar = SOFTMAX_PATHS

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return even_keys(d, heads, step)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            **qkv_maps(dims),
            "b_proj": Linear(dims.d, dims.heads, bias=True),
            "o_proj": Linear(dims.value_dim, dims.d),
            **(qk_gains(dims.key) if self.norm else {}),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import attention_ops, ops

        norms = (layer.q_norm, layer.k_norm) if self.norm else ()
        q, k, v = attention_ops.heads_of(layer, x, norms, position=position)
        with ops.without_autocast(x):
            beta, v = ops.linear_in_float32(layer.b_proj, x).mT[..., None], ops.wide(v)
            if carried is None:
                v = corrected(q, k, v, beta, layer.chunk)
        return Tokens(q, {"k": k, "v": v}, {}, mirrors={"beta": beta})

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        from madbench.mixers.named import attention_ops

        shares = attention_ops.softmax(attention_ops.scores(tokens.q, cached["k"], tokens.q.shape[-1] ** -0.5), None)
        u = tokens.cached["v"] - tokens.mirrors["beta"] * (shares @ cached["v"])
        return super().extend(cached, tokens._replace(cached={**tokens.cached, "v": u}))

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        They are those of softmax attention, plus two per channel of each earlier key and value, for the corrected
        values.
        """
        return super().flops(dims, length) + (length - 1) * (dims.key_dim + dims.value_dim)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads = dims.heads
        k: list[list[Tensor]]
        u: list[list[Tensor]]
        k, u, rows = [[] for _ in range(heads)], [[] for _ in range(heads)], []
        for t, x_t in enumerate(x):
            q, new = ([loops.rotated(each, t) for each in loops.heads_of(p, side, x_t, heads)] for side in "qk")
            v, beta = loops.heads_of(p, "v", x_t, heads), p["b_proj.weight"] @ x_t + p["b_proj.bias"]
            outputs = []
            for h in range(heads):
                u[h].append(v[h] - beta[h] * loops.attention(q[h], k[h], u[h]) if t > 0 else v[h])
                k[h].append(new[h])
                outputs.append(loops.attention(q[h], k[h], u[h]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)


def corrected(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, size: int) -> Tensor:
    """The corrected values U (B, H, T, V) of a sequence with values v (B, H, T, V) and strengths beta (B, H, T, 1).

    They are computed in blocks of ``size`` rows. If there are several blocks, the backward pass computes each again.
    """
    import torch

    from madbench.mixers.ops.recompute import recompute
    from madbench.mixers.ops.tracing import is_symbolic

    length = q.shape[2]
    if is_symbolic(length) or length <= size:
        return corrected_block(q, k, v, beta)
    blocks: list[Tensor] = []
    for start in range(0, length, size):
        rows = slice(start, min(start + size, length))
        parts = (q[:, :, rows], k[:, :, : rows.stop], v[:, :, rows], beta[:, :, rows])
        blocks.append(recompute(corrected_block, *parts, *blocks))
    return torch.cat(blocks, dim=2)


def corrected_block(q: Tensor, k: Tensor, v: Tensor, beta: Tensor, *earlier: Tensor) -> Tensor:
    """The corrected values (B, H, M, V) of the last M of N tokens with keys k (B, H, N, K).

    q, v and beta are those of the M tokens. ``earlier`` are the blocks of corrected values before them.
    """
    import torch

    from madbench.mixers.named import attention_ops

    first = k.shape[2] - q.shape[2]
    z = attention_ops.scores(q, k, q.shape[-1] ** -0.5)
    hidden = attention_ops.future(z, first - 1)
    if first == 0:  # row 0 has no earlier token: its softmax sees its own token, and beta is 0
        hidden[0, 0] = False
        beta = torch.cat((torch.zeros_like(beta[:, :, :1]), beta[:, :, 1:]), dim=2)
    shares = beta * z.masked_fill(hidden, -torch.inf).softmax(-1)
    if earlier:
        v = v - shares[..., :first] @ torch.cat(earlier, dim=2)
    corrected: Tensor = torch.linalg.solve_triangular(shares[..., first:], v, upper=False, unitriangular=True)
    return corrected
