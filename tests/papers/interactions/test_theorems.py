"""The theorems hold for the operators, and their checks find planted faults in operators and targets."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from madbench.labels import parse
from madbench.mixers.checks import run_checks
from madbench.papers.interactions import theorems
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.theorems import appendix_b, limits
from madbench.papers.interactions.theorems import training as module
from madbench.papers.interactions.worlds import Colliding, Hunters
from madbench.suites import checks_of


@pytest.fixture
def clear_trained_models():
    """Clear cached trained models before and after each test."""
    caches = (module._train, module._train_allies, module._triple_problem)
    for cache in caches:
        cache.cache_clear()
    yield
    for cache in caches:
        cache.cache_clear()


def outcomes(label: str, *names: str) -> dict[str, bool]:
    checks = [check for check in theorems.checks(parse(label)) if check.run and (not names or check.name in names)]
    return {check.name: check.holds(check.run()) for check in checks}


@pytest.mark.parametrize("label", [pytest.param("hfa:C1", marks=pytest.mark.slow), "hfa:C3w", "ha:C3"])
def test_all_theorems_hold(label):
    held = outcomes(label)
    assert held and all(held.values())


@pytest.mark.slow
def test_linear_attention_represents_learns_and_generalizes():
    names = [
        "every pairwise function",
        "effects of shifts",
        "no narrower width",
        "narrow approximation",
        "genes",
        "pixels",
    ]
    names += [
        "genes at another length",
        "time series",
        "gradients of the loss",
        "convergence",
        "versatile data",
        "row sums say less",
    ]
    names += ["limit, one_hot", "test and length, one_hot", "learned matrix, one_hot"]
    assert outcomes("hfa:C1", *names) == dict.fromkeys(names, True)


POLICIES = ("agents of two policies", "distinct agents of two policies", "other agents alone")
PIXELS = ("pixels as a convolution", "offsets of any size", "beyond 3 x 3")


def test_agents_of_two_policies_and_pixels_are_represented():
    assert outcomes("hfa:C1", *POLICIES, *PIXELS) == dict.fromkeys([*POLICIES, *PIXELS], True)


def test_one_series_for_all_pairs_of_policies_represents_no_two_policies(monkeypatch):
    sound = appendix_b._couplings
    monkeypatch.setattr(appendix_b, "_couplings", lambda f: sound(np.broadcast_to(f[:1, :1], f.shape)))
    held = outcomes("hfa:C1", *POLICIES)
    assert held == {POLICIES[0]: False, POLICIES[1]: False, POLICIES[2]: True}


def test_the_theorem_on_large_offsets_fails_for_a_small_kernel(monkeypatch):
    monkeypatch.setattr(appendix_b.Pixels, "OFFSETS", ((0, 0), (0, 1)))
    assert not outcomes("hfa:C1", "beyond 3 x 3")["beyond 3 x 3"]


def test_convolution_theorems_fail_with_transposed_couplings(monkeypatch):
    sound = appendix_b.linear_attention
    monkeypatch.setattr(appendix_b, "linear_attention", lambda c, w, x: sound(c.T, w, x))
    assert not any(outcomes("hfa:C1", "offsets of any size").values())


@pytest.mark.slow
def test_the_limits_of_single_layers_are_measured():
    names = ["narrow vectors", "wide approximation", "approximation in general", "parameters by length"]
    names += ["linear in tokens", "parameters of a network", "parameters by length squared"]
    assert outcomes("hfa:C1", *names) == dict.fromkeys(names, True)
    names = ["two layers", "two layers miss"]
    assert outcomes("hfa:C3", *names) == dict.fromkeys(names, True)


def test_couplings_of_other_singular_values_miss_the_bound(monkeypatch):
    sound = np.linalg.svd

    def svd(matrix, **how):
        left, sizes, right = sound(matrix, **how)
        return left, np.roll(sizes, -2) if matrix.shape == (limits.SYMBOLS,) * 2 else sizes, right

    worst = limits._worst(*limits._problem(3, 0, True), False)
    monkeypatch.setattr(np.linalg, "svd", svd)
    assert limits._worst(*limits._problem(3, 0, True), False) > 1 > worst


def test_an_embedding_without_the_right_singular_vectors_misses_the_bound():
    """The proof takes any matrix of rank d; rows and columns of the couplings lie in one space."""
    assert limits._worst(*limits._problem(3, 0, False), False) > 1


def test_the_counterexample_fails_if_one_dimension_represents_the_pair(monkeypatch):
    monkeypatch.setattr(limits, "TOO_FEW", (np.ones((2, 2)), np.ones(2)))
    assert not outcomes("hfa:C1", "approximation in general")["approximation in general"]


@pytest.mark.slow
def test_the_theorem_on_parameters_fails_for_position_dependent_weights(monkeypatch):
    sound = Coupling.forward

    def forward(self, x, *given):
        places = torch.arange(1, x.shape[1] + 1).double()
        return sound(self, x, *given) * places[:, None] + (x @ self.c[0, 0] * places[:, None] ** 2).sum(-1)[..., None]

    monkeypatch.setattr(Coupling, "forward", forward)
    assert not outcomes("hfa:C1", "parameters by length")["parameters by length"]


def test_the_theorems_on_network_size_fail_for_shared_weights(monkeypatch):
    sound = np.einsum

    def summed(how, *given):
        made = sound(how, *given)
        return made.sum(1, keepdims=True) if how == "na,njb->njab" else made

    monkeypatch.setattr(np, "einsum", summed)
    held = outcomes("hfa:C1", "parameters of a network", "parameters by length squared")
    assert held == {"parameters of a network": False, "parameters by length squared": False}


def test_two_layers_of_products_are_not_additive(monkeypatch):
    sound = limits.stack_of
    monkeypatch.setattr(limits, "stack_of", lambda depth, has_skips, orders: sound(depth, has_skips, (2,)))
    assert not outcomes("hfa:C3", "two layers")["two layers"]


def test_labels_without_couplings_have_no_theorem_checks():
    assert not [*theorems.checks(parse("hfa:L1")), *theorems.checks(parse("ha:4")), *theorems.checks(parse("ha:C4"))]


@pytest.mark.slow
def test_verify_runs_the_theorems_and_measures_gradients_under_no_grad():
    label = parse("ha:C3")
    names = [check.name for check in theorems.checks(label)]
    assert names == [check.name for check in checks_of(label)]
    assert names == [outcome.check.name for outcome in run_checks(label, checks_of)][-len(names) :]
    with torch.no_grad():
        assert outcomes("hfa:C1", "gradients of the loss")["gradients of the loss"]


def test_the_theorems_on_representation_fail_for_a_causal_operator(monkeypatch):
    original = Coupling.__init__

    def causal(self, *args, **how):
        original(self, *args, **how | {"causal": True})

    monkeypatch.setattr(Coupling, "__init__", causal)
    held = outcomes("hfa:C1", "every pairwise function", "gradients of the loss")
    assert held == {"every pairwise function": False, "gradients of the loss": False}


@pytest.mark.slow
def test_a_value_without_the_agent_itself_is_not_learned_at_every_length(monkeypatch, clear_trained_models):
    monkeypatch.setattr(module, "_problem", lambda world, problem=module._problem: without_itself(problem(world)))

    def without_itself(found):
        counts, targets = found
        return counts, targets + 1

    assert not outcomes("hfa:C1", "test and length, one_hot")["test and length, one_hot"]


def test_the_theorems_on_coupled_features_fail_with_swapped_factors(monkeypatch):
    solution = Hunters.solution.fget

    def swapped(world):
        c, w = solution(world)
        return c[:, [0, 2, 1]].swapaxes(0, 1).copy(), w

    monkeypatch.setattr(Hunters, "solution", property(swapped))
    assert not any(outcomes("hfa:C3", "coupled features", "value product").values())


def test_descend_equals_gradient_descent_on_the_operator():
    world = Colliding(positions=6, radius=1, length=4, samples=30, embedding="sinusoidal")
    symbols, values = world.data("train", 4, 0)
    counts, targets = module._problem(world)
    given = module.descend(counts, counts, targets, 0.001, 5, world.vectors, world.vectors)

    operator = Coupling(1, 6, 1, causal=False).double()
    x, y = torch.from_numpy(world.vectors[symbols]), torch.from_numpy(values)
    with torch.no_grad():
        operator.c.zero_()
        operator.w.copy_(torch.linalg.solve(torch.from_numpy(world.vectors), torch.ones(6).double())[:, None])
    losses = []
    for _ in range(5):
        loss = (operator(x)[..., 0] - y).square().sum() / len(x)
        losses.append(loss.item())
        grads = torch.autograd.grad(loss, [operator.c, operator.w])
        with torch.no_grad():
            for parameter, grad in zip((operator.c, operator.w), grads):
                parameter -= 0.001 * grad
    np.testing.assert_allclose(given.losses, losses, rtol=1e-12)
    np.testing.assert_allclose(given.c, operator.c.detach()[0, 0], atol=1e-13)
