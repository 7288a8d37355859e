"""A library of two layers in plain torch that stands in for flash-linear-attention, whose kernels need a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

from madbench.mixers.fla import budget, operator


def _kernel(values: Tensor) -> Tensor:
    """What a kernel of the library would compute; none of them takes an empty batch."""
    if not len(values):
        raise RuntimeError("Triton Error [CUDA]: invalid argument")
    return values.cumsum(1)


class GatedLinearAttention(nn.Module):
    """As wide as the library's: half as many keys as values, and taps where they are asked for."""

    def __init__(self, hidden_size, num_heads, expand_k=0.5, expand_v=1.0):
        super().__init__()
        key, value = hidden_size * expand_k, hidden_size * expand_v
        assert key == int(key), "keys must be whole"
        self.num_heads, self.key_dim, self.value_dim = num_heads, int(key), int(value)
        self.q_proj = nn.Linear(hidden_size, self.key_dim, bias=False)
        self.v_proj = nn.Linear(hidden_size, self.value_dim)
        self.v_conv1d = nn.Conv1d(self.value_dim, self.value_dim, 4, groups=self.value_dim)
        self.o_proj = nn.Linear(self.value_dim, hidden_size, bias=False)

    def forward(self, x):
        return self.o_proj(_kernel(self.v_proj(x))), None, None


class RWKV7Attention(nn.Module):
    """Draws its weights itself, and has numbers that no state dict holds."""

    def __init__(self, hidden_size, num_heads, head_dim, layer_idx, num_hidden_layers, value_dim=None, **low_ranks):
        super().__init__()
        self.num_heads, self.key_dim, self.value_dim = num_heads, hidden_size, value_dim or hidden_size
        self.hidden_size = hidden_size
        self.v_proj = nn.Linear(hidden_size, self.value_dim, bias=False)
        self.o_proj = nn.Linear(self.value_dim, hidden_size, bias=False)
        nn.init.orthogonal_(self.v_proj.weight)
        nn.init.uniform_(self.o_proj.weight, -0.5, 0.5)
        self.register_buffer("decay", torch.linspace(0.5, 1.0, self.value_dim), persistent=False)

    def forward(self, x):
        return self.o_proj(_kernel(self.v_proj(x) * self.decay)), None, None, None


LIBRARY = SimpleNamespace(GatedLinearAttention=GatedLinearAttention, RWKV7Attention=RWKV7Attention)


def use_made_up_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Labels of the library are built of its layers, on a CPU; what one library costs is not known of another."""
    monkeypatch.setattr(budget, "library", lambda: LIBRARY)
    monkeypatch.setattr(operator, "DEVICE", "cpu")
    forget_library()
    yield
    forget_library()


def forget_library() -> None:
    """What one library was found to be and to cost is not known of another."""
    budget.is_missing.cache_clear()
    budget.solve.cache_clear()
