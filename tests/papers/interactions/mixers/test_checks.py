"""Every check of a label holds, and the matching check fails for each planted fault."""

from __future__ import annotations

import functools
import random

import pytest
import torch

from madbench.labels import family_of, parse
from madbench.mixers.checks import run_check
from madbench.mixers.ops import rope
from madbench.mixers.ops.rope import rotate
from madbench.papers.interactions.mixers.checks import checks
from madbench.papers.interactions.mixers.ha import operator as tuple_operator
from madbench.papers.interactions.mixers.hfa import operator as feature_operator
from papers.interactions.mixers.labels import all_labels_of

GENERAL = {
    "causality", "path dense", "path chunked", "steps", "prefill", "sliding steps", "softmax attention",
    "full coupling", "mask", "empty rows", "RoPE", "counts",
}  # fmt: skip


def assert_all_hold(label):
    label = parse(label) if isinstance(label, str) else label
    outcomes = [run_check(check) for check in checks(family_of(label), label)]
    assert GENERAL <= {one.check.name for one in outcomes}
    for one in outcomes:
        assert one.verdict != "fail", f"{label} {one.row}"
        assert (one.verdict == "not applicable") == bool(one.check.reason)


@pytest.mark.slow
@pytest.mark.parametrize(
    "label",
    [
        *("hfa:3", "hfa:1+2w-p-q", "hfa:L1+2w-p-v", "hfa:C1", "hfa:C2w"),
        *("ha:3-p", "ha:3u!", "ha:4us-p-q", "ha:L3a", "ha:L3us-q", "ha:C3", "ha:C3a"),
        *("ha:2+3us-p-q", "ha:L2+3u-v"),
    ],
)
def test_every_check_of_a_label_holds(label):
    assert_all_hold(label)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["hfa:8+9+9+9w-p!", "hfa:9w-p!", "hfa:7+9w!"])
def test_the_bounds_of_bfloat16_have_room_for_the_roundings_of_every_factor(label):
    label = parse(label)
    (check,) = (one for one in checks(family_of(label), label) if one.name == "bfloat16")
    outcome = run_check(check)
    assert outcome.verdict == "pass", outcome.row


@pytest.mark.parametrize("label", ["hfa:2-p-q", "hfa:1+2w-p-q"])
def test_rotary_angles_rounded_to_bfloat16_are_caught(label, monkeypatch):
    sound = rope.rotary_angles
    monkeypatch.setattr(rope, "rotary_angles", lambda *how: tuple(one.bfloat16().to(one) for one in sound(*how)))
    label = parse(label)
    (check,) = (one for one in checks(family_of(label), label) if one.name == "bfloat16 sums")
    assert run_check(check).verdict == "fail"


@functools.cache
def sampled_labels():
    draw = random.Random(0)
    return [*draw.sample(all_labels_of("ha"), 20)[:1], *draw.sample(all_labels_of("hfa"), 20)[:2]]


@pytest.mark.slow
@pytest.mark.parametrize("i", range(3))
def test_every_check_of_a_sampled_label_holds(i):
    assert_all_hold(sampled_labels()[i])


@pytest.mark.slow
@pytest.mark.parametrize("label", ["hfa:L2-p", "ha:3-p"])
def test_decoding_that_forgets_positions_from_64_on_fails(label, monkeypatch):
    for operator in (feature_operator.HyperFeatureAttention, tuple_operator.HyperAttention):
        turned = operator.rotate_query
        monkeypatch.setattr(operator, "rotate_query", lambda self, q, at, turned=turned: turned(self, q, min(at, 63)))
    label = parse(label)
    outcomes = {check.name: run_check(check) for check in checks(family_of(label), label) if "steps" in check.name}
    assert outcomes["far steps"].verdict == "fail" and outcomes["steps"].verdict == "pass"


def test_a_prompt_whose_last_token_the_running_sums_leave_out_fails_prefill(monkeypatch):
    for operator in (feature_operator.HyperFeatureAttention, tuple_operator.HyperAttention):
        sound = operator.totals
        monkeypatch.setattr(
            operator, "totals", lambda self, k, v, state, sound=sound: sound(self, k[:, :, :-1], v[:, :, :-1], state)
        )
    assert "prefill" in failing("ha:L3a", "prefill")
    assert {"prefill", "prefill, linear_time"} <= failing("hfa:L2-p", "prefill", "prefill, linear_time")


def test_checks_apply_only_to_the_labels_that_they_concern():
    def outcome(label, name):
        return run_check({check.name: check for check in checks(family_of(label), parse(label))}[name])

    assert outcome("ha:3us-p!", "naive rotation").residual > 0.1
    assert outcome("ha:3us-p!", "permutation").verdict == "not applicable"
    assert outcome("ha:3us!", "depends on order").residual > 1e-6
    assert outcome("ha:L3", "full coupling").verdict == "pass"
    assert outcome("ha:L3", "softmax attention").check.reason.startswith("linear")
    assert outcome("hfa:C2", "start").residual == 0
    assert outcome("hfa:C1", "start").verdict == "not applicable"
    assert outcome("ha:C3", "symmetric part").verdict == "not applicable"


def failing(label, *names):
    """The names of the failing checks among ``names``."""
    every = {check.name: check for check in family_of(label).checks(parse(label))}
    return {name for name in names if run_check(every[name]).verdict == "fail"}


