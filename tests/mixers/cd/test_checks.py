"""The checks pass for every preset, and the matching check catches each planted fault."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace

import pytest
import torch

from coefficient_labels import random_label
from madbench.labels import parse
from madbench.mixers.cd import operator, parts, projections
from madbench.mixers.cd.family import FAMILY
from madbench.mixers.cd.grammar import PRESETS
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.cd.sample_mixers import SampleMixers
from madbench.mixers.checks import run_check, run_checks
from madbench.mixers.checks.package_checks import package_checks
from madbench.mixers.recurrence import decays, forms


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch):
    """Pretend that there is no GPU. The library's kernels take minutes to tune and are checked in ``test_library``."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


def checks_of(label):
    """The checks of a label's family, and those that packages of papers add."""
    return (*FAMILY.checks(parse(label)), *package_checks(label))


@torch.no_grad()
def failing(label, *names):
    """The names of the failing checks, among those whose name begins with one of ``names``."""
    checks = [check for check in checks_of(label) if check.run and check.name.split()[0] in names]
    assert {check.name.split()[0] for check in checks} == set(names), "every named check applies"
    return {check.name for check in checks if not check.holds(check.run())}


@pytest.mark.slow
@pytest.mark.parametrize(("label", "left_out"), [("cd:id-dg-bz-cg", ("V2", "bfloat16")), ("cd:kelu-0.95hk1-bz-wx", ())])
def test_every_check_of_a_gated_label_passes(label, left_out):
    """``test_forms`` compares the forms of other labels with diagonal gates with the reference loops."""
    names = {check.name for check in checks_of(label) if check.name.split()[0] not in left_out}
    outcomes = run_checks(label, package_checks, names)
    assert not [outcome.row for outcome in outcomes if outcome.verdict == "fail"]
    assert len(outcomes) > 20


@pytest.mark.parametrize("find", [SampleMixers.largest, SampleMixers.smallest])
@pytest.mark.parametrize("place", range(3))
def test_a_residual_is_nan_if_one_seed_gives_nan(find, place):
    of_seeds = iter(torch.tensor([math.nan if seed == place else 0.0 for seed in range(3)]))
    assert math.isnan(find(SampleMixers(FAMILY, parse("cd:id")), lambda mixer, x: next(of_seeds))())


@pytest.mark.parametrize("name", PRESETS)
def test_presets_pass_the_check_against_table_1(name):
    assert not failing(f"cd:{name}", "V3")


@pytest.mark.slow
@pytest.mark.parametrize("name, features", [(name, ("", "-p", "-cug")[i % 3]) for i, name in enumerate(PRESETS)])
def test_every_check_of_a_preset_passes(name, features):
    assert not [row.check.name for row in run_checks(f"cd:{name}{features}", package_checks) if row.verdict == "fail"]


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 6, 3))
def test_every_check_of_random_labels_passes(first):
    for seed in range(first, first + 3):
        label = random_label(seed)
        assert not [row.check.name for row in run_checks(label, package_checks) if row.verdict == "fail"], str(label)


@pytest.mark.slow
def test_a_decay_that_acts_on_its_own_key_is_caught(monkeypatch):
    dynamics = CoefficientMixer.dynamics

    def wrong(self, *given):
        d, carried = dynamics(self, *given)
        return replace(d, k=d.k * d.log_gate.exp()), carried

    monkeypatch.setattr(CoefficientMixer, "dynamics", wrong)
    assert failing("cd:gla", "V2", "V3") == {"V2 dense", "V2 chunked", "V2 blocks", "V2 step", "V3 Table 1"}


@pytest.mark.slow
def test_transition_factors_in_the_wrong_order_are_caught(monkeypatch):
    sound = forms.scores

    def wrong(d):
        if d.q.shape[2] > 17:  # a loop over triples takes too long
            return sound(d)
        s, eye = torch.zeros(*d.q.shape[:3], d.q.shape[2], dtype=d.q.dtype), torch.eye(d.q.shape[-1], dtype=d.q.dtype)
        w, beta = d.mirrors.w, d.mirrors.beta
        a = eye - beta[..., None, None] * w[..., :, None] * w[..., None, :]
        for i in range(s.shape[2]):
            for j in range(i + 1):
                h = d.k[:, :, j, :, None]
                for t in range(i, j, -1):
                    h = a[:, :, t] @ h
                s[:, :, i, j] = (d.q[:, :, i, None] @ h)[..., 0, 0]
        return s

    monkeypatch.setattr(forms, "scores", wrong)
    assert failing("cd:id-hk1", "V2") == {"V2 dense", "V2 prefill"}  # prompts are compared with that form


