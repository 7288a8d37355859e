"""The fast paths compared with the reference in outputs and gradients, the choice of paths, and refused inputs."""

from __future__ import annotations

import functools
import re

import pytest
import torch

from madbench.errors import ConfigError, TrainingError
from madbench.mixers import build
from madbench.mixers.ops.tracing import as_compiled
from madbench.mixers.srg.reference import reference
from mixers.srg.equations import one_label_per_equation

DOZEN = (
    "S", "S-pcg-q-12o", "S-g!", "S-v-1",
    "R", "R-q-12", "R-12o!", "R-pcg-v-12o",
    "G", "G-q-1o", "G-q-2", "G-cg-q-12o",
)  # fmt: skip
FULL = ("S-pcg-q-12o", "R-pcg-q-12o", "G-pcg-q-12o")


def run(mixer, path, x, cotangent):
    """Output, and the gradient of x and of each parameter, of <output, cotangent>."""
    mixer.path = path
    x = x.clone().requires_grad_()
    names, parameters = zip(*mixer.named_parameters())
    y = mixer(x)
    gradients = torch.autograd.grad(y, (x, *parameters), cotangent)
    return y.detach(), dict(zip(("x", *names), gradients))


def fast_paths(mixer):
    return ("dense", "chunked", *["tiled"] * mixer.has_tiles, *["sdpa"] * mixer.uses_sdpa)


def assert_equal(result, expected, tolerance):
    """Assert small errors relative to the largest gradient.

    Some gradients are zero in exact arithmetic, such as that of the size of q under R with d_qk = 1.
    """
    (y, gradients), (expected_y, expected_gradients) = result, expected
    assert y.isfinite().all()
    assert (y - expected_y).norm() <= tolerance * expected_y.norm()
    assert gradients.keys() == expected_gradients.keys()
    largest = max(gradient.norm() for gradient in expected_gradients.values())
    for name, gradient in gradients.items():
        error = (gradient - expected_gradients[name]).norm()
        assert error <= tolerance * largest, f"{name}: {error:.1e} of {largest:.1e}"


@pytest.mark.parametrize("label", one_label_per_equation())
def test_every_path_equals_the_reference_for_every_equation(label, make_mixer, randn):
    mixer = make_mixer(label, n_head=1, max_len=4, chunk=2)
    x, cotangent = randn(1, 3, 16), randn(1, 3, 16, seed=2)
    expected = run(mixer, "reference", x, cotangent)
    for path in fast_paths(mixer):
        assert_equal(run(mixer, path, x, cotangent), expected, 1e-9)


@pytest.mark.parametrize("n_head", [2, 3])
@pytest.mark.parametrize("label", DOZEN)
def test_every_path_equals_the_reference_with_several_heads_and_sequences(label, n_head, make_mixer, randn):
    mixer = make_mixer(label, d_model=24, n_head=n_head, chunk=2)
    x, cotangent = randn(2, 3, 24), randn(2, 3, 24, seed=2)
    expected = run(mixer, "reference", x, cotangent)
    for path in fast_paths(mixer):
        assert_equal(run(mixer, path, x, cotangent), expected, 1e-9)


@pytest.fixture(scope="module")
def long_reference(make_mixer, randn):
    """The float64 reference of a label at a length below max_len, cached for both dtypes."""

    @functools.cache
    def compute(label, length):
        x, cotangent = randn(1, length, 16), randn(1, length, 16, seed=2)
        mixer = make_mixer(label, n_head=1, max_len=140, chunk=16, std=0.2)
        return run(mixer, "reference", x, cotangent)

    return compute


@pytest.mark.slow
@pytest.mark.parametrize(
    "label, length, dtype, tolerance",
    [
        *((label, length, torch.float64, 1e-9) for i, label in enumerate(DOZEN) for length in (1, 7, 63 + i % 2 * 2)),
        *((label, 7, torch.float32, 1e-4) for label in DOZEN),
        *((label, 130, *how) for label in FULL for how in ((torch.float64, 1e-9), (torch.float32, 1e-4))),
    ],
)
def test_every_path_equals_the_reference_at_odd_lengths(
    label, length, dtype, tolerance, long_reference, make_mixer, randn
):
    mixer = make_mixer(label, n_head=1, max_len=140, chunk=16, std=0.2, dtype=dtype)
    x, cotangent = randn(1, length, 16).to(dtype), randn(1, length, 16, seed=2).to(dtype)
    for path in fast_paths(mixer):
        assert_equal(run(mixer, path, x, cotangent), long_reference(label, length), tolerance)


