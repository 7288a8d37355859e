"""Rules about the code of this project that ruff and mypy do not have: who imports and who names whom."""

from __future__ import annotations

import ast
import configparser
import functools
import re
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import cast

import pytest

import madbench

PACKAGE = Path(madbench.__file__).parent
STUDIES, EXAMPLES = PACKAGE.parent / "studies", PACKAGE.parent / "examples"
ROOMS = [
    {"extras"},
    {"errors"},
    {"config", "files", "identity"},
    {"details"},
    {"jobs", "plugins"},
    {"labels"},
    {"mixers"},
    {"models", "tasks", "text"},
    {"suites"},
    {"training"},
    {"store"},
    {"execute", "huggingface", "lm_eval", "trackers"},
    {"rows"},
    {"grid"},
    {"experiment"},
    {"analysis"},
    {"api"},
    {"bench"},
    {"papers"},
    {"report"},
    {"cli"},
]
"""The rooms in order. Each may import itself and those before it."""
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}


def room_of(module: str) -> str:
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else ""


def module_name(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_name(path): path for path in PACKAGE.rglob("*.py")}


def is_for_types(node: ast.AST) -> bool:
    """True for ``if TYPE_CHECKING:``."""
    return isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"


def nodes_at_run_time(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes below a node that may be executed: no annotations, and no body of ``if TYPE_CHECKING:``."""
    yield node
    children = cast(ast.If, node).orelse if is_for_types(node) else ast.iter_child_nodes(node)
    annotations = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
    for child in children:
        if id(child) not in annotations:
            yield from nodes_at_run_time(child)


@functools.cache
def imported_modules(path: Path, for_types: bool = True) -> set[str]:
    """The modules that a module imports, also in functions.

    If ``for_types``, also those that are imported under ``if TYPE_CHECKING:``.
    """
    tree, modules = ast.parse(path.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree) if for_types else nodes_at_run_time(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "madbench":
            names = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
            modules |= {name if name in MODULES else node.module for name in names.values()}
        elif isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names if alias.name.startswith("madbench.")}
    return modules


def test_no_room_imports_a_room_below_it():
    upward = {}
    for name, path in MODULES.items():
        room = room_of(name)
        rooms = {room_of(module) for module in imported_modules(path)} & LEVEL.keys()
        above = {other for other in rooms if room in LEVEL and LEVEL[other] > LEVEL[room]}
        if above:
            upward[name] = above
    assert not upward


def test_the_page_lists_the_rooms_in_the_order_of_imports():
    page = (PACKAGE.parent / "docs/pages/architecture.md").read_text(encoding="utf-8")
    (listed,) = re.findall(r"^## The rooms\n.*?^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    starts = re.findall(r"^[a-z].*?(?=  |$)", listed, re.MULTILINE)
    assert [set(start.split(", ")) for start in starts] == ROOMS


def test_modules_have_no_circular_imports():
    """Except labels, whose errors name other families, and the command line, whose verbs name each other.

    An import under ``if TYPE_CHECKING:`` is never executed, so it may lead back.
    """
    graph = {}
    for name, path in MODULES.items():
        others = imported_modules(path, for_types=False) - {name}
        graph[name] = {other for other in others if not room_of(name) == room_of(other) in ("labels", "cli")}
    TopologicalSorter(graph).prepare()  # raises CycleError, which names the modules of a cycle


NAMES_A_PAPER = {
    ("hypermlp", "bench/language.py"): "bench table5 prints that table's published numbers beside ours",
    ("coefficients", "cli/shared/moved.py"): "spellings that moved",
    ("coefficients", "cli/paper/__init__.py"): "an example of the verb's help",
    ("hypermlp", "cli/paper/__init__.py"): "examples of the verb's help",
    ("coefficients", "mixers/traits.py"): "coefficients is a method of mixers",
}
"""The papers and the modules outside of their folders that may name them, with the reason."""


def entry_points(folder: Path) -> dict[str, list[str]]:
    """The names of the entry points of a paper, by group. Empty if it has none."""
    points = configparser.ConfigParser(delimiters="=")
    points.read(folder / "entry_points.txt")
    return {group: [*points[group]] for group in points.sections()}


def names_of_paper(folder: Path) -> re.Pattern[str]:
    """The names of a paper: of its folder, suites and checks, and the labels of its families."""
    points = entry_points(folder)
    families = points.pop("madbench.families", [])
    names = "|".join([folder.name, *(name for group in points.values() for name in group)])
    patterns = [
        rf"""["'`/.](?:{names})["'`/.]""",
        rf"(?:paper|ls|profiles|suite) (?:{names})\b",
        rf"\bpapers(?:\.| import \(?\s*(?:\w+,\s*)*)(?:{names})\b",
        *(rf"(?<!\w){family}:" for family in families),
        *(["(?i:hypermlp)"] if folder.name == "hypermlp" else []),
    ]
    return re.compile("|".join(patterns))


def test_no_file_outside_the_folder_of_a_paper_names_it():
    """A paper is found by its folder. Papers whose labels are S/R/G name each other, and the family names them."""
    paths = [path for end in ("py", "yaml", "json", "j2") for path in PACKAGE.rglob(f"*.{end}")]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    naming = set()
    for folder in (path.parent for path in PACKAGE.glob("papers/*/paper.yaml")):
        has_families, pattern = "madbench.families" in entry_points(folder), names_of_paper(folder)
        for path, text in texts.items():
            place = path.relative_to(PACKAGE).as_posix()
            is_free = folder in path.parents or (not has_families and re.match(r"papers/\w+/|mixers/srg/", place))
            if not is_free and pattern.search(text):
                naming.add((folder.name, place))
    assert naming == NAMES_A_PAPER.keys()


@pytest.mark.parametrize(
    ("text", "is_name"),
    [
        ("'interactions'", True),
        ("paper interactions", True),
        ("hfa:2", True),
        ("import madbench.papers.interactions.suite", True),
        ("from madbench.papers.interactions import suite", True),
        ("from madbench.papers import (\n    making,\n    interactions,\n)", True),
        ("significant interactions.", False),
        ("alpha: 1", False),
    ],
)
def test_names_of_a_paper_are_found(text, is_name):
    assert bool(names_of_paper(PACKAGE / "papers" / "interactions").search(text)) == is_name


NAMES_A_FAMILY = {
    "analysis/figures/style.py": "the colors of S/R/G labels",
    "bench/language.py": "the rows of bench table5",
    "bench/mixer.py": "the core pass of the fused kernel",
    "cli/validate/machine.py": "the paths and kernels that validate --machine proves",
    "cli/shared/print_options.py": "an example in the help of --rename",
    "labels/names.py": "an example in an error message",
    "labels/patterns.py": "the family of patterns",
    "labels/registry.py": "the family whose labels have no prefix",
    "suites/code.py": "modules of families that affect no number",
}
"""The modules outside of mixers and papers that may name a family, with the reason."""


@pytest.mark.slow
def test_no_file_outside_mixers_and_papers_names_a_family():
    """A label is text there, and its family is found by its folder. ``my:`` is the prefix of a user's own modules."""
    families = {path.parent.name for path in PACKAGE.glob("mixers/*/family.py")} - {"my"}
    any_of = "|".join(sorted(families))
    pattern = re.compile(rf"(?<![\w-])(?:{any_of}):\w|^(?:{any_of}):?$|mixers[./](?:{any_of})\b", re.MULTILINE)
    naming = set()
    for name, path in MODULES.items():
        imports = {
            module.split(".")[2] for module in imported_modules(path) if re.match(r"madbench\.mixers\.\w", module)
        }
        if room_of(name) not in ("mixers", "papers") and (imports & families or pattern.search(text_of(path))):
            naming.add(str(path.relative_to(PACKAGE)))
    assert naming == NAMES_A_FAMILY.keys()


ROOTS = r"madbench\.(api|cli|huggingface|lm_eval)\b.*|.*\.(family|suite|__main__)"
"""Modules that a user calls, and modules that the program finds in folders."""


def text_of(path: Path) -> str:
    """The string literals of a module without docstrings, or the whole text of another file."""
    content = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return content
    nodes = [*ast.walk(ast.parse(content))]
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    constants = [node for node in nodes if isinstance(node, ast.Constant) and id(node) not in docstrings]
    return "\n".join(node.value for node in constants if isinstance(node.value, str))


@functools.cache
def modules_in_texts(path: Path) -> set[str]:
    """The modules that strings in a file name, such as ``madbench.suites.mad.trial:MadTrial``.

    A name that continues with a variable (``f"madbench.mixers.srg.kernels.{kind}"``) stands for all modules of a
    folder.
    """
    found = set()
    for name in re.findall(r"\bmadbench(?:\.\w+)+\.?", text_of(path)):
        parts = name.split(".")
        found |= {".".join(parts[:end]) for end in range(2, len(parts) + 1)}
        found |= {module for module in MODULES if name.endswith(".") and module.startswith(name)}
    return found & MODULES.keys()


@pytest.mark.slow
def test_every_module_is_imported_by_a_verb_or_the_api():
    """Comparisons and calibrations that no verb uses belong in ``studies/``, outside the wheel."""
    waiting = [name for name in MODULES if re.fullmatch(ROOTS, name)]
    for path in (*PACKAGE.rglob("*.yaml"), *PACKAGE.rglob("entry_points.txt")):
        waiting += modules_in_texts(path)
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting += (imported_modules(MODULES[name]) & MODULES.keys()) | modules_in_texts(MODULES[name])
    folders = {name for name, path in MODULES.items() if path.name == "__init__.py"}
    assert MODULES.keys() - seen - folders == set()


def test_the_command_line_has_one_module_per_verb():
    """Code of several verbs is in ``cli/shared``. Code of a single verb is in a folder of its name."""
    from madbench.cli import ALL_VERBS
    from madbench.cli.lm import VERBS

    modules = {path.name.removesuffix(".py") for path in (PACKAGE / "cli").iterdir() if not path.name.startswith("_")}
    assert {name.removesuffix("_") for name in modules} == ALL_VERBS | {"shared"}
    assert {*" ".join(VERBS.values()).split()} <= {path.stem for path in (PACKAGE / "cli" / "lm").glob("*.py")}


def test_every_room_is_in_the_list_of_rooms():
    rooms = {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if not path.name.startswith("_")}
    assert rooms - {"py.typed"} == set(LEVEL)
    assert len(list(PACKAGE.glob("*.py"))) <= 10


@pytest.mark.slow
def test_no_type_is_another_name_for_any_and_no_error_of_mypy_is_ignored_without_a_reason():
    """A label and a family have protocols; ``Label = Any`` would hide every wrong attribute from mypy."""
    for path in (file for folder in (PACKAGE, EXAMPLES) for file in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r".*type: ignore(?!\[[a-z-]+\]  # .{10}).*", text), path
        assert not re.findall(r"^\w+(?:: \w+)? = Any$", text, re.MULTILINE), path


LITERALS = ast.JoinedStr | ast.List | ast.Set | ast.Tuple
TRUTH = re.compile(r"_?(is|has|are|may|can|needs|shows|keeps|with|was)_|(all|any|bool|hasattr|isinstance|\w+swith)$")
"""The names of truth values and of functions that return them."""


def multiplied_truths(source: str) -> list[str]:
    """The products of a text or list and a truth value, such as ``"text" * is_shown``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                value = other.func if isinstance(other, ast.Call) else other
                is_truth = isinstance(value, ast.Compare | ast.BoolOp) or ast.unparse(value).startswith("not ")
                if isinstance(one, LITERALS) or (isinstance(one, ast.Constant) and isinstance(one.value, str)):
                    if is_truth or TRUTH.match(ast.unparse(value).rpartition(".")[2]):
                        found.append(ast.unparse(node))
    return found


@pytest.mark.slow
def test_no_text_or_list_is_multiplied_by_a_truth_value():
    """``if`` is clearer."""
    for path in (file for folder in (PACKAGE, EXAMPLES, STUDIES) for file in folder.rglob("*.py")):
        assert multiplied_truths(path.read_text(encoding="utf-8")) == [], path
    planted = ["'a' * self.is_shown", "[x] * bool(y)", "(a == b) * f'{c}'", "(not x) * (1,)", "'b' * c.endswith('d')"]
    assert multiplied_truths("\n".join([*planted, "'-' * is_beyond.sum()", "x[0] * (a < b)"])) == planted


def types_used_at_run_time(source: str) -> set[str]:
    """The names that are defined, not imported, in ``if TYPE_CHECKING:`` of a module, and that executed code uses."""
    tree = ast.parse(source)
    blocks = [cast(ast.If, node) for node in tree.body if is_for_types(node)]
    parts = [part for block in blocks if not block.orelse for part in block.body]
    defined = {part.name for part in parts if isinstance(part, ast.ClassDef | ast.FunctionDef)}
    names = [node for part in parts for node in ast.walk(part) if isinstance(node, ast.Name)]
    defined |= {node.id for node in names if isinstance(node.ctx, ast.Store)}
    return defined & {node.id for node in nodes_at_run_time(tree) if isinstance(node, ast.Name)}


@pytest.mark.slow
def test_no_name_that_is_defined_for_types_is_used_at_run_time():
    """Such a use fails only when its line is executed. Ruff's TC004 finds those that are imported for types."""
    for path in MODULES.values():
        assert types_used_at_run_time(path.read_text(encoding="utf-8")) == set(), path
    head = "if TYPE_CHECKING:\n    Alias: TypeAlias = int\n    class Shape(Protocol): ...\n"
    assert types_used_at_run_time(head + "def f(x: Alias, y: Shape) -> Alias: ...\nz: Alias = 1") == set()
    assert types_used_at_run_time(head + "def f(x: Alias):\n    return cast(Alias, x)\nShape()") == {"Alias", "Shape"}


def bound_names(text: str) -> set[str]:
    """The names that a module binds. With ``*`` if it has a ``__getattr__`` for names that are made on use."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            names.add("*" if node.name == "__getattr__" and node.col_offset == 0 else node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
    return names


def missing_imports(text: str, bound: Callable[[Path], set[str]]) -> list[str]:
    """The names that a text imports from madbench and that do not exist there."""
    imports = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.ImportFrom)]
    missing = []
    for node in imports:
        module = node.module or ""
        if module.split(".")[0] != "madbench":
            continue
        for name in {alias.name for alias in node.names} - {"*"}:
            known = bound(MODULES[module]) if module in MODULES else set()
            if f"{module}.{name}" not in MODULES and not {name, "*"} & known:
                missing.append(f"{module}.{name}")
    return missing


@pytest.mark.slow
def test_every_name_that_is_imported_from_madbench_exists():
    """Tests of optional packages are skipped where these are missing, so only this test sees a name that is gone."""
    bound = functools.cache(lambda path: bound_names(path.read_text(encoding="utf-8")))
    folders = (PACKAGE, PACKAGE.parent / "tests", STUDIES, EXAMPLES)
    texts = {path: path.read_text(encoding="utf-8") for folder in folders for path in folder.rglob("*.py")}
    missing = {str(path): missing_imports(text, bound) for path, text in texts.items()}
    assert {path: names for path, names in missing.items() if names} == {}
    assert missing_imports("from madbench.labels import Gone, parse", bound) == ["madbench.labels.Gone"]
    assert missing_imports("from madbench.labels import parsing\nfrom madbench.gone import x", bound) == [
        "madbench.gone.x"
    ]


def handed_on(call: ast.Call) -> list[str]:
    """The keyword arguments of a call that only repeat a name, such as ``slots=slots`` and ``slots=options.slots``."""
    names = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    return [name for name, value in names.items() if name in (getattr(value, "id", ""), getattr(value, "attr", ""))]


def test_no_call_passes_on_more_than_three_options_one_by_one():
    """Options are passed on as one value, such as ``RunOptions``, so that a new option needs no such list."""
    source = "f(a, slots=slots, threads=options.threads, group=None, device=resolve(device))"
    assert handed_on(cast(ast.Call, ast.parse(source, mode="eval").body)) == ["slots", "threads"]
    long = []
    for path in (path for room in ("cli", "experiment", "execute") for path in (PACKAGE / room).rglob("*.py")):
        calls = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
        long += [f"{path.name}: {ast.unparse(call)}" for call in calls if len(handed_on(call)) > 3]
    assert long == []
