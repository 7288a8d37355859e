"""Multi-head latent attention: keys and values are linear maps of one narrow vector (DeepSeek-V2, arXiv 2405.04434).

    c_t = RMSNorm(W_c x_t),    k_j = [W_k c_j ; r_j],    v_j = W_v c_j,    r_j = rope(W_r x_j)
    o_t = sum_(j<=t) softmax_j(q_t . k_j / sqrt(K)) v_j

c has C channels. r has R channels and is shared by all heads. q has K channels per head, and the last R of them are
rotated by position as r is. With ``nope`` nothing is rotated (Kimi Linear, arXiv 2510.26692). Decoding keeps c and r,
C + R numbers per token, and reads them without computing keys and values: q_t . W_k c_j = (W_k^T q_t) . c_j.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from madbench.mixers.named.attention import SOFTMAX_PATHS, Attention, Tokens
from madbench.mixers.named.parts import Gain, Linear, Part
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

EPS = 1e-6  # epsilon of the norm of c


@dataclass(frozen=True)
class LatentDims(Dims):
    """The widths of a layer of latent attention. The ``key`` channels of a head include the ``rope`` channels."""

    latent: int
    """C, the number of channels of the narrow vector c from which keys and values are computed."""
    rope: int
    """R, the number of channels of the part of keys that all heads share. They are rotated by position, unless ``nope``
    is set."""


@dataclass(frozen=True)
class MLA(Attention):
    """The named operator MLA, multi-head latent attention: keys and values are linear maps of one narrow vector.

    The equations are in the docstring of this module. If ``nope`` is true, no channel is rotated by position.
    """

    nope: bool = False

    name: ClassVar = "MLA"
    title: ClassVar = "Multi-head latent attention"
    equation: ClassVar = "c_t = norm(W_c x_t), o_t = sum_j softmax_j(q_t . [W_k c_j ; rope(W_r x_j)] / sqrt(K)) W_v c_j"
    source: ClassVar = "DeepSeek-V2, arXiv 2405.04434"
    library: ClassVar = "DeepseekV3Attention"
    origin: ClassVar = "transformers 5"
    differs: ClassVar = (
        "Queries are not compressed (q_lora_rank None, as in Kimi Linear). The widths are 512, 64, 128 and 128 there. "
        "Here V = d / H, R = V / 2 and K = V + R, and C is 4 V with ! and what the budget leaves otherwise. With nope "
        "the layer is KimiLinearAttention."
    )
    meanings: ClassVar = {"nope": "no channel is rotated by position"}
    parameters: ClassVar = "d*H*K + d*(C+R) + C + C*H*(K-R+V) + H*V*d"
    state: ClassVar = "T*(C+R)"
    paths: ClassVar = SOFTMAX_PATHS

    def dims(self, d: int, heads: int, latent: int) -> LatentDims:
        width, rope = max(1, d // heads), 2 * max(1, d // (4 * heads))
        return LatentDims(d, heads, width + rope, width, latent, rope)

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return [self.dims(d, heads, latent) for latent in widths(step, d)]

    def library_dims(self, d: int, heads: int) -> Dims:
        return self.dims(d, heads, 4 * max(1, d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        assert isinstance(dims, LatentDims)
        d, heads, latent = dims.d, dims.heads, dims.latent
        return {
            "q_proj": Linear(d, dims.key_dim),
            "kv_a_proj_with_mqa": Linear(d, latent + dims.rope),
            "kv_a_layernorm": Gain(latent),
            "kv_b_proj": Linear(latent, heads * (dims.key - dims.rope + dims.value)),
            "o_proj": Linear(dims.value_dim, d),
        }

    def symbols(self, dims: Dims, tokens: int = 0) -> dict[str, int]:
        assert isinstance(dims, LatentDims)
        return super().symbols(dims, tokens) | {"C": dims.latent, "R": dims.rope}

    def further_ranks(self, dims: Dims) -> Mapping[str, int]:
        assert isinstance(dims, LatentDims)
        return {"latent": dims.latent}

    def cached(self, dims: Dims) -> Mapping[str, int]:
        assert isinstance(dims, LatentDims)
        return {"latent": dims.latent, "shared_key": dims.rope}

    def tokens(self, layer: NamedLayer, x: Tensor, position: int, carried: Mapping[str, Tensor] | None) -> Tokens:
        import torch

        from madbench.mixers.named import ops
        from madbench.mixers.named.rotations import rotate_pairs

        dims = cast(LatentDims, layer.dims)
        queries, compressed = ops.project(x, layer.q_proj, layer.kv_a_proj_with_mqa)
        q = ops.split_heads(queries, dims.heads)
        c, r = compressed.split((dims.latent, dims.rope), dim=-1)
        with ops.without_autocast(x):
            c = ops.norm(ops.wide(c), layer.kv_a_layernorm.weight, EPS).to(c.dtype)
            if not self.nope:
                turned, r = rotate_pairs(position, q[..., -dims.rope :], r)
                q = torch.cat((q[..., : -dims.rope], turned), dim=-1)
        return Tokens(q, {"latent": c, "shared_key": r}, {})

    def seen(self, layer: NamedLayer, tokens: Tokens) -> Mapping[str, Tensor]:
        return self.expand(layer, tokens.cached)

    def expand(self, layer: NamedLayer, cached: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """The keys and values of all heads, (B, H, T, .) each, computed from the narrow vectors in ``cached``."""
        import torch

        from madbench.mixers.named import ops
        from madbench.mixers.ops.linear_maps import weight_of

        dims = cast(LatentDims, layer.dims)
        latent = cached["latent"].to(weight_of(layer.kv_b_proj).dtype)
        both = ops.split_heads(layer.kv_b_proj(latent), dims.heads)
        k, v = both.split((dims.key - dims.rope, dims.value), dim=-1)
        shared = cached["shared_key"][:, None].to(k.dtype).expand(-1, dims.heads, -1, -1)
        return {"k": torch.cat((k, shared), dim=-1), "v": v}

    def decode(self, layer: NamedLayer, tokens: Tokens, cached: Mapping[str, Tensor]) -> Tensor:
        import torch

        from madbench.mixers.named import ops
        from madbench.mixers.ops.linear_maps import is_plain

        dims, plain = layer.dims, layer.dims.key - cast(LatentDims, layer.dims).rope
        if not is_plain(layer.kv_b_proj):
            return self.attend(layer, tokens.q, self.expand(layer, cached), None)
        q, c = ops.wide(tokens.q), ops.wide(cached["latent"])[:, None]
        weight: Tensor = layer.kv_b_proj.weight.to(q.dtype)
        of_k, of_v = torch.unflatten(weight, 0, (dims.heads, -1)).split((plain, dims.value), dim=1)
        q = torch.cat((q[..., :plain] @ of_k, q[..., plain:]), dim=-1)
        keys = torch.cat((c, ops.wide(cached["shared_key"])[:, None]), dim=-1)
        outputs: Tensor = self.weights(layer, q, {"k": keys}, None) @ c @ of_v.mT
        return outputs

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        assert isinstance(dims, LatentDims)
        heads, latent, rope, width = dims.heads, dims.latent, dims.rope, dims.value
        plain = dims.key - rope
        of_head = p["kv_b_proj.weight"].view(heads, plain + width, latent)
        c, r, rows = [], [], []

        def placed(part: Tensor, t: int) -> Tensor:
            return part if self.nope else loops.rotated_pairs(part, t)

        for t, x_t in enumerate(x):
            compressed = p["kv_a_proj_with_mqa.weight"] @ x_t
            c.append(loops.normed(compressed[:latent], p["kv_a_layernorm.weight"], 1e-6))
            r.append(placed(compressed[latent:], t))
            queries, outputs = (p["q_proj.weight"] @ x_t).view(heads, plain + rope), []
            for h in range(heads):
                q = torch.cat((queries[h, :plain], placed(queries[h, plain:], t)))
                keys = [torch.cat((of_head[h, :plain] @ c_j, r_j)) for c_j, r_j in zip(c, r)]
                outputs.append(loops.attention(q, keys, [of_head[h, plain:] @ c_j for c_j in c]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
