"""MesaNet: its rows are ridge regressions. Blocks beside loops, and the whole layer of flash-linear-attention."""

from __future__ import annotations

import functools

import pytest
import torch

import block_borders
from library_layers import NEEDS_LIBRARY, in_float64, keep_float64, load_both_ways, unit, use_plain_modules
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.named import ops
from madbench.mixers.named.operators import mesanet_solve
from madbench.mixers.recurrence.forms import scores


def inputs(length, least_log=-1.0):
    """Inputs of two heads: queries, keys, strengths, gates of all sizes down to ``least_log``, and ridges."""
    torch.manual_seed(0)
    q, k = torch.randn(2, 1, 2, length, 5).double()
    beta, log_alpha = torch.rand(2, 1, 2, length).double()
    return q, k, beta, least_log * log_alpha**4, 0.25 + torch.rand(2, 5).double()


@pytest.mark.parametrize("most_kept", [2**25, 0])
@pytest.mark.parametrize("least_log", [-1, -1e3])
@pytest.mark.parametrize("length", [1, 2, 3, 15, 16, 17, 32, 33, 40])
def test_blocks_give_the_queries_and_states_of_the_loop_at_any_length(length, least_log, most_kept, monkeypatch):
    monkeypatch.setattr(mesanet_solve, "MOST_KEPT", most_kept)
    q, k, beta, log_alpha, ridge = inputs(length, least_log)
    root = torch.randn(1, 2, 5, 5).double()
    for start in (None, root @ root.mT):
        squares, rows = torch.zeros_like(root) if start is None else start, []
        for t in range(length):
            new = beta[:, :, t, None, None] * k[:, :, t, :, None] * k[:, :, t, None]
            squares = log_alpha[:, :, t, None, None].exp() * squares + new
            rows.append((torch.linalg.inv(squares + torch.diag_embed(ridge)) @ q[:, :, t, :, None]).squeeze(-1))
        found, last = mesanet_solve.solve_queries(q, k, beta, log_alpha, ridge, start)
        assert difference(found, torch.stack(rows, dim=2)) < 1e-12 and difference(last, squares) < 1e-12


@pytest.mark.parametrize("most_kept", [2**25, 0])
@pytest.mark.parametrize("length", block_borders.LENGTHS)
def test_gradients_prompts_and_steps_equal_the_loops_at_block_borders(length, most_kept, monkeypatch):
    monkeypatch.setattr(mesanet_solve, "MOST_KEPT", most_kept)
    cache, stepped = block_borders.caches_at_border("MesaNet", length)
    assert difference(cache.state, stepped.state) < 1e-13
    assert difference(cache.carried["squares"], stepped.carried["squares"]) < 1e-13


def one_sequence(layer, x):
    """q, k, v (H, T, .), alpha and beta (H, T) of a layer and one sequence."""
    q, k = (
        ops.convolve_silu(linear(x), conv.weight.squeeze(1), None, None)[0]
        for linear, conv in ((layer.q_proj, layer.q_conv1d), (layer.k_proj, layer.k_conv1d))
    )
    q, k, v = (ops.wide_heads(side, 2)[0] for side in (q, k, layer.v_proj(x)))
    return unit(q), unit(k), v, layer.a_proj(x)[0].T.sigmoid(), layer.b_proj(x)[0].T.sigmoid()


def read_outs(layer, x):
    d = layer.operator.rows(layer, x, None).dynamics
    return (scores(d).tril() @ d.v)[0]


@torch.no_grad()
def test_a_row_is_the_ridge_regression_of_values_on_keys_weighted_by_strength_and_decay():
    layer, x = filled_mixer(lambda: build("MesaNet", 16, 40, n_head=2), batch=1)
    q, k, v, alpha, beta = one_sequence(layer, x)
    ridge = torch.nn.functional.softplus(layer.lambda_params).view(2, -1) + 0.25
    y = read_outs(layer, x)
    for h in range(2):
        for t in (0, 5, 17, 39):
            decay = torch.stack([alpha[h, j + 1 : t + 1].prod() for j in range(t + 1)])
            weight = (beta[h, : t + 1] * decay).sqrt()[:, None]
            keys = torch.cat((weight * k[h, : t + 1], torch.diag(ridge[h].sqrt())))
            values = torch.cat((weight * v[h, : t + 1], v.new_zeros(v.shape[-1], v.shape[-1])))
            assert difference(y[h, t], q[h, t] @ torch.linalg.lstsq(keys, values).solution) < 1e-12


