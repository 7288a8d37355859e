"""Preconditioned Gated DeltaNet: channels of a key that were often large are written less (arXiv 2604.21100).

    S_t = (I - beta_t (M_t * k_t) k_t^T) alpha_t S_(t-1) + beta_t (M_t * k_t) v_t^T,    o_t = S_t^T q_t / sqrt(K)
    A_t = a_t A_(t-1) + b_t k_t * k_t,    r_t = log(A_t + 1e-6) - c,    M_t = 1.5^(-r_t / (1 + |r_t|))

S is (K, V) and A is (K,) per head, and * is a product per channel. A is a moving sum of squared keys, and M is in
(1/1.5, 1.5)^K. q, k, v are convolved, SiLU is applied, and q and k are scaled to length 1. alpha_t and beta_t are those
of Gated DeltaNet, and a_t and b_t have the same form with parameters of their own; ``neg`` doubles beta_t only. c is a
number per head, initially -0.2. The output is W_o (RMSNorm(o_t) * SiLU(W_g x_t)), with a norm per head. With M = 1 it
is GDN.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.operators.gdn import GDN
from madbench.mixers.named.parts import Linear, Part, Vector, insert_after
from madbench.mixers.named.recurrent import RecurrenceInputs
from madbench.mixers.named.widths import Dims

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

BASE = 1.5  # the preconditioner is in (1 / BASE, BASE)
EPS = 1e-6  # added to the sum of squared keys
CENTER = -0.2  # initial log of the sum of squared keys at which the preconditioner is 1


@dataclass(frozen=True)
class PGDN(GDN):
    """The named operator PGDN, Preconditioned Gated DeltaNet: key channels that were often large are written less.

    The equations are in the docstring of this module. A, the moving sum of squared keys, is carried as a further
    tensor.
    """

    name: ClassVar = "PGDN"
    title: ClassVar = "Preconditioned Gated DeltaNet"
    equation: ClassVar = (
        "S_t = (I - beta_t (M_t * k_t) k_t^T) alpha_t S_(t-1) + beta_t (M_t * k_t) v_t^T, "
        "M_t = 1.5^(-r_t / (1 + abs(r_t))), r_t = log(A_t) - c, A_t = a_t A_(t-1) + b_t k_t * k_t"
    )
    source: ClassVar = "Preconditioned DeltaNet 2026, arXiv 2604.21100"
    library: ClassVar = "PrecondGatedDeltaNet"
    counterpart: ClassVar = ""
    parameters: ClassVar = "2*d*H*K + 3*d*H*V + 4*d*H + 5*H + W*(2*H*K + H*V) + V"
    state: ClassVar = "H*K*V + H*K + (W-1)*(2*H*K + H*V)"
    gates: ClassVar = (*GDN.gates, "a_atk_proj", "b_atk_proj")

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads = dims.d, dims.heads
        decay = {"A_log_atk": Vector(heads, "rates from zero"), "dt_bias_atk": Vector(heads, "steps")}
        maps = {"a_atk_proj": Linear(d, heads), "b_atk_proj": Linear(d, heads)}
        parts = insert_after(insert_after(super().parts(dims), "dt_bias", decay), "b_proj", maps)
        return {"log_atk_scale": Vector(heads, (CENTER, CENTER)), **parts}

    def carried(self, dims: Dims) -> Mapping[str, int]:
        return {**super().carried(dims), "squares": dims.key_dim}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        They are those of GDN, plus 3 for each key channel: 1 for the decay of the sum of squared keys, and 2 for its
        new term.
        """
        return super().flops(dims, length) + 3 * dims.key_dim

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        from madbench.mixers.named import ops, recurrent_ops
        from madbench.mixers.recurrence.forms import Dynamics, Mirrors

        q, k, v, windows = recurrent_ops.convolved_qkv(layer, x, carried)
        with ops.without_autocast(x):
            log_alpha, _ = recurrent_ops.log_decay(layer, self.decay_logits(layer, x), layer.dims.heads)
            q, k, v, beta = recurrent_ops.delta_rule_sides(layer, x, q, k, v, self.neg)
            m, squares = self.preconditioner(layer, x, k, carried["squares"] if carried else None)
            written = m * k
            mirrors = Mirrors(written, beta, length=beta, read=k)
            d = Dynamics(q, written * beta[..., None], v, log_alpha, mirrors)
            return RecurrenceInputs(d, {**windows, "squares": squares})

    def preconditioner(self, layer: NamedLayer, x: Tensor, k: Tensor, before: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the preconditioner M (B, H, T, K) for keys k of length 1, and the last sum of squared keys A (B, H K).

        ``before`` is A before the first token of x (B, T, D), or None for zero.
        """
        from madbench.mixers.named import ops, recurrent_ops

        heads, key = layer.dims.heads, layer.dims.key
        rate = -layer.A_log_atk.to(k.dtype).exp()
        log_a = rate * ops.softplus(ops.linear_in_float32(layer.a_atk_proj, x) + layer.dt_bias_atk.to(k.dtype))
        b = ops.linear_in_float32(layer.b_atk_proj, x).sigmoid()
        added = b[..., None] * k.transpose(1, 2).square()
        log_a = log_a[..., None].expand_as(added)
        squares = recurrent_ops.scan(log_a.flatten(2), added.flatten(2), before)
        r = (squares + EPS).log().unflatten(-1, (heads, key)) - layer.log_atk_scale.to(k.dtype)[:, None]
        return (BASE ** (-r / (1 + r.abs()))).transpose(1, 2), squares[:, -1]

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, key, value = dims.heads, dims.key, dims.value
        q, k, v = loops.convolved_qkv(p, x, dims)
        state, rows = [x.new_zeros(key, value) for _ in range(heads)], []
        squares = [x.new_zeros(key) for _ in range(heads)]

        def decay(name: str, h: int, x_t: Tensor) -> Tensor:
            suffix = name[1:]  # "" or "_atk"
            step = loops.softplus(p[f"{name}_proj.weight"][h] @ x_t + p[f"dt_bias{suffix}"][h])
            return torch.exp(-torch.exp(p[f"A_log{suffix}"][h]) * step)

        for t, x_t in enumerate(x):
            gates = loops.silu(p["g_proj.weight"] @ x_t).view(heads, value)
            outputs = []
            for h in range(heads):
                beta = torch.sigmoid(p["b_proj.weight"][h] @ x_t) * (2 if self.neg else 1)
                query, read = loops.unit(q[t, h]), loops.unit(k[t, h])
                added = torch.sigmoid(p["b_atk_proj.weight"][h] @ x_t) * read * read
                squares[h] = decay("a_atk", h, x_t) * squares[h] + added
                r = torch.log(squares[h] + 1e-6) - p["log_atk_scale"][h]
                written = read * 1.5 ** (-r / (1 + abs(r)))
                decayed = decay("a", h, x_t) * state[h]
                state[h] = decayed + beta * torch.outer(written, v[t, h] - read @ decayed)
                outputs.append(loops.normed(query @ state[h] / key**0.5, p["o_norm.weight"]) * gates[h])
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
