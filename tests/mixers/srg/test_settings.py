"""Settings: each one in the forward pass and in the reference, loops, paths, counts, and refused values."""

from __future__ import annotations

import dataclasses
import typing

import numpy as np
import pytest
import torch

from madbench.errors import ConfigError, TrainingError
from madbench.mixers import build, effective_settings, solve, used_settings
from madbench.mixers.checks import run_checks
from madbench.mixers.srg import letter_checks
from madbench.mixers.srg.family import Settings
from madbench.mixers.srg.grammar import LETTERS
from madbench.mixers.srg.listing import every_label
from madbench.suites.mad.suite import MAD, MadProfile
from srg_rows import decode, fast_paths, one_row

SMALL = (24, 2, 12, "paper")
SETTINGS_CASES = [
    ("R-g-q", {"gates": "qk"}, {}),
    ("S-pg-q-1", {"gates": "vo"}, {}),
    ("G-cg-q-12o", {"gates": "qk"}, {}),
    ("R-k-q-12o", {"register_place": "last"}, {"place": "last"}),
    ("S-pgk-q-12", {"register_place": "last", "gates": "vo"}, {"place": "last"}),
    ("D-ka-q-2o", {"register_place": "last"}, {"place": "last"}),
]
NON_CAUSAL_CASES = [
    ("S", {}),
    ("S-p", {}),
    ("R-cg-q-12o", {}),
    ("G-pcg-q-12o", {}),
    ("L-q-12", {}),
    ("D-p", {}),
    ("D-phe", {}),
    ("S-pme", {}),
    ("G-ckm-q-12o", {}),
    ("R-che-q-12o", {}),
    ("R-k-q-1o", {"register_place": "last"}),
]


def other_values(name):
    """Values of a setting besides its default: all others of a choice, or another number."""
    usual, kind = getattr(Settings(), name), typing.get_type_hints(Settings)[name]
    if typing.get_origin(kind) is typing.Literal:
        return [value for value in typing.get_args(kind) if value != usual]
    return [not usual] if kind is bool else [usual + 1] if kind is int else [usual / 2 or 0.5]


def has_effect(name, value, label):
    """True if the family says that the setting changes the label's mixer: its allocation, or the mixer itself."""
    if name not in used_settings(label):
        return False
    allocation = solve(label, *SMALL)
    return solve(label, *SMALL, **{name: value}) != allocation or name in effective_settings(allocation, {name: value})


def every_setting():
    """(setting, value, label) for each other value of each setting, with the shortest label on which it has an effect.

    If letters declare the setting, there is one such label for each of them. The label is empty if there is none.
    """
    labels = sorted(every_label(), key=len)
    for name in (field.name for field in dataclasses.fields(Settings)):
        for letter in [row.letter for row in LETTERS if name in row.settings] or [""]:
            for value in other_values(name):
                found = (label for label in labels if letter in label and has_effect(name, value, label))
                yield name, value, next(found, "")


@pytest.mark.parametrize(("name", "value", "label"), [*every_setting()])
def test_a_setting_changes_the_forward_pass_and_the_reference_alike(name, value, label, make, randn):
    assert label, f"{name} has no effect on any label"
    x, results = randn(1, 10, 24), []
    for settings in ({}, {name: value}):
        mixer = make(label, *SMALL[:3], **settings)
        expected = mixer.reference(x)
        for path in fast_paths(mixer):
            mixer.path = path
            torch.testing.assert_close(mixer(x), expected)
        torch.testing.assert_close(decode(mixer, x)[:, -1], expected[:, -1])
        results.append((mixer(x), expected))
    for usual, changed in zip(*results):
        assert (changed - usual).norm() > 1e-3 * usual.norm()


@pytest.mark.parametrize(("label", "settings", "of_row"), SETTINGS_CASES)
def test_every_path_and_decoding_equal_the_equations(label, settings, of_row, make, randn):
    mixer, x = make(label, **settings), randn(1, 5, 16)
    w = {name: tensor.detach().numpy() for name, tensor in mixer.named_parameters()}
    rows = [one_row(w, mixer.label, 2, x[0, : t + 1].numpy(), **of_row) for t in range(5)]
    expected = torch.tensor(np.stack(rows))[None]
    for path in ("reference", *fast_paths(mixer)):
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected)
    mixer.path = "auto"
    torch.testing.assert_close(decode(mixer, x), expected)
    assert sum(p.numel() for p in mixer.parameters()) == mixer.allocation.total == sum(mixer.allocation.terms.values())


@pytest.mark.parametrize(("label", "settings"), NON_CAUSAL_CASES)
def test_non_causal_rows_equal_the_equations_on_every_path(label, settings, make, randn):
    mixer, x = make(label, causal=False, **settings), randn(1, 5, 16)
    w = {name: tensor.detach().numpy() for name, tensor in mixer.named_parameters()}
    place = settings.get("register_place", "first")
    rows = [one_row(w, mixer.label, 2, x[0].numpy(), place=place, last=t) for t in range(5)]
    for path in ("reference", "dense", "chunked", *["sdpa"] * mixer.uses_sdpa):
        mixer.path = path
        torch.testing.assert_close(mixer(x), torch.tensor(np.stack(rows))[None])