@pytest.mark.slow
def test_a_scale_by_the_width_of_all_heads_is_caught(monkeypatch):
    scaling = CoefficientMixer._scaling

    def wrong(self, *given):
        b, log_b = scaling(self, *given)
        return b / math.sqrt(self.n_head), log_b

    monkeypatch.setattr(CoefficientMixer, "_scaling", wrong)
    assert failing("cd:softmax", "V3", "V10") >= {"V3 Table 1", "V10 variance"}


@pytest.mark.slow
def test_a_stabilized_sum_without_its_offset_is_caught(monkeypatch):
    row_scale = parts.row_scale
    monkeypatch.setattr(parts, "row_scale", lambda label, sums, *_: row_scale(label, sums, None, None))
    assert failing("cd:mlstm", "V2", "V3") == {"V2 dense", "V2 chunked", "V2 blocks", "V2 step", "V3 Table 1"}


def test_a_mask_after_the_exponential_is_caught(monkeypatch):
    monkeypatch.setattr(decays, "masked_exp", lambda exponent, mask: exponent.exp().where(mask, 0))
    assert "V15 finite" in failing("cd:mamba2", "V15")


def test_a_scale_applied_after_the_features_is_caught(monkeypatch):
    scaling, dynamics = CoefficientMixer._scaling, CoefficientMixer.dynamics

    def wrong(self, *given):
        d, carried = dynamics(self, *given)
        return replace(d, k=d.k * scaling(self, None, None, None, None)[0]), carried

    monkeypatch.setattr(CoefficientMixer, "_scaling", lambda self, *given: (1.0, None))
    monkeypatch.setattr(CoefficientMixer, "dynamics", wrong)
    assert failing("cd:linear", "V3") == {"V3 Table 1"}


def test_directions_that_are_not_of_unit_length_are_caught(monkeypatch):
    monkeypatch.setattr(parts, "unit", lambda x: x)
    assert "V9 structure" in failing("cd:id-hk1-bw", "V9")


def test_a_gate_shifted_by_one_row_is_caught(monkeypatch):
    log_lambda = parts.log_lambda
    monkeypatch.setattr(parts, "log_lambda", lambda *given: (log_lambda(*given)[0].roll(-1, dims=2), None))
    assert failing("cd:gla", "V1", "V3") == {"V1 causal", "V3 Table 1"}


def test_decay_products_that_overflow_are_caught(monkeypatch):
    def naive(self, a, b, is_strict=False):
        c = self.log_gate.cumsum(-2)
        return ((a * c.exp()) @ (b * (-c).exp()).mT).tril(-is_strict)

    monkeypatch.setattr(forms.Decay, "products", naive)
    assert "V15 finite" in failing("cd:id-ss", "V15")


def between_sub_blocks(monkeypatch):
    """Leave out the decay from one sub-block to the next, which 16 tokens do not reveal."""
    sound = forms.Decay.__init__

    def initialize(self, log_gate, *how):
        sound(self, log_gate, *how)
        if log_gate is not None:
            self.between = (self.between > 0).to(self.between)

    monkeypatch.setattr(forms.Decay, "__init__", initialize)


def of_the_block_before(monkeypatch):
    sound = forms.chunked

    def chunked(d, size, values, *how):
        y, state = sound(d, size, values, *how)
        return torch.cat((y[:, :, : 2 * size], y[:, :, 2 * size :] * (1 + 1e-6)), dim=2), state

    monkeypatch.setattr(forms, "chunked", chunked)


def without_the_slope_of_states(monkeypatch):
    sound = forms.split

    def split(*how):
        found = sound(*how)
        return replace(found, queries=found.queries.detach())

    monkeypatch.setattr(forms, "split", split)


def with_twice_the_slope_of_gates(monkeypatch):
    """Double the gradients of gates in all forms, which only finite differences of outputs reveal."""
    sound = parts.log_lambda

    def log_lambda(*given):
        log_gate, delta = sound(*given)
        return 2 * log_gate - log_gate.detach(), delta

    monkeypatch.setattr(parts, "log_lambda", log_lambda)


