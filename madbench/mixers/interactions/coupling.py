"""The theory's operators, labels with base ``C``: coupling matrices and tensors in full (Def. 5.1, 6.1, F.2)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn

from madbench.errors import TrainingError, did_you_mean
from madbench.mixers.interactions.memory import check_memory, fitting_length
from madbench.mixers.interactions.reference import coupling_reference
from madbench.mixers.interactions.sums import visible
from madbench.mixers.interactions.tuples import ORDERED
from madbench.mixers.precision import wide, without_autocast
from madbench.mixers.probe import Probe, by_lag
from madbench.mixers.recompute import again

PATHS = ("auto", "reference", "dense", "chunked")
DENSE_LIMIT_BYTES = 2**28  # of the largest tensor of the dense path


class Coupling(nn.Module):
    """Interactions of whole tokens, heads summed, each of the full width, without projections, softmax or scale::

        hfa:CA    y = sum_h ( prod_a X C^(h,a) X^T ) ( X W^(h) )               Def. 5.1, F.2; order 1 is eq. 1
        hfa:CAw   y = sum_h ( prod_a X C^(h,a) X^T ) ( prod_a X W^(h,a) )      Def. 5.1 as printed, eq. 36
        ha:Cn     y_i = sum_h sum_J C^(h)[x_i, x_j1, x_j2, ..] W^(h)[x_j1, x_j2, .., :]      Def. 6.1

    with Hadamard products, and J the tuples of :mod:`madbench.mixers.interactions.tuples`, j1 the newest token (the
    paper's Def. 6.1 orders upward, G.1 downward: the same sets). Causal, i >= j1, where the paper sees all tokens.

    Args:
        heads: H.
        width: d, of a token.
        out_width: d2, of the output; ``width`` unless given.
        orders: A of each part of the heads, parts of equal size; for ``degree`` 2 only.
        degree: n, tokens of an interaction, the row's own among them.
        product: with the value product (``w``).
        tuples: the kind of tuples, for ``degree`` above 2.
        causal: whether row i sees tokens 0 .. i, or all.
        path: ``auto``, ``reference`` (float64 loops over rows, heads and tuples), ``dense`` (all rows at once) or
            ``chunked`` (blocks of ``chunk`` rows, recomputed in the backward pass).
        max_len: tokens that a sliding :meth:`step` keeps.

    Parameters ``c`` and ``w``, from N(0, 0.02^2): (H, A, d, d) and (H, 1 or A, d, d2), with several orders ``c.<h>``
    and ``w.<h>`` without the first axis; of degree n > 2 (H, d, .., d) with n axes of d, and (H, d, .., d, d2) with
    n - 1.
    """

    paths = PATHS

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
        causal: bool = True,
        path: str = "auto",
        max_len: int | None = None,
        chunk: int = 128,
    ):
        super().__init__()
        if path not in PATHS:
            raise TrainingError(f"path {path!r} is not known{did_you_mean(path, PATHS)}")
        if heads % len(orders):
            raise TrainingError(f"{len(orders)} orders need a number of heads that is a multiple of that, got {heads}")
        self.width, self.out_width, self.degree, self.tuples = width, out_width or width, degree, tuples
        self.causal, self.path, self.max_len, self.chunk = causal, path, max_len, chunk
        if degree > 2:
            shapes = [((width,) * degree, (*(width,) * (degree - 1), self.out_width))] * heads
        else:
            of_head = [order for order in orders for _ in range(heads // len(orders))]
            shapes = [((a, width, width), (a if product else 1, width, self.out_width)) for a in of_head]
        parameters = sum(math.prod(one) for of_head in shapes for one in of_head)
        what = f"degree {degree} at width {width}: a coupling of {parameters:,} entries"
        check_memory(
            torch.empty(0), 4 * parameters, what, "take a smaller width, a lower degree or factored effects, base L"
        )
        if len(set(orders)) == 1:
            self.c, self.w = (nn.Parameter(torch.empty(heads, *shape)) for shape in shapes[0])
        else:
            self.c, self.w = (nn.ParameterList(map(torch.empty, one)) for one in zip(*shapes))
        for parameter in self.parameters():
            nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, d) -> (B, T, d2). Raises ``TrainingError`` for no tokens, and where memory does not suffice."""
        batch, length, _ = x.shape
        if length == 0:
            raise TrainingError("0 tokens; a sequence has at least one")
        path = self.resolve_path(batch, length)
        if path == "reference":
            return coupling_reference(list(self.c), list(self.w), x, self.degree, self.tuples, self.causal).to(x.dtype)
        rows = length if path == "dense" else min(self.chunk, length)
        needed = self._largest_bytes(batch, rows, length)
        fits = f"a sequence of {fitting_length(x, lambda n: self._largest_bytes(1, min(rows, n), n))} tokens would fit"
        check_memory(x, needed, f"degree {self.degree} at {batch} x {length} tokens, path {path!r},", fits)
        values = [self._values(w, x) for _, w in self._groups()]
        if path == "dense":
            return self._rows(x, x, 0, *values)
        starts = range(0, length, rows)
        return torch.cat([again(self._rows, x[:, at : at + rows], x, at, *values) for at in starts], dim=1)

    @torch.no_grad()
    def probe(self, x: Tensor) -> Probe:
        """Effects where rows see their past, and coupling matrices: of each factor, or of each slot of a higher degree.

        A slot's matrix is how a token there acts on the row's on average: the other slots have the mean token of ``x``.
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
        """The coupling tensor as a matrix (H, d, d) of the row's token and a slot's, ``mean`` (d,) in the others."""
        found = self.c.movedim(slot + 2, 2)
        while found.dim() > 3:
            found = found @ mean
        return found

    def step(self, x: Tensor, cache: Tensor | None = None, slide: bool = False) -> tuple[Tensor, Tensor]:
        """Decodes one token: x (B, d) -> output (B, d2) and the cache, the inputs so far (B, t, d).

        ``slide`` keeps the newest ``max_len``. A bidirectional operator has no step: its first outputs wait for the
        last.
        """
        if not self.causal:
            raise TrainingError("a bidirectional mixer cannot decode token by token; build it with causal=True")
        row = x[:, None]
        seen = row if cache is None else torch.cat((cache, row), dim=1)
        if slide and self.max_len:
            seen = seen[:, -self.max_len :]
        values = [self._values(w, seen) for _, w in self._groups()]
        return self._rows(row, seen, seen.shape[1] - 1, *values)[:, 0], seen

    def resolve_path(self, batch: int, length: int) -> str:
        """The path that :meth:`forward` takes for an input of this shape."""
        if self.path != "auto":
            return self.path
        is_small = length <= self.chunk or self._largest_bytes(batch, length, length) <= DENSE_LIMIT_BYTES
        return "dense" if is_small else "chunked"

    def _largest_bytes(self, batch: int, rows: int, length: int) -> int:
        """Of a block's effects of every factor and the values of all tuples, in float32."""
        factors = len(self.c) if self.degree > 2 else sum(map(len, self.c))
        return 4 * batch * length ** (self.degree - 1) * (factors * rows + len(self.c) * self.out_width)

    def _groups(self) -> Iterator[tuple[Tensor, Tensor]]:
        """C and W of heads with equally many factors, (H', A, d, d) and (H', 1 or A, d, d2)."""
        if isinstance(self.c, nn.Parameter):
            yield self.c, self.w
            return
        for order in dict.fromkeys(len(c) for c in self.c):
            heads = [h for h, c in enumerate(self.c) if len(c) == order]
            yield tuple(torch.stack([of[h] for h in heads]) for of in (self.c, self.w))

    def _rows(self, rows: Tensor, seen: Tensor, first_row: int, *values: Tensor) -> Tensor:
        """Rows (B, M, d) from position ``first_row`` on, of tokens seen (B, S, d) and their values -> (B, M, d2)."""
        y = 0.0
        hidden = ~visible(self.degree - 1, self.tuples, seen, self.causal, first_row, rows.shape[1])
        with without_autocast(rows):
            for (c, _), value in zip(self._groups(), values):
                y = y + (self._effects(c, rows, seen).masked_fill(hidden, 0) @ value).sum(1)
        return y.to(rows.dtype)

    def _effects(self, c: Tensor, rows: Tensor, seen: Tensor) -> Tensor:
        """f(i, J) of rows and all tuples of the tokens seen, (B, H', M, S^(n-1)), j1 the slowest."""
        rows, seen = wide(rows), wide(seen)
        if self.degree == 2:
            return torch.einsum("bmd,hade,bse->bhams", rows, c, seen).prod(2)
        effects = torch.einsum("bma,hap->bhmp", rows, c.flatten(2))
        for _ in range(self.degree - 1):  # the leading axis of d becomes the last one, of tokens
            effects = torch.einsum("bhmdr,bsd->bhmrs", effects.unflatten(3, (self.width, -1)), seen).flatten(3)
        return effects

    def _values(self, w: Tensor, seen: Tensor) -> Tensor:
        """w(J) of all tuples of the tokens seen, (B, H', S^(n-1), d2)."""
        with without_autocast(seen):
            seen = wide(seen)
            if self.degree == 2:
                return torch.einsum("bsd,hadk->bhask", seen, w).prod(2)
            values = w.flatten(1).expand(len(seen), -1, -1)
            for _ in range(self.degree - 1):
                values = torch.einsum("bhdr,bsd->bhrs", values.unflatten(2, (self.width, -1)), seen).flatten(2)
            return values.unflatten(2, (self.out_width, -1)).transpose(2, 3)
