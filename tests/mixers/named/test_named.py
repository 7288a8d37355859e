"""Every named operator: counts, budget, all paths, gradients, decoding and initial values.

The operators are those of the registry, so new operators are tested too.
"""

from __future__ import annotations

import re
from dataclasses import fields, replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import softplus

from madbench.errors import BudgetError
from madbench.labels import family_of, parse
from madbench.mixers import Layer, build, named, solve
from madbench.mixers.checks.path_checks import evaluate, residuals
from madbench.mixers.checks.residuals import difference, filled_mixer
from madbench.mixers.named import loops, ops
from madbench.mixers.named.arguments import all_instances
from madbench.mixers.named.budget import NamedLabel
from madbench.mixers.named.family import FAMILY
from madbench.mixers.named.operator import Operator
from madbench.mixers.named.operators import OPERATORS
from madbench.mixers.named.parts import Linear, Vector
from madbench.mixers.named.recurrent import Recurrent
from madbench.mixers.recurrence.decays import HalvedDecay
from madbench.mixers.recurrence.forms import scores
from madbench.mixers.traits import traits_of

LENGTH = 11
CHUNK = 4
RANGES = {
    "rates": lambda p: (p.exp(), 1, 16),
    "rates from zero": lambda p: (p.exp(), 0, 16),
    "steps": lambda p: (softplus(p), 0.000999, 0.1001),
    "ones": lambda p: (p, 1, 1),
}
"""For each kind of initial value: a function of the vector, and the range of its result."""


def labels():
    """Every operator as a parameter of a test. Operators with one argument changed from its default are marked slow."""
    for operator in OPERATORS.values():
        for instance in all_instances(operator):
            changed = sum(getattr(instance, each.name) != each.default for each in fields(instance))
            if changed < 2:
                yield pytest.param(
                    NamedLabel(instance), id=str(NamedLabel(instance)), marks=[pytest.mark.slow] * changed
                )


LABELS = list(labels())


def parts(cache):
    """The tensors of a state or a cache, with carried tensors, by name."""
    own = {"state": cache.state} if hasattr(cache, "state") else getattr(cache, "cached", {})
    assert not own.keys() & cache.carried.keys()
    return {**own, **cache.carried}


def numbers(operator, dims, tokens):
    """The stated number of elements of each tensor of :func:`parts`."""
    recurrent = {"state": operator.recurrent(dims)} if isinstance(operator, Recurrent) else {}
    cached = {name: tokens * count for name, count in operator.cached(dims).items()}
    return recurrent | cached | dict(operator.carried(dims))


@pytest.mark.parametrize("label", LABELS)
def test_parameters_and_state_equal_their_formulas_and_the_built_layer(label):
    for d, heads in ((32, 2), (48, 3), (128, 4), (256, 2)):
        for each in (label, replace(label, over=True)):
            found = solve(each, d, heads)
            operator, symbols = found.operator, found.operator.symbols(found.dims, 64)
            with torch.device("meta"):
                layer = build(each, d, 32, n_head=heads)
            assert found.total == sum(p.numel() for p in layer.parameters()) == eval(operator.parameters, symbols)
            assert found.state(64) == operator.state_size(found.dims, 64) == eval(operator.state, symbols)
            fixed = eval(operator.state, {**symbols, "T": 0})
            assert found.ranks["state"] == fixed == found.state(64) - 64 * found.state_bytes_per_token(1)
        matched = solve(label, d, heads)
        assert matched.ratio <= 1 and (found.ratio > 1 or found.dims == matched.dims)


@pytest.mark.parametrize("label", LABELS)
def test_the_next_wider_candidate_would_exceed_the_budget(label):
    found = solve(label, 128, 4)
    candidates = [found.operator.placed(dims, found.size.layer) for dims in found.operator.candidates(128, 4, 1)]
    wider = candidates[candidates.index(found.dims) + 1 :]
    least = 0.97 if found.operator.name == "GatedAttention" else 0.98  # its only width is that of keys and of values
    assert least * found.target < found.total <= found.target
    assert replace(found, dims=wider[0]).total > found.target if wider else found.total == found.target


