"""``madbench new`` writes a working package under its own name and overwrites nothing."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from pathlib import Path

import pytest

from madbench.cli.new import EXAMPLE
from madbench.cli.shared.packages import KINDS
from madbench.config import EXAMPLES

COMMANDS_BY_KIND = {
    "family": ("explain", "blue_wave:elu-g"),
    "task": ("data", "blue_wave"),
    "suite": ("data", "blue_wave_parity"),
    "paper": ("paper", "blue_wave"),
    "module": ("explain", "my:blue_wave"),
}


def texts_by_path(folder: Path) -> dict[str, str]:
    """The text of every file of a package, by path."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def run_tests_of(folder: Path) -> int:
    """Run the tests of a package in this process, and return their number."""
    count = 0
    for path in sorted((folder / "tests").glob("test_*.py")):
        spec = importlib.util.spec_from_file_location(f"{folder.name}_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, value in vars(module).items():
            if name.startswith("test_"):
                value()
                count += 1
    return count


@pytest.mark.slow
@pytest.mark.parametrize("kind", EXAMPLE)
def test_a_package_written_by_new_is_found_and_used(main, tmp_path, install_example, kind):
    ended = main("new", kind, "blue-wave")
    assert ended.code == 0 and f"the {kind} blue_wave" in ended.stdout and "pip install -e blue-wave" in ended.stdout
    install_example(tmp_path / "blue-wave")
    assert "blue_wave" in KINDS[kind].names() and "blue_wave" not in KINDS[kind].broken()
    used = main(*COMMANDS_BY_KIND[kind])
    assert used.code == 0, used.stderr


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in EXAMPLE if kind not in ("family", "module")])
def test_a_package_written_by_new_passes_its_own_tests(main, tmp_path, install_example, kind):
    assert main("new", kind, "blue-wave").code == 0
    install_example(tmp_path / "blue-wave")
    assert run_tests_of(tmp_path / "blue-wave") >= 2


@pytest.mark.parametrize("kind", EXAMPLE)
def test_a_new_package_contains_no_name_of_the_example(main, tmp_path, kind):
    assert main("new", kind, "blue-wave").code == 0
    example = EXAMPLE[kind]
    names = re.compile("|".join([f"examples/{example.folder}", example.package, *example.spellings]))
    own = re.compile("blue_wave_(parity|majority)")
    for place, text in texts_by_path(tmp_path / "blue-wave").items():
        assert not names.search(own.sub("", place + text)), place
        compile(text, place, "exec") if place.endswith(".py") else None


@pytest.mark.slow
def test_two_packages_of_every_kind_live_side_by_side(main, tmp_path, install_example):
    for kind in EXAMPLE:
        for name in (f"red_{kind}", f"green_{kind}"):
            assert main("new", kind, name).code == 0
            install_example(tmp_path / name)
    for kind in EXAMPLE:
        assert {f"red_{kind}", f"green_{kind}"} <= set(KINDS[kind].names())
    assert not any(broken for other in KINDS.values() for broken in other.broken())


def test_every_example_can_be_written_and_is_in_the_wheel():
    folders = {path.parent.name for path in EXAMPLES.glob("*/pyproject.toml")}
    assert folders == {example.folder for example in EXAMPLE.values()} and set(EXAMPLE) == KINDS.keys() - {"checks"}
    project = tomllib.loads((EXAMPLES.parent / "pyproject.toml").read_text(encoding="utf-8"))
    included = project["tool"]["hatch"]["build"]["targets"]["wheel"]["force-include"]
    assert {f"examples/{folder}" for folder in folders} == {place for place in included if place.startswith("examples")}
    for folder in folders:
        lines = (EXAMPLES / folder / "README.md").read_text(encoding="utf-8").splitlines()
        assert sum(line.startswith("    ") for line in lines) >= 5


def test_files_left_by_running_an_example_are_not_copied_by_new(main, tmp_path, monkeypatch):
    import shutil

    copy = shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr("madbench.cli.new.EXAMPLES", copy)
    assert main("new", "module", "clean").code == 0
    for place in ("__pycache__/x.py", ".hidden/x.py", "weights.bin", "madbench_decay/__pycache__/y.py"):
        path = copy / "module" / place
        path.parent.mkdir(exist_ok=True)
        path.write_text("left")
    assert main("new", "module", "other").code == 0
    assert len(texts_by_path(tmp_path / "other")) == len(texts_by_path(tmp_path / "clean"))


