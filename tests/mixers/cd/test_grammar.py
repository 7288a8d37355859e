"""Labels of coefficient dynamics: presets, canonical spellings, error messages and neighbors."""

import itertools
import random

import pytest

from madbench.errors import LabelError
from madbench.labels import differing_factors, expand, explain, parse
from madbench.mixers.cd.family import FAMILY
from madbench.mixers.cd.grammar import OPTIONS, PRESETS, CdLabel

CANONICAL = {
    "cd:softmax": "cd:exp-sum",
    "cd:softmax-p": "cd:exp-sum-p",
    "cd:Linear": "cd:kelu-sum",
    "cd:normalized": "cd:id-wx",
    "cd:normalised": "cd:id-wx",
    "cd:gla-cg": "cd:id-dg-cg",
    "cd:mamba2-cg": "cd:id-sm-bd-cg",
    "cd:gdn-cg": "cd:id-smhk1-bwn-cug",
    "cd:GatedDeltaNet": "cd:id-smhk1-bwn-u",
    "cd:deltanet-u": "cd:id-hk1-bwn-u",
    "cd:mlstm!": "cd:id-se-bin-max-o!",
    "cd:mLSTM-pc-v": "cd:id-se-bin-max-pco-v",
}
CORES = [
    dict(zip(("gate", "mirror", "scaling", "norm"), values))
    for values in itertools.product(
        ("", "0.95", "1.05", *OPTIONS["gate"][1:]), *(OPTIONS[name] for name in ("mirror", "scaling", "norm"))
    )
]


def label_or_none(**fields):
    try:
        return CdLabel(**fields)
    except LabelError:
        return None


def message(text):
    with pytest.raises(LabelError) as caught:
        parse(text)
    return str(caught.value)


def random_label(rng):
    """A random label, drawn by rejection, so that every field takes every value."""
    while True:
        fields = {name: rng.choice(options) for name, options in OPTIONS.items()}
        if rng.random() < 0.3:
            fields["gate"] = rng.choice(("0.5", "0.95", "1.05", "1.5", "0.001", "1.999", "0.07"))
        if label := label_or_none(**fields):
            return label


@pytest.mark.parametrize("text", CANONICAL)
def test_presets_are_aliases_of_free_spellings(text):
    assert str(parse(text)) == CANONICAL[text]


@pytest.mark.parametrize("text", "exp-0.95-sum relu-1.05-b1-pow krelu-sum-p id-hzr-cug exp-hz2-sum id-ss-bu".split())
def test_free_spellings_are_canonical(text):
    assert str(parse(f"cd:{text}")) == f"cd:{text}"


def test_every_label_is_its_own_spelling():
    rng = random.Random(0)
    for _ in range(1000):
        label = random_label(rng)
        assert parse(str(label)) == label
        assert str(parse(str(label))) == str(label)


def test_there_are_as_many_labels_as_the_specification_counts():
    valid = [core for core in CORES if label_or_none(readout="id", **core)]
    assert 10 * len(valid) == 21_800
    found = 0
    for core, output in itertools.product(valid, OPTIONS["output"]):
        found += 3 if CdLabel("id", output=output, **core).adds_parameters else 1
    assert 10 * 2**3 * found == 1_562_560


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "cd:exp-bz-0.95-sum",
            (
                "label 'cd:exp-bz-0.95-sum'\n"
                "                 ^ wrong order, '0.95' (A) comes before 'bz' (b); the order is readout, A, b, eta,"
                " features, v, !; did you mean 'cd:exp-0.95-bz-sum'?"
            ),
        ),
        (
            "cd:id-hkr-bw",
            (
                "label 'cd:id-hkr-bw'\n"
                "                 ^ 'bw' is the learned strength of the mirror, but that of 'hkr' is the constant 2;"
                " did you mean 'cd:id-hk2-bw'?"
            ),
        ),
        (
            "cd:exp-bn-sum",
            (
                "label 'cd:exp-bn-sum'\n"
                "              ^ '1/sqrt(n)' is the default, leave it out; did you mean 'cd:exp-sum'?"
            ),
        ),
        ("cd:softmx", "label 'cd:softmx'\n          ^ unknown readout or preset; did you mean 'cd:softmax'?"),
    ],
)
def test_error_messages_equal_those_of_the_specification(text, expected):
    assert message(text) == expected


