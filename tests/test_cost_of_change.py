"""The cost of a change: a copy of madbench gets a letter, an operator, a task, a family, a suite and more.

The files that are edited and added are counted, and the copy is used in a process of its own.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "examples"
OPERATORS = "madbench/mixers/named/operators"
PARTS = ("madbench", "tasks", "variants", "studies", "examples", "tests", "pyproject.toml")
SRG = "madbench/mixers/srg"
LANGUAGE = "madbench/suites/language"


class Insertion(NamedTuple):
    """An edit of a file: ``text`` is inserted before a part of the syntax tree, which may move or change around it."""

    path: str
    scope: str
    """A class, a function, ``Class.method``, or the name of a tuple or a dictionary. Empty for the module."""
    mentioned: str
    """An expression. The part is the first statement or entry of the scope that has it. Empty: the first of all."""
    text: str


LETTER = [
    Insertion(f"{SRG}/grammar.py", "LETTERS", "'q'", """\
Letter("u", "readout gain",
    "Each channel of what a head reads out is scaled by a learned number, the same in all heads.",
    "o_t <- (1 + p) * o_t", "a letter for a test",
    "features", "readout_gain", terms=("readout_gain",), acts_on_scores=False, is_in_table1=False),"""),
    Insertion(f"{SRG}/grammar.py", "SrgLabel", "registers", "readout_gain: bool = False  # u"),
    Insertion(f"{SRG}/allocation.py", "TERMS", "'registers'",
        '"readout_gain": Term("d_vo", "gain of the readout", lambda a: a.vo_width),'),
    Insertion(f"{SRG}/dynamic_mlp.py", "DynamicMLP.__init__", "self._draw()", """\
self.readout_gain = nn.Parameter(torch.empty(allocation.vo_width)) if label.readout_gain else None
self.starts_at_zero += ["readout_gain"] if label.readout_gain else []"""),
    Insertion(f"{SRG}/dynamic_mlp.py", "DynamicMLP.read_out", "self.head_gate", """\
if self.readout_gain is not None:
    o = o * (1 + self.readout_gain).to(o.dtype)"""),
    Insertion(f"{SRG}/reference.py", "_Row.readout", "self.label.head_gate", """\
if self.label.readout_gain:
    o = (1 + w["readout_gain"]) * o"""),
]  # fmt: skip
"""The edits of a letter: its row and its field, its parameters, the operator, and the reference."""
LETTER_ON_SCORES = [
    Insertion(f"{SRG}/grammar.py", "LETTERS", "'q'", """\
Letter("u", "soft cap",
    "Scores are capped after R(1).", "h_t <- tanh(h_t)", "a letter for a test",
    "features", "soft_cap", is_in_table1=False),"""),
    Insertion(f"{SRG}/grammar.py", "SrgLabel", "registers", "soft_cap: bool = False  # u"),
    Insertion(f"{SRG}/block_attention.py", "weights", "mixer.sink", """\
if mixer.label.soft_cap:
    h = torch.tanh(h)"""),
    Insertion(f"{SRG}/reference.py", "_Row.activations", "self.n_head", """\
