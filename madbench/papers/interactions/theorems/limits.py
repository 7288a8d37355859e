"""Checks of the limits of linear attention: functions that it cannot represent, or only with an error.

Others check the number of effective weights of linear attention and of linear networks.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch
from numpy import ndarray as Array
from torch import Tensor, nn

from madbench.mixers import Check
from madbench.mixers.checks.residuals import maximum
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.theorems.representation import largest, linear_attention

SYMBOLS, AGENTS, KEPT = 16, 20, 4
VALUE_WIDTHS = (3, 9, 18)
"""Value widths d2 for the three cases of Theorem B.2 with d = 4 and |S| = 16: d2 <= d, d < d2 < |S|, |S| <= d2."""
TOO_FEW = (np.array([[1.0, -1.0], [1.0, -1.0]]), np.ones(2))
"""Effects (2, 2) of rank 1 and values (2,) of two symbols that no one-dimensional embedding represents."""
NETWORKS = ((2, 2), (2, 4), (3, 3), (4, 3), (5, 2))
"""The linear networks whose effective weights are counted, each as sequence length and number of symbols."""


def approximations() -> Iterator[Check]:
    """The checks of Theorem B.2, on linear attention whose tokens have fewer dimensions than there are symbols."""

    def shared_span() -> float:
        return maximum(*(_worst(*_problem(width, seed, True), False) for width in VALUE_WIDTHS for seed in range(3)))

    def wide_enough() -> float:
        return maximum(*(_worst(*_problem(width, seed, False), True) for width in VALUE_WIDTHS for seed in range(3)))

    what = (
        "With the d largest directions of effects, errors stay below the bound in all three cases of d2, "
        "where the singular vectors of effects, on both sides, and of values are the same."
    )
    yield Check("narrow vectors", what, "Theorem B.2", shared_span, 1.0)
    what = (
        "For any effects and values the bound of rank d holds in an embedding that spans the left and the right "
        "singular vectors kept and the values kept, at most 3 d wide."
    )
    yield Check("wide approximation", what, "Theorem B.2, mended", wide_enough, 1.0)
    what = (
        "In general it does not hold at width d: of rank 1, the bound is 0, and no embedding in one dimension "
        "gets below 1 an agent."
    )
    yield Check(
        "approximation in general", what, "against Theorem B.2", least_error, 0.5, is_difference=True, contradicts=True
    )


def _problem(width: int, seed: int, is_shared: bool) -> tuple[Array, Array]:
    """Random effects F (S, S) with falling singular values, and random values W (S, d2), where d2 is ``width``.

    If ``is_shared``, the left and right singular vectors of F and the left singular vectors of W are the same.
    """
    generator = np.random.default_rng(seed)
    left, right = (np.linalg.qr(generator.normal(size=(SYMBOLS, SYMBOLS)))[0] for _ in range(2))
    sizes = generator.uniform(0.5, 1.5, SYMBOLS) * 2.0 ** -np.arange(SYMBOLS)
    values = generator.normal(size=(SYMBOLS, width)) * 1.5 ** -np.arange(width)
    if is_shared:
        right = left * generator.choice([-1, 1], SYMBOLS)
        rank = min(width, SYMBOLS)
        turned = np.linalg.qr(generator.normal(size=(width, width)))[0]
        values = (left[:, :rank] * 1.5 ** -np.arange(rank)) @ turned[:rank]
    return (left * sizes) @ right.T, values


def _worst(effects: Array, values: Array, is_wide: bool) -> float:
    """The largest ratio of an agent's error to the bound of Theorem B.2, over random and nearly constant sequences.

    ``effects`` is (S, S) and ``values`` is (S, d2). The attention keeps the 4 largest singular directions of both. Its
    embedding spans the left singular directions of the effects. If ``is_wide`` is true, the embedding also spans the
    right singular directions of the effects and the left singular directions of the values.
    """
    left, sizes, right = np.linalg.svd(effects)
    directions, scales, turned = np.linalg.svd(values, full_matrices=False)
    kept = (left[:, :KEPT] * sizes[:KEPT]) @ right[:KEPT]
    kept_values = (directions[:, :KEPT] * scales[:KEPT]) @ turned[:KEPT]
    spanned = [left[:, :KEPT]]
    if is_wide:
        spanned += [right[:KEPT].T, directions[:, : min(KEPT, values.shape[1])]]
    vectors = np.linalg.qr(np.concatenate(spanned, axis=1))[0]
    symbols = np.random.default_rng(0).integers(SYMBOLS, size=(200, AGENTS))
    pairs = np.array([*itertools.product(range(SYMBOLS), repeat=2)])
    alike = np.repeat(pairs[:, 1:], AGENTS, axis=1)
    alike[:, 0] = pairs[:, 0]
    symbols = np.concatenate([symbols, alike])
    actual = linear_attention(vectors.T @ kept @ vectors, vectors.T @ kept_values, vectors[symbols])
    expected = np.einsum("nij,njd->nid", effects[symbols[:, :, None], symbols[:, None]], values[symbols])
    bound = np.linalg.norm(values, axis=1).max() * sizes[KEPT]
    bound += abs(kept).max() * np.sqrt((scales[KEPT:] ** 2).sum())
    return float(np.linalg.norm(actual - expected, axis=-1).max() / (AGENTS * bound))


def least_error() -> float:
    """The smallest error per agent of linear attention of width 1 on ``TOO_FEW``, minus the bound of Theorem B.2.

    ``TOO_FEW`` are effects F (2, 2) and values w (2,) of two symbols. The error is the largest |output - F_ij w_j| over
    the pairs of symbols i, j. The theorem bounds the error at width 1 by a multiple of the second singular value of F.
    The bound is 0 here, because F has rank 1. A positive result therefore contradicts the theorem.

    If symbol i has the embedding b_i, a number, the output for a pair is a b_i b_j^2 with a = C W. Its sign is the same
    for every j, but F_ij w_j has both signs. The error is minimized over a grid of a and of the direction of b, whose
    scale is absorbed in a. The best pair of a and b is measured again with :func:`linear_attention`.
    """
    effects, values = TOO_FEW
    angles, sizes = np.linspace(0, np.pi, 721), np.linspace(-8, 8, 641)
    b = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    outputs = sizes[:, None, None, None] * (b[:, :, None] * b[:, None] ** 2)
    errors = abs(outputs - effects * values).max((-2, -1))
    size, angle = np.unravel_index(errors.argmin(), errors.shape)
    vectors = b[angle][:, None]
    alike = np.array([[0, 0], [1, 1], [0, 1]])
    actual = linear_attention(np.full((1, 1), sizes[size]), np.ones(1), vectors[alike])
    expected = [[sum((effects * values)[i, j] for j in row) for i in row] for row in alike]
    bound = 2 * abs(values).max() * np.linalg.svd(effects)[1][1]
    return min(float(errors.min()), largest(actual - expected) / 2) - float(bound)


def parameters() -> Iterator[Check]:
    """The checks of Theorem 3.2 on the number of effective weights of linear attention and of a linear network.

    One of the checks shows that a network that is linear in the tokens themselves leaves an error.
    """

    def of_attention() -> float:
        return max(abs(attention_weights(length, 3) - 9) for length in (2, 3, 5, 8))

    def of_network() -> float:
        return max(
            abs(network_weights(length, size) - length * size * (1 + (length - 1) * (size - 1)))
            for length, size in NETWORKS
        )

    def least() -> float:
        return max(length**2 * size**2 / 2 / network_weights(length, size) for length, size in NETWORKS)

    def of_tokens() -> float:
        symbols = np.array([*itertools.product(range(3), repeat=3)])
        effects = np.random.default_rng(0).normal(size=(3, 3))
        tokens = np.eye(3)[symbols].reshape(len(symbols), -1)
        values = effects[symbols[:, :, None], symbols[:, None]].sum(-1)
        fitted = tokens @ np.linalg.lstsq(tokens, values, rcond=None)[0]
        return float(np.linalg.norm(values - fitted) / np.linalg.norm(values - values.mean(0)))

    source = "Theorem 3.2"
    what = "Linear attention has |S|^2 weights that decide its function, C_ab w_b, at every length."
    yield Check("parameters by length", what, source, of_attention)
    what = "A linear network of the tokens alone leaves an error: what is linear has to be their products."
    yield Check("linear in tokens", what, source, of_tokens, 0.1, is_difference=True)
    what = "Of products of two tokens, sharing nothing, it has L |S| (1 + (L - 1)(|S| - 1)) weights that decide."
    yield Check("parameters of a network", what, f"{source}, its number", of_network)
    what = "These are L^2 |S|^2 / 2 or more. That no weight is shared is the theorem's premise, not its result."
    yield Check("parameters by length squared", what, source, least, 1.0)


def attention_weights(length: int, symbols: int) -> int:
    """The number of effective weights of linear attention on sequences of ``length`` tokens.

    It is the rank of the Jacobian of the outputs with respect to C and w. The outputs are those of random sequences of
    ``symbols`` symbols.
    """
    generator = torch.Generator().manual_seed(0)
    operator = Coupling(1, symbols, 1, causal=False).double()
    drawn = [torch.randn(parameter.shape, generator=generator).double() for parameter in operator.parameters()]
    x = torch.eye(symbols).double()[torch.randint(symbols, (60, length), generator=generator)]
    names = [name for name, _ in operator.named_parameters()]

    def outputs(*values: Tensor) -> Tensor:
        y: Tensor = torch.func.functional_call(operator, dict(zip(names, values)), (x,))
        return y.flatten()

    with torch.enable_grad():
        slopes = torch.autograd.functional.jacobian(outputs, tuple(drawn))
    return int(torch.linalg.matrix_rank(torch.cat([slope.flatten(1) for slope in slopes], dim=1)))


def network_weights(length: int, symbols: int) -> int:
    """The number of effective weights of a linear network on products of two tokens.

    The network has L = ``length`` outputs, which share no weights. Output i is a linear map of the products of token i
    with every token. These products form a matrix with one row per sequence of ``symbols`` symbols. The rank of the
    matrix is the number of effective weights of output i. The result is the sum of the ranks.
    """
    sequences = np.array([*itertools.product(range(symbols), repeat=length)])
    tokens = np.eye(symbols)[sequences]
    products = (np.einsum("na,njb->njab", tokens[:, i], tokens).reshape(len(tokens), -1) for i in range(length))
    return sum(int(np.linalg.matrix_rank(of_output)) for of_output in products)


def layers() -> Iterator[Check]:
    """The checks of Remark F.6: stacked layers of linear attention do not represent products of two features."""

    def most_interaction() -> float:
        return maximum(*(interaction(stack_of(depth, skips, (1,))) for depth in (2, 3) for skips in (False, True)))

    what = (
        "Two layers of linear attention, three as well and with skips, are linear in the row's token: of features a "
        "and b side by side they give g(a) + g'(b), whatever their heads, and no product."
    )
    yield Check("two layers", what, "Remark F.6; the argument is ours", most_interaction, 1e-9)
    what = "So they miss a sum of products f(a_i, a_j) f'(b_i, b_j) by a quarter of its interaction at least."
    yield Check(
        "two layers miss", what, "Remark F.6, eq. 41", lambda: interaction(products) / 4, 0.1, is_difference=True
    )


def stack_of(depth: int, has_skips: bool, orders: Sequence[int]) -> Callable[[Tensor], Tensor]:
    """A stack of ``depth`` layers with random weights, as a function of x (B, L, 6) -> (B, L, 6).

    A layer is a :class:`Coupling` of three heads that see all tokens. ``orders`` are those of its heads. If
    ``has_skips``, each layer adds its input to its output.
    """
    generator = torch.Generator().manual_seed(depth)
    stack = nn.ModuleList(Coupling(3, 6, 6, orders=orders, causal=False).double() for _ in range(depth))
    for parameter in stack.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64) / 3

    def output(x: Tensor) -> Tensor:
        for layer in stack:
            x = layer(x) + x * has_skips
        return x

    return output


def products(x: Tensor) -> Tensor:
    """Map tokens (B, L, 6) to sums of products of two effects, (B, L, 1).

    A token has a feature a and a feature b, each of width 3. Row i of the result is sum_j f(a_i, a_j) f'(b_i, b_j),
    where f and f' are random bilinear forms.
    """
    f = torch.randn(2, 3, 3, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    a, b = x.chunk(2, dim=-1)
    return ((a @ f[0] @ a.mT) * (b @ f[1] @ b.mT)).sum(-1, keepdim=True)


def interaction(function: Callable[[Tensor], Tensor]) -> float:
    """The interaction of two features in the outputs y(a, b) of a function: |y(0, 0) - y(0, 1) - y(1, 0) + y(1, 1)|.

    y(a, b) is the output of ``function`` for a token with the features a and b. The function is called once, with one
    sequence (1, 7, 6) that begins with the four tokens. The result is the largest interaction of any output channel,
    divided by the largest absolute output of the sequence. It is 0 if y(a, b) is the sum of a function of a and a
    function of b.
    """
    symbols = torch.tensor([(0, 0), (0, 1), (1, 0), (1, 1), (0, 0), (2, 1), (1, 2)])
    x = torch.cat([torch.eye(3).double()[symbols[:, side]] for side in range(2)], dim=-1)[None]
    with torch.no_grad():
        y = function(x)[0]
    return float((y[0] - y[1] - y[2] + y[3]).abs().max() / y.abs().max())
