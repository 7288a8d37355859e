"""HyperFeatureAttention with factored effects: softmax and linear (Def. F.3, eq. 39-40)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from madbench.errors import TrainingError
from madbench.mixers.ops.linear_maps import check_weights
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.rope import rotate
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.probe import Probe, by_lag
from madbench.papers.interactions.mixers.hfa.budget import factor_widths
from madbench.papers.interactions.mixers.mixer import FactoredMixer, softmax_over, split_heads
from madbench.papers.interactions.mixers.reference import feature_reference

MOST_STATE = 2**20  # largest number of entries in the running sum of a head
ROWS_OF_SUM = 256  # rows per block between running sums; the time within a block grows with their square


class HyperFeatureAttention(FactoredMixer):
    """Attention whose heads score pairs of tokens by a product of scores, one per feature (Def. F.3, eq. 39-40)::

        z_ij = prod_a ( q^(a)_i . k^(a)_j / sqrt(e_a) ),   q^(a), k^(a) slices of width e_a of a head's d_qk
        y_i  = concat_h( sum_(j <= i) softmax_j(z_ij) v_j ) W_o;    linear: z_ij for softmax_j(z_ij)
        v_j  = x_j W_v^(h), with the value product prod_a x_j W_v^(h,a)

    With RoPE, each q^(a) and k^(a) is rotated separately (Remark F.5). Eq. 37 and 39 of the paper have no 1/sqrt(e_a),
    which Section 2 has, and no mask. Order 1 is softmax attention.

    Args:
        d_model: the width d.
        orders: the number of factors A of every head, ascending.
        product: True for the value product.
        r_qk, r_vo: ranks, summed over heads.
        options: see :class:`madbench.papers.interactions.mixers.mixer.InteractionMixer`.

    The rows of ``q.weight`` and ``k.weight`` (r_qk, d) are sorted by head, factor and channel. ``v.weight`` is (r_vo,
    d). With the value product it is (sum_h A_h d_vo, d), with rows sorted by head, factor and channel. There are 2 d
    r_qk + 2 d r_vo parameters, or 2 d r_qk + sum_h A_h d d_vo + d r_vo with the value product.
    """

    def __init__(self, d_model: int, orders: Sequence[int], product: bool, r_qk: int, r_vo: int, **options: Any):
        self.orders, self.product = tuple(orders), product
        self.d_qk, self.d_vo = r_qk // len(orders), r_vo // len(orders)
        values = sum(orders) * self.d_vo if product else r_vo
        super().__init__(d_model, len(orders), (r_qk, r_qk, values, r_vo), **options)

    def name(self) -> str:
        return f"orders {'+'.join(map(str, self.orders))} (n = 2)"

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, k, v = split_heads(self.q(x), self.n_head), split_heads(self.k(x), self.n_head), self.v(x)
        if not self.product:
            return q, k, split_heads(v, self.n_head)
        widths = [len(heads) * order * self.d_vo for order, heads in self._parts()]
        parts = zip(self._parts(), v.split(widths, dim=-1))
        return q, k, torch.cat([split_heads(part, len(heads), order).prod(2) for (order, heads), part in parts], dim=1)

    def _parts(self) -> Iterator[tuple[int, range]]:
        """Yield each order, and the range of the heads that have it."""
        for order in dict.fromkeys(self.orders):
            first = self.orders.index(order)
            yield order, range(first, first + self.orders.count(order))

    def _factors(self, x: Tensor, order: int, heads: range) -> tuple[Tensor, ...]:
        """Split queries or keys x (B, H, T, d_qk) of some heads into factors: one tensor (B, H', T, e_a) per factor.

        ``heads`` are H' heads with the same ``order``, which is their number of factors.
        """
        return torch.split(x[:, heads.start : heads.stop], factor_widths(self.d_qk, order, self.rope), dim=-1)

    def rotate_key(self, x: Tensor, position: int) -> Tensor:
        """Rotate queries or keys x (B, H, T, d_qk) by position, each factor of a head separately.

        The first token of x is at ``position``.
        """
        parts = (self._factors(x, order, heads) for order, heads in self._parts())
        return torch.cat([torch.cat([rotate(factor, position) for factor in part], dim=-1) for part in parts], dim=1)

    rotate_query = rotate_key

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        """The scores (B, H, M, S) of queries (B, H, M, d_qk) and keys (B, H, S, d_qk), in float32 or wider."""
        products = []
        for order, heads in self._parts():
            factors = zip(self._factors(q, order, heads), self._factors(k, order, heads))
            (q_a, k_a), *others = factors
            z = wide(q_a @ k_a.mT) * q_a.shape[-1] ** -0.5
            for q_a, k_a in others:
                z = z * (wide(q_a @ k_a.mT) * q_a.shape[-1] ** -0.5)
            products.append(z)
        return torch.cat(products, dim=1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, first_row: int) -> Tensor:
        z = self.scores(q, k)
        visible = torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device)
        visible = visible.tril(first_row) if self.causal else visible
        if not self.linear:
            a, _ = softmax_over(z, visible, (-1,))
            return wide((a / a.sum(-1, keepdim=True)) @ v)
        with without_autocast(z):
            return z.masked_fill(~visible, 0) @ v

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """The scores and weights of a causal mixer, and the matrix W_q^T W_k / sqrt(e_a) of each factor a.

        e_a is the width of the factor. With RoPE the matrices are for lag 0. A bidirectional mixer has matrices only.
        """
        matrices = {}
        for a in range(max(self.orders)):
            of_heads = []
            for order, heads in self._parts():
                if a < order:
                    q, k = (
                        self._factors(layer.weight.unflatten(0, (self.n_head, -1)).mT[None], order, heads)[a][0]
                        for layer in (self.q, self.k)
                    )
                    of_heads.append(q @ k.mT * q.shape[-1] ** -0.5)
            matrices[f"factor {a + 1}"] = torch.cat(of_heads)
        if not self.causal:
            return Probe(matrices=matrices)
        q, k, _ = self.with_positions(0, 0, *self.project(x))
        z = by_lag(self.scores(q, k).tril())
        visible = torch.ones(z.shape[-2:], dtype=torch.bool, device=z.device).tril()
        return Probe(z if self.linear else z.masked_fill(~visible, -torch.inf).softmax(-1), z, matrices=matrices)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        check_weights(self, "q", "k", "v", "o")
        return feature_reference(self, [factor_widths(self.d_qk, order, self.rope) for order in self.orders], x, rows)

    def block_bytes(self, batch: int, rows: int, length: int) -> int:
        return 8 * batch * rows * self.n_head * length * (1 + (max(self.orders) > 1))

    @property
    def state_entries(self) -> int:
        """The number of entries in the largest running sum of a head: d_vo prod_a e_a for factors of width e_a."""
        return self.d_vo * max(math.prod(factor_widths(self.d_qk, order, self.rope)) for order in self.orders)

    def prefers_state(self, length: int) -> bool:
        return not is_symbolic(length) and self.state_entries <= min(MOST_STATE, self.d_vo * (length - 1))

    def check_state(self) -> None:
        if self.state_entries > MOST_STATE:
            raise TrainingError(
                f"{self.name()}: the running sum has {self.state_entries:,} entries per head, at most {MOST_STATE:,}"
                " are allowed; use the path 'dense' or 'chunked', more heads or a lower order"
            )

    def rows_of_block(self, batch: int, length: int, path: str) -> int:
        """The number of rows per block of the path ``chunked`` or ``linear_time``.

        It is limited for causal running sums, because the rows of one block are compared pair by pair.
        """
        rows = super().rows_of_block(batch, length, path)
        return min(rows, ROWS_OF_SUM) if path == "linear_time" and self.causal and not self.chunk else rows

    def state_row_bytes(self, batch: int) -> int:
        return 4 * batch * self.n_head * (self.state_entries // self.d_vo + 64)

    def _kappa(self, x: Tensor, order: int, heads: range) -> Tensor:
        """The Kronecker products of the factors of queries or keys x (B, H, T, d_qk): (B, H', T, prod_a e_a).

        ``heads`` are H' heads with the same ``order``. e_a is the width of factor a.
        """
        first, *others = self._factors(x, order, heads)
        for other in others:
            first = (first[..., None] * other[..., None, :]).flatten(-2)
        return first

    def totals(self, k: Tensor, v: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
        """The running sums sum_j kappa_j v_j^T over the tokens j of a block and earlier tokens, one tensor per order.

        kappa_j is the Kronecker product of the factors of key j. ``state`` has the sums of earlier tokens; None if
        there are none. The tensor of H' heads is (B, H', prod_a e_a, d_vo) for factors of width e_a.
        """
        with without_autocast(k):
            parts = self._parts()
            new = [self._kappa(k, order, heads).mT @ v[:, heads.start : heads.stop] for order, heads in parts]
            return tuple(new) if state is None else tuple(old + other for old, other in zip(state, new))

    def read_totals(self, q: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        """The outputs (B, H, M, d_vo) of queries q (B, H, M, d_qk) that see the tokens in ``state``, and no others.

        ``state`` is a result of :meth:`totals`.
        """
        rows = []
        with without_autocast(q):
            for (order, heads), total in zip(self._parts(), state):
                scale = math.prod(factor_widths(self.d_qk, order, self.rope)) ** -0.5
                rows.append(self._kappa(q, order, heads) @ total * scale)
        return torch.cat(rows, dim=1)

    def advance(
        self, q: Tensor, k: Tensor, v: Tensor, state: tuple[Tensor, ...] | None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The outputs (B, H, M, d_vo) of a block of M rows, and the running sums after it.

        The rows see the tokens of the block causally, and all earlier tokens, whose running sums are ``state``.
        ``state`` is None for the first block.
        """
        o = self.attend(q, k, v, 0)
        if state is not None:
            o = o + self.read_totals(q, state)
        return o, self.totals(k, v, state)
