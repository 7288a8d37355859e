"""Comparisons of named operators with those of libraries: loading of state dicts, and outputs in float64."""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from madbench.mixers import build
from madbench.mixers.checks.path_checks import evaluate, residuals

NEEDS_LIBRARY = [pytest.mark.slow, pytest.mark.usefixtures("library"), pytest.mark.filterwarnings("ignore")]
"""Marks of a module of tests that compare with a library. The fixture ``library`` of the module skips the tests if the
library is not installed."""
SIZES = ((32, 2), (48, 3), (128, 4), (256, 8))
"""Pairs of the width of a model and its number of heads."""


def in_float64(module: ModuleType, function: Callable[..., Any]) -> Any:
    """A copy of a library's ``function``, defined in ``module``, that casts to float64 in place of float32."""
    source = textwrap.dedent(inspect.getsource(function))
    casts = {"torch.float32": "torch.float64", "torch.float)": "torch.float64)", ".float()": ".double()"}
    for narrow, wide in casts.items():
        source = source.replace(narrow, wide)
    names = dict(vars(module))
    exec(source, names)
    return names[function.__name__]


def check_equal_layers(layer: nn.Module, other: nn.Module, x: Tensor) -> None:
    """Assert that ``layer`` and the library's layer ``other`` have equal outputs and gradients on the input ``x``.

    ``other`` gets the weights of ``layer``.
    """
    other.load_state_dict(layer.state_dict())
    expected = evaluate(other, lambda x: other(x)[0], x, None)
    found = residuals(evaluate(layer, layer, x, None), expected)
    assert max(found.values()) < 1e-11 and found[""] < 1e-13


def module_of_transformers(model: str) -> Any:
    """Import the module of a model of the library transformers. Skip the test if it is not installed.

    The module is imported as if flash-linear-attention were not installed. Otherwise it would use kernels of
    flash-linear-attention, which need a GPU.
    """
    before = sys.modules.get("fla")
    cast("dict[str, ModuleType | None]", sys.modules)["fla"] = None  # an import raises ImportError
    try:
        pytest.importorskip("transformers")
        return pytest.importorskip(f"transformers.models.{model}.modeling_{model}")
    finally:
        del sys.modules["fla"]
        if before is not None:
            sys.modules["fla"] = before


def keep_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ``torch.float32``, ``torch.float`` and ``Tensor.float`` stand for float64 until the end of the test.

    A library's layer that is then built or called computes in float64.
    """
    for name in ("float32", "float"):
        monkeypatch.setattr(torch, name, torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def run_on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let attention layers of flash-linear-attention compute norms and rotations on a CPU in float64, by torch.

    The test must also replace the attention itself, because it is a kernel that needs a GPU.
    """
    from fla.modules import RMSNorm
    from fla.modules.rotary import ops

    def rotated(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, **options: object) -> Any:
        return ops.rotary_embedding_ref(x, cos[: x.shape[1]], sin[: x.shape[1]], interleaved)

    keep_float64(monkeypatch)
    monkeypatch.setattr(ops, "rotary_embedding", rotated)
    monkeypatch.setattr(RMSNorm, "forward", lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight, self.eps))


def softmax_attention(layer: Any) -> nn.Module:
    """The mixer ``S-p``, softmax attention with RoPE, in float64 with the weights of a named layer.

    The projections q, k, v and o of ``layer`` are copied.
    """
    size = layer.allocation.size
    mixer = build("S-p", size.d_model, size.max_len, n_head=size.n_head).double()
    for side in "qkvo":
        getattr(mixer, side).weight.data.copy_(getattr(layer, f"{side}_proj").weight)
    return mixer.requires_grad_(False)


def use_plain_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace convolutions and norms of flash-linear-attention, whose kernels need a GPU, by operators of torch."""
    from fla import modules

    def convolve(self: Any, x: Tensor, **_: object) -> tuple[Tensor, None]:
        y = F.conv1d(x.mT, self.weight, self.bias, padding=self.kernel_size[0] - 1, groups=len(self.weight))
        return {"silu": F.silu}[self.activation](y[..., : x.shape[1]].mT), None

    def norm_and_gate(self: Any, o: Tensor, g: Tensor) -> Tensor:
        return rms_norm(o, self.weight) * (g.sigmoid() if self.activation == "sigmoid" else F.silu(g))

    monkeypatch.setattr(modules.ShortConvolution, "forward", convolve)
    monkeypatch.setattr(modules.FusedRMSNormGated, "forward", norm_and_gate)
    monkeypatch.setattr(modules.RMSNorm, "forward", lambda self, o: rms_norm(o, self.weight))


def unit(x: Tensor) -> Tensor:
    """x / sqrt(|x|^2 + 1e-6) over the last axis, as in the kernels of flash-linear-attention."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def causal_mask(length: int) -> Tensor:
    """An additive mask (1, 1, T, T) for T = ``length``: 0 for tokens that a row sees, minus infinity for later ones."""
    return torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)[None, None]


def load_both_ways(
    label: str, theirs: Callable[[nn.Module], nn.Module], sizes: Sequence[tuple[int, int]] = SIZES
) -> None:
    """Assert that a layer of madbench and the library's layer load each other's state dicts.

    Args:
        label: the label of the layer of madbench.
        theirs: makes the library's layer with the widths of the layer that it is called with.
        sizes: pairs of the width of the model and the number of heads.
    """
    for d, heads in sizes:
        layer = build(label, d, 32, n_head=heads)
        other = theirs(layer)
        assert list(other.state_dict()) == list(layer.state_dict())
        other.load_state_dict(layer.state_dict())
        layer.load_state_dict(other.state_dict())


def convolve_projection(x: Tensor, p: Mapping[str, Tensor], side: str) -> Tensor:
    """q, k or v of all heads, (B, T, channels): a projection of x (B, T, D), a causal convolution, and SiLU.

    ``p`` has the parameters by name. ``side`` is ``q``, ``k`` or ``v``.
    """
    taps = p[f"{side}_conv1d.weight"]
    inputs = x @ p[f"{side}_proj.weight"].T
    return F.silu(F.conv1d(inputs.mT, taps, padding=taps.shape[-1] - 1, groups=len(taps))[..., : x.shape[1]].mT)


def rms_norm(o: Tensor, gain: Tensor) -> Tensor:
    """RMSNorm of ``o`` over the last axis, with the weight ``gain`` and the epsilon 1e-5."""
    return o * (o.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain
