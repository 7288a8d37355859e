"""Names of tasks on the command line: a task, a task of a suite, or a suite for its usual tasks."""

import pytest

from madbench.errors import ConfigError
from madbench.suites import find_suite, suites
from madbench.suites.addressing import (
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
