"""The two MAD models around a mixer: structure, counts, and what each position may know."""

from __future__ import annotations

import functools
import math

import pytest
import torch
from torch import nn

from madbench.labels import parse
from madbench.mixers import build
from madbench.models.blocks import Backbone, SwiGLU, sinusoids
from madbench.models.mad import Autoencoder, MadModel
from madbench.models.shapes import swiglu_width


def make(model, label="S", vocab_size=11, d_model=16, n_layer=2, length=8, mlp_width=0, **more):
    torch.manual_seed(0)
    make_mixer = functools.partial(build, label, d_model, length, budget="paper")
    return model(Backbone(vocab_size, d_model, n_layer, make_mixer, mlp_width), **more)


def tokens(length=8, batch=3, vocab_size=11):
    return torch.randint(vocab_size, (batch, length), generator=torch.Generator().manual_seed(1))


def widen(model):
    """Set weights large enough that every path through the model matters."""
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3, generator=generator)
    return model.double()


def rms_norm(x, gain):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * gain


def silu(x):
    return x / (1 + torch.exp(-x))


def gelu(x):
    return x * 0.5 * (1 + torch.erf(x / math.sqrt(2)))


def encode(model, ids):
    """The backbone computed explicitly: x + layer(RMSNorm(x)) for mixer, SwiGLU, mixer, SwiGLU."""
    w = model.state_dict()
    x = w["backbone.embedding.weight"][ids]
    for index in range(4):
        normed = rms_norm(x, w[f"backbone.norms.{index}.weight"])
        if index % 2 == 0:
            x = x + model.backbone.layers[index](normed)
        else:
            gate, up, down = (w[f"backbone.layers.{index}.{name}.weight"] for name in ("gate", "up", "down"))
            x = x + (silu(normed @ gate.T) * (normed @ up.T)) @ down.T
    return x


def test_the_language_model_is_pre_norm_residual_layers_and_a_normalized_linear_readout():
    model, ids = widen(make(MadModel, "R-g-q-12o")), tokens()
    w = model.state_dict()
    expected = rms_norm(encode(model, ids), w["norm.weight"]) @ w["head.weight"].T + w["head.bias"]
    torch.testing.assert_close(model(ids), expected)


def test_the_autoencoder_decodes_the_last_vector_at_every_position():
    model, ids = widen(make(Autoencoder, "R-g-q-12o", max_len=8)), tokens()
    w = model.state_dict()
    x = encode(model, ids)[:, -1:] + sinusoids(8, 16).double()
    for norm, layer in ((0, 1), (3, 4), (6, 7)):
        x = rms_norm(x, w[f"decoder.{norm}.weight"]) @ w[f"decoder.{layer}.weight"].T + w[f"decoder.{layer}.bias"]
        x = gelu(x) if layer < 7 else x
    torch.testing.assert_close(model(ids), x)


@pytest.mark.parametrize("length", [1, 5, 8])
def test_logits_have_a_row_per_token_and_a_column_per_class(length):
    for model in (make(MadModel), make(Autoencoder, max_len=8)):
        assert model(tokens(length)).shape == (3, length, 11)


def test_only_the_last_encoding_reaches_the_decoder():
    model, seen = make(Autoencoder, max_len=8), []
    model.backbone.register_forward_hook(lambda module, inputs, output: (seen.append(output), output.retain_grad())[1])
    model(tokens()).sum().backward()
    gradient = seen[0].grad
    assert (gradient[:, :-1] == 0).all() and (gradient[:, -1] != 0).any()


@pytest.mark.parametrize("label", ["S", "R-12o!"])
def test_the_language_model_is_causal(label):
    model, ids = widen(make(MadModel, label)), tokens()
    changed = ids.clone()
    changed[:, 5] = (changed[:, 5] + 1) % 11
    before, after = model(ids), model(changed)
    torch.testing.assert_close(after[:, :5], before[:, :5])
    assert (after[:, 5:] - before[:, 5:]).norm() > 1e-3


