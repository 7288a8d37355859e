"""Mappings and YAML become settings. Errors name the place, the key and the nearest valid value."""

from __future__ import annotations

import dataclasses
import os
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from madbench.config import Override, apply_override, field_docs, from_mapping, override_text, read_yaml, settings_of
from madbench.errors import ConfigError
from madbench.models.shapes import ModelConfig
from madbench.suites.language.suite import GPTConfig, LanguageTraining
from madbench.suites.tokens import TrainingConfig


@dataclass(frozen=True)
class Inner:
    width: int = 1
    """How wide."""

    def __post_init__(self):
        if self.width < 1:
            raise ConfigError(f"width must be at least 1, got {self.width}")


@dataclass(frozen=True)
class Outer:
    name: str
    """What it is
    called."""
    rate: float = 0.5
    """How fast."""
    is_fast: bool = False
    mode: Literal["slow", "quick"] = "slow"
    sizes: tuple[int, ...] = ()
    limit: int | None = None
    weights: dict[str, float] = field(default_factory=dict)
    anything: dict[str, Any] = field(default_factory=dict)
    inner: Inner = Inner()


def error_of(**mapping) -> str:
    with pytest.raises(ConfigError) as caught:
        from_mapping(Outer, mapping, "file.yaml")
    return str(caught.value)


def test_a_field_of_several_types_is_refused_instead_of_read_as_the_first():
    @dataclass(frozen=True)
    class Ambiguous:
        window: int | Literal["all"] = 1
        text: str = ""

    assert from_mapping(Ambiguous, {"text": "a"}, "file.yaml") == Ambiguous(1, "a")
    for value in ("all", 2.5):
        with pytest.raises(ConfigError, match=r"file\.yaml: window: its type, .*, is ambiguous"):
            from_mapping(Ambiguous, {"window": value}, "file.yaml")


def test_a_mapping_becomes_the_dataclass():
    outer = from_mapping(
        Outer,
        {
            "name": "a", "rate": 2, "is_fast": True, "mode": "quick", "sizes": [1, 2], "limit": None,
            "weights": {"x": 1}, "anything": {"y": [None, "text"]}, "inner": {"width": 3},
        },
        "file.yaml",
    )  # fmt: skip
    expected = Outer("a", 2.0, True, "quick", (1, 2), None, {"x": 1.0}, {"y": [None, "text"]}, Inner(3))
    assert outer == expected
    assert isinstance(outer.rate, float) and isinstance(outer.weights["x"], float)


def test_zero_has_one_sign(tmp_path):
    """Otherwise one job would have two ids."""
    outer = from_mapping(Outer, {"name": "a", "rate": -0.0, "weights": {"x": "-0e0"}}, "file.yaml")
    assert [str(value) for value in (outer.rate, outer.weights["x"])] == ["0.0", "0.0"]
    assert str(TrainingConfig(weight_decay=-0.0).weight_decay) == "0.0"


def test_an_unknown_key_is_an_error_that_names_the_nearest():
    assert error_of(name="a", raet=1) == "file.yaml: unknown key 'raet'; did you mean 'rate'?"


def test_a_far_off_key_is_answered_with_all_keys():
    assert "expected one of: name, rate, is_fast" in error_of(name="a", zzzzzz=1)


def test_a_missing_key_is_an_error():
    assert error_of(rate=1.0) == "file.yaml: key 'name' is missing"


