"""Gated DeltaProduct: n steps of the delta rule per token and one decay (Siems et al. 2025, arXiv 2502.10297).

    S_t = H_t,n (... H_t,1 alpha_t S_(t-1) + beta_t,1 k_t,1 v_t,1^T ...) + beta_t,n k_t,n v_t,n^T
    H_t,i = I - beta_t,i k_t,i k_t,i^T,    o_t = S_t^T q_t / sqrt(K)

S is (K, V) per head. A token has one query, and n keys, values and betas. q, k, v are convolved, SiLU is applied, and q
and k are scaled to length 1. alpha_t = exp(-e^A softplus(w_a x_t + c)) in (0, 1), with A and c per head, and
beta_t,i = 2 sigmoid(w_i x_t). The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.arguments import integer
from madbench.mixers.named.parts import Gain, Linear, Part, Taps, Vector
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths_near_double

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer


@dataclass(frozen=True)
class DeltaProduct(Recurrent):
    """The named operator Gated DeltaProduct: ``n`` steps of the delta rule per token.

    The equations are in the docstring of this module. If ``ungated`` is true, the state does not decay. With ``n`` = 1
    and decay it equals ``GDN(neg)``.
    """

    n: int = integer(default=2, least=1, most=4)
    ungated: bool = False

    name: ClassVar = "DeltaProduct"
    title: ClassVar = "Gated DeltaProduct"
    equation: ClassVar = "S := alpha_t S, then n times S := (I - beta k k^T) S + beta k v^T"
    source: ClassVar = "Siems et al. 2025, arXiv 2502.10297"
    library: ClassVar = "GatedDeltaProduct"
    differs: ClassVar = "At n = 1 it is GDN(neg), because beta is in (0, 2) by default."
    meanings: ClassVar = {"n": "steps of the delta rule per token", "ungated": "no decay, alpha = 1"}
    parameters: ClassVar = "d*H*K*(1+n) + d*H*V*(n+2) + d*H*n + (1-ungated)*(d*H + 2*H) + W*(H*K + n*H*K + n*H*V) + V"
    state: ClassVar = "H*K*V + (W-1)*(H*K + n*H*K + n*H*V)"

    @property
    def rows_per_token(self) -> int:
        return self.n

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return widths_near_double(d, heads, step, self.n + 1, self.n + 2)

    def library_dims(self, d: int, heads: int) -> Dims:
        key = max(1, 3 * d // (4 * heads))
        return Dims(d, heads, key, 2 * key)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, keys, values, n = dims.d, dims.heads, dims.key_dim, dims.value_dim, self.n
        decay: dict[str, Part] = {"A_log": Vector(heads, "rates from zero"), "dt_bias": Vector(heads, "steps")}
        return {
            **({} if self.ungated else decay),
            "q_proj": Linear(d, keys),
            "k_proj": Linear(d, n * keys),
            "v_proj": Linear(d, n * values),
            "b_proj": Linear(d, n * heads),
            **({} if self.ungated else {"a_proj": Linear(d, heads)}),
            "q_conv1d": Taps(keys),
            "k_conv1d": Taps(n * keys),
            "v_conv1d": Taps(n * values),
            "g_proj": Linear(d, values),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(values, d),
        }

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from torch.nn.functional import pad

        from madbench.mixers.named import ops, recurrent_ops

        q, k, v, carried = recurrent_ops.convolved_qkv(layer, x, carried)
        k, v = (side.unflatten(-1, (self.n, -1)).flatten(1, 2) for side in (k, v))
        with ops.without_autocast(x):
            log_alpha = None
            if not self.ungated:
                log_alpha, _ = recurrent_ops.log_decay(layer, ops.linear_in_float32(layer.a_proj, x), layer.dims.heads)
                log_alpha = pad(log_alpha, (0, self.n - 1)).flatten(2)[..., None]  # the first step decays
            return RecurrenceInputs(recurrent_ops.delta_rule(layer, x, q, k, v, log_alpha, neg=True), carried)

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from torch.nn.functional import silu

        from madbench.mixers.named import recurrent_ops

        return recurrent_ops.gated_norm(layer, y, silu(layer.g_proj(x)))

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)  # k and v have n H heads, those of step i from i H on
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        for t, x_t in enumerate(x):
            gates = loops.silu(p["g_proj.weight"] @ x_t).view(heads, value)
            outputs = []
            for h in range(heads):
                if not self.ungated:
                    step = loops.softplus(p["a_proj.weight"][h] @ x_t + p["dt_bias"][h])
                    state[h] = torch.exp(-torch.exp(p["A_log"][h]) * step) * state[h]
                for i in range(self.n):
                    place = i * heads + h
                    written = loops.unit(k[t, place])
                    beta = 2 * torch.sigmoid(p["b_proj.weight"][place] @ x_t)
                    error = v[t, place] - written @ state[h]
                    state[h] = state[h] + beta * torch.outer(written, error)
                read = loops.unit(q[t, h]) @ state[h] / key**0.5
                outputs.append(loops.normed(read, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
