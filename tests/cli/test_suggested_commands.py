"""The commands that messages suggest: they name the results folder of the command that printed them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

ELSEWHERE = ("--results", "else where")
TRAINS = "madbench run G-cg-q-12o"


@pytest.fixture
def moved(fill) -> None:
    """A results folder that is not the default one, with a run of S on each of two tasks."""
    fill("S")
    shutil.move("results", "else where")


@pytest.mark.usefixtures("moved")
@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("table -t language_model", f"{TRAINS} -t language_model --results 'else where' makes some"),
        ("plot loss", f"{TRAINS} -t language_model --results 'else where' makes some"),
        ("compare S R -t language_model", "madbench run S R -t language_model --results 'else where' makes some"),
        ("table -t language_model", "are in madbench table -t compression --results 'else where'"),
        ("lm sample S", "madbench lm S --results 'else where' trains one"),
        ("inspect S-c -t compression", "madbench run S-c -t compression --keep-weights --results 'else where' trains"),
    ],
)
def test_a_suggested_command_names_the_results_folder(words, command, main):
    ended = main(*words.split(), *ELSEWHERE)
    assert ended.code == 2 and command in ended.stderr


@pytest.mark.usefixtures("moved")
def test_the_command_for_labels_to_compare_names_the_results_folder(main, tiny):
    ended = main("compare", "S", "R", "-p", tiny, *ELSEWHERE)
    (command,) = (line for line in ended.stderr.splitlines() if "madbench run R -t " in line)
    assert ended.code == 2 and f"--profile {tiny}" in command and command.endswith("--results 'else where'")


def test_a_store_without_runs_suggests_a_command_for_this_store(main):
    Path("else where/runs").mkdir(parents=True)
    assert f"{TRAINS} --results 'else where' makes some" in main("ls", "runs", *ELSEWHERE).stdout
    assert f"{TRAINS} --results 'else where' makes some" in main("table", *ELSEWHERE).stderr


@pytest.mark.usefixtures("moved")
def test_a_profile_without_runs_suggests_a_command_with_its_tasks(main, tiny):
    ended = main("audit", "--against", "quick", "-p", tiny, "-t", "compression", *ELSEWHERE)
    assert f"{TRAINS} -t compression --profile quick --results 'else where' makes some" in ended.stderr, ended.stderr
