"""Checks of untrained mixers of ``hfa:`` and ``ha:``. Trained mixers are checked by the modules in ``theorems/``."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from madbench.mixers import Check, Size
from madbench.mixers import build as build_mixer
from madbench.mixers.checks import ordinary, path_checks
from madbench.mixers.checks.bfloat16_checks import bfloat16_checks
from madbench.mixers.checks.residuals import decode_tokens, difference, filled_mixer
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.mixers.tuples import ALL, STRICT, count_tuples

if TYPE_CHECKING:
    from madbench.mixers.mixer import Mixer
    from madbench.papers.interactions.mixers.ha.operator import HyperAttention
    from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention
    from madbench.papers.interactions.mixers.mixer import FactoredMixer, InteractionMixer

ROUNDING = 1e-10
EXACT = 1e-12
SHIFT, SHIFTS = 11, (11, 64, 257, 300)  # positions by which a sequence is shifted
MIXED = 3e-2  # error of rows in bfloat16
FAR = 66  # tokens, more than fit into any block of positions
LONGER = (17, 33)  # additional lengths for pairs; loops over longer tuples would take too long
MOST_TUPLES = 1500  # limit of the tuples of all rows in the loops of a reference
MOST_GRID = 120_000  # limit of the tuples in one tensor
MOST_ORDINARY = 130_000  # limit of t^n for t tokens and degree n at an ordinary size
LEAST_ORDINARY = 8  # smallest number of tokens at an ordinary size
MOST_IN_LOOPS = 1300  # limit of the tuples of the rows that loops compute at an ordinary size
MOST_ENTRIES = 30_000  # limit of the entries of a coupling at an ordinary size


def checks(family: Any, label: Any) -> Iterable[Check]:
    """The checks of a label's mixer. A check that does not apply to the label has the reason as its ``reason``."""
    mixer = _CheckedMixer(family, label)
    yield from mixer.path_checks()
    yield from _ordinary_checks(family, label)
    yield from mixer.definition_checks()
    yield from mixer.position_checks()
    yield from mixer.paper_checks()


