"""Suggestions for text that is no label, such as the name of a mixer under another prefix."""

from __future__ import annotations

import re

import pytest

from madbench.errors import LabelError
from madbench.labels import families, family_of, parse
from madbench.mixers.named.family import NamedFamily
from madbench.mixers.named.operators import OPERATORS

NAMED_MIXERS = {
    "cd:kda": "KDA",
    "cd:mamba3": "Mamba-3",
    "cd:rwkv7": "RWKV-7",
    "cd:rwkv": "RWKV-7",
    "cd:RetNet": "RetNet",
    "cd:gated_deltaproduct": "DeltaProduct",
    "cd:kda!": "KDA!",
    "mamba2-cg": "cd:mamba2-cg",
    "fla:gdn-cg": "cd:gateddeltanet-cg",
    "foo:gla": "cd:gla",
    "hfa:mlstm": "cd:mlstm",
    "cd:HyperGLU": "HyperGLU",
    "fla:S-p": "S-p",
    "Mamba": "Mamba-2",
    "RWKV": "RWKV-7",
    "Mamba-4": "Mamba-3",
    "DeltaNet2": "DeltaNet",
    "GatedDeltaNet": "GDN",
    "MLA-nope": "MLA(nope)",
    "GDN-neg": "GDN(neg)",
}


@pytest.mark.parametrize("text", NAMED_MIXERS)
def test_a_name_of_another_family_suggests_its_label(text):
    with pytest.raises(LabelError) as caught:
        parse(text)
    first, second = str(caught.value).splitlines()
    assert repr(NAMED_MIXERS[text]) in second
    assert first.index(text.partition(":")[2] or text) == second.index("^")


def test_letters_after_a_named_operator_are_refused():
    with pytest.raises(LabelError, match=r"KDA takes no letters; did you mean 'KDA'"):
        parse("KDA-p")


@pytest.mark.parametrize("text", ["my_mixers.MyMixer", "package.mixers.Mixer(beta=2,gamma=0.5)"])
def test_the_path_of_a_class_is_answered_with_the_prefix_of_modules(text):
    with pytest.raises(LabelError, match=re.escape(f"a class of your own has my: before its path: my:{text}")):
        parse(text)


@pytest.mark.parametrize("text, suggested", [("R.c", "R-c"), ("GDN.neg", "GDN.neg")])
def test_a_label_with_a_dot_is_no_path_of_a_class(text, suggested):
    with pytest.raises(LabelError) as caught:
        parse(text)
    assert "my:" not in str(caught.value) and repr(suggested) in str(caught.value)


JOINTS = ("|", "+", ",", " ", ";", "&", ">", "->", "--", ":", " then ", "_")
HYBRIDS = [f"S-p{joint}cd:gdn" for joint in JOINTS]
HYBRIDS += ["cd:gdn|S-p", "[S-p,R-c]", "(S-p)(R)", "2*S-p+R", "3xcd:mamba2-cg,S-p", "hybrid:S-p,R", "hybrid", "gdn|gla"]


@pytest.mark.parametrize("text", HYBRIDS)
def test_misspelled_hybrids_are_answered_with_the_separator_and_a_suggestion(text):
    with pytest.raises(LabelError, match="layers of a hybrid are separated by '/'") as caught:
        parse(text)
    first, second = str(caught.value).splitlines()
    if text in HYBRIDS[: len(JOINTS)]:
        assert second.index("^") == first.index("S-p") + len("S-p"), "the caret is where the first label ends"
        assert "S-p/cd:gdn" in second and "S-p cd:gdn as separate words" in second


def test_text_with_fewer_than_two_labels_is_not_taken_for_a_hybrid(monkeypatch):
    for text in ("S-p|", "S-p,x", "R(2)", "foo:gla", "my:hybrid.Mixer,R"):
        with pytest.raises(LabelError) as caught:
            parse(text)
        assert "hybrid are" not in str(caught.value)


def test_a_suggestion_states_that_its_mixer_needs_a_gpu(monkeypatch):
    monkeypatch.setattr(NamedFamily, "needs", "a CUDA GPU", raising=False)
    for text in ("cd:kda", "cd:rwkv7", "cd:mamba3"):
        with pytest.raises(LabelError, match="which needs a CUDA GPU"):
            parse(text)
    with pytest.raises(LabelError, match="did you mean 'cd:gateddeltanet'"):
        parse("fla:gdn")


LIBRARY_NAMES = {
    "deltanet": "DeltaNet",
    "gated-deltanet": "GDN",
    "gated-deltaproduct": "DeltaProduct",
    "gla": "GLA",
    "gsa": "GSA",
    "hgrn": "HGRN",
    "hgrn2": "HGRN2",
    "kda": "KDA",
    "mamba2": "Mamba-2",
    "mamba3": "Mamba-3",
    "path": "PaTH",
    "retnet": "RetNet",
    "rwkv7": "RWKV-7",
}


@pytest.mark.parametrize("name", LIBRARY_NAMES)
@pytest.mark.parametrize("exclamation", ["", "!"])
def test_an_error_on_a_layer_of_the_library_suggests_its_label(name, exclamation):
    label = LIBRARY_NAMES[name]
    assert label in OPERATORS and parse(f"{label}{exclamation}")
    with pytest.raises(LabelError, match=rf"unknown family 'fla' .* did you mean '{label}{exclamation}'"):
        parse(f"fla:{name}{exclamation}")


@pytest.mark.parametrize("text", ["cd:softmx", "cd:id-gc", "G-cx", "fla:glaa", "my:os"])
def test_a_misspelled_label_is_answered_by_its_own_family(text):
    with pytest.raises(LabelError) as caught:
        parse(text)
    assert "madbench ls operators" not in str(caught.value)


@pytest.mark.parametrize("text", ["hello", "xyz", "?"])
def test_an_error_on_text_unlike_any_label_lists_all_kinds_of_labels(text):
    with pytest.raises(LabelError) as caught:
        parse(text)
    message = str(caught.value)
    assert "madbench ls operators" in message and "madbench ls families" in message
    assert all(map(parse, re.findall("'([^']+)'", message.partition("labels look like")[2])))


@pytest.mark.parametrize(
    ("name", "answer"), [("begins", lambda text: text == "cd:S"), ("labels", lambda: ["cd:exp", "cd:Sparse"])]
)
def test_labels_or_prefixes_that_a_family_declares_decide_the_suggestion(name, answer, monkeypatch):
    with pytest.raises(LabelError, match="did you mean 'S-p'"):
        parse("cd:S-p")
    monkeypatch.setattr(family_of("cd:exp"), name, answer, raising=False)
    with pytest.raises(LabelError) as caught:
        parse("cd:S-p")
    assert "madbench ls operators" not in str(caught.value)


def test_every_named_mixer_of_every_family_is_a_label():
    for name in families():
        family = family_of(f"{name}:" if name else "")
        for label in getattr(family, "mixers", {}).values():
            assert parse(label)


@pytest.mark.slow
def test_every_built_in_family_has_a_syntax_and_an_example_of_it():
    for name in families():
        family = family_of(f"{name}:" if name else "")
        assert family.syntax and parse(family.example)
