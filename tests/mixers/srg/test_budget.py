"""Parameter counts equal those of explicit tensors, and ranks equal those of a loop that pays step by step."""

from __future__ import annotations

import math
import re
from itertools import dropwhile

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st

from madbench.errors import BudgetError
from madbench.labels import parse
from madbench.mixers import solve
from madbench.mixers.srg.listing import all_parsed_labels

labels = st.sampled_from(all_parsed_labels())
sizes = {"d": st.integers(8, 1024), "heads": st.integers(1, 8), "length": st.integers(1, 2048)}


def tensors(label, ranks, d, heads, length):
    """The name and shape of every parameter of the built module."""
    query_heads = 2 * heads if label.base == "G" else heads
    shapes = {"q": (ranks["qk"], d), "k": (ranks["qk"], d), "v": (ranks["vo"], d), "o": (d, ranks["vo"])}
    if label.conv:
        shapes |= {"k_conv": (d, 4), "v_conv": (d, 4)}
    if label.gates:
        shapes |= {"qk_gate.weight": (ranks["qk"], d), "qk_gate.bias": (ranks["qk"],)}
        shapes |= {"vo_gate.weight": (ranks["vo"], d), "vo_gate.bias": (ranks["vo"],)}
    for name, present, h in (("mix1", label.mix1, query_heads), ("mix2", label.mix2, heads)):
        if present:
            table = (h, length, ranks["mix"])
            shapes |= {f"{name}.A": table, f"{name}.B": table, f"{name}.p": (h, length)}
            shapes |= {f"{name}.gate.weight": (h * ranks["mix"], d), f"{name}.gate.bias": (h * ranks["mix"],)}
    return shapes


def numel(*arguments):
    return sum(map(math.prod, tensors(*arguments).values()))


