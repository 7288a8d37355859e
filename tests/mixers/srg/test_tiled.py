"""The path tiled: gradients at many tile sizes, saved tensors, precision, and refused labels."""

from __future__ import annotations

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import TrainingError
from madbench.mixers import build
from madbench.mixers.ops import products, softmax
from madbench.mixers.srg import tiled

LABELS = ("S-p", "S-12o!", "S-2!", "D-p", "R", "R-q-1", "R-cg-q-12o", "G-2o!", "G-pcg-q-12o", "G-pg-q-12")


def run(mixer, path, x, cotangent):
    """Output, and the gradients of x and of each parameter, of <output, cotangent>."""
    mixer.path = path
    x = x.clone().requires_grad_()
    y = mixer(x)
    return [y, *torch.autograd.grad(y, (x, *mixer.parameters()), cotangent)]


def errors(given, expected):
    """Relative errors in norm.

    Errors of gradients are relative to the largest one, as some are zero in exact arithmetic.
    """
    largest = max(gradient.norm() for gradient in expected[1:])
    norms = [expected[0].norm(), *[largest] * len(expected[1:])]
    return torch.stack([(a.double() - b).norm() / norm for a, b, norm in zip(given, expected, norms)])


@pytest.fixture
def small_tiles(monkeypatch):
    monkeypatch.setattr(tiled, "TILE_ROWS", 5)
    monkeypatch.setattr(tiled, "LEAST_ROWS", 2)
    monkeypatch.setattr(tiled, "TILE_NUMBERS", 600)
    monkeypatch.setattr(softmax, "BLOCK_ROWS", 5)
    monkeypatch.setattr(softmax, "BLOCK_NUMBERS", 600)


@pytest.mark.parametrize("length", [1, 7, 33, 65])
@pytest.mark.parametrize("label", LABELS)
def test_every_gradient_equals_that_of_dense_over_many_tiles(label, length, small_tiles, make_mixer, randn):
    mixer = make_mixer(label, max_len=70, std=0.2)
    x, cotangent = randn(3, length, 16), randn(3, length, 16, seed=2)
    expected = run(mixer, "dense", x, cotangent)
    assert errors(run(mixer, "tiled", x, cotangent), expected).max() < 1e-11


def check_gradients_twice(mixer, x, cotangent):
    """The first backward pass uses what the forward pass kept. The second one recomputes it."""
    expected = run(mixer, "dense", x, cotangent)
    mixer.path, x = "tiled", x.requires_grad_()
    y = mixer(x)
    for _ in range(2):
        gradients = torch.autograd.grad(y, (x, *mixer.parameters()), cotangent, retain_graph=True)
        assert errors([y, *gradients], expected).max() < 1e-11


@pytest.mark.parametrize("length", [1, 7, 33, 64])
@pytest.mark.parametrize("label", LABELS)
def test_a_single_tile_gives_every_gradient_in_two_backward_passes(label, length, make_mixer, randn):
    mixer = make_mixer(label, max_len=70, std=0.2)
    check_gradients_twice(mixer, randn(3, length, 16), randn(3, length, 16, seed=2))


@pytest.mark.parametrize("label", LABELS)
def test_a_batch_larger_than_a_tile_gives_every_gradient_twice(label, make_mixer, randn, monkeypatch):
    mixer = make_mixer(label, max_len=5, std=0.2)
    monkeypatch.setattr(tiled, "TILE_NUMBERS", 2 * mixer.query_heads * 5 * 5)  # of two of the three sequences
    check_gradients_twice(mixer, randn(3, 5, 16), randn(3, 5, 16, seed=2))


@pytest.mark.parametrize("length", [7, 33])
@pytest.mark.parametrize("label", LABELS)
def test_kept_tiles_of_one_sequence_give_every_gradient_twice(label, length, small_tiles, make_mixer, randn):
    mixer = make_mixer(label, max_len=70, std=0.2)
    check_gradients_twice(mixer, randn(1, length, 16), randn(1, length, 16, seed=2))


def backward_flops(mixer, x):
    """The FLOPs of a backward pass per sequence."""
    y = mixer(x)
    with FlopCounterMode(display=False) as counter:
        y.sum().backward()
    return counter.get_total_flops() / len(x)


def test_the_backward_pass_of_one_sequence_computes_no_scores_again(small_tiles, make_mixer, randn):
    mixer = make_mixer("G-cg-q-12o", max_len=40, path="tiled")
    assert backward_flops(mixer, randn(1, 33, 16)) < 0.9 * backward_flops(mixer, randn(2, 33, 16))


