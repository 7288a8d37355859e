"""The reference loop equals the equations written a second time, as T x T matrices in numpy.

Letters of the einsums: t row, i position, l and m slots, h head, k and v widths, r mixing rank.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from madbench.labels import parse
from madbench.mixers.srg.reference import reference
from mixers.srg.equations import one_label_per_equation


def by_matrices(weights, label, n_head, x, rope="rotation"):
    """x (T, D) -> (T, D): paper eq. 7-11 with every R a dense matrix that is zero outside the row's prefix."""
    w = {name: tensor.detach().numpy() for name, tensor in weights.items()}
    parsed, length = parse(label), len(x)
    query_heads = n_head * (2 if label.startswith("G") else 1)
    rows = np.arange(length)
    seen = rows[None, :] <= rows[:, None]  # [t, l]: row t has slots 0..t
    position = (
        np.where(seen, rows[:, None] - rows[None, :], 0) if parsed.layout == "lag" else np.tile(rows, (length, 1))
    )

    def heads(features, count):
        return features.reshape(length, count, -1)

    def convolve(name):
        if name not in w:
            return x
        delayed = np.stack([np.eye(length, k=-lag) @ x for lag in (3, 2, 1, 0)])
        return np.einsum("jtd,dj->td", delayed, w[name])

    def gate(name):
        return 1 / (1 + np.exp(-(x @ w[f"{name}.weight"].T + w[f"{name}.bias"])))

    def mixing(name, count):
        if f"{name}.p" not in w:
            return np.einsum("tl,lm->tlm", seen, np.eye(length))[:, None]
        a, b, p = w[f"{name}.A"][:, :length], w[f"{name}.B"][:, :length], w[f"{name}.p"][:, :length]
        matrix = np.einsum("hlr,thr,hmr->thlm", a, heads(gate(f"{name}.gate"), count), b)
        matrix += np.einsum("hl,lm->hlm", 1 + p, np.eye(length))
        return matrix * seen[:, None, :, None] * seen[:, None, None, :]

    q = heads(x @ w["q.weight"].T, query_heads)
    k = heads(convolve("k_conv.weight") @ w["k.weight"].T, query_heads)
    v = heads(convolve("v_conv.weight") @ w["v.weight"].T, n_head)
    if parsed.rope:
        turns = rotations(length, q.shape[-1], rope)
        q, k = np.einsum("tkc,thc->thk", turns, q), np.einsum("tkc,thc->thk", turns, k)
    if parsed.gates:
        q = q * heads(gate("qk_gate"), query_heads)
    z = np.einsum("thk,tlhk->thl", q, k[position]) * seen[:, None]
    if parsed.base == "S":
        z = z / np.sqrt(q.shape[-1])
    h = np.einsum("thl,thlm->thm", z, mixing("mix1", query_heads))
    if parsed.base == "S":
        a = np.exp(h) * seen[:, None]
        a = a / a.sum(-1, keepdims=True)
    else:
        gates = h[:, :n_head]
        a = np.maximum(gates / np.sqrt((gates**2).sum(-1, keepdims=True) + 1e-12), 0)
    if parsed.base == "G":
        a = a * np.log1p(np.exp(h[:, n_head:]))
    weight = np.einsum("thl,thml->thm", a, mixing("mix2", n_head))
    o = np.einsum("thl,tlhv->thv", weight, v[position]).reshape(length, -1)
    return (o * gate("vo_gate") if parsed.gates else o) @ w["o.weight"].T


def rotations(length, width, rope):
    """(T, K, K): the matrix that RoPE applies at each position."""
    half = width // 2
    frequency = 10000.0 ** (-np.arange(half) * 2 / width)
    cos, sin = (np.tile(f(np.outer(np.arange(length), frequency)), 2) for f in (np.cos, np.sin))
    signed_swap = np.zeros((width, width))
    pairs = [(i, i + half) if rope == "rotation" else (2 * i, 2 * i + 1) for i in range(half)]
    for first, second in pairs:
        signed_swap[first, second], signed_swap[second, first] = -1, 1
    return cos[:, :, None] * np.eye(width) + sin[:, :, None] * signed_swap


def test_the_grammar_has_168_equations():
    labels = one_label_per_equation()
    assert len(labels) == 3 * 8 * 7  # bases, features, mixing
    assert all(sum(letter in label for label in labels) > 40 for letter in "qv!")


@pytest.mark.parametrize("label", one_label_per_equation())
def test_the_reference_equals_the_equations(label, make_mixer, randn):
    mixer, x = make_mixer(label), randn(1, 4, 16)
    with torch.no_grad():
        y = reference(mixer.state_dict(), mixer.label, 2, x, "rotation")[0].numpy()
    expected = by_matrices(mixer.state_dict(), label, 2, x[0].numpy())
    assert np.linalg.norm(y - expected) < 1e-12 * np.linalg.norm(expected)


@pytest.mark.parametrize("rope", ["rotation", "mispaired"])
@pytest.mark.parametrize("label", ["S-p", "R-pg!", "G-pcg-v-12o"])
def test_the_reference_rotates_wide_heads_by_either_rope(label, rope, make_mixer, randn):
    mixer, x = make_mixer(label, d_model=64), randn(1, 5, 64)
    assert mixer.allocation.qk_width >= 4
    with torch.no_grad():
        y = reference(mixer.state_dict(), mixer.label, 2, x, rope)[0].numpy()
    expected = by_matrices(mixer.state_dict(), label, 2, x[0].numpy(), rope)
    assert np.linalg.norm(y - expected) < 1e-12 * np.linalg.norm(expected)
