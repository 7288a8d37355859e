"""Decoding token by token compared with the parallel form."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from madbench.errors import TrainingError
from madbench.labels import parse
from madbench.mixers import build
from madbench.mixers.srg.listing import all_labels
from mixers.srg.equations import one_label_per_equation

WITH_MIXING = ("S-q-1", "S-p-q-12o", "R-q-2", "R-12!", "R-p-v-12o", "G-p-q-1o", "G-g-q-12", "G-g-q-12o")


class Calls(TorchDispatchMode):
    """Counts the operators that are called inside a block."""

    def __init__(self):
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, operator, types, args=(), kwargs=None):
        self.count += 1
        return operator(*args, **(kwargs or {}))


def decode(mixer, x, slide=False):
    """Decode x (B, T, D) with one step per token."""
    cache, rows = None, []
    for token in x.unbind(1):
        y, cache = mixer.step(token, cache, slide=slide)
        rows.append(y)
    return torch.stack(rows, dim=1)


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("label", one_label_per_equation())
def test_steps_equal_the_parallel_form_for_every_equation(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=5, path="dense"), randn(2, 4, 16)
    torch.testing.assert_close(decode(mixer, x), mixer(x))


def test_steps_equal_the_parallel_form_under_mispaired_rope(make_mixer, randn):
    mixer, x = make_mixer("R-p", d_model=64, rope="mispaired"), randn(2, 6, 64)
    torch.testing.assert_close(decode(mixer, x), mixer(x))


def test_steps_equal_the_parallel_form_under_bfloat16_autocast(randn):
    x = randn(2, 8, 32).float()
    for label in ("S-pcg-q-12o", "R-pcg-q-12o", "G-pcg-q-12o"):
        torch.manual_seed(0)
        mixer = build(label, 32, 8, budget="paper", path="dense")
        with torch.autocast("cpu", torch.bfloat16):
            steps, whole = decode(mixer, x).float(), mixer(x).float()
        assert (steps - whole).norm() < 0.03 * whole.norm()


@pytest.mark.parametrize("label", WITH_MIXING)
def test_a_sliding_step_equals_the_parallel_form_on_the_last_max_len_tokens(label, make_mixer, randn):
    """Keys depend only on their own input and RoPE only on offsets, so a window equals a fresh sequence (Theorem
    2.3)."""
    mixer, x = make_mixer(label, max_len=4), randn(2, 9, 16)
    steps = decode(mixer, x, slide=True)
    for t in range(9):
        window = x[:, max(0, t - 3) : t + 1]
        torch.testing.assert_close(steps[:, t], mixer(window)[:, -1])


@pytest.mark.parametrize("label", ["S-cg-q-12o", "R-pc-q-12", "G-cg-q-12o"])
def test_with_a_convolution_cached_keys_depend_on_three_inputs_before_the_window(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=4), randn(2, 9, 16)
    last = decode(mixer, x, slide=True)[:, -1]
    assert (last - mixer(x[:, -4:])[:, -1]).norm() > 1e-3 * last.norm()
    silent = x.clone()
    silent[:, 2:5] = 0  # the three inputs before the window of the last token
    torch.testing.assert_close(decode(mixer, silent, slide=True)[:, -1], mixer(silent[:, -4:])[:, -1])


def test_a_gate_after_rope_makes_a_sliding_window_differ_from_a_fresh_sequence(make_mixer, randn):
    """The QK gate scales the two coordinates of a rotated pair apart: only an even gate keeps scores to offsets."""
    mixer, x = make_mixer("R-pg-v-12o", max_len=4), randn(2, 9, 16)
    last = decode(mixer, x, slide=True)[:, -1]
    assert (last - mixer(x[:, -4:])[:, -1]).norm() > 1e-3 * last.norm()
    mixer.qk_gate.weight.zero_()
    mixer.qk_gate.bias.zero_()
    torch.testing.assert_close(decode(mixer, x, slide=True)[:, -1], mixer(x[:, -4:])[:, -1])


def test_mispaired_rope_makes_a_sliding_window_differ_from_a_fresh_sequence(make_mixer, randn):
    mixer, x = make_mixer("R-p", d_model=64, max_len=4, rope="mispaired"), randn(2, 9, 64)
    last = decode(mixer, x, slide=True)[:, -1]
    assert (last - mixer(x[:, -4:])[:, -1]).norm() > 1e-6 * last.norm()


@pytest.mark.parametrize("label", WITH_MIXING)
def test_a_step_beyond_max_len_is_refused_without_slide(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=4), randn(1, 5, 16)
    decode(mixer, x[:, :4])
    with pytest.raises(TrainingError, match="5 tokens, but .* max_len = 4"):
        decode(mixer, x)


@pytest.mark.parametrize("label", ["S-p", "R-cg-q", "G-pcg!"])
def test_labels_without_mixing_decode_beyond_max_len(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=4), randn(2, 9, 16)
    torch.testing.assert_close(decode(mixer, x), mixer(x))


def test_slide_keeps_the_newest_max_len_tokens_of_labels_without_mixing(make_mixer, randn):
    mixer, x = make_mixer("R-p", max_len=4), randn(2, 9, 16)
    torch.testing.assert_close(decode(mixer, x, slide=True)[:, -1], mixer(x[:, -4:])[:, -1])


@pytest.mark.slow
def test_the_cache_holds_a_key_and_value_per_token_and_three_inputs(make_mixer, randn):
    for label in all_labels()[::7]:
        mixer, cache = make_mixer(label), None
        for t, token in enumerate(randn(2, 3, 16).unbind(1)):
            _, cache = mixer.step(token, cache)
            heads, allocation = 4 if parse(label).base == "G" else 2, mixer.allocation
            assert cache.k.shape == (2, heads, t + 1, allocation.ranks["qk"] // heads)
            assert cache.v.shape == (2, 2, t + 1, allocation.ranks["vo"] // 2)
            assert cache.position == t + 1
            assert cache.inputs.shape == (2, 3, 16) if "c" in label else cache.inputs is None
            state = (cache.k[0].numel() + cache.v[0].numel()) * 2
            assert state == (t + 1) * allocation.state_bytes_per_token(bytes_per_element=2)


def test_a_step_calls_few_operators(make_mixer, randn):
    """The time of a step grows with its calls. The functions of a whole sequence call 94 operators for this step."""
    mixer = make_mixer("G-cg-q-12o")
    _, cache = mixer.step(randn(2, 16))
    with Calls() as calls:
        mixer.step(randn(2, 16), cache)
    assert calls.count <= 80


def test_a_cache_is_not_changed_by_the_step_that_takes_it(make_mixer, randn):
    mixer, x = make_mixer("G-cg-q-12o"), randn(2, 4, 16)
    _, cache = mixer.step(x[:, 0])
    first, _ = mixer.step(x[:, 1], cache)
    mixer.step(x[:, 2], cache)
    again, _ = mixer.step(x[:, 1], cache)
    assert torch.equal(first, again)


@pytest.mark.parametrize("label", ["S-cg-q-12o", "R-12!", "G-cg-q-12o", "L-p-q-1"])
def test_a_step_accepts_an_empty_batch(label, make_mixer):
    mixer = make_mixer(label)
    x = torch.empty(0, 16, dtype=torch.float64)
    y, cache = mixer.step(x)
    assert y.shape == mixer.step(x, cache)[0].shape == (0, 16)


@pytest.mark.parametrize("label", ["S-cg-q-12o", "G-cg-q-12o"])
def test_weights_changed_between_steps_are_used_from_the_next_step_on(label, make_mixer, randn):
    """The cache keeps keys and values made with the earlier weights.

    Without cached weights, steps read the mixer's own.
    """
    mixer, x = make_mixer(label), randn(2, 5, 16)
    _, cache = mixer.prefill(x[:, :4])
    assert cache.weights
    for parameter in mixer.parameters():
        parameter.mul_(1.5)
    given, expected = (mixer.step(x[:, 4], each)[0] for each in (cache, replace(cache, weights=None)))
    torch.testing.assert_close(given, expected, rtol=1e-12, atol=1e-12)
