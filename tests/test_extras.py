"""The install commands of messages work: in a checkout, and for a wheel that is on no index."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from madbench import errors, extras
from madbench.cli import main
from madbench.errors import MissingExtraError
from madbench.mixers.recurrence import library


@pytest.fixture
def as_wheel(monkeypatch, tmp_path):
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)


def test_a_checkout_installs_an_extra_of_its_own_folder(monkeypatch):
    monkeypatch.chdir(extras.CHECKOUT)
    assert extras.how_to_install("wandb") == "pip install -e '.[wandb]'"
    assert str(MissingExtraError("--track wandb", "wandb")).endswith(": pip install -e '.[wandb]'")


def test_outside_the_checkout_the_install_command_names_its_folder(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert extras.how_to_install("wandb") == f"pip install -e '.[wandb]' in {extras.CHECKOUT}"


def test_a_wheel_adds_the_extra_to_what_is_installed(as_wheel):
    assert str(MissingExtraError("--track wandb", "wandb")).endswith(": pip install 'madbench[wandb]'")


def test_a_folder_with_another_project_is_no_checkout(monkeypatch, tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "other"\n', encoding="utf-8")
    monkeypatch.setattr(extras, "CHECKOUT", tmp_path)
    assert extras.project() is None


def test_no_message_spells_the_command_for_an_extra_itself():
    package = Path(errors.__file__).parent
    spelled = re.compile(r"pip install[^\n]*(madbench|\.)\[")
    found = [str(path) for path in package.rglob("*.py") if spelled.search(path.read_text(encoding="utf-8"))]
    assert found == [str(package / "extras.py")]


def test_run_refuses_a_tracker_that_is_not_installed(monkeypatch, capsys, tmp_path):
    monkeypatch.setitem(sys.modules, "wandb", None)  # as if it were not installed
    monkeypatch.chdir(tmp_path)
    words = ["madbench", "run", "S", "-t", "compression", "--track", "wandb", "--results", str(tmp_path)]
    monkeypatch.setattr("sys.argv", words)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2 and "pip install -e '.[wandb]'" in capsys.readouterr().err


def test_missing_kernels_of_coefficient_dynamics_name_the_extra(monkeypatch):
    monkeypatch.setattr(library.torch.cuda, "is_available", lambda: True)
    monkeypatch.setitem(library.MODULES, "chunk_gla", "no_such_module")
    with pytest.raises(errors.TrainingError, match=r"pip install -e '\.\[fla\]'"):
        library.operator("chunk_gla")