def test_a_non_causal_mixer_has_no_decoding_and_no_causal_path(randn):
    mixer = build("R-q-12o", 16, 8, causal=False)
    for refused in (
        lambda: mixer.step(randn(1, 16)),
        lambda: mixer.prefill(randn(1, 3, 16)),
        lambda: mixer.probe(randn(1, 3, 16)),
    ):
        with pytest.raises(TrainingError, match="causal=True"):
            refused()
    with pytest.raises(TrainingError, match="'tiled' cannot compute R-q-12o: it computes causal mixers only"):
        build("R-q-12o", 16, 8, causal=False, path="tiled")


def test_an_omitted_gate_has_no_parameters_and_no_flops():
    both, qk, vo = (solve("R-g!", 16, 2, 8, gates=gates) for gates in ("both", "qk", "vo"))
    assert both.total - qk.total == both.terms["vo_gate"] == 17 * 16 and "vo_gate" not in qk.terms
    assert both.flops_per_token(8) - vo.flops_per_token(8) == 2 * 16 * both.r_qk
    matched = {gates: solve("R-g-q", 64, 2, 32, gates=gates) for gates in ("both", "qk", "vo")}
    assert all(allocation.total <= allocation.target for allocation in matched.values())
    assert matched["qk"].r_qk + matched["qk"].r_vo > matched["both"].r_qk + matched["both"].r_vo


def test_non_causal_flops_count_all_pairs():
    allocation = solve("S", 16, 2, 8)
    assert allocation.flops_per_token(8, causal=False) - allocation.flops_per_token(8) == 3.5 * 4 * 16
    registers = solve("S-k!", 16, 2, 8, registers=3)  # each of which costs a token one pair more
    per_pair = 2 * (registers.r_qk + registers.r_vo)
    assert registers.flops_per_token(8, causal=False) - registers.flops_per_token(8) == 3.5 * per_pair


@pytest.mark.parametrize(
    ("label", "change"), [("R-c", "gates=qk"), ("R-k-q", "register_place=last"), ("R-q-12o", "register_place=last")]
)
def test_a_setting_without_effect_on_a_label_is_refused(label, change):
    name, _, value = change.partition("=")
    with pytest.raises(ConfigError, match=f"{name} has no effect"):
        build(label, 16, 8, **{name: value})
    with pytest.raises(ConfigError, match=f"model.{name} has no effect"):
        MAD.jobs([label], MadProfile.load("quick", [f"model.{change}"]), tasks=["compression"])


def test_a_setting_changes_the_id_of_a_job_unless_it_is_the_default():
    def ids(*changes):
        return [job.id for job in MAD.jobs(["R-gk-q-12o"], MadProfile.load("quick", changes), tasks=["compression"])]

    (usual,) = ids()
    assert ids("model.gates=both", "model.register_place=first") == [usual]
    assert len({usual, *ids("model.gates=vo"), *ids("model.gates=qk"), *ids("model.register_place=last")}) == 4


def test_rope_order_has_no_effect_without_a_gate_of_queries():
    def jobs(*changes):
        return MAD.jobs(["R-pg-q"], MadProfile.load("quick", changes), tasks=["compression"])

    after = "model.rope_order=after_gate"
    with pytest.raises(ConfigError, match=r"model\.rope_order has no effect on 'R-pg-q'"):
        jobs("model.gates=vo", after)
    assert len(jobs("model.gates=qk", after)) == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "label", "planted"),
    [
        ("all tokens", "R-q-12o", ("swap_position_and_lag", lambda z, first_row: z)),
        ("appended registers", "R-k-q-12o", ("append_slots", lambda z, registers, last: torch.cat((z, registers), -1))),
    ],
)
def test_a_planted_fault_fails_its_check(name, label, planted, monkeypatch):
    (sound,) = run_checks(label, names=[name])
    monkeypatch.setattr(f"madbench.mixers.srg.block_attention.{planted[0]}", planted[1])
    (faulty,) = run_checks(label, names=[name])
    assert (sound.verdict, faulty.verdict) == ("pass", "fail")


def test_a_gate_that_does_not_open_fails_its_check(monkeypatch):
    assert [outcome.verdict for outcome in run_checks("R-g-q", names=["one gate"])] == ["pass"]
    monkeypatch.setattr(letter_checks, "OPEN", 0.0)
    assert [outcome.verdict for outcome in run_checks("R-g-q", names=["one gate"])] == ["fail"]


def test_linear_activations_are_nonzero_with_either_sign(make, randn):
    mixer, x = make("L-q-1o"), randn(2, 5, 16)
    a = mixer.maps(x).activations
    visible = torch.ones(5, 5, dtype=torch.bool).tril()
    assert (a[..., visible] != 0).all() and (a < 0).any() and mixer.probe(x).active is None
    torch.testing.assert_close(a.square().sum(-1), torch.ones(2, 2, 5).double())
