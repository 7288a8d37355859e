"""Named operators: labels, counts, loops, and identities between operators."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from madbench.errors import BudgetError, LabelError
from madbench.labels import diff, expand, explain, family_of, parse
from madbench.mixers import build, solve
from madbench.mixers.cd.forms import scores
from madbench.mixers.cd.halves import HalvedDecay
from madbench.mixers.named import loops, ops
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.residuals import difference, filled_mixer

LABELS = ["KDA", "KDA(neg)", "GDN", "GDN(neg)", "Mamba-2"]


@pytest.mark.parametrize(
    "text, label",
    [
        ("kda", "KDA"),
        ("Gdn( neg )!", "GDN(neg)!"),
        ("mamba2", "Mamba-2"),
        ("MAMBA-2!", "Mamba-2!"),
        ("named:KDA", "KDA"),
    ],
)
def test_a_name_is_read_in_any_case(text, label):
    assert str(parse(text)) == label and parse(label) == parse(text) and family_of(text).name == "named"


@pytest.mark.parametrize(
    "text, at, hint",
    [
        ("KDA(x)", 4, "its arguments: neg"),
        ("Mamba-2(neg)", 8, "its arguments: none"),
        ("GDN(neg,neg)", 4, "stands twice"),
        ("KDA(neg", 3, r"expected (argument)"),
        ("named:KDB", 0, "did you mean 'KDA'"),
    ],
)
def test_what_is_wrong_in_a_label_is_pointed_at(text, at, hint):
    with pytest.raises(LabelError) as error:
        parse(text)
    first, second = str(error.value).splitlines()
    assert hint in second and second.index("^") == first.index(text) + at


def test_labels_of_the_letters_keep_their_family():
    assert all(family_of(text).name == "" for text in ("S-p", "G-cg-q-12o", "HyperGLU", "GDNX"))


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_explained_and_differs_from_a_neighbour_in_one_factor(label):
    rows = explain(parse(label))
    assert rows[0].equation and rows[0].source and any(row.name == "library" for row in rows)
    others = expand([f"~{label}"])
    assert len(others) > 1 and all(len(diff(parse(label), parse(other))) == 1 for other in others[1:])


@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("d, heads", [(32, 2), (48, 3), (128, 4), (256, 2)])
def test_parameters_and_state_equal_their_formulas_and_the_built_layer(label, d, heads):
    for text in (label, f"{label}!"):
        found = solve(text, d, heads)
        dims, operator = found.dims, found.operator
        symbols = {"d": d, "H": heads, "K": dims.key, "V": dims.value, "W": 4}
        with torch.device("meta"):
            layer = build(text, d, 32, n_head=heads)
        assert found.total == sum(p.numel() for p in layer.parameters()) == eval(operator.parameters, symbols)
        assert found.ranks["state"] == operator.state_size(dims) == eval(operator.state, symbols)
    assert solve(label, d, heads).ratio <= 1 < solve(f"{label}!", d, heads).ratio


@pytest.mark.parametrize("label", LABELS)
def test_the_budget_is_used_to_the_next_width(label):
    found = solve(label, 128, 4)
    candidates = found.operator.candidates(128, 4)
    wider = replace(found, dims=candidates[candidates.index(found.dims) + 1])
    assert 0.98 * found.target < found.total <= found.target < wider.total


def test_a_size_without_a_fitting_width_says_what_would_fit():
    with pytest.raises(BudgetError, match=r"over the budget of 16; use a larger d_model, fewer heads, or GDN\(neg\)!"):
        solve("GDN(neg)", 2, 1)


def carried_numbers(cache):
    """The numbers of one sequence by name. Integers are positions, which are not counted."""
    return {name: part[0].numel() for name, part in cache.carried.items() if part.is_floating_point()}


@pytest.mark.parametrize("label", LABELS)
def test_paths_steps_and_prompts_equal_the_loops(label):
    layer, x = filled_mixer(lambda: build(label, 8, 11, n_head=2), batch=1)
    layer.chunk = 4
    expected = layer.reference(x)
    for path in ("dense", "chunked"):
        layer.path = path
        assert difference(layer(x), expected) < 1e-13
    rows, cache = layer.prefill(x[:, :6])
    for token in x[:, 6:].unbind(1):
        row, cache = layer.step(token, cache)
        rows = torch.cat((rows, row[:, None]), dim=1)
    assert difference(rows, expected) < 1e-13
    assert cache.state[0].numel() + sum(carried_numbers(cache).values()) == layer.allocation.ranks["state"]
    assert carried_numbers(cache) == layer.operator.carried(layer.dims)


@pytest.mark.parametrize("taps", [2, 3, 5])
def test_a_convolution_of_any_length_carries_its_last_inputs(taps):
    torch.manual_seed(0)
    x, weight = torch.randn(2, 7, 3, dtype=torch.float64), torch.randn(3, taps, dtype=torch.float64)
    expected = loops.convolved(x[0], weight[:, None])
    whole, _ = ops.convolve_silu(x, weight, None, None)
    rows, carried = ops.convolve_silu(x[:, :4], weight, None, None)
    for token in x[:, 4:].split(1, dim=1):
        row, carried = ops.convolve_silu(token, weight, None, carried)
        rows = torch.cat((rows, row), dim=1)
    assert difference(whole[0], expected) < 1e-14 and difference(rows[0], expected) < 1e-14
    assert carried["windows"].shape == (2, taps - 1, 3)


def test_kda_with_equal_decays_in_a_head_is_gated_deltanet():
    kda, x = filled_mixer(lambda: build("KDA!", 8, 9, n_head=2), batch=1)
    d = kda.operator.rows(kda, x, None).dynamics
    alpha = d.log_gate[..., :1]
    per_channel, per_head = replace(d, log_gate=alpha.expand_as(d.q)), replace(d, log_gate=alpha)
    assert difference(scores(per_channel), scores(per_head)) < 1e-14


@pytest.mark.parametrize("name", OPERATORS)
def test_initial_values_are_the_library_s(name):
    torch.manual_seed(0)
    layer = build(f"{name}!", 64, 8, n_head=16)
    rates, steps = layer.A_log.exp(), torch.nn.functional.softplus(layer.dt_bias)
    assert (0 if name == "GDN" else 1) <= rates.min() and rates.max() <= 16 and rates.std() > 2
    assert 0.001 <= steps.min() * 1.001 and steps.max() <= 0.1001
    output = layer.get_submodule(layer.operator.output)
    assert 0.018 < output.weight.std() < 0.022
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    torch.manual_seed(0)
    layer.reset_parameters()
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 16, 17, 40])
def test_decay_by_halves_is_decay_pair_by_pair(length):
    torch.manual_seed(0)
    a, b = torch.randn(2, 2, 3, length, 5, dtype=torch.float64)
    log_gate = -torch.rand(2, 3, length, 5, dtype=torch.float64) * torch.tensor([1e-3, 1, 30, 300, 3000])
    c = log_gate.cumsum(-2)
    pairs = (c[..., :, None, :] - c[..., None, :, :]).exp()
    for is_strict in (False, True):
        expected = (a[..., :, None, :] * b[..., None, :, :] * pairs).nan_to_num(0, 0, 0).sum(-1).tril(-is_strict)
        assert torch.allclose(HalvedDecay(log_gate, a).products(a, b, is_strict), expected, rtol=1e-10, atol=1e-12)