@pytest.mark.parametrize(
    ("key", "value", "says"),
    [
        ("name", 3, "expected text, got 3"),
        ("rate", "fast", "expected a number, got 'fast'"),
        ("rate", True, "expected a number, got True"),
        ("rate", float("nan"), "expected a number, got nan"),
        ("rate", 10**400, "expected a number, got 1000"),
        ("is_fast", 1, "expected true or false, got 1"),
        ("is_fast", "yes", "expected true or false, got 'yes'"),
        ("mode", "quik", "'quik' is not allowed; did you mean 'quick'?"),
        ("sizes", [1, "2"], "sizes[1]: expected a whole number, got '2'"),
        ("sizes", [1.0], "expected a whole number, got 1.0"),
        ("limit", "none", "expected a whole number, got 'none'"),
        ("limit", False, "expected a whole number, got False"),
        ("weights", [1], "expected a mapping of keys to values, got [1]"),
        ("weights", {"x": "heavy"}, "weights: x: expected a number, got 'heavy'"),
        ("inner", 3, "expected a mapping of keys to values, got 3"),
        ("inner", {"wdth": 3}, "inner: unknown key 'wdth'; did you mean 'width'?"),
        ("inner", {"width": 0}, "inner: width must be at least 1, got 0"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_where_and_what(key, value, says):
    message = error_of(**{"name": "a", key: value})
    assert message.startswith(f"file.yaml: {key}")
    assert says in message


def test_a_file_without_a_mapping_is_refused():
    with pytest.raises(ConfigError, match=r"file.yaml: expected a mapping of keys to values, got \[1\]"):
        from_mapping(Outer, [1], "file.yaml")


def test_a_number_without_a_point_in_yaml_is_a_number(tmp_path):
    path = tmp_path / "training.yaml"
    path.write_text("learning_rate: 1e-3\nepochs: 20\n")
    config = from_mapping(TrainingConfig, read_yaml(path), str(path))
    assert (config.learning_rate, config.epochs) == (0.001, 20)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("a: 1\nb: 2\na: 3\n", ":3: key 'a' appears twice"),
        ("a:\n  b: 1\n  b: 2\n", ":3: key 'b' appears twice"),
        ("a: [1, 2\n", "not valid YAML"),
        ("- 1\n- 2\n", "expected a mapping of keys to values, got [1, 2]"),
        ("", "expected a mapping of keys to values, got nothing; write lines KEY: VALUE"),
        ("? [1, 2]\n: 3\n", ":1:3: not valid YAML: found unhashable key"),
        ("a: 2024-13-45\n", "month must be in 1..12"),
        ("a: &b {c: [1, *b]}\n", ":1:4: not valid YAML: found unconstructable recursive node"),
    ],
)
def test_bad_yaml_is_an_error_that_names_the_file(tmp_path, text, says):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        read_yaml(path)
    assert str(caught.value).startswith(str(path))
    assert says in str(caught.value)


def test_a_yaml_file_that_is_not_utf8_is_refused(tmp_path):
    path = tmp_path / "bad.yaml"
    path.write_bytes(b"\xaa\xff")
    with pytest.raises(ConfigError, match="bad.yaml: cannot be read: it is not text in UTF-8"):
        read_yaml(path)


@pytest.mark.parametrize("number", ["010", "08", "-010", "00.5", "0_7", "1:30", "12:30:45", "1:30.5"])
def test_ambiguous_numbers_in_yaml_are_an_error(tmp_path, number):
    path = tmp_path / "grid.yaml"
    for text in (f"seeds: {number}", f"a:\n- [{number}]", f"{number}: 1"):
        path.write_text(text)
        with pytest.raises(ConfigError, match=f"{path}:{text.count(chr(10)) + 1}: the number {number} "):
            read_yaml(path)
    with pytest.raises(ConfigError, match=f"training.epochs={number}.*the number {number} "):
        Override.parse(f"training.epochs={number}")
    path.write_text(f"seeds: '{number}'")
    assert read_yaml(path) == {"seeds": number}


def test_unambiguous_numbers_in_yaml_are_numbers(tmp_path):
    path = tmp_path / "numbers.yaml"
    path.write_text("a: [0, -0.5, 10, 1_000, .5, 0x10, 1e3, 0.01, 2024-01-02]")
    assert read_yaml(path)["a"][:6] == [0, -0.5, 10, 1000, 0.5, 16]
    assert from_mapping(Outer, {"name": "n", "rate": read_yaml(path)["a"][6]}, "where").rate == 1000


@pytest.mark.parametrize("value", ["08", "010", "1:30", "yes", "1e3", ["08", "1:2"], "@quick", 8, 0.1])
def test_a_value_is_read_back_from_its_override(value):
    override = Override.parse(override_text("a.b", value, "here"))
    assert (override.key, override.value) == ("a.b", value)


@pytest.mark.parametrize(
    ("word", "suite", "key", "value"),
    [
        ("training.epochs=20", "", "training.epochs", 20),
        ("learning_rates=[1.0e-3, 2e-3]", "", "learning_rates", [1e-3, "2e-3"]),
        ("other.training.steps= 0x10", "other", "training.steps", 16),
        ("other=mini", "other", "", "mini"),
        ("other=''", "other", "", ""),
        ("other='mini'", "other", "", "mini"),
        ("other=@x: y", "other", "", "@x: y"),
        ("others.a=null", "", "others.a", None),
    ],
)
def test_an_override_is_read_once_and_gives_its_text_again(word, suite, key, value):
    override = Override.parse(word, ["other"])
    assert (override.suite, override.key, override.value) == (suite, key, value)
    assert str(override) == word and override.path == word.partition("=")[0]
    assert override.names_profile == (not key)
    assert str(override.without_suite()) == word.removeprefix("other.") or override.names_profile


@pytest.mark.parametrize("word", ["other.training.steps= 0x10", "training.steps=16"])
def test_an_override_without_its_suite_is_shown_to_the_user_as_written(word):
    override = Override.parse(word, ["other"])
    for shown in (override, override.without_suite(), override.without_suite().without_suite()):
        assert (shown.user_word, shown.user_path) == (word, word.partition("=")[0])
    assert override.without_suite() == Override.parse(word.removeprefix("other."))


@pytest.mark.parametrize("text", ["'mini", "mini'", '"mini', "'mini\"", "''mini''", "'"])
def test_a_name_of_a_profile_with_quotes_that_do_not_match_is_refused(text):
    with pytest.raises(ConfigError, match="the quotes do not match; write other=NAME"):
        Override.parse(f"other={text}", ["other"])


@pytest.mark.parametrize("word", ["model.d_model", "=3", "=", "model.=3"])
def test_an_override_without_a_key_or_a_value_is_refused(word):
    with pytest.raises(ConfigError, match="expected KEY=VALUE"):
        Override.parse(word)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([1, 2], "[1, 2]"),
        (["é", "x"] * 60, f"[{', '.join(['é', 'x'] * 60)}]"),
        ("compression", "compression"),
        (None, "null"),
    ],
)
def test_the_text_of_an_override_is_one_line_as_a_reader_would_write_it(value, text):
    assert override_text("a.b", value, "here") == f"a.b={text}"


