"""Consequences of the equations: causality, truncation invariance of the lag layout, and positions from offsets."""

from __future__ import annotations

import pytest
import torch

from madbench import config
from madbench.labels import expand
from madbench.mixers.ops.rope import rotate

TABLE1 = expand(["@table1"])


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.no_grad():
        yield


@pytest.mark.parametrize("path", ["dense", "chunked"])
@pytest.mark.parametrize("label", TABLE1)
def test_future_tokens_do_not_change_the_past(label, path, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=8, path=path, chunk=3), randn(2, 8, 16)
    y = mixer(x)
    for t in range(8):
        changed = x.clone()
        changed[:, t] += 1
        y_changed = mixer(changed)
        torch.testing.assert_close(y_changed[:, :t], y[:, :t], rtol=0, atol=1e-12)
        assert (y_changed[:, t] - y[:, t]).norm() > 1e-6


@pytest.mark.parametrize("label", TABLE1)
def test_a_shorter_input_gives_the_first_rows_of_a_longer_one(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=8), randn(2, 8, 16)
    torch.testing.assert_close(mixer(x[:, :5]), mixer(x)[:, :5])


def blank_mixing_rows(mixer, first):
    """Extend the R of the first ``first`` slots by zeros (eq. 20), so that older slots are neither read nor mixed."""
    for mix in filter(None, (mixer.mix1, mixer.mix2)):
        mix.A[:, first:] = 0
        mix.B[:, first:] = 0
        mix.p[:, first:] = -1


@pytest.mark.parametrize("label", ["R-q-1o", "R-q-12o", "G-1o!", "R-p-v-12o", "G-g-q-12o"])
def test_zero_extended_mixing_by_lag_makes_older_history_irrelevant(label, make_mixer, randn):
    """Theorem 2.3 for ReLU and GLU. Softmax is left out, because a zero score still has weight there."""
    mixer, x = make_mixer(label, max_len=9), randn(2, 9, 16)
    blank_mixing_rows(mixer, 4)
    last = mixer(x)[:, -1]
    assert last.norm() > 1e-3
    for kept in (4, 5, 8):
        torch.testing.assert_close(mixer(x[:, -kept:])[:, -1], last)
    assert (mixer(x[:, -3:])[:, -1] - last).norm() > 1e-3 * last.norm()


@pytest.mark.parametrize("label", ["R-q-1", "R-q-12", "G-12!"])
def test_zero_extended_mixing_by_position_keeps_older_history_relevant(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=9), randn(2, 9, 16)
    blank_mixing_rows(mixer, 4)
    last = mixer(x)[:, -1]
    assert (mixer(x[:, -4:])[:, -1] - last).norm() > 1e-3 * last.norm().clamp(min=1e-3)


@pytest.mark.parametrize("label", ["R-12o!", "G-12o!"])
def test_prepended_zero_tokens_change_nothing_under_diagonal_mixing_by_lag(label, make_mixer, randn):
    """Scores and values of a zero token are zero, but mixing carries real scores into its slots: A and B have to be
    diagonal for the rows to stay."""
    mixer, x = make_mixer(label, max_len=9), randn(2, 5, 16)
    for mix in (mixer.mix1, mixer.mix2):
        mix.A.zero_()
    longer = torch.cat((torch.zeros(2, 4, 16, dtype=x.dtype), x), dim=1)
    torch.testing.assert_close(mixer(longer)[:, 4:], mixer(x))


@pytest.mark.parametrize("label", ["R-12!", "G-12!"])
def test_prepended_zero_tokens_shift_the_mixing_rows_by_position(label, make_mixer, randn):
    mixer, x = make_mixer(label, max_len=9), randn(2, 5, 16)
    for mix in (mixer.mix1, mixer.mix2):
        mix.A.zero_()
    longer = torch.cat((torch.zeros(2, 4, 16, dtype=x.dtype), x), dim=1)
    assert (mixer(longer)[:, 4:] - mixer(x)).norm() > 1e-2 * mixer(x).norm()


@pytest.mark.parametrize("label", ["S", "S-g-q", "R", "G-g!"])
def test_without_positions_the_last_row_does_not_know_the_order(label, make_mixer, randn):
    mixer, x = make_mixer(label), randn(2, 6, 16)
    shuffled = x[:, [3, 0, 4, 2, 1, 5]]
    torch.testing.assert_close(mixer(shuffled)[:, -1], mixer(x)[:, -1])


@pytest.mark.parametrize("label", ["S-p", "S-c", "R-12o!", "R-12!", "G-q-2o", "R-q-1"])
def test_rope_convolution_and_mixing_each_make_the_order_matter(label, make_mixer, randn):
    mixer, x = make_mixer(label, d_model=32), randn(2, 6, 32)
    shuffled = x[:, [3, 0, 4, 2, 1, 5]]
    last = mixer(x)[:, -1]
    assert (mixer(shuffled)[:, -1] - last).norm() > 1e-3 * last.norm()


def scores(q, k, first_position, style):
    return rotate(q, first_position, style) @ rotate(k, first_position, style).transpose(-1, -2)


@pytest.mark.parametrize("width", [2, 4, 6, 32])
def test_rotation_scores_depend_on_the_offset_alone(width, randn):
    q, k = randn(3, 7, width), randn(3, 7, width, seed=2)
    torch.testing.assert_close(scores(q, k, 0, "rotation"), scores(q, k, 1000, "rotation"))


@pytest.mark.parametrize("width", [4, 6, 32])
def test_mispaired_rope_scores_depend_on_the_position(width, randn):
    q, k = randn(3, 7, width), randn(3, 7, width, seed=2)
    here, there = scores(q, k, 0, "mispaired"), scores(q, k, 1000, "mispaired")
    assert (here - there).norm() > 0.1 * here.norm()


def test_rotation_keeps_lengths_and_leaves_position_zero_alone(randn):
    x = randn(2, 5, 8)
    turned = rotate(x, 0)
    torch.testing.assert_close(turned[:, 0], x[:, 0])
    torch.testing.assert_close(turned.norm(dim=-1), x.norm(dim=-1))


def test_rotation_turns_each_pair_as_a_complex_number_by_its_own_frequency(randn):
    x = randn(1, 6, 8)
    pairs = torch.complex(x[..., :4], x[..., 4:])
    angle = torch.arange(3, 9)[:, None] * 10000.0 ** -(torch.arange(4).double() / 4)
    expected = pairs * torch.exp(1j * angle)
    torch.testing.assert_close(rotate(x, 3), torch.cat((expected.real, expected.imag), dim=-1))


@pytest.mark.parametrize("rope, holds", [("rotation", True), ("mispaired", False)])
def test_a_mixer_with_true_rope_is_invariant_to_a_shift_of_the_sequence(rope, holds, make_mixer, randn):
    """A zero token has zero scores and value, so under R it has no effect."""
    mixer, x = make_mixer("R-p", d_model=32, rope=rope), randn(2, 5, 32)
    assert mixer.allocation.qk_width >= 4
    later = mixer(torch.cat((torch.zeros(2, 50, 32, dtype=x.dtype), x), dim=1))[:, 50:]
    assert torch.allclose(later, mixer(x)) == holds


def test_table1_is_the_papers_33_labels():
    assert len(TABLE1) == 33 and config.VARIANTS.joinpath("table1.yaml").exists()