@pytest.mark.parametrize("label", ["S-p", "R-pg!", "G-pcg-v-12o"])
def test_mispaired_rope_equals_the_reference(label, make_mixer, randn):
    mixer = make_mixer(label, d_model=64, rope="mispaired", chunk=2)
    x, cotangent = randn(2, 5, 64), randn(2, 5, 64, seed=2)
    expected = run(mixer, "reference", x, cotangent)
    for path in fast_paths(mixer):
        assert_equal(run(mixer, path, x, cotangent), expected, 1e-9)


@pytest.mark.parametrize("path", ["dense", "chunked", "tiled"])
@pytest.mark.parametrize("label", FULL)
def test_sequences_of_a_batch_are_independent(label, path, make_mixer, randn):
    mixer, x = make_mixer(label, path=path, chunk=2), randn(3, 6, 16)
    together = mixer(x)
    for row in range(3):
        torch.testing.assert_close(mixer(x[row : row + 1])[0], together[row])


@pytest.mark.slow
@pytest.mark.parametrize("label, path", list(zip(FULL, ("chunked", "dense", "tiled"))))
def test_bfloat16_autocast_trains(label, path, randn):
    torch.manual_seed(0)
    mixer = build(label, 32, 16, path=path, budget="paper")
    mixer.chunk = 5
    x, target = randn(4, 16, 32).float(), 0.3 * randn(4, 16, 32, seed=2).float().cumsum(1)
    optimizer = torch.optim.AdamW(mixer.parameters(), lr=2e-2)
    losses = []
    for _ in range(10):
        with torch.autocast("cpu", torch.bfloat16):
            y = mixer(x)
        loss = (y.float() - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0], losses


@pytest.mark.parametrize("label", FULL)
def test_bfloat16_autocast_stays_near_float32(label, make_mixer, randn):
    mixer, x = make_mixer(label, dtype=torch.float32, std=0.1), randn(4, 6, 16).float()
    exact = mixer(x)
    with torch.autocast("cpu", torch.bfloat16):
        rounded = mixer(x).float()
    assert (rounded - exact).norm() < 0.05 * exact.norm()


def test_a_zero_input_gives_finite_gradients(make_mixer):
    for label in FULL:
        mixer = make_mixer(label, path="dense")
        x = torch.zeros(1, 4, 16, dtype=torch.float64, requires_grad=True)
        y = mixer(x)
        y.sum().backward()
        assert (y == 0).all() and x.grad.isfinite().all()


def test_auto_uses_sdpa_only_for_softmax_without_mixing():
    assert build("S-pcg-q", 16, 8).resolve_path(1, 8) == "sdpa"
    assert build("S-1!", 16, 8).resolve_path(1, 8) == "dense"
    assert build("R", 16, 8).resolve_path(1, 8) == "dense"


def test_auto_uses_path_tiled_on_a_cpu_from_four_mebibytes_of_scores():
    mixer = build("R", 16, 8)
    assert mixer.resolve_path(1, 723) == "chunked"  # 2 heads * 723^2 * 4 bytes < 2^22
    assert mixer.resolve_path(1, 725) == "tiled"
    assert mixer.resolve_path(31, 128) == "dense"
    assert mixer.resolve_path(32, 128) == "tiled"
    assert build("G", 16, 8).resolve_path(16, 128) == "tiled"  # four query heads
    assert build("S-1!", 16, 8).resolve_path(32, 128) == "tiled"
    assert build("D-q-1", 16, 8).resolve_path(32, 128) == "dense"


def test_auto_uses_path_tiled_for_softmax_in_large_training_steps():
    mixer = build("S-p", 144, 128, n_head=12)
    assert mixer.resolve_path(16, 128) == "tiled"  # nanoGPT's comparison
    assert mixer.resolve_path(10, 128) == "sdpa"  # 10 * 12 heads * 128^2 * 4 bytes < 2^23
    assert mixer.resolve_path(300, 32) == "sdpa"  # one block has all rows and skips no masked score
    assert mixer.resolve_path(16, 256) == "sdpa"  # too many weights to keep
    assert build("D-p", 128, 128).resolve_path(16, 128) == "sdpa"  # of the profile tiny
    assert build("S-p", 144, 128, n_head=12, causal=False).resolve_path(16, 128) == "sdpa"
    with torch.no_grad():
        assert mixer.resolve_path(16, 128) == "sdpa"
    with torch.autocast("cpu", torch.bfloat16):
        assert mixer.resolve_path(16, 128) == "sdpa"
    with as_compiled(True):
        assert mixer.resolve_path(16, 128) == "sdpa"
    paths = []
    torch.func.grad(lambda x: paths.append(mixer.resolve_path(16, 128)) or x)(torch.ones(()))
    assert paths == ["sdpa"]


