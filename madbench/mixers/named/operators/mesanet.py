"""MesaNet: linear attention whose query solves the least squares of all writes so far (arXiv 2506.05233).

    S_t = alpha_t S_(t-1) + beta_t k_t v_t^T,    P_t = alpha_t P_(t-1) + beta_t k_t k_t^T
    o_t = S_t^T (P_t + Diag(lambda))^(-1) q_t

S is (K, V) and P is (K, K) per head, with V = K. They are G^T and H of the paper. q and k are convolved, SiLU is
applied, and both are scaled to length 1. v is neither convolved nor scaled. alpha_t = sigmoid(w_a x_t + a) and
beta_t = sigmoid(w_b x_t + b) are per head, and lambda = 0.25 + softplus(l) in (0.25, inf)^K, initially 1. The output is
W_o RMSNorm(o_t), with a norm per head. The read-out is the ridge regression of values on keys, weighted by beta and
decay. The linear system is solved exactly. The paper and the library take steps of conjugate gradients.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from madbench.mixers.named.parts import Gain, Linear, Part, Taps, Vector, qkv_maps
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

LEAST_RIDGE = 0.25
INITIAL = math.log(math.expm1(1 - LEAST_RIDGE))  # of l, for an initial ridge of 1


@dataclass(frozen=True)
class MesaNet(Recurrent):
    """The named operator MesaNet: linear attention that reads out the least-squares fit of all writes so far.

    The equations are in the docstring of this module. S is the recurrent state that the base class keeps. P, the
    decayed sum of k k^T, is carried from row to row as the further tensor ``squares``.
    """

    name: ClassVar = "MesaNet"
    title: ClassVar = "MesaNet"
    equation: ClassVar = (
        "o_t = S_t^T (P_t + Diag(lambda))^(-1) q_t, S_t = alpha_t S_(t-1) + beta_t k_t v_t^T, "
        "P_t = alpha_t P_(t-1) + beta_t k_t k_t^T"
    )
    source: ClassVar = "von Oswald et al. 2025, arXiv 2506.05233"
    library: ClassVar = "MesaNet"
    differs: ClassVar = (
        "The linear system is solved exactly. The library takes at most 30 steps of conjugate gradients, with 1e-5 in "
        "the denominators and keys in 16 bits."
    )
    parameters: ClassVar = "4*d*H*K + 2*(d*H + H) + H*K + 2*W*H*K + K"
    state: ClassVar = "H*K*(K+V) + (W-1)*2*H*K"
    paths: ClassVar = ("dense", "chunked")
    has_mirror: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        return [Dims(d, heads, width, width) for width in widths(step, 2 * d // heads)]

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        d, heads, keys, values = dims.d, dims.heads, dims.key_dim, dims.value_dim
        return {
            "lambda_params": Vector(keys, (INITIAL, INITIAL)),
            **qkv_maps(dims),
            "a_proj": Linear(d, heads, bias=True),
            "b_proj": Linear(d, heads, bias=True),
            "q_conv1d": Taps(keys),
            "k_conv1d": Taps(keys),
            "o_norm": Gain(dims.value),
            "o_proj": Linear(values, d),
        }

    def carried(self, dims: Dims) -> Mapping[str, int]:
        return {**super().carried(dims), "squares": dims.key_dim * dims.key}

    def flops(self, dims: Dims, length: int) -> float:
        """FLOPs per token, not counting the 2 FLOPs per parameter.

        Each number of S, which is (K, V) per head, takes 5. Each number of P, which is (K, K) per head, takes 3 for the
        recurrence, and 2 + 2 K / 3 for solving the linear system by elimination.
        """
        return 5 * self.recurrent(dims) + (5 + 2 * dims.key / 3) * dims.key_dim * dims.key

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        import torch
        from torch.nn.functional import logsigmoid

        from madbench.mixers.named import ops
        from madbench.mixers.named.operators.mesanet_solve import solve_queries
        from madbench.mixers.recurrence.forms import Dynamics

        dims = layer.dims
        q, k, v = ops.project(x, layer.q_proj, layer.k_proj, layer.v_proj)
        taps = torch.cat([conv.weight.squeeze(1) for conv in (layer.q_conv1d, layer.k_conv1d)])
        mixed, windows = ops.convolve_silu(torch.cat((q, k), dim=-1), taps, None, carried)
        with ops.without_autocast(x):
            q, k = (ops.unit(ops.wide_heads(side, dims.heads)) for side in mixed.chunk(2, dim=-1))
            v = ops.wide_heads(v, dims.heads)
            log_alpha = logsigmoid(ops.linear_in_float32(layer.a_proj, x)).mT
            beta = ops.linear_in_float32(layer.b_proj, x).mT.sigmoid()
            ridge = ops.softplus(layer.lambda_params.to(q.dtype)).view(dims.heads, dims.key) + LEAST_RIDGE
            before = carried["squares"] if carried else None
            solved, squares = solve_queries(q, k, beta, log_alpha, ridge, before)
            d = Dynamics(solved, k * beta[..., None], v, log_alpha[..., None])
            return RecurrenceInputs(d, {**windows, "squares": squares})

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        import torch

        from madbench.mixers.named import loops

        heads, width = dims.heads, dims.key
        q, k = (loops.convolved(x @ p[f"{s}_proj.weight"].T, p[f"{s}_conv1d.weight"]) for s in "qk")
        q, k = (side.view(len(x), heads, width) for side in (q, k))
        state, squares = ([x.new_zeros(width, width) for _ in range(heads)] for _ in range(2))
        ridge, rows = loops.softplus(p["lambda_params"]).view(heads, width) + 0.25, []
        for t, x_t in enumerate(x):
            v = (p["v_proj.weight"] @ x_t).view(heads, width)
            outputs = []
            for h in range(heads):
                alpha, beta = (torch.sigmoid(p[f"{s}_proj.weight"][h] @ x_t + p[f"{s}_proj.bias"][h]) for s in "ab")
                query, written = loops.unit(q[t, h]), loops.unit(k[t, h])
                state[h] = alpha * state[h] + beta * torch.outer(written, v[h])
                squares[h] = alpha * squares[h] + beta * torch.outer(written, written)
                inverse = torch.linalg.inv(squares[h] + torch.diag(ridge[h]))
                outputs.append(loops.normed(inverse @ query @ state[h], p["o_norm.weight"]))
            rows.append(p["o_proj.weight"] @ torch.cat(outputs))
        return torch.stack(rows)
