"""The S/R/G mixer computed directly from its equations: in float64, one row and one head at a time.

Tests and checks use it as the independent reference. It shares no code with the fast paths, and follows eq. 7-11 of the
HyperMLP paper in their order.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
import torch.nn.functional as F
from torch import Tensor

from madbench.mixers.srg.grammar import SrgLabel


def reference(
    parameters: Mapping[str, Tensor],
    label: SrgLabel,
    n_head: int,
    x: Tensor,
    rope: str,
    rows: Sequence[int] | None = None,
    **settings: Any,
) -> Tensor:
    """Return the output of a mixer for x (B, T, D) in float64, differentiable in x and in the parameters.

    The result is (B, number of rows, D). ``parameters`` are those of a ``DynamicMLP`` by name, in any floating dtype.
    ``rope`` and ``settings`` (the keyword arguments of :func:`_sequence`) are arguments of the ``DynamicMLP`` and of
    its allocation. ``rows`` are the indices of the rows to compute; None means all.

    A row sees the tokens up to its own, or all tokens if ``causal`` is false. Tokens after the row then have the last
    slots, in the lag layout with the newest token first. With ``window``, a row sees only tokens at a distance below
    ``window``.
    """
    w = {name: value.double() for name, value in parameters.items()}
    rows = range(x.shape[1]) if rows is None else rows
    return torch.stack([_sequence(w, label, n_head, sequence, rope, rows, **settings) for sequence in x.double()])


def _sequence(
    w: dict[str, Tensor],
    label: SrgLabel,
    n_head: int,
    x: Tensor,
    rope: str,
    rows: Sequence[int],
    *,
    rope_order: str = "before_gate",
    lambda_init: float = 0.8,
    position_rows: str = "from_start",
    register_place: str = "first",
    causal: bool = True,
    window: int = 0,
    rotated: int = 0,
) -> Tensor:
    """The output (rows, D) of one sequence x (T, D), in float64.

    ``w`` has the parameters by name, in float64. The other arguments are those of :func:`reference`, of
    ``DynamicMLP`` and of its allocation.
    """
    query_heads = 2 * n_head if label.base in "GD" else n_head
    k_in = convolve(x, w["k_conv.weight"]) if label.conv else x
    v_in = convolve(x, w["v_conv.weight"]) if label.conv else x
    w_v, w_o = w["v.weight"], w["o.weight"]
    if label.adapter:
        w_v = w_v + w["v_up.weight"] @ w["v_down.weight"]
        w_o = w_o + w["o_up.weight"] @ w["o_down.weight"]
    q, k, v = x @ w["q.weight"].T, k_in @ w["k.weight"].T, v_in @ w_v.T
    d_qk, d_vo = q.shape[1] // query_heads, w_o.shape[1] // n_head
    if label.qk_norm:
        q = torch.cat([_normalized(q_h, w["q_norm.weight"]) for q_h in q.split(d_qk, dim=1)], dim=1)
        k = torch.cat([_normalized(k_h, w["k_norm.weight"]) for k_h in k.split(d_qk, dim=1)], dim=1)
    gate = torch.sigmoid(x @ w["qk_gate.weight"].T + w["qk_gate.bias"]) if "qk_gate.weight" in w else torch.ones_like(q)
    unturned = q * gate
    if label.rope:
        turned = q if rope_order == "before_gate" else unturned
        rotated = rotated or d_qk
        q = torch.cat([_turn(q_h, rope, rotated) for q_h in turned.split(d_qk, dim=1)], dim=1)
        k = torch.cat([_turn(k_h, rope, rotated) for k_h in k.split(d_qk, dim=1)], dim=1)
        q = q * gate if rope_order == "before_gate" else q
    else:
        q = unturned
    register_keys, register_values = k[:0], v[:0]
    if label.registers:
        register_keys, register_values = w["registers"] @ w["k.weight"].T, w["registers"] @ w_v.T
        if label.qk_norm:
            of_heads = register_keys.split(d_qk, dim=1)
            register_keys = torch.cat([_normalized(k_h, w["k_norm.weight"]) for k_h in of_heads], dim=1)
    is_v2 = "contrast_gate.weight" in w
    if is_v2:  # both sets of query heads read the same keys
        k, register_keys = (torch.cat((each, each), dim=1) for each in (k, register_keys))
    k, register_keys = (for_each_head(each, d_qk, query_heads) for each in (k, register_keys))
    v, register_values = (for_each_head(each, d_vo, n_head) for each in (v, register_values))
    if label.base == "D" and not is_v2:
        first, second = (w[f"contrast.q{i}"] @ w[f"contrast.k{i}"] for i in (1, 2))
        contrast = torch.exp(first) - torch.exp(second) + lambda_init
    longer = 0  # table rows before those of this input
    if position_rows == "from_end" and label.has_mixing and label.layout == "position":
        longer = w["mix1.A" if label.mix1 else "mix2.A"].shape[1] - len(register_keys) - len(x)
    rows_of_output = []
    for t in rows:
        # row(l): the registers, then the tokens in the order of their slots; or the registers after the tokens
        seen = t + 1 if causal else len(x)
        seen = min(seen, window) if window and label.layout == "lag" else seen
        order = [(t - lag) % len(x) for lag in range(seen)] if label.layout == "lag" else list(range(seen))
        slots = len(register_keys) + seen
        visible = [slot for slot, i in enumerate(order) if not window or abs(t - i) < window]
        order = [order[slot] for slot in visible]
        is_first = register_place == "first"  # the registers have the first slots, or those behind the tokens
        of_registers = [slot + seen * (not is_first) for slot in range(len(register_keys))]
        of_tokens = [slot + len(register_keys) * is_first for slot in visible]
        visible = of_registers + of_tokens if is_first else of_tokens + of_registers
        hidden = []
        for head in range(query_heads):
            columns = slice(head * d_qk, (head + 1) * d_qk)
            z = [register_keys[:, columns] @ unturned[t, columns], k[order, columns] @ q[t, columns]]
            z = torch.cat(z if register_place == "first" else z[::-1])
            if label.has_softmax:
                z = z / d_qk**0.5
            if label.mix1:
                z = z @ mixing_matrix(w, "mix1", head, x[t], slots, longer)[visible][:, visible]
            hidden.append(z)
        outputs = []
        if label.has_softmax:
            maps = [softmax(z, w["sink"][head] if label.sink else None) for head, z in enumerate(hidden)]
        for head in range(n_head):
            columns = slice(head * d_vo, (head + 1) * d_vo)
            if label.has_softmax:
                a = maps[head]
            else:
                a = hidden[head] / torch.sqrt(hidden[head].square().sum() + 1e-12)
                a = a if label.base == "L" else F.relu(a)
            if label.base == "G":
                a = F.softplus(hidden[n_head + head]) * a
            if label.base == "D":
                factor = torch.sigmoid(w["contrast_gate.weight"][head] @ x[t]) if is_v2 else contrast
                a = a - factor * maps[n_head + head]
            if label.mix2:
                a = a @ mixing_matrix(w, "mix2", head, x[t], slots, longer)[visible][:, visible].T
            values = [register_values[:, columns], v[order, columns]]
            o = a @ torch.cat(values if register_place == "first" else values[::-1])
            if label.exclusive and v[t, columns].any():
                own = v[t, columns]
                o = o - (o @ own) / (own @ own) * own
            if label.base == "D" and not is_v2:
                o = (1 - lambda_init) * w["head_norm.weight"] * o / torch.sqrt(o.square().mean() + 1e-5)
            if label.head_gate:
                o = torch.sigmoid(w["head_gate.weight"][head] @ x[t]) * o
            outputs.append(o)
        o = torch.cat(outputs)
        if "vo_gate.weight" in w:
            o = o * torch.sigmoid(w["vo_gate.weight"] @ x[t] + w["vo_gate.bias"])
        rows_of_output.append(w_o @ o)
    return torch.stack(rows_of_output)


def softmax(z: Tensor, sink: Tensor | None) -> Tensor:
    """The softmax of the scores z (S,) of one row. If ``sink`` is given, exp(sink) is added to the denominator."""
    largest = z.max() if sink is None else torch.maximum(z.max(), sink)
    exponentials = torch.exp(z - largest)
    return exponentials / (exponentials.sum() + (0 if sink is None else torch.exp(sink - largest)))


def for_each_head(x: Tensor, width: int, heads: int) -> Tensor:
    """Repeat shared keys or values for all heads, (T, shared heads * width) -> (T, heads * width)."""
    group = heads * width // x.shape[1]
    return torch.cat([x[:, head // group * width :][:, :width] for head in range(heads)], dim=1)


def mixing_matrix(w: Mapping[str, Tensor], name: str, head: int, x_t: Tensor, length: int, first: int = 0) -> Tensor:
    """The mixing matrix I + Diag(p) + A Diag(s) B^T (length, length) of one head for the token x_t (D,).

    s = sigmoid(gate(x_t)). ``w`` are the parameters of the mixer by name. ``name`` is ``mix1`` for R(1) or ``mix2`` for
    R(2). The tables A, B and p are read from row ``first`` on.
    """
    a, b, p = (w[f"{name}.{table}"][head, first : first + length] for table in "ABp")
    rank = a.shape[1]
    of_head = slice(head * rank, (head + 1) * rank)
    s = torch.sigmoid(w[f"{name}.gate.weight"][of_head] @ x_t + w[f"{name}.gate.bias"][of_head])
    return torch.eye(length, dtype=a.dtype, device=a.device) + torch.diag(p) + a @ torch.diag(s) @ b.T


def convolve(x: Tensor, taps: Tensor) -> Tensor:
    """Convolve each channel of x (T, D) with its four taps (D, 4). The last tap applies to the current row."""
    rows = range(x.shape[0])
    return torch.stack([cast(Tensor, sum(taps[:, j] * x[t - 3 + j] for j in range(4) if t - 3 + j >= 0)) for t in rows])


def _normalized(x: Tensor, gain: Tensor) -> Tensor:
    """Divide each row of x (T, K) by its root mean square, and multiply it by the gain (K,)."""
    return torch.stack([gain * row / torch.sqrt(row.square().mean() + 1e-6) for row in x])


def _turn(x: Tensor, style: str, width: int) -> Tensor:
    """Apply rotary position embedding to the first ``width`` channels of x (T, K), the rows of one head.

    Row t is at position t.
    """
    x, others, half = x[:, :width], x[:, width:], width // 2
    pairs = [(i, i + half) if style == "rotation" else (2 * i, 2 * i + 1) for i in range(half)]
    partner, sign = list(range(width)), [1.0] * width
    for a, b in pairs:
        partner[a], partner[b], sign[a] = b, a, -1.0
    rows, sign = [], x.new_tensor(sign)
    for t in range(x.shape[0]):
        angle = [t * 10000.0 ** (-2 * (j % half) / width) for j in range(width)]
        cos, sin = (x.new_tensor([of(each) for each in angle]) for of in (math.cos, math.sin))
        rows.append(x[t] * cos + sign * x[t, partner] * sin)
    return torch.cat((torch.stack(rows), others), dim=1)
