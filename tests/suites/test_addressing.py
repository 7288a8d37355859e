"""Names of tasks on the command line: a task, a task of a suite, or a suite for its usual tasks."""

import pytest

from madbench.errors import ConfigError
from madbench.suites import find_suite, suites
from madbench.suites.addressing import leading_suite, profile_named, tasks_by_suite


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
