"""Values of arguments are checked against the declared options, before anything is read or trained."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import NoneType
from typing import Literal, get_args, get_origin, get_type_hints

import numpy as np
import pytest

import madbench
from api_calls import TINY
from madbench.analysis.choice import Choice
from madbench.analysis.tables import TableOptions
from madbench.api.arguments import EXECUTION
from madbench.config.allowed import check_argument
from madbench.config.options import declared_parameter
from madbench.errors import ConfigError
from madbench.experiment.options import GridOptions, SharedOptions, TrainingCorpus
from madbench.store.runs import Store

TRAINING = (GridOptions, SharedOptions, TrainingCorpus, *EXECUTION)
FUNCTIONS = {
    **{getattr(madbench, name): TRAINING for name in ("run", "plan", "sweep", "run_language_model")},
    **{getattr(madbench, name): (Choice,) for name in ("table", "compare", "attribute", "audit", "findings", "plot")},
    madbench.open("results").select: (Choice,),
}
"""The public functions with options, and the dataclasses that declare these options."""
WRONG = {
    bool: ["no", 1, [True]],
    int: ["two", "2", 1.5, True, [1]],
    float: [True, [1.0]],
    str: [1.5, b"x"],
    Path: [3, ["x"]],
    Literal: ["neither", 3, ["strict"]],
    "list": [3, True],
}
"""Wrong values by the type of an option. No option has the type ``object``, which is tried for each option too."""
CORRECT = {
    "group": ["auto", 3],
    "devices": [0, "0,1", [0, 1], (1,)],
    "time_limit": ["2m", 120, 1.5],
    "track": ["wandb", ["wandb", "tensorboard"], []],
    "on": ["slurm:cluster.yaml"],
    "tasks": ["mad", ["compression"], {"compression"}, ("compression",), {"compression": 1}.keys()],
    "seeds": ["0-4", 3, [0, 1], (0, 2), range(3)],
    "results": ["results", Path("results")],
    "profile": ["evening", Path("evening.yaml")],
    "budget": ["strict", "parameters"],
    "tokenizer": ["bytes"],
}
"""Correct values of arguments, with those forms that only Python has."""


def declared(sources, names):
    """The type and the declaration of each option in ``sources`` that a function has, by name."""
    for source in reversed(sources):
        for name, hint in get_type_hints(source, include_extras=True).items():
            if name in names and (option := declared_parameter(hint)):
                yield name, get_args(hint)[0], option


def without_none(hint):
    """The type of an option that is not None: ``int`` for ``int | None``."""
    members = get_args(hint)
    return next(member for member in members if member is not NoneType) if NoneType in members else hint


def kind_of(hint):
    """The key of ``WRONG`` for the type of an option."""
    kind = get_origin(without_none(hint)) or without_none(hint)
    return kind if kind in WRONG else "list"


OPTIONS = [
    pytest.param(function, name, hint, option, id=f"{function.__name__}-{name}")
    for function, sources in FUNCTIONS.items()
    for name, (hint, option) in {
        name: found for name, *found in declared(sources, inspect.signature(function).parameters)
    }.items()
]


@pytest.mark.parametrize("function, name, hint, option", OPTIONS)
def test_a_wrong_value_of_an_option_is_refused_by_name(
    function, name, hint, option, fake_executor, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    values = [object(), *WRONG[kind_of(hint)]]
    values += [bound + 1 for key, bound in option.settings.items() if key == "max"]
    values += [bound - 1 for key, bound in option.settings.items() if key == "min"]
    for value in values:
        with pytest.raises(ConfigError, match=rf"^{name}\b") as caught:
            function("S", **{name: value})
        assert str(value)[:20] in str(caught.value)
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize("function, name, hint, option", OPTIONS)
def test_the_correct_values_of_an_option_pass(function, name, hint, option):
    parameter = inspect.signature(function).parameters[name]
    values = [parameter.default, *CORRECT.get(name, [])]
    values += get_args(without_none(hint)) if kind_of(hint) is Literal else []
    values += [True, False] if hint is bool else []
    values += [option.settings[key] for key in ("min", "max") if key in option.settings]
    for value in values:
        check_argument(name, value, parameter.annotation, option)


def test_all_options_with_a_minimum_are_found():
    names = {parameter.values[1] for parameter in OPTIONS if "min" in parameter.values[3].settings}
    assert {"slots", "threads", "micro_batch", "max_failures"} <= names


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"keep_weights": "no"}, "keep_weights: expected True or False, got 'no'"),
        ({"force": "no"}, "force: expected True or False, got 'no'"),
        ({"slots": 0}, "slots must be at least 1, got 0"),
        ({"slots": "2"}, "slots: expected a whole number or None, got '2'"),
        ({"threads": 5000}, "threads must be at most 1,024, got 5000"),
        ({"micro_batch": 0}, "micro_batch must be at least 1, got 0"),
        ({"group": 0}, "group: '0' is neither auto nor a number of jobs above 0"),
        ({"group": "x"}, "group: expected a whole number, 'auto' or None, got 'x'"),
        ({"compile": "alway"}, "compile: 'alway' is not allowed; did you mean 'always'?"),
        ({"compile": None}, "compile: expected 'never', 'auto' or 'always', got None"),
        ({"results": None}, "results: expected a path or text, got None"),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",
)
@pytest.mark.parametrize("function", [madbench.run, madbench.sweep, madbench.run_language_model])
def test_the_message_says_what_is_allowed(function, arguments, message, fake_executor, tmp_path):
    with pytest.raises(ConfigError) as caught:
        function("S", **{"results": tmp_path / "results"} | arguments)
    assert str(caught.value) == message
    assert not (tmp_path / "results").exists()


def test_truth_values_of_functions_that_show_runs_are_checked(stored_arguments):
    for name, value in {"ranks": "no", "costs": 1}.items():
        with pytest.raises(ConfigError, match=f"{name}: expected True or False, got {value!r}"):
            madbench.table(**stored_arguments, **{name: value})


def test_numbers_of_numpy_are_values_of_options(fake_executor, tmp_path):
    madbench.run(
        "S", tasks="compression", overrides=TINY, device="cpu", results=tmp_path, threads=np.int64(2),
        micro_batch=np.int32(4), keep_weights=np.True_, time_limit=np.float32(90), group=np.int8(1),
    )  # fmt: skip
    options = fake_executor.train["options"]
    assert (options.micro_batch, options.keep_weights, fake_executor.train["threads"]) == (4, True, 2)
    assert fake_executor.policy.time_limit == 90


@pytest.mark.parametrize("function", [madbench.run, madbench.plan, madbench.sweep, madbench.table])
@pytest.mark.parametrize("tasks", [[], (), set()], ids=repr)
def test_an_empty_list_of_tasks_is_refused(function, tasks, fake_executor, tmp_path):
    with pytest.raises(ConfigError, match=r"tasks=\[\]: names no task"):
        function("S", tasks=tasks, results=tmp_path / "results")


FUNCTIONS_WITH_TASKS = [madbench.run, madbench.plan, madbench.sweep, madbench.table, madbench.attribute, madbench.load]


@pytest.mark.parametrize("function", FUNCTIONS_WITH_TASKS)
@pytest.mark.parametrize("made", [list, tuple, set, iter])
def test_a_task_that_is_no_text_is_refused(function, made, fake_executor, tmp_path):
    Store.open(tmp_path)
    with pytest.raises(ConfigError, match=r"^(grid: )?tasks(\[0\])?: expected text, got 3$"):
        function("S", tasks=made([3]), results=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"overrides": [3]}, "overrides[0]: expected text, got 3"),
        ({"seeds": [0, "a"]}, "seeds[1]: expected a whole number, got 'a'"),
        ({"track": ["wandb", 3]}, "track[1]: expected text, got 3"),
        ({"devices": [0, 1.5]}, "devices[1]: expected a whole number, got 1.5"),
        ({"rename": {"S": 3}}, "rename: S: expected text, got 3"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_the_items_of_an_argument_are_checked(arguments, message, fake_executor, tmp_path):
    with pytest.raises(ConfigError) as caught:
        madbench.run("S", tasks="compression", results=tmp_path / "results", **arguments)
    assert str(caught.value) == message


SELECTION = madbench.open("results").select(["S", "R"])


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        (madbench.open, {"results": 3}, "results: expected a path or text, got 3"),
        (madbench.load, {"run": 3}, "run: expected text or a path, got 3"),
        (madbench.load, {"run": "S", "results": None}, "results: expected a path or text, got None"),
        (SELECTION.table, {"shows": "SD"}, "shows: 'SD' is not allowed; expected one of: interval, sd, rank"),
        (SELECTION.table, {"shows": 3}, "shows: expected 'interval', 'sd' or 'rank', got 3"),
        (SELECTION.table, {"thresholds": ["a"]}, "thresholds[0]: expected a number, got 'a'"),
        (SELECTION.table, {"thresholds": "2.0"}, "thresholds: expected a list or None, got '2.0'"),
        (SELECTION.table, {"has_baseline": "no"}, "has_baseline: expected True or False, got 'no'"),
        (SELECTION.compare, {"within": "x"}, "within: expected a number, a mapping or None, got 'x'"),
        (SELECTION.compare, {"within": {"mad_average": "x"}}, "within: mad_average: expected a number, got 'x'"),
        (SELECTION.attribute, {"shows_pairs": 1}, "shows_pairs: expected True or False, got 1"),
        (SELECTION.audit, {"against": "quick"}, "against: expected a Selection or None, got 'quick'"),
        (SELECTION.findings, {"claims": 3}, "claims: expected a path, text or None, got 3"),
        (SELECTION.plot, {"figure": 3}, "figure: expected text, got 3"),
        (
            SELECTION.plot,
            {"figure": "scores", "width": "x"},
            "width: 'x' is not allowed; expected one of: single, double",
        ),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_wrong_arguments_of_open_load_and_selections_are_refused(function, arguments, message):
    with pytest.raises(ConfigError) as caught:
        function(**arguments)
    assert str(caught.value) == message


def test_an_unknown_argument_of_a_selection_names_the_method():
    with pytest.raises(TypeError, match=r"^Selection.table\(\) got an unexpected keyword argument 'show'$"):
        SELECTION.table(show="sd")


def test_options_of_a_table_with_an_unknown_content_of_cells_are_refused():
    with pytest.raises(ConfigError, match="shows: 'SD' is not allowed; expected one of: interval, sd, rank"):
        TableOptions(shows="SD")


@pytest.mark.parametrize("function", [madbench.run, madbench.plan, madbench.sweep, madbench.run_language_model])
def test_an_empty_list_of_labels_trains_nothing(function, fake_executor, tmp_path):
    with pytest.raises(ConfigError, match="give at least one label"):
        function([], results=tmp_path / "results")
