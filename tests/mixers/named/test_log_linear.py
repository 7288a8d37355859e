"""Log-linear Mamba-2: blocks, steps and buckets beside loops, Mamba-2 at scales of one, and flash-linear-attention."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import block_borders
from library_layers import NEEDS_LIBRARY, keep_float64, load_both_ways, rms_norm
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.named.operators import log_linear_buckets as fenwick
from madbench.mixers.recurrence.forms import Dynamics, scores

LENGTHS = [1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 40]


def inputs(length, least_log=-1.0):
    """Inputs of two heads: queries, keys, values, gates of all sizes down to ``least_log``, and scales of all
    levels."""
    torch.manual_seed(0)
    q, k, v = torch.randn(3, 1, 2, length, 5).double()
    log_decay, scales = torch.rand(1, 2, length).double(), torch.rand(1, 2, length, fenwick.TOP + 1).double()
    return q, k, v[..., :3], least_log * log_decay**4, scales


def output_by_loops(q, k, v, log_decay, scales):
    """The output computed from the definition, by a loop over all pairs of rows."""
    rows = []
    for t in range(q.shape[2]):
        row = torch.zeros_like(v[:, :, 0])
        for s in range(t + 1):
            scale = scales[:, :, t, min((t ^ s).bit_length(), fenwick.TOP)]
            weight = scale * log_decay[:, :, s + 1 : t + 1].sum(-1).exp() * (q[:, :, t] * k[:, :, s]).sum(-1)
            row = row + weight[..., None] * v[:, :, s]
        rows.append(row)
    return torch.stack(rows, dim=2)


@pytest.mark.parametrize("top", [14, 3])
@pytest.mark.parametrize("length", LENGTHS)
def test_blocks_and_steps_equal_the_definition_at_any_length(length, top, monkeypatch):
    monkeypatch.setattr(fenwick, "TOP", top)
    for least_log in (-1, -1e3):
        rows = inputs(length, least_log)
        expected = output_by_loops(*rows)
        for size in (1, 4, 16, 64):
            assert difference(fenwick.read_buckets(*rows, size), expected) < 1e-12
        buckets, stepped = torch.zeros(1, 2, top, 5, 3).double(), []
        for t in range(length):
            token = (side[:, :, t : t + 1] for side in rows)
            row, buckets = fenwick.read_step(*token, buckets, torch.tensor([t]))
            stepped.append(row)
        assert difference(torch.cat(stepped, dim=2), expected) < 1e-12
        assert difference(fenwick.buckets_after(*rows[1:4]), buckets) < 1e-12


@pytest.mark.parametrize("length", LENGTHS)
def test_an_exported_program_has_the_same_buckets(length, monkeypatch):
    q, k, v, log_decay, scales = inputs(length)
    expected = fenwick.buckets_after(k, v, log_decay), fenwick.read_buckets(q, k, v, log_decay, scales, 4)
    monkeypatch.setattr(fenwick, "is_symbolic", lambda *_: True)
    monkeypatch.setattr(fenwick, "split_rows", lambda x, rows: x.unsqueeze(-3))
    found = fenwick.buckets_after(k, v, log_decay), fenwick.read_buckets(q, k, v, log_decay, scales, 4)
    assert all(difference(one, other) < 1e-14 for one, other in zip(found, expected))


def test_a_row_reads_one_bucket_per_binary_digit_one():
    _, k, v, log_decay, _ = inputs(13)
    sizes = fenwick.buckets_after(torch.ones_like(k), torch.ones_like(v), torch.zeros_like(log_decay))[0, 0, :, 0, 0]
    assert sizes.tolist() == [1, 0, 4, 8] + 10 * [0]


@pytest.mark.parametrize("length", block_borders.LENGTHS)
def test_gradients_prompts_and_steps_equal_the_loops_at_block_borders(length):
    block_borders.caches_at_border("LogLinearMamba-2", length)


@torch.no_grad()
def test_with_scales_of_one_it_is_mamba_2():
    mamba, x = filled_mixer(lambda: build("Mamba-2!", 16, 40, n_head=2))
    mamba.conv1d.bias.zero_()
    layer = build("LogLinearMamba-2!", 16, 40, n_head=2).double()
    for name in ("A_log", "dt_bias", "D", "conv1d.weight", "norm.weight", "out_proj.weight"):
        layer.get_parameter(name).copy_(mamba.get_parameter(name))
    weight = mamba.in_proj.weight
    layer.in_proj.weight.copy_(F.pad(weight, (0, 0, 0, len(layer.in_proj.weight) - len(weight))))
    assert difference(layer(x), mamba(x)) > 1e-3
    layer.in_proj.bias[len(weight) :] = torch.e - 1
    layer.in_proj.bias[len(weight) :].log_()  # softplus of this is 1
    assert difference(layer(x), mamba(x)) < 1e-13
    q, k, v, log_decay, scales = inputs(40)
    y = fenwick.read_buckets(q, k, v, log_decay, torch.ones_like(scales), 16)
    assert difference(y, scores(Dynamics(q, k, v, log_decay[..., None])).tril() @ v) < 1e-14


def test_initial_values_equal_the_librarys():
    torch.manual_seed(0)
    layer = build("LogLinearMamba-2!", 64, 8, n_head=16)
    torch.testing.assert_close(layer.A_log.exp(), torch.arange(1.0, 17))
    assert (layer.L == 1).all() and (layer.D == 1).all() and (layer.norm.weight == 1).all()
    assert not layer.in_proj.bias.any() and not layer.out_proj.bias.any()
    step = F.softplus(layer.dt_bias)
    assert 0.00099 < step.min() and step.max() < 0.101 and step.max() > 10 * step.min()
    assert 0.018 < layer.in_proj.weight.std() < 0.022 and 0.015 < layer.conv1d.weight.std() < 0.025


def theirs(layer):
    """The library's layer with the widths of ours."""
    from fla.layers.log_linear_mamba2 import LogLinearMamba2

    dims = layer.dims
    widths = {"head_dim": dims.value, "expand": dims.value_dim / dims.d, "state_size": dims.key}
    return LogLinearMamba2(num_heads=dims.heads, hidden_size=dims.d, backend="triton", **widths)


