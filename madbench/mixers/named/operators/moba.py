"""MoBA, mixture of block attention: a query reads its own block and the best earlier blocks (Lu et al. 2025).

    o_t = sum_(j in S_t) softmax_(j in S_t)(q_t . k_j / sqrt(K)) v_j,    y_t = W_o norm(o_t)

Source: arXiv 2502.13189. S_t has the tokens j <= t of the block of t, and all tokens of the topk - 1 best earlier
blocks. The score of a block is q_t . mean(k of the block). A block has 16 tokens. Each head chooses its own blocks, and
the choice has no gradient. q and k are never in 16 bits, so that rounding does not change the choice. They are rotated
by position. With ``norm`` they are normed per head before the rotation. The norm of the output is over the channels of
a head. All these norms have gains shared by the heads. If decoding drops tokens beyond the context, blocks begin at the
oldest cached token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.arguments import integer
from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.parts import Gain, Linear, Part, qk_gains, qkv_maps
from madbench.mixers.named.widths import Dims, even_keys

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

OUTPUT_EPS = 1e-6  # epsilon of the norm of the output


@dataclass(frozen=True)
class MoBA(Attention):
    """The named operator MoBA, mixture of block attention: a query reads its own block and the best earlier blocks.

    The equations are in the docstring of this module. A query reads ``topk`` blocks in all. The scores of all tokens
    are computed, and those of tokens in other blocks are masked.
    """

    topk: int = integer(4, 1, 8)
    norm: bool = False

    name: ClassVar = "MoBA"
    title: ClassVar = "Mixture of block attention"
    equation: ClassVar = (
        "o_t = sum_(j in S_t) softmax_(j in S_t)(q_t . k_j / sqrt(K)) v_j, S_t: tokens of the block of t up to t, and "
        "of the topk-1 earlier blocks of 16 with the largest q_t . mean(k), y_t = W_o norm(o_t)"
    )
    source: ClassVar = "Lu et al. 2025, arXiv 2502.13189"
    library: ClassVar = "MoBA"
    differs: ClassVar = (
        "A block has 16 tokens, and not 256. Decoding chooses blocks as training does; the library's decoding reads "
        "all tokens. With topk=1 a query reads its own block; the library's reads all tokens. The library's widths "
        "are d / H; at the budget values are narrower."
    )
    meanings: ClassVar = {
        "topk": "number of blocks that a query reads, with its own",
        "norm": "queries and keys normed per head",
    }
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + V + norm*2*K"
    state: ClassVar = "T*(H*K + H*V)"

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return even_keys(d, heads, step)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            **qkv_maps(dims),
            "o_proj": Linear(dims.value_dim, dims.d),
            **(qk_gains(dims.key) if self.norm else {}),
            "o_norm": Gain(dims.value),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import ops
        from madbench.mixers.named.chosen_blocks import precise_heads

        q, k = precise_heads(layer, x, position, (layer.q_norm, layer.k_norm) if self.norm else ())
        return Tokens(q, {"k": k, "v": ops.split_heads(layer.v_proj(x), layer.dims.heads)}, {})

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        import torch

        from madbench.mixers.named import attention_ops
        from madbench.mixers.named import chosen_blocks as blocks

        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        row, token = blocks.positions(z, first)
        with torch.no_grad():
            score = attention_ops.scores(q, blocks.means(seen["k"]), 1.0)
            own = row // blocks.BLOCK
            chosen = blocks.best(score, torch.arange(score.shape[-1], device=z.device) < own, self.topk - 1)
            is_own = (token // blocks.BLOCK == own) & (token <= row)
            is_read = blocks.spread(chosen, z.shape[-1]) | is_own
        return z.masked_fill(~is_read, -torch.inf).softmax(-1)

    def read_out(self, layer: NamedLayer, o: Tensor, x: Tensor, tokens: Tokens) -> Tensor:
        from madbench.mixers.named import ops

        with ops.without_autocast(x):
            o = ops.norm(ops.wide(o), layer.o_norm.weight, OUTPUT_EPS)
        return super().read_out(layer, o.to(x.dtype), x, tokens)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads = dims.heads
        k: list[list[Tensor]]
        v: list[list[Tensor]]
        k, v, rows = [[] for _ in range(heads)], [[] for _ in range(heads)], []
        for t, x_t in enumerate(x):
            q, new = ([loops.rotated(each, t) for each in loops.heads_of(p, side, x_t, heads)] for side in "qk")
            values = loops.heads_of(p, "v", x_t, heads)
            outputs, own = [], t // 16
            for h in range(heads):
                k[h].append(new[h])
                v[h].append(values[h])
                means = [sum(k[h][16 * c : 16 * c + 16]) / 16 for c in range(own)]
                best = sorted(range(own), key=lambda c: -float((q[h] @ means[c]).detach()))[: self.topk - 1]
                read = [j for j in range(t + 1) if j // 16 in (*best, own)]
                o = loops.attention(q[h], [k[h][j] for j in read], [v[h][j] for j in read])
                outputs.append(loops.normed(o, p["o_norm.weight"], 1e-6))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