if self.label.soft_cap:
    hidden = [torch.tanh(z) for z in hidden]"""),
]  # fmt: skip
"""The edits of a letter that acts on scores, but none of the paths that compute only the letters that they know."""
TESTS_OF_LETTERS = [
    "tests/labels",
    *(f"tests/mixers/srg/test_{name}.py" for name in ("grammar", "diagnosis", "meaning", "checks", "parameters")),
    "tests/cli/test_ls.py",
]
SLOW_TEST_OF_LETTERS = "tests/analysis/test_contrasts.py::test_every_pair_that_differs_in_one_factor_is_found_once"
TESTS_OF_TASKS = [
    "tests/tasks",
    "tests/suites",
    *(f"tests/cli/test_{name}.py" for name in ("ls", "data", "verbs_of_suites")),
]
TESTS_OF_PROFILES = ["tests/suites/test_profile.py", "tests/cli/test_ls.py"]
TESTS_OF_PAPERS = ["tests/papers/test_declared.py", "tests/papers/test_packaged.py", "tests/cli/test_papers.py"]


def contents(root: Path) -> dict[str, bytes]:
    """The files of a clone, without what Python leaves."""
    places = [root / part for part in PARTS] + [*root.glob("*.py")]
    files = [path for place in places for path in (place, *place.rglob("*")) if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files if "__pycache__" not in path.parts}


def parts_of(scope: str, tree: ast.Module) -> list[ast.stmt] | list[ast.expr]:
    """The statements in a module, a class or a function after its docstring, or the entries of a tuple or a dictionary.

    Statements within statements count too.
    """
    node: ast.AST = tree
    for name in filter(None, scope.split(".")):
        node = next(inner for inner in ast.iter_child_nodes(node) if name in names_of(inner))
    if isinstance(value := getattr(node, "value", None), ast.Tuple):
        return value.elts
    if isinstance(value, ast.Dict):
        return [key for key in value.keys if key is not None]
    statements = [inner for part in node.body for inner in ast.walk(part) if isinstance(inner, ast.stmt)]
    return statements[ast.get_docstring(node) is not None :]


def names_of(node: ast.AST) -> list[str]:
    """The names that a definition or an assignment gives."""
    targets = getattr(node, "targets", None) or [getattr(node, "target", node)]
    return [getattr(target, "id", None) or getattr(target, "name", "") for target in targets]


def mentions(part: ast.AST, expression: str) -> bool:
    """True if the part contains the expression, outside of nested statements."""
    nodes = [part]
    for node in nodes:
        nodes += [inner for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.stmt)]
    return any(ast.unparse(node) == expression for node in nodes if isinstance(node, ast.expr))


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

    def edit(self, insertions: Iterable[Insertion]) -> None:
        for path, scope, mentioned, text in insertions:
            file = self.root / path
            source = file.read_text(encoding="utf-8")
            parts = [part for part in parts_of(scope, ast.parse(source)) if not mentioned or mentions(part, mentioned)]
            assert parts, f"{path}: nothing in {scope or 'it'} has {mentioned or 'a place for an edit'}"
            line, column = parts[0].lineno - 1, parts[0].col_offset
            lines = source.encode().splitlines(keepends=True)
            indented = textwrap.indent(text, " " * column).strip() + "\n" + " " * column
            lines[line] = lines[line][:column] + indented.encode() + lines[line][column:]
            file.write_bytes(b"".join(lines))

    @property
    def edited(self) -> set[str]:
        """The files that differ from the original."""
        after = contents(self.root)
        return {name for name, content in self.before.items() if after.get(name) != content}

    @property
    def added(self) -> set[str]:
        return contents(self.root).keys() - self.before.keys()

    def run(self, *words: str) -> str:
        """Run ``python ...`` in the copy and return the output.

        It must exit with 0, as ``verify`` does if no check fails.
        """
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

    def test(self, *tests: str) -> None:
        """Run tests of the copy."""
        self.run("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests)


@pytest.fixture
def clone(tmp_path) -> Clone:
    return Clone(tmp_path / "clone")


def test_a_letter_costs_four_files_and_no_test(clone):
    """Its mixers are checked like those of other letters. Theorems are not applicable, since none was worked out."""
    clone.edit(LETTER)
    assert clone.edited == {f"{SRG}/{name}.py" for name in ("grammar", "allocation", "dynamic_mlp", "reference")}
    assert not clone.added
    labels = {"R-cu-q-12o", "S-u!", "D-pu-v"}
    checks = json.loads(clone.run("-m", "madbench", "verify", *labels, "-f", "json"))
    not_worked_out = [check for check in checks if "it is not worked out for 'u' (readout gain)" in check["reason"]]
    assert {check["label"] for check in not_worked_out} == labels
    assert "gain of the readout" in clone.run("-m", "madbench", "explain", "--cost", "S-u!")
    for tests in (TESTS_OF_LETTERS, [SLOW_TEST_OF_LETTERS]):
        clone.test(*tests)


def test_a_letter_on_scores_is_refused_by_the_paths_that_do_not_know_it(clone):
    """Its mixers and their decoding steps pass all checks without an edit of these paths."""
    clone.edit(LETTER_ON_SCORES)
    assert clone.edited == {f"{SRG}/{name}.py" for name in ("grammar", "block_attention", "reference")}
    checks = json.loads(clone.run("-m", "madbench", "verify", "S-u", "S-wu", "D-pu", "G-cu-q-12o", "-f", "json"))
    assert {check["check"] for check in checks if check["verdict"] == "pass"} >= {
        "path dense",
        "ordinary size",
        "steps",
    }
    clone.run("-c", """\
