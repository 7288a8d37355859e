"""The budget of HyperFeatureAttention and HyperAttention: expected ranks, and counts of built modules."""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import FlopCounterMode

from madbench.errors import BudgetError, ConfigError
from madbench.mixers import build, solve
from papers.interactions.mixers.labels import all_labels_of

SIZES = ((64, 2), (128, 2), (768, 1))
TABLE = {
    "hfa:4": ((64, 64, 1.0), (128, 128, 1.0), (768, 768, 1.0)),
    "ha:3": ((64, 64, 1.0), (128, 128, 1.0), (768, 768, 1.0)),
    "hfa:2w-q": ((16, 74, 0.992), (32, 148, 0.992), (192, 896, 1.0)),
    "hfa:2w-v": ((104, 16, 1.0), (208, 32, 1.0), (1248, 192, 1.0)),
    "hfa:3w-q": ((8, 60, 1.0), (16, 120, 1.0), (96, 720, 1.0)),
    "hfa:4w-p-q": ((16, 44, 0.984), (16, 96, 1.0), (96, 576, 1.0)),
    "hfa:4w!": ((64, 64, 1.75), (128, 128, 1.75), (768, 768, 1.75)),
    "ha:3u-q": ((16, 68, 0.984), (32, 138, 0.996), (192, 832, 1.0)),
    "ha:3u-p-v": ((68, 16, 0.984), (136, 32, 0.984), (832, 192, 1.0)),
    "ha:4u-q": ((8, 56, 1.0), (16, 112, 1.0), (96, 672, 1.0)),
    "ha:3u!": ((64, 64, 1.5), (128, 128, 1.5), (768, 768, 1.5)),
    "ha:2+3": ((64, 64, 1.0), (128, 128, 1.0), (768, 768, 1.0)),
    "ha:2+3u-q": ((16, 86, 0.996), (32, 172, 0.996), (192, 1024, 0.99)),
    "ha:2+3u!": ((64, 64, 1.25), (128, 128, 1.25), (768, 768, 1.25)),
}


@pytest.mark.parametrize("label", TABLE)
def test_ranks_and_ratios_have_the_expected_values(label):
    found = [solve(label, d_model, n_head) for d_model, n_head in SIZES]
    assert tuple((one.r_qk, one.r_vo, round(one.ratio, 3)) for one in found) == TABLE[label]


@pytest.mark.parametrize("label", ["hfa:7w-q", "hfa:9w-q", "ha:8u-q", "ha:8u-v", "ha:9u-q"])
@pytest.mark.parametrize(("d_model", "n_head"), SIZES)
def test_labels_with_too_many_value_maps_do_not_fit_the_budget(label, d_model, n_head):
    with pytest.raises(BudgetError, match="These would fit: .*!; the paper's budget"):
        solve(label, d_model, n_head)
    assert solve(label, d_model, n_head, budget="paper").ranks == {"qk": d_model, "vo": d_model}


def test_the_error_names_the_compression_side_that_fits():
    with pytest.raises(BudgetError, match="These would fit: hfa:7w-v; hfa:7w!;"):
        solve("hfa:7w-q", 64)
    assert solve("hfa:7w-v", 64).ratio <= 1


def test_parameter_counts_equal_those_of_the_paper():
    assert solve("hfa:4w!", 768, 1).terms == {"qk": 2 * 768**2, "v": 4 * 768**2, "o": 768**2}
    for label in ("hfa:3", "hfa:1+2", "ha:3", "ha:9"):  # Remark F.4, Table 1
        assert solve(label, 768, 4).total == 4 * 768**2
    table_1 = {
        label: 50_257 * 768 + 256 * 768 + solve(label, 768, 1).total + 8 * 768**2 for label in ("ha:3", "ha:3u!")
    }
    assert [round(count / 1e6, 2) for count in table_1.values()] == [45.87, 47.05]
    assert solve("hfa:C3", 22, 3).total == 9 * 22**2 + 3 * 22**2
    assert solve("ha:C3", 8, 1).total == 2 * 8**3


@pytest.mark.slow
def test_allocations_are_less_than_a_step_below_the_budget():
    for label in random.Random(0).sample(all_labels_of("ha"), 100):
        for d_model, n_head in ((48, 3), (64, 2), (256, 4)):
            try:
                found = solve(label, d_model, n_head)
            except BudgetError:
                assert label.unshared and label.degree >= 7
                continue
            if label.over or label.base == "C":
                assert found.ratio > 1 or label.base == "C"
                continue
            step = n_head * (1 + found.slots) * d_model * (8 if d_model >= 256 else 2)
            assert 0 <= found.slack < step


