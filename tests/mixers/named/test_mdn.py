"""Momentum DeltaNet: blocks beside loops, Gated DeltaNet without momentum, and the layer of flash-linear-attention."""

from __future__ import annotations

import pytest
import torch

import block_borders
from library_layers import NEEDS_LIBRARY, in_float64, keep_float64, load_both_ways, unit, use_plain_modules
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.named.operators.mdn_rule import momentum_rule
from madbench.mixers.recurrence.forms import Dynamics, Mirrors, scores

NAMES = ("memory", "momentum")


def inputs(length, least_log=-1.0):
    """Inputs of two heads for the rule: keys of any length, and gates of all sizes down to ``least_log``."""
    torch.manual_seed(0)
    q, k, v, p = torch.randn(4, 1, 2, length, 5).double()
    log_alpha, log_mu = least_log * torch.rand(2, 1, 2, length).double() ** 4
    return q, k / 3, v[..., :3], p / 3, log_alpha, log_mu, torch.rand(1, 2, length).double()


def output_by_loops(q, k, v, p, log_alpha, log_mu, beta, before):
    memory, momentum = before or 2 * (torch.zeros(1, 2, q.shape[-1], v.shape[-1]).double(),)
    rows = []
    for t in range(q.shape[2]):
        error = v[:, :, t, None] - p[:, :, t, None] @ memory
        momentum = log_mu[:, :, t, None, None].exp() * momentum - k[:, :, t, None].mT @ error
        memory = log_alpha[:, :, t, None, None].exp() * memory - beta[:, :, t, None, None] * momentum
        rows.append((q[:, :, t, None] @ memory).squeeze(-2))
    return torch.stack(rows, dim=2), (memory, momentum)


@pytest.mark.parametrize("least_log", [-1, -1e3])
@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9, 13])
def test_blocks_give_the_rows_and_states_of_the_loop_at_any_length(length, least_log):
    rows, before = inputs(length, least_log), tuple(torch.randn(2, 1, 2, 5, 3).double())
    for start in (None, before):
        expected, states = output_by_loops(*rows, start)
        for size in (1, 4, 64):
            found, last = momentum_rule(*rows, start, size)
            assert difference(found, expected) < 1e-13
            assert all(difference(one, other) < 1e-13 for one, other in zip(last, states))


@pytest.mark.parametrize("length", block_borders.LENGTHS)
def test_gradients_prompts_and_steps_equal_the_loops_at_block_borders(length):
    cache, stepped = block_borders.caches_at_border("MDN", length)
    assert all(difference(cache.carried[name], stepped.carried[name]) < 1e-13 for name in NAMES)


def test_without_momentum_it_is_gated_deltanet():
    layer, x = filled_mixer(lambda: build("MDN", 16, 40, n_head=2))
    q, k, v, windows = (torch.randn(2, 2, 40, each).double() for each in (8, 8, 6, 1))
    log_alpha, log_mu, beta, eta = layer.operator.coefficients(layer, x)
    k = unit(k)
    y, _ = momentum_rule(
        q, eta[..., None] * k, v, log_alpha.exp()[..., None] * k, log_alpha, 0 * log_mu - 1e4, beta, None, 16
    )
    strength = beta * eta
    d = Dynamics(q, k * strength[..., None], v, log_alpha[..., None], Mirrors(k, strength, length=strength))
    assert difference(y, scores(d).tril() @ v) < 1e-14


def test_the_decay_and_the_strength_of_momentum_sum_to_less_than_one():
    layer, x = filled_mixer(lambda: build("MDN", 16, 40, n_head=2), std=1)
    log_alpha, log_mu, beta, eta = layer.operator.coefficients(layer, x)
    assert (log_mu >= -2).all() and (log_mu == -2).any() and (log_alpha < 0).all()
    assert (beta + log_alpha.exp() < 1).all() and (0 < eta).all() and (eta < 2).all()


def test_float32_keeps_the_digits_of_long_sequences():
    layer, x = filled_mixer(lambda: build("MDN", 16, 1024, n_head=2), batch=1)
    expected = layer(x)
    assert difference(layer.float()(x.float()).double(), expected) < 1e-5


def test_initial_values_are_in_the_ranges_of_the_library():
    torch.manual_seed(0)
    layer = build("MDN!", 64, 8, n_head=16)
    for name, most in (("log_factor", 4), ("D_log", 1), ("Mu_log", 16), ("A_log", 16)):
        values = getattr(layer, name).exp()
        assert 0 < values.min() and most / 2 < values.max() < most, name
    assert torch.equal(layer.mu_bias, layer.dt_bias)
    assert 0.018 < layer.v_proj.weight.std() < 0.022 and (layer.o_norm.weight == 1).all()


def theirs(layer, **options):
    """The library's layer with the widths of ours."""
    from fla.layers import momentum_deltanet

    dims = layer.dims
    widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
    return momentum_deltanet.MomentumDeltaNet(hidden_size=dims.d, **widths, **options)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["MDN", "MDN(neg)!"])
    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("label", ["MDN", "MDN(neg)"])
    @pytest.mark.parametrize("length", [1, 17, 65])
    def test_outputs_and_states_equal_the_librarys_layer_with_its_recurrence(self, label, length, monkeypatch):
        from fla.layers import momentum_deltanet
        from fla.ops.momentum_delta_rule import naive

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        states, recurrence = [], in_float64(naive, naive.recurrent_momentum_delta_rule_ref)

        def chunks(q, k, v, log_alpha, log_mu, p, beta, eta, use_p_times_alpha, **_):
            assert use_p_times_alpha
            p = log_alpha.exp()[..., None] * unit(p)
            o, state = recurrence(unit(q), unit(k), v, log_alpha, log_mu, p, beta, eta, output_final_state=True)
            states.extend(state)
            return o, state

        use_plain_modules(monkeypatch)
        keep_float64(monkeypatch)
        monkeypatch.setattr(momentum_deltanet, "chunk_momentum_delta_rule", chunks)
        other = theirs(layer, allow_neg_eigval=layer.operator.neg).double()
        other.load_state_dict(layer.state_dict())
        with torch.no_grad():
            expected = other(x)[0]
            y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert all(difference(cache.carried[name], state) < 1e-13 for name, state in zip(NAMES, states, strict=True))

    def test_the_librarys_plain_chunks_add_a_millionth_to_beta(self):
        from fla.ops.momentum_delta_rule import naive

        q, k, v, p, log_alpha, log_mu, beta = inputs(65)
        rows = (side.transpose(1, 2) for side in (q, k, v, p, log_alpha, log_mu, beta, torch.ones_like(beta)))
        found, _ = in_float64(naive, naive.chunk_momentum_delta_rule_ref)(*rows, scale=1.0)
        exact, added = (momentum_rule(q, k, v, p, log_alpha, log_mu, each, None, 16)[0] for each in (beta, beta + 1e-6))
        found = found.transpose(1, 2)
        assert difference(found, exact) > 1e-7 and difference(found, added) < 1e-12