@pytest.mark.parametrize(
    "label, n_layer, blind",
    [("S", 1, True), ("R-g!", 1, True), ("R-12o!", 1, False), ("S-p", 1, False), ("S", 2, False)],
)
def test_one_layer_without_positions_is_blind_to_the_order_of_earlier_tokens(label, n_layer, blind):
    """A model with a second layer is not: earlier rows differ by their causal prefixes."""
    model, ids = widen(make(MadModel, label, n_layer=n_layer)), tokens(batch=1)
    shuffled = ids[:, [4, 2, 6, 0, 1, 3, 5, 7]]
    assert torch.allclose(model(shuffled)[:, -1], model(ids)[:, -1]) == blind


def test_parameters_of_both_models_at_the_published_size_equal_hand_counts():
    """d 128, vocabulary 16: S has 4 d^2, SwiGLU 3 d 352; one norm per layer, and one before the readout."""
    d, vocabulary = 128, 16
    backbone = vocabulary * d + 2 * (4 * d * d + 3 * d * 352) + 4 * d
    head = d * vocabulary + vocabulary
    decoder = 3 * d + 2 * (d * d + d) + head
    size = {"vocab_size": vocabulary, "d_model": d, "length": 32}
    assert count(make(MadModel, **size)) == backbone + d + head == 406_160
    assert count(make(Autoencoder, **size, max_len=32)) == backbone + decoder == 439_440


def count(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_output_and_embedding_are_separate_weights():
    model = make(MadModel)
    assert model.head.weight.data_ptr() != model.backbone.embedding.weight.data_ptr()
    assert not torch.equal(model.head.weight, model.backbone.embedding.weight)


def test_blocks_do_not_share_mixers():
    mixers = make(MadModel, n_layer=3).backbone.layers[::2]
    assert len({id(mixer) for mixer in mixers}) == 3
    assert not torch.equal(mixers[0].q.weight, mixers[1].q.weight)
    assert all(mixer.label == parse("S") for mixer in mixers)


@pytest.mark.parametrize("d_model, width", [(128, 352), (6, 16), (7, 32), (16, 48), (96, 256), (768, 2048)])
def test_swiglu_is_eight_thirds_wide_rounded_up_to_sixteen(d_model, width):
    assert swiglu_width(d_model) == width
    assert SwiGLU(d_model).gate.weight.shape == (width, d_model)


def test_a_given_mlp_width_changes_the_parameter_count():
    usual, narrow = make(MadModel, d_model=64), make(MadModel, d_model=64, mlp_width=16)
    assert count(usual) - count(narrow) == 3 * 64 * (swiglu_width(64) - 16) * len(usual.backbone.layers[::2])


def test_weights_start_at_0_02_gains_at_one_and_biases_at_zero():
    for model in (make(MadModel, d_model=64), make(Autoencoder, d_model=64, max_len=8)):
        gains = [module.weight for module in model.modules() if isinstance(module, nn.RMSNorm)]
        assert len(gains) == (5 if isinstance(model, MadModel) else 7)
        assert all((gain == 1).all() for gain in gains)
        for name, parameter in model.named_parameters():
            if name.endswith(".bias"):
                assert (parameter == 0).all(), name
            elif parameter.dim() == 2:
                error = 4 * 0.02 / (2 * parameter.numel()) ** 0.5
                assert parameter.std().item() == pytest.approx(0.02, abs=error), name


@pytest.mark.parametrize("width", [4, 5])
def test_sinusoids_are_sines_then_cosines_of_falling_frequency(width):
    table = sinusoids(6, width)
    assert table.shape == (6, width) and table.dtype == torch.float32
    sines = (width + 1) // 2
    for t in range(6):
        row = [math.sin(t * 10000 ** (-2 * i / width)) for i in range(sines)]
        row += [math.cos(t * 10000 ** (-2 * i / width)) for i in range(width - sines)]
        assert table[t].tolist() == pytest.approx(row, abs=1e-6)


@pytest.mark.parametrize("model", [MadModel, Autoencoder])
def test_bfloat16_autocast_runs_forward_and_backward_without_a_warning(model):
    network = make(model, "G-cg-q-12o", **({"max_len": 8} if model is Autoencoder else {}))
    with torch.autocast("cpu", torch.bfloat16):
        logits = network(tokens())
    logits.float().square().mean().backward()
    assert all(parameter.grad.isfinite().all() for parameter in network.parameters())
