"""Prefill compared with single steps: outputs, the cache, and what follows from the cache."""

from __future__ import annotations

import pytest
import torch

from coefficient_labels import random_label
from madbench.mixers import build
from madbench.mixers.cd.grammar import PRESETS
from madbench.mixers.cd.operator import CoefficientMixer
from madbench.mixers.recurrence import forms

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
LABELS = (
    *(f"cd:{name}" for name in PRESETS),
    *("cd:exp-sum-pc", "cd:relu-ss-sum", "cd:relu-0.95-pow-c", "cd:softplus-0.95hk1-bw-pow", "cd:elu-dm-bd-max-p"),
    *("cd:sigmoid-smhz2-bz-wx-cg", "cd:relu-dghk2-bwn-cuo", "cd:exp-sehzr-bi-max", "cd:exp-hkr-sum-p"),
    *("cd:id-se-bi-max-cg", "cd:id-dghk2-bw-sum-u", "cd:id-0.95-pow", "cd:id-sghz1-bu-wx", "cd:kexp-sum-c"),
    *("cd:kelu-dmhz2-bi-max-p", "cd:krelu-1.05hk1-pow-o", "cd:ksoftplus-sshkr-bz-sum-pcu"),
)
PROMPTS = (1, 2, 3, 4, 7, 9)  # the mixers of these tests have blocks of 3 rows; a convolution reads 4


def decode_by_steps(mixer, x, cache=None, slide=False):
    """x (B, T, D) -> its rows (B, T, D), one step per token, and the cache after the last."""
    rows = []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache, slide)
        rows.append(row)
    return torch.stack(rows, dim=1), cache


def check_prompts(mixer, x, prompts=PROMPTS, slide=False):
    for prompt in prompts:
        y, cache = mixer.prefill(x[:, :prompt], slide)
        expected, after = decode_by_steps(mixer, x[:, :prompt], slide=slide)
        torch.testing.assert_close(y, expected, **CLOSE)
        assert vars(cache).keys() == vars(after).keys()
        for name, value in vars(after).items():
            if isinstance(value, torch.Tensor):
                torch.testing.assert_close(getattr(cache, name), value, **CLOSE, msg=lambda m, n=name: f"{n}: {m}")
            else:
                assert getattr(cache, name) == value, name
        rest = x[:, prompt:]
        if rest.shape[1]:
            torch.testing.assert_close(
                decode_by_steps(mixer, rest, cache, slide)[0], decode_by_steps(mixer, rest, after, slide)[0], **CLOSE
            )


@pytest.mark.parametrize("label", LABELS)
@torch.no_grad()
def test_prefill_gives_the_outputs_and_cache_of_single_steps(label, make_mixer, randn, small_sub_blocks):
    check_prompts(make_mixer(label, std=0.3), randn(3, 9, 8), (1, 2, 3, 7, 9))


@pytest.mark.parametrize("label", ["cd:exp-sum-p", "cd:gdn-c", "cd:relu-sshz2-max"])
@torch.no_grad()
def test_prefill_with_a_value_skip_gives_the_outputs_and_cache_of_single_steps(label, make_mixer, randn):
    check_prompts(make_mixer(label, std=0.3, value_skip=True), randn(1, 7, 8))


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 200, 50))
@torch.no_grad()
def test_prefill_of_random_labels_gives_the_cache_of_single_steps(first, make_mixer, randn, small_sub_blocks):
    for seed in range(first, first + 50):
        mixer, x = make_mixer(random_label(seed), std=0.2, seed=seed), randn(1 + 2 * (seed % 2), 9, 8, seed=seed)
        if decode_by_steps(mixer, x)[0].isfinite().all():  # exp of a large score overflows
            check_prompts(mixer, x)


@pytest.mark.parametrize("label", ["cd:relu-ss-sum-c", "cd:exp-hk1-bw-sum", "cd:exp-sum", "cd:gdn", "cd:id-0.95-pow"])
@torch.no_grad()
def test_prefill_slides_like_single_steps(label, make_mixer, randn):
    check_prompts(make_mixer(label, std=0.3, max_len=4), randn(2, 9, 8), (1, 4, 5, 9), slide=True)


@pytest.mark.parametrize("path", ["dense", "chunked", "blocks", "reference"])
@torch.no_grad()
def test_prefill_gives_the_same_cache_on_every_path(path, make_mixer, randn):
    for label in ("cd:gdn-c", "cd:relu-dghz2-sum"):
        if path != "chunked" or label == "cd:gdn-c":
            check_prompts(make_mixer(label, std=0.3, path=path), randn(1, 7, 8), (7,))


@pytest.mark.parametrize("label", ["cd:gdn", "cd:gla-c", "cd:mlstm", "cd:relu-dghk2-sum", "cd:exp-sum-p"])
@torch.no_grad()
def test_prefill_of_an_ordinary_length_gives_the_cache_of_single_steps(label, randn):
    mixer, x = build(label, 32, 150, n_head=2, budget="paper").double(), randn(1, 150, 32)
    check_prompts(mixer, x, (150,))


@pytest.mark.parametrize("label", ["cd:gdn", "cd:relu-dmhz1-sum"])
def test_gradients_through_prefill_and_steps_equal_those_of_the_parallel_form(label, make_mixer, randn):
    mixer, x, weights = make_mixer(label, std=0.3), randn(2, 9, 8), randn(2, 9, 8, seed=2)
    y, cache = mixer.prefill(x[:, :5])
    y = torch.cat((y, decode_by_steps(mixer, x[:, 5:], cache)[0]), dim=1)
    parameters = list(mixer.parameters())
    given, expected = (torch.autograd.grad((rows * weights).sum(), parameters) for rows in (y, mixer(x)))
    torch.testing.assert_close(given, expected, **CLOSE)


@pytest.mark.parametrize("label", ["cd:gdn-cg", "cd:exp-sum-p", "cd:id-se-bi-max"])
@torch.no_grad()
def test_prefill_under_autocast_gives_the_dtypes_of_single_steps(label, randn):
    mixer, x = build(label, 16, 8, budget="paper"), randn(1, 7, 16).float()
    with torch.autocast("cpu", torch.bfloat16):
        (y, cache), (expected, after) = mixer.prefill(x), decode_by_steps(mixer, x)
    assert y.dtype == expected.dtype
    for name, value in vars(after).items():
        assert not isinstance(value, torch.Tensor) or getattr(cache, name).dtype == value.dtype, name


@pytest.mark.slow
def test_the_prefill_check_catches_a_wrong_cache(monkeypatch):
    from madbench.labels import family_of, parse
    from madbench.mixers import checks

    sound, keys = forms.chunked, forms.evolved_keys
    monkeypatch.setattr(forms, "chunked", lambda *how: (sound(*how)[0], sound(*how)[1] * (1 + 1e-6)))
    monkeypatch.setattr(forms, "evolved_keys", lambda *how: keys(*how) * (1 + 1e-6))
    for label in ("cd:gdn", "cd:relu-ss-sum"):
        outcomes = map(checks.run_check, family_of(label).checks(parse(label)))
        failed = {outcome.check.name for outcome in outcomes if outcome.verdict == "fail"}
        assert "V2 prefill" in failed, label
    assert hasattr(CoefficientMixer, "prefill")
