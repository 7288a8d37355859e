"""The letters h and e, which act on head outputs: identities, counts, initial values, and gradients at zero."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

from madbench.errors import BudgetError
from madbench.labels import differing_factors, family_of, parse
from madbench.mixers import build, solve
from madbench.mixers.checks import run_check
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.parts import exclude

SOUND_HEADS, SOUND_READ_OUT = DynamicMLP.for_each_head, DynamicMLP.read_out


def roll_heads(self, p):
    p = SOUND_HEADS(self, p)
    return replace(p, v=p.v.roll(1, dims=-1)) if self.label.shared_kv else p


def grow_rows(self, o, x):
    return SOUND_READ_OUT(self, 1.01 * o if self.head_gate else o, x)


def without(mixer, other):
    """``other`` with the weights that ``mixer`` has under the same names."""
    other.load_state_dict({name: mixer.state_dict()[name] for name in other.state_dict()})
    return other


@pytest.mark.parametrize("label", ["S-ph", "D-ph", "G-gkh-q-12o"])
def test_open_head_gates_change_nothing(label, make, randn):
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
    assert differing_factors(parse("S-ph"), parse("S-p")) == ("head_gate",)


def test_head_gates_start_near_one_half_as_the_other_gates_do():
    gate = build("S-h", 64, 8, n_head=4).head_gate
    assert gate.bias is None and gate.weight.shape == (4, 64) and 0.015 < gate.weight.std() < 0.025


@pytest.mark.parametrize("label", ["S-pe", "S-ce-v", "R-cgae-q-12o", "L-ke-q"])
def test_with_e_the_readout_of_a_head_is_orthogonal_to_the_tokens_value(label, make, randn):
    """The value is that after the convolution and the adapter, with the width that VO compression leaves."""
    mixer, x = make(label), randn(2, 6, 16)
    read, read_out = [], mixer.read_out
    mixer.read_out = lambda o, x: (read.append(o), read_out(o, x))[1]
    p = mixer.project(x, 0)
    y = mixer(x)
    assert (read[0] * p.v).sum(-1).abs().max() < 1e-12 * (read[0].norm() * p.v.norm())
    assert (y - without(mixer, make(label.replace("e", "")))(x)).norm() > 1e-2 * y.norm()


def test_the_first_row_of_exclusive_softmax_is_zero(make, randn):
    """The first row reads only its own value."""
    assert make("S-pe")(randn(2, 5, 16))[:, 0].abs().max() < 1e-15


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-8, 1.0])
def test_excluding_a_zero_value_changes_nothing_and_has_finite_gradients(scale, randn):
    o, v = randn(3, 7).float().requires_grad_(), (scale * randn(3, 7, seed=2)).float().requires_grad_()
    given = exclude(o, v)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(given.sum(), (o, v)))
    if scale < 1e-20:
        torch.testing.assert_close(given, o)
    else:
        assert ((given * v).sum(-1) / scale).abs().max() < 1e-5


@pytest.mark.parametrize(
    "label, name, broken",
    [
        ("S-pe", "exclusion", {"exclude": lambda self, o, p: o - 0.5 * p.v}),
        ("R-kme-q", "shared heads", {"for_each_head": roll_heads}),
        ("G-he-q", "open head gates", {"read_out": grow_rows}),
    ],
)
def test_each_letter_has_a_check_that_a_broken_mixer_fails(label, name, broken, monkeypatch):
    checks = {check.name: check for check in family_of(label).checks(parse(label))}
    assert run_check(checks[name]).verdict == "pass"
    for method, replacement in broken.items():
        monkeypatch.setattr(DynamicMLP, method, replacement)
    assert run_check(checks[name]).verdict == "fail"


def test_e_adds_no_parameters():
    allocation, plain = solve("S-pe", 64, 4, 32), solve("S-p", 64, 4, 32)
    assert (allocation.ranks, allocation.total, allocation.ratio) == (plain.ranks, plain.total, 1)
    assert differing_factors(parse("S-pe"), parse("S-p")) == ("exclusive",)


def test_exclusive_heads_have_at_least_two_channels():
    """A head of one channel would read nothing."""
    assert (solve("S-v", 16, 2, 8, "paper").vo_width, solve("S-e-v", 16, 2, 8, "paper").vo_width) == (2, 2)
    assert solve("S-v-1", 16, 2, 40, "paper").vo_width == 1 and solve("S-e-v-1", 16, 2, 40, "paper").vo_width == 2
    with pytest.raises(BudgetError, match="use n_head 1 or d_model 8"):
        solve("S-e", 3, 4, 8)


def test_an_exclusive_window_of_one_token_reads_nothing_and_is_refused():
    with pytest.raises(BudgetError, match="use window 2 or more"):
        solve("S-we", 16, 2, 8, window=1)
    assert solve("S-kwe-q", 64, 2, 8, window=1).window == solve("S-w", 16, 2, 8, window=1).window == 1
