"""The operators of labels with base ``C``, full coupling matrices and tensors, as in theory (Def. 5.1, 6.1, F.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.mixers.ops.precision import wide, without_autocast
from madbench.mixers.ops.tracing import is_symbolic
from madbench.mixers.probe import Probe, by_lag
from madbench.papers.interactions.mixers.mixer import InteractionMixer, check_memory
from madbench.papers.interactions.mixers.reference import coupling_reference
from madbench.papers.interactions.mixers.sums import visibility_mask
from madbench.papers.interactions.mixers.tuples import ORDERED


class Coupling(InteractionMixer):
    """Sums over heads of products of effects and values of whole tokens, without projections, softmax or scale::

        hfa:CA    y = sum_h ( prod_a X C^(h,a) X^T ) ( X W^(h) )               Def. 5.1, F.2; order 1 is eq. 1
        hfa:CAw   y = sum_h ( prod_a X C^(h,a) X^T ) ( prod_a X W^(h,a) )      Def. 5.1 as printed, eq. 36
        ha:Cn     y_i = sum_h sum_J C^(h)[x_i, x_j1, x_j2, ..] W^(h)[x_j1, x_j2, .., :]      Def. 6.1

    with Hadamard products. J are the tuples of :mod:`madbench.papers.interactions.mixers.tuples`, with j1 the newest
    token (Def. 6.1 of the paper orders upward, G.1 downward; the sets are equal). Here i >= j1; in the paper every row
    sees all tokens.

    Args:
        heads: the number of heads H.
        width: the width d of a token.
        out_width: the width d2 of the output. By default ``width``.
        orders: the number of factors A of each part of the heads, for ``degree`` 2. Parts have equal numbers of heads.
        degree: the number n of tokens of an interaction, including the row's own.
        product: True if the value of a token is a product too (the letter ``w``), for ``degree`` 2.
        tuples: the kind of tuples, for ``degree`` above 2.
        chunk, options: see :class:`madbench.papers.interactions.mixers.mixer.InteractionMixer`.

    The parameters ``c`` and ``w`` start from N(0, 0.02^2). For degree 2 their shapes are (H, A, d, d) and (H, 1 or A,
    d, d2). With several orders they are ``c.<h>`` and ``w.<h>`` for head h, without the first axis. For degree n > 2
    the shapes are (H, d, .., d) with n axes of d, and (H, d, .., d, d2) with n - 1.

    Raises ``TrainingError`` if the number of parts does not divide ``heads``, or if the parameters do not fit in
    memory.
    """

    limit_bytes = 2**28  # limit of the dense path; a block has ``chunk`` rows

    def __init__(
        self,
        heads: int,
        width: int,
        out_width: int | None = None,
        *,
        orders: Sequence[int] = (1,),
        degree: int = 2,
        product: bool = False,
        tuples: str = ORDERED,
        chunk: int = 128,
        **options: Any,
    ):
        super().__init__(chunk=chunk, **options)
        if heads % len(orders):
            raise TrainingError(f"{len(orders)} orders need a number of heads that is a multiple of it, got {heads}")
        self.width, self.out_width, self.degree, self.tuples = width, out_width or width, degree, tuples
        if degree > 2:
            shapes = [((width,) * degree, (*(width,) * (degree - 1), self.out_width))] * heads
        else:
            of_head = [order for order in orders for _ in range(heads // len(orders))]
            shapes = [((a, width, width), (a if product else 1, width, self.out_width)) for a in of_head]
        parameters = sum(math.prod(shape) for of_head in shapes for shape in of_head)
        check_memory(
            torch.empty(0),
            4 * parameters,
            lambda: f"degree {degree} at width {width}: a coupling of {parameters:,} entries",
            lambda: "use a smaller width, a lower degree or factored effects, base L",
        )
        self.c: Any  # a parameter with an axis over heads, or a list with one parameter per head
        self.w: Any
        if len(set(orders)) == 1:
            self.c, self.w = (nn.Parameter(torch.empty(heads, *shape)) for shape in shapes[0])
        else:
            self.c, self.w = (nn.ParameterList(map(torch.empty, of_heads)) for of_heads in zip(*shapes))
        self.draw()

    def name(self) -> str:
        return f"degree {self.degree}"

    def project(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens as rows and as tokens that rows see: x twice, with an axis of heads, (B, 1, T, d)."""
        return x[:, None], x[:, None]

    def read_out(self, o: Tensor) -> Tensor:
        return o.squeeze(1)

    def reference(self, x: Tensor, rows: Sequence[int] | None = None) -> Tensor:
        return coupling_reference(self, x, rows)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """The effects of a causal mixer, and its coupling matrices: one per factor, or one per slot above degree 2.

        The matrix of a slot is the effect of the slot's token on the row's token if all other slots have the mean token
        of ``x``. A mixer of a degree above 2 or without a causal mask has matrices only.
        """
        if self.degree > 2:
            return Probe(matrices={f"slot {m + 1}": self._marginal(m, x.mean((0, 1))) for m in range(self.degree - 1)})
        orders = range(max(map(len, self.c)))
        matrices = {f"factor {a + 1}": torch.stack([c[a] for c in self.c if a < len(c)]) for a in orders}
        if not self.causal:
            return Probe(matrices=matrices)
        effects = by_lag(torch.cat([self._effects(c, x, x) for c, _ in self._groups()], dim=1).tril())
        return Probe(effects, effects, matrices=matrices)

    def _marginal(self, slot: int, mean: Tensor) -> Tensor:
        """The effect of the token in ``slot`` on the row's token, as a matrix (H, d, d) per head.

        All other slots of the coupling tensor have the token ``mean`` (d,).
        """
        matrix: Tensor = self.c.movedim(slot + 2, 2)
        while matrix.dim() > 3:
            matrix = matrix @ mean
        return matrix

    def resolve_path(self, batch: int, length: int) -> str:
        is_short = not is_symbolic(batch, length) and length <= cast(int, self.chunk)
        return "dense" if self.path == "auto" and is_short else super().resolve_path(batch, length)

    def block_bytes(self, batch: int, rows: int, length: int) -> int:
        """The bytes that a block of ``rows`` rows of ``batch`` sequences needs in float32.

        A sequence of ``length`` tokens has ``length ** (degree - 1)`` tuples. The block has an effect of each tuple on
        each row, for every matrix C or coupling tensor. It also has a value of each tuple, for every head.
        """
        factors = len(self.c) if self.degree > 2 else sum(map(len, self.c))
        tuples: int = length ** (self.degree - 1)
        return 4 * batch * tuples * (factors * rows + len(self.c) * self.out_width)

    def _groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield ``c`` and ``w`` for each group of heads with the same number of factors.

        For degree 2 their shapes are (H', A, d, d) and (H', 1 or A, d, d2) for H' heads.
        """
        if isinstance(self.c, nn.Parameter):
            yield self.c, self.w
            return
        for order in dict.fromkeys(len(c) for c in self.c):
            heads = [h for h, c in enumerate(self.c) if len(c) == order]
            yield torch.stack([self.c[h] for h in heads]), torch.stack([self.w[h] for h in heads])

    def attend(self, rows: Tensor, seen: Tensor, first_row: int) -> Tensor:
        """The outputs (B, 1, M, d2) of ``rows`` (B, 1, M, d) that see the tokens ``seen`` (B, 1, S, d).

        The first row is at position ``first_row``.
        """
        rows, seen, y = rows[:, 0], seen[:, 0], 0.0
        mask = visibility_mask(self.degree - 1, self.tuples, seen, self.causal, first_row, rows.shape[1])
        hidden = ~mask.flatten(1)
        with without_autocast(rows):
            for c, w in self._groups():
                y = y + (self._effects(c, rows, seen).masked_fill(hidden, 0) @ self._values(w, seen)).sum(1)
        return cast(Tensor, y).to(rows.dtype)[:, None]

    def _effects(self, c: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
        """The effects f(i, J) of all tuples J of the tokens ``seen`` (B, S, d) on the ``rows`` (B, M, d).

        The result is (B, H', M, S^(n-1)). ``c`` has the couplings of H' heads. In the last axis, the index of j1 varies
        slowest.
        """
        c, rows, seen = wide(c), wide(rows), wide(seen)
        if self.degree == 2:
            return torch.einsum("bmd,hade,bse->bhams", rows, c, seen).prod(2)
        effects = torch.einsum("bma,hap->bhmp", rows, c.flatten(2))
        for _ in range(self.degree - 1):  # the leading axis of d becomes the last axis, of tokens
            effects = torch.einsum("bhmdr,bsd->bhmrs", effects.unflatten(3, (self.width, -1)), seen).flatten(3)
        return effects

    def _values(self, w: Tensor, seen: Tensor) -> Tensor:
        """The values w(J) of all tuples J of the tokens ``seen`` (B, S, d): (B, H', S^(n-1), d2).

        ``w`` has the value weights of H' heads. In the axis of tuples, the index of j1 varies slowest.
        """
        w, seen = wide(w), wide(seen)
        if self.degree == 2:
            return torch.einsum("bsd,hadk->bhask", seen, w).prod(2)
        values = w.flatten(1).expand(seen.shape[0], -1, -1)
        for _ in range(self.degree - 1):
            values = torch.einsum("bhdr,bsd->bhrs", torch.unflatten(values, 2, (self.width, -1)), seen).flatten(2)
        return torch.unflatten(values, 2, (self.out_width, -1)).transpose(2, 3)
