"""The order and the titles of the columns in tables and figures."""

from __future__ import annotations

from madbench.analysis.quantities import in_order, title, with_averages
from madbench.suites.mad.suite import MAD_TASKS


def test_tables_and_figures_have_the_average_after_its_tasks_and_losses_last():
    names = ["loss_l5", "validation_loss", "mad_average", "b_not_installed", "a_not_installed", *reversed(MAD_TASKS)]
    expected = [*MAD_TASKS, "mad_average", "a_not_installed", "b_not_installed", "loss_l5", "validation_loss"]
    assert in_order([*names, *names]) == expected


def test_a_task_that_is_not_installed_has_its_name_as_title():
    assert title("a_not_installed") == "a_not_installed"


def test_an_average_is_added_if_all_of_its_tasks_are_named():
    others = {"hunters_elsewhere", "loss_l5"}
    assert with_averages({*others, *MAD_TASKS}) == {*others, *MAD_TASKS, "mad_average"}
    assert with_averages(MAD_TASKS[1:]) == set(MAD_TASKS[1:])
