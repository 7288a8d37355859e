"""Mamba-3: its recurrence without rotation and with one weight is Mamba-2's, and no row depends on a later one."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from library_layers import NEEDS_LIBRARY, load_both_ways
from madbench.mixers import build
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.recurrence.forms import Dynamics, scores


def with_logits(layer, **logits):
    """Set logits of a layer to constants. The last channel of the layer's input must be 1."""
    z, x, b, c, step, rate, share, angle = layer.in_proj.weight.split(layer.operator.projected(layer.dims))
    for name, value in logits.items():
        part = {"rate": rate, "share": share, "angle": angle}[name]
        part.zero_()
        part[:, -1] = value


@torch.no_grad()
def test_without_rotation_and_with_full_weight_on_itself_it_is_mamba_2():
    layer, x = filled_mixer(lambda: build("Mamba-3", 16, 11, n_head=2), batch=2)
    x[..., -1] = 1
    with_logits(layer, share=99, angle=0)
    rows = layer.operator.rows(layer, x, None)
    plain = Dynamics(rows.dynamics.q, rows.dynamics.k, rows.dynamics.v, rows.dynamics.log_gate)
    assert difference(scores(rows.dynamics).tril(), scores(plain).tril()) < 1e-14


@torch.no_grad()
def test_with_zero_weight_on_itself_a_token_reads_only_earlier_writes():
    layer, x = filled_mixer(lambda: build("Mamba-3", 16, 11, n_head=2), batch=2)
    x[..., -1] = 1
    with_logits(layer, share=-99)
    rows = layer.operator.rows(layer, x, None).dynamics
    assert scores(rows).diagonal(dim1=-2, dim2=-1).abs().max() < 1e-30
    decayed = scores(replace(rows, own=None)).tril(-1)
    assert torch.equal(scores(rows).tril(-1), decayed) and decayed.abs().max() > 1e-3


@torch.no_grad()
def test_the_state_decays_by_at_least_the_least_rate():
    layer, x = filled_mixer(lambda: build("Mamba-3", 16, 11, n_head=2), batch=1)
    x[..., -1] = 1
    with_logits(layer, rate=-99)
    assert difference(layer(x), layer.reference(x)) < 1e-13
    gates = layer.operator.rows(layer, x, None).dynamics.log_gate
    assert (gates < 0).all() and gates.min() > -0.01


@pytest.mark.parametrize("path", ["dense", "chunked"])
def test_no_row_changes_with_a_later_token(path):
    torch.manual_seed(0)
    layer, x = build("Mamba-3", 16, 40, n_head=2, path=path), torch.randn(2, 40, 16)
    layer.chunk = 16
    changed = x.clone()
    changed[:, 21:] = 50 * torch.randn(2, 19, 16)
    y, other = layer(x), layer(changed)
    assert torch.equal(y[:, :21], other[:, :21]) and not torch.equal(y[:, 21:], other[:, 21:])


@pytest.mark.parametrize("label", ["Mamba-3", "Mamba-3!"])
class TestLibrary:
    pytestmark = NEEDS_LIBRARY

    def test_a_state_dict_is_loaded_in_both_directions(self, label):
        import fla.layers

        def theirs(layer):
            dims = layer.dims
            widths = {"head_dim": dims.value, "expand": dims.value_dim / dims.d, "state_size": dims.key}
            return fla.layers.Mamba3(hidden_size=dims.d, **widths)

        load_both_ways(label, theirs)