@dataclass(frozen=True)
class _CheckedMixer:
    """The checks of a label's mixer at small sizes, in four groups."""

    family: Any
    label: Any

    @property
    def is_linear(self) -> bool:
        return bool(self.label.base == "L")

    @property
    def base_text(self) -> str:
        return {"": "softmax", "L": "linear", "C": "full coupling"}[self.label.base]

    def check(
        self,
        name: str,
        statement: str,
        source: str,
        run: Callable[..., float],
        tolerance: float,
        unless: str = "",
        **options: Any,
    ) -> Check:
        """A check that calls ``run`` with a small mixer and a sequence, made by :func:`_sample` with ``options``.

        ``unless`` is the reason why the check does not apply. Empty if it applies.
        """

        def residual() -> float:
            return run(*_sample(self.family, self.label, **options))

        return Check(name, statement, source, residual, tolerance, reason=unless)

    def path_checks(self) -> Iterator[Check]:
        """The checks that all paths and decoding compute the results of loops."""
        label, n, size = self.label, self.label.degree, small_size(self.label)
        yield self.check("causality", "A changed token does not change earlier rows.", "J within 0 .. i", _causality, 0)
        make = functools.partial(_make, self.family, label)
        lengths = (1, 2, size.max_len, *(LONGER if n == 2 else ()))
        source, what = "Def. F.3, G.1, G.3, 5.1, 6.1", "the results of loops over rows, heads and tuples"
        loops = path_checks.Loops(make)
        paths = ("dense", "chunked", "linear_time") if self.is_linear else ("dense", "chunked")
        options: dict[str, Any] = {
            "what": what,
            "lengths": lengths,
            "cpu": replace(path_checks.CPU, tolerance=ROUNDING),
        }
        yield from path_checks.path_checks(loops, paths, source, **options)
        yield from path_checks.path_checks(loops, ["step"], "decoding", name="steps", **options)
        what = f"Decoding token by token gives the rows of all {FAR} tokens at once."
        unless = "" if n <= 3 else f"{FAR} tokens have too many tuples of {n - 1}"
        far = replace(size, max_len=FAR)
        yield self.check("far steps", what, "decoding", _steps, ROUNDING, unless, size=far)
        what = "Decoding a prompt at once, then token by token, gives the outputs and gradients of the parallel form."
        prompts = [prompt for prompt in path_checks.PROMPTS if prompt + path_checks.CONTINUED <= max(lengths)]
        unless = "" if prompts else f"loops can compute only {max(lengths)} tokens"
        for path in ("auto", "linear_time") if self.is_linear else ("auto",):
            of_path = functools.partial(_prompt, self.family, label, path, prompts)
            name = "prefill" if path == "auto" else f"prefill, {path}"
            yield Check(name, what, "decoding", of_path, ROUNDING, reason=unless)
        what = "Gradients equal finite differences."
        slopes = functools.partial(path_checks.slope_residual, make, size.max_len)
        yield Check("gradients", what, "autograd", slopes, path_checks.SLOPES)
        factors = max(getattr(label, "orders", (1,))) * (1 + getattr(label, "product", False))  # w: values are products
        yield from bfloat16_checks(make, paths, length=max(lengths), factors=factors)

    def definition_checks(self) -> Iterator[Check]:
        """The checks of windows, of other mixers that are equal to this one, and of the tuples of a row."""
        label, n = self.label, self.label.degree
        forgets = "a running sum cannot forget a token" if self.is_linear else ""
        what = "Steps of a sliding window give the last row of the window alone."
        yield self.check("sliding steps", what, "decoding", _sliding_steps, ROUNDING, forgets)
        kind = "orders 1" if n == 2 else "degree 2"
        what = f"With {kind} it equals softmax attention with the same weights, S-p with RoPE."
        unless = "" if label.base == "" else f"{self.base_text}, unlike softmax attention"
        yield self.check("softmax attention", what, "Def. F.3, G.1", _softmax_attention, EXACT, unless)
        unless = f"base {self.base_text}" if label.base else "softmax has no coupling matrix"
        unless = "" if self.is_linear else unless
        unless = unless or ("a coupling matrix has no positions" if label.rope else "")
        what = "Full coupling matrices or tensors W_q W_k / sqrt(e) give the same rows."
        size = small_size(label) if n == 2 else replace(small_size(label, n_head=1), d_model=max(3, len(label.parts)))
        yield self.check("full coupling", what, "Def. 5.1, 6.1", _full_coupling, ROUNDING, unless, size=size)
        unless = "" if label.base == "" else "weights are not normalized"
        what = "Without queries all tuples of a row have the same weight, so that 1 / weight is their number."
        yield self.check("mask", what, "eq. 39, Def. G.1", _equal_weights, 1e-6, unless)
        unless = "" if label.tuples == STRICT else "every row has tuples"
        what = "A row without tuples is zero, and all gradients are finite."
        yield self.check("empty rows", what, "Remark G.2", _empty_rows, 0, unless)

    def position_checks(self) -> Iterator[Check]:
        """The checks of rotary positions, and of the order of the tokens."""
        label, n = self.label, self.label.degree
        unless = "" if label.rope else "the label has no RoPE"
        what = "A sequence at later positions has the same rows."
        yield self.check("RoPE", what, "Remark F.5", _shift_error, ROUNDING, unless)
        what = "Under bfloat16 autocast too, rows are the same at positions that bfloat16 cannot represent."
        shift_error = functools.partial(_shift_error, is_mixed=True)
        yield self.check("RoPE in bfloat16", what, "Remark F.5", shift_error, MIXED, unless)
        if label.rope and n > 2:
            what = "If queries and keys of every slot are rotated as for pairs, scores depend on absolute positions."
            yield replace(self.check("naive rotation", what, "ours", _naive_rotation, 0.1), is_difference=True)
        unless = "RoPE distinguishes positions" if label.rope else ""
        if label.tuples == STRICT and small_size(label).max_len < n - 1:
            unless = "a sequence that has tuples is too long for a check"
        if not unless and n > 2 and label.tuples != ALL and (label.base == "C" or label.unshared):
            what = "A bidirectional mixer depends on the order of the tokens: slots differ, the first has the newest."
            order_check = self.check("depends on order", what, "Def. G.3", _permutation_error, 1e-6, causal=False)
            yield replace(order_check, is_difference=True)
        else:
            what = "For a bidirectional mixer, permuted tokens give permuted rows."
            yield self.check("permutation", what, "Def. F.3, G.1", _permutation_error, ROUNDING, unless, causal=False)

    def paper_checks(self) -> Iterator[Check]:
        """The checks of the paper's counts and of its other forms of the same mixer."""
        label, is_of_pairs = self.label, self.label.degree == 2
        what = "The number of parameters equals the paper's count and that of the allocation."
        yield self.check("counts", what, "Remark F.4, Table 1", _counts, 0)
        if self.is_linear:
            what = "Running sums equal the sums over all tuples."
            source = "eq. 42, 43" if label.tuples == ALL else "ours, after eq. 43"
            yield self.check("linear time", what, source, _linear_time, ROUNDING)
        if label.base == "C" and not is_of_pairs:
            unless = "" if label.tuples == ALL else "Theorem G.4 sums over all tuples"
            what = "C = f, W = w in the domain base give the full sum; so does the part of f w symmetric in j1, j2."
            yield self.check("symmetric part", what, "Theorem G.4", _representation, ROUNDING, unless)
        if label.base == "C" and is_of_pairs:
            unless = "" if max(label.orders) > 1 else "a single factor has a gradient at C = 0 (Theorem 4.4)"
            what = "At C = 0, a product of two or more factors has no gradient in C."
            yield self.check("start", what, "Def. 5.1", _gradient_at_zero, 0, unless)