from madbench.errors import TrainingError
from madbench.mixers import build
for label in ("S-u", "S-wu", "D-pu", "G-cu-q-12o"):
    for path in ("sdpa", "tiled", "fused"):
        try:
            build(label, 16, 8, path=path)
        except TrainingError as error:
            others = str(error).partition("only, and the label has ")[2].removesuffix("; use 'auto'")
            assert others == "'u' (soft cap)" or "'u'" in others.replace(" and ", ", ").split(", "), error
        else:
            raise AssertionError((label, path))
""")  # fmt: skip


def test_a_task_costs_its_class_and_its_file(clone):
    """It has another name than the example from which it is made, because tests install the example."""
    example, names = EXAMPLES / "task/madbench_prefix_sum", {"PrefixSum": "RunningSum", "prefix_sum": "running_sum"}
    clone.add(example / "__init__.py", "madbench/tasks/running_sum.py", **names)
    clone.add(example / "prefix_sum.yaml", "tasks/running_sum.yaml", **names)
    assert not clone.edited and len(clone.added) == 2
    assert "running_sum" in clone.run("-m", "madbench", "ls", "tasks")
    assert "digit" in clone.run("-m", "madbench", "data", "running_sum")
    assert "2 jobs" in clone.run("-m", "madbench", "run", "S", "R", "-p", "quick", "-t", "running_sum", "--dry-run")
    clone.test(*TESTS_OF_TASKS)


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
    listed = f"{OPERATORS}/__init__.py"
    clone.edit(
        [
            Insertion(listed, "", "_ALL", "from madbench.mixers.named.operators.my_operator import MyOperator"),
            Insertion(listed, "_ALL", "", "MyOperator,"),
        ]
    )
    assert clone.edited == {f"{OPERATORS}/__init__.py"} and clone.added == {f"{OPERATORS}/my_operator.py"}
    assert "2 labels" in clone.run("-m", "madbench", "verify", "MyOperator", "MyOperator!")
    assert "S_t = S_(t-1) + k_t v_t^T" in clone.run("-m", "madbench", "explain", "MyOperator")
    clone.test("tests/mixers/named/test_named.py", "-k", "MyOperator")


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
    clone.test(*TESTS_OF_TASKS)


def test_a_paper_costs_a_folder(clone):
    clone.add(EXAMPLES / "paper/madbench_positions", "madbench/papers/positions")
    (clone.root / "madbench/papers/positions/__init__.py").unlink()
    assert not clone.edited and {Path(name).parts[:3] for name in clone.added} == {("madbench", "papers", "positions")}
    assert "table1" in clone.run("-m", "madbench", "paper", "positions")
    assert "S-p" in clone.run("-m", "madbench", "ls", "labels", "@positions")
    assert "9 jobs" in clone.run("-m", "madbench", "paper", "positions", "table1", "--dry-run")


PROFILE = """\
like: quick
description: The profile quick with larger batches.
training: {batch_size: 32}
"""


def test_a_profile_costs_a_file(clone):
    """Its name is before ``quick``, which it is like, and stored runs are still named after ``quick``."""
    (clone.root / "tasks/mad/nano.yaml").write_text(PROFILE, encoding="utf-8")
    assert not clone.edited and len(clone.added) == 1
    assert "nano" in clone.run("-m", "madbench", "ls", "profiles", "mad")
    assert "2 jobs" in clone.run("-m", "madbench", "run", "S", "R", "-p", "nano", "-t", "compression", "--dry-run")
    clone.test(*TESTS_OF_PROFILES)


ITEM = """\
  - id: a_few_labels
    place: Table 0
    title: some labels on compression
    labels: [S, R-cg-q-12o]
    tasks: [compression]
    seeds: 0-4
    profiles: {quick: evening, full: full}
    seconds: 100
