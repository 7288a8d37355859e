"""Kernels of flash-linear-attention beside our operators, on a GPU: the path ``fla``, and the library's layers."""

from __future__ import annotations

import pytest
import torch

from madbench.mixers import build
from madbench.mixers.named.operators import OPERATORS
from refused import skip_if_refused

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore")]
HEADS = {
    "DeltaNet": lambda dims: {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d},
    "GDN": lambda dims: {"head_dim": dims.key, "expand_v": dims.value / dims.key},
    "GLA": lambda dims: {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d},
    "GSA": lambda dims: {"expand_k": dims.key_dim / dims.d, "layer_idx": 0},
    "KDA": lambda dims: {"head_dim": dims.key, "expand_v": dims.value / dims.key},
    "RetNet": lambda dims: {"expand_k": dims.key_dim / dims.d, "expand_v": dims.value_dim / dims.d},
}
OPTIONS = {name: lambda dims, of=of: {"num_heads": dims.heads, **of(dims)} for name, of in HEADS.items()} | {
    "HGRN": lambda dims: {"expand_ratio": 1},
    "HGRN2": lambda dims: {"expand_ratio": dims.key},
    "Mamba-2": lambda dims: {"expand": 2, "head_dim": dims.value, "state_size": dims.key},
}
"""Options of the library's layer with the widths of ours, besides the width of the model."""


def theirs(layer):
    """The library's layer with the parameters of ours."""
    import fla.layers

    options = OPTIONS[layer.operator.name](layer.dims)
    other = getattr(fla.layers, layer.operator.library)(hidden_size=layer.dims.d, **options)
    other.load_state_dict(layer.state_dict())
    return other


def evaluate(module, x):
    """The output of a module, and the gradient of its squares."""
    given = x.clone().requires_grad_()
    output = module(given)
    output = output[0] if isinstance(output, tuple) else output
    with skip_if_refused():
        output.float().square().sum().backward()
    return output.float(), given.grad


def assert_near(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert (one - other).norm() < 0.04 * other.norm()


@pytest.mark.parametrize("label", [name for name, operator in OPERATORS.items() if "fla" in operator.paths])
def test_path_fla_equals_path_chunked(label):
    pytest.importorskip("fla.ops", exc_type=ImportError)
    torch.manual_seed(0)
    layer, x = build(label, 128, 256, n_head=2).cuda(), torch.randn(2, 200, 128, device="cuda")
    layer.path = "chunked"
    expected = evaluate(layer, x)
    layer.path = "fla"
    with skip_if_refused(), torch.autocast("cuda", torch.bfloat16):
        found = evaluate(layer, x)
    assert_near(found, expected)


@pytest.mark.parametrize("label", OPTIONS)
def test_whole_library_layers_have_our_outputs_and_gradients(label):
    pytest.importorskip("fla.layers", exc_type=ImportError)
    torch.manual_seed(0)
    layer, x = build(f"{label}!", 128, 256, n_head=2).cuda(), torch.randn(2, 200, 128, device="cuda")
    other = theirs(layer).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        assert_near(evaluate(other, x), evaluate(layer, x))
