"""Names by which labels are shown, and that they change no identity."""

from __future__ import annotations

import pytest

from madbench.errors import ConfigError, LabelError
from madbench.labels import expand, parse
from madbench.labels.names import ask, ask_words, of_call, shown, shown_in, spelled, spelled_in
from madbench.mixers.cd.grammar import PRESETS


@pytest.fixture(autouse=True)
def fresh():
    with of_call():
        yield


@pytest.mark.parametrize("features", ["", "-p", "-c", "-pc", "-v", "!", "-c-v"])
@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_is_shown_by_its_name_where_nothing_is_typed(preset, features):
    try:
        label = str(parse(f"cd:{preset}{features}"))
    except LabelError:
        return  # nothing to pay for
    assert shown(label) == f"cd:{preset}{features}" and parse(shown(label)) == parse(label)


@pytest.mark.parametrize("label", ["cd:id-hk1-bwn", "cd:exp-0.95-sum", "S-p", "hfa:2w", "fla:gla", "cd:no", "x:y"])
def test_what_is_no_preset_is_shown_as_it_is(label):
    assert shown(label) == label


def test_what_was_typed_is_shown():
    assert expand(["cd:gdn-cg", "cd:id-dg-cg", "cd:{linear,normalized}-c"]) == [
        "cd:id-smhk1-bwn-cug",
        "cd:id-dg-cg",
        "cd:kelu-sum-c",
        "cd:id-wx-c",
    ]
    names = [shown(label) for label in ("cd:id-smhk1-bwn-cug", "cd:id-dg-cg", "cd:kelu-sum-c", "cd:id-wx-c")]
    assert names == ["cd:gdn-cg", "cd:id-dg-cg", "cd:linear-c", "cd:normalized-c"]


def test_a_name_that_is_asked_for_wins_and_messages_keep_labels():
    expand(["cd:gdn-cg"])
    ask_words(["cd:gdn-cg=Gated DeltaNet", "S=softmax"])
    assert shown("cd:id-smhk1-bwn-cug") == "Gated DeltaNet" and spelled("cd:id-smhk1-bwn-cug") == "cd:gdn-cg"
    assert shown_in("S  model.mix_rank=4") == "softmax  model.mix_rank=4" and shown_in("S-p") == "S-p"
    assert shown_in("less cd:id-smhk1-bwn-cug, and") == "less Gated DeltaNet, and"
    assert spelled_in("run cd:id-smhk1-bwn-cug.") == "run cd:gdn-cg."


def test_the_file_of_a_set_has_names(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nlabels: [S, 'cd:gla-cg']\nnames: {S: Softmax, 'cd:gla-cg': GLA}\n")
    assert expand([f"@{path}"]) == ["S", "cd:id-dg-cg"]
    assert [shown("S"), shown("cd:id-dg-cg")] == ["Softmax", "GLA"]
    ask({"S": "attention"})
    assert shown("S") == "attention"
    path.write_text("description: mine\nlabels: [S]\nnames: {S-x: Softmax}\n")
    with pytest.raises(LabelError, match="mine.yaml: names"):
        expand([f"@{path}"])


@pytest.mark.parametrize(
    "words", [["S"], ["S="], ["S=a", "S-p=a"], ["S-p=S"], ["G-cg-q-12o=HyperMLP"], ["cd:gdn-cg=cd:gla-cg"]]
)
def test_a_name_that_is_none_or_of_two_labels_is_an_error(words):
    with pytest.raises(ConfigError):
        ask_words(words)


def test_a_label_has_an_alias_of_its_own_for_a_name():
    ask_words(["G-cg-q-12o=HyperGLU", "cd:id-dg-cg=cd:gla-cg"])
    assert [shown("G-cg-q-12o"), shown("cd:id-dg-cg")] == ["HyperGLU", "cd:gla-cg"]


def test_a_name_of_a_set_that_another_label_has_is_an_error(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("description: mine\nlabels: [S, R]\nnames: {S: Softmax}\n")
    ask({"R": "Softmax"})
    with pytest.raises(ConfigError, match="'Softmax' cannot be the name of both R and S"):
        expand([f"@{path}"])
    ask({"S": "attention"})
    assert expand([f"@{path}"]) == ["S", "R"] and [shown("S"), shown("R")] == ["attention", "Softmax"]


def test_names_of_a_call_end_with_it():
    with of_call({"S": "softmax"}):
        assert shown("S") == "softmax"
    assert shown("S") == "S"
