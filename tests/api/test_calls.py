"""Errors of the public functions name the arguments of Python."""

from __future__ import annotations

import pytest

import madbench
from api_calls import CHOSEN
from command_line import main
from madbench.api.calls import named_as_arguments
from madbench.errors import ConfigError

__all__ = ["main"]


WRONG_CALLS = {
    "fidelity": (
        lambda: madbench.table("S-p", fidelity="published", tasks="language_model"),
        "table S-p --fidelity published -t language_model",
        "--fidelity published has no effect: the tasks are language_model",
        "fidelity=published has no effect: the tasks are language_model",
    ),
    "protocol": (
        lambda: madbench.table("S", protocol="abc", profile="tiny", tasks="language_model"),
        "table S --protocol abc --profile tiny -t language_model",
        "--protocol abc, --profile tiny: each chooses the runs; give only one",
        "protocol=abc, profile=tiny: each chooses the runs; give only one",
    ),
    "tokenizer": (
        lambda: madbench.run_language_model("S", tokenizer="none:64"),
        "lm S --tokenizer none:64",
        "--tokenizer none:64 has no effect without --corpus",
        "tokenizer=none:64 has no effect without corpus",
    ),
    "corpus": (
        lambda: madbench.sweep("S", tasks="memorization", corpus="x"),
        "sweep S -t memorization --corpus x",
        "--corpus x has no effect: no language model is trained",
        "corpus=x has no effect: no language model is trained",
    ),
    "task": (
        lambda: madbench.table("S", tasks="compresion"),
        "table S -t compresion",
        "unknown task 'compresion'; did you mean 'compression'?",
        "unknown task 'compresion'; did you mean 'compression'?",
    ),
}
"""Wrong calls: the Python call, the same arguments on the command line, and the message of each."""


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_an_error_about_an_option_names_the_argument_in_python(name, main):
    call, words, of_command_line, of_python = WRONG_CALLS[name]
    ended = main(*words.split())
    assert (ended.code, ended.stderr) == (2, f"{of_command_line}\n")
    with pytest.raises(ConfigError) as caught:
        call()
    assert str(caught.value) == of_python


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("--protocol ID and --sort-by: give one", "protocol=ID and sort_by: give one"),
        ("--group 2 has no effect with --compile", "group=2 has no effect with --compile"),
        ("--sort-by has no effect without --group", "sort_by has no effect without group"),
        (
            "no corpus; give --protocol ID, or see madbench table --group 2",
            "no corpus; give protocol=ID, or see madbench table --group 2",
        ),
        ("say with --group what both are", "say with group what both are"),
        ("no run: madbench run S --group 2 makes some", "no run: madbench run S --group 2 makes some"),
    ],
)
def test_error_messages_rename_only_options_that_the_function_has(text, said):
    with pytest.raises(ConfigError) as caught, named_as_arguments({"protocol", "group", "sort_by"}):
        raise ConfigError(text)
    assert str(caught.value) == said


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (
            lambda: madbench.compare("S-p", "my:ops.Decay"),
            "labels are given as a list: compare(['S-p', 'my:ops.Decay'])",
        ),
        (lambda: madbench.sweep("S-p", "R"), "labels are given as a list: sweep(['S-p', 'R'])"),
        (lambda: madbench.plot("loss", "S", "R"), "labels are given as a list: plot('loss', ['S', 'R'])"),
        (lambda: madbench.open("r").select("S", "R"), "labels are given as a list: select(['S', 'R'])"),
        (lambda: madbench.run("S", 3), "by position it takes only labels"),
        (lambda: madbench.plot("loss", ["S"], "R"), "by position it takes only figure and labels"),
    ],
)
def test_labels_that_are_not_in_a_list_are_refused_with_the_right_call(call, said):
    with pytest.raises(TypeError, match=r"^\w+\(\) too many positional arguments; ") as caught:
        call()
    assert str(caught.value).endswith(f"; {said}")


@pytest.mark.slow
def test_labels_of_a_generator_are_those_of_a_list(stored_arguments):
    labels = ["R-cg-q", "R-g-q"]
    for verb in (madbench.table, madbench.compare):
        expected = verb(labels, **stored_arguments)
        assert verb((label for label in labels), **stored_arguments).equals(expected)
    chosen = CHOSEN | {"tasks": iter(["compression"])}
    query = madbench.open(stored_arguments["results"]).select(iter(labels), **chosen)
    assert sorted(query.table().rows) == labels
