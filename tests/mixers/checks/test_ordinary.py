"""Checks at an ordinary size pass for labels of every family, and find faults that small sizes do not show."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.checks import run_checks
from madbench.mixers.ops import softmax
from madbench.mixers.srg import block_attention, decoding, tiles
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.family import SrgFamily
from madbench.papers.interactions.mixers.hfa.operator import HyperFeatureAttention

NAMES = ("ordinary size", "settings", "effect of settings")


def verdicts(label, names=NAMES):
    return {outcome.check.name: outcome for outcome in run_checks(label, names=names)}


def failing(label):
    return {name for name, outcome in verdicts(label).items() if outcome.verdict == "fail"}


QUICK_LABELS = ("S-p", "cd:softmax", "hfa:L2", "ha:L2+3s", "my:mean")
"""One label of each family that has mixers on a CPU."""
SLOW_LABELS = (
    *("R-12!", "G-pcgka-q-12", "cd:exp-0.95hk1-pow-g", "cd:elu-se", "hfa:9w-p!", "hfa:L1+2w-p-q", "hfa:C1+2"),
    *("ha:5s", "ha:C5a", "ha:2+3us-p-q"),
)
"""Labels that are not in the tests of all checks of a label."""


@pytest.mark.parametrize(
    "label", [*QUICK_LABELS, *(pytest.param(label, marks=pytest.mark.slow) for label in SLOW_LABELS)]
)
def test_every_path_of_a_label_is_right_at_an_ordinary_size(label):
    found = verdicts(label)
    assert [*found] == [*(NAMES if not label.startswith("my:") else NAMES[:1])]  # no settings
    assert not [outcome.row for outcome in found.values() if outcome.verdict == "fail"]
    assert found["ordinary size"].verdict == "pass"


def wrong_gradient_of_wide_keys(monkeypatch):
    sound = tiles.Tile.backward

    def backward(self, x, grad_o, along, grads, *how):
        before = grads.k.clone()
        sound(self, x, grad_o, along, grads, *how)
        if x.q.shape[-1] >= tiles.THIN:
            grads.k.add_(grads.k - before, alpha=0.74)

    monkeypatch.setattr(tiles.Tile, "backward", backward)


def wrong_gradient_of_keys_of_softmax(monkeypatch):
    """Make gradients of keys after row 128, where the third block begins, 1% too large."""
    sound = softmax._gradients

    def gradients(*how):
        d_q, d_k, d_v = sound(*how)
        d_k[:, :, 128:] *= 1.01
        return [d_q, d_k, d_v]

    monkeypatch.setattr(softmax, "_gradients", gradients)


def registers_read_wrongly_behind_row_100(monkeypatch):
    sound = block_attention.split_registers

    def parted(self, w, last):
        of_tokens, of_registers = sound(self, w, last)
        if self.register_place == "last":
            rows = torch.arange(last, last + w.shape[-2])
            of_registers = of_registers * torch.where(rows > 100, 1.19, 1.0).to(w)[:, None]
        return of_tokens, of_registers

    monkeypatch.setattr(block_attention, "split_registers", parted)


def decoding_rotates_wrongly_from_192_on(monkeypatch):
    sound = decoding.rotary_angles
    monkeypatch.setattr(decoding, "rotary_angles", lambda rows, at: sound(rows, at + (at >= 192)))


def rope_order_is_ignored(monkeypatch):
    sound = SrgFamily.build
    monkeypatch.setattr(
        SrgFamily,
        "build",
        lambda self, a, settings, *how: sound(self, a, replace(settings, rope_order="before_gate"), *how),
    )


def later_tables_are_read_from_the_start_in_blocks(monkeypatch):
    sound = block_attention.attend_block

    def attend(self, first_row, *block):
        self.is_from_end = self.is_from_end and first_row == 0
        return sound(self, first_row, *block)

    monkeypatch.setattr(block_attention, "attend_block", attend)


def gate_of_values_alone_is_read_twice(monkeypatch):
    sound = DynamicMLP.read_out

    def read_out(self, o, x, *given):
        y = sound(self, o, x, *given)
        return y * 1.01 if self.vo_gate is not None and self.qk_gate is None else y

    monkeypatch.setattr(DynamicMLP, "read_out", read_out)


def lambda_of_the_head_norm_is_the_default(monkeypatch):
    sound = DynamicMLP.read_out

    def read_out(self, o, x, *given):
        kept, self.lambda_init = self.lambda_init, 0.8
        try:
            return sound(self, o, x, *given)
        finally:
            self.lambda_init = kept

    monkeypatch.setattr(DynamicMLP, "read_out", read_out)


def every_head_skips_with_the_first_number(monkeypatch):
    monkeypatch.setattr(
        CoefficientMixer,
        "_with_skip",
        lambda self, y, d: y if self.skip is None else y + self.skip[0].to(y.dtype) * d.v,
    )


def init_std_is_ignored(monkeypatch):
    sound = CoefficientMixer.__init__
    monkeypatch.setattr(
        CoefficientMixer,
        "__init__",
        lambda self, a, settings, *how: sound(self, a, replace(settings, init_std=0.02), *how),
    )


def pairs_rotate_wrongly_from_150_on(monkeypatch):
    sound = HyperFeatureAttention.rotate_key

    def turned(self, k, position):
        y = sound(self, k, position)
        rows = torch.arange(position, position + k.shape[2])
        return torch.where((rows >= 150)[:, None], sound(self, k, position + 1), y)

    monkeypatch.setattr(HyperFeatureAttention, "rotate_key", turned)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fault, label, caught_by",
    [
        (wrong_gradient_of_keys_of_softmax, "S", {"ordinary size"}),
        (wrong_gradient_of_wide_keys, "R", {"ordinary size"}),
        (wrong_gradient_of_wide_keys, "G-p-v-12o", {"ordinary size", "settings"}),
        (registers_read_wrongly_behind_row_100, "R-k-q-2", {"settings"}),
        (registers_read_wrongly_behind_row_100, "D-pcgka-q-12o", {"settings"}),
        (decoding_rotates_wrongly_from_192_on, "R-p", {"ordinary size", "settings"}),
        (rope_order_is_ignored, "G-pg-q", {"effect of settings"}),
        (later_tables_are_read_from_the_start_in_blocks, "R-q-1", {"settings"}),
        (gate_of_values_alone_is_read_twice, "R-g-q", {"settings"}),
        (lambda_of_the_head_norm_is_the_default, "D", {"settings"}),
        (every_head_skips_with_the_first_number, "cd:mamba2", {"settings"}),
        (init_std_is_ignored, "cd:softmax", {"effect of settings"}),
        (pairs_rotate_wrongly_from_150_on, "hfa:2-p", {"ordinary size"}),
    ],
)
def test_faults_at_ordinary_sizes_or_of_settings_are_found(fault, label, caught_by, monkeypatch):
    assert not failing(label)
    fault(monkeypatch)
    assert failing(label) == caught_by
