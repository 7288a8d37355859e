"""The module: parameters and their initial values, coefficients, decoding and precision."""

from __future__ import annotations

import math

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from coefficient_labels import random_label
from madbench.mixers import build, solve
from madbench.mixers.cd.grammar import PRESETS
from madbench.training.optimizer import decays


def relative(given, expected):
    return ((given.double() - expected).abs().max() / (1 + expected.abs().max())).item()


@pytest.mark.parametrize("budget", ["paper", "strict"])
def test_the_parameters_equal_those_of_the_allocation(budget):
    for seed in range(60):
        label = random_label(seed)
        found = sum(parameter.numel() for parameter in build(label, 32, 8, budget=budget).parameters())
        assert found == solve(label, 32, 2, 8, budget).total, str(label)


@pytest.mark.parametrize(
    "label, names",
    [
        ("cd:exp", ""),
        ("cd:id-ss-c", "decay.weight decay.bias q_conv.weight k_conv.weight v_conv.weight"),
        ("cd:id-sm-bd", "a_log decay.weight decay.bias"),
        ("cd:id-dg-g", "decay_down.weight decay_up.weight decay_up.bias out_gate.weight out_norm.weight"),
        ("cd:id-hz2-bz-wx", "strength.weight direction.weight scale.weight eta.weight"),
        ("cd:id-hkr-bi-o", "scale.weight scale.bias out_sigmoid.weight out_sigmoid.bias"),
    ],
)
def test_parameters_have_the_names_of_the_specification(label, names):
    expected = {*"q.weight k.weight v.weight o.weight".split(), *names.split()}
    assert build(label, 16, 8, budget="paper").state_dict().keys() == expected


def test_biases_rates_and_gains_do_not_decay():
    exempt = {"a_log", "decay.bias", "decay_up.bias", "scale.bias", "out_norm.weight", "out_sigmoid.bias"}
    for label in ("cd:id-dmhz1-bi-wx-cg", "cd:id-dg-o", "cd:id-ss-bz"):
        for name, parameter in build(label, 16, 8, budget="paper").named_parameters():
            assert decays(name, parameter) is (name not in exempt), name


def test_decay_gates_start_in_their_documented_ranges():
    torch.manual_seed(0)
    even = build("cd:id-ss", 32, 8, n_head=4, budget="paper").decay.bias.sigmoid()
    torch.testing.assert_close(even, torch.linspace(0.9, 0.99, 4))
    torch.testing.assert_close(build("cd:id-se", 32, 8, budget="paper").decay.bias.exp(), torch.full((2,), 0.951229))
    assert not build("cd:id-sg-bi", 32, 8, budget="paper").scale.bias.any()
    mixer = build("cd:id-dm", 256, 8, n_head=64, budget="paper")
    delta, rate = torch.nn.functional.softplus(mixer.decay.bias), mixer.a_log.exp()
    assert delta.shape == (64,) and rate.shape == (256,)
    assert 0.001 <= delta.min() < 0.003 and 0.03 < delta.max() <= 0.1 and 0.005 < delta.median() < 0.02
    assert 1 <= rate.min() < 1.5 and 15.5 < rate.max() <= 16
    assert mixer.decay.weight.std().item() == pytest.approx(0.02, rel=0.05)


def test_the_setting_init_std_applies_to_projections():
    torch.manual_seed(0)
    mixer = build("cd:exp-hz2-sum-c", 64, 8, budget="paper", init_std=0.5)
    for name, parameter in mixer.named_parameters():
        expected = 0.5 if name in ("q.weight", "k.weight", "v.weight", "o.weight") else 0.02
        assert parameter.std().item() == pytest.approx(expected, rel=0.25), name