"""


def test_an_item_of_a_paper_costs_its_entry(clone):
    listed = "madbench/papers/hypermlp/paper.yaml"
    (clone.root / listed).write_text((clone.root / listed).read_text(encoding="utf-8") + ITEM, encoding="utf-8")
    assert clone.edited == {listed} and not clone.added
    assert "a_few_labels" in clone.run("-m", "madbench", "paper", "hypermlp")
    assert "10 jobs" in clone.run("-m", "madbench", "paper", "hypermlp", "a_few_labels", "--dry-run")
    clone.test(*TESTS_OF_PAPERS)


LANGUAGE_COLUMN = [
    Insertion(
        f"{LANGUAGE}/columns.py", "_OF_LOSS", "'equal_time_validation_loss'", '_loss("validation_l5", "Val L5"),'
    ),
    Insertion(
        f"{LANGUAGE}/curves.py", "run_losses", "numbers[LOSS]", 'numbers["validation_l5"] = loss_l5(validation)'
    ),
    Insertion(
        f"{LANGUAGE}/scores.py", "LanguageScoring.columns", "profile_scores",
        'first_columns.append(column("validation_l5"))',
    ),
    Insertion(
        f"{LANGUAGE}/scores.py", "LanguageScoring.about", "_evaluation",
        """\
if "validation_l5" in names:
    notes.append("Val L5: mean of the last five losses on validation text.")""",
    ),
]  # fmt: skip
"""The edits of a column: its row, its number, its place in a table and a sentence of the notes."""
LANGUAGE_PROFILE = """\
description: A few steps of a small model.
comparable_with_paper: false
precision: float32
model: {d_model: 16, n_layer: 1, seq_len: 16}
training: {steps: 4, tokens_per_step: 32, eval_every: 2, eval_sequences: 2, warmup_steps: 1, learning_rate: 1.0e-2}
"""


def test_a_column_of_language_models_costs_three_files(clone):
    """It is shown in tables, and its value is the mean of the validation losses of the curve."""
    clone.edit(LANGUAGE_COLUMN)
    assert clone.edited == {f"{LANGUAGE}/{name}.py" for name in ("columns", "curves", "scores")} and not clone.added
    (clone.root / "small.yaml").write_text(LANGUAGE_PROFILE, encoding="utf-8")
    (clone.root / "hen.txt").write_text("The brown hen counted every grain. " * 40, encoding="utf-8")
    clone.run("-m", "madbench", "lm", "prepare", "hen.txt", "--out", "hens", "--validation", "0.2")
    clone.run("-m", "madbench", "lm", "train", "S", "-p", "small.yaml", "--corpus", "hens", "--device", "cpu")
    shown = json.loads(clone.run("-m", "madbench", "table", "-t", "language_model", "-f", "json"))
    (value,) = (cell["mean"] for cell in shown["cells"] if cell["task"] == "validation_l5")
    (curve,) = clone.root.glob("results/runs/*/curve.csv")
    losses = pd.read_csv(curve).validation_loss.dropna()
    assert len(losses) == 2 and value == pytest.approx(losses.mean()) != losses.iloc[-1]
    assert "Val L5: mean of the last five losses on validation text." in shown["notes"]


def test_an_average_costs_a_line_of_its_suite(clone):
    tasks, words = ("compression", "memorization"), ("-p", "quick", "training.epochs=1")
    average = f'"two_average": Average("Two avg", "average of two", {tasks}),'
    clone.edit([Insertion("madbench/suites/mad/suite.py", "MadSuite.averages", "AVERAGE", average)])
    assert clone.edited == {"madbench/suites/mad/suite.py"} and not clone.added
    clone.run("-m", "madbench", "run", "S", *words, "-t", ",".join(tasks))
    shown = json.loads(clone.run("-m", "madbench", "table", *words, "precision=float32", "-f", "json"))
    means = {cell["task"]: cell["mean"] for cell in shown["cells"]}
    assert means["two_average"] == pytest.approx((means["compression"] + means["memorization"]) / 2)
    assert means["compression"] != means["memorization"]


FORMAT = [
    Insertion("madbench/cli/shared/printing.py", "", "TableFormat(_write_to_terminal)", """\
