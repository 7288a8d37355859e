"""The tasks that words name: a task, a suite's task, or a suite for its usual ones."""

import pytest

from madbench.errors import ConfigError
from madbench.suites import suites
from madbench.suites.addressing import leading_suite, tasks_by_suite


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


def test_an_unknown_task_far_from_any_lists_tasks_and_suites():
    with pytest.raises(ConfigError) as error:
        tasks_by_suite(["zzz"])
    for name in (*suites(), *(task for suite in suites().values() for task in suite.tasks())):
        assert name in str(error.value)