@pytest.mark.parametrize("seed", range(12))
def test_outputs_are_values_weighted_by_the_coefficients(seed, make_mixer, randn):
    label = random_label(seed)
    mixer, x = make_mixer(label, path="reference").requires_grad_(False), randn(2, 6, 8)
    found = mixer.coefficients(x)
    torch.testing.assert_close(found.alpha / found.eta[..., None], found.a, rtol=1e-9, atol=1e-9)
    values = mixer.dynamics(x)[0].v
    torch.testing.assert_close(mixer._read_out(found.a @ values, x), mixer(x), rtol=1e-9, atol=1e-9)


def test_the_product_of_transition_matrices_gives_the_scores(make_mixer, randn):
    mixer, x = make_mixer("cd:sigmoid-dghz2-bz-p"), randn(1, 5, 8)
    a, s, d = mixer.evolution(x)[0], mixer.coefficients(x).score[0], mixer.ingredients(x)[0]
    assert a.shape == (5, 2, 4, 4)
    h = a[4] @ a[3] @ a[2] @ d.k[0, :, 1, :, None]
    torch.testing.assert_close((d.q[0, :, 4, None] @ h).flatten(), s[:, 4, 1])


@pytest.mark.parametrize(
    "label, held",
    [
        ("cd:exp-sum-c", 3 * 3 * 64 + 10 * 128),
        ("cd:gla", 64 * 32),
        ("cd:linear", 64 * 32 + 64),
        ("cd:mlstm", 64 * 32 + 64 + 2),
    ],
)
def test_a_state_of_fixed_size_is_all_that_a_recurrent_label_holds(label, held, randn):
    mixer, cache = build(label, 64, 32, budget="paper"), None
    for token in randn(1, 10, 64).float().unbind(1):
        _, cache = mixer.step(token, cache)
    assert sum(part.numel() for part in vars(cache).values() if isinstance(part, torch.Tensor)) == held


def test_each_token_adds_the_stated_bytes_to_the_cache(randn):
    for label in ("cd:exp-sum-pc", "cd:relu-hk1-c", "cd:softplus-0.95-sum", "cd:gla"):
        for dtype in (torch.float32, torch.bfloat16):
            mixer, cache, held = build(label, 16, 8, budget="paper").to(dtype), None, []
            for token in randn(1, 4, 16).to(dtype).unbind(1):
                _, cache = mixer.step(token, cache)
                held.append(sum(part.nbytes for part in vars(cache).values() if isinstance(part, torch.Tensor)))
            assert held[3] - held[1] == 2 * mixer.allocation.state_bytes_per_token(dtype.itemsize), label


@pytest.mark.slow
def test_flops_equal_those_of_matrix_products_in_steps(randn):
    """Torch's counter sees the matrix products of steps, but not gates of the state, taps, biases and gains."""
    for seed in range(40):
        mixer, x, cache, counted = build(random_label(seed), 16, 8, budget="paper"), randn(1, 5, 16).float(), None, 0
        for token in x.unbind(1):
            with FlopCounterMode(display=False) as counter, torch.no_grad():
                _, cache = mixer.step(token, cache)
            counted += counter.get_total_flops()
        found, label = mixer.allocation, mixer.label
        columns = found.value_width + (label.norm in ("sum", "max"))
        state = found.r_qk * columns * label.is_recurrent
        unseen = 2 * sum(p.numel() for name, p in mixer.named_parameters() if p.dim() == 1 or "conv" in name)
        unseen += state * (bool(label.gate) + 4 / 5 * bool(label.mirror))  # the first token finds no state to mirror
        assert found.flops_per_token(5) == pytest.approx(counted / 5 + unseen, rel=1e-12), str(label)


def test_the_cache_of_a_nonlinear_readout_slides(make_mixer, randn):
    mixer, x = make_mixer("cd:relu-ss-sum", max_len=4), randn(1, 9, 8)
    cache = None
    for token in x.unbind(1):
        y, cache = mixer.step(token, cache, slide=True)
    assert cache.state.shape[-1] == cache.values.shape[2] == 4
    torch.testing.assert_close(y, mixer(x[:, 5:])[:, -1])


@pytest.mark.parametrize("label", [f"cd:{name}" for name in PRESETS] + ["cd:exp-dmhk2-bz-sum-pcug", "cd:kexp-se-wx-p"])
def test_bfloat16_autocast_leaves_gates_and_states_in_float32(label, make_mixer, randn, decode):
    mixer, x = make_mixer(label, d_model=16, dtype=torch.float32), randn(1, 8, 16)
    expected = make_mixer(label, d_model=16)(x)
    with torch.autocast("cpu", torch.bfloat16):
        for path in ("dense", "step"):
            y = decode(mixer, x.float()) if path == "step" else mixer(x.float())
            assert y.dtype == torch.bfloat16 and relative(y, expected) < 0.1
        d, (maximum, _) = mixer.dynamics(x.float())
    assert all(
        part.dtype == torch.float32 for part in (d.q, d.k, d.log_gate, *(d.mirrors or ())[:2]) if part is not None
    )
    assert maximum is None or maximum.dtype == torch.float64


def test_logarithms_of_saturated_gates_stay_exact(make_mixer, randn):
    mixer, x = make_mixer("cd:id-ss-bu", dtype=torch.float32), randn(1, 4, 8).float()
    mixer.decay.weight.data.zero_()
    mixer.decay.bias.data = torch.tensor([-200.0, 30.0])
    d = mixer.dynamics(x)[0]
    assert d.log_gate[0, 0].eq(-200).all() and d.log_gate[0, 1].lt(0).all()
    written = mixer._scaling(x, d.log_gate, None, None)[0]
    torch.testing.assert_close(written[0, 1, 0].item(), math.exp(-30), rtol=1e-3, atol=0)
    mixer(x).sum().backward()
    assert all(parameter.grad.isfinite().all() for parameter in mixer.parameters())


@pytest.mark.parametrize("norm", ["max", "sum"])
def test_exponential_gates_beyond_float32_are_stabilized(norm, make_mixer, randn, decode):
    label = f"cd:id-se-bin-{norm}-o"
    for forget, write in ((60.0, 90.0), (-60.0, 100.0), (30.0, -100.0)):
        mixer, x = make_mixer(label), randn(1, 6, 8)
        mixer.decay.bias.data += forget
        mixer.scale.bias.data += write
        expected = mixer(x.requires_grad_())
        mixer.path = "reference"
        assert relative(expected, mixer(x)) < 1e-9
        mixer.float()
        for path in ("dense", "chunked", "step"):
            mixer.path = path
            y = decode(mixer, x.float()) if path == "step" else mixer(x.float())
            assert relative(y, expected) < 1e-4, (path, forget, write)
            assert all(g.isfinite().all() for g in torch.autograd.grad(y.sum(), list(mixer.parameters())))


@pytest.mark.parametrize("label", ["cd:exp-sum", "cd:exp-0.95-sum", "cd:kexp-sum", "cd:exp-max"])
def test_large_queries_do_not_overflow_with_a_normalizing_sum(label, make_mixer, randn):
    mixer, x = make_mixer(label), randn(1, 6, 8)
    mixer.q.weight.data *= 300
    expected = mixer(x)
    mixer.float()
    for path in ("dense", "blocks"):
        mixer.path = path
        assert relative(mixer(x.float()), expected) < 1e-3


@pytest.mark.parametrize("readout", ["relu", "krelu", "id"])
def test_powers_are_folded_into_the_keys_if_phi_allows_it(readout, make_mixer, randn):
    """1.5^300 is above the float32 range: coefficients without normalization overflow, and those with folded powers
    do not."""
    x = randn(1, 300, 8).float()
    assert not make_mixer(f"cd:{readout}-1.5", dtype=torch.float32, path="dense")(x).isfinite().all()
    assert make_mixer(f"cd:{readout}-1.5-pow", dtype=torch.float32, path="dense")(x).isfinite().all()
