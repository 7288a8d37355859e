"""Prefill and steps compared with the parallel form, and the storage of keys and values."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from srg_letters import sample_of_labels

LABELS = (
    "S", "S-p", "S-pcg-q-12o", "S-q-12", "R", "R-pg-v-12o", "R-cg-q-12", "R-12o!", "G-cg-q-12o", "G-pcg-q-12", "G-1!",
    "D-p", "D-cg-q-2o", "D-gka-q-12o", "S-pk-q", "R-pgk-q-12o", "R-k-12!", "G-pcgka-v-12o",
)  # fmt: skip


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


def decode(mixer, x, prompt, slide=False):
    """Decode x (B, T, D): the first ``prompt`` tokens at once and one step for each other.

    Returns outputs and caches.
    """
    y, cache = mixer.prefill(x[:, :prompt], slide)
    rows, caches = [y], [cache]
    for token in x[:, prompt:].unbind(1):
        row, cache = mixer.step(token, cache, slide)
        rows.append(row[:, None])
        caches.append(cache)
    return torch.cat(rows, dim=1), caches


def decode_by_steps(mixer, x, slide=False):
    cache, rows = None, []
    for token in x.unbind(1):
        row, cache = mixer.step(token, cache, slide)
        rows.append(row)
    return torch.stack(rows, dim=1), cache


def addresses(caches):
    return [(cache.storage.k.data_ptr(), cache.storage.v.data_ptr()) for cache in caches]


@pytest.mark.slow
@pytest.mark.parametrize("prompt", [1, 2, 5, 8])
@pytest.mark.parametrize("label", LABELS)
def test_a_prompt_and_steps_equal_the_parallel_form(label, prompt, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=8), randn(2, 8, 16)
    y, caches = decode(mixer, x, prompt)
    torch.testing.assert_close(y, mixer(x))
    assert [cache.position for cache in caches] == list(range(prompt, 9))


@pytest.mark.slow
@pytest.mark.parametrize("label", sample_of_labels(96))
def test_a_prompt_and_steps_equal_the_parallel_form_for_a_sample_of_labels(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=6), randn(2, 6, 16)
    torch.testing.assert_close(decode(mixer, x, 3)[0], mixer(x))


@pytest.mark.parametrize("label", ["R-pg-v-12o", "S-pg-q", "D-pg-q"])
def test_a_prompt_and_steps_equal_the_parallel_form_with_rope_after_the_gate(label, make_mixer, randn):
    mixer, x = make_mixer(label, d_model=64, max_len=6, rope_order="after_gate"), randn(2, 6, 64)
    torch.testing.assert_close(decode(mixer, x, 4)[0], mixer(x))


@pytest.mark.parametrize("path", ["reference", "dense", "chunked", "sdpa"])
def test_every_path_fills_the_same_cache(path, make_mixer, randn):
    label, x = "S-pc" if path == "sdpa" else "S-pcg-q-12o", randn(2, 7, 16)
    mixer = make_mixer(label, max_len=8, path=path, chunk=2)
    _, expected = decode_by_steps(mixer, x)
    y, cache = mixer.prefill(x)
    assert torch.equal(y, mixer(x))
    for name in ("k", "v", "inputs"):
        torch.testing.assert_close(getattr(cache, name), getattr(expected, name))


@pytest.mark.parametrize("prompt", [1, 3, 4, 6])
@pytest.mark.parametrize("label", ["S-p", "D-pc", "R-cg-q", "R-pgk-q-12o", "G-cg-q-12o", "G-pcg-q-12", "S-k-q-1"])
def test_in_a_sliding_window_a_prompt_and_steps_equal_steps_alone(label, prompt, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=4), randn(2, 19, 16)
    y, caches = decode(mixer, x, prompt, slide=True)
    expected, last = decode_by_steps(mixer, x, slide=True)
    torch.testing.assert_close(y, expected)
    torch.testing.assert_close(caches[-1].k, last.k)
    assert caches[-1].k.shape[2] == 4 and caches[-1].position == 19


@pytest.mark.parametrize("label", ["S-p", "G-cg-q-12", "G-cg-q-12o"])
def test_decoding_up_to_max_len_does_not_move_the_cache(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=32), randn(2, 32, 16)
    for _, caches in (decode(mixer, x, 9), decode(mixer, x, 1)):
        assert len(set(addresses(caches))) == 1


def test_beyond_max_len_the_storage_doubles(make_mixer, randn):
    mixer, x = make_mixer("R-p", max_len=4), randn(1, 40, 16)
    y, caches = decode(mixer, x, 3)
    rows = [cache.storage.k.shape[2] for cache in caches]
    assert sorted(set(rows)) == [4, 8, 16, 32, 64] and rows == sorted(rows)
    torch.testing.assert_close(y, mixer(x))


@pytest.mark.parametrize("label", ["R-p", "R-12o!", "R-12!"])
def test_a_sliding_window_moves_once_in_max_len_tokens(label, make_mixer, randn):
    _, caches = decode(make_mixer(label, max_len=16), randn(1, 160, 16), 8, slide=True)
    moves = sum(before != after for before, after in zip(addresses(caches), addresses(caches)[1:]))
    assert moves <= 160 / 14 and max(cache.storage.k.shape[2] for cache in caches) <= 32


@pytest.mark.parametrize("label", ["S-pcg-q-12", "G-cg-q-12o"])
def test_two_continuations_of_one_prompt_are_independent(label, make_mixer, randn):
    mixer, prompt = make_mixer(label, max_len=8), randn(2, 3, 16)
    _, cache = mixer.prefill(prompt)
    ends = [randn(2, 4, 16, seed=seed) for seed in (2, 3)]
    caches, found = [cache, cache], [[], []]
    for t in range(4):
        for n, end in enumerate(ends):
            row, caches[n] = mixer.step(end[:, t], caches[n])
            found[n].append(row)
    for rows, end in zip(found, ends):
        torch.testing.assert_close(torch.stack(rows, dim=1), mixer(torch.cat((prompt, end), dim=1))[:, 3:])


def test_unused_rows_of_the_cache_are_not_read(make_mixer, randn):
    for label in ("S-p", "R-12o!", "G-cg-q-12", "D-gka-q-12o"):
        mixer, x = make_mixer(label, max_len=8), randn(2, 6, 16)
        y, cache = mixer.prefill(x[:, :4])
        free = slice(cache.storage.used, None)
        cache.storage.k[:, :, free] = cache.storage.v[:, :, free] = float("nan")
        for t in (4, 5):
            y, cache = mixer.step(x[:, t], cache)
            torch.testing.assert_close(y, mixer(x)[:, t])


@pytest.mark.parametrize("label", ["S-p", "G-cgk-q-12o", "R-pcg-q-12"])
def test_gradients_through_a_prompt_and_steps_equal_the_parallel_form(label, make_mixer, randn):
    mixer, x, cotangent = make_mixer(label, max_len=6), randn(2, 6, 16), randn(2, 6, 16, seed=2)
    with torch.enable_grad():
        parameters = list(mixer.parameters())
        given = torch.autograd.grad((decode(mixer, x, 3)[0] * cotangent).sum(), parameters)
        expected = torch.autograd.grad((mixer(x) * cotangent).sum(), parameters)
    torch.testing.assert_close(given, expected)


def test_a_cache_made_in_inference_mode_can_be_used_outside(make_mixer, randn):
    mixer, x = make_mixer("R-12o!"), randn(2, 6, 16)
    with torch.inference_mode():
        _, cache = mixer.prefill(x[:, :3])
    for t in (3, 4, 5):
        row, cache = mixer.step(x[:, t], cache)
        torch.testing.assert_close(row, mixer(x)[:, t])


def test_a_step_calls_hooks_of_gates(make_mixer, randn):
    mixer, x, seen = make_mixer("G-cg-q-12o"), randn(2, 4, 16), []
    mixer.vo_gate.register_forward_hook(lambda layer, given, y: seen.append(y.shape[1]) or y + 1)
    given, _ = decode(mixer, x, 2)
    assert seen[-2:] == [1, 1]
    torch.testing.assert_close(given, mixer(x))


@pytest.mark.parametrize("label", ["R-cg-q-12o", "R-q-12"])
def test_steps_use_mixing_tables_changed_after_the_prompt(label, make_mixer, randn):
    mixer, x = make_mixer(label), randn(2, 4, 16)
    _, cache = mixer.prefill(x[:, :3])
    before, _ = mixer.step(x[:, 3], cache)
    assert cache.weights
    for table in (mixer.mix1.p, mixer.mix1.A, mixer.mix1.B, mixer.mix2.A, mixer.mix2.B):
        table.add_(1)
    without_gradients, _ = mixer.step(x[:, 3], cache)
    with torch.enable_grad():
        with_gradients, _ = mixer.step(x[:, 3], cache)
    for row in (without_gradients, with_gradients):
        assert not torch.allclose(row, before)
        torch.testing.assert_close(row, mixer(x)[:, 3])
    torch.testing.assert_close(decode(mixer, x, 3)[0], mixer(x))


def test_a_prompt_and_steps_under_bfloat16_autocast_are_near_the_parallel_form(randn):
    x = randn(2, 8, 32).float()
    for label in ("S-pcg-q-12o", "R-pcg-q-12", "G-pcgk-q-12o", "D-p"):
        torch.manual_seed(0)
        mixer = build(label, 32, 8, budget="paper", path="dense")
        with torch.autocast("cpu", torch.bfloat16):
            given, whole = decode(mixer, x, 4)[0].float(), mixer(x).float()
        assert (given - whole).norm() < 0.03 * whole.norm()


def test_decoding_continues_in_float32_from_a_bfloat16_cache(randn):
    mixer, x = build("G-cg-q-12o", 32, 8, budget="paper"), randn(2, 6, 32).float()
    with torch.autocast("cpu", torch.bfloat16):
        _, cache = mixer.prefill(x[:, :5])
    row, cache = mixer.step(x[:, 5], cache)
    assert row.dtype == cache.k.dtype == torch.float32
    assert (row - mixer(x)[:, 5]).norm() < 0.05 * row.norm()


def test_the_dtype_of_a_mixer_may_change_between_steps(make_mixer, randn):
    mixer, x = make_mixer("G-cg-q-12o").float(), randn(2, 6, 16).float()
    _, cache = mixer.prefill(x[:, :5])
    row, _ = mixer.double().step(x[:, 5].double(), cache)
    assert row.dtype == torch.float64
    torch.testing.assert_close(row, mixer(x.double())[:, 5], rtol=1e-5, atol=1e-5)


def test_empty_prompts_wrong_shapes_and_other_batches_are_refused(make_mixer, randn):
    mixer = make_mixer("G-cg-q-12o", max_len=4)
    with pytest.raises(TrainingError, match="0 tokens; a sequence has at least one"):
        mixer.prefill(randn(2, 0, 16))
    with pytest.raises(TrainingError, match=r"expected \(B, T, D\) of floating-point numbers, got \(2, 16\)"):
        mixer.prefill(randn(2, 16))
    with pytest.raises(TrainingError, match="5 tokens, but .* max_len = 4"):
        mixer.prefill(randn(2, 5, 16))
    _, cache = mixer.prefill(randn(2, 2, 16))
    with pytest.raises(TrainingError, match=r"a step takes one token of each sequence, \(B, D\), not \(2, 1, 16\)"):
        mixer.step(randn(2, 1, 16), cache)
    with pytest.raises(TrainingError, match="1 tokens, but the cache is of 2 sequences"):
        mixer.step(randn(1, 16), cache)


def test_a_non_causal_mixer_refuses_to_decode(make_mixer, randn):
    mixer = make_mixer("S-p", max_len=4, causal=False)
    for decode, shape in ((mixer.prefill, (2, 3, 16)), (mixer.step, (2, 16))):
        with pytest.raises(TrainingError, match="S-p: a mixer of all tokens cannot decode; build it with causal=True"):
            decode(randn(*shape))


@pytest.mark.slow
def test_a_mixer_that_decodes_a_prompt_wrongly_is_caught_by_name(monkeypatch):
    from madbench.labels import family_of, parse
    from madbench.mixers import checks

    sound = DynamicMLP.prefill
    monkeypatch.setattr(DynamicMLP, "prefill", lambda self, x, slide=False: sound(self, x.flip(1), slide))
    outcomes = map(checks.run_check, family_of("S-p").checks(parse("S-p")))
    assert [outcome.check.name for outcome in outcomes if outcome.verdict == "fail"] == [
        "prefill", "ordinary size", "settings",
    ]  # fmt: skip