FAULTS = {  # text: what the caret points at, part of the message, the label that was meant
    "cd:id-bd": ("bd", "only 'sm' and 'dm'", "cd:id-sm-bd"),
    "cd:id-dg-bdn": ("bdn", "only 'sm' and 'dm'", "cd:id-dm-bdn"),
    "cd:id-bw": ("bw", "there is no mirror", "cd:id-hk1-bw"),
    "cd:id-hzr-bwn": ("bwn", "the constant 2", "cd:id-hz2-bwn"),
    "cd:id-dm-bu": ("bu", "a vector", "cd:id-sm-bu"),
    "cd:id-0.95-bu": ("bu", "a constant", "cd:id-ss-bu"),
    "cd:id-se-bun": ("bun", "unbounded", "cd:id-ss-bun"),
    "cd:relu-pow": ("pow", "a constant gate", "cd:relu-0.95-pow"),
    "cd:relu-sm-bd-pow": ("pow", "a constant gate", "cd:relu-sm-bd"),
    "cd:id-pgo": ("pgo", "two output gates", "cd:id-pg"),
    "cd:mlstm-g": ("g", "two output gates", "cd:id-se-bin-max-g"),
    "cd:mlstm-v!": ("!", "contradiction", "cd:mlstm!"),
    "cd:softmax!": ("!", "has no effect", "cd:softmax"),
    "cd:exp-0.95-b1-sum-v": ("v", "has no effect", "cd:exp-0.95-b1-sum"),
    "cd:exp-1.0-sum": ("1.0-", "default", "cd:exp-sum"),
    "cd:exp-i": ("i", "default", "cd:exp"),
    "cd:exp-0.950": ("0.950", "no trailing 0", "cd:exp-0.95"),
    "cd:exp-0.1234-sum": ("0.1", "at most 3 digits", "cd:exp-0.123-sum"),
    "cd:exp-2.5": ("2.5", "below 2", None),
    "cd:exp-0.0": ("0.0", "above 0", None),
    "cd:id-hk1sm": ("sm", "'sm' comes before the mirror 'hk1'", "cd:id-smhk1"),
    "cd:id-sm-hk1": ("hk1", "a second A", "cd:id-smhk1"),
    "cd:exp-sum-sum": ("sum", "a second eta", "cd:exp-sum"),
    "cd:exp-sum-v-p": ("p", "wrong order", "cd:exp-sum-p"),
    "cd:gdn-gc": ("c", "'c' comes before 'g'", "cd:gdn-cg"),
    "cd:exp-sum-pp": ("p", "a second 'p'", "cd:exp-sum-p"),
    "cd:exp-sum-px": ("x", "unknown feature 'x'", "cd:exp-sum-p"),
    "cd:exp-sun": ("sun", "expected A, b, eta, features, v", "cd:exp-sum"),
    "cd:EXP-sum": ("EXP", "wrong case", "cd:exp-sum"),
    "cd:mamba2-CG": ("CG", "wrong case", "cd:mamba2-cg"),
    "cd:exp--sum": ("-sum", "empty segment", "cd:exp-sum"),
    "cd:exp sum": (" ", "unexpected ' '", "cd:exp-sum"),
    "cd:mlstm!!": ("!!", "last character", "cd:mlstm!"),
    "cd:sum": ("sum", "cannot come first", None),
    "cd:0.95-exp-sum": ("0.95", "cannot come first", "cd:exp-0.95-sum"),
    "cd:gla-sum": ("sum", "only features, v and ! can follow", "cd:id-dg-sum"),
    "cd:exp-softmax": ("softmax", "can only come first", "cd:exp"),
    "cd:": ("", "expected a readout or a preset", None),
    "cd:foo-bar": ("foo", "unknown readout or preset", None),
}


