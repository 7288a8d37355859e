"""Named operators beside flash-linear-attention: parameters, naive recurrences in float64, and whole layers."""

from __future__ import annotations

import inspect
import textwrap

import pytest
import torch.nn.functional as F

from madbench.mixers import build
from madbench.mixers.residuals import difference, filled_mixer

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]


@pytest.fixture(autouse=True)
def library():
    """The library, whose layers can be built on a CPU, although its kernels need a GPU."""
    pytest.importorskip("fla.layers", exc_type=ImportError)


def in_float64(module, function):
    """A function of the library without its casts to float32."""
    source = textwrap.dedent(inspect.getsource(function))
    casts = {"torch.float32": "torch.float64", "torch.float)": "torch.float64)", ".float()": ".double()"}
    for cast, wide in casts.items():
        source = source.replace(cast, wide)
    names = dict(vars(module))
    exec(source, names)
    return names[function.__name__]


def options(label, dims):
    """The arguments of the library's layer of these dims."""
    if label.startswith("Mamba-2"):
        return {"head_dim": dims.value, "expand": dims.value_dim / dims.d, "state_size": dims.key}
    neg = {"allow_neg_eigval": True} if "neg" in label else {}
    return {"num_heads": dims.heads, "head_dim": dims.key, "expand_v": dims.value / dims.key, **neg}


@pytest.mark.parametrize("label", ["KDA", "KDA(neg)!", "GDN", "GDN(neg)!", "Mamba-2", "Mamba-2!"])
@pytest.mark.parametrize("d, heads", [(32, 2), (48, 3), (128, 4)])
def test_a_state_dict_is_loaded_in_both_directions(label, d, heads):
    import fla.layers

    layer = build(label, d, 32, n_head=heads)
    theirs = getattr(fla.layers, layer.operator.library)(hidden_size=d, **options(label, layer.dims))
    assert list(theirs.state_dict()) == list(layer.state_dict())
    theirs.load_state_dict(layer.state_dict())
    layer.load_state_dict(theirs.state_dict())


def convolved(x, p, side):
    taps = p[f"{side}_conv1d.weight"]
    inputs = x @ p[f"{side}_proj.weight"].T
    return F.silu(F.conv1d(inputs.mT, taps, padding=3, groups=len(taps))[..., : x.shape[1]].mT)


@pytest.mark.parametrize("label", ["KDA", "KDA(neg)", "GDN", "GDN(neg)"])
def test_outputs_and_states_are_those_of_the_library_s_recurrence(label):
    from fla.ops.gated_delta_rule import naive as gdn
    from fla.ops.kda import naive as kda

    layer, x = filled_mixer(lambda: build(label, 32, 65, n_head=2))
    p, heads = dict(layer.named_parameters()), layer.dims.heads
    q, k, v = (convolved(x, p, side).unflatten(-1, (heads, -1)) for side in "qkv")
    q, k = (side / (side.square().sum(-1, keepdim=True) + 1e-6).sqrt() for side in (q, k))
    beta = (x @ p["b_proj.weight"].T).sigmoid() * (2 if "neg" in label else 1)
    if label.startswith("KDA"):
        logits = x @ p["f_proj.0.weight"].T @ p["f_proj.1.weight"].T + p["dt_bias"]
        g = -p["A_log"].exp()[:, None] * F.softplus(logits, threshold=99).unflatten(-1, (heads, -1))
        o, state = in_float64(kda, kda.naive_recurrent_kda)(q, k, v, g, beta, output_final_state=True)
        gate = (x @ p["g_proj.0.weight"].T @ p["g_proj.1.weight"].T + p["g_proj.1.bias"]).sigmoid()
    else:
        g = -p["A_log"].exp() * F.softplus(x @ p["a_proj.weight"].T + p["dt_bias"], threshold=99)
        naive = in_float64(gdn, gdn.naive_recurrent_gated_delta_rule)
        o, state = naive(q=q, k=k, v=v, g=g, beta=beta, output_final_state=True)
        gate = F.silu(x @ p["g_proj.weight"].T)
    o = o * (o.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * p["o_norm.weight"] * gate.view_as(o)
    y, cache = layer.prefill(x)
    expected = o.flatten(-2) @ p["o_proj.weight"].T
    assert difference(layer(x), expected) < 1e-13 and difference(y, expected) < 1e-13
    assert difference(cache.state, state) < 1e-13


def test_mamba_2_is_the_library_s_whole_layer():
    from fla.layers import mamba2

    layer, x = filled_mixer(lambda: build("Mamba-2", 32, 65, n_head=2))
    theirs = mamba2.Mamba2(hidden_size=32, chunk_size=16, **options("Mamba-2", layer.dims)).double()
    theirs.load_state_dict(layer.state_dict())
    gain = theirs.norm.weight

    def gated_norm(y, z):
        y = y * F.silu(z)
        return y * (y.square().mean(-1, keepdim=True) + 1e-5).rsqrt() * gain

    del theirs.norm, theirs.act
    theirs.norm, theirs.act = gated_norm, F.silu  # in place of kernels that need a GPU
    expected = in_float64(mamba2, mamba2.Mamba2.torch_forward)(theirs, x)
    expected = expected[0] if isinstance(expected, tuple) else expected
    assert difference(layer(x), expected) < 1e-13