def _write_tsv(table: TextTable, costs: Costs, options: PrintOptions, place: int) -> None:
    print(table.to_csv([*costs.values()]).replace(",", "\\t"), end="")
"""),
    Insertion("madbench/cli/shared/printing.py", "FORMATS", "'json'", '"tsv": TableFormat(_write_tsv),'),
]  # fmt: skip


def test_a_format_of_tables_costs_a_function_and_a_line(clone):
    clone.edit(FORMAT)
    assert clone.edited == {"madbench/cli/shared/printing.py"} and not clone.added
    assert "html, tsv or json" in " ".join(clone.run("-m", "madbench", "table", "--help").replace("│", " ").split())
    clone.run("-m", "madbench", "run", "S", "-p", "quick", "-t", "memorization", "training.epochs=1", "-f", "tsv")
    shown = clone.run("-m", "madbench", "table", "-p", "quick", "training.epochs=1", "-t", "memorization", "-f", "tsv")
    assert shown.splitlines()[0].split("\t")[0] == "label"


OPTION = '{name}: Annotated[str, option("A word for a test.", rare="every verb")] = "none"'
OPTIONS = [
    Insertion("madbench/execute/options.py", "RunOptions", "gpus", OPTION.format(name="color")),
    Insertion("madbench/experiment/experiment.py", "Experiment.execute", "", 'print("color", options.color)'),
    Insertion("madbench/api/arguments.py", "ExecutionArguments", "keep_weights", "color: str"),
    Insertion("madbench/text/options.py", "CorpusOptions", "tokenizer", OPTION.format(name="script")),
    Insertion("madbench/experiment/planner.py", "prepare", "", 'print("script", options.data.script)'),
]
"""A declaration and a use of two options, of execution and of planning, and the type of the first in Python."""


def test_an_option_costs_its_declaration_its_type_and_its_use(clone):
    """Verbs and functions that train have the option and pass it on, although they do not name it."""
    clone.edit(OPTIONS)
    assert clone.edited == {insertion.path for insertion in OPTIONS} and not clone.added
    for verb in (("run",), ("sweep",), ("lm", "train")):
        shown = clone.run("-m", "madbench", *verb, "--help-all")
        assert "--color " in shown and "--script " in shown
    shown = clone.run("-c", "import inspect, madbench; print(inspect.signature(madbench.run).parameters['color'])")
    assert shown == "color: str = 'none'\n"
    words = ("S", "-p", "quick", "-t", "memorization", "training.epochs=1", "--color", "red", "--script", "kana")
    assert clone.run("-m", "madbench", "run", *words).startswith("script kana\ncolor red\n")


def test_a_module_costs_a_file(clone):
    clone.add(EXAMPLES / "module/madbench_decay/__init__.py", "my_decay.py")
    assert not clone.edited and clone.added == {"my_decay.py"}
    assert "pass" in clone.run("-m", "madbench", "verify", "my:my_decay.Decay")
