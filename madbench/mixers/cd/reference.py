"""Coefficient dynamics computed directly from eq. 1-3 (arXiv 2510.09389): in float64, one row and one head at a time.

Tests and checks use it as the independent reference. Nothing is stabilized, so it overflows where the equations do.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.cd.grammar import CdLabel


def reference(
    parameters: Mapping[str, Tensor], label: CdLabel, n_head: int, x: Tensor, rows: Sequence[int] | None = None
) -> Tensor:
    """Compute the output of a mixer of coefficient dynamics with loops in float64: x (B, T, D) -> (B, T, D).

    The output is differentiable in ``x`` and in the parameters. ``parameters`` is the state dict of a
    ``CoefficientMixer``, in any floating dtype. If ``rows`` is not None, only the outputs at these positions are
    returned, (B, len(rows), D).
    """
    p = {name: value.double() for name, value in parameters.items()}
    rows = range(x.shape[1]) if rows is None else rows
    return torch.stack([_sequence(p, label, n_head, sequence, rows) for sequence in x.double()])


def _sequence(p: dict[str, Tensor], label: CdLabel, n_head: int, x: Tensor, rows: Sequence[int]) -> Tensor:
    q, k, v = (x @ p[f"{side}.weight"].T for side in "qkv")
    if label.conv:
        q, k, v = (_silu(_convolve(side, p[f"{name}_conv.weight"])) for name, side in zip("qkv", (q, k, v)))
    heads = [_head(p, label, n_head, head, x, rows, q, k, v) for head in range(n_head)]
    outputs = []
    for i in rows:
        y = [head[i] for head in heads]
        if "skip" in p:
            y = [y_h + skip * v_h[i] for y_h, skip, v_h in zip(y, p["skip"], v.chunk(n_head, dim=1))]
        if label.output == "g":
            y = [y_h / torch.sqrt((y_h**2).mean() + 1e-6) * p["out_norm.weight"] for y_h in y]
        y = torch.cat(y)
        if label.output == "g":
            y = y * _silu(p["out_gate.weight"] @ x[i])
        if label.output == "o":
            y = y * torch.sigmoid(p["out_sigmoid.weight"] @ x[i] + p["out_sigmoid.bias"])
        outputs.append(p["o.weight"] @ y)
    return torch.stack(outputs)


def _head(
    p: dict[str, Tensor], label: CdLabel, n_head: int, head: int, x: Tensor, wanted: Sequence[int], *sides: Tensor
) -> dict[int, Tensor]:
    """The outputs of head number ``head`` before output gates, by row, for the rows in ``wanted``.

    ``sides`` are q, k and v of all heads, before normalization and rotation.
    """
    q, k, v = (side.chunk(n_head, dim=1)[head] for side in sides)
    length, n = q.shape
    if label.unit:
        q, k = _unit(q), _unit(k)
    if label.rope:
        q, k = _rotate(q), _rotate(k)
    gates = [_gate(p, label, n_head, head, x_t, n) for x_t in x]
    betas = [_strength(p, label, head, x_t) for x_t in x]
    b = [_scaling(p, label, head, x[j], n, *gates[j], betas[j]) for j in range(length)]
    if label.readout.startswith("k"):
        psi: Any
        psi = {"krelu": F.relu, "kelu": _elu, "ksoftplus": _softplus, "kexp": torch.exp}[label.readout]
        q, k = psi(q), torch.stack([psi(b[j] * k[j]) for j in range(length)])
        w, b, phi = _unit(k), [1.0] * length, None
    else:
        w, phi = _unit(k), PHI[label.readout]
    if "hz" in label.mirror:
        w = _unit(x @ p["direction.weight"].chunk(n_head)[head].T)
    states, outputs = k[:0].T, {}
    for i in range(max(wanted) + 1):
        states = gates[i][0].expand(n)[:, None] * states  # h_ij = A_i h_(i-1)j, one column per j < i
        if label.mirror:
            states = states - betas[i] * torch.outer(w[i], w[i] @ states)
        states = torch.cat((states, (b[i] * k[i])[:, None]), dim=1)  # h_ii
        if i not in wanted:
            continue
        alpha = q[i] @ states
        alpha = phi(alpha) if phi else alpha
        total = alpha.sum()
        if label.norm == "sum":
            eta = total if total.abs() >= 1e-12 else torch.where(total < 0, -1e-12, 1e-12)
        elif label.norm == "max":
            eta = total.abs() if total.abs() > 1 else torch.ones_like(total)
        elif label.norm == "pow":
            eta = float(label.gate) ** (i + 1)
        elif label.norm == "wx":
            eta = torch.exp(x[i] @ p["eta.weight"][head])
        else:
            eta = 1.0
        outputs[i] = alpha / eta @ v[: i + 1]
    return outputs


def _gate(
    p: dict[str, Tensor], label: CdLabel, n_head: int, head: int, x_t: Tensor, n: int
) -> tuple[Tensor, Tensor | None]:
    """Return the gate lambda_t and the step Delta_t of one head for the token x_t (D,).

    lambda_t is a scalar, or (n,) if each key channel has its own gate. Delta_t is a scalar, or None if the gate has no
    step.
    """
    kind = label.gate
    if kind[:1] in ("", "0", "1"):
        return torch.tensor(float(kind or 1), dtype=torch.float64), None
    if kind == "dg":
        z = p["decay_up.weight"] @ (p["decay_down.weight"] @ x_t) + p["decay_up.bias"]
        return torch.sigmoid(z[head * n : (head + 1) * n]) ** (1 / 16), None
    z = p["decay.weight"][head] @ x_t + p["decay.bias"][head]
    if kind == "ss":
        return torch.sigmoid(z), None
    if kind == "sg":
        return torch.sigmoid(z) ** (1 / 16), None
    if kind == "se":
        return torch.exp(z), None
    delta = _softplus(z)
    rates = p["a_log"][head] if kind == "sm" else p["a_log"][head * n : (head + 1) * n]
    return torch.exp(-delta * torch.exp(rates)), delta


def _strength(p: dict[str, Tensor], label: CdLabel, head: int, x_t: Tensor) -> Tensor | float:
    if label.mirror[2:] not in ("1", "2"):
        return 2.0
    return int(label.mirror[2]) * torch.sigmoid(p["strength.weight"][head] @ x_t)


def _scaling(
    p: dict[str, Tensor], label: CdLabel, head: int, x_j: Tensor, n: int, gate: Tensor, delta: Any, beta: Any
) -> Tensor | float:
    kind = label.scaling
    if kind == "":
        return 1 / math.sqrt(n)
    if kind == "b1":
        return 1.0
    value: Tensor
    if kind[1] == "z":
        value = torch.sigmoid(p["scale.weight"][head] @ x_j)
    elif kind[1] == "i":
        value = torch.exp(p["scale.weight"][head] @ x_j + p["scale.bias"][head])
    else:
        value = {"d": delta, "w": beta, "u": 1 - gate}[kind[1]]
    return value / math.sqrt(n) if kind.endswith("n") else value


def _softplus(x: Tensor) -> Tensor:
    return torch.logaddexp(x, torch.zeros_like(x))


def _elu(x: Tensor) -> Tensor:
    """ELU(x) + 1, the function phi of readout ``elu``."""
    return torch.where(x > 0, x + 1, torch.exp(torch.clamp(x, max=0.0)))


PHI: Mapping[str, Callable[[Tensor], Tensor]] = {
    "exp": torch.exp,
    "relu": F.relu,
    "softplus": _softplus,
    "elu": _elu,
    "sigmoid": torch.sigmoid,
    "id": lambda s: s,
}


def _silu(x: Tensor) -> Tensor:
    return x * torch.sigmoid(x)


def _unit(x: Tensor) -> Tensor:
    return x / torch.sqrt((x**2).sum(-1, keepdim=True) + 1e-12)


def _convolve(x: Tensor, taps: Tensor) -> Tensor:
    """The causal convolution of x (T, C) with taps (C, 4).

    Row t is the sum of taps[:, 3 - lag] x_(t - lag) over lags 0 to 3.
    """
    zero = x.new_zeros(())
    return torch.stack(
        [sum((taps[:, 3 - lag] * x[t - lag] for lag in range(4) if lag <= t), zero) for t in range(x.shape[0])]
    )


def _rotate(x: Tensor) -> Tensor:
    """Apply RoPE to x (T, n): rotate coordinates r and r + n/2 of row t by the angle t 10000^(-2r/n), with t from 0."""
    half, rows = x.shape[1] // 2, []
    for t in range(x.shape[0]):
        angle = [t * 10000.0 ** (-r / half) for r in range(half)]
        cos, sin = (x.new_tensor([of(each) for each in angle]) for of in (math.cos, math.sin))
        first, second = x[t, :half], x[t, half:]
        rows.append(torch.cat((first * cos - second * sin, first * sin + second * cos)))
    return torch.stack(rows)