@pytest.mark.parametrize(
    "label", ["hfa:3-p", "hfa:1+2w-q", "hfa:L4w!", "hfa:C2", "hfa:C1+3w", "ha:3", "ha:4us-p-v", "ha:2+3us-p-q", "ha:C3"]
)
def test_the_module_has_exactly_the_parameters_of_its_allocation(label):
    mixer = build(label, 12, 8, n_head=2, budget="paper")
    assert sum(parameter.numel() for parameter in mixer.parameters()) == mixer.allocation.total
    assert mixer.allocation == solve(label, 12, 2, 8, "paper")


def test_weights_have_the_documented_names_and_shapes():
    def shapes(label, **size):
        return {name: tuple(one.shape) for name, one in build(label, 16, 8, **size).state_dict().items()}

    assert shapes("hfa:2w!") == {"q.weight": (16, 16), "k.weight": (16, 16), "v.weight": (32, 16), "o.weight": (16, 16)}
    assert shapes("ha:4u!") == {"q.weight": (16, 16), "k.weight": (48, 16), "v.weight": (48, 16), "o.weight": (16, 16)}
    assert shapes("ha:C3", n_head=1) == {"c": (1, 16, 16, 16), "w": (1, 16, 16, 16)}
    assert shapes("hfa:C1+2w") == {
        "c.0": (1, 16, 16), "c.1": (2, 16, 16), "w.0": (1, 16, 16), "w.1": (2, 16, 16)
    }  # fmt: skip
    weights = torch.cat([one.flatten() for one in build("ha:3u!", 64, 8).state_dict().values()])
    assert abs(float(weights.std()) - 0.02) < 5e-4


def test_flops_of_an_order_3_label_equal_the_hand_count():
    length = 128
    order, pairs = solve("hfa:3-q", 64), (length + 1) / 2
    assert order.flops_per_token(length) == 2 * order.total + pairs * (2 * order.r_qk + 2 * order.r_vo) + 2 * 2 * pairs


def test_flops_of_heads_of_two_degrees_are_half_of_those_of_each():
    length, found, triples = 128, solve("ha:2+3", 64), solve("ha:3", 64)
    pairs = (2 * found.r_qk + 2 * found.r_vo) * (length + 1) / 2
    of_tuples = (pairs + triples.flops_of_tuples(length)) / 2
    assert found.flops_per_token(length) == pytest.approx(2 * found.total + of_tuples, rel=1e-12)


@pytest.mark.parametrize("label", ["hfa:C1", "hfa:C1+3", "hfa:C2w", "ha:C3", "ha:C3a", "ha:C4", "ha:C5"])
def test_flops_of_one_token_with_full_couplings_equal_torchs_counter(label):
    mixer = build(label, 8, 4, n_head=2, path="dense")
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        mixer(torch.randn(1, 1, 8))
    products = sum(mixer.allocation.orders) - 2 if label.startswith("hfa") else 0  # of factors, which it does not see
    assert mixer.allocation.flops_per_token(1) == counter.get_total_flops() + products


@pytest.mark.parametrize("label", ["ha:3", "ha:3us-p!", "ha:4a", "ha:5-p", "ha:C3", "ha:C3s", "ha:C4a", "ha:C5s"])
@pytest.mark.parametrize(("length", "causal"), [(1, True), (2, True), (6, True), (6, False)])
def test_flops_of_tuples_equal_a_count_over_partial_tuples(label, length, causal):
    """The expected count adds, for every row and every prefix of its tuples, a sum over the last token."""
    d, heads, found = 4, 2, solve(label, 4, 2, budget="paper")
    n, is_full, turns = found.label.degree, found.label.base == "C", found.label.rope
    newest_first = {"": lambda a, b: a >= b, "s": lambda a, b: a > b, "a": lambda a, b: True}[found.label.tuples]
    count, starts = 2 * found.total * length, {}
    for row in range(length):
        tuples = itertools.product(range(row + 1 if causal else length), repeat=n - 1)
        kept = [one for one in tuples if all(itertools.starmap(newest_first, itertools.pairwise(one)))]
        starts = {m: {one[:m] for one in kept} for m in range(1, n)}
        for m, given in starts.items():
            if is_full:
                count += heads * 2 * d ** (n - m) * len(given) + heads * 2 * d * len(given) * (m == n - 1)
            elif m < n - 1:
                count += ((6 if turns else 1) * found.r_qk + 2 * found.r_vo) * len(given)
            else:
                count += (2 * (1 + turns) * found.r_qk + 2 * found.r_vo) * len(given)
    if is_full:  # values of all tuples, which are those of the last row
        count += sum(heads * 2 * d ** (n - m + 1) * len(starts[m]) for m in range(2, n))
    assert found.flops_per_token(length, causal) == pytest.approx(count / length, rel=1e-12)


