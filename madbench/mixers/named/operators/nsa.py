"""Native sparse attention: blocks as means, chosen blocks and a window, each with a gate (Yuan et al. 2025).

    o_t = g1_t sum_c softmax_c(q_t . mean(k of c) / sqrt(K)) mean(v of c)
        + g2_t sum_(j in S_t) softmax_(j in S_t)(q_t . k_j / sqrt(K)) v_j
        + g3_t sum_(j in W_t) softmax_(j in W_t)(q_t . k_j / sqrt(K)) v_j

Source: arXiv 2502.11089. Blocks have 16 tokens. The first sum is over the blocks c that end at t or before, and 0 if
there are none. S_t has the tokens j <= t of topk blocks: the first block, the block of t, the one before it, and the
other blocks before t with the largest scores q_t . mean(k of c). W_t has the newest 32 tokens. The gates are sigmoids
of linear maps of x, three per head. q and k are rotated by position. They are never in 16 bits, so that rounding does
not change the choice of blocks. This choice has no gradient. If decoding drops tokens beyond the context, blocks begin
at the oldest cached token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.arguments import integer
from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.parts import Linear, Part, qkv_maps
from madbench.mixers.named.widths import Dims, even_keys

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

WINDOW = 32  # newest tokens that the third sum reads
ALWAYS = 3  # blocks that are always in S_t, if the sequence has them
GATES = ("means", "chosen", "window")


@dataclass(frozen=True)
class NSA(Attention):
    """The named operator NSA, native sparse attention: a query reads means of blocks, chosen blocks and a window.

    The equation is in the docstring of this module. The scores of all tokens are computed, and those of tokens that a
    sum does not include are masked. The queries of :class:`Tokens` have K + 3 channels: the query, and then the three
    gates.
    """

    topk: int = integer(4, 3, 8)

    name: ClassVar = "NSA"
    title: ClassVar = "Native sparse attention"
    equation: ClassVar = (
        "o_t = g1 attention(q_t, block means up to t) + g2 attention(q_t, topk blocks of 16 with the largest "
        "q_t . mean(k), the first, own and previous block among them) + g3 attention(q_t, newest 32 tokens)"
    )
    source: ClassVar = "Yuan et al. 2025, arXiv 2502.11089"
    library: ClassVar = "NativeSparseAttention"
    differs: ClassVar = (
        "A block has 16 tokens, S_t 4 blocks and the window 32 tokens; in the library they are 64, 16 and 512. Each "
        "query head has a key and a value head of its own, and chooses its own blocks. The library's widths are d / H; "
        "at the budget values are narrower."
    )
    meanings: ClassVar = {"topk": "number of blocks in S_t"}
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + 3*d*H"
    state: ClassVar = "T*(H*K + H*V)"

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return even_keys(d, heads, step)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            **qkv_maps(dims),
            "g_proj": Linear(dims.d, 3 * dims.heads),
            "o_proj": Linear(dims.value_dim, dims.d),
        }

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        import torch

        from madbench.mixers.named import ops
        from madbench.mixers.named.chosen_blocks import precise_heads

        heads = layer.dims.heads
        q, k = precise_heads(layer, x, position)
        with ops.without_autocast(x):
            gates = ops.split_heads(ops.linear_in_float32(layer.g_proj, x).sigmoid(), heads)
        v = ops.split_heads(layer.v_proj(x), heads)
        return Tokens(torch.cat((q, gates), dim=-1), {"k": k, "v": v}, {})

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        import torch

        from madbench.mixers.named import attention_ops
        from madbench.mixers.named import chosen_blocks as blocks

        q, gates = q.split((layer.dims.key, len(GATES)), dim=-1)
        z = attention_ops.scores(q, seen["k"], layer.dims.key**-0.5)
        of_means = attention_ops.scores(q, blocks.means(seen["k"]), layer.dims.key**-0.5)
        row, token = blocks.positions(z, first)
        own, block = row // blocks.BLOCK, torch.arange(of_means.shape[-1], device=z.device)
        ends_before = (block + 1) * blocks.BLOCK <= row + 1
        hidden = ~ends_before & (block > 0)  # the softmax of early rows needs a block, whose weight is removed
        shares = of_means.masked_fill(hidden, -torch.inf).softmax(-1) * ends_before
        weights: Tensor = gates[..., :1] * blocks.spread(shares, z.shape[-1]) / blocks.BLOCK
        with torch.no_grad():
            further = (block > 0) & (block < own - 1)
            always = (block == 0) | ((block >= own - 1) & (block <= own))
            chosen = blocks.best(of_means, further, self.topk - ALWAYS) | always
            is_chosen = blocks.spread(chosen, z.shape[-1]) & (token <= row)
        in_window = (token <= row) & (token > row - WINDOW)
        for gate, is_read in ((gates[..., 1:2], is_chosen), (gates[..., 2:], in_window)):
            weights = weights + gate * z.masked_fill(~is_read, -torch.inf).softmax(-1)
        return weights

    def probed_gates(self, tokens: Tokens) -> dict[str, Tensor]:
        gates = tokens.q[..., -len(GATES) :].transpose(1, 2)
        return dict(zip(GATES, gates.unbind(-1)))

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
            gates = torch.sigmoid(p["g_proj.weight"] @ x_t).view(heads, 3)
            outputs, own, complete = [], t // 16, range((t + 1) // 16)
            for h in range(heads):
                k[h].append(new[h])
                v[h].append(values[h])
                mean_k, mean_v = (
                    [sum(side[16 * c : 16 * c + 16], x.new_zeros(())) / 16 for c in complete] for side in (k[h], v[h])
                )
                o = gates[h, 0] * loops.attention(q[h], mean_k, mean_v) if mean_k else x.new_zeros(dims.value)
                always = {0, own, max(0, own - 1)}
                others = sorted({*complete} - always, key=lambda c: -float((q[h] @ mean_k[c]).detach()))
                read = [j for j in range(t + 1) if j // 16 in {*always, *others[: self.topk - 3]}]
                o = o + gates[h, 1] * loops.attention(q[h], [k[h][j] for j in read], [v[h][j] for j in read])
                outputs.append(o + gates[h, 2] * loops.attention(q[h], k[h][-32:], v[h][-32:]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