@pytest.mark.parametrize("d", [64, 128, 256, 512, 768, 1024, 2048])
def test_usual_sizes_fill_the_budget_with_multiples_of_8_if_possible(d):
    for heads in (d // width for width in (32, 64, 128) if width <= d):
        for found in (solve(name, d, heads) for name in OPERATORS):
            assert 0.97 <= found.ratio <= 1, found
            candidates, first_layer = found.operator.candidates(d, heads, 8) if d >= 256 else [], found.size.layer
            multiples = [replace(found, dims=found.operator.placed(dims, first_layer)) for dims in candidates]
            is_enough = any(0.97 <= each.ratio <= 1 for each in multiples)
            assert d < 256 or (found in multiples) == is_enough, found


def test_a_size_without_a_fitting_width_is_an_error_that_names_one_that_fits():
    with pytest.raises(BudgetError, match=r"over the budget of 16; use a larger d_model, fewer heads, or GDN\(neg\)!"):
        solve("GDN(neg)", 2, 1)


@pytest.mark.parametrize("label", LABELS)
def test_paths_gradients_steps_and_prompts_equal_the_reference_loops(label):
    layer, x = filled_mixer(lambda: build(label, 16, LENGTH, n_head=2), batch=1)
    layer.chunk = CHUNK
    expected = evaluate(layer, layer.reference, x, None)
    rows = expected[""]
    for path in (path for path in layer.paths if path not in ("auto", "reference", "fla")):
        layer.path = path
        found = residuals(evaluate(layer, layer, x, None), expected)
        assert max(found.values()) < 1e-11 and found[""] < 1e-13, (path, found)
        for length in (3, 4, 5, 8):
            assert difference(layer(x[:, :length]), rows[:, :length]) < 1e-13, (path, length)
    cache, caches = None, []
    for t, token in enumerate(x.unbind(1)):
        row, cache = layer.step(token, cache)
        assert difference(row, rows[:, t]) < 1e-13, t
        caches.append(cache)
    held = {name: part[0].numel() for name, part in parts(cache).items() if part.is_floating_point()}
    assert held == numbers(layer.operator, layer.dims, LENGTH)  # integers are positions, which do not count
    for length in (1, 3, 4, 5, 8, 9):
        prompt, cache = layer.prefill(x[:, :length])
        assert difference(prompt, rows[:, :length]) < 1e-13, length
        found, stepped = parts(cache), parts(caches[length - 1])
        assert found.keys() == stepped.keys()
        for name, part in found.items():
            assert difference(part.double(), stepped[name].double()) < 1e-13, (name, length)
        assert difference(layer.step(x[:, length], cache)[0], rows[:, length]) < 1e-13, length


def test_counterparts_of_operators_are_cd_labels():
    counterparts = [operator.counterpart for operator in OPERATORS.values() if operator.counterpart]
    assert {family_of(parse(text)).name for text in counterparts} == {"cd"}


@pytest.mark.parametrize("taps", [2, 3, 5])
def test_short_convolutions_of_any_length_carry_their_last_inputs(taps):
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


def test_gated_deltanet_without_decay_is_deltanet():
    delta, x = filled_mixer(lambda: build("DeltaNet", 8, 9, n_head=2), batch=1)
    d = delta.operator.rows(delta, x, None).dynamics
    undecayed = replace(d, log_gate=torch.zeros_like(d.q[..., :1]))
    assert difference(scores(undecayed), scores(d)) < 1e-14


def test_gla_with_equal_decays_in_a_head_is_linear_attention_with_one_decay():
    gla, x = filled_mixer(lambda: build("GLA", 8, 9, n_head=2), batch=1)
    d = gla.operator.rows(gla, x, None).dynamics
    decay = d.log_gate[..., :1].cumsum(-2)
    expected = d.q @ d.k.mT * (decay - decay.mT).exp()
    equal = replace(d, log_gate=d.log_gate[..., :1].expand_as(d.q))
    assert difference(scores(equal).tril(), expected.tril()) < 1e-14


@pytest.mark.parametrize("index", [0, 1, 3])
def test_hgrn2_with_bounds_has_the_least_decay_of_its_layer(index):
    layer, x = filled_mixer(lambda: build("HGRN2(bound)", 16, 9, n_head=2, layer=Layer(index, 4)), std=3, batch=1)
    decay = layer.operator.rows(layer, x, None).dynamics.log_gate.exp()
    assert index / 4 <= decay.min() < index / 4 + 0.01 and decay.max() > 0.99
    found, expected = (evaluate(layer, compute, x, None) for compute in (layer, layer.reference))
    assert max(residuals(found, expected).values()) < 1e-11


def test_retnet_is_linear_attention_with_the_decays_of_its_heads():
    retnet, x = filled_mixer(lambda: build("RetNet", 8, 9, n_head=2), batch=1)
    d = retnet.operator.rows(retnet, x, None).dynamics
    distance = torch.arange(9).double()[:, None] - torch.arange(9)
    decays = torch.stack([(1 - 2 ** (-5.0 - h)) ** distance for h in range(2)])
    assert difference(scores(d).tril(), (d.q @ d.k.mT * decays).tril()) < 1e-14
    later = retnet.operator.rows(retnet, x, {"position": torch.tensor([7])}).dynamics
    assert difference(later.q @ later.k.mT, d.q @ d.k.mT) < 1e-14 < difference(later.q, d.q)


def test_norms_and_convolutions_of_operators_are_in_their_parameter_groups():
    for name, operator in OPERATORS.items():
        groups = FAMILY.traits(NamedLabel(operator())).groups
        for part, kind in operator().parts(operator().library_dims(64, 2)).items():
            expected = {"Gain": "norms", "Taps": "mixer conv"}.get(type(kind).__name__)
            assert expected in (None, groups.get(part)), (name, part)
        assert set(groups.values()) <= {"norms", "mixer conv", "mixer gates"}


@pytest.mark.parametrize("name", OPERATORS)
def test_initial_values_equal_the_librarys(name):
    torch.manual_seed(0)
    layer = build(f"{name}!", 64, 8, n_head=16)
    before = {key: value.clone() for key, value in layer.state_dict().items()}
    declared = layer.operator.parts(layer.dims)
    linear = {key: (part.init, type(part.bias)) for key, part in declared.items() if isinstance(part, Linear)}
    is_declared = type(layer.operator).initialize is Operator.initialize  # others are tested in their own files
    for key, parameter in layer.named_parameters() if is_declared else []:
        part = declared.get(key)
        if linear.get(key.split(".")[0], ("normal", bool)) != ("normal", bool):
            assert key.split(".")[0] in traits_of(layer).keeps_init
            continue  # tested in the operator's own file
        if isinstance(part, Vector):
            values, least, most = (
                (parameter, *part.init) if isinstance(part.init, tuple) else RANGES[part.init](parameter)
            )
            least, most = (torch.tensor(bound) for bound in (least, most))
            assert least <= values.min() and values.max() <= most, key
            assert least == most or values.std() > (most - least) / 10, key
        elif key.endswith(".bias"):
            assert not parameter.any(), key
        elif parameter.ndim == 1:
            gain = declared[key.removesuffix(".weight").split(".")[0]]
            assert (parameter == 1 - getattr(gain, "is_offset", 0)).all(), key
        elif parameter.numel() > 1000:
            assert 0.018 < parameter.std() < 0.022, key
    torch.manual_seed(0)
    layer.reset_parameters()
    assert all(torch.equal(before[key], value) for key, value in layer.state_dict().items())


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 16, 17, 40])
def test_halved_decay_equals_decay_computed_for_each_pair(length):
    torch.manual_seed(0)
    a, b = torch.randn(2, 2, 3, length, 5, dtype=torch.float64)
    log_gate = -torch.rand(2, 3, length, 5, dtype=torch.float64) * torch.tensor([1e-3, 1, 30, 300, 3000])
    c = log_gate.cumsum(-2)
    pairs = (c[..., :, None, :] - c[..., None, :, :]).exp()
    for is_strict in (False, True):
        expected = (a[..., :, None, :] * b[..., None, :, :] * pairs).nan_to_num(0, 0, 0).sum(-1).tril(-is_strict)
        assert torch.allclose(HalvedDecay(log_gate, a).products(a, b, is_strict), expected, rtol=1e-10, atol=1e-12)


def test_the_package_s_docstring_names_every_file_and_no_other():
    files = {path.stem for path in Path(named.__file__).parent.glob("*.py")} - {"__init__"}
    assert set(re.findall(r"``(\w+)``", named.__doc__)) == files


def test_every_file_of_operators_defines_an_operator_or_part_of_one():
    files = {path.stem for path in Path(named.operators.__file__).parent.glob("*.py")} - {"__init__"}
    own = {operator.__module__.rpartition(".")[2] for operator in OPERATORS.values()}
    assert own <= files and all(name.startswith(tuple(f"{one}_" for one in own)) for name in files - own)
