from __future__ import annotations

import os
import subprocess
import sys

import pytest

from madbench.cli.options import labels_and_overrides, parse_seeds, split_list
from madbench.errors import ConfigError


@pytest.mark.parametrize(("text", "seeds"), [("0", [0]), ("0,1, 2", [0, 1, 2]), ("3-5,9", [3, 4, 5, 9])])
def test_seeds_are_numbers_and_ranges(text, seeds):
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "-1", "1.5", "0-", "0,,1", "1_0", "\u0663", "2-1", "0,0", "0-1000000000000"])
def test_what_is_no_list_of_seeds_is_refused(text):
    with pytest.raises(ConfigError, match="--seeds"):
        parse_seeds(text)


def test_tasks_that_name_none_are_refused():
    assert split_list(["a,b", "c"]) == ["a", "b", "c"] and split_list(None) is None
    for empty in ("", ",", " "):
        with pytest.raises(ConfigError, match="no task named"):
            split_list([empty])


def test_an_override_without_a_value_is_not_taken_for_a_label():
    assert labels_and_overrides(["S-c", "training.epochs=3"]) == (["S-c"], ["training.epochs=3"])
    with pytest.raises(ConfigError, match="write training.epochs=VALUE"):
        labels_and_overrides(["S-c", "training.epochs"])


@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("explain", "S"), ("ls", "labels", "--json")])
def test_output_that_cannot_be_written_is_one_message(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "madbench", *words]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == "the output cannot be written: no space left where it goes\n"
