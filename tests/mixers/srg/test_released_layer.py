"""The operator against the layer that the HyperMLP paper's authors released, written here from its equations.

What the release does, as facts of its forward pass in full precision (it has R and G, no softmax):

- its tables U (heads, L, r), V (heads, r, L) and d (heads, L) act from the right, y <- y + y d + ((y U) * s) V, after
  the activation too, where the paper's R(2) acts transposed: so its U and V of the second mixing are our B and A^T;
- in the skewed layout (labels with o) a row's newest token stands in the last of T columns, in the plain one column c
  is position c; in both an input of T tokens has the last T rows of the tables;
- scores are not scaled; G takes its gate from the first half of the query heads and its scale from the second;
- RoPE, before the gate of q, has the angles of half-split pairs on interleaved ones;
- a row is divided by max(|h|, 1e-12), the paper's by sqrt(|h|^2 + 1e-12).
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from madbench.mixers.srg.grammar import SrgLabel
from mixers.srg.equations import one_label_per_equation

LENGTH, LONGEST = 5, 8


RELEASED_LABELS = [label for label in one_label_per_equation() if label[0] in "RG"]
"""Labels with every equation of R and G in the paper's letters."""


def released_layer(weights: dict[str, torch.Tensor], label: SrgLabel, n_head: int, x: torch.Tensor) -> torch.Tensor:
    """The released layer on x (T, D): one T x T matrix per head, with our parameters in the release's arrangement."""
    length, rows = len(x), torch.arange(len(x))
    column = (length - 1 - (rows[:, None] - rows)) % length  # of a token that a row sees, in the skewed layout
    query_heads = 2 * n_head if label.base == "G" else n_head

    def heads(y, count):
        return y.reshape(length, count, -1).transpose(0, 1)

    def convolved(name):
        if not label.conv:
            return x
        taps = weights[f"{name}.weight"].T.flip(0)  # the first meets the token itself
        return sum(F.pad(x, (0, 0, back, 0))[:length] * tap for back, tap in enumerate(taps))

    def gate(name, count):
        logits = x @ weights[f"{name}.weight"].T + weights[f"{name}.bias"]
        return heads(torch.sigmoid(logits), count)

    def turned(y):
        width = y.shape[-1]
        angle = 10000.0 ** (-torch.arange(0, width, 2).double() / width) * rows[:, None]
        angle = torch.cat((angle, angle), dim=1)
        swapped = y.unflatten(-1, (-1, 2)).flip(-1) * torch.tensor([-1.0, 1.0]).double()
        return y * angle.cos() + swapped.flatten(-2) * angle.sin()

    def in_columns(y):
        """Convert sheets by position to columns of the layout.

        In the skewed layout, column T - 1 - l of a row is lag l.
        """
        if label.layout == "position":
            return y
        return torch.zeros_like(y).scatter(-1, column.expand_as(y), y.tril())

    def by_position(y):
        if label.layout == "position":
            return y
        return y.gather(-1, column.expand_as(y)).tril()

    def mixed(y, name, u, v, count):
        flip = (lambda table: table.flip(1)) if label.layout == "lag" else (lambda table: table)
        u, v, d = (flip(weights[f"{name}.{table}"])[:, LONGEST - length :] for table in (u, v, "p"))
        s = gate(f"{name}.gate", count)
        sheet = in_columns(y)
        return by_position(sheet + sheet * d[:, None] + ((sheet @ u) * s) @ v.transpose(1, 2)).tril()

    q = heads(x @ weights["q.weight"].T, query_heads)
    k = heads(convolved("k_conv") @ weights["k.weight"].T, query_heads)
    v = heads(convolved("v_conv") @ weights["v.weight"].T, n_head)
    if label.rope:
        q, k = turned(q), turned(k)
    if label.gates:
        q = q * gate("qk_gate", query_heads)
    h = (q @ k.transpose(1, 2)).tril()
    h = mixed(h, "mix1", "A", "B", query_heads) if label.mix1 else h
    gated, *scale = h.chunk(2) if label.base == "G" else (h,)
    a = F.relu(gated) * (F.softplus(scale[0]) if scale else 1)
    a = mixed(a, "mix2", "B", "A", n_head) if label.mix2 else a
    o = a @ v / gated.norm(dim=-1, keepdim=True).clamp_min(1e-12)
    o = o * gate("vo_gate", n_head) if label.gates else o
    return o.transpose(0, 1).reshape(length, -1) @ weights["o.weight"].T


