from __future__ import annotations

import os
import sys
import time

import pytest

from madbench.report.processes import in_processes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="all is done in one process")


def test_tasks_are_done_elsewhere_with_what_this_process_has_in_memory():
    things = [object()]
    with in_processes({"id": os.getpid, "thing": lambda: id(things[0])}, 2) as result:
        things.append(object())
        assert result("thing") == id(things[0])
        assert result("id") != os.getpid()


def test_with_one_core_they_are_done_here_and_only_if_asked_for():
    done = []
    with in_processes({"a": lambda: done.append("a"), "b": os.getpid}, 1) as result:
        assert result("b") == os.getpid()
    assert not done


def test_what_cannot_come_back_is_done_here():
    def unpicklable():
        return lambda: os.getpid()

    with in_processes({"one": unpicklable}, 2) as result:
        assert result("one")() == os.getpid()


def test_a_failure_is_raised_when_its_result_is_asked_for():
    def fail():
        raise ValueError(f"in {os.getpid()}")

    with in_processes({"bad": fail, "good": lambda: 1}, 2) as result:
        assert result("good") == 1
        with pytest.raises(ValueError, match=f"in {os.getpid()}"):
            result("bad")


def test_an_error_here_does_not_wait_for_tasks_that_have_not_begun():
    tasks = {str(i): lambda: time.sleep(0.5) for i in range(40)}
    begun = time.monotonic()
    with pytest.raises(KeyError), in_processes(tasks, 2):
        raise KeyError
    assert time.monotonic() - begun < 10