@pytest.mark.parametrize("batch, limit, tile_rows", [(1, "KEPT_NUMBERS", 5), (3, "WHOLE_NUMBERS", 64)])
def test_the_backward_pass_recomputes_scores_only_above_a_limit(
    batch, limit, tile_rows, make_mixer, randn, monkeypatch
):
    """Tested for one sequence in several tiles, and for several sequences in one tile."""
    mixer, x = make_mixer("G-cg-q-12o", max_len=40, path="tiled"), randn(batch, 33, 16)
    scores, found = batch * mixer.query_heads * 33**2, []
    for name, value in (("TILE_ROWS", tile_rows), ("KEPT_NUMBERS", 0), ("WHOLE_NUMBERS", 0)):
        monkeypatch.setattr(tiled, name, value)
    for most in (scores, scores - 1):
        monkeypatch.setattr(tiled, limit, most)
        found.append(backward_flops(mixer, x))
    assert found[0] < 0.9 * found[1]


@pytest.mark.parametrize("by_lag", [False, True])
@pytest.mark.parametrize("base, mixing", [("S", "12"), ("R", "2"), ("G", "12"), ("G", "")])
def test_gradients_of_tiles_equal_finite_differences(base, mixing, by_lag, small_tiles, randn):
    heads, query_heads, length = 1, 2 if base == "G" else 1, 6
    mixer = build(f"{base}-12!", 16, 7, n_head=heads, mix_rank=2).double()
    mix1, mix2 = (getattr(mixer, f"mix{i}") if i in mixing else None for i in "12")
    tables = [table for mix in (mix1, mix2) if mix for table in (mix.A, mix.B, mix.p)]
    for seed, table in enumerate(tables):
        table.data = 0.5 * randn(*table.shape, seed=seed)
    q = randn(2, query_heads, length, 3)
    k, v = randn(2, query_heads, length, 3, seed=2), randn(2, heads, length, 2, seed=3)
    s1 = randn(2, query_heads, length, 2, seed=4) if mix1 else None
    s2 = randn(2, heads, length, 2, seed=5) if mix2 else None
    operands = [None if x is None else x.requires_grad_() for x in (q, k, v, s1, s2)]

    def attend(*inputs):
        return tiled.attend(base, by_lag, *operands, *(mix and mix.tables(length) for mix in (mix1, mix2)))

    differentiable = [x for x in operands if x is not None]
    assert torch.autograd.gradcheck(attend, (*differentiable, *tables), eps=1e-6, atol=1e-6, fast_mode=True)


@pytest.mark.parametrize("label", ["S-12!", "R-2o!", "G-cg-q-12o"])
def test_path_tiled_saves_no_tensor_of_quadratic_size(label, make_mixer, randn):
    length = 2 * tiled.TILE_ROWS
    mixer = make_mixer(label, max_len=length, path="tiled")
    sizes = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (sizes.append(x.numel()), x)[1], lambda x: x):
        mixer(randn(2, length, 16))
    assert sizes and max(sizes) < length**2


def test_tiles_release_their_mixing_products_after_a_pass(small_tiles, make_mixer, randn, monkeypatch):
    made = []

    class Tile(tiled.Tile):
        def __init__(self, *how):
            super().__init__(*how)
            made.append(self)

    monkeypatch.setattr(tiled, "Tile", Tile)
    y = make_mixer("G-cg-q-12o", max_len=40, path="tiled")(randn(3, 33, 16))
    forward = len(made)
    y.sum().backward()
    assert 0 < forward < len(made)
    assert all(part is None for tile in made for part in (*tile.inner1, *tile.inner2))


@pytest.mark.parametrize("label", LABELS)
def test_bfloat16_autocast_is_no_further_from_the_truth_than_on_the_dense_path(label, make_mixer, randn):
    x, cotangent = randn(4, 48, 16), randn(4, 48, 16, seed=2)
    expected = run(make_mixer(label, max_len=48), "dense", x, cotangent)
    mixer, found = make_mixer(label, max_len=48, dtype=torch.float32), {}
    for path in ("dense", "tiled"):
        with torch.autocast("cpu", torch.bfloat16):
            found[path] = errors(run(mixer, path, x.float(), cotangent.to(torch.bfloat16)), expected)
    assert found["tiled"].norm() < 1.05 * found["dense"].norm()
    assert found["tiled"][0] < 0.03


def test_float32_is_as_near_to_the_truth_as_the_dense_path(make_mixer, randn):
    x, cotangent = randn(4, 100, 16), randn(4, 100, 16, seed=2)
    expected = run(make_mixer("G-cg-q-12o", max_len=100), "dense", x, cotangent)
    mixer = make_mixer("G-cg-q-12o", max_len=100, dtype=torch.float32)
    dense, given = (
        errors(run(mixer, path, x.float(), cotangent.float()), expected).max() for path in ("dense", "tiled")
    )
    assert given < 2 * dense + 1e-6


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("label", LABELS)
def test_float32_with_products_by_onednn_is_near_the_truth(label, small_tiles, make_mixer, randn, monkeypatch):
    x, cotangent = randn(3, 33, 16), randn(3, 33, 16, seed=2)
    expected = run(make_mixer(label, max_len=40), "dense", x, cotangent)
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    monkeypatch.setattr(products, "LEAST_PRODUCTS", 1)
    mixer = make_mixer(label, max_len=40, dtype=torch.float32)
    assert errors(run(mixer, "tiled", x.float(), cotangent.float()), expected).max() < 1e-5