def outputs_of_both_layers(label, make_mixer, randn, length=LENGTH, path="dense", **settings):
    """The outputs of the released layer and of ours with the same parameters, each with the gradient of the input."""
    mixer = make_mixer(label, d_model=128, max_len=LONGEST, path=path, chunk=2, **settings)
    assert mixer.allocation.qk_width >= 4  # of one pair of coordinates both rotations are the same
    results = []
    for operator in (lambda x: released_layer(dict(mixer.named_parameters()), mixer.label, 2, x[0])[None], mixer):
        x = randn(1, length, 128).requires_grad_()
        y = operator(x)
        (grad,) = torch.autograd.grad(y, x, randn(1, length, 128, seed=2))
        results.append((y.detach(), grad))
    return results


def are_equal(results) -> bool:
    return all((one - other).norm() <= 1e-8 * one.norm() for one, other in zip(*results))


RELEASED_SETTINGS = {"rope": "mispaired", "position_rows": "from_end"}


def test_every_equation_of_r_and_g_is_among_the_labels():
    assert len(RELEASED_LABELS) == 2 * 8 * 7


@pytest.mark.parametrize("label", RELEASED_LABELS)
def test_with_two_settings_the_operator_equals_the_released_layer(label, make_mixer, randn):
    assert are_equal(outputs_of_both_layers(label, make_mixer, randn, **RELEASED_SETTINGS))


@pytest.mark.parametrize("path", ["reference", "chunked", "tiled"])
@pytest.mark.parametrize("label", ["R-12!", "G-pcg-q-12", "G-cg-q-12o", "R-g-q-2"])
def test_every_path_equals_the_released_layer(label, path, make_mixer, randn):
    assert are_equal(outputs_of_both_layers(label, make_mixer, randn, path=path, **RELEASED_SETTINGS))


@pytest.mark.parametrize("label", ["R-cg-q-12o", "G-cg-q-12o", "R-cg-q", "G-c-12o!"])
def test_labels_without_rope_and_with_lags_are_the_released_layer_at_every_length(label, make_mixer, randn):
    for length in (1, 2, LENGTH, LONGEST):
        assert are_equal(outputs_of_both_layers(label, make_mixer, randn, length))


@pytest.mark.parametrize("label", ["R-p", "R-pcg-q-12o", "G-pcg-q-12o"])
def test_rope_alone_makes_labels_with_lags_another_function_than_the_release(label, make_mixer, randn):
    assert not are_equal(outputs_of_both_layers(label, make_mixer, randn))
    assert are_equal(outputs_of_both_layers(label, make_mixer, randn, rope="mispaired"))


@pytest.mark.parametrize("label", ["R-12!", "G-12!", "R-2!"])
def test_rows_from_the_end_matter_only_for_inputs_shorter_than_the_tables(label, make_mixer, randn):
    assert are_equal(outputs_of_both_layers(label, make_mixer, randn, LONGEST))
    assert not are_equal(outputs_of_both_layers(label, make_mixer, randn))


@pytest.mark.parametrize("label", ["R-12!", "G-q-12", "R-k-q-12", "S-q-1"])
def test_rows_from_the_end_equal_shifted_tables(label, make_mixer, randn):
    """So with inputs of a single length, both learn the same function, in different rows of the tables."""
    mixer = make_mixer(label, max_len=LONGEST, position_rows="from_end")
    other = make_mixer(label, max_len=LONGEST)
    for name, table in other.named_parameters():
        if name.startswith("mix") and "gate" not in name:
            table.data = table.data.roll(LENGTH - LONGEST, dims=1)
    x = randn(2, LENGTH, 16)
    torch.testing.assert_close(mixer(x), other(x))


@pytest.mark.parametrize("label", ["R-12!", "G-cg-q-12", "R-k-q-1"])
def test_a_step_with_rows_from_the_end_is_the_last_row_of_the_tokens_so_far(label, make_mixer, randn):
    mixer, x, cache = make_mixer(label, max_len=LONGEST, position_rows="from_end"), randn(2, LENGTH, 16), None
    with torch.no_grad():
        for t, token in enumerate(x.unbind(1)):
            y, cache = mixer.step(token, cache)
            torch.testing.assert_close(y, mixer(x[:, : t + 1])[:, -1])
        assert not torch.allclose(mixer(x)[:, 0], mixer(x[:, :1])[:, 0], rtol=1e-3)