@pytest.mark.parametrize("label", ["hfa:L1", "hfa:L2-p", "hfa:L1+2"])
def test_flops_of_a_long_linear_label_are_those_of_its_steps(label):
    mixer, cache = build(label, 16, 4, n_head=2), None
    with torch.no_grad():
        for _ in range(2):
            with FlopCounterMode(display=False) as counter:
                _, cache = mixer.step(torch.randn(1, 16), cache)
    found = mixer.allocation
    of_itself = found.flops_of_tuples(1) - (sum(found.orders) - 2)  # a step meets its own token as a pair
    assert found.flops_per_token(4096) == counter.get_total_flops() - of_itself
    assert found.flops_per_token(2) == 2 * found.total + found.flops_of_tuples(2) < found.flops_per_token(4096)


@pytest.mark.parametrize("label", ["ha:L3", "ha:L4u-q", "ha:L3a", "ha:L3s-p"])
def test_flops_of_long_sums_over_tuples_do_not_grow_with_the_length(label):
    found = solve(label, 64)
    assert found.flops_per_token(3) < found.flops_per_token(4096) == found.flops_per_token(8192) < 8 * found.total


@pytest.mark.parametrize("label", ["hfa:3-q", "hfa:2w!", "ha:2+3u!", "ha:4-p", "ha:L3", "hfa:L2", "hfa:C1"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_token_adds_to_the_cache_what_is_stated(label, dtype):
    mixer, cache, held = build(label, 16, 8).to(dtype), None, []
    with torch.no_grad():
        for _ in range(4):
            _, cache = mixer.step(torch.randn(1, 16, dtype=dtype), cache)
            held.append(sum(one.nbytes for one in tree_leaves(cache) if isinstance(one, torch.Tensor)))
    assert held[3] - held[1] == 2 * mixer.allocation.state_bytes_per_token(dtype.itemsize)


@pytest.mark.parametrize(
    ("label", "size", "message"),
    [
        ("hfa:9-p", {"d_model": 16}, "the smallest ranks are r_qk 36 and r_vo 2, .*use d_model 36"),
        ("hfa:4", {"rank_multiple": 99}, "rank_multiple 99 exceeds d_model 64"),
    ],
)
def test_infeasible_sizes_and_values_are_refused(label, size, message):
    with pytest.raises(BudgetError, match=message):
        solve(label, **{"d_model": 64, "n_head": 2, **size})


@pytest.mark.parametrize(
    ("label", "n_head", "heads"),
    [("hfa:1+2", 3, 4), ("hfa:1+2", 4, 4), ("hfa:1+1+3", 1, 3), ("hfa:2", 3, 3), ("ha:2+3", 3, 4)],
)
def test_a_label_of_parts_has_as_many_more_heads_as_equal_shares_need(label, n_head, heads):
    allocation = solve(label, 48, n_head, 8)
    assert allocation.size.n_head == heads
    mixer = build(label, 48, 8, n_head=n_head)
    assert sum(p.numel() for p in mixer.parameters()) == allocation.total == solve(label, 48, heads, 8).total
    torch.manual_seed(0)
    x, other = torch.randn(1, 8, 48), build(label, 48, 8, n_head=heads)
    other.load_state_dict(mixer.state_dict())
    torch.testing.assert_close(mixer(x), other(x))


def test_a_label_of_more_parts_than_the_width_is_refused():
    with pytest.raises(BudgetError, match="too narrow for 3 heads"):
        solve("hfa:1+1+3", 2, 1)


@pytest.mark.parametrize("settings", [{"rope": "mispaired"}, {"mix_rank": 8}])
def test_settings_of_other_families_are_refused(settings):
    with pytest.raises(ConfigError, match="settings of hfa:2-p: unknown key"):
        solve("hfa:2-p", 64, **settings)
