"""Display names of labels, which change no identity."""

from __future__ import annotations

import pytest

from madbench.errors import ConfigError, LabelError
from madbench.grid import load_grid
from madbench.labels import expand, parse
from madbench.labels.names import (
    DisplayNames,
    display_name,
    names_from_words,
    row_display_name,
    typed_label,
    using_names,
    with_typed_labels,
)
from madbench.labels.sets import names_of
from madbench.mixers.cd.grammar import PRESETS


@pytest.mark.parametrize("features", ["", "-p", "-c", "-pc", "-v", "!", "-c-v"])
@pytest.mark.parametrize("preset", PRESETS)
def test_labels_of_presets_are_displayed_by_preset_name(preset, features):
    try:
        label = str(parse(f"cd:{preset}{features}"))
    except LabelError:
        return  # nothing to pay for
    name = DisplayNames().display(label)
    assert name == f"cd:{preset}{features}" and parse(name) == parse(label)


@pytest.mark.parametrize("name", ["base: R vs. S", "100.0 S", "  R - S", "identity, S", "S: chance", ""])
def test_a_name_that_begins_with_no_label_is_shown_unchanged(name):
    with using_names(DisplayNames(by_user={"S": "softmax", "R": "recurrent"})):
        assert row_display_name(name) == name


def test_labels_in_a_hybrid_are_displayed_by_preset_name():
    for spelling in ("cd:gateddeltanet-cg/S-p", "3xcd:gla-cg/S-p", "S-p/2xcd:gla-cg/..."):
        assert DisplayNames().display(str(parse(spelling))) == spelling != str(parse(spelling))


@pytest.mark.parametrize("label", ["cd:id-hk1-bwn", "cd:exp-0.95-sum", "S-p", "hfa:2w", "fla:gla", "cd:no", "x:y"])
def test_labels_without_a_preset_are_their_own_display_names(label):
    assert DisplayNames().display(label) == label


def test_labels_are_displayed_as_the_user_typed_them():
    labels = ["cd:id-smhk1-bwn-cug", "cd:id-dg-cg", "cd:kelu-sum-c", "cd:id-wx-c"]
    specs = ["cd:gdn-cg", "cd:id-dg-cg", "cd:{linear,normalized}-c", "S", "training.epochs=3", "cd:not-one", "~cd:gdn"]
    assert expand(specs[:3]) == labels
    names = names_of(specs)
    assert [names.display(label) for label in labels] == ["cd:gdn-cg", "cd:id-dg-cg", "cd:linear-c", "cd:normalized-c"]


def test_expanding_labels_does_not_change_display_names(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nlabels: [S, 'cd:id-dg-cg']\nnames: {S: Softmax}\n")
    with using_names(DisplayNames()):
        assert expand([f"@{path}", "cd:id-dg-cg"]) == ["S", "cd:id-dg-cg"]
        assert [display_name("S"), display_name("cd:id-dg-cg")] == ["S", "cd:gla-cg"]
        assert load_grid([f"@{path}", "cd:id-dg-cg"], {}).names.display("S") == "Softmax"
        assert display_name("S") == "S"


def test_display_names_of_the_user_take_precedence():
    with using_names(names_of(["cd:gdn-cg"], names_from_words(["cd:gdn-cg=Gated DeltaNet", "S=softmax"]))):
        assert display_name("cd:id-smhk1-bwn-cug") == "Gated DeltaNet"
        assert typed_label("cd:id-smhk1-bwn-cug") == "cd:gdn-cg"
        assert row_display_name("S  model.mix_rank=4") == "softmax  model.mix_rank=4"
        assert row_display_name("cd:id-smhk1-bwn-cug  S=4") == "Gated DeltaNet  S=4"
        assert row_display_name("S-p") == "S-p"
        assert with_typed_labels("run cd:id-smhk1-bwn-cug.") == "run cd:gdn-cg."


def test_a_set_file_can_define_display_names(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nlabels: [S, 'cd:gla-cg']\nnames: {S: Softmax, 'cd:gla-cg': Gated}\n")
    assert expand([f"@{path}"]) == ["S", "cd:id-dg-cg"]
    names = names_of([f"@{path}"])
    assert [names.display("S"), names.display("cd:id-dg-cg")] == ["Softmax", "Gated"]
    assert names.with_names({"S": "attention"}).display("S") == "attention"
    path.write_text("description: mine\nlabels: [S]\nnames: {S-x: Softmax}\n")
    with pytest.raises(LabelError, match="mine.yaml: names"):
        expand([f"@{path}"])


@pytest.mark.parametrize(
    "words", [["S"], ["S="], ["S=a", "S-p=a"], ["S-p=S"], ["G-cg-q-12o=HyperMLP"], ["cd:gdn-cg=cd:gla-cg"]]
)
def test_empty_and_ambiguous_display_names_are_refused(words):
    with pytest.raises(ConfigError):
        names_from_words(words)


def test_a_preset_alias_can_be_a_display_name():
    names = names_from_words(["G-cg-q-12o=HyperGLU", "cd:id-dg-cg=cd:gla-cg"])
    assert [names.display("G-cg-q-12o"), names.display("cd:id-dg-cg")] == ["HyperGLU", "cd:gla-cg"]


def test_a_display_name_of_two_labels_is_an_error(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nlabels: [S, R]\nnames: {S: Softmax}\n")
    names = DisplayNames().with_names({"R": "Softmax"})
    with pytest.raises(ConfigError, match="'Softmax' cannot be the name of both R and S"):
        names_of([f"@{path}"], names)
    both = names_of([f"@{path}"], names.with_names({"S": "attention"}))
    assert [both.display("S"), both.display("R")] == ["attention", "Softmax"]


def test_using_names_restores_the_previous_names():
    with using_names(DisplayNames()):
        with using_names(DisplayNames(by_user={"S": "softmax"})):
            assert display_name("S") == "softmax"
        assert display_name("S") == "S"
