"""The grammar equals an independent enumeration, and rejected text raises only LabelError."""

from __future__ import annotations

import functools
import itertools
import pickle
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from madbench.errors import LabelError
from madbench.labels import every_label, parse
from madbench.mixers.srg import listing
from madbench.mixers.srg.grammar import LETTERS, SrgLabel
from madbench.mixers.srg.listing import all_labels, listing_key
from srg_letters import ALL_LETTERS, BASES, sample_of_labels
from srg_letters import FEATURES_BEYOND_TABLE1 as OTHERS

CHARACTERS = f"{ALL_LETTERS}-"
NEEDED_LETTERS = {row.letter: row.needs for row in LETTERS if row.segment == "features" and row.needs}
PAID_LETTERS = {row.letter for row in LETTERS if row.is_paid}


def allows(base: str, features: str) -> bool:
    """True if the base has all letters that these features need."""
    return all(base in NEEDED_LETTERS.get(letter, base) for letter in features)


def written_out_by_hand(bases="SRG", others=("",)) -> set[str]:
    """Every label, built by the rules of the grammar with string concatenation only."""
    found = set()
    letters_of = [of_table1 + other for of_table1 in ("", "p", "c", "g", "pc", "pg", "cg", "pcg") for other in others]
    for base in bases:
        for features in [f"-{letters}" if letters else "" for letters in letters_of if allows(base, letters)]:
            for mixing in ("", "-1", "-2", "-12", "-1o", "-2o", "-12o"):
                costs = bool(PAID_LETTERS & {*features}) or mixing != ""
                found |= {base + features + "-q" + mixing, base + features + "-v" + mixing}
                found.add(base + features + mixing + ("!" if costs else ""))
    return found


@functools.cache
def valid() -> set[str]:
    others = ["".join(some) for n in range(len(OTHERS) + 1) for some in itertools.combinations(OTHERS, n)]
    return written_out_by_hand(BASES, others)


def test_the_papers_letters_form_504_labels():
    assert len(all_labels()) == len(set(all_labels())) == 504
    assert set(all_labels()) == written_out_by_hand()


@pytest.mark.slow
def test_every_label_lists_exactly_the_labels_of_the_grammar():
    assert len(every_label()) == len(valid()) and set(every_label()) == valid()
    assert [label for label in every_label() if label in set(all_labels())] == list(all_labels())


def test_labels_are_listed_by_base_features_and_mixing_without_building_parsed_labels(monkeypatch):
    """With 11 features there are 100,000 labels, and a shell completes them in a fraction of a second."""
    labels = [label for label in every_label() if len(label) < 6]
    assert labels == sorted(labels, key=lambda label: listing_key(parse(label)))
    monkeypatch.setattr(SrgLabel, "__post_init__", None)
    listing.every_label.cache_clear()
    assert len(listing.every_label()) == len(every_label())


@pytest.mark.slow
def test_parsing_and_writing_a_label_is_the_identity():
    for label in sample_of_labels(3000):
        assert str(parse(label)) == label
        assert parse(str(parse(label))) == parse(label)


def test_parsed_fields_match_the_letters():
    everything = parse("G-pcg-q-12o")
    assert everything == SrgLabel("G", rope=True, conv=True, gates=True, rank="q", mix1=True, mix2=True, layout="lag")
    assert parse("R-2!") == SrgLabel("R", mix2=True, over=True)
    assert parse("D-ka-q") == SrgLabel("D", registers=True, adapter=True, rank="q")
    assert parse("S-c-v") == SrgLabel("S", conv=True, rank="v")


def test_query_heads_double_for_glu_and_the_difference_of_softmaxes():
    assert [parse(label).query_heads(3) for label in ("S", "R", "G", "D", "L")] == [3, 3, 6, 6, 3]


def test_gates_registers_adapters_and_mixing_add_parameters():
    assert not parse("D-pc").adds_parameters and parse("D-k-q").adds_parameters and parse("R-a!").adds_parameters
    assert not parse("S-pc").adds_parameters
    assert parse("S-g-q").adds_parameters and not parse("S-g-q").has_mixing
    assert parse("S-2!").adds_parameters and parse("S-2!").has_mixing


@pytest.mark.parametrize(
    ("alias", "label"),
    [("HyperMLP", "R-cg-q-12o"), ("hyperglu", "G-cg-q-12o"), ("SOFTMAXATTN", "S"), ("ReLUAttn", "R")],
)
def test_aliases_are_read_in_any_case_and_written_as_labels(alias, label):
    assert str(parse(alias)) == label


@pytest.mark.parametrize(
    "fields",
    [
        {"base": "X"},
        {"base": "s"},
        {"base": None},
        {"base": "S", "rank": "x"},
        {"base": "S", "rope": 1},
        {"base": "S", "mix1": True, "rank": "q", "layout": "o"},
        {"base": "S", "layout": "lag", "over": True},
        {"base": "S", "gates": True},
        {"base": "S", "over": True},
        {"base": "S", "gates": True, "rank": "q", "over": True},
    ],
)
def test_a_label_outside_the_grammar_cannot_be_constructed(fields):
    with pytest.raises(LabelError):
        SrgLabel(**fields)


@pytest.mark.parametrize("value", [None, 5, 1.5, b"S", ["S"], object()])
def test_parsing_a_value_that_is_not_text_is_a_label_error(value):
    with pytest.raises(LabelError, match="a label is text"):
        parse(value)


def test_errors_survive_pickling():
    with pytest.raises(LabelError) as caught:
        parse("G-cx-q-12o")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@pytest.mark.slow
@given(st.text(CHARACTERS, max_size=12))
def test_exactly_the_labels_of_the_grammar_parse(text):
    if text in valid():
        assert str(parse(text)) == text
    else:
        with pytest.raises(LabelError):
            parse(text)


@pytest.mark.slow
def test_every_text_one_character_from_a_label_parses_only_if_it_is_one():
    for label in sample_of_labels(35):
        for i in range(len(label) + 1):
            for letter in CHARACTERS:
                for text in (label[:i] + letter + label[i:], label[:i] + letter + label[i + 1 :]):
                    assert _parses(text) == (text in valid())


@pytest.mark.slow
def test_random_texts_end_in_a_label_or_a_label_error():
    draw = random.Random(0)
    anything = "".join(map(chr, (*range(0x250), *range(0x370, 0x600), 0xFF27, 0x6F22, 0xD800, 0x10FFFF)))
    for i in range(1_500):
        alphabet = (anything, CHARACTERS, CHARACTERS + "sCx {},@~")[i % 3]
        text = "".join(draw.choices(alphabet, k=draw.randrange(25)))
        try:
            found = parse(text)
            assert not isinstance(found, SrgLabel) or (str(found) == text and text in valid())  # or a name, as kDa!
        except LabelError as error:
            if i % 10 == 0:
                assert text not in valid() and str(error).count("\n") == 1


@pytest.mark.parametrize("text", ["S" * 1_000_000, "-" * 100_000, "\0", "\ud800", "G-cg-q-12o\n", " S", "a:" * 9999])
def test_odd_texts_are_rejected_in_two_short_lines(text):
    with pytest.raises(LabelError) as caught:
        parse(text)
    first, second = str(caught.value).split("\n")
    assert len(first) < 500 and len(second) < 500


def _parses(text: str) -> bool:
    try:
        parse(text)
    except LabelError:
        return False
    return True
