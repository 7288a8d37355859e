from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.errors import TrainingError
from madbench.mixers.inputs import check_sequences, check_tokens

FEATURES = {"elu": lambda x: F.elu(x) + 1, "relu": F.relu, "id": lambda x: x}


class LinearMixer(nn.Module):
    """o_t = sum_(i <= t) phi(q_t).phi(k_i) v_i. With elu and relu, divided by sum_(i <= t) phi(q_t).phi(k_i) + eps."""

    def __init__(self, allocation, eps: float, path: str):
        super().__init__()
        if path not in ("auto", "dense"):
            raise TrainingError(f"path {path!r} is not known; expected one of: auto, dense")
        self.allocation, self.eps = allocation, eps
        d, r = allocation.size.d_model, allocation.ranks["r"]
        self.qkv, self.o = nn.Linear(d, 3 * r, bias=False), nn.Linear(r, d, bias=False)
        self.gate = nn.Linear(d, r) if allocation.label.gate else None
        self._draw()

    def reset_parameters(self) -> None:
        """Initialize the parameters, as a module built on ``meta`` needs. The same seed gives those of a new mixer."""
        for part in self.children():
            part.reset_parameters()
        self._draw()

    def _draw(self) -> None:
        for name, parameter in self.named_parameters():
            nn.init.zeros_(parameter) if name.endswith("bias") else nn.init.normal_(parameter, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        """x (B, T, D) -> (B, T, D)."""
        check_sequences(x, self.allocation.label, self.allocation.size.d_model)
        q, k, v = self._project(x)
        weights = (q @ k.transpose(-1, -2)).tril()
        return self._read_out(weights @ v, weights.sum(-1, keepdim=True, dtype=self._wide(x)), x)

    def step(self, x: Tensor, cache: tuple[Tensor, Tensor] | None = None, slide: bool = False):
        """x (B, D) -> (B, D), and the cache: the sums of k v^T and of k so far. ``slide`` has no effect on sums."""
        check_tokens(x, self.allocation.label, self.allocation.size.d_model)
        row = x[:, None]
        q, k, v = self._project(row)
        products, keys = k.transpose(-1, -2) @ v, k
        if cache is not None:
            products, keys = products + cache[0], keys + cache[1]
        total = (q * keys).sum(-1, keepdim=True, dtype=self._wide(x))
        return self._read_out(q @ products, total, row)[:, 0], (products, keys)

    def resolve_path(self, batch: int, length: int) -> str:
        return "dense"

    @staticmethod
    def _wide(x: Tensor) -> torch.dtype:
        """The dtype of long sums: at least float32, also under autocast."""
        return torch.promote_types(x.dtype, torch.float32)

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads, features = self.allocation.size.n_head, FEATURES[self.allocation.label.map]
        q, k, v = (part.unflatten(-1, (heads, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, dim=-1))
        return features(q), features(k), v

    def _read_out(self, o: Tensor, total: Tensor, x: Tensor) -> Tensor:
        o = o if self.allocation.label.map == "id" else (o / (total + self.eps)).to(o.dtype)
        o = o.transpose(1, 2).flatten(-2)
        return self.o(o if self.gate is None else o * torch.sigmoid(self.gate(x)))