@pytest.mark.parametrize("length", [20, 2 * tiled.TILE_ROWS])
def test_path_tiled_does_not_read_uninitialized_memory(length, make_mixer, randn, monkeypatch):
    """Tested with one tile and with two."""
    mixer, x = make_mixer("G-cg-q-12o", max_len=length), randn(2, length, 16)
    cotangent = randn(2, length, 16, seed=2)
    expected = run(mixer, "tiled", x, cotangent)
    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", True)
    torch.use_deterministic_algorithms(True)
    try:
        given = run(mixer, "tiled", x, cotangent)
    finally:
        torch.use_deterministic_algorithms(False)
    assert all(torch.equal(a, b) for a, b in zip(given, expected))


@pytest.mark.parametrize("label", LABELS)
def test_second_and_third_derivatives_equal_path_dense(label, make_mixer, randn):
    mixer = make_mixer(label, max_len=9)

    def derivatives(path):
        mixer.path, found = path, []
        variables = (randn(2, 9, 16).requires_grad_(), *mixer.parameters())
        value = mixer(variables[0]).square().sum()
        for _ in range(3):
            found += torch.autograd.grad(value, variables, create_graph=True, materialize_grads=True)
            last = found[-len(variables) :]
            value = sum((grad * randn(*grad.shape, seed=seed)).sum() for seed, grad in enumerate(last))
        return [torch.cat([grad.detach().flatten() for grad in found])[None]]

    assert errors(derivatives("tiled") * 2, derivatives("dense") * 2).max() < 1e-9


@pytest.mark.parametrize("length", [6, 2 * tiled.TILE_ROWS])
def test_under_no_grad_the_output_is_equal_and_requires_no_gradient(length, make_mixer, randn):
    """To rounding in one tile, which with gradients leaves its sheets as they are; bit for bit in two."""
    mixer, x = make_mixer("G-cg-q-12o", max_len=length, path="tiled"), randn(2, length, 16)
    with torch.no_grad():
        given = mixer(x)
    assert not given.requires_grad
    torch.testing.assert_close(given, mixer(x), rtol=1e-12, atol=1e-14)
    assert length <= tiled.TILE_ROWS or torch.equal(given, mixer(x))


def test_under_no_grad_one_sequence_keeps_no_tile(small_tiles, make_mixer, randn):
    mixer, x = make_mixer("G-cg-q-12o", max_len=40, path="tiled"), randn(1, 33, 16)

    class Allocated(TorchDispatchMode):
        numbers = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            result = func(*args, **(kwargs or {}))
            if func is torch.ops.aten.new_empty.default:
                self.numbers += result.numel()
            return result

    with Allocated() as with_gradients:
        mixer(x)
    with Allocated() as without, torch.no_grad():
        mixer(x)
    assert 0 < 4 * without.numbers < with_gradients.numbers


@pytest.mark.parametrize("label", ["D-q-1", "R-k-q-12o", "D-k-q"])
def test_path_tiled_is_refused_for_d_and_registers(label):
    with pytest.raises(TrainingError, match=f"'tiled' cannot compute {label}: .*; use 'auto'"):
        build(label, 32, 8, path="tiled")


@pytest.mark.slow
def test_auto_takes_a_traceable_path_under_transforms_and_compilation(randn):
    mixer, x = build("R-12o!", 16, 128), randn(32, 128, 16).float()
    taken = []

    def read(x):
        taken.append(mixer.resolve_path(32, 128))
        return x

    read(x)
    torch.func.vmap(read)(x)
    torch.compile(read, backend="eager")(x)
    assert taken == ["tiled", "dense", "dense"]


def test_path_tiled_under_a_transform_is_refused_with_the_advice_to_use_auto(make_mixer, randn):
    mixer = make_mixer("R-12o!", path="tiled")
    with pytest.raises(TrainingError, match="path 'tiled' has no rules for the transforms of torch.func; use 'auto'"):
        torch.func.grad(lambda x: mixer(x).sum())(randn(2, 6, 16))


def test_training_on_path_tiled_equals_training_on_path_dense(make_mixer, randn):
    x, target = randn(4, 30, 16).float(), randn(4, 30, 16, seed=2).float()
    losses = {}
    for path in ("dense", "tiled"):
        mixer = make_mixer("G-cg-q-12o", max_len=30, dtype=torch.float32, path=path, std=0.1)
        optimizer = torch.optim.AdamW(mixer.parameters(), lr=1e-3)
        for _ in range(5):
            optimizer.zero_grad()
            loss = (mixer(x) - target).square().mean()
            loss.backward()
            optimizer.step()
        losses[path] = loss.item()
    assert losses["tiled"] == pytest.approx(losses["dense"], rel=1e-4)