@torch.no_grad()
def test_with_a_large_ridge_it_is_linear_attention_with_decay():
    layer, x = filled_mixer(lambda: build("MesaNet", 16, 40, n_head=2), batch=1)
    layer.lambda_params.fill_(1e13)
    q, k, v, alpha, beta = one_sequence(layer, x)
    c = alpha.log().cumsum(-1)
    weights = (q @ k.mT * (c[:, :, None] - c[:, None]).exp()).tril() * beta[:, None]
    assert difference(1e13 * read_outs(layer, x), weights @ v) < 1e-12


def theirs(layer):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims = layer.dims
    return fla.layers.MesaNet(hidden_size=dims.d, num_heads=dims.heads, head_dim=dims.key)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["MesaNet", "MesaNet!"])
    def test_state_dicts_and_initial_ridges_equal_the_librarys(self, label):
        load_both_ways(label, theirs)
        layer = build(label, 32, 8, n_head=2)
        torch.testing.assert_close(theirs(layer).lambda_params, layer.lambda_params)

    @pytest.mark.parametrize("length", [1, 17, 65])
    def test_outputs_and_states_equal_the_librarys_layer_with_its_exact_form(self, length, monkeypatch):
        from fla.layers import mesa_net
        from fla.ops.mesa_net import naive

        layer, x = filled_mixer(lambda: build("MesaNet", 32, length, n_head=2))
        states = []

        def chunks(q, k, v, g, beta, lamb, **_):
            o, *last = naive.naive_mesa_net_exact(unit(q), unit(k), v, g, lamb, beta)
            states.extend(last)
            return o, *last

        use_plain_modules(monkeypatch)
        keep_float64(monkeypatch)
        monkeypatch.setattr(mesa_net, "chunk_mesa_net", chunks)
        monkeypatch.setattr(torch, "zeros", functools.partial(torch.zeros, dtype=torch.float64))
        other = theirs(layer).double()
        other.load_state_dict(layer.state_dict())
        expected = other(x)[0]
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.carried["squares"], states[0]) < 1e-13 and difference(cache.state, states[1]) < 1e-13

    def test_the_librarys_conjugate_gradients_do_not_reach_the_solution(self, monkeypatch):
        from fla.ops.mesa_net import naive

        monkeypatch.setattr(torch, "zeros", functools.partial(torch.zeros, dtype=torch.float64))
        q, k, beta, log_alpha, ridge = inputs(64)
        q, k, v = (side.transpose(1, 2) for side in (unit(q), unit(k), torch.randn(1, 2, 64, 5).double()))
        rows = (q, k, v, log_alpha.transpose(1, 2), ridge, beta.transpose(1, 2))
        exact = in_float64(naive, naive.naive_mesa_net_exact)(*rows)[0]
        solved, _ = mesanet_solve.solve_queries(
            *(side.transpose(1, 2) for side in (q, k, rows[5], rows[3])), ridge, None
        )
        decay = (log_alpha.cumsum(-1)[..., None] - log_alpha.cumsum(-1)[..., None, :]).exp()
        weights = (solved @ k.transpose(1, 2).mT * decay).tril() * beta[:, :, None]
        assert difference(weights @ v.transpose(1, 2), exact.transpose(1, 2)) < 1e-13
        for steps in (30, 100):
            near = in_float64(naive, naive.naive_mesa_net_CG)(*rows, chunk_size=16, max_CG_iteration=steps)[0]
            assert 1e-6 < difference(near, exact) < 1e-2
