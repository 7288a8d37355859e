"""The FLOPs of operations in a user's module, compared with hand counts, and numbers that the module states."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from madbench.labels import trust
from madbench.mixers import solve
from madbench.mixers.my.operations import count_flops

B, T, D = 2, 8, 4
N = B * T * D


class Call(nn.Module):
    """A module that computes a function of its input."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def attention(x, causal=True):
    heads = x.unflatten(-1, (2, D // 2)).transpose(1, 2)
    return F.scaled_dot_product_attention(heads, heads, heads, is_causal=causal)


WORK = {
    "elementwise": (lambda x: torch.sigmoid(x) * x, 2 * N),
    "broadcast": (lambda x: x[:, :, :1] * x[:, :1], N),
    "reduction": (lambda x: x.sum(-1), N),
    "sums along the sequence": (lambda x: x.cumsum(1), N),
    "softmax": (lambda x: x.softmax(-1), N),
    "in place": (lambda x: x.clone().add_(1), N),
    "root mean square": (lambda x: x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt(), 3 * N + 2 * B * T),
    "complex": (lambda x: torch.view_as_complex(x.unflatten(-1, (-1, 2))) * 1j, N),
    "product": (lambda x: x @ x.mT, 2 * B * T * T * D),
    "mask": (lambda x: (x @ x.mT).tril(), 2 * B * T * T * D + B * T * T),
    "convolution": (lambda x: F.conv1d(x.mT, torch.ones(D, 1, 3, device=x.device), groups=D), 2 * B * (T - 2) * D * 3),
    "fourier": (lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=1), n=T, dim=1), 2 * 2.5 * B * D * (T + 2) * 3),
    "views": (lambda x: x.transpose(1, 2).unflatten(1, (2, -1))[:, 0].expand(B, -1, T), 0),
    "copies": (lambda x: torch.cat((F.pad(x, (0, 0, 1, 0))[:, :-1], x.roll(1, 1).to(torch.bfloat16)), -1), 0),
    "indices": (lambda x: x[:, [0, 2]].flip(1).repeat(1, 2, 1), 0),
    "booleans and integers": (lambda x: (torch.arange(T)[:, None] >= torch.arange(T)) & torch.ones(T, T).bool(), 0),
}


@pytest.mark.parametrize("name", WORK)
def test_flops_count_elementwise_work_and_two_per_multiply_add(name):
    function, expected = WORK[name]
    for device in ("cpu", "meta"):
        assert count_flops(Call(function), torch.ones(B, T, D, device=device)) == expected, device


def test_attention_counts_all_pairs_on_every_device():
    products = 4 * B * T * T * D
    assert count_flops(Call(attention), torch.ones(B, T, D)) == products
    assert products < count_flops(Call(attention), torch.ones(B, T, D, device="meta")) < 2 * products  # and its softmax


MODULE = """
import torch
from torch import nn


class Elementwise(nn.Module):
    '''Linear attention without a matrix product of its own.'''

    def __init__(self, d_model):
        super().__init__()
        self.out = nn.Linear(d_model, d_model, bias=False)

    def forward(self, x):
        return self.out((x.exp() * x).cumsum(1) / x.exp().cumsum(1))


class Stated(Elementwise):
    def flops_per_token(self, seq_len):
        return 7 * seq_len
"""


def test_flops_of_an_elementwise_module_are_counted_unless_it_states_them(tmp_path, monkeypatch):
    name = f"elementwise_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    labels = [f"my:{name}.{cls}" for cls in ("Elementwise", "Stated")]
    trust.allow(labels)
    counted, stated = (solve(label, 16, 2, 32) for label in labels)
    assert counted.flops_per_token(32) == 2 * 16 * 16 + 6 * 16
    assert stated.flops_per_token(32) == 7 * 32
