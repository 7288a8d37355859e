"""Native sparse attention: blocks as means, chosen blocks and a window, each with a gate (Yuan et al. 2025).

    o_t = g1_t sum_c softmax_c(q_t . mean(k of c) / sqrt(K)) mean(v of c)
        + g2_t sum_(j in S_t) softmax_(j in S_t)(q_t . k_j / sqrt(K)) v_j
        + g3_t sum_(j in W_t) softmax_(j in W_t)(q_t . k_j / sqrt(K)) v_j

arXiv 2502.11089. Blocks have 16 tokens. The first sum is over the blocks c that end at t or before, and 0 if there are
none. S_t has the tokens j <= t of topk blocks: the first block, the block of t, the one before it, and the other blocks
before t with the largest scores q_t . mean(k of c). W_t has the newest 32 tokens. The gates are sigmoids of linear maps
of x, three per head. q and k are rotated by position, and never in 16 bits, for the choice of blocks, which has no
gradient. Past the context, blocks begin at the oldest cached token.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.arguments import integer
from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.operator import Dims
from madbench.mixers.named.parts import Linear, Part
from madbench.mixers.named.rotated_heads import even_keys, rotated

if TYPE_CHECKING:
    from torch import Tensor, nn

WINDOW = 32  # newest tokens that the third sum reads
ALWAYS = 3  # blocks that are always in S_t, if the sequence has them
GATES = ("means", "chosen", "window")


@dataclass(frozen=True)
class NSA(Attention):
    """The operator NSA, whose equation is in the docstring of this module. All scores are computed, and masked.

    The queries of :class:`Tokens` have K + 3 channels: q, and then the gates.
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
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        return {
            "q_proj": Linear(d, keys),
            "k_proj": Linear(d, keys),
            "v_proj": Linear(d, values),
            "g_proj": Linear(d, 3 * dims.heads),
            "o_proj": Linear(values, d),
        }

    def cached(self, dims: Dims) -> Mapping[str, int]:
        return {"k": dims.key_dim, "v": dims.value_dim}

    def tokens(self, layer: nn.Module, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        import torch

        from madbench.mixers.cd.parts import split_heads
        from madbench.mixers.named import ops
        from madbench.mixers.named.chosen_blocks import precise_heads
        from madbench.mixers.precision import without_autocast

        heads = layer.dims.heads
        q, k = precise_heads(layer, x, position)
        with without_autocast(x):
            gates = split_heads(ops.linear_in_float32(layer.g_proj, x).sigmoid(), heads)
        v = split_heads(layer.v_proj(x), heads)
        return Tokens(torch.cat((q, gates), dim=-1), {"k": k, "v": v}, {})

    def weights(self, layer: nn.Module, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        import torch

        from madbench.mixers.named import attention_ops as ops
        from madbench.mixers.named import chosen_blocks as blocks

        q, gates = q.split((layer.dims.key, len(GATES)), dim=-1)
        z = ops.scores(q, seen["k"], layer.dims.key**-0.5)
        of_means = ops.scores(q, blocks.means(seen["k"]), layer.dims.key**-0.5)
        row, token = blocks.positions(z, first)
        own, block = row // blocks.BLOCK, torch.arange(of_means.shape[-1], device=z.device)
        ends_before = (block + 1) * blocks.BLOCK <= row + 1
        hidden = ~ends_before & (block > 0)  # the softmax of early rows needs a block, whose weight is removed
        shares = of_means.masked_fill(hidden, -torch.inf).softmax(-1) * ends_before
        weights = gates[..., :1] * blocks.spread(shares, z.shape[-1]) / blocks.BLOCK
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

        heads, key, value = dims.heads, dims.key, dims.value
        turned = rotated(key)
        k, v, rows = [], [], []

        def attention(q: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
            weights = torch.softmax(torch.stack([q @ each / key**0.5 for each in keys]), dim=0)
            return sum(weight * each for weight, each in zip(weights, values))

        for t, x_t in enumerate(x):
            queries, keys = (
                [torch.cat((loops.rotated(each[:turned], t), each[turned:])) for each in side.split(key)]
                for side in (p["q_proj.weight"] @ x_t, p["k_proj.weight"] @ x_t)
            )
            gates = torch.sigmoid(p["g_proj.weight"] @ x_t).view(heads, 3)
            k.append(keys)
            v.append((p["v_proj.weight"] @ x_t).split(value))
            outputs, own = [], t // 16
            for h in range(heads):
                q, o = queries[h], x.new_zeros(value)
                complete = range((t + 1) // 16)
                mean_k = [sum(k[j][h] for j in range(16 * c, 16 * c + 16)) / 16 for c in complete]
                mean_v = [sum(v[j][h] for j in range(16 * c, 16 * c + 16)) / 16 for c in complete]
                if mean_k:
                    o = o + gates[h, 0] * attention(q, mean_k, mean_v)
                always = {0, own, max(0, own - 1)}
                others = sorted({*complete} - always, key=lambda c: -float((q @ mean_k[c]).detach()))
                read = [j for j in range(t + 1) if j // 16 in {*always, *others[: self.topk - 3]}]
                o = o + gates[h, 1] * attention(q, [k[j][h] for j in read], [v[j][h] for j in read])
                newest = range(max(0, t - 31), t + 1)
                o = o + gates[h, 2] * attention(q, [k[j][h] for j in newest], [v[j][h] for j in newest])
                outputs.append(o)
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