def with_late_steps_one_position_off(monkeypatch):
    sound = projections.rotate
    monkeypatch.setattr(projections, "rotate", lambda x, position, angles: sound(x, position - (position >= 64)))


def with_steps_one_position_off_from_257(monkeypatch):
    sound = projections.rotate
    monkeypatch.setattr(projections, "rotate", lambda x, position, angles: sound(x, position - (position >= 257)))


def with_even_positions_alone_from_257(monkeypatch):
    """Round positions from 257 on to even numbers in all forms, which only the reference loops reveal."""
    sound = projections.rotate

    def rotate(x, position, angles):
        at = [p - (p > 256) * (p % 2) for p in range(position, position + x.shape[-2])]
        return torch.cat([sound(x[..., i : i + 1, :], p) for i, p in enumerate(at)], dim=-2)

    monkeypatch.setattr(projections, "rotate", rotate)


def with_positions_in_bfloat16(monkeypatch):
    sound = projections.rotate

    def rotate(x, position, angles):
        at = torch.arange(position, position + x.shape[-2])
        rounded = at.bfloat16().long() if torch.is_autocast_enabled("cpu") else at
        return torch.cat([sound(x[..., i : i + 1, :], int(p)) for i, p in enumerate(rounded)], dim=-2)

    monkeypatch.setattr(projections, "rotate", rotate)
    no_autocast = contextlib.nullcontext  # so that the operator tells that it is under autocast
    monkeypatch.setattr(projections, "without_autocast", lambda x: no_autocast())


def with_angles_in_bfloat16(monkeypatch):
    sound = projections.rotary_angles
    monkeypatch.setattr(projections, "rotary_angles", lambda *how: tuple(one.bfloat16().to(one) for one in sound(*how)))


def with_scores_under_autocast(monkeypatch):
    monkeypatch.setattr(operator, "without_autocast", lambda x: contextlib.nullcontext())


def with_inputs_of_convs_turned(monkeypatch):
    sound = CoefficientMixer._project

    def project(self, x, before):
        *sides, inputs = sound(self, x, before)
        return *sides, inputs if inputs is None else inputs.roll(1, 1)

    monkeypatch.setattr(CoefficientMixer, "_project", project)


def in_the_second_head_alone(monkeypatch):
    sound = forms.block_scores
    of_head = torch.tensor([1.0, 1 + 1e-6])[:, None, None]
    monkeypatch.setattr(forms, "block_scores", lambda blocks, at: sound(blocks, at) * (of_head if at > 1 else 1))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("sabotage", "label", "caught_by"),
    [
        (between_sub_blocks, "cd:gla", "V2 dense"),
        (between_sub_blocks, "cd:exp-sm-sum", "V2 blocks"),
        (of_the_block_before, "cd:id-ss", "V2 chunked"),
        (without_the_slope_of_states, "cd:mamba2", "V2 chunked"),
        (without_the_slope_of_states, "cd:relu-hk1-sum", "V2 blocks"),
        (with_twice_the_slope_of_gates, "cd:mamba2", "gradients"),
        (with_twice_the_slope_of_gates, "cd:id-ss", "V2 dense"),
        (with_late_steps_one_position_off, "cd:exp-sum-p", "V2 step"),
        (with_steps_one_position_off_from_257, "cd:exp-sum-p", "V2 far"),
        (with_even_positions_alone_from_257, "cd:kelu-sum-p", "V2 far"),
        (with_positions_in_bfloat16, "cd:exp-sum-p", "bfloat16"),
        (with_angles_in_bfloat16, "cd:softmax-p", "bfloat16 sums"),
        (with_scores_under_autocast, "cd:mamba2", "bfloat16 sums"),
        (with_scores_under_autocast, "cd:relu-0.95-sum", "bfloat16 sums"),
        (with_inputs_of_convs_turned, "cd:id-c", "V2 step"),
        (in_the_second_head_alone, "cd:softplus-sg-sum", "V2 blocks"),
    ],
)
def test_faults_after_the_first_block_or_in_gradients_are_caught(sabotage, label, caught_by, monkeypatch):
    sabotage(monkeypatch)
    (check,) = (check for check in FAMILY.checks(parse(label)) if check.name == caught_by)
    assert run_check(check).verdict == "fail"
