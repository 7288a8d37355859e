"""Layers of flash-linear-attention equal the corresponding labels of coefficient dynamics on equal weights.

It has no mLSTM.
"""

from __future__ import annotations

import pytest
import torch

from madbench.labels import parse
from madbench.mixers import Size
from madbench.mixers.cd.budget import CdAllocation
from madbench.mixers.cd.family import Settings
from madbench.mixers.cd.operator import CoefficientMixer
from refused import skip_if_refused

D, N, M, T = 64, 32, 64, 100
Q, K, V, GATE = (("q_proj", "q"), ("k_proj", "k"), ("v_proj", "v"), ("g_proj", "out_gate"))
CONVS = (("q_conv1d", "q_conv"), ("k_conv1d", "k_conv"), ("v_conv1d", "v_conv"))
NORM = {"norm_eps": 1e-6}
PAIRS = {
    "cd:id-dg-g": (
        "GatedLinearAttention",
        {"num_heads": 2, "expand_k": N / D, "expand_v": M / D} | NORM,
        (Q, K, V, GATE, ("o_proj", "o"), ("gk_proj.0", "decay_down"), ("gk_proj.1", "decay_up"))
        + (("g_norm_swish_gate", "out_norm"),),
    ),
    "cd:id-hk1-bwn-cug": (
        "DeltaNet",
        {"num_heads": 2, "expand_k": N / D, "expand_v": M / D, "use_gate": True} | NORM,
        (Q, K, V, GATE, *CONVS, ("o_proj", "o"), ("b_proj", "strength"), ("o_norm", "out_norm")),
    ),
    "cd:id-smhk1-bwn-cug": (
        "GatedDeltaNet",
        {"num_heads": 2, "head_dim": N // 2, "expand_v": M / N} | NORM,
        (Q, K, V, GATE, *CONVS, ("o_proj", "o"), ("b_proj", "strength"), ("o_norm", "out_norm"))
        + (("a_proj", "decay"), ("dt_bias", "decay.bias"), ("A_log", "a_log")),
    ),
}


HALF = ("cd:id-hk1-bwn-cug",)
"""Labels whose library layer computes only in 16 bits."""
TOLERANCE = {torch.float32: 2e-3, torch.bfloat16: 4e-2}  # products of the kernels are in TF32


def coefficient_mixer(label: str, heads: int, n: int, m: int) -> CoefficientMixer:
    torch.manual_seed(0)
    mixer = CoefficientMixer(CdAllocation(parse(label), Size(D, heads, 128), n, m), Settings(init_std=0.2))
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            if "conv" in name:
                parameter.normal_(std=0.5)
    return mixer


def copy_weights(layer: torch.nn.Module, mixer: CoefficientMixer, names) -> None:
    """Copy weights of the mixer into the layer. Each pair has the names, in both, of a parameter or of a module."""
    theirs, ours = dict(layer.named_parameters()), dict(mixer.named_parameters())
    filled = set()
    with torch.no_grad():
        for there, here in names:
            pairs = [("", "")] if there in theirs else [(".weight", ".weight"), (".bias", ".bias")]
            for ending, own in pairs:
                if (there + ending) in theirs:
                    theirs[there + ending].copy_(ours[here + own].view_as(theirs[there + ending]))
                    filled.add(there + ending)
    assert filled == set(theirs), set(theirs) - filled


def state_space_pair() -> tuple[torch.nn.Module, CoefficientMixer]:
    """A Mamba-2 layer of one head, with its norm before the gate and without a skip, and its weights in our order."""
    from fla.layers import Mamba2

    mixer = coefficient_mixer("cd:id-sm-bd-cg", 1, N, M)
    layer = Mamba2(
        hidden_size=D, expand=M // D, head_dim=M, state_size=N, norm_before_gate=True, use_conv_bias=False, **NORM
    )
    with torch.no_grad():
        rows = (mixer.out_gate, mixer.v, mixer.k, mixer.q, mixer.decay)
        layer.in_proj.weight.copy_(torch.cat([row.weight for row in rows]))
        layer.conv1d.weight.copy_(
            torch.cat([conv.weight for conv in (mixer.v_conv, mixer.k_conv, mixer.q_conv)])[:, None]
        )
        layer.dt_bias.copy_(mixer.decay.bias)
        layer.A_log.copy_(mixer.a_log)
        layer.D.zero_()
        layer.norm.weight.copy_(mixer.out_norm.weight)
        layer.out_proj.weight.copy_(mixer.o.weight)
    return layer, mixer


def pair_of(label: str) -> tuple[torch.nn.Module, CoefficientMixer]:
    import fla.layers

    if label == "cd:id-sm-bd-cg":
        return state_space_pair()
    kind, options, names = PAIRS[label]
    layer, mixer = getattr(fla.layers, kind)(hidden_size=D, **options), coefficient_mixer(label, 2, N, M)
    copy_weights(layer, mixer, names)
    return layer, mixer


@pytest.mark.gpu
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("label", [*PAIRS, "cd:id-sm-bd-cg"])
def test_library_layers_have_the_outputs_and_gradients_of_their_counterparts(label):
    pytest.importorskip("fla", exc_type=ImportError)
    layer, mixer = (module.cuda() for module in pair_of(label))
    x = torch.randn(2, T, D, device="cuda")
    dtype = torch.bfloat16 if label in HALF else torch.float32
    outputs, gradients = [], []
    for module in (layer.to(dtype), mixer):
        given = x.clone().requires_grad_()
        output = module(given.to(next(module.parameters()).dtype))
        outputs.append(output[0] if isinstance(output, tuple) else output)
        with skip_if_refused():
            outputs[-1].square().sum().backward()
        gradients.append(given.grad)
    for theirs, ours in (outputs, gradients):
        assert (theirs - ours).norm() / ours.norm() < TOLERANCE[dtype]
