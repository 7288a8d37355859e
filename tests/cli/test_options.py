"""Options and words that verbs share, and messages for values that are not allowed."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

import madbench.cli
from madbench.cli.shared.parameters import with_groups
from madbench.cli.shared.words import labels_and_overrides
from madbench.config import Override
from madbench.config.options import RARE_FOR, option, split_list
from madbench.errors import ConfigError


@dataclass(frozen=True)
class Size:
    width: Annotated[int, option("How wide.", min=1)] = 3
    is_deep: Annotated[bool, option("Whether deep.", "--deep")] = False


@pytest.mark.parametrize(
    ("words", "shown"),
    [([], "x Size(width=3, is_deep=False) 1\n"), (["--width", "5", "--deep"], "x Size(width=5, is_deep=True) 1\n")],
)
def test_a_verb_gets_the_options_of_a_group_as_one_value(words, shown):
    def verb(name: str, *, size: Size, seed: Annotated[int, option("Seed.")] = 1) -> None:
        print(name, size, seed)

    app = typer.Typer()
    app.command()(with_groups(verb))
    assert CliRunner().invoke(app, ["x", *words]).stdout == shown
    assert CliRunner().invoke(app, ["x", "--width", "0"]).exit_code == 2


@dataclass(frozen=True)
class Box:
    width: Annotated[int, option("How wide.")] = 3
    height: Annotated[int, option("How high.")] = 4
    given: tuple[str, ...] = ()


def test_an_option_group_knows_which_options_were_given_explicitly():
    def verb(*, box: Box, seed: Annotated[int, option("Seed.")] = 1) -> None:
        print(*box.given)

    def verb_with_context(context: typer.Context, *, box: Box) -> None:
        print(*box.given, context.params["width"])

    app = typer.Typer()
    app.command("a")(with_groups(verb))
    app.command("b")(with_groups(verb_with_context))
    run = CliRunner().invoke
    assert run(app, ["a", "--seed", "2"]).stdout == "\n"
    assert run(app, ["a", "--seed", "2", "--height", "4", "--width", "5"]).stdout == "width height\n"
    assert run(app, ["b", "--width", "3"]).stdout == "width 3\n"


def test_hiding_an_option_from_an_unknown_verb_is_an_error():
    assert option("Seed.", rare="run paper").rare == "run paper"
    with pytest.raises(ValueError, match="unknown verb runn; expected 'every verb' or some of: bench paper run"):
        option("Seed.", rare="runn sweep")
    commands = typer.main.get_command(madbench.cli.app).commands
    verbs = [*commands.values(), *commands["lm"].commands.values()]
    assert RARE_FOR <= {verb.callback.__name__ for verb in verbs}


def test_an_empty_list_of_tasks_is_refused():
    assert split_list(["a,b", "c"]) == ["a", "b", "c"] and split_list(None) is None
    for empty in ("", ",", " "):
        with pytest.raises(ConfigError, match="names no task"):
            split_list([empty])


def test_an_override_without_a_value_is_not_taken_for_a_label():
    assert labels_and_overrides(["S-c", "training.epochs=3"]) == (["S-c"], (Override.of("training.epochs", 3),))
    assert labels_and_overrides(["fam:a=1", "model.a=1"]) == (["fam:a=1"], (Override.of("model.a", 1),))
    with pytest.raises(ConfigError, match="write training.epochs=VALUE, and for .* my:training.epochs"):
        labels_and_overrides(["S-c", "training.epochs"])


@pytest.mark.parametrize(
    ("name", "says"), [("README.md", "is a file, no label"), ("mine.py", "a class in it is my:mine.CLASS")]
)
def test_a_file_among_labels_is_named_as_a_file(tmp_path, monkeypatch, name, says):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).touch()
    with pytest.raises(ConfigError, match=says):
        labels_and_overrides(["S-c", name])


@pytest.mark.parametrize("word", ["grid.yaml", "studies/lr.yml", "lag2.yaml"])
def test_a_grid_file_among_labels_is_refused_with_the_command_sweep(word):
    with pytest.raises(ConfigError, match=f"madbench sweep {word} trains a grid, @{word} is a set of labels"):
        labels_and_overrides(["S-c", word])
    assert labels_and_overrides([f"@{word}", f"a.b={word}"]) == ([f"@{word}"], (Override.of("a.b", word),))


@pytest.mark.slow
@pytest.mark.skipif(not os.access("/dev/full", os.W_OK), reason="needs a device that is always full")
@pytest.mark.parametrize("words", [("explain", "S"), ("ls", "labels", "-f", "json")])
def test_output_that_cannot_be_written_is_one_message(words):
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "madbench", *words]
        ended = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert ended.returncode == 2
    assert ended.stderr == "the output cannot be written: no space left where it goes\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("run", "S-p", "--budget", "flop"), "--budget 'flop': there is no such choice; did you mean 'flops'?"),
        (("table", "-f", "xml"), "-f 'xml': there is no such choice; expected one of: terminal, markdown, latex"),
    ],
)
def test_an_invalid_choice_is_refused_with_the_nearest_or_all_choices(main, words, said):
    ended = main(*words)
    assert ended.code == 2 and said in ended.stderr
