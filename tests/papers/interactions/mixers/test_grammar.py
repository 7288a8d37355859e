"""Labels of HyperFeatureAttention and HyperAttention: spelling, errors with a caret, factors and neighbors."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.errors import LabelError
from madbench.labels import differing_factors, expand, explain, factors, family_of, parse
from madbench.papers.interactions.mixers.grammar import fewest_parts
from papers.interactions.mixers.labels import all_labels_of

SOME_FEATURE_LABELS = (
    "hfa:4", "hfa:3-p", "hfa:1+2", "hfa:1+1+3", "hfa:2w-q", "hfa:4w!", "hfa:L2-p", "hfa:L1", "hfa:C1", "hfa:C3w",
    "hfa:L1+2w-p-v", "hfa:1+2+3+4w-p!",
)  # fmt: skip
SOME_TUPLE_LABELS = ("ha:3", "ha:3u!", "ha:3us-p-q", "ha:L3a", "ha:C3", "ha:C4s", "ha:4-p-v", "ha:L9ua-v")
SOME_MIXED_DEGREES = ("ha:2+3", "ha:2+3us-p-q", "ha:L2+2+4a-v", "ha:3+4u!")


@pytest.mark.parametrize("label", [*SOME_FEATURE_LABELS, *SOME_TUPLE_LABELS, *SOME_MIXED_DEGREES])
def test_parsing_and_writing_a_label_is_the_identity(label):
    assert str(parse(label)) == label
    assert hash(parse(label)) == hash(parse(label))


def test_the_525_labels_of_hyperattention_have_one_spelling_each():
    found = all_labels_of("ha")
    assert len(found) == len(set(found)) == len(set(map(str, found))) == 525
    assert all(parse(str(label)) == label for label in found)


@pytest.mark.slow
def test_the_31773_labels_of_hyperattention_in_parts_have_one_spelling_each():
    found = all_labels_of("ha", 2)
    assert len(set(found)) == len(set(map(str, found))) == (7 + 28) * 72 + 7 * 3  # C has one degree, and 3 labels
    assert all(parse(str(label)) == label for label in random.Random(0).sample(found, 500))
    of_all_parts = {
        fewest_parts(parts) for n in range(1, 5) for parts in itertools.combinations_with_replacement(range(2, 10), n)
    }
    assert len(of_all_parts - {(2,)}) * 72 + 7 * 3 == 31_773


@pytest.mark.slow
def test_the_16907_labels_of_hyper_feature_attention_have_one_spelling_each():
    found = all_labels_of("hfa")
    assert len(found) == len(set(found)) == len(set(map(str, found))) == 16_907
    assert all(parse(str(label)) == label for label in found)


@pytest.mark.parametrize(
    "message",
    [
        """label 'hfa:3+1-p'
             ^ orders must ascend; did you mean 'hfa:1+3-p'?""",
        """label 'hfa:1-p'
           ^ order 1 alone is softmax attention; did you mean 'S-p'?""",
        """label 'ha:3u'
           ^ 'u' adds parameters; add q ('ha:3u-q'), v ('ha:3u-v') or ! ('ha:3u!')""",
        """label 'hfa:4w-c-q'
              ^ expected 'p', 'q' or 'v' after '-'; did you mean 'hfa:4w-q'?""",
        """label 'ha:C3-p'
             ^ 'C' has no queries and keys to rotate; did you mean 'ha:L3-p' or 'ha:C3'?""",
        """label 'hfa:2+2'
             ^ equal shares of the heads must be written with the fewest parts; did you mean 'hfa:2'?""",
        """label 'hfa:1+1+3+3'
                 ^ equal shares of the heads must be written with the fewest parts; did you mean 'hfa:1+3'?""",
        """label 'hfa:L1w-q'
             ^ 'w' multiplies the values of the factors, and order 1 has one; did you mean 'hfa:L1-q' or 'hfa:L2w-q'?""",  # noqa: E501
        """label 'hfa:1+2+3+4+5'
                   ^ a label has at most 4 parts""",
        """label 'ha:2-p-q'
          ^ degree 2 is softmax attention; did you mean 'S-p-q'?""",
        """label 'ha:L2-p'
           ^ degree 2 without softmax is linear attention; did you mean 'hfa:L1-p'?""",
        """label 'ha:C2'
           ^ degree 2 without softmax is linear attention; did you mean 'hfa:C1'?""",
        """label 'ha:1'
          ^ degree 1 sees no other token; did you mean 'S' or 'ha:3'?""",
        """label 'hfa:4!'
            ^ '!' has no effect: no letter adds parameters, so there is no budget to lift; did you mean 'hfa:4'?""",
        (
            """label 'hfa:4w-q!'
               ^ '!' lifts the budget and 'q' enforces it, which is a contradiction; did you mean 'hfa:4w-q' or """
            "'hfa:4w!'?"
        ),
        """label 'hfa:C2-q'
              ^ 'C' has no ranks to reduce; did you mean 'hfa:L2-q' or 'hfa:C2'?""",
        """label 'hfa:2-q-p'
              ^ expected '!' or the end after 'q'; did you mean 'hfa:2-p-q'?""",
        """label 'hfa:2--p'
             ^ expected 'p', 'q' or 'v' after '-'; did you mean 'hfa:2-p'?""",
        """label 'hfa:l2'
           ^ expected 'L', 'C' or an order from 1 to 9 after ':'; did you mean 'hfa:L2'?""",
        """label 'ha:3su-q'
            ^ expected '-', '!' or the end after 's'; did you mean 'ha:3us-q'?""",
        """label 'hfa:2 -p'
            ^ expected '+', 'w', '-', '!' or the end after '2'; did you mean 'hfa:2-p'?""",
        r"""label 'hfa:\uff12'
           ^ expected 'L', 'C' or an order from 1 to 9 after ':'; did you mean 'hfa:2'?""",
        """label 'ha:'
          ^ expected 'L', 'C' or a degree from 2 to 9 after ':'; labels look like 'ha:3', 'ha:2+3-p' or 'ha:3us-q'""",
        """label 'ha:3+2-p'
            ^ degrees must ascend; did you mean 'ha:2+3-p'?""",
        """label 'ha:2+2'
            ^ equal shares of the heads must be written with the fewest parts; did you mean 'S'?""",
        """label 'ha:2+2+3+3'
                ^ equal shares of the heads must be written with the fewest parts; did you mean 'ha:2+3'?""",
        """label 'ha:1+3'
          ^ degree 1 sees no other token; did you mean 'ha:2+3' or 'ha:3'?""",
        """label 'ha:C2+3'
            ^ 'C' has tensors of one degree; did you mean 'ha:L2+3' or 'ha:C3'?""",
        """label 'ha:2+3u'
             ^ 'u' adds parameters; add q ('ha:2+3u-q'), v ('ha:2+3u-v') or ! ('ha:2+3u!')""",
        """label 'ha:2+3w'
             ^ expected '+', 'u', 's', 'a', '-', '!' or the end after '3'; did you mean 'ha:2+3'?""",
    ],
)
def test_the_message_on_a_wrong_label_points_at_the_wrong_character(message):
    text = message.split("'")[1].encode().decode("unicode_escape")
    with pytest.raises(LabelError) as error:
        parse(text)
    assert str(error.value) == message


@given(st.sampled_from(("hfa:", "ha:")), st.text("LC123456789+wusapqv-! x", max_size=12))
def test_any_other_text_is_an_error_that_suggests_labels_that_parse(prefix, body):
    try:
        label = parse(prefix + body)
    except LabelError as error:
        _, _, hint = str(error).partition("did you mean ")
        for suggestion in hint.rstrip("?").replace(" or ", ", ").split(", ") if hint else ():
            assert str(parse(suggestion.strip("'"))) == suggestion.strip("'")
    else:
        assert str(label) == prefix + body


def test_softmax_attention_is_order_1_and_degree_2():
    assert differing_factors(parse("S"), parse("hfa:2")) == differing_factors(parse("hfa:2"), parse("S")) == ("orders",)
    assert differing_factors(parse("S-p"), parse("hfa:1+2-p-q")) == ("orders", "rank")
    assert differing_factors(parse("S"), parse("ha:3")) == differing_factors(parse("S"), parse("ha:2+3")) == ("degree",)
    assert differing_factors(parse("R"), parse("ha:3"))[0] == "family"
    assert "S" in expand(["~hfa:2"]) and "S-p" in expand(["~ha:4-p"])
    assert "S" not in expand(["~hfa:2w-q"])


@pytest.mark.parametrize("label", [*SOME_TUPLE_LABELS, "ha:5ua-p!", "ha:L3-q"])
def test_neighbors_are_the_labels_one_factor_away(label):
    mine = factors(parse(label))
    expected = {
        other
        for other in all_labels_of("ha")
        if sum(factors(other).get(name, value) != value for name, value in mine.items()) == 1
    }
    found = [other for other in family_of(label).neighbors(parse(label)) if str(other).startswith("ha:")]
    assert set(found) == expected and len(found) == len(expected)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("hfa:L2", [f"hfa:L{order}" for order in (1, 3, 4, 5, 6, 7, 8, 9)]),
        ("hfa:1+2-p", ["S-p", *(f"hfa:{one}+{order}-p" for one in (1, 2) for order in range(3, 10))]),
        ("hfa:1+1+3", ["S"] + [f"hfa:1+1+{order}" for order in (2, 4, 5, 6, 7, 8, 9)] + [f"hfa:1+{k}+3" for k in (2, 3)]
         + [f"hfa:1+3+{order}" for order in range(4, 10)]),
        ("ha:2+3-p", ["S-p", *(f"ha:{two}+{degree}-p" for two in (2, 3) for degree in range(4, 10))]),
    ],
)  # fmt: skip
def test_neighbors_in_order_or_degree_differ_in_one_part(label, expected):
    found, factor = family_of(label).neighbors(parse(label)), "orders" if label.startswith("hfa") else "degree"
    assert sorted(str(other) for other in found if differing_factors(other, parse(label)) == (factor,)) == sorted(
        expected
    )


def test_every_label_is_explained_letter_by_letter():
    for label in random.Random(0).sample(all_labels_of("ha"), 50) + [
        *map(parse, SOME_FEATURE_LABELS + SOME_MIXED_DEGREES)
    ]:
        rows = explain(label)
        assert "".join(row.letter for row in rows) == str(label).partition(":")[2].replace("-", "")
        assert all(row.name and row.what and row.source for row in rows)
    assert any("grows with length" in row.name for row in explain(parse("ha:L3")))
    assert any("Theta(L^4)" in row.what for row in explain(parse("ha:4")))


def test_constructing_an_invalid_label_is_an_error():
    with pytest.raises(LabelError, match="did you mean 'hfa:1\\+2'"):
        replace(parse("hfa:2"), orders=(2, 1))
    with pytest.raises(LabelError, match="rank 'x' is unknown"):
        replace(parse("hfa:2"), rank="x")
    with pytest.raises(LabelError, match="must be whole numbers"):
        replace(parse("hfa:2"), orders=[2])
    with pytest.raises(LabelError, match="degrees must be whole numbers"):
        replace(parse("ha:3"), degrees=(12,))


def test_sets_hyper1_and_hyper3_expand_to_the_papers_labels():
    assert expand(["@hyper1"]) == ["S", "hfa:4", "hfa:3", "ha:3", "ha:3u!", "ha:3u-q"]
    assert expand(["@hyper3"]) == ["S", "hfa:2", "hfa:3", "hfa:1+2", "hfa:2+3"]
