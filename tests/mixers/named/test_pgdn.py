"""Preconditioned Gated DeltaNet: with M = 1 it is GDN. Beside the whole layer of flash-linear-attention."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from library_layers import NEEDS_LIBRARY, in_float64, keep_float64, load_both_ways, unit, use_plain_modules
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.named.operators import pgdn


@pytest.mark.parametrize("arguments", ["", "(neg)"])
@torch.no_grad()
def test_with_a_preconditioner_of_one_it_is_gated_deltanet(arguments, monkeypatch):
    layer, x = filled_mixer(lambda: build(f"PGDN{arguments}!", 16, 40, n_head=2))
    gdn = build(f"GDN{arguments}!", 16, 40, n_head=2).double()
    gdn.load_state_dict({name: each for name, each in layer.state_dict().items() if "atk" not in name})
    assert difference(layer(x), gdn(x)) > 1e-3
    monkeypatch.setattr(pgdn, "BASE", 1.0)
    assert difference(layer(x), gdn(x)) < 1e-14


@torch.no_grad()
def test_the_preconditioner_shrinks_channels_with_large_squares_within_bounds():
    layer, x = filled_mixer(lambda: build("PGDN", 16, 40, n_head=2), std=1)
    keys = layer.operator.rows(layer, x, None).dynamics.mirrors.read
    m, _ = layer.operator.preconditioner(layer, x, keys, None)
    assert 1 / 1.5 < m.min() and m.max() < 1.5
    first, share = keys[:, :, 0].square(), layer.b_atk_proj(x[:, 0]).sigmoid()[..., None]
    above = (first * share + 1e-6).log() > layer.log_atk_scale[:, None]
    assert torch.equal(m[:, :, 0] < 1, above)


def theirs(layer, **options):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims = layer.dims
    widths = {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key}
    return fla.layers.PrecondGatedDeltaNet(hidden_size=dims.d, **widths, **options)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["PGDN", "PGDN(neg)!"])
    def test_state_dicts_and_initial_values_equal_the_librarys(self, label):
        load_both_ways(label, theirs)
        layer = build(label, 32, 8, n_head=2)
        assert torch.equal(theirs(layer).log_atk_scale, layer.log_atk_scale)

    @pytest.mark.parametrize("label", ["PGDN", "PGDN(neg)"])
    @pytest.mark.parametrize("length", [1, 17, 65])
    def test_outputs_and_states_equal_the_librarys_layer_with_its_recurrence(self, label, length, monkeypatch):
        from fla.layers import precond_gated_deltanet
        from fla.ops.precond_gated_delta_rule import naive

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        recurrence = in_float64(naive, naive.naive_recurrent_precond_gated_delta_rule)
        recurrence.__globals__["F"] = SimpleNamespace(normalize=lambda side, **_: unit(side))  # epsilon of its kernels
        states = []

        def chunks(use_qk_l2norm_in_kernel, output_final_state, **inputs):
            found = recurrence(**inputs, output_final_state=True)
            states.extend(found[1:])
            return found

        use_plain_modules(monkeypatch)
        keep_float64(monkeypatch)
        monkeypatch.setattr(precond_gated_deltanet, "chunk_precond_gated_delta_rule", chunks)
        other = theirs(layer, allow_neg_eigval=layer.operator.neg).double()
        other.load_state_dict(layer.state_dict())
        expected = other(x)[0]
        y, cache = layer.prefill(x)
        assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
        assert difference(cache.state, states[0]) < 1e-13
        assert difference(cache.carried["squares"], states[1].flatten(1)) < 1e-13
