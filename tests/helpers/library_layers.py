"""Comparisons of named operators with libraries: state dicts, and functions and layers of libraries in float64."""

from __future__ import annotations

import inspect
import sys
import textwrap

import pytest
import torch
import torch.nn.functional as F

from madbench.mixers import build
from madbench.mixers.path_checks import evaluate, residuals

NEEDS_LIBRARY = [pytest.mark.slow, pytest.mark.usefixtures("library"), pytest.mark.filterwarnings("ignore")]
"""Marks of a module whose tests compare with the library. They are skipped if it is not installed."""
SIZES = ((32, 2), (48, 3), (128, 4), (256, 8))
"""Widths of the model and numbers of heads."""


def in_float64(module, function):
    """A function of the library without its casts to float32."""
    source = textwrap.dedent(inspect.getsource(function))
    casts = {"torch.float32": "torch.float64", "torch.float)": "torch.float64)", ".float()": ".double()"}
    for cast, wide in casts.items():
        source = source.replace(cast, wide)
    names = dict(vars(module))
    exec(source, names)
    return names[function.__name__]


def check_equal_layers(layer, other, x):
    """Assert that a layer and that of the library have equal outputs and gradients, with the weights of the first."""
    other.load_state_dict(layer.state_dict())
    expected = evaluate(other, lambda x: other(x)[0], x, None)
    found = residuals(evaluate(layer, layer, x, None), expected)
    assert max(found.values()) < 1e-11 and found[""] < 1e-13


def module_of_transformers(model):
    """The module of a model of transformers, imported without flash-linear-attention. Skip the test if there is none.

    With flash-linear-attention such a module takes its kernels, which need a GPU.
    """
    before = sys.modules.get("fla")
    sys.modules["fla"] = None
    try:
        pytest.importorskip("transformers")
        return pytest.importorskip(f"transformers.models.{model}.modeling_{model}")
    finally:
        del sys.modules["fla"]
        if before is not None:
            sys.modules["fla"] = before


def keep_float64(monkeypatch):
    """Replace float32 by float64 in the names of torch that a layer of a library uses to build and call itself."""
    for name in ("float32", "float"):
        monkeypatch.setattr(torch, name, torch.float64)
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)


def run_on_cpu(monkeypatch):
    """Let attention layers of flash-linear-attention run on a CPU in float64, with norms and rotations by torch.

    The attention of such a layer has to be replaced, too, because it is a kernel.
    """
    from fla.modules import RMSNorm
    from fla.modules.rotary import ops

    def rotated(x, cos, sin, interleaved, **options):
        return ops.rotary_embedding_ref(x, cos[: x.shape[1]], sin[: x.shape[1]], interleaved)

    keep_float64(monkeypatch)
    monkeypatch.setattr(ops, "rotary_embedding", rotated)
    monkeypatch.setattr(RMSNorm, "forward", lambda self, x: F.rms_norm(x, x.shape[-1:], self.weight, self.eps))


def softmax_attention(layer):
    """The mixer ``S-p``, softmax attention with rotated queries and keys, with the projections of a named layer."""
    size = layer.allocation.size
    mixer = build("S-p", size.d_model, size.max_len, n_head=size.n_head).double()
    for side in "qkvo":
        getattr(mixer, side).weight.data.copy_(getattr(layer, f"{side}_proj").weight)
    return mixer.requires_grad_(False)


def use_plain_modules(monkeypatch):
    """Replace kernels of the library's convolutions and norms, which need a GPU, by operators of torch."""
    from fla import modules

    def convolve(self, x, **_):
        y = F.conv1d(x.mT, self.weight, self.bias, padding=self.kernel_size[0] - 1, groups=len(self.weight))
        return {"silu": F.silu}[self.activation](y[..., : x.shape[1]].mT), None

    def norm_and_gate(self, o, g):
        return rms_norm(o, self.weight) * (g.sigmoid() if self.activation == "sigmoid" else F.silu(g))

    monkeypatch.setattr(modules.ShortConvolution, "forward", convolve)
    monkeypatch.setattr(modules.FusedRMSNormGated, "forward", norm_and_gate)
    monkeypatch.setattr(modules.RMSNorm, "forward", lambda self, o: rms_norm(o, self.weight))


def unit(x):
    """x / sqrt(|x|^2 + 1e-6) over the last axis, as in the library's kernels."""
    return x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()


def causal_mask(length):
    """Zero for the tokens that a row sees, and minus infinity for later ones: (1, 1, T, T)."""
    return torch.full((length, length), -torch.inf, dtype=torch.float64).triu(1)[None, None]


def load_both_ways(label, theirs, sizes=SIZES):
    """Load a state dict in both directions. ``theirs(layer)`` makes the library's layer with the widths of ours."""
    for d, heads in sizes:
        layer = build(label, d, 32, n_head=heads)
        other = theirs(layer)
        assert list(other.state_dict()) == list(layer.state_dict())
        other.load_state_dict(layer.state_dict())
        layer.load_state_dict(other.state_dict())


def convolve_projection(x, p, side):
    """q, k or v of all heads: a projection of x (B, T, D), its convolution, and SiLU."""
    taps = p[f"{side}_conv1d.weight"]
    inputs = x @ p[f"{side}_proj.weight"].T
    return F.silu(F.conv1d(inputs.mT, taps, padding=taps.shape[-1] - 1, groups=len(taps))[..., : x.shape[1]].mT)


def rms_norm(o, gain):
    """RMSNorm over the last axis."""
    return o * (o.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain
