"""The S/R/G mixer computed directly from its equations: in float64, one row and one head at a time.

Tests and checks use it as the independent reference. It shares no code with the fast paths, and follows eq. 7-11 of the
HyperMLP paper in their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

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
    p = _project(w, label, n_head, x, rope, rope_order, rotated)
    contrast = x.new_zeros(())
    if "contrast.q1" in w:
        first, second = (w[f"contrast.q{i}"] @ w[f"contrast.k{i}"] for i in (1, 2))
        contrast = torch.exp(first) - torch.exp(second) + lambda_init
    table_row = 0
    if position_rows == "from_end" and label.has_mixing and label.layout == "position":
        table_row = w["mix1.A" if label.mix1 else "mix2.A"].shape[1] - len(p.register_keys) - len(x)
    outputs = []
    for t in rows:
        slots = _slots(label, t, len(x), len(p.register_keys), register_place, causal, window, table_row)
        row = _Row(w, label, n_head, p, x[t], t, slots, contrast, lambda_init)
        hidden = [row.hidden_scores(head) for head in range(query_heads)]
        o = torch.cat([row.readout(head, row.activations(head, hidden)) for head in range(n_head)])
        outputs.append(row.output(o))
    return torch.stack(outputs)


@dataclass(frozen=True)
class _Projections:
    """Queries, keys and values of one sequence. A head has ``d_qk`` columns of q and k, and ``d_vo`` columns of v."""

    q: Tensor
    unturned_q: Tensor
    """Queries without RoPE, which score the registers."""
    k: Tensor
    v: Tensor
    register_keys: Tensor
    register_values: Tensor
    w_o: Tensor
    """The output map, (D, heads * d_vo)."""
    d_qk: int
    d_vo: int


def _project(
    w: dict[str, Tensor], label: SrgLabel, n_head: int, x: Tensor, rope: str, rope_order: str, rotated: int
) -> _Projections:
    """Compute the queries x W_q M1(x), the keys K(X) and the values V(X) of one sequence x (T, D).

    Convolution, QK norm, RoPE and QK gate are included, as far as the label has them. ``rotated`` is the number of
    channels per head that RoPE rotates. 0 stands for all.
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
    register_keys, register_values = k[:0], v[:0]
    if label.registers:
        register_keys, register_values = w["registers"] @ w["k.weight"].T, w["registers"] @ w_v.T
    if label.qk_norm:
        q = _each_head(q, d_qk, lambda q_h: _normalized(q_h, w["q_norm.weight"]))
        k = _each_head(k, d_qk, lambda k_h: _normalized(k_h, w["k_norm.weight"]))
        if label.registers:
            register_keys = _each_head(register_keys, d_qk, lambda k_h: _normalized(k_h, w["k_norm.weight"]))
    gate = torch.sigmoid(x @ w["qk_gate.weight"].T + w["qk_gate.bias"]) if "qk_gate.weight" in w else torch.ones_like(q)
    unturned = q * gate
    if label.rope:
        width = rotated or d_qk
        turned = _each_head(q if rope_order == "before_gate" else unturned, d_qk, lambda q_h: _turn(q_h, rope, width))
        k = _each_head(k, d_qk, lambda k_h: _turn(k_h, rope, width))
        q = turned * gate if rope_order == "before_gate" else turned
    else:
        q = unturned
    if "contrast_gate.weight" in w:  # DIFF V2: both sets of query heads read the same keys
        k, register_keys = (torch.cat((each, each), dim=1) for each in (k, register_keys))
    k, register_keys = (for_each_head(each, d_qk, query_heads) for each in (k, register_keys))
    v, register_values = (for_each_head(each, d_vo, n_head) for each in (v, register_values))
    return _Projections(q, unturned, k, v, register_keys, register_values, w_o, d_qk, d_vo)


@dataclass(frozen=True)
class _Slots:
    """The slots of one row of scores: slots of registers, and slots of tokens in the order of the layout."""

    count: int
    """Number of slots, including those that the row does not see. The mixing matrices R(1) and R(2) are (count,
    count)."""
    visible: list[int]
    """Indices of the slots that the row sees, registers included."""
    tokens: list[int]
    """Index of the token in each visible slot, in the order of the slots. Slots of registers are left out."""
    has_registers_first: bool
    """True if registers have the first slots, False if their slots are behind those of the tokens."""
    table_row: int
    """The row of the mixing tables that slot 0 uses."""

    def in_order(self, of_registers: Tensor, of_tokens: Tensor) -> Tensor:
        """Concatenate rows of registers and rows of visible tokens, in the order of their slots."""
        return torch.cat((of_registers, of_tokens) if self.has_registers_first else (of_tokens, of_registers))


def _slots(
    label: SrgLabel, t: int, length: int, registers: int, place: str, causal: bool, window: int, table_row: int
) -> _Slots:
    """The slots of row t, for a sequence of ``length`` tokens.

    ``place`` says where the registers are, ``first`` or ``last``. ``table_row`` is the row of the mixing tables that
    slot 0 uses.
    """
    seen = t + 1 if causal else length
    seen = min(seen, window) if window and label.layout == "lag" else seen
    order = [(t - lag) % length for lag in range(seen)] if label.layout == "lag" else list(range(seen))
    visible = [slot for slot, i in enumerate(order) if not window or abs(t - i) < window]
    is_first = place == "first"
    first_register, first_token = (0, registers) if is_first else (seen, 0)
    of_registers = [first_register + slot for slot in range(registers)]
    of_tokens = [first_token + slot for slot in visible]
    slots = of_registers + of_tokens if is_first else of_tokens + of_registers
    return _Slots(registers + seen, slots, [order[slot] for slot in visible], is_first, table_row)


@dataclass(frozen=True)
class _Row:
    """The equations of one row of the output, that of token t."""

    w: dict[str, Tensor]
    label: SrgLabel
    n_head: int
    p: _Projections
    x_t: Tensor
    """The token, (D,)."""
    t: int
    slots: _Slots
    contrast: Tensor
    """The factor lambda of the second softmax of D. DIFF V2 has a factor per head and token instead."""
    lambda_init: float

    def hidden_scores(self, head: int) -> Tensor:
        """The hidden scores h_t (S,) of one query head in the visible slots: (x_t W_q M1(x_t)) K(X)^T R1(x_t)."""
        p, columns = self.p, slice(head * self.p.d_qk, (head + 1) * self.p.d_qk)
        of_registers = p.register_keys[:, columns] @ p.unturned_q[self.t, columns]
        z = self.slots.in_order(of_registers, p.k[self.slots.tokens, columns] @ p.q[self.t, columns])
        if self.label.has_softmax:
            z = z / p.d_qk**0.5
        if self.label.mix1:
            z = z @ self._mixing("mix1", head)
        return z

    def activations(self, head: int, hidden: list[Tensor]) -> Tensor:
        """The activations a_t (S,) of one head in the visible slots.

        ``hidden`` has the hidden scores of all query heads.
        """
        first, second = head, self.n_head + head  # G and D have two query heads per head
        if not self.label.has_softmax:
            a = hidden[first] / torch.sqrt(hidden[first].square().sum() + 1e-12)
            a = a if self.label.base == "L" else F.relu(a)
            return F.softplus(hidden[second]) * a if self.label.base == "G" else a
        a = self._softmax(first, hidden)
        if self.label.base == "D":
            is_v2 = "contrast_gate.weight" in self.w
            factor = torch.sigmoid(self.w["contrast_gate.weight"][head] @ self.x_t) if is_v2 else self.contrast
            a = a - factor * self._softmax(second, hidden)
        return a

    def readout(self, head: int, a: Tensor) -> Tensor:
        """The readout a_t R2(x_t)^T V(X) (d_vo,) of one head, from its activations ``a`` (S,).

        With the letter e, the component along the token's own value is removed. Base D (except DIFF V2) then normalizes
        the readout, and the letter h multiplies it by a gate.
        """
        w, p, columns = self.w, self.p, slice(head * self.p.d_vo, (head + 1) * self.p.d_vo)
        if self.label.mix2:
            a = a @ self._mixing("mix2", head).T
        o = a @ self.slots.in_order(p.register_values[:, columns], p.v[self.slots.tokens, columns])
        own = p.v[self.t, columns]
        if self.label.exclusive and own.any():
            o = o - (o @ own) / (own @ own) * own
        if "head_norm.weight" in w:
            o = (1 - self.lambda_init) * w["head_norm.weight"] * o / torch.sqrt(o.square().mean() + 1e-5)
        if self.label.head_gate:
            o = torch.sigmoid(w["head_gate.weight"][head] @ self.x_t) * o
        return o

    def output(self, o: Tensor) -> Tensor:
        """The row o_t M2(x_t) W_o (D,), from the readouts o_t of all heads."""
        if "vo_gate.weight" in self.w:
            o = o * torch.sigmoid(self.w["vo_gate.weight"] @ self.x_t + self.w["vo_gate.bias"])
        return self.p.w_o @ o

    def _softmax(self, head: int, hidden: list[Tensor]) -> Tensor:
        return softmax(hidden[head], self.w["sink"][head] if self.label.sink else None)

    def _mixing(self, name: str, head: int) -> Tensor:
        """The mixing matrix R(1) or R(2) of one head, cut to the rows and columns of visible slots.

        ``name`` is ``mix1`` for R(1), and ``mix2`` for R(2).
        """
        slots = self.slots
        matrix = mixing_matrix(self.w, name, head, self.x_t, slots.count, slots.table_row)
        return matrix[slots.visible][:, slots.visible]


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
    zero = x.new_zeros(())
    return torch.stack([sum((taps[:, j] * x[t - 3 + j] for j in range(4) if t - 3 + j >= 0), zero) for t in rows])


def _normalized(x: Tensor, gain: Tensor) -> Tensor:
    """Divide each row of x (T, K) by its root mean square, and multiply it by the gain (K,)."""
    return torch.stack([gain * row / torch.sqrt(row.square().mean() + 1e-6) for row in x])


def _each_head(x: Tensor, width: int, change: Callable[[Tensor], Tensor]) -> Tensor:
    """Apply ``change`` to the ``width`` columns of each head of x (T, heads * width)."""
    return torch.cat([change(x_h) for x_h in x.split(width, dim=1)], dim=1)


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
