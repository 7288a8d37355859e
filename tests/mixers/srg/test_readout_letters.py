"""h, which acts on what a head reads out: identities, counts, initial values."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from madbench.labels import diff, parse
from madbench.mixers import build, solve


def without(mixer, other):
    """``other`` with the weights that ``mixer`` has under the same names."""
    other.load_state_dict({name: mixer.state_dict()[name] for name in other.state_dict()})
    return other


@pytest.mark.parametrize("label", ["S-ph", "D-ph", "G-gkh-q-12o"])
def test_open_head_gates_leave_the_mixer_without_them(label, make, randn):
    mixer, x = make(label), randn(2, 5, 16)
    plain = without(mixer, make(label.replace("h", "")))
    nn.init.zeros_(mixer.head_gate.weight)
    torch.testing.assert_close(2 * mixer(x), plain(x))
    x[..., 0] = 1
    nn.init.constant_(mixer.head_gate.weight[:, 0], 40)
    torch.testing.assert_close(mixer(x), plain(x))


def test_a_head_gate_scales_its_head_alone(make, randn):
    mixer, x = make("S-h"), randn(1, 5, 16)
    x[..., 0] = 1
    nn.init.zeros_(mixer.head_gate.weight)
    mixer.head_gate.weight.data[1, 0] = -40
    mixer.o.weight.data[:, 8:] = 0  # the second head, which is closed, would not be seen anyway
    plain = without(mixer, make("S"))
    torch.testing.assert_close(2 * mixer(x), plain(x))


def test_a_head_gate_adds_d_parameters_per_head_to_both_sides_of_the_budget():
    allocation, plain = solve("S-ph", 64, 4, 32), solve("S-p", 64, 4, 32)
    assert allocation.ranks == plain.ranks and allocation.ratio == plain.ratio == 1
    assert allocation.total - plain.total == allocation.target - plain.target == 64 * 4
    assert allocation.flops_per_token(32) - plain.flops_per_token(32) == 2 * 64 * 4
    assert diff(parse("S-ph"), parse("S-p")) == ("head_gate",)


def test_head_gates_start_near_one_half_as_the_other_gates_do():
    gate = build("S-h", 64, 8, n_head=4).head_gate
    assert gate.bias is None and gate.weight.shape == (4, 64) and 0.015 < gate.weight.std() < 0.025
