"""The cost of a change: a copy of madbench gets a letter, an operator, a task, a family, a suite and more.

The files that are edited and added are counted, and the copy is used in a process of its own.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OPERATORS = "madbench/mixers/named/operators"
PARTS = ("madbench", "tasks", "variants", "tests", "pyproject.toml")
LETTER = {
    "grammar.py": {
        '    Letter("q", "QK compressed",': """\
    Letter("u", "readout gain",
        "Each channel of what a head reads out is scaled by a learned number, the same in all heads.",
        "o_t <- gain * o_t", "a letter for a test",
        "features", "readout_gain", terms=("readout_gain",), is_in_table1=False),
    Letter("q", "QK compressed",""",
        "    registers: bool = False": "    readout_gain: bool = False  # u\n    registers: bool = False",
    },
    "budget.py": {
        '    "registers": Term(': """\
    "readout_gain": Term("d_vo", "gain of the readout", lambda a: a.vo_width),
    "registers": Term(""",
    },
    "dynamic_mlp.py": {
        "        self.is_from_end =": """\
        self.readout_gain = nn.Parameter(torch.empty(allocation.vo_width)) if variant.readout_gain else None
        self.is_from_end =""",
        'name.endswith("_norm.weight")': 'name.endswith(("_norm.weight", "readout_gain"))',
        "        if self.head_norm:\n": """\
        if self.readout_gain is not None:
            o = o * self.readout_gain.to(o.dtype)
        if self.head_norm:
""",
    },
    "reference.py": {
        '            if variant.base == "D" and not is_v2:\n                o =': """\
            if variant.readout_gain:
                o = w["readout_gain"] * o
            if variant.base == "D" and not is_v2:
                o =""",
    },
}
"""The edits of a letter: by file of ``mixers/srg`` a text that is in it once, and what it becomes."""
TESTS_OF_LETTERS = [
    "tests/labels",
    *(f"tests/mixers/srg/test_{name}.py" for name in ("grammar", "diagnosis", "meaning", "checks", "parameters")),
    "tests/cli/test_ls.py",
]
SLOW_TEST_OF_LETTERS = "tests/analysis/test_contrasts.py::test_every_pair_of_one_difference_is_found_once"


def contents(root: Path) -> dict[str, bytes]:
    """The files of a clone, without what Python leaves."""
    places = [root / part for part in PARTS] + [*root.glob("*.py")]
    files = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if "__pycache__" not in path.parts}


class Clone:
    """A copy of madbench with its tests."""

    def __init__(self, root: Path):
        self.root = root
        for part in PARTS:
            copy = shutil.copytree if (ROOT / part).is_dir() else shutil.copy
            copy(ROOT / part, root / part)
        for cache in [*root.rglob("__pycache__")]:
            shutil.rmtree(cache)
        self.before = contents(root)

    def add(self, source: Path, target: str, **replaced: str) -> None:
        """Add a file or a folder. ``replaced`` are words that stand for others in its text."""
        for path in [source] if source.is_file() else [path for path in source.rglob("*") if path.is_file()]:
            if "__pycache__" not in path.parts:
                place = self.root / target / ("" if source.is_file() else path.relative_to(source))
                place.parent.mkdir(parents=True, exist_ok=True)
                text = path.read_text(encoding="utf-8")
                for old, new in replaced.items():
                    text = text.replace(old, new)
                place.write_text(text, encoding="utf-8")

    @property
    def edited(self) -> set[str]:
        """The files that are not what they were."""
        after = contents(self.root)
        return {name for name, content in self.before.items() if after.get(name) != content}

    @property
    def added(self) -> set[str]:
        return contents(self.root).keys() - self.before.keys()

    def run(self, *words: str) -> str:
        """The output of ``python ...`` in the copy. It must end with the exit code 0: ``verify`` if no check fails."""
        environment = os.environ | {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
        }
        ended = subprocess.run(
            [sys.executable, *words], cwd=self.root, env=environment, capture_output=True, text=True, timeout=280
        )
        assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-2000:]
        return ended.stdout


@pytest.fixture
def clone(tmp_path) -> Clone:
    return Clone(tmp_path / "clone")


def test_a_letter_costs_four_files_and_no_test(clone):
    """Its mixers are checked like those of other letters. Theorems are not applicable, since none was worked out."""
    for name, edits in LETTER.items():
        path = clone.root / "madbench/mixers/srg" / name
        text = path.read_text(encoding="utf-8")
        for old, new in edits.items():
            assert text.count(old) == 1, f"{name}: {old}"
            text = text.replace(old, new)
        path.write_text(text, encoding="utf-8")
    assert clone.edited == {f"madbench/mixers/srg/{name}" for name in LETTER} and not clone.added
    assert "3 labels" in clone.run("-m", "madbench", "verify", "R-cu-q-12o", "S-u!", "D-pu-v")
    assert "it is not worked out for 'u' (readout gain)" in clone.run("-m", "madbench", "verify", "S-u!", "-f", "json")
    assert "gain of the readout" in clone.run("-m", "madbench", "explain", "--cost", "S-u!")
    for tests in (TESTS_OF_LETTERS, [SLOW_TEST_OF_LETTERS]):
        clone.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)


def test_a_task_costs_its_class_and_its_file(clone):
    example = EXAMPLES / "task/madbench_prefix_sum"
    clone.add(example / "__init__.py", "madbench/tasks/prefix_sum.py")
    clone.add(example / "prefix_sum.yaml", "tasks/prefix_sum.yaml")
    assert not clone.edited and len(clone.added) == 2
    assert "prefix_sum" in clone.run("-m", "madbench", "ls", "tasks")
    assert "digit" in clone.run("-m", "madbench", "data", "prefix_sum")
    assert "2 jobs" in clone.run("-m", "madbench", "run", "S", "R", "-p", "quick", "-t", "prefix_sum", "--dry-run")


def test_a_family_costs_a_folder(clone):
    example, names = EXAMPLES / "plugin/madbench_linear", {"madbench_linear": "madbench.mixers.lin"}
    clone.add(example / "__init__.py", "madbench/mixers/lin/family.py", **names)
    clone.add(example / "mixer.py", "madbench/mixers/lin/mixer.py", **names)
    assert not clone.edited and {Path(name).parent.name for name in clone.added} == {"lin"}
    assert "lin" in clone.run("-m", "madbench", "ls", "families")
    assert "2 labels" in clone.run("-m", "madbench", "verify", "lin:elu-g", "lin:id")


def test_a_named_operator_costs_its_file_and_a_line_of_the_list(clone):
    """The file is the page's skeleton. The line is an import and an entry. The tests of all operators check it, too."""
    page = (ROOT / "docs/pages/add-operator.md").read_text(encoding="utf-8")
    (skeleton,) = re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    (clone.root / OPERATORS / "my_operator.py").write_text(skeleton, encoding="utf-8")
    listed = clone.root / OPERATORS / "__init__.py"
    text = listed.read_text(encoding="utf-8")
    where = "from madbench.mixers.named.operators"
    lines = {f"{where}.comba": f"{where}.my_operator import MyOperator\n", "    Comba,\n": "    MyOperator,\n"}
    for before, line in lines.items():
        assert text.count(before) == 1
        text = text.replace(before, line + before)
    listed.write_text(text, encoding="utf-8")
    assert clone.edited == {f"{OPERATORS}/__init__.py"} and clone.added == {f"{OPERATORS}/my_operator.py"}
    assert "2 labels" in clone.run("-m", "madbench", "verify", "MyOperator", "MyOperator!")
    assert "S_t = S_(t-1) + k_t v_t^T" in clone.run("-m", "madbench", "explain", "MyOperator")
    tests = ("tests/mixers/named/test_named.py", "-k", "MyOperator")
    clone.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)


def test_a_suite_costs_a_folder_beside_its_tasks(clone):
    example, names = EXAMPLES / "suite/madbench_counting", {"madbench_counting": "madbench.suites.counting"}
    clone.add(example / "__init__.py", "madbench/suites/counting/suite.py", **names)
    clone.add(example / "scores.py", "madbench/suites/counting/scores.py", **names)
    clone.add(example / "profiles", "madbench/suites/counting/profiles")
    clone.add(example / "tasks.py", "madbench/tasks/counting.py")
    for task in ("parity", "majority"):
        clone.add(example / f"{task}.yaml", f"tasks/{task}.yaml")
    assert not clone.edited and len(clone.added) == 6
    assert "counting" in clone.run("-m", "madbench", "ls", "profiles", "counting")
    assert "2 jobs" in clone.run("-m", "madbench", "run", "S", "-t", "counting", "--dry-run")


def test_a_paper_costs_a_folder(clone):
    clone.add(EXAMPLES / "paper/madbench_positions", "madbench/papers/positions")
    (clone.root / "madbench/papers/positions/__init__.py").unlink()
    assert not clone.edited and {Path(name).parts[:3] for name in clone.added} == {("madbench", "papers", "positions")}
    assert "table1" in clone.run("-m", "madbench", "paper", "positions")
    assert "S-p" in clone.run("-m", "madbench", "ls", "labels", "@positions")
    assert "9 jobs" in clone.run("-m", "madbench", "paper", "positions", "table1", "--dry-run")


OPTION = '    {name}: Annotated[str, option("A word for a test.", rare="every verb")] = "none"\n'
OPTIONS = {
    "madbench/execute/options.py": ("    devices: Sequence", OPTION.format(name="color")),
    "madbench/experiment/experiment.py": (
        "        check_is_not_imported()\n",
        '        print("color", options.color)\n',
    ),
    "madbench/text/options.py": ("    tokenizer: Annotated", OPTION.format(name="script")),
    "madbench/experiment/planner.py": (
        "    from madbench.training.devices import resolve_device\n",
        '    print("script", options.data.script)\n',
    ),
}
"""A declaration and a use of two options, of execution and of planning: the line before which each is added."""


def test_an_option_costs_its_declaration_and_its_use(clone):
    """Verbs that train have it, and hand it on, although they do not name it."""
    for name, (before, line) in OPTIONS.items():
        path = clone.root / name
        text = path.read_text(encoding="utf-8")
        assert text.count(before) == 1, name
        path.write_text(text.replace(before, line + before), encoding="utf-8")
    assert clone.edited == OPTIONS.keys() and not clone.added
    for verb in (("run",), ("sweep",), ("lm", "train")):
        shown = clone.run("-m", "madbench", *verb, "--help-all")
        assert "--color " in shown and "--script " in shown
    words = ("S", "-p", "quick", "-t", "memorization", "training.epochs=1", "--color", "red", "--script", "kana")
    assert clone.run("-m", "madbench", "run", *words).startswith("script kana\ncolor red\n")


def test_a_module_costs_a_file(clone):
    clone.add(EXAMPLES / "module/madbench_decay/__init__.py", "my_decay.py")
    assert not clone.edited and clone.added == {"my_decay.py"}
    assert "pass" in clone.run("-m", "madbench", "verify", "my:my_decay.Decay")