def test_settings_are_the_values_by_key_and_no_key_is_given_twice():
    words = ("model.d_model=64", "other.model.d_model=32")
    overrides = [Override.parse(word, ["other"]) for word in words]
    assert settings_of(overrides) == {"model.d_model": 64, "other.model.d_model": 32}
    with pytest.raises(ConfigError, match="'model.d_model' is given twice"):
        settings_of([*overrides, Override.parse("model.d_model=64")])


def test_overrides_are_equal_if_their_texts_are():
    """Rows and tables distinguish overrides by their texts, also those with values that have no hash."""
    one, other = (Override.parse(f"a=[{text}]") for text in ("1, 2", "1,2"))
    assert one == Override.of("a", [1, 2]) and hash(one) == hash(Override.of("a", [1, 2]))
    assert one.value == other.value and one != other


def test_a_change_of_a_mapping_leaves_the_override_as_it_was():
    override = Override.of("a.b", [1])
    changed = apply_override({"a": {"c": 2}}, override)
    assert changed == {"a": {"c": 2, "b": [1]}}
    changed["a"]["b"].append(2)
    assert override.value == [1]


@pytest.mark.parametrize("text", ["labels: [@quick]", "labels: @quick", "labels:\n- @quick", "labels: [S, @quick]"])
def test_an_unquoted_set_of_labels_is_an_error_that_shows_the_quotes(tmp_path, text):
    (tmp_path / "grid.yaml").write_text(text)
    with pytest.raises(ConfigError, match="'@quick'"):
        read_yaml(tmp_path / "grid.yaml")


