"""The probe of a mixer of another family reproduces its output or its scores."""

from __future__ import annotations

import math

import pytest
import torch

import madbench
from madbench.mixers.named.attention import Attention
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.probe import by_lag
from madbench.papers.interactions.mixers.coupling import Coupling
from madbench.papers.interactions.mixers.tuples import visible_tuples


def mixer_and_input(label, **settings):
    torch.manual_seed(0)
    mixer = madbench.build(label, d_model=16, max_len=8, budget="paper", **settings).double().requires_grad_(False)
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return mixer, torch.randn(2, 7, 16).double()


def read(weights, v):
    """The output of weights by lag applied to the values (B, H, T, C)."""
    o = torch.zeros_like(v)
    for t in range(v.shape[2]):
        for lag in range(t + 1):
            o[:, :, t] += weights[:, :, t, lag, None] * v[:, :, t - lag]
    return o.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("label", ["cd:exp-sum-p", "cd:relu-sum", "cd:id-ss", "cd:krelu-sum"])
def test_probed_coefficients_by_lag_reproduce_the_output(label):
    mixer, x = mixer_and_input(label)
    probe = mixer.probe(x)
    v = mixer.v(x).unflatten(-1, (2, -1)).transpose(1, 2)
    torch.testing.assert_close(mixer.o(read(probe.weights, v)), mixer(x), rtol=1e-9, atol=1e-12)
    assert (probe.active is None) == ("relu" not in label)
    if probe.active is not None:
        assert torch.equal(probe.active, probe.weights != 0) and 0 < probe.active.double().mean() < 1
    assert ("lambda" in probe.gates) == label.endswith("ss")


OWN_GATES = {
    "FoX": ["forget"],
    "FoX(gate)": ["forget", "output"],
    "PaTH": ["beta/2"],
    "PaTH(forget)": ["beta/2", "forget"],
    "NSA": ["chosen", "means", "window"],
}
"""The gates of labels whose operator has a ``probed_gates`` of its own."""
WITH_CACHE = [name for name, operator in OPERATORS.items() if issubclass(operator, Attention)]


def expected_gates(label, operator, tokens):
    """The names of the gates that a probe of the operator shows. A new operator need not be in ``OWN_GATES``."""
    if type(operator).probed_gates is not Attention.probed_gates:
        return OWN_GATES.get(label, sorted(operator.probed_gates(tokens)))
    return [] if tokens.gate is None else ["output"]


@pytest.mark.parametrize("label", sorted({*OWN_GATES, *WITH_CACHE}))
def test_probed_weights_of_a_named_operator_reproduce_the_output(label):
    mixer, x = mixer_and_input(label)
    probe, tokens = mixer.probe(x), mixer.operator.tokens(mixer, x, 0, None)
    o = read(probe.weights, mixer.operator.seen(mixer, tokens)["v"]).unflatten(-1, (2, -1)).transpose(1, 2)
    torch.testing.assert_close(mixer.operator.read_out(mixer, o, x, tokens), mixer(x), rtol=1e-9, atol=1e-12)
    assert sorted(probe.gates) == expected_gates(label, mixer.operator, tokens)
    assert all(gate.shape[:2] == (2, 7) and 0 < gate.min() and gate.max() < 1 for gate in probe.gates.values())
    if "forget" in probe.gates:
        gate = mixer.g_proj if label.startswith("PaTH") else mixer.f_proj
        torch.testing.assert_close(probe.gates["forget"], gate(x).sigmoid(), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label", ["hfa:2", "hfa:2-p", "hfa:L2"])
def test_probed_weights_of_hfa_labels_reproduce_the_output(label):
    mixer, x = mixer_and_input(label)
    probe = mixer.probe(x)
    v = mixer.v(x).unflatten(-1, (2, -1)).transpose(1, 2)
    torch.testing.assert_close(mixer.o(read(probe.weights, v)), mixer(x), rtol=1e-9, atol=1e-12)


def test_scores_are_products_over_the_interaction_matrices():
    mixer, x = mixer_and_input("hfa:2")
    probe, product = mixer.probe(x), 1
    for matrix in probe.matrices.values():
        product = product * torch.einsum("btd,hde,bse->bhts", x, matrix, x)
    torch.testing.assert_close(probe.scores, by_lag(product.tril()), rtol=1e-9, atol=1e-12)
    coupled, x = mixer_and_input("hfa:C2")
    effects = coupled.probe(x)
    expected = torch.stack([torch.einsum("btd,hde,bse->bhts", x, m, x) for m in effects.matrices.values()]).prod(0)
    torch.testing.assert_close(effects.weights, by_lag(expected.tril()), rtol=1e-9, atol=1e-12)


def test_interaction_matrices_of_pairs_equal_attention_scores():
    mixer, x = mixer_and_input("ha:3")
    q, k, _ = mixer.project(x)
    (matrix,) = mixer.probe(x).matrices.values()
    scores = torch.einsum("bhtk,bhsk->bhts", q, k)
    torch.testing.assert_close(torch.einsum("btd,hde,bse->bhts", x, matrix, x), scores, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("label", ["ha:3", "ha:3s", "ha:3a", "ha:3u!", "ha:L3", "ha:4", "ha:5s", "ha:2+3u!"])
def test_the_weight_of_a_token_is_the_sum_over_its_tuples(label):
    mixer, x = mixer_and_input(label)
    q, k, _ = mixer.project(x)
    slots, weights = mixer.degree - 1, mixer.probe(x).weights
    first, of_head = mixer.slots
    keys = [k[0, first + m % of_head] for m in range(slots)]
    for t in (0, 3, 6):
        effects = {}
        for tokens in visible_tuples(t + 1, slots, mixer.tuples):
            product = math.prod(key[j] for key, j in zip(keys, tokens))
            effects[tokens] = float(q[0, 1, t] @ product)
        if not mixer.linear:
            total = sum(map(math.exp, effects.values()))
            effects = {tokens: math.exp(z) / total for tokens, z in effects.items()}
        for lag in range(t + 1):
            expected = sum(effect * tokens.count(t - lag) for tokens, effect in effects.items()) / slots
            assert float(weights[0, 1, t, lag]) == pytest.approx(expected, abs=1e-9)


def test_a_coupling_of_tuples_shows_how_each_slot_acts_on_average():
    torch.manual_seed(0)
    mixer, x = Coupling(2, 4, degree=4).double(), torch.randn(3, 5, 4, dtype=torch.float64)
    mean, c = x.mean((0, 1)), mixer.c
    expected = {"slot 1": "hijkl,k,l->hij", "slot 2": "hikjl,k,l->hij", "slot 3": "hiklj,k,l->hij"}
    found = mixer.probe(x).matrices
    assert found.keys() == expected.keys()
    for name, product in expected.items():
        torch.testing.assert_close(found[name], torch.einsum(product, c, mean, mean))
