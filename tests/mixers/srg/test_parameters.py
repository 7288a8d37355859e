"""Counts, names, shapes and initial values of the built module."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import BudgetError
from madbench.mixers import Size, build, solve
from madbench.mixers.srg.dynamic_mlp import DynamicMLP
from madbench.mixers.srg.listing import all_labels, all_parsed_labels


@pytest.fixture
def without_init():
    """Skip the initialization of weights, which takes most of the time of building."""
    with torch.device("meta"):
        yield


@pytest.mark.slow
@pytest.mark.parametrize("budget", ["strict", "paper"])
@pytest.mark.parametrize("d_model, max_len", [(16, 5), (64, 33)])
def test_every_label_has_exactly_the_parameters_of_its_allocation(d_model, max_len, budget, without_init):
    built = 0
    for i, label in enumerate(all_parsed_labels()):
        n_head = 1 + (i + max_len + (budget == "paper")) % 3  # over sizes and budgets, each label has all three
        try:
            allocation = solve(label, d_model, n_head, max_len, budget)
        except BudgetError:
            continue
        parameters = DynamicMLP(allocation).parameters()
        assert sum(parameter.numel() for parameter in parameters) == allocation.total, allocation
        assert budget == "paper" or label.over or allocation.total <= allocation.target
        built += 1
    assert built >= 0.85 * 504


def shapes(label, d, n_head, max_len, qk, vo, r):
    """The shapes of parameters by name in the exchange format, in torch's Linear layout (outputs, inputs)."""
    query_heads = 2 * n_head if label.base == "G" else n_head
    table = {"q.weight": (qk, d), "k.weight": (qk, d), "v.weight": (vo, d), "o.weight": (d, vo)}
    if label.conv:
        table |= {"k_conv.weight": (d, 4), "v_conv.weight": (d, 4)}
    if label.gates:
        table |= {"qk_gate.weight": (qk, d), "qk_gate.bias": (qk,), "vo_gate.weight": (vo, d), "vo_gate.bias": (vo,)}
    for name, present, heads in (("mix1", label.mix1, query_heads), ("mix2", label.mix2, n_head)):
        if present:
            table |= {f"{name}.A": (heads, max_len, r), f"{name}.B": (heads, max_len, r), f"{name}.p": (heads, max_len)}
            table |= {f"{name}.gate.weight": (heads * r, d), f"{name}.gate.bias": (heads * r,)}
    return table


@pytest.mark.slow
def test_state_dict_has_the_names_and_shapes_of_the_exchange_format(without_init):
    for label in all_parsed_labels():
        mixer = build(label, 24, 7, n_head=3, budget="paper", mix_rank=5)
        ranks = mixer.allocation.ranks
        expected = shapes(label, 24, 3, 7, ranks["qk"], ranks["vo"], ranks["mix"])
        assert {name: tuple(tensor.shape) for name, tensor in mixer.state_dict().items()} == expected, label


def test_weights_start_normal_with_deviation_0_02_and_diagonals_and_biases_at_zero():
    torch.manual_seed(0)
    mixer = build("G-pcg-12o!", 128, 256)
    for name, parameter in mixer.named_parameters():
        if name.endswith((".p", ".bias")):
            assert (parameter == 0).all(), name
        else:
            n = parameter.numel()
            assert abs(parameter.std().item() - 0.02) < 4 * 0.02 / (2 * n) ** 0.5, name
            assert abs(parameter.mean().item()) < 4 * 0.02 / n**0.5, name
            assert parameter.abs().max() > 0.04, name  # not uniform


def test_two_builds_from_one_seed_are_the_same_module():
    def weights():
        torch.manual_seed(3)
        return build("R-cg-q-12o", 16, 8).state_dict()

    first, second = weights(), weights()
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_build_takes_a_text_or_a_parsed_label_and_passes_every_setting_on():
    for label in (all_labels()[0], "R-pcg-v-12o"):
        mixer = build(
            label, 48, 9, n_head=3, budget="paper", mix_rank=7, rank_multiple=2, rope="mispaired", path="dense"
        )
        allocation = mixer.allocation
        assert str(mixer.label) == label and (mixer.rope, mixer.path) == ("mispaired", "dense")
        assert allocation.size == Size(48, 3, 9, "paper")
        assert allocation.vo_width % 2 == allocation.qk_width % 2 == 0
        assert allocation.ranks["mix"] == (7 if allocation.label.has_mixing else 0)
        assert build(mixer.label, 48, 9).label == mixer.label