def test_unquoted_braces_are_an_error_that_shows_the_quotes(tmp_path):
    (tmp_path / "grid.yaml").write_text("labels: [{S,R}-c]")
    with pytest.raises(ConfigError, match="'{S,R}-c'"):
        read_yaml(tmp_path / "grid.yaml")


def test_a_boolean_in_place_of_text_is_an_error_that_suggests_quotes():
    assert "quotes" in error_of(name=True) and "quotes" in error_of(name="n", mode=False)
    assert "quotes" not in error_of(name="n", sizes=True)


def test_an_unreadable_yaml_is_an_error_that_names_the_file(tmp_path):
    (tmp_path / "bytes.yaml").write_bytes(b"a: \xff\xfe")
    for path in (tmp_path / "absent.yaml", tmp_path, tmp_path / "bytes.yaml"):
        with pytest.raises(ConfigError, match=f"{path}: cannot be read"):
            read_yaml(path)


def test_field_docs_are_the_sentences_below_the_fields():
    assert field_docs(Outer) == {"name": "What it is\ncalled.", "rate": "How fast."}


@pytest.mark.parametrize("cls", [ModelConfig, TrainingConfig, GPTConfig, LanguageTraining])
def test_every_setting_of_a_job_is_documented(cls):
    assert set(field_docs(cls)) == {field.name for field in dataclasses.fields(cls)}


def test_a_message_shows_the_beginning_of_a_large_value():
    nested = ["x"] * 10
    for _ in range(4):
        nested = [nested] * 10
    assert len(error_of(name=nested)) < 400


@pytest.mark.parametrize("value", [60**3_000, -(60**3_000)], ids=["large", "small"])
def test_a_message_gives_the_number_of_digits_of_a_huge_integer(value):
    assert "got a number of about 5335 digits" in error_of(name=value)


def test_yaml_nested_too_deep_is_an_error(tmp_path):
    (tmp_path / "deep.yaml").write_text("labels:\n  " + "- " * 5000 + "x")
    with pytest.raises(ConfigError, match=r"deep\.yaml.*(nested too deep|maximum nesting depth)"):  # of PyYAML 6.0.4
        read_yaml(tmp_path / "deep.yaml")


@pytest.mark.slow
def test_a_mapping_of_many_keys_is_read_in_linear_time(tmp_path):
    seconds = []
    for text in ("a:\n" + "- b: 1\n" * 40_000, "".join(f"k{i}: 1\n" for i in range(40_000))):
        (tmp_path / "long.yaml").write_text(text)
        started = time.perf_counter()
        read_yaml(tmp_path / "long.yaml")
        seconds.append(time.perf_counter() - started)
    assert seconds[1] < 4 * seconds[0] + 0.1


def test_a_yaml_file_that_never_ends_is_an_error(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "zeros.yaml").symlink_to("/dev/zero")
    for name in ("pipe.yaml", "zeros.yaml"):
        with pytest.raises(ConfigError, match=f"{name}: cannot be read: Not a regular file"):
            read_yaml(tmp_path / name)


def test_aliases_that_stand_for_billions_of_values_are_refused(tmp_path):
    names = "abcdefghij"
    lines = [f"{name}: &{name} [{', '.join([f'*{before}'] * 9)}]" for before, name in zip(names, names[1:])]
    (tmp_path / "laughs.yaml").write_text("\n".join(["a: &a [1]", *lines]))
    with pytest.raises(ConfigError, match=r"laughs\.yaml: has more than 1,000,000 values"):
        read_yaml(tmp_path / "laughs.yaml")
