"""PaTH attention: Householder reflections (mirrors) of the tokens in between replace positions (arXiv 2505.16381).

    o_t = sum_(j<=t) softmax_j(A_tj / sqrt(K)) v_j,    A_tj = k_j^T H_(j+1) ... H_t q_t,    H_s = I - beta_s w_s w_s^T

w is W_2 W_1 x of rank 32, convolved with three taps; SiLU is applied, and w is scaled to length 1 per head.
beta = 2 sigmoid(. + b) per head, so that H may have negative eigenvalues. With ``forget`` sum_(s=j+1..t) log f_s is
added to A_tj, with one f = sigmoid(. + b) per head. With ``norm`` q and k are normed per head, with a gain shared by
the heads. Decoding keeps H_t ... H_(j+1) k_j, so every step rewrites all keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.attention import Attention, Tokens
from madbench.mixers.named.parts import Gain, Linear, Part, Taps, qkv_maps
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer
    from madbench.mixers.recurrence.forms import Dynamics

RANK = 32  # channels between the two maps of w
TAPS = 3


@dataclass(frozen=True)
class PaTH(Attention):
    """The named operator PaTH: softmax attention in which reflections by the tokens in between replace positions.

    The equation is in the docstring of this module. Its scores A_tj are those of a recurrence of coefficient dynamics
    (``cd:``) with mirrors along w.
    """

    forget: bool = False
    norm: bool = False

    name: ClassVar = "PaTH"
    title: ClassVar = "PaTH attention"
    equation: ClassVar = "o_t = sum_j softmax_j(k_j^T H_(j+1) ... H_t q_t / sqrt(K)) v_j, H_s = I - beta_s w_s w_s^T"
    source: ClassVar = "Yang et al. 2025, arXiv 2505.16381"
    library: ClassVar = "PaTHAttention"
    differs: ClassVar = (
        "The library's widths are d / H; at the budget they are narrower. With forget, log f is divided by sqrt(K) as "
        "A is; FoX does not divide it. The library's decoding omits the norms of norm."
    )
    meanings: ClassVar = {"forget": "a forget gate, as FoX has", "norm": "queries and keys normed per head"}
    parameters: ClassVar = "2*d*H*K + 2*d*H*V + 32*(d + H*K) + W*H*K + (1+forget)*(d*H + H) + norm*2*K"
    state: ClassVar = "T*(H*K + H*V + forget*H) + (W-1)*H*K"
    gates: ClassVar = ("bt_proj", "g_proj")
    block_rows: ClassVar = 64
    dense_limit: ClassVar = 64

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, keys, values = dims.d, dims.key_dim, dims.value_dim
        norms = {"maybe_q_norm": Gain(dims.key), "maybe_k_norm": Gain(dims.key)}
        return {
            **qkv_maps(dims),
            "w_proj": (Linear(d, RANK), Linear(RANK, keys)),
            **(norms if self.norm else {}),
            "w_conv1d": Taps(keys, taps=TAPS),
            "bt_proj": Linear(d, dims.heads, bias=True),
            **({"g_proj": Linear(d, dims.heads, bias=True)} if self.forget else {}),
            "o_proj": Linear(values, d),
        }

    def cached(self, dims: Dims) -> Mapping[str, int]:
        return {**super().cached(dims), **({"decay": dims.heads} if self.forget else {})}

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        from madbench.mixers.named import attention_ops, ops

        norms = (layer.maybe_q_norm, layer.maybe_k_norm) if self.norm else ()
        q, k, v = attention_ops.heads_of(layer, x, norms)
        w, carried = ops.convolve_silu(layer.w_proj(x), layer.w_conv1d.weight.squeeze(1), None, carried)
        with ops.without_autocast(x):
            w = ops.unit(ops.wide_heads(w, layer.dims.heads))
            beta = 2 * ops.linear_in_float32(layer.bt_proj, x).transpose(1, 2).sigmoid()
        cached = {"k": ops.wide(k), "v": v}  # rewritten by every step, so no key is in 16 bits
        cached |= {"decay": attention_ops.decay(layer.g_proj, x)} if self.forget else {}
        return Tokens(q, cached, carried, mirrors={"w": w, "beta": beta[..., None]})

    def seen(self, layer: NamedLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        return {**tokens.cached, **tokens.mirrors}

    def dynamics(self, q: Tensor, seen: Mapping[str, Tensor]) -> Dynamics:
        """The recurrence whose scores are the scores A of this operator, for a sequence with queries q (B, H, T, K).

        ``seen`` has the keys, values and mirrors of the sequence, as :meth:`seen` returns them.
        """
        from madbench.mixers.named import ops
        from madbench.mixers.recurrence.forms import Dynamics, Mirrors

        q, v = ops.wide(q), ops.wide(seen["v"])
        return Dynamics(q, seen["k"], v, None, Mirrors(seen["w"], seen["beta"].squeeze(-1)))

    def weights(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        from madbench.mixers.named import attention_ops
        from madbench.mixers.recurrence import forms

        a = attention_ops.scores(q, seen["k"], 1.0) if first is None else forms.scores(self.dynamics(q, seen))
        return self.normalize(layer, a, seen, first)

    def normalize(self, layer: NamedLayer, a: Tensor, seen: Mapping[str, Tensor], first: int | None) -> Tensor:
        """The weights (B, H, M, N) for scores a (B, H, M, N): a softmax of a / sqrt(K), with the forget gates.

        Row m sees the tokens 0 to ``first`` + m. If ``first`` is None, every row sees all tokens.
        """
        from madbench.mixers.named import attention_ops

        if self.forget:
            a = a + attention_ops.decay_since(seen["decay"], -1 if first is None else first).to(a.dtype)
        return attention_ops.softmax(a * layer.dims.key**-0.5, first)

    def attend_in_blocks(self, layer: NamedLayer, q: Tensor, seen: Mapping[str, Tensor], size: int) -> Tensor:
        import torch

        from madbench.mixers.ops.recompute import recompute
        from madbench.mixers.recurrence import forms

        d, length = self.dynamics(q, seen), q.shape[2]
        blocks = forms.split(d, size)

        def attend(blocks: forms.Blocks, v: Tensor, seen: Mapping[str, Tensor], block: int) -> Tensor:
            start, end = block * size, min((block + 1) * size, length)
            a = forms.block_scores(blocks, block)[:, :, : end - start, :end]
            past = {name: part[..., :end, :] for name, part in seen.items()}
            return self.normalize(layer, a, past, start) @ v[:, :, :end]

        read = {"decay": seen["decay"]} if self.forget else {}
        return torch.cat([recompute(attend, blocks, d.v, read, i) for i in range(blocks.scores.shape[2])], dim=2)

    def cache_of(self, layer: NamedLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        from madbench.mixers.recurrence import forms

        d = self.dynamics(tokens.q, self.seen(layer, tokens))
        length = d.q.shape[2]
        keys = forms.keys_after_blocks(forms.split(d, min(layer.chunk, length)))[:, :, :length]
        return {**tokens.cached, "k": keys}

    def extend(self, cached: Mapping[str, Tensor], tokens: Tokens) -> dict[str, Tensor]:
        w, beta = tokens.mirrors["w"], tokens.mirrors["beta"]
        cached = {**cached, "k": cached["k"] - cached["k"] @ w.mT * beta * w}
        return super().extend(cached, tokens.add_decay(cached) if self.forget else tokens)

    def probed_gates(self, tokens: Tokens) -> dict[str, Tensor]:
        from madbench.mixers.named import attention_ops

        forget = {"forget": attention_ops.gate_of(tokens.cached["decay"])} if self.forget else {}
        return {"beta/2": tokens.mirrors["beta"].squeeze(-1).mT / 2} | forget

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        They are those of softmax attention, plus four per channel of each key that the token sees, because the token's
        mirror rewrites all of these keys.
        """
        return super().flops(dims, length) + 2 * (length + 1) * dims.key_dim

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        """Compute the outputs (T, D) of one sequence x (T, D) by loops over the definition.

        Each row visits its keys from the newest to the oldest. After the score with key j, the mirror of row j is
        applied to the query, and the log of its forget gate is added to all later scores.
        """
        import torch

        from madbench.mixers.named import loops

        heads, key = dims.heads, dims.key
        w = loops.convolved(x @ p["w_proj.0.weight"].T @ p["w_proj.1.weight"].T, p["w_conv1d.weight"])
        w = w.view(len(x), heads, key)
        k: list[list[Tensor]]
        betas, log_f, k, v, rows = [], [], [], [], []
        for t, x_t in enumerate(x):
            queries, keys, values = ((p[f"{side}_proj.weight"] @ x_t).view(heads, -1) for side in "qkv")
            betas.append(2 * torch.sigmoid(p["bt_proj.weight"] @ x_t + p["bt_proj.bias"]))
            if self.forget:
                log_f.append(-loops.softplus(-(p["g_proj.weight"] @ x_t) - p["g_proj.bias"]))
            k.append([])
            v.append(values)
            outputs = []
            for h in range(heads):
                q, new = queries[h], keys[h]
                if self.norm:
                    q, new = (loops.normed(each, p[f"maybe_{s}_norm.weight"]) for s, each in (("q", q), ("k", new)))
                k[t].append(new)
                scores, forgotten = [], x.new_zeros(())
                for j in range(t, -1, -1):
                    scores.append((k[j][h] @ q + forgotten) / key**0.5)
                    mirror = loops.unit(w[j, h])
                    q = q - betas[j][h] * mirror * (mirror @ q)
                    forgotten = forgotten + log_f[j][h] if self.forget else forgotten
                weights = torch.softmax(torch.stack(scores), dim=0)
                outputs.append(sum(weights[t - j] * v[j][h] for j in range(t + 1)))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
