"""Errors of the public functions name the arguments of Python."""

from __future__ import annotations

import pytest

import madbench
from madbench.api.calls import named_as_arguments
from madbench.errors import ConfigError


def test_an_error_about_an_option_names_the_argument(tmp_path):
    with pytest.raises(ConfigError, match="^fidelity=published: has no effect, the tasks are language_model$"):
        madbench.table("S-p", fidelity="published", tasks="language_model", results=tmp_path)


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
def test_only_options_that_the_function_has_are_renamed_and_no_command(text, said):
    with pytest.raises(ConfigError) as caught, named_as_arguments({"protocol", "group", "sort_by"}):
        raise ConfigError(text)
    assert str(caught.value) == said
