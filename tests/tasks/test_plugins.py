"""Tasks of installed packages: order, files, generated data, and packages that are refused."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import madbench
from madbench import config, tasks
from madbench.errors import ConfigError
from madbench.identity import plugins
from madbench.suites.mad.suite import MAD_TASKS
from madbench.tasks import (
    GROUP,
    REGISTRY,
    find_violations,
    generate,
    load_task,
    make_setting,
    settings_class,
    task_names,
    task_path,
)


@pytest.fixture
def prefix_sum(install_example):
    site = install_example("task")
    return site / "madbench_prefix_sum" / "prefix_sum.yaml"


@pytest.fixture
def install_point(monkeypatch):
    """``install_point(name, value)``: an entry point of another package."""

    def install(*points):
        found = [metadata.EntryPoint(name, value, GROUP) for name, value in points]
        monkeypatch.setattr(metadata, "entry_points", lambda group: found)
        REGISTRY.cache_clear()

    yield install
    REGISTRY.cache_clear()


@pytest.fixture(scope="module")
def built_in_tasks():
    """The built-in tasks in the order of their names: those with a file in the folder ``tasks``."""
    return tuple(sorted(path.stem for path in config.TASKS.glob("*.yaml") if path != tasks.HEURISTICS))


@pytest.mark.slow
def test_an_installed_task_comes_after_the_built_in_tasks(built_in_tasks, prefix_sum):
    assert task_names() == (*built_in_tasks, "prefix_sum")


def test_without_an_installed_task_there_are_the_built_in_tasks(built_in_tasks):
    assert task_names() == built_in_tasks
    assert len(MAD_TASKS) == 6 and set(MAD_TASKS) <= set(built_in_tasks)


def test_an_installed_task_has_its_file_beside_its_module(prefix_sum):
    assert task_path("prefix_sum") == load_task("prefix_sum").path == prefix_sum
    assert load_task("prefix_sum").baseline.vocab_size == 2
    assert (settings_class("prefix_sum").heading, settings_class("prefix_sum").title) == ("Prefix sum", "prefix sum")


@pytest.mark.slow
@pytest.mark.parametrize("vocab_size", [2, 5])
def test_an_installed_task_generates_data_that_hold_its_rules(prefix_sum, vocab_size):
    setting = make_setting("prefix_sum", {"vocab_size": vocab_size, "num_test_examples": 200}, "test")
    examples = generate("prefix_sum", setting, "test", 0)
    assert np.array_equal(examples.targets, examples.inputs.cumsum(axis=1) % vocab_size)
    assert find_violations(setting, examples, "test") == []
    assert len(np.unique(examples.targets)) == setting.num_answers == vocab_size
    assert tasks.ceiling("prefix_sum", setting, 0) == 1.0
    examples.targets[3, 7] = (examples.targets[3, 7] + 1) % vocab_size
    (violation,) = find_violations(setting, examples, "test")
    assert violation.startswith("example 3: position 7: ")


@pytest.mark.slow
def test_a_token_role_without_a_letter_is_a_violation(prefix_sum, monkeypatch):
    setting = make_setting("prefix_sum", {"num_test_examples": 1}, "test")
    monkeypatch.setattr(type(setting), "roles", {"number": "n"})
    (violation,) = find_violations(setting, generate("prefix_sum", setting, "test", 0), "test")
    assert "role 'digit'" in violation


@pytest.mark.slow
def test_tasks_are_listed_without_importing_them_or_numpy(prefix_sum):
    code = "import sys, madbench.tasks as t; assert 'prefix_sum' in t.task_names(); "
    code += "print({'numpy', 'yaml', 'madbench_prefix_sum'} & {*sys.modules})"
    root = Path(madbench.__path__[0]).parent
    found = subprocess.run([sys.executable, "-c", code], check=True, cwd=root, capture_output=True, text=True)
    assert found.stdout.strip() == "set()"


@pytest.mark.parametrize(
    ("points", "message"),
    [
        ([("mine", "nowhere_to_be_found:Task")], "task 'mine' (nowhere_to_be_found:Task): cannot be loaded"),
        ([("mine", "madbench.tasks.compression:Nothing")], "cannot be loaded: AttributeError"),
        ([("mine", "madbench.tasks.base:Examples")], "expected a subclass of madbench.tasks.base.TaskSetting"),
        ([("mine", "madbench.tasks.base:TaskSetting")], "the class has no 'heading'"),
        ([("mine", "a:Task"), ("mine", "b:Task")], "a:Task has this name already"),
        ([("language_model", "a:Task")], "none of language_model, mad_average"),
        ([("my.task", "a:Task")], "of the form my_task"),
    ],
)
def test_a_broken_installed_task_is_refused(install_point, points, message):
    install_point(*points)
    with pytest.raises(ConfigError) as error:
        settings_class(points[0][0])
    assert message in str(error.value)


def test_a_package_that_is_found_twice_is_one_task(built_in_tasks, install_point):
    install_point(("mine", "a:Task"), ("mine", "a:Task"))
    assert task_names() == (*built_in_tasks, "mine")


@pytest.mark.slow
def test_editing_an_installed_task_changes_its_identity(prefix_sum):
    first = tasks.task_source("prefix_sum")
    assert first.startswith("0.1.0+") and {tasks.task_source(task) for task in MAD_TASKS} == {""}
    prefix_sum.write_text(prefix_sum.read_text().replace("num_train_examples: ", "num_train_examples: 1"))
    plugins.plugin_code.cache_clear()
    plugins.plugin_identity.cache_clear()
    assert tasks.task_source("prefix_sum") != first
