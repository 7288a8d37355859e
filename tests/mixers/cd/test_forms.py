"""Every form of every label against eq. 4 as float64 loops: outputs and all gradients."""

from __future__ import annotations

import pytest
import torch

from coefficient_labels import random_label
from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.cd.grammar import PRESETS, READOUTS
from madbench.mixers.checks.residuals import difference

ROUNDING = 1e-10


def paths_of(mixer):
    """The forms that this label has besides the reference."""
    linear = ["chunked"] * mixer.label.is_recurrent
    return ["dense", "blocks", *linear, *["sdpa"] * mixer.label.is_softmax, "step"]


def with_gradients(compute, x, mixer, weights):
    """The output and its gradients for the input and every parameter."""
    y = compute()
    inputs = [x, *mixer.parameters()]
    found = torch.autograd.grad((y * weights).sum(), inputs, allow_unused=True)
    return [y, *(torch.zeros(()) if gradient is None else gradient for gradient in found)]


def residuals(label, make_mixer, decode, randn, seed, **settings):
    """The largest relative difference from the reference over the output and all gradients, by form."""
    mixer, x, weights = (
        make_mixer(label, std=0.3, seed=seed, **settings),
        randn(1, 7, 8, seed=seed).requires_grad_(),
        randn(1, 7, 8),
    )
    mixer.path = "reference"
    expected = with_gradients(lambda: mixer(x), x, mixer, weights)
    if not all(part.isfinite().all() for part in expected):
        return {}  # exp of a large score: the loops overflow where the equations do
    found = {}
    for path in paths_of(mixer):
        mixer.path = path
        given = with_gradients(lambda: decode(mixer, x) if mixer.path == "step" else mixer(x), x, mixer, weights)
        pairs = zip(given, expected, strict=True)
        found[path] = torch.stack([(a - b).abs().max() / (1 + b.abs().max()) for a, b in pairs]).max().item()
    return found


@pytest.mark.parametrize("label", [f"cd:{text}" for text in PRESETS.values()])
def test_every_form_of_a_preset_equals_the_reference_loops(label, make_mixer, decode, randn, small_sub_blocks):
    for path, residual in residuals(label, make_mixer, decode, randn, 0).items():
        assert residual <= ROUNDING, path


@pytest.mark.parametrize("label", ["cd:softmax-p", "cd:id-sm-bd-cg", "cd:gdn-cg", "cd:kelu-sum-c", "cd:mlstm"])
def test_every_form_with_a_value_skip_equals_the_reference_loops(label, make_mixer, decode, randn, small_sub_blocks):
    for path, residual in residuals(label, make_mixer, decode, randn, 0, value_skip=True).items():
        assert residual <= ROUNDING, path


@pytest.mark.parametrize("label", ["cd:id-sm-cg", "cd:exp-sum"])
def test_a_value_skip_adds_the_tokens_own_value_times_a_scalar_per_head(label, make_mixer, randn):
    plain, skipping, x = make_mixer(label), make_mixer(label, value_skip=True), randn(1, 5, 8)
    skipping.load_state_dict(plain.state_dict(), strict=False)
    count = [sum(parameter.numel() for parameter in mixer.parameters()) for mixer in (plain, skipping)]
    assert count[1] - count[0] == 2 and count == [mixer.allocation.total for mixer in (plain, skipping)]
    assert build(label, 8, 8, value_skip=True).skip.tolist() == [1, 1]
    with torch.no_grad():
        skipping.skip.zero_()
        torch.testing.assert_close(skipping(x), plain(x))
        skipping.skip.fill_(1)
        both = skipping(x)
        assert not torch.allclose(both, plain(x), rtol=1e-2)
        skipping.skip[1] = 0
        first = skipping(x)
        skipping.skip.copy_(torch.tensor([0.0, 1.0]))
        assert not torch.allclose(first, both, rtol=1e-2)
        torch.testing.assert_close(first + skipping(x), both + plain(x))


def test_a_constant_factor_of_b_matters_only_with_a_value_skip(make_mixer, randn):
    x = randn(1, 6, 8)
    for skips, is_same in ((False, True), (True, False)):
        first, second = (make_mixer(label, std=3, value_skip=skips) for label in ("cd:id-sm-b1-cg", "cd:id-sm-cg"))
        second.load_state_dict(first.state_dict())
        with torch.no_grad():
            assert (difference(first(x), second(x)) < 1e-3) is is_same


@pytest.mark.parametrize("seed", range(14))
def test_every_form_of_a_random_label_equals_the_reference_loops(seed, make_mixer, decode, randn, small_sub_blocks):
    label = random_label(seed)
    for path, residual in residuals(label, make_mixer, decode, randn, seed).items():
        assert residual <= ROUNDING, (str(label), path)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(100, 200, 50))
def test_every_form_of_many_random_labels_equals_the_reference_loops(
    first, make_mixer, decode, randn, small_sub_blocks
):
    for seed in range(first, first + 50):
        label = random_label(seed)
        for path, residual in residuals(label, make_mixer, decode, randn, seed).items():
            assert residual <= ROUNDING, (str(label), path)


@pytest.mark.parametrize("length", [1, 15, 17, 33])
@pytest.mark.parametrize(
    "label", ["cd:id-dghk2-bi-max", "cd:kelu-sshz2-sum", "cd:softplus-dm-p", "cd:exp-0.95hkr-sum-c"]
)
def test_forms_agree_at_lengths_around_whole_blocks(label, length, make_mixer, decode, randn):
    mixer, x = make_mixer(label), randn(2, length, 8)
    mixer.chunk = 16
    expected = decode(mixer, x)
    for path in paths_of(mixer)[:-1]:
        mixer.path = path
        torch.testing.assert_close(mixer(x), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("readout", READOUTS)
def test_only_recurrent_readouts_have_a_chunked_form(readout, make_mixer):
    label = f"cd:{readout}-sum"
    if readout == "id" or readout.startswith("k"):
        assert build(label, 8, 2048, path="chunked").resolve_path(1, 2048) == "chunked"
        assert build(label, 8, 2048).resolve_path(1, 2048) == "chunked"
    else:
        with pytest.raises(TrainingError, match="use 'auto'"):
            build(label, 8, 2048, path="chunked")
        assert build(label, 8, 2048).resolve_path(1, 2048) == ("sdpa" if readout == "exp" else "blocks")


def test_an_input_of_zero_tokens_is_an_error(make_mixer, randn):
    with pytest.raises(TrainingError, match="0 tokens"):
        make_mixer("cd:id-ss")(randn(1, 0, 8))
