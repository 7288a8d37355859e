"""The README says what is so: its commands parse, its table is the quick profile's, its set of labels exists."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

from madbench.cli import app
from madbench.cli.words import labels_and_overrides
from madbench.labels import expand
from madbench.mixers import solve
from madbench.suites.language.suite import LanguageProfile
from madbench.suites.mad.suite import MadProfile
from tests.conftest import forget_installed

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```\w*\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    re.sub(r"\s#.*", "", line.removeprefix("$ ")).strip()
    for block in BLOCKS
    for line in block.splitlines()
    if line.removeprefix("$ ").startswith("madbench ")
]
VERBS = typer.main.get_command(app).commands


@pytest.fixture(autouse=True, scope="module")
def own_mixer(tmp_path_factory):
    """The README's module, in the file and folder where its commands look for it."""
    (block,) = [block for block in BLOCKS if "class MyMixer" in block]
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_mixers.py").write_text(block)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("my_mixers", None)
    forget_installed()


def test_the_module_of_one_s_own_is_a_mixer():
    allocation = solve("my:my_mixers.MyMixer", 32)
    assert allocation.total == 33 * 32 and not allocation.leak


def test_there_are_commands_to_check():
    assert len(COMMANDS) > 8


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_a_verb_and_labels_and_settings_that_exist(command):
    _, verb, *words = shlex.split(command.split(",")[0] if command.startswith("madbench ls,") else command)
    assert verb in VERBS
    if verb == "lm" and words[0] in VERBS["lm"].commands:
        VERBS["lm"].commands[words[0]].make_context(words[0], words[1:])
        return
    if verb not in ("run", "lm", "explain", "table"):
        return
    words = [word for word in words if word != "--cost"]
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    labels, overrides = labels_and_overrides(words[:first_option])
    if verb == "lm":
        LanguageProfile.load("tiny", overrides)
    else:
        MadProfile.load("quick", [override for override in overrides if not override.startswith("language_model.")])
    if labels != ["G-cx-q-12o"]:  # shown for its error
        assert expand(labels) or verb == "table"


@pytest.mark.parametrize("part", ["run", "test"])
def test_the_two_lines_of_the_first_screen_are_marked_for_ci(part):
    (line,) = re.findall(rf"<!-- {part} -->\n```bash\n(.*)\n```", README)
    assert line.startswith("python3 -m venv .venv && ")


def test_the_table_of_the_quick_profile_has_all_labels_of_table_1():
    section = README.split("## The quick profile")[1].split("\n## ")[0]
    rows = re.findall(r"^\| ([SRG]\S*) \|", section, re.MULTILINE)
    assert rows == expand(["@table1"])
