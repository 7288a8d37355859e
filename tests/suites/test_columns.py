"""Every column states its direction and the unit of differences."""

from __future__ import annotations

import pytest

from madbench.suites import Column, suites


def test_a_column_is_declared_by_keyword():
    with pytest.raises(TypeError):
        Column("parity", "Parity", 1, "higher")
    column = Column.accuracy("parity", "Parity", digits=2)
    assert (column.digits, column.better, column.limits, column.axis) == (2, "higher", (0.0, 100.0), "accuracy, %")


def test_every_column_says_which_is_better_and_what_a_difference_is():
    for suite in suites().values():
        for column in suite.columns(suite.tasks()):
            assert column.better and column.words and column.difference, column.name


def test_the_columns_of_tasks_are_named_once_and_other_names_are_skipped():
    for suite in suites().values():
        columns = suite.columns(suite.tasks())
        names = [column.name for column in columns]
        assert len(set(names)) == len(names)
        assert suite.columns([*names, *suite.tasks(), "no_column"]) == columns, suite.name