def _ordinary_checks(family: Any, label: Any) -> Iterable[Check]:
    """The checks at the sizes of ordinary use. The other checks use smaller sizes.

    There are fewer tokens if tuples are long, and the width is smaller for full couplings.
    """
    n, parts = label.degree, len(label.parts)
    width = next((d for d in (ordinary.SIZE.d_model, 48, 24, 12) if d**n <= MOST_ENTRIES or label.base != "C"), 6)
    tokens = next((t for t in range(ordinary.TOKENS, LEAST_ORDINARY, -1) if t**n <= MOST_ORDINARY), LEAST_ORDINARY)
    rows, left = [0], MOST_IN_LOOPS
    for row in (tokens - 1, tokens // 2, tokens // 3):
        tuples = count_tuples(row + 1, n - 1, label.tuples)
        if tuples <= left:
            rows, left = [*rows, row], left - tuples
    size = replace(ordinary.SIZE, d_model=width, n_head=-(-ordinary.SIZE.n_head // parts) * parts)
    unless = f"{tokens} tokens have too many tuples of {n - 1}" if tokens == LEAST_ORDINARY else ""
    options: dict[str, Any] = {
        "size": size,
        "tokens": tokens,
        "rows": sorted(rows),
        "few_rows": sorted(rows),
        "unless": unless,
    }
    yield from ordinary.ordinary_checks(family, label, **options)


def small_size(label: Any, n_head: int = 0) -> Size:
    """A size at which loops over all tuples are fast enough for a check, with at most max(7, n) tokens for degree n.

    The factors of a head have unequal widths. ``n_head`` is the number of heads. If it is 0, there is one head per part
    of the label, but at least two.
    """
    n = label.degree
    heads = n_head or max(2, len(label.parts))
    width = heads * ((max(label.orders) + 1) * (1 + label.rope) if n == 2 else 4)
    if label.base == "C":
        width = 3 if n < 6 else 2

    def fits(length: int) -> bool:
        visited = sum(count_tuples(row + 1, n - 1, label.tuples) for row in range(length))
        return visited <= MOST_TUPLES and (label.base != "C" or length ** (n - 1) <= MOST_GRID)

    return Size(width, heads, next(filter(fits, range(max(7, n), 1, -1))), "paper")


def _make(family: Any, label: Any, path: str, length: int) -> tuple[Mixer, Tensor]:
    """Return a small mixer that takes the path ``path``, and an input (1, ``length``, d).

    Mixers that are made for different lengths have the same weights.
    """
    settings, size = family.Settings(), replace(small_size(label), max_len=max(small_size(label).max_len, *LONGER))
    mixer, x = filled_mixer(lambda: family.build(family.solve(label, size, settings), settings, path))
    return mixer, x[:1, :length]


def _sample(family: Any, label: Any, causal: bool = True, size: Size | None = None) -> tuple[InteractionMixer, Tensor]:
    """Return a small mixer that takes the dense path, and one sequence (1, T, d).

    ``size`` is the size of the mixer, by default :func:`small_size`.
    """
    settings = family.Settings()
    allocation = family.solve(label, size or small_size(label), settings)
    mixer, x = filled_mixer(lambda: family.build(allocation, settings, "dense", causal=causal))
    return cast("InteractionMixer", mixer), x[:1]


def _label_of(mixer: InteractionMixer) -> Any:
    return mixer.allocation.label


def _causality(mixer: InteractionMixer, x: Tensor) -> float:
    last = x.shape[1] - 1
    changed = x.clone()
    changed[:, last] += 1
    return float((mixer(changed) - mixer(x))[:, :last].abs().max())


def _steps(mixer: InteractionMixer, x: Tensor) -> float:
    return difference(decode_tokens(mixer, x), mixer(x))


def _prompt(family: Any, label: Any, path: str, prompts: Sequence[int]) -> float:
    def make(_: str, length: int) -> tuple[Mixer, Tensor]:
        mixer, x = _make(family, label, path, length)
        mixer.chunk = 2
        return mixer, x

    return path_checks.prefill_residual(make, prompts)


def _sliding_steps(mixer: InteractionMixer, x: Tensor) -> float:
    mixer.max_len = x.shape[1] - 1
    return difference(decode_tokens(mixer, x, slide=True)[:, -1], mixer.reference(x[:, 1:])[:, -1])


def _softmax_attention(mixer: InteractionMixer, x: Tensor) -> float:
    from madbench.papers.interactions.mixers.ha.operator import HyperAttention
    from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention

    d, heads, label = 16, 2, _label_of(mixer)
    attention = build_mixer("S-p" if label.rope else "S", d, 8, n_head=heads)
    mixer, x = filled_mixer(lambda: attention)
    if label.degree == 2:
        ours = HyperFeatureAttention(d, (1,) * heads, False, d, d, rope=label.rope, path="dense")
    else:
        ours = HyperAttention(d, (2,) * heads, label.unshared, label.tuples, d, d, rope=label.rope, path="dense")
    ours.double().load_state_dict(mixer.state_dict())
    return difference(ours(x), mixer(x))


def _full_coupling(mixer: HyperAttention | HyperFeatureAttention, x: Tensor) -> float:
    """The difference between the outputs of a factored mixer and of full couplings that compute the same function.

    There is one :class:`Coupling` per head. Its C is the product of the head's projections to queries and keys, and its
    W is the head's projection to values. The outputs of all couplings are concatenated and multiplied by W_o.
    """
    from madbench.papers.interactions.mixers.hfa.budget import factor_widths
    from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention

    label = _label_of(mixer)
    w, heads, d = mixer.state_dict(), mixer.n_head, x.shape[-1]
    of_heads = []
    if isinstance(mixer, HyperFeatureAttention):
        values = iter(w["v.weight"].split(mixer.d_vo))
        q_heads, k_heads = (w[f"{name}.weight"].view(heads, mixer.d_qk, d) for name in "qk")
        for order, q, k in zip(mixer.orders, q_heads, k_heads):
            widths = factor_widths(mixer.d_qk, order, False)
            coupling = Coupling(1, d, mixer.d_vo, orders=(order,), product=label.product).double()
            c = [a.T @ b / len(a) ** 0.5 for a, b in zip(q.split(widths), k.split(widths))]
            of_head = [next(values).T for _ in range(order if label.product else 1)]
            coupling.load_state_dict({"c": torch.stack(c)[None], "w": torch.stack(of_head)[None]})
            of_heads.append(coupling(x))
    else:
        q_heads = w["q.weight"].view(heads, -1, d)
        k_heads, v_heads = (w[f"{name}.weight"].view(sum(mixer.slots), -1, d).split(mixer.slots) for name in "kv")
        for degree, q, k, v in zip(mixer.degrees, q_heads, k_heads, v_heads):
            c, values = q * mixer.d_qk**-0.5, torch.ones(mixer.d_vo, dtype=q.dtype)
            for m in range(degree - 1):
                slot = min(m, len(k) - 1)
                c, values = _outer(c, k[slot]), _outer(values, v[slot])
            c, values = c.sum(0), values.movedim(0, -1)
            if degree == 2:  # couplings of degree 2 have an axis of factors
                c, values = c[None], values[None]
            coupling = Coupling(1, d, mixer.d_vo, degree=degree, tuples=label.tuples).double()
            coupling.load_state_dict({"c": c[None], "w": values[None]})
            of_heads.append(coupling(x))
    return difference(torch.cat(of_heads, dim=-1) @ w["o.weight"].T, mixer.reference(x))


def _outer(tensor: Tensor, matrix: Tensor) -> Tensor:
    """The outer product of each ``tensor[r]`` with the vector ``matrix[r]``: (R, ..) and (R, d) -> (R, .., d)."""
    return tensor[..., None] * matrix.view(len(matrix), *(1,) * (tensor.dim() - 1), -1)


def _equal_weights(mixer: FactoredMixer, x: Tensor) -> float:
    """The largest relative difference between 1 / weight of a tuple and the number of tuples, over rows and heads.

    Queries are set to zero, so that all tuples of a row must have the same weight. The outputs show the weight of a
    single tuple, because the values of a head are 1 for the first token and 0 for the others. For strict tuples, the
    values are 1 for the first n - 1 tokens, where n is the degree of the head.
    """
    tuples, residuals = _label_of(mixer).tuples, []
    mixer.q.weight.zero_()
    torch.nn.init.eye_(mixer.o.weight)
    for h, others in enumerate(n - 1 for n in getattr(mixer, "degrees", [2] * mixer.n_head)):
        ones = others if tuples == STRICT else 1
        x[..., 0] = torch.arange(x.shape[1]) < ones
        mixer.v.weight.zero_()[:, 0] = 1
        weights = mixer(x)[0, ones - 1 :, h * mixer.d_vo : (h + 1) * mixer.d_vo]
        rows = range(ones - 1, x.shape[1])
        counts = torch.tensor([count_tuples(i + 1, others, tuples) for i in rows], dtype=x.dtype)
        residuals.append((1 / weights / counts[:, None] - 1).abs().max())
    return float(max(residuals))


def _empty_rows(mixer: HyperAttention, x: Tensor) -> float:
    torch.nn.init.eye_(mixer.o.weight)
    with torch.enable_grad():
        variables = [x.requires_grad_(), *(parameter.requires_grad_() for parameter in mixer.parameters())]
        y = mixer(x)
        gradients = torch.autograd.grad(y.square().sum(), variables)
    unbounded = sum(int((~gradient.isfinite()).sum()) for gradient in gradients)
    of_heads = zip(mixer.degrees, y.detach().split(mixer.d_vo, dim=-1))
    return float(sum(rows[:, : degree - 2].abs().sum() for degree, rows in of_heads)) + unbounded


def _shift_error(mixer: InteractionMixer, x: Tensor, is_mixed: bool = False) -> float:
    if is_mixed:
        mixer, x = mixer.float(), x.float()
    with torch.autocast("cpu", torch.bfloat16, enabled=is_mixed):
        q, k, v = mixer.project(x)
        here, *there = (mixer.attend(mixer.rotate_query(q, at), mixer.rotate_key(k, at), v, 0) for at in (0, *SHIFTS))
    return max(difference(shifted, here) for shifted in there)


def _naive_rotation(mixer: HyperAttention, x: Tensor) -> float:
    from madbench.mixers.ops.rope import rotate

    q, k, _ = mixer.project(x)
    q, k = q[:, -1:], k[:, -mixer.slots[-1] :]  # of the head of the highest degree
    keys = [k[:, [min(m, mixer.slots[-1] - 1)]] for m in range(mixer.degree - 1)]

    def scores(at: int) -> Tensor:
        """The scores of the last row for tuples that repeat one token.

        The query and each key are rotated by ``at`` positions first.
        """
        product = cast(Tensor, math.prod(rotate(key, at) for key in keys))
        return rotate(q, at)[:, :, -1:] @ product.transpose(-1, -2)

    return max(difference(scores(at), scores(0)) for at in range(1, SHIFT + 1))


def _permutation_error(mixer: InteractionMixer, x: Tensor) -> float:
    order = torch.arange(x.shape[1] - 1, -1, -1).roll(1)
    return difference(mixer(x[:, order]), mixer(x)[:, order])


def _counts(mixer: InteractionMixer, x: Tensor) -> float:
    label, size = _label_of(mixer), mixer.allocation.size
    d, heads, n = size.d_model, size.n_head, label.degree
    numbers = label.by_head(heads)  # orders or degrees
    expected: int
    if label.base == "C":
        values = sum(numbers) if n == 2 and label.product else heads
        expected = sum(numbers) * d**2 + values * d**2 if n == 2 else 2 * heads * d**n
    elif n == 2:
        expected = (3 * heads + sum(numbers)) * d**2 // heads if label.product else 4 * d**2
    else:
        expected = 2 * sum(numbers) * d**2 // heads if label.unshared else 4 * d**2
    parameters = sum(parameter.numel() for parameter in mixer.parameters())
    return abs(parameters - expected) + abs(mixer.allocation.total - expected)


def _linear_time(mixer: InteractionMixer, x: Tensor) -> float:
    whole = mixer(x)
    mixer.path, mixer.chunk = "linear_time", 3
    return difference(mixer(x), whole)


def _representation(mixer: Coupling, x: Tensor) -> float:
    n, symbols = mixer.degree, 3 if mixer.degree < 6 else 2
    generator = torch.Generator().manual_seed(0)
    f = torch.randn(*(symbols,) * n, generator=generator, dtype=torch.float64)
    w = torch.randn(*(symbols,) * (n - 1), generator=generator, dtype=torch.float64)
    of_token = torch.randint(symbols, (4,), generator=generator)
    everywhere = (f * w)[torch.meshgrid(*(of_token,) * n, indexing="ij")]
    expected = everywhere.flatten(1).sum(1)
    symmetric = (f * w + (f * w).transpose(1, 2)) / 2
    coupling = Coupling(1, symbols, 1, degree=n, tuples=ALL, causal=False, path="dense").double()
    x, residuals = torch.eye(symbols, dtype=torch.float64)[of_token][None], []
    for c, values in ((f, w), (symmetric, torch.ones_like(w))):
        coupling.load_state_dict({"c": c[None], "w": values[None, ..., None]})
        residuals.append(difference(coupling(x)[0, :, 0], expected))
    return max(residuals)


def _gradient_at_zero(mixer: Coupling, x: Tensor) -> float:
    couplings = [mixer.c] if isinstance(mixer.c, nn.Parameter) else [*mixer.c]
    with torch.enable_grad():
        for c in couplings:
            c.requires_grad_().data.zero_()
        y = mixer(x)
        gradients = torch.autograd.grad(y.square().sum() + y.sum(), couplings)
    of_products = [gradient for gradient in gradients if gradient.shape[-3] > 1]
    return max(float(gradient.abs().max()) for gradient in of_products)
