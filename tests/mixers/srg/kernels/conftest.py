"""Inputs of the kernels, and the expected outputs: the operator in float64 with all scores in memory."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

import numpy
import pytest
import torch
import torch.nn.functional as F
from packaging.version import Version

from madbench.mixers.srg.parts import EPS

NAMES = ("q", "k", "v", "s1", "A1", "B1", "p1", "s2", "A2", "B2", "p2")


def pytest_collection_modifyitems(items):
    """Ignore a warning of Triton 3.6, or skip tests that fail with a newer NumPy, if kernels are interpreted."""
    here = [item for item in items if Path(__file__).parent in item.path.parents]
    if not here or find_spec("triton") is None:
        return
    import triton

    is_old = Version(triton.__version__) < Version("3.7") and os.environ.get("TRITON_INTERPRET") == "1"
    for item in here if is_old else []:
        item.add_marker(pytest.mark.filterwarnings("ignore:Conversion of an array with ndim:DeprecationWarning"))
        if Version(numpy.__version__) >= Version("2.4"):
            item.add_marker(pytest.mark.skip(reason="the interpreter of Triton 3.6 fails with NumPy 2.4 and newer"))


@pytest.fixture
def nan_memory(monkeypatch):
    """Fill new tensors with NaN, so that elements that a kernel does not write are noticed."""
    for where, name in ((torch, "empty_like"), (torch.Tensor, "new_empty")):
        allocate = getattr(where, name)
        monkeypatch.setattr(where, name, lambda *a, allocate=allocate, **k: allocate(*a, **k).fill_(float("nan")))


@pytest.fixture(scope="session")
def device():
    """The device for kernels: the CPU with Triton's interpreter, or a GPU."""
    if os.environ.get("TRITON_INTERPRET") == "1":
        return "cpu"
    if not torch.cuda.is_available():
        pytest.skip("kernels run on a CUDA device, which torch does not find, or with TRITON_INTERPRET=1")
    return "cuda"


@pytest.fixture(scope="session")
def draw(device):
    """``draw(base, mixings, shape, dtype)``: random q, k, v, and the tensors of each mixing or None, from a fixed
    seed."""

    def make(base, mixings, shape, dtype, std=0.3, device=device):
        batch, heads, length, k_width, v_width, rank = shape
        generator = torch.Generator().manual_seed(0)
        query_heads = 2 * heads if base == "G" else heads

        def randn(*size):
            return torch.randn(*size, generator=generator).to(device)

        def mixing(count):
            tables = ((count, length, rank), (count, length, rank), (count, length))
            return randn(batch, count, length, rank).sigmoid(), *(std * randn(*size) for size in tables)

        q = randn(batch, query_heads, length, k_width) / k_width**0.5
        k, v = randn(batch, query_heads, length, k_width), randn(batch, heads, length, v_width)
        mix1 = mixing(query_heads) if "1" in mixings else None
        return q.to(dtype), k.to(dtype), v.to(dtype), mix1, mixing(heads) if "2" in mixings else None

    return make


def operator(base, q, k, v, mix1, mix2, by_lag):
    """The output o by the equations of madbench.mixers.srg.parts, with tensors of shape (B, heads, T, T)."""
    length, heads = q.shape[2], v.shape[1]
    visible = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    row = torch.arange(length, device=q.device)
    slot = (row[:, None] - row).clamp_min(0) if by_lag else row.expand(length, length)

    def mix(y, s, into, out_of, p):
        low_rank = torch.einsum("bhti,htir,bhtr,htjr->bhtj", y, into[:, slot], s, out_of[:, slot])
        return (y * (1 + p[:, slot]) + low_rank) * visible

    h = (q @ k.transpose(-1, -2)) * visible
    if mix1:
        s, a, b, p = mix1
        h = mix(h, s, a, b, p)
    if base == "S":
        activations, norm = h.masked_fill(~visible, -torch.inf).softmax(-1), 1
    else:
        activations = F.relu(h[:, :heads])
        norm = (h[:, :heads].square().sum(-1, keepdim=True) + EPS).sqrt()
    if base == "G":
        activations = activations * F.softplus(h[:, heads:])
    if mix2:
        s, a, b, p = mix2
        activations = mix(activations, s, b, a, p)
    return activations @ v / norm


@pytest.fixture(scope="session")
def errors():
    """``errors(layout, base, inputs)``: norms of the errors of o and of every gradient, relative to float64.

    A gradient that is zero in theory, such as that of a single slot's score under R, is compared with the largest one.
    """

    def measure(layout, base, inputs, by_lag=False):
        q, k, v, mix1, mix2 = inputs
        exact = [tuple(x.double().requires_grad_() for x in part) if part else None for part in ((q, k, v), mix1, mix2)]
        expected = operator(base, *exact[0], *exact[1:], by_lag)
        generator = torch.Generator().manual_seed(1)
        do = torch.randn(expected.shape, generator=generator).to(q)
        leaves = [x for part in exact if part for x in part]
        names = ["o", *(name for name, x in zip(NAMES, named(exact)) if x is not None)]
        expected = [expected, *torch.autograd.grad(expected, leaves, do.double())]
        o, saved = layout.forward(base, *inputs)
        *of_inputs, of_mix1, of_mix2 = layout.backward(base, do, *inputs, o, saved)
        computed = [o, *of_inputs, *(of_mix1 or ()), *(of_mix2 or ())]
        least = 1e-2 * max(y.norm() for y in expected)
        return {
            name: ((x.double() - y).norm() / torch.maximum(y.norm(), least)).item()
            for name, x, y in zip(names, computed, expected, strict=True)
        }

    def named(parts):
        return [x for part, size in zip(parts, (3, 4, 4)) for x in part or [None] * size]

    return measure