def admissible(label, d, heads, side, multiple=1):
    """The admissible ranks of one side up to 6 d, by definition, or the smallest rank if it is larger."""
    if side == "qk":
        heads = 2 * heads if label.base == "G" else heads
        step = smallest = 2 if label.rope else 1
    else:
        step, smallest = (8 if d >= 256 else 1), 1
    step = math.lcm(step, multiple)
    return [
        rank
        for rank in range(1, max(6 * d, heads * step + 1))
        if rank % heads == 0 and (rank // heads % step == 0 or (rank == d and d // heads % smallest == 0))
    ]


def pay_step_by_step(label, d, heads, length, mix_rank=16, multiple=1):
    """The ranks under the strict budget, reduced one admissible step at a time. None if nothing fits."""
    target = 4 * d * d + (8 * d if label.conv else 0)
    paying, kept = ("vo", "qk") if label.rank == "v" else ("qk", "vo")
    options = {side: admissible(label, d, heads, side, multiple) for side in ("qk", "vo")}

    def largest(side, limit):
        return max([rank for rank in options[side] if rank <= limit] or options[side][:1])

    now = {paying: largest(paying, d / 4 if label.rank else d), kept: largest(kept, d), "mix": 0}
    if label.mix1 or label.mix2:
        now["mix"] = mix_rank
    if now["qk"] > d or now["vo"] > d:
        return None

    def over(ranks):
        return numel(label, ranks, d, heads, length) > target

    def lower(name, choices):
        for choice in choices:
            if over(now):
                now[name] = choice

    def down(side, limit):
        return [rank for rank in reversed(options[side]) if limit <= rank < now[side]]

    lower(paying, down(paying, d / 8))
    lower("mix", range(now["mix"] - 1, 0, -1))
    lower(kept, down(kept, d / 2))
    lower(paying, down(paying, 0))
    if over(now):
        return None
    for rank in dropwhile(lambda rank: rank <= now[kept], options[kept]):
        if over({**now, kept: rank}):
            break
        now[kept] = rank
    return now


def try_solve(label, *size, **options):
    try:
        return solve(label, *size, **options)
    except BudgetError:
        return None


@pytest.mark.slow
@given(
    labels,
    st.integers(8, 96),
    st.integers(1, 4),
    st.integers(1, 200),
    st.integers(1, 20),
    st.sampled_from((1, 3, 4)),
)
@settings(max_examples=100)
@example(parse("G-pcg-q-12o"), 96, 2, 200, 16, 1)
@example(parse("S-cg-v-12o"), 96, 2, 200, 16, 1)
def test_ranks_equal_those_of_paying_step_by_step(label, d, heads, length, mix_rank, multiple):
    assume(not label.over)
    found = try_solve(label, d, heads, length, mix_rank=mix_rank, rank_multiple=multiple)
    assert (found and found.ranks) == pay_step_by_step(label, d, heads, length, mix_rank, multiple)


@pytest.mark.parametrize("label", ["S", "S-pc", "G-p-v", "R-cg-q-12o", "G-g-v-1", "G-cg-q-12o"])
@pytest.mark.parametrize("size", [(256, 2, 128), (300, 3, 77), (264, 2, 640), (384, 40, 16)])
def test_ranks_equal_those_of_paying_step_by_step_at_wide_sizes(label, size):
    found = try_solve(parse(label), *size)
    assert (found and found.ranks) == pay_step_by_step(parse(label), *size)


@pytest.mark.slow
@given(label=labels, **sizes, budget=st.sampled_from(("strict", "paper")))
@settings(max_examples=150)
def test_the_total_is_the_size_of_all_tensors_and_ranks_are_admissible(label, d, heads, length, budget):
    found = try_solve(label, d, heads, length, budget)
    assume(found)
    assert found.total == sum(found.terms.values()) == numel(label, found.ranks, d, heads, length)
    shapes = tensors(label, found.ranks, d, heads, length)
    tables = sum(math.prod(shape) for name, shape in shapes.items() if name[-2:] in (".A", ".B", ".p"))
    assert found.paper_total == found.total - tables
    assert found.qk_width * found.query_heads == found.ranks["qk"] >= found.query_heads
    assert found.vo_width * heads == found.ranks["vo"] >= heads
    assert not label.rope or found.qk_width % 2 == 0
    assert (found.ranks["mix"] > 0) == (label.mix1 or label.mix2)
    assert found.slack == found.target - found.total and found.ratio == found.total / found.target


@pytest.mark.slow
@given(label=labels, **sizes)
@settings(max_examples=150)
def test_a_matched_mixer_is_within_the_budget_by_less_than_a_step(label, d, heads, length):
    assume(not label.over)
    found = try_solve(label, d, heads, length)
    assume(found)
    step = {"qk": found.query_heads * (2 if label.rope else 1), "vo": heads * (8 if d >= 256 else 1)}
    growing = "qk" if label.rank == "v" else "vo"
    assert 0 <= found.slack < step[growing] * (2 * d + (d + 1 if label.gates else 0))


@pytest.mark.slow
@given(label=labels, **sizes)
@settings(max_examples=40, suppress_health_check=[HealthCheck.filter_too_much])
def test_an_infeasible_size_names_the_longest_length_and_the_smallest_width_that_fit(label, d, heads, length):
    assume(label.rank and label.adds_parameters)
    d, length = max(d // 8, 16 * heads), length * 4
    try:
        solve(label, d, heads, length)
    except BudgetError as error:
        text = str(error)
    else:
        text = ""
    assume(text)
    width = int(text.split("d_model ")[2].split(";")[0])
    assert solve(label, width, heads, length).slack >= 0
    assert all(not try_solve(label, narrower, heads, length) for narrower in range(max(1, width - 12), width))
    if "max_len" in text.split("would fit")[1]:
        longest = int(text.split("would fit: max_len ")[1].split()[0])
        assert solve(label, d, heads, longest).slack >= 0
        assert not try_solve(label, d, heads, longest + 1)
    else:
        assert not try_solve(label, d, heads, 1)


def test_the_message_on_an_infeasible_budget_names_sizes_that_fit():
    with pytest.raises(BudgetError) as caught:
        solve(parse("HyperGLU"), 128, 2, 4096)
    assert str(caught.value) == (
        "G-cg-q-12o does not fit its budget at d_model 128, n_head 2, max_len 4096: its smallest form (r_qk 4,"
        " r_vo 64, r 1) has 101,706 parameters of 66,560 allowed, most of them in mix1_tables (49,152)."
        " These would fit: max_len 2143 or less; d_model 176;"
        " the paper's budget (--budget paper), which is reported and not enforced"
    )


@pytest.mark.slow
def test_a_huge_length_is_explained_at_once():
    with pytest.raises(BudgetError, match="These would fit"):
        solve(parse("HyperGLU"), 128, 2, 10**9)


@pytest.mark.parametrize("d", [8, 96, 128, 256, 300, 768])
def test_softmax_attention_is_exactly_the_budget(d):
    assert solve(parse("S"), d, 2, 512).total == 4 * d * d
    assert solve(parse("S-pc"), d, 2, 512).total == 4 * d * d + 8 * d


def test_ranks_saved_on_one_side_are_given_to_the_other():
    assert solve(parse("S-c-q"), 128, 2, 128).ranks == {"qk": 32, "vo": 224, "mix": 0}
    assert solve(parse("S-c-v"), 128, 2, 128).ranks == {"qk": 224, "vo": 32, "mix": 0}


def test_an_uncompressed_rank_that_is_no_multiple_of_8_is_kept():
    assert solve(parse("S"), 300, 4, 128).ranks == {"qk": 300, "vo": 300, "mix": 0}
    assert solve(parse("S"), 300, 4, 128, rank_multiple=16).ranks == {"qk": 300, "vo": 300, "mix": 0}


def test_compressed_widths_are_multiples_of_rank_multiple():
    found = solve(parse("R-cg-q"), 768, 2, 1024, rank_multiple=32)
    assert found.qk_width % 32 == 0 and found.vo_width % 32 == 0


@pytest.mark.parametrize(
    ("d", "length", "ranks", "total", "ratio"),
    [
        (768, 1024, {"qk": 96, "vo": 768, "mix": 16}, 2_274_240, 0.964),
        (128, 128, {"qk": 16, "vo": 128, "mix": 16}, 94_192, 1.44),
        (128, 1024, {"qk": 16, "vo": 128, "mix": 16}, 271_600, 4.14),
    ],
)
def test_paper_budget_of_hyperglu(d, length, ranks, total, ratio):
    found = solve(parse("HyperGLU"), d, 2, length, "paper")
    assert (found.ranks, found.total) == (ranks, total)
    assert found.total / (4 * d * d) == pytest.approx(ratio, abs=0.005)


def test_the_paper_budget_compresses_to_a_quarter_on_either_side():
    assert solve(parse("R-cg-q"), 128, 2, 128, "paper").ranks == {"qk": 32, "vo": 128, "mix": 0}
    assert solve(parse("R-cg-v"), 128, 2, 128, "paper").ranks == {"qk": 128, "vo": 32, "mix": 0}
    assert solve(parse("G-cg-v-12o"), 128, 2, 128, "paper").ranks == {"qk": 128, "vo": 16, "mix": 16}
    assert solve(parse("S"), 128, 2, 128, "paper").ranks == {"qk": 128, "vo": 128, "mix": 0}


def test_labels_over_budget_compress_nothing():
    found = solve(parse("G-cg-12o!"), 128, 2, 128)
    assert found.ranks == {"qk": 128, "vo": 128, "mix": 16} and found.slack < 0 and found.ratio > 1


def test_every_formula_gives_its_term():
    for label in all_parsed_labels()[::3]:
        found = solve(label, 96, 3, 40, "paper", mix_rank=7)
        names = {
            "d": 96,
            "H": 3,
            "H_q": found.query_heads,
            "L": 40,
            "r": found.r,
            "r_qk": found.r_qk,
            "r_vo": found.r_vo,
        }
        assert found.formulas.keys() == found.terms.keys()
        for term, (formula, _) in found.formulas.items():
            product = re.sub(r"(?<=[\w)]) (?=[\w(])", "*", formula)
            assert eval(product, {}, names) == found.terms[term], (str(label), term)


def test_the_terms_of_an_allocation_match_the_letters():
    assert list(solve(parse("S"), 64).terms) == ["qk", "vo"]
    assert list(solve(parse("G-cg-q-12o"), 512).terms) == [
        "qk", "vo", "conv", "qk_gate", "vo_gate", "mix1", "mix1_tables", "mix2", "mix2_tables",
    ]  # fmt: skip
    assert list(solve(parse("R-2!"), 64).terms) == ["qk", "vo", "mix2", "mix2_tables"]


def test_cache_bytes_are_one_key_and_one_value():
    found = solve(parse("G-cg-q-12o"), 512)
    assert found.state_bytes_per_token() == 2 * (found.ranks["qk"] + found.ranks["vo"])
    assert found.state_bytes_per_token(4) == 2 * found.state_bytes_per_token(2)


def test_the_state_is_keys_and_values_of_all_tokens_and_with_c_three_inputs():
    assert solve(parse("S"), 64).state(10) == 10 * (64 + 64)
    assert solve(parse("S-c"), 64).state(10) == 10 * (64 + 64) + 3 * 64  # the fourth tap reads the newest token


def count_flops(found, seq_len):
    """Count two FLOPs per multiply-add of every matrix product, row by row and head by head."""
    v, d, total = found.label, found.size.d_model, 0
    for t in range(1, seq_len + 1):
        total += 2 * 2 * d * (found.ranks["qk"] + found.ranks["vo"])
        total += 2 * 2 * 4 * d if v.conv else 0
        total += 2 * d * (found.ranks["qk"] + found.ranks["vo"]) if v.gates else 0
        total += found.query_heads * 2 * t * found.qk_width + found.size.n_head * 2 * t * found.vo_width
        for present, heads in ((v.mix1, found.query_heads), (v.mix2, found.size.n_head)):
            if present:
                total += heads * (2 * d * found.ranks["mix"] + 2 * t * found.ranks["mix"] * 2 + 2 * t)
    return total


@pytest.mark.parametrize("label", ["S", "R-pc", "G-cg-q-12o", "R-2!", "G-g-v-1o"])
def test_flops_equal_those_of_matrix_products_row_by_row(label):
    found = solve(parse(label), 128, 2, 64)
    assert found.flops_per_token(33) * 33 == count_flops(found, 33)


def test_flops_beyond_the_length_of_the_mixing_tables_are_an_error():
    with pytest.raises(BudgetError, match="from 1 to max_len 64, got 65"):
        solve(parse("R-12o!"), 64, 2, 64).flops_per_token(65)
    assert solve(parse("S"), 64, 2, 64).flops_per_token(65) > 0


@pytest.mark.parametrize("name", ["d_model", "n_head", "max_len"])
@pytest.mark.parametrize("value", [0, -1, 2.0, "2", None, True])
def test_sizes_that_are_no_positive_whole_numbers_are_refused(name, value):
    with pytest.raises(BudgetError, match=f"{name} must be a whole number of at least 1"):
        solve(parse("S"), **{"d_model": 64, name: value})


def test_a_rank_multiple_beyond_the_width_is_an_error():
    with pytest.raises(BudgetError, match="rank_multiple 65 exceeds d_model 64"):
        solve(parse("S-q"), 64, rank_multiple=65)


def test_an_unknown_budget_names_the_right_ones():
    with pytest.raises(BudgetError, match="did you mean 'strict'"):
        solve(parse("S"), 64, budget="strickt")


@pytest.mark.parametrize(
    ("label", "d", "heads"), [("G-p-q", 8, 8), ("S", 4, 8), ("G", 1, 1), ("R-p", 7, 5), ("R-p", 8, 7)]
)
def test_too_many_heads_name_the_most_heads_and_a_width_that_work(label, d, heads):
    with pytest.raises(BudgetError, match="too narrow") as caught:
        solve(parse(label), d, heads)
    text = str(caught.value).split("use ")[1]
    if "n_head" in text:
        most = int(text.split("n_head ")[1].split()[0])
        assert [n for n in range(1, heads + 1) if try_solve(parse(label), d, n)][-1] == most
    solve(parse(label), int(text.split("d_model ")[1]), heads)
