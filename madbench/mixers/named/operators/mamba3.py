"""Mamba-3 with one input and one output per channel (SISO), from Lahoti et al. 2026 (arXiv 2603.15569).

    S_t = alpha_t S_(t-1) + (1 - lambda_t) Delta_t alpha_t B_(t-1) x_(t-1)^T + lambda_t Delta_t B_t x_t^T
    y_t = S_t^T C_t + D x_t,    alpha_t = exp(Delta_t A_t)

S is (N, P) per head. The state size N is the width of B and C, and P is the head's width of x. One linear map gives the
gate z, x, B, C, and the logits of Delta, A, lambda and the angles. There is no convolution. Delta_t = softplus(. + c),
A_t = -max(softplus(a), 1e-4) for a logit a, and lambda_t = sigmoid(.), each per head. With ``heavy``, softplus(a) is
replaced by 1 + a for a >= 0 and by 1 / (1 - a) for a < 0. B and C are shared by the heads and normed, and each head
adds a bias. Then the first half of their channels is rotated in pairs by the sum up to t of pi Delta_t tanh(.), with
N / 4 angles. The output is W_o (y_t * SiLU(z_t)).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, cast

from madbench.mixers.named.parts import Gain, Linear, Part, Vector
from madbench.mixers.named.recurrent import RecurrenceInputs, Recurrent
from madbench.mixers.named.widths import Dims, widths

if TYPE_CHECKING:
    from torch import Tensor

    from madbench.mixers.named.layer import NamedLayer

LEAST_RATE = 1e-4  # smallest -A


@dataclass(frozen=True)
class Mamba3(Recurrent):
    """The named operator Mamba-3 (SISO): a state-space model with rotated keys and queries, and two writes per token.

    The equations are in the docstring of this module. ``Dims.key`` is the state size N, and ``Dims.value`` is the
    head's width P.

    A token's product B x^T is written twice: at this token, and with another weight at the next token. The functions
    that compute recurrences write each key only once, so the product is written in the token's own row with the sum of
    both weights. The output of this row must not include the second weight. The score of the row with its own key is
    therefore given separately (``Dynamics.own``).
    """

    heavy: bool = False

    name: ClassVar = "Mamba-3"
    title: ClassVar = "Mamba-3 (SISO)"
    equation: ClassVar = (
        "S_t = exp(Delta_t A_t) (S_(t-1) + (1 - lambda_t) Delta_t B_(t-1) x_(t-1)^T) + lambda_t Delta_t B_t x_t^T"
    )
    source: ClassVar = "Lahoti et al. 2026, arXiv 2603.15569"
    library: ClassVar = "Mamba3"
    differs: ClassVar = (
        "At the budget the inner width is d, and not 2 d. The authors' code has had the decay of Mamba-3(heavy) since "
        "June 2026, in place of -A = softplus(a)."
    )
    meanings: ClassVar = {"heavy": "-A = 1 + a for a logit a >= 0, and 1 / (1 - a) below, which has heavier tails"}
    parameters: ClassVar = "d*(2*H*V + 2*K + 3*H + K//4) + 2*H + 2*H*K + 2*K + H*V*d"
    state: ClassVar = "H*K*V + H*(K//4 + K + V)"
    output: ClassVar = "out_proj"
    has_mirror: ClassVar = False

    def candidates(self, d: int, heads: int, step: int) -> list[Dims]:
        """The widths from which the budget chooses. State sizes are even, and at least 4 to have an angle.

        First come candidates for narrow models, with the smallest state size and an inner width (of all heads) below d.
        All others have the inner width d and growing state sizes.
        """
        width = max(1, d // heads)
        states = [states for states in widths(step, 2 * d) if states >= 4 and states % 2 == 0] or [4]
        narrow = [Dims(d, heads, states[0], value) for value in widths(step, width) if value < width]
        return narrow + [Dims(d, heads, each, width) for each in states]

    def library_dims(self, d: int, heads: int) -> Dims:
        return Dims(d, heads, 128, max(1, 2 * d // heads))

    def parts(self, dims: Dims) -> Mapping[str, Part]:
        return {
            "dt_bias": Vector(dims.heads, "steps"),
            "B_bias": Vector((dims.heads, 1, dims.key), "ones"),
            "C_bias": Vector((dims.heads, 1, dims.key), "ones"),
            "D": Vector(dims.heads, "ones"),
            "in_proj": Linear(dims.d, sum(self.projected(dims))),
            "B_norm": Gain(dims.key),
            "C_norm": Gain(dims.key),
            "out_proj": Linear(dims.value_dim, dims.d),
        }

    def projected(self, dims: Dims) -> tuple[int, ...]:
        """The numbers of channels of z, x, B, C, Delta, A, lambda and the angles, in this order."""
        inner, states, heads = dims.value_dim, dims.key, dims.heads
        return inner, inner, states, states, heads, heads, heads, states // 4

    def carried(self, dims: Dims) -> Mapping[str, int]:
        """The count of numbers in each tensor that decoding carries besides the state, by name of the tensor.

        ``angle`` has the summed angles. ``key`` is B and ``value`` is x of the last token. Both are needed because
        their product B_(t-1) x_(t-1)^T is written once more at token t, with the weight (1 - lambda_t) Delta_t alpha_t.
        """
        return {"angle": dims.heads * (dims.key // 4), "key": dims.key_dim, "value": dims.value_dim}

    def rows(self, layer: NamedLayer, x: Tensor, carried: Mapping[str, Tensor] | None) -> RecurrenceInputs:
        import torch.nn.functional as F

        from madbench.mixers.named import ops, recurrent_ops, rotations
        from madbench.mixers.recurrence.forms import Dynamics

        heads = layer.dims.heads
        z, v, *others = layer.in_proj(x).split(self.projected(layer.dims), dim=-1)
        with ops.without_autocast(x):
            b, c, steps, rates, shares, angles = map(ops.wide, others)
            v = ops.wide_heads(v, heads)
            step = ops.softplus(steps + layer.dt_bias.to(steps.dtype)).mT  # (B, H, T)
            rate = rates.relu() + 1 / (1 + (-rates).relu()) if self.heavy else ops.softplus(rates)
            log_decay = -step * rate.clamp(min=LEAST_RATE).mT
            share = shares.mT.sigmoid()
            now, later = share * step, (1 - share) * step  # weights of B_t and of B_(t-1)
            k, q = (
                ops.norm(side, gain.weight)[:, None] + bias.to(side.dtype)
                for side, gain, bias in ((b, layer.B_norm, layer.B_bias), (c, layer.C_norm, layer.C_bias))
            )
            angle = rotations.total_angle(
                step[..., None] * angles.tanh()[:, None], carried["angle"] if carried else None
            )
            k, q = (rotations.rotate_pairs_by_angle(side, angle) for side in (k, q))
            written = k * (now + F.pad(later, (0, 1))[..., 1:])[..., None]
            d = Dynamics(q, written, v, log_decay[..., None], own=now * (q * k).sum(-1))
            if carried:
                d = recurrent_ops.with_row_before(d, carried["key"] * later[..., 0, None], carried["value"])
            return RecurrenceInputs(d, {"angle": angle[:, :, -1], "key": k[:, :, -1], "value": v[:, :, -1]}, z)

    def read_out(self, layer: NamedLayer, y: Tensor, x: Tensor, rows: RecurrenceInputs) -> Tensor:
        from madbench.mixers.named import ops, recurrent_ops

        with ops.without_autocast(x):
            gated = recurrent_ops.skip_and_gate(
                layer, y, rows.dynamics.v[:, :, -x.shape[1] :], cast("Tensor", rows.gate)
            )
        return ops.write(layer.out_proj, gated)

    def loops(self, p: Mapping[str, Tensor], dims: Dims, x: Tensor) -> Tensor:
        """Compute the outputs (T, D) of one sequence x (T, D) by loops over the definition.

        Each head has three variables: its state (K, V), the product B_(t-1) x_(t-1)^T of the last token (``before``),
        and the sums of its K // 4 angles (``turned``).
        """
        import math

        import torch

        from madbench.mixers.named import loops

        heads, states, width = dims.heads, dims.key, dims.value
        inner, angles = heads * width, states // 4
        at = [0, inner, 2 * inner, 2 * inner + states, 2 * inner + 2 * states]
        state = [x.new_zeros(states, width) for _ in range(heads)]
        before = [torch.zeros_like(of_head) for of_head in state]
        turned, rows = [x.new_zeros(angles) for _ in range(heads)], []
        for x_t in x:
            row = p["in_proj.weight"] @ x_t
            z, of_x, of_b, of_c = (row[start:end] for start, end in zip(at, at[1:]))
            steps, rates, shares = row[at[4] : len(row) - angles].view(3, heads)
            outputs = []
            for h in range(heads):
                delta = loops.softplus(steps[h] + p["dt_bias"][h])
                a = rates[h]
                rate = (1 + a if a >= 0 else 1 / (1 - a)) if self.heavy else loops.softplus(a)
                decay = torch.exp(-delta * torch.clamp(rate, min=1e-4))
                share = torch.sigmoid(shares[h])
                turned[h] = turned[h] + delta * math.pi * torch.tanh(row[len(row) - angles :])
                turn = torch.eye(states, dtype=x.dtype)
                for pair in range(angles):
                    cos, sin = torch.cos(turned[h][pair]), torch.sin(turned[h][pair])
                    block = torch.stack((torch.stack((cos, -sin)), torch.stack((sin, cos))))
                    turn = torch.block_diag(turn[: 2 * pair, : 2 * pair], block, turn[2 * pair + 2 :, 2 * pair + 2 :])
                b_t = turn @ (loops.normed(of_b, p["B_norm.weight"]) + p["B_bias"][h, 0])
                c_t = turn @ (loops.normed(of_c, p["C_norm.weight"]) + p["C_bias"][h, 0])
                of_head = of_x[h * width : (h + 1) * width]
                now = torch.outer(b_t, of_head)
                state[h] = decay * (state[h] + (1 - share) * delta * before[h]) + share * delta * now
                before[h] = now
                outputs.append(c_t @ state[h] + p["D"][h] * of_head)
            rows.append(p["out_proj.weight"] @ (torch.cat(outputs) * loops.silu(z)))
        return torch.stack(rows)