class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    @pytest.mark.parametrize("label", ["LogLinearMamba-2", "LogLinearMamba-2!"])
    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        load_both_ways(label, theirs)

    @pytest.mark.parametrize("length", [1, 2, 17, 65])
    def test_outputs_equal_the_librarys_whole_layer_with_its_plain_attention(self, length, monkeypatch):
        from fla.layers import log_linear_mamba2
        from fla.ops.log_linear_attn import naive

        layer, x = filled_mixer(lambda: build("LogLinearMamba-2", 32, length, n_head=2))
        keep_float64(monkeypatch)
        other = theirs(layer).double()
        other.load_state_dict(layer.state_dict())

        def attend(q, k, v, g, level_scales, **_):
            return naive.naive_log_linear_attn(q, k, v, g, level_scales, scale=1.0), None

        def convolve(x, weight, bias, **_):
            assert bias is None
            taps = weight[:, None]
            y = F.conv1d(x.mT, taps, padding=taps.shape[-1] - 1, groups=len(taps))
            return F.silu(y[..., : x.shape[1]].mT), None

        def norm(x, weight, z, norm_before_gate, **_):
            assert not norm_before_gate
            return rms_norm(x * F.silu(z), weight)

        monkeypatch.setattr(log_linear_mamba2, "chunk_log_linear_attn", attend)
        monkeypatch.setattr(log_linear_mamba2, "rmsnorm_fn", norm)
        other.causal_conv1d_fn = convolve
        with torch.no_grad():
            expected, _, _ = other.cuda_kernels_forward(x)  # its only form
        assert difference(layer(x), expected) < 1e-13 and difference(layer.prefill(x)[0], expected) < 1e-13
