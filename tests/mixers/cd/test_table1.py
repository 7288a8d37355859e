"""The eight rows of Table 1 as in its last column, with each coefficient computed by loops over heads and pairs."""

from __future__ import annotations

import math

import pytest
import torch

from madbench.mixers.cd.grammar import PRESETS


def elu_features(x):
    return torch.tensor([value + 1 if value > 0 else math.exp(value) for value in x.tolist()], dtype=x.dtype)


def sigmoid(x):
    return 1 / (1 + torch.exp(-x))


def product(factors, n):
    """The product of matrices, later ones on the left."""
    found = torch.eye(n, dtype=torch.float64)
    for factor in factors:
        found = factor @ found
    return found


def unit(x):
    return x / torch.sqrt(x @ x + 1e-12)


def coefficients(name, p, head, heads, x):
    """The coefficients alpha_ij / eta_i (T, T) of one head, as in Table 1."""
    length, eye = len(x), None
    w_q, w_k = (p[f"{side}.weight"].chunk(heads)[head] for side in "qk")
    n = len(w_q)
    eye, root = torch.eye(n, dtype=x.dtype), math.sqrt(n)
    q, k = [w_q @ x_i for x_i in x], [w_k @ x_i for x_i in x]
    if "deltanet" in name:
        q, k = [unit(q_i) for q_i in q], [unit(k_i) for k_i in k]
        beta = [sigmoid(p["strength.weight"][head] @ x_i) for x_i in x]
    if name in ("mamba2", "gateddeltanet"):
        delta = [torch.log(1 + torch.exp(p["decay.weight"][head] @ x_i + p["decay.bias"][head])) for x_i in x]
        alpha = [torch.exp(-d * torch.exp(p["a_log"][head])) for d in delta]
    a = torch.zeros(length, length, dtype=x.dtype)
    for i in range(length):
        for j in range(i + 1):
            between = range(j + 1, i + 1)
            if name == "softmax":
                a[i, j] = torch.exp(q[i] @ k[j] / root)
            elif name == "linear":
                a[i, j] = elu_features(q[i]) @ elu_features(k[j] / root)
            elif name == "normalized":
                a[i, j] = q[i] @ k[j] / root / torch.exp(p["eta.weight"][head] @ x[i])
            elif name == "gla":
                weight, bias = p["decay_up.weight"].chunk(heads)[head], p["decay_up.bias"].chunk(heads)[head]
                gates = [sigmoid(weight @ (p["decay_down.weight"] @ x[t]) + bias) ** (1 / 16) for t in between]
                a[i, j] = q[i] @ product([torch.diag(gate) for gate in gates], n) @ k[j] / root
            elif name == "mamba2":
                a[i, j] = q[i] @ k[j] * delta[j] * math.prod(alpha[t] for t in between)
            elif name == "deltanet":
                erase = product([eye - beta[t] * torch.outer(k[t], k[t]) for t in between], n)
                a[i, j] = q[i] @ erase @ k[j] * beta[j] / root
            elif name == "gateddeltanet":
                erase = product([alpha[t] * (eye - beta[t] * torch.outer(k[t], k[t])) for t in between], n)
                a[i, j] = q[i] @ erase @ k[j] * beta[j] / root
            else:
                forget = sum(p["decay.weight"][head] @ x[t] + p["decay.bias"][head] for t in between)
                write = p["scale.weight"][head] @ x[j] + p["scale.bias"][head]
                a[i, j] = q[i] @ k[j] / root * torch.exp(forget + write)
        if name in ("softmax", "linear"):
            a[i] = a[i] / a[i].sum()
        if name == "mlstm":
            a[i] = a[i] / max(abs(a[i].sum()), 1)
    return a


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_has_the_coefficients_of_its_row(name, make_mixer, randn):
    mixer, x = make_mixer(f"cd:{name}").requires_grad_(False), randn(1, 8, 8)
    p, expected = mixer.state_dict(), []
    for head in range(2):
        a = coefficients(name, p, head, 2, x[0])
        torch.testing.assert_close(mixer.coefficients(x).a[0, head], a, rtol=1e-10, atol=1e-10)
        expected.append(a @ (x[0] @ p["v.weight"].chunk(2)[head].T))
    y = torch.cat(expected, dim=1)
    if name == "mlstm":
        y = y * sigmoid(x[0] @ p["out_sigmoid.weight"].T + p["out_sigmoid.bias"])
    torch.testing.assert_close(mixer(x)[0], y @ p["o.weight"].T, rtol=1e-10, atol=1e-10)