@pytest.mark.parametrize("text", FAULTS)
def test_the_caret_points_at_the_fault_of_a_label(text):
    at_fault, part, meant = FAULTS[text]
    shown, pointed = message(text).split("\n")
    place = pointed.index("^")
    assert shown == f"label '{text}'"
    # the last place, as '-' and letters stand in 'cd:' too
    assert place == (shown.rindex(at_fault) if at_fault else len(shown) - 1)
    assert part in pointed
    assert pointed.endswith(f"did you mean '{meant}'?" if meant else "'cd:id-smhk1-bwn-cug'")
    if meant:
        parse(meant)


def test_look_alike_characters_are_escaped_and_the_right_label_suggested():
    found = message("cd:\N{CYRILLIC SMALL LETTER IE}xp-sum")
    assert found.isascii()
    assert "did you mean 'cd:exp-sum'?" in found


@pytest.mark.parametrize("unit", ["exp-", "a", "sm", "!", " ", "0", "pc", "-"])
def test_long_texts_are_rejected_at_once(unit):
    assert len(message("cd:exp-" + unit * 200_000)) < 500


def test_invalid_combinations_of_fields_cannot_be_made():
    for fields in ({"readout": "tanh"}, {"readout": "exp", "gate": "1.0"}, {"readout": "exp", "scaling": "bd"}):
        with pytest.raises(LabelError):
            CdLabel(**fields)


@pytest.mark.parametrize("text", ["cd:exp-sum", "cd:mamba2-cg", "cd:mlstm-v", "cd:mlstm!", "cd:exp-0.9-sum"])
def test_neighbors_are_the_labels_one_factor_away(text):
    label = parse(text)
    constants = ("0.95", "1.05")
    fields = dict(vars(label))
    gates = dict.fromkeys((*OPTIONS["gate"], *constants, label.gate))
    expected = set()
    for name, options in {**OPTIONS, "gate": gates}.items():
        for value, (rank, over) in itertools.product(options, (("", False), ("v", False), ("", True))):
            changed = fields | {"rank": rank, "over": over} | {name: value}
            other = label_or_none(**changed)
            if other and len(differing_factors(label, other)) == 1:
                expected.add(other)
    found = FAMILY.neighbors(label)
    assert len(found) == len(set(found))
    assert set(found) == expected
    assert all(label in FAMILY.neighbors(other) for other in found if label.gate in ("", "sm", "se"))


def test_neighbors_include_only_valid_labels():
    neighbors = {str(label) for label in FAMILY.neighbors(parse("cd:mamba2"))}
    assert {"cd:id-dm-bd", "cd:id-sm", "cd:id-sm-bd-v", "cd:id-sm-bd!", "cd:exp-sm-bd"} <= neighbors
    assert "cd:id-sg-bd" not in neighbors


def test_sets_of_the_paper_expand():
    assert [len(expand([f"@principle{i}"])) for i in range(1, 7)] == [2, 10, 12, 12, 28, 9]
    assert expand(["@cd-table1"]) == [f"cd:{free}" for free in PRESETS.values()]


def test_explanations_have_a_row_per_letter_and_cautions():
    def about(text):
        rows = explain(parse(text))
        return [row.letter for row in rows if row.letter], " ".join(row.name for row in rows if not row.letter)

    assert about("cd:mlstm-pc!")[0] == ["id", "se", "bin", "max", "p", "c", "o", "!"]
    assert about("cd:id-0.95hz2-bw-g")[0] == ["id", "0.95", "hz2", "bw", "g"]
    assert "sum under id" in about("cd:id-sum")[1]
    for text in ("cd:exp", "cd:id-se", "cd:id-bi", "cd:relu-1.05"):
        assert "not normalized" in about(text)[1]
    for text in ("cd:exp-sum", "cd:mlstm", "cd:relu-1.05-sum"):
        assert "not normalized" not in about(text)[1]
    for text in ("cd:linear-p", "cd:gla-p", "cd:id-hz1-p"):
        assert "absolute positions" in about(text)[1]
    for text in ("cd:softmax-p", "cd:mamba2-p", "cd:deltanet-p"):
        assert "absolute positions" not in about(text)[1]
    assert "another spelling" in about("cd:mamba2-g")[1]
    assert "another spelling" not in about("cd:exp-sum")[1]
    assert "softmax" in about("cd:exp-sum-p")[1]
