"""Parallax beside flash-linear-attention, softmax attention, and the covariance in its definition."""

from __future__ import annotations

import pytest
import torch

from library_layers import NEEDS_LIBRARY, check_equal_layers, load_both_ways, run_on_cpu, softmax_attention
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer


def theirs(layer):
    """The library's layer with the widths of ours."""
    import fla.layers

    dims, norm = layer.dims, layer.operator.norm
    return fla.layers.Parallax(hidden_size=dims.d, num_heads=dims.heads, qk_norm=norm)


@pytest.mark.parametrize("label", ["Parallax!", "Parallax(norm)!"])
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("length", [1, 7, 65, 130])
    def test_the_layer_equals_the_librarys_with_its_reference_for_the_kernel(self, label, length, monkeypatch):
        from fla.layers import parallax
        from fla.ops.parallax.naive import naive_parallax

        layer, x = filled_mixer(lambda: build(label, 32, length, n_head=2))
        run_on_cpu(monkeypatch)
        monkeypatch.setattr(parallax, "parallel_parallax", lambda q, r, k, v, **options: naive_parallax(q, r, k, v))
        check_equal_layers(layer, theirs(layer).double(), x)


@torch.no_grad()
@pytest.mark.parametrize("path", ["dense", "blocks"])
def test_without_r_it_is_softmax_attention(path):
    layer, x = filled_mixer(lambda: build("Parallax!", 16, 11, n_head=2, path=path))
    assert difference(layer(x), softmax_attention(layer)(x)) > 0.1
    layer.r_proj.weight[:] = 0
    assert difference(layer(x), softmax_attention(layer)(x)) < 1e-13


def test_a_row_is_the_mean_of_values_minus_their_covariance_with_r_k():
    layer, x = filled_mixer(lambda: build("Parallax", 32, 13, n_head=2))
    tokens, operator = layer.operator.tokens(layer, x, 0, None), layer.operator
    q, r = tokens.q.chunk(2, dim=-1)
    k, v = tokens.cached["k"], tokens.cached["v"]
    weights = operator.weights(layer, tokens.q, tokens.cached, 0)
    assert (weights.sum(-1) - 1).abs().max() < 1e-13 and weights.min() < 0
    z = q @ k.mT * layer.dims.key**-0.5
    p = z.masked_fill(torch.ones(13, 13, dtype=torch.bool).triu(1), -torch.inf).softmax(-1)
    around_mean = (k[:, :, None] - (p @ k)[:, :, :, None]) @ r[..., None]  # r . (k_j - mean of k) in each row
    covariance = ((p * around_mean.squeeze(-1))[..., None] * v[:, :, None]).sum(-2)
    assert difference(operator.attend(layer, tokens.q, tokens.cached, 0), p @ v - covariance) < 1e-13