def test_new_refuses_a_folder_with_files_and_fills_an_empty_one(main, tmp_path):
    (tmp_path / "wave").mkdir()
    (tmp_path / "wave" / "mine.txt").write_text("mine")
    ended = main("new", "task", "wave")
    assert ended.code == 2 and "wave: already exists" in ended.stderr
    assert texts_by_path(tmp_path / "wave") == {"mine.txt": "mine"}
    (tmp_path / "wave" / "mine.txt").unlink()
    assert main("new", "task", "wave").code == 0
    assert main("new", "task", "wave").code == 2
    (tmp_path / "file").write_text("")
    assert main("new", "task", "file").code == 2 and (tmp_path / "file").read_text() == ""


def test_new_into_writes_below_the_given_folder_and_refuses_a_file(main, tmp_path):
    ended = main("new", "module", "wave", "--into", "a/b")
    assert ended.code == 0 and "next, in a/b" in ended.stdout and (tmp_path / "a/b/wave/pyproject.toml").exists()
    (tmp_path / "file").write_text("")
    ended = main("new", "module", "wave", "--into", "file")
    assert ended.code == 2 and "file" in ended.stderr and "Traceback" not in ended.stderr


def test_a_disk_that_fills_leaves_no_half_package(main, tmp_path, monkeypatch):
    write, count = Path.write_text, []

    def full(self, *words, **settings):
        count.append(self)
        if len(count) > 2:
            raise OSError(28, "No space left on device", str(self))
        return write(self, *words, **settings)

    monkeypatch.setattr(Path, "write_text", full)
    ended = main("new", "task", "wave")
    assert ended.code == 2 and "no space left" in ended.stderr and not (tmp_path / "wave").exists()


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("Wave", "'wave'"), ("my wave", "'my_wave'"), ("2wave", "'wave'"), ("wave-", "'wave'"), ("a/b", "'a_b'"),
        ("..", "such as my_task"), ("", ""), ("w\u00e4ve", "'w_ve'"), ("-", ""), ("__", "such as my_task"),
        ("wave\n", "'wave'"), ("x" * 41, "at most"),
    ],
)  # fmt: skip
def test_an_invalid_package_name_is_refused_with_a_suggestion(main, tmp_path, name, near):
    ended = main("new", "task", "--", name)
    assert ended.code == 2 and near in ended.stderr and "Traceback" not in ended.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("kind", "name", "problem"),
    [
        ("family", "cd", "there is a family of this name already"),
        ("family", "my", "there is a family of this name already"),
        ("task", "compression", "there is a task of this name already"),
        ("task", "in-context-recall", "there is a task of this name already"),
        ("task", "colliding", "there is a task of this name already"),
        ("task", "language_model", "none of language_model"),
        ("suite", "mad", "there is a suite of this name already"),
        ("paper", "hypermlp", "there is a paper of this name already"),
        ("module", "mean", "there is a module of this name already"),
        ("task", "checked-example", "means something else"),
        ("task", "sequence", "means something else"),
        ("task", "null", "means something else"),
        ("task", "true", "means something else"),
        ("suite", "yes", "means something else"),
        ("task", "none", "means something else"),
        ("module", "tensor", "means something else"),
        ("tusk", "wave", "did you mean 'task'?"),
        ("thing", "wave", "expected one of: family, task, suite, paper, module"),
    ],
)
def test_a_package_name_that_is_taken_or_reserved_is_refused(main, tmp_path, kind, name, problem):
    ended = main("new", kind, name)
    assert ended.code == 2 and problem in ended.stderr and not list(tmp_path.iterdir())


@pytest.mark.slow
def test_the_name_of_an_installed_package_is_refused(main, install_example):
    install_example("task")
    assert "of this name already" in main("new", "task", "prefix-sum").stderr


@pytest.mark.parametrize("kind", EXAMPLE)
def test_the_command_that_tests_a_package_says_what_it_needs(main, kind):
    """``pip install madbench`` brings no pytest."""
    (line,) = [line for line in main("new", kind, "blue-wave").stdout.splitlines() if line.strip().startswith("pytest")]
    assert "pip install pytest" in line


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "kinds: family, task, suite, paper, module, claim"),
        (["task"], "new task: expected a name"),
        (["claim"], "new claim: expected a sentence"),
        (["tsak"], "did you mean 'task'?"),
    ],
)
def test_a_kind_or_a_name_that_is_missing_is_asked_for(main, words, says):
    refused = main("new", *words)
    assert refused.code == 2 and says in refused.stderr
