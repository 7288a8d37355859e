"""Names of tasks on the command line: a task, a task of a suite, or a suite for its usual tasks."""

import pytest

from madbench.errors import ConfigError
from madbench.suites import find_suite, suites
from madbench.suites.addressing import (
    beside_profiles,
    has_profile,
    leading_suite,
    own_overrides,
    parse_overrides,
    profile_named,
    tasks_by_suite,
    tasks_in_order,
)


@pytest.mark.parametrize("name", suites())
def test_the_name_of_a_suite_stands_for_its_usual_tasks(name):
    assert tasks_by_suite([name]) == {name: list(suites()[name].usual_tasks())}
    assert leading_suite([name]).name == name


def test_a_suite_and_a_task_of_another_are_both_chosen():
    chosen = tasks_by_suite(["hunters", "mad"])
    assert chosen == {"mad": list(suites()["mad"].usual_tasks()), "interactions": ["hunters"]}
    assert tasks_by_suite(["mad", "compression"]) == tasks_by_suite(["mad"])


def test_an_unknown_task_is_answered_with_the_nearest_task_or_suite():
    with pytest.raises(ConfigError, match="unknown task 'interaction'; did you mean 'interactions'"):
        tasks_by_suite(["interaction"])
    with pytest.raises(ConfigError, match="unknown task 'huntres'; did you mean 'hunters'"):
        tasks_by_suite(["huntres"])


def test_the_error_on_an_unknown_task_names_tasks_suites_and_the_listing_command():
    with pytest.raises(ConfigError, match="madbench ls tasks lists all") as error:
        tasks_by_suite(["zzz"])
    for name in (*suites(), *find_suite("mad").tasks()):
        assert name in str(error.value)


def test_a_task_with_only_scattered_letters_in_common_is_not_suggested():
    with pytest.raises(ConfigError, match="unknown task 'nope'; expected one of: compression"):
        tasks_by_suite(["nope"])  # not genotype


def test_an_error_on_a_profile_of_another_suite_names_the_suite():
    language = find_suite("language")
    with pytest.raises(
        ConfigError, match="^profile 'evening': no such profile of the suite language; it belongs to mad;"
    ):
        profile_named(language, [], language, "evening", is_asked=True)
    assert profile_named(language, [], language, "small", is_asked=True) == "small"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["steps=abc"], "override 'PREFIX.steps': unknown key; did you mean 'PREFIX.training.steps'?"),
        (["description=a"], "override 'PREFIX.description' has no effect on a run"),
        (["training.steps.x=3"], "override 'PREFIX.training.steps.x=3': 'steps' holds a value, not keys"),
        (["training.steps=3", "training.steps=4"], "override 'PREFIX.training.steps' is given twice"),
        (["model.window=3", "training.steps=a"], "override 'PREFIX.model.window=3', 'PREFIX.training.steps=a': train"),
        (["model.window=3"], "PREFIX.model.window has no effect on 'S'; settings of its mixer"),
    ],
)
@pytest.mark.parametrize("prefix", ["language_model.", ""])
def test_an_error_shows_an_override_with_the_prefix_that_the_user_wrote(words, says, prefix):
    """The leading suite is the same for both prefixes, so that the overrides are equal once the prefix is removed."""
    language = find_suite("language")
    overrides = own_overrides(parse_overrides(f"{prefix}{word}" for word in words), language, language)
    with pytest.raises(ConfigError) as caught:
        language.Profile.load("tiny", overrides).mixer_settings("S")
    assert str(caught.value).startswith(says.replace("PREFIX.", prefix))


def test_an_error_on_a_task_that_is_not_trained_shows_the_prefix_of_its_override():
    mad, signals = find_suite("mad"), find_suite("signals")
    overrides = own_overrides(parse_overrides(["signals.tasks.digits.setting.width=7"]), signals, mad)
    with pytest.raises(ConfigError, match="^override 'signals.tasks.digits.setting.width=7' has no effect: the tasks"):
        tasks_in_order(signals, overrides, ["forecasting"])


WRONG_SUITES = [
    ("beside: {langauge_model: tiny}", "beside: no other suite 'langauge_model'; did you mean 'language_model'?"),
    (
        "beside: {language_model: tyni}",
        "beside: language_model: profile 'tyni': no such profile or file; expected one of",
    ),
    ("beside: {mad: quick}", "beside: mad has no effect: it is the suite of this profile"),
    ("suite: nosuch", "suite: unknown suite 'nosuch'; expected one of: "),
    ("suite: language", "suite: 'language': this file is used as a profile of the suite mad; choose a task of "),
]
"""Keys of a profile of MAD that name a wrong suite or profile, and the beginning of the error."""


@pytest.mark.parametrize(("text", "says"), WRONG_SUITES)
def test_a_profile_file_that_names_a_wrong_suite_is_refused_by_file_and_key(tmp_path, text, says):
    mad, language, path = find_suite("mad"), find_suite("language"), str(tmp_path / "mine.yaml")
    (tmp_path / "mine.yaml").write_text(f"like: evening\n{text}\n")
    for suite, is_asked in ((mad, True), (language, False), (language, True)):
        with pytest.raises(ConfigError) as caught:
            profile_named(suite, [], mad, path, is_asked)
        assert str(caught.value).startswith(f"{path}: {says}")


def test_the_profiles_beside_a_users_profile_are_those_of_its_file(tmp_path):
    mad, language, path = find_suite("mad"), find_suite("language"), tmp_path / "mine.yaml"
    for text, names in {
        "": {"language_model": "tiny"},
        "suite: mad": {"language_model": "tiny"},
        "beside: {language_model: mini}": {"language_model": "mini"},
        "beside: {signals: quick}": {"language_model": "tiny", "signals": "quick"},
        "beside: {language_model: ''}": {"language_model": ""},
    }.items():
        path.write_text(f"like: evening\n{text}\n")
        assert beside_profiles(mad, str(path)) == names
        assert profile_named(language, [], mad, str(path), is_asked=False) == names["language_model"]


def test_a_file_that_an_override_names_has_to_be_of_the_suite(tmp_path):
    mad, language, path = find_suite("mad"), find_suite("language"), tmp_path / "mine.yaml"
    overrides = parse_overrides([f"language_model={path}"])
    path.write_text("like: tiny\n")
    assert profile_named(language, overrides, mad, None, is_asked=True) == str(path)
    path.write_text("like: tiny\nsuite: mad\n")
    with pytest.raises(ConfigError, match="mine.yaml: suite: 'mad': this file is used as a profile of the suite lang"):
        profile_named(language, overrides, mad, None, is_asked=True)


def test_a_profile_file_belongs_only_to_the_suite_that_it_names(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("like: quick\nsuite: signals\n")
    assert [name for name, suite in suites().items() if has_profile(suite, str(path))] == ["signals"]
    path.write_text("like: evening\n")
    assert [name for name, suite in suites().items() if has_profile(suite, str(path))] == ["mad"]
