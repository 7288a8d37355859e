"""studies/released_layer.py compares layers with equal weights.

A plain layer with the released names replaces the release.
"""

from __future__ import annotations

import json

import pytest

import released_layer
from madbench.bench.mixer import InputShape, WrongResultError

STAND_IN = """
from dataclasses import dataclass

import torch
from torch import nn

FACTOR = 1.0


@dataclass
class HyperGLUConfig:
    n_embd: int
    n_head: int
    block_size: int
    qk_rank: int
    vo_rank: int
    op1_rank: int
    op2_rank: int
    impl_default: str
    chunk_T: int


class Conv(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv1d(width, width, 4, groups=width, bias=False, padding=3)

    def forward(self, x):
        return self.conv(x.mT)[..., : x.shape[1]].mT


class Mix(nn.Module):
    def __init__(self, heads, rank, length):
        super().__init__()
        shapes = {"U": (heads, length, rank), "Vt": (heads, rank, length), "d": (heads, length)}
        self.mix = nn.Module()
        for name, shape in shapes.items():
            self.mix.register_parameter(name, nn.Parameter(torch.zeros(shape)))

    def forward(self, rows, strength):
        mix = self.mix
        return rows * (1 + mix.d[:, None]) + (rows @ mix.U * strength) @ mix.Vt


class HyperGLU(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.c = c
        for name, width in {"q": c.qk_rank, "k": c.qk_rank, "v": c.vo_rank}.items():
            setattr(self, name, nn.Linear(c.n_embd, width, bias=False))
        self.c_proj = nn.Linear(c.vo_rank, c.n_embd, bias=False)
        self.conv1, self.conv2 = Conv(c.n_embd), Conv(c.n_embd)
        self.op, self.op2 = Mix(2 * c.n_head, c.op1_rank, c.block_size), Mix(c.n_head, c.op2_rank, c.block_size)
        self.control1 = nn.Linear(c.n_embd, 2 * c.n_head * c.op1_rank)
        self.control2 = nn.Linear(c.n_embd, c.n_head * c.op2_rank)
        self.left_gate, self.right_gate = nn.Linear(c.n_embd, c.qk_rank), nn.Linear(c.n_embd, c.vo_rank)

    def forward(self, x):
        def heads(rows, count):
            return rows.unflatten(-1, (count, -1)).transpose(1, 2)

        h, length = self.c.n_head, x.shape[1]
        q = heads(self.q(x) * self.left_gate(x).sigmoid(), 2 * h)
        k, v = heads(self.k(self.conv1(x)), 2 * h), heads(self.v(self.conv2(x)), h)
        lag = torch.arange(length)[:, None] - torch.arange(length).flip(0)  # of a row and a column, the oldest first
        at = lag.clamp(min=0).expand(len(x), 1, -1, -1)
        # column c of row t has the key t - (T - 1 - c)
        scores = (q @ k.mT).gather(-1, at.expand(-1, 2 * h, -1, -1)) * (lag >= 0)
        gate, scale = (self.op(scores, heads(self.control1(x).sigmoid(), 2 * h)) * (lag >= 0)).chunk(2, dim=1)
        norm = gate.norm(dim=-1, keepdim=True)
        weights = self.op2(nn.functional.softplus(scale) * gate.relu(), heads(self.control2(x).sigmoid(), h))
        by_key = torch.zeros_like(weights).scatter_add(-1, at.expand(-1, h, -1, -1), weights * (lag >= 0))
        o = (by_key @ v / norm).transpose(1, 2).flatten(-2) * self.right_gate(x).sigmoid()
        return FACTOR * self.c_proj(o)
"""


@pytest.fixture
def checkout(tmp_path):
    """``checkout(factor)``: a folder with a layer whose outputs are multiplied by a factor."""

    def make(factor=1.0):
        (tmp_path / "hyperglu.py").write_text(STAND_IN.replace("FACTOR = 1.0", f"FACTOR = {factor}"))
        return tmp_path

    return make


def test_a_plain_layer_with_the_released_names_computes_the_same(checkout, capsys):
    words = ["--release", str(checkout()), "--shape", "2x70x32", "--heads", "2", "--rounds", "2", "--json"]
    released_layer.main(words)
    seconds = json.loads(capsys.readouterr().out)["seconds"]
    assert list(seconds) == ["madbench", "dense", "chunked 64", "linear maps"]
    assert all(time > 0 for time in seconds.values())


def test_a_layer_that_computes_something_else_is_not_timed(checkout):
    release = released_layer.load_release(checkout(1.01))
    with pytest.raises(WrongResultError, match="relative error 2"):
        released_layer.measure(release, InputShape(1, 8, 32), heads=2, rounds=2)


def test_a_folder_without_the_layer_is_refused(tmp_path, capsys):
    with pytest.raises(SystemExit):
        released_layer.main(["--release", str(tmp_path)])
    assert "github.com/LJC-FVNR/HyperMLP" in capsys.readouterr().err