def test_a_mask_that_is_not_causal_fails_causality(monkeypatch):
    mask = tuple_operator.visibility_mask
    monkeypatch.setattr(tuple_operator, "visibility_mask", lambda *about: mask(*about[:3], False, *about[4:]))
    assert failing("ha:3", "causality", "counts") == {"causality"}


def test_a_mask_multiplied_into_the_scores_fails_the_mask_check(monkeypatch):
    def multiplied(scores, visible, dims):
        scores = scores * torch.zeros_like(scores).masked_fill(~visible, float("-inf"))
        top = scores.amax(dims, keepdim=True)
        return (scores - top).exp(), top

    monkeypatch.setattr(tuple_operator, "softmax_over", multiplied)
    assert failing("ha:3", "mask") == {"mask"}


def test_strict_in_place_of_ordered_tuples_fails_the_mask_check(monkeypatch):
    mask = tuple_operator.visibility_mask
    monkeypatch.setattr(tuple_operator, "visibility_mask", lambda slots, tuples, *about: mask(slots, "s", *about))
    assert failing("ha:3", "mask") == {"mask"}


def test_swapped_slots_fail_path_dense_and_steps(monkeypatch):
    by_slot = tuple_operator.HyperAttention._by_slot
    monkeypatch.setattr(tuple_operator.HyperAttention, "_by_slot", lambda *how: by_slot(*how)[::-1])
    assert failing("ha:3u-q", "path dense", "steps", "causality") == {"path dense", "steps"}


@pytest.mark.slow
def test_rope_over_the_head_instead_of_the_factor_is_caught(monkeypatch):
    for name in ("rotate_query", "rotate_key"):
        monkeypatch.setattr(feature_operator.HyperFeatureAttention, name, lambda self, x, at: rotate(x, at))
    assert failing("hfa:2-p", "path dense", "steps", "causality") == {"path dense", "steps"}


@pytest.mark.slow
def test_one_scale_for_all_factors_is_caught(monkeypatch):
    scores = feature_operator.HyperFeatureAttention.scores

    def scaled(self, q, k):
        widths = feature_operator.factor_widths(self.d_qk, 2, self.rope)
        return scores(self, q, k) * (widths[0] * widths[1]) ** 0.5 / self.d_qk

    monkeypatch.setattr(feature_operator.HyperFeatureAttention, "scores", scaled)
    assert failing("hfa:2", "path dense", "steps", "causality") == {"path dense", "steps"}


def test_a_strict_step_of_the_running_sums_that_takes_the_token_itself_fails_linear_time(monkeypatch):
    sums = tuple_operator.tuple_sums
    monkeypatch.setattr(tuple_operator, "tuple_sums", lambda terms, tuples, *rest: sums(terms, "", *rest))
    assert failing("ha:L3s", "linear time", "path dense") == {"linear time"}


@pytest.mark.slow
def test_a_gradient_lost_in_later_blocks_fails_only_path_chunked(monkeypatch):
    attend = feature_operator.HyperFeatureAttention.attend

    def without_slope(self, q, k, v, first_row):
        return attend(self, q, k.detach() if first_row else k, v, first_row)

    monkeypatch.setattr(feature_operator.HyperFeatureAttention, "attend", without_slope)
    assert failing("hfa:2w-p-q", "path chunked", "path dense", "gradients") == {"path chunked"}


@pytest.mark.slow
def test_running_sums_lost_after_a_block_fail_linear_time(monkeypatch):
    read_totals = feature_operator.HyperFeatureAttention.read_totals

    def lost(self, q, state):
        return read_totals(self, q, tuple(part * (1 + 1e-6) for part in state))

    monkeypatch.setattr(feature_operator.HyperFeatureAttention, "read_totals", lost)
    assert failing("hfa:L2", "path linear_time", "path dense") == {"path linear_time"}


def test_positions_in_bfloat16_fail_far_rope(monkeypatch):
    sound = tuple_operator.HyperAttention._turn

    def turn(self, q, position):
        near = sound(self, q, 0)
        rounded = torch.arange(position, position + q.shape[2]).bfloat16().long()
        return torch.cat([sound(self, q, int(at))[:1] for at in rounded]).to(near)

    monkeypatch.setattr(tuple_operator.HyperAttention, "_turn", turn)
    assert failing("ha:3-p", "RoPE in bfloat16", "path dense") == {"RoPE in bfloat16"}


def test_a_gradient_of_twice_its_size_fails_gradients(monkeypatch):
    project = tuple_operator.HyperAttention.project

    def doubled(self, x):
        q, k, v = project(self, x)
        return 2 * q - q.detach(), k, v

    monkeypatch.setattr(tuple_operator.HyperAttention, "project", doubled)
    assert failing("ha:3us-q", "gradients", "path dense", "steps") == {"gradients", "path dense", "steps"}


def test_naive_rotation_of_keys_fails_rope(monkeypatch):
    def once(self, q, at):
        first, second = q.chunk(2, dim=-1)
        turned = torch.complex(first, -second) * self._turn(q, at)[:, : self.d_qk // 2].conj()
        return torch.cat((turned, 1j * turned), dim=-1)

    monkeypatch.setattr(tuple_operator.HyperAttention, "rotate_query", once)
    assert failing("ha:3-p", "RoPE") == {"RoPE"}
