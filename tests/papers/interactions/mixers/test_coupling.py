"""Full coupling matrices and tensors equal their explicit sums, in outputs and gradients."""

from __future__ import annotations

import itertools

import pytest
import torch

from madbench.errors import TrainingError
from madbench.papers.interactions.mixers.coupling import Coupling

KINDS = {"": lambda newer, older: newer >= older, "s": lambda newer, older: newer > older, "a": lambda *_: True}


def tuples_of(row, length, degree, tuples, causal):
    """The tuples (j1, .., j_(n-1)) that a row sees, found by trying all tuples."""
    found = itertools.product(range(length), repeat=degree - 1)
    found = (tokens for tokens in found if all(KINDS[tuples](*pair) for pair in itertools.pairwise(tokens)))
    return [tokens for tokens in found if not causal or max(tokens) <= row]


def explicit_sum(coupling, x, orders, product):
    """The explicit sums of matrices (Def. 5.1) and of tensors (Def. 6.1), the latter index by index."""
    length, width = x.shape
    rows = []
    for i in range(length):
        y = torch.zeros(coupling.out_width, dtype=x.dtype)
        for h, (c, w) in enumerate(zip(coupling.c, coupling.w)):
            for tokens in tuples_of(i, length, coupling.degree, coupling.tuples, coupling.causal):
                if coupling.degree == 2:
                    j = tokens[0]
                    effect = torch.stack([x[i] @ c[a] @ x[j] for a in range(orders[h])]).prod()
                    value = torch.stack([x[j] @ w[a] for a in range(orders[h] if product else 1)]).prod(0)
                else:
                    effect, value = torch.zeros((), dtype=x.dtype), torch.zeros_like(y)
                    for index in itertools.product(range(width), repeat=coupling.degree - 1):
                        at = torch.stack([x[j, b] for j, b in zip(tokens, index)]).prod()
                        effect = effect + (x[i] @ c[(slice(None), *index)]) * at
                        value = value + w[index] * at
                y = y + effect * value
        rows.append(y)
    return torch.stack(rows)


CASES = {
    "C1": {},
    "C3": {"orders": (3,)},
    "C2w": {"orders": (2,), "product": True},
    "C1+2": {"orders": (1, 2)},
    "C1+2w": {"orders": (1, 2), "product": True},
    "C3 ordered": {"degree": 3},
    "C3 strict": {"degree": 3, "tuples": "s"},
    "C3 all": {"degree": 3, "tuples": "a"},
    "C4 ordered": {"degree": 4},
    "C4 strict": {"degree": 4, "tuples": "s"},
}


@pytest.mark.slow
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", CASES)
def test_every_path_and_decoding_equal_the_explicit_sum(name, causal):
    case = CASES[name]
    generator = torch.Generator().manual_seed(0)
    coupling = Coupling(2, 2, 1 if case.get("degree") == 4 else 3, **case, causal=causal, chunk=2).double()
    with torch.no_grad():
        for parameter in coupling.parameters():
            parameter.normal_(generator=generator)
    x = torch.randn(4, 2, generator=generator).double().requires_grad_()
    orders = [order for order in case.get("orders", (1,)) for _ in range(2 // len(case.get("orders", (1,))))]
    expected = explicit_sum(coupling, x, orders, case.get("product", False))
    variables = (x, *coupling.parameters())
    expected_gradients = torch.autograd.grad(expected.square().sum(), variables)
    for path in ("reference", "dense", "chunked"):
        coupling.path = path
        y = coupling(x[None])[0]
        torch.testing.assert_close(y, expected, rtol=0, atol=1e-10)
        gradients = torch.autograd.grad(y.square().sum(), variables)
        largest = max(gradient.abs().max() for gradient in expected_gradients)
        for gradient, of_expected in zip(gradients, expected_gradients):
            torch.testing.assert_close(gradient, of_expected, rtol=0, atol=1e-11 * float(largest))
    if causal:
        cache, rows = None, []
        for token in x:
            row, cache = coupling.step(token[None], cache)
            rows.append(row[0])
        torch.testing.assert_close(torch.stack(rows), expected, rtol=0, atol=1e-10)


def test_sliding_steps_of_a_coupling_equal_a_fresh_window():
    coupling = Coupling(1, 3, degree=3, max_len=2)
    tokens, cache = torch.randn(4, 1, 3), None
    for token in tokens:
        y, cache = coupling.step(token, cache, slide=True)
    torch.testing.assert_close(y, coupling(tokens[2:].transpose(0, 1))[:, -1])


def test_products_are_float32_under_autocast():
    coupling = Coupling(1, 4, orders=(3,))
    x = torch.randn(1, 5, 4)
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(coupling(x), coupling(x.double().float()), rtol=0, atol=0)
        assert coupling(x).dtype == torch.float32


def test_couplings_that_are_too_large_or_undefined_are_refused_before_allocation():
    with pytest.raises(
        TrainingError, match="degree 3 at 64 x 5,000 tokens, path 'dense', needs .* these would fit: one sequence"
    ):
        Coupling(1, 2, degree=3, path="dense")(torch.zeros(64, 5000, 2))
    with pytest.raises(TrainingError, match="degree 9 at width 64: a coupling of .* entries needs"):
        Coupling(1, 64, degree=9)
    with pytest.raises(TrainingError, match="0 tokens"):
        Coupling(1, 2)(torch.zeros(1, 0, 2))
    with pytest.raises(TrainingError, match="bidirectional"):
        Coupling(1, 2, causal=False).step(torch.zeros(1, 2))
    with pytest.raises(TrainingError, match="path 'dens' is not known; did you mean 'dense'"):
        Coupling(1, 2, path="dens")