def test_auto_uses_path_chunked_for_long_inputs_and_over_one_gibibyte():
    mixer = build("R-k!", 16, 8)
    assert mixer.resolve_path(1, 512) == "dense"
    assert mixer.resolve_path(1, 513) == "chunked"
    assert mixer.resolve_path(512, 512) == "dense"  # 512 * 2 heads * 512^2 * 4 bytes = 2^30
    assert mixer.resolve_path(513, 512) == "chunked"
    assert build("G-k!", 16, 8).resolve_path(512, 512) == "chunked"  # four query heads
    assert mixer.resolve_path(2**20, mixer.chunk) == "dense"  # one block is all there is


def test_a_requested_path_is_used():
    assert build("S", 16, 8, path="dense").resolve_path(1, 8) == "dense"
    assert build("S", 16, 8, path="chunked").resolve_path(1, 8) == "chunked"


def test_an_unknown_path_is_refused_with_the_nearest_one():
    with pytest.raises(TrainingError, match="'chunkd' is not known; did you mean 'chunked'"):
        build("R", 16, 8, path="chunkd")


def test_an_unknown_rope_is_refused_with_the_nearest_one():
    with pytest.raises(ConfigError, match="settings of R-p: rope: 'rotations' is not allowed; did you mean 'rotation'"):
        build("R-p", 16, 8, rope="rotations")


@pytest.mark.parametrize("label", ["R", "G", "S-q-1", "S-2o!"])
def test_sdpa_is_refused_for_labels_that_it_cannot_compute(label):
    with pytest.raises(TrainingError, match=f"'sdpa' cannot compute {label}: "):
        build(label, 16, 8, path="sdpa")


@pytest.mark.slow
@pytest.mark.parametrize("path", ["auto", "reference", "dense", "chunked", "tiled"])
@pytest.mark.parametrize("label", ["S-q-1", "R-q-2", "G-12o!"])
def test_more_tokens_than_the_mixing_tables_hold_are_refused(label, path, make_mixer, randn):
    mixer = make_mixer(label, max_len=6, path=path)
    assert mixer(randn(1, 6, 16)).shape == (1, 6, 16)
    with pytest.raises(TrainingError, match="7 tokens, but .* max_len = 6"):
        mixer(randn(1, 7, 16))


@pytest.mark.parametrize("label", ["S", "R-pcg-q", "G-c"])
def test_labels_without_mixing_take_any_length(label, make_mixer, randn):
    assert make_mixer(label, max_len=6)(randn(1, 50, 16)).shape == (1, 50, 16)


@pytest.mark.slow
@pytest.mark.parametrize("label", ["S-pcg-q-12", "R-pcg-q-12o", "G-pcg-q-12o", "R-2!", "G"])
@pytest.mark.parametrize("path", ["dense", "chunked", "tiled"])
def test_a_module_in_bfloat16_throughout_stays_close_to_the_reference(label, path, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=32, path=path, chunk=8), randn(2, 21, 16)
    expected = reference(dict(mixer.named_parameters()), mixer.label, mixer.n_head, x, mixer.rope)
    given = mixer.bfloat16()(x.bfloat16())
    assert given.dtype == torch.bfloat16
    assert (given.double() - expected).norm() < 0.05 * expected.norm()


@pytest.mark.slow
def test_no_tokens_are_one_error_for_every_equation_path_and_step(make_mixer):
    for label in one_label_per_equation():
        mixer = make_mixer(label, d_model=8, max_len=2, mix_rank=1)
        nothing = torch.zeros(2, 0, 8, dtype=torch.float64)
        for path in ("auto", "reference", "dense", "chunked"):
            mixer.path = path
            with pytest.raises(TrainingError, match=f"^{re.escape(label)}: 0 tokens; a sequence has at least one$"):
                mixer(nothing)
        with pytest.raises(TrainingError, match=r"a step takes one token of each sequence, \(B, D\), not \(2, 0, 8\)$"):
            mixer.step(nothing)
