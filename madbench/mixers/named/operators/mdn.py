"""Momentum DeltaNet: a delta rule that writes a moving sum of its corrections (arXiv 2605.05838).

    M_t = mu_t M_(t-1) - eta_t k_t (v_t - S_(t-1)^T alpha_t k_t)^T,    S_t = alpha_t S_(t-1) - beta_t M_t
    o_t = S_t^T q_t / sqrt(K)

S and M are (K, V) per head. q', k' and v are convolved, and SiLU is applied. k_t is k'_t, scaled to length 1, and q_t
is q'_t - e^D k'_t, scaled to length 1, with D per head. mu_t = max(e^-2, exp(-e^B softplus(w_m x_t + b))) with B and b
per head, and eta_t = 1 + tanh(w_e x_t / sqrt(d)). With z_t = eta_t e^f, f per head,

    alpha_t = exp(-e^A softplus(w_a x_t + c)) / (1 + z_t^2),    beta_t = sigmoid(w_b x_t) z_t^2 / (1 + z_t^2)

with A and c per head; ``neg`` doubles beta_t. The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head.
With mu = 0 it is GDN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, Vector, qkv_maps, qkv_taps
from madbench.mixers.named.self_contained import SelfContained
from madbench.mixers.named.widths import Dims, keys_of_half

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

LEAST_LOG_MU = -2.0
LARGEST_FACTOR = 4  # e^f is uniform in (0, LARGEST_FACTOR) initially, and e^D in (0, 1)


@dataclass(frozen=True)
class MDN(SelfContained):
    """The named operator MDN, Momentum DeltaNet: a delta rule that writes a moving sum of its corrections.

    The equations are in the docstring of this module. S is the memory, and M the momentum.
    """

    neg: bool = False

    name: ClassVar = "MDN"
    title: ClassVar = "Momentum DeltaNet"
    equation: ClassVar = (
        "M_t = mu_t M_(t-1) - eta_t k_t (v_t - S_(t-1)^T alpha_t k_t)^T, S_t = alpha_t S_(t-1) - beta_t M_t"
    )
    source: ClassVar = "MDN 2026, arXiv 2605.05838"
    library: ClassVar = "MomentumDeltaNet"
    differs: ClassVar = "The library's plain form in chunks adds 1e-6 to beta. Its recurrence does not."
    meanings: ClassVar = {"neg": "beta in (0, 2)"}
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 4*d*H + 6*H + W*(2*H*K + H*V) + V"
    state: ClassVar = "2*H*K*V + (W-1)*(2*H*K + H*V)"
    gates: ClassVar = (*SelfContained.gates, "m_proj", "e_proj")

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return keys_of_half(d, heads, step)

    def library_dims(self, d: int, heads: int) -> Dims:
        key = max(1, d // heads)
        return Dims(d, heads, key, 2 * key)

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, values = dims.d, dims.heads, dims.value_dim
        return {
            "A_log": Vector(heads, "rates from zero"),
            "dt_bias": Vector(heads, "steps"),
            "mu_bias": Vector(heads, "steps"),
            "Mu_log": Vector(heads, "rates from zero"),
            "log_factor": Vector(heads, "rates from zero"),
            "D_log": Vector(heads, "rates from zero"),
            **qkv_maps(dims),
            "b_proj": Linear(d, heads),
            "a_proj": Linear(d, heads),
            "m_proj": Linear(d, heads),
            "e_proj": Linear(d, heads),
            **qkv_taps(dims),
            "g_proj": Linear(d, values),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(values, d),
        }

    def initialize(self, layer: NamedLayer) -> None:
        """Set the initial values as in the library's layer. ``dt_bias`` and ``mu_bias`` start equal."""
        import math

        layer.draw_declared()
        layer.mu_bias.copy_(layer.dt_bias)
        layer.log_factor.sub_(math.log(16 / LARGEST_FACTOR))
        layer.D_log.sub_(math.log(16))

    def carried(self, dims: Dims) -> Mapping[str, int]:
        size = dims.key_dim * dims.value
        return {**super().carried(dims), "memory": size, "momentum": size}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter: 12 for each number of the memory S.

        The momentum M is as large as S. The 12 are 1 for the decay of S, 1 for that of M, 2 for what is written to M, 4
        for what M removes, 2 for writing M to S, and 2 for the read-out.
        """
        return 12 * dims.key_dim * dims.value

    def outputs(
        self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None
    ) -> tuple[Tensor, Mapping[str, Tensor]]:
        from torch.nn.functional import silu

        from madbench.mixers.named import ops, recurrent_ops
        from madbench.mixers.named.operators.mdn_rule import momentum_rule
        from madbench.mixers.named.recurrent_layer import rows_per_block

        dims = layer.dims
        q, k, v, windows = recurrent_ops.convolved_qkv(layer, x, carried)
        with ops.without_autocast(x):
            q, k, v = (ops.wide_heads(side, dims.heads) for side in (q, k, v))
            q = ops.unit(q - layer.D_log.to(q.dtype).exp().view(-1, 1, 1) * k) * dims.key**-0.5
            k = ops.unit(k)
            log_alpha, log_mu, beta, eta = self.coefficients(layer, x)
            before = (carried["memory"], carried["momentum"]) if carried else None
            p, k = log_alpha.exp()[..., None] * k, eta[..., None] * k
            rows = (q, k, v, p, log_alpha, log_mu, beta)
            y, (memory, momentum) = momentum_rule(*rows, before, rows_per_block(x))
        y = recurrent_ops.gated_norm(layer, y, silu(layer.g_proj(x)))
        return y, {**windows, "memory": memory, "momentum": momentum}

    def coefficients(self, layer: NamedLayer, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return log alpha, log mu, beta and eta for x (B, T, D): (B, H, T) each, in float32 or wider."""
        from madbench.mixers.named import ops

        a, b, m, e = (ops.linear_in_float32(layer.get_submodule(f"{name}_proj"), x) for name in "abme")

        def decay(logits: Tensor, rate: Tensor, bias: Tensor) -> Tensor:
            return -rate.to(logits.dtype).exp() * ops.softplus(logits + bias.to(logits.dtype))

        log_mu = decay(m, layer.Mu_log, layer.mu_bias).clamp(min=LEAST_LOG_MU)
        eta = (e / layer.dims.d**0.5).tanh() + 1
        z = (eta * layer.log_factor.to(eta.dtype).exp()).square()
        log_alpha = decay(a, layer.A_log, layer.dt_bias) - z.log1p()
        beta = b.sigmoid() * z / (1 + z)
        beta = 2 * beta if self.neg else beta
        return log_alpha.mT, log_mu.mT, beta.mT, eta.mT

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        """Compute the outputs (T, D) of one sequence x (T, D) by loops over the definition.

        Each head has a memory S and a momentum M, (K, V) each. ``angle`` is arctan(z_t). Its squared cosine is the
        factor 1 / (1 + z_t^2) of alpha_t, and its squared sine is the factor z_t^2 / (1 + z_t^2) of beta_t.
        """
        import math

        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        memory, momentum = ([x.new_zeros(key, value) for _ in range(heads)] for _ in range(2))
        rows = []
        for t, x_t in enumerate(x):
            gates = loops.silu(p["g_proj.weight"] @ x_t).view(heads, value)
            outputs = []
            for h in range(heads):
                a, b, m, e = (p[f"{name}_proj.weight"][h] @ x_t for name in "abme")
                log_mu = -torch.exp(p["Mu_log"][h]) * loops.softplus(m + p["mu_bias"][h])
                mu = torch.exp(torch.clamp(log_mu, min=-2))
                eta = 1 + torch.tanh(e / math.sqrt(dims.d))
                angle = torch.arctan(eta * torch.exp(p["log_factor"][h]))
                alpha = torch.cos(angle) ** 2 * torch.exp(
                    -torch.exp(p["A_log"][h]) * loops.softplus(a + p["dt_bias"][h])
                )
                beta = torch.sin(angle) ** 2 * torch.sigmoid(b) * (2 if self.neg else 1)
                query = loops.unit(q[t, h] - torch.exp(p["D_log"][h]) * k[t, h])
                written = loops.unit(k[t, h])
                error = v[t, h] - alpha * written @ memory[h]
                momentum[h] = mu * momentum[h] - eta * torch.outer(written, error)
                memory[h] = alpha * memory[h] - beta * momentum[h]
                outputs.append(loops.normed(query @ memory[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
