"""Imports go one way in the list of rooms, and no import is hidden in a function to avoid this rule."""

from __future__ import annotations

import ast
import functools
import re
import tomllib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import cast

import pytest

import madbench

PACKAGE = Path(madbench.__file__).parent
PYPROJECT = PACKAGE.parent / "pyproject.toml"
STUDIES, EXAMPLES = PACKAGE.parent / "studies", PACKAGE.parent / "examples"
ROOMS = [
    {"extras"},
    {"errors"},
    {"config", "files", "identity"},
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
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")


def parts_at_run_time(node: ast.AST) -> list[ast.AST]:
    """The children of a node without annotations, which are never evaluated, and without the body of a type check."""
    if is_for_types(node):
        return list(cast(ast.If, node).orelse)
    skipped = {id(getattr(node, name, None)) for name in ("annotation", "returns")}
    return [child for child in ast.iter_child_nodes(node) if id(child) not in skipped]


def nodes_at_run_time(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes of a tree that may be executed, in functions too."""
    yield tree
    for part in parts_at_run_time(tree):
        yield from nodes_at_run_time(part)


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
    known = {name: imported_modules(path, for_types=False) - {name} for name, path in MODULES.items()}

    def reached(start: str) -> set[str]:
        waiting, seen = [start], set()
        while waiting:
            for module in known.get(waiting.pop(), set()) - seen:
                seen.add(module)
                waiting.append(module)
        return seen

    circular = {name for name in MODULES if name in reached(name)}
    assert {room_of(name) for name in circular} <= {"labels", "cli"}


@pytest.mark.slow
def test_no_module_outside_a_papers_folder_imports_it():
    """Other rooms may import ``madbench.papers`` itself. One paper may build on another."""
    papers = {path.parent.name for path in PACKAGE.glob("papers/*/paper.yaml")}
    known = {}
    for name, path in MODULES.items():
        own = name.split(".")[2] if name.startswith("madbench.papers.") else ""
        others = {module for module in imported_modules(path) if module.split(".")[1:2] == ["papers"]}
        found = {module for module in others if {*module.split(".")[2:3]} & papers}
        if found and own not in papers:
            known[name] = found
    assert not known


def names_of_a_package(points: Path) -> re.Pattern[str]:
    """The names of a package of ``papers/``: labels of its families, and the words for the paper and its suites."""
    lines, section = points.read_text(encoding="utf-8").splitlines(), ""
    families, words = [], [points.parent.name]
    for line in lines:
        name = line.partition("=")[0].strip()
        section = line if line.startswith("[") else section
        if name and name != section:
            (families if section == "[madbench.families]" else words).append(name)
    labels, any_of = rf"(?<!\w)(?:{'|'.join(families)}):", "|".join(words)
    return re.compile(rf"""{labels}|["'`/.](?:{any_of})["'`/.]|(?:paper|ls|profiles|suite) (?:{any_of})\b""")


def offenders(points: Path, home: Path) -> list[str]:
    """The files of a package at ``home`` that name the package of ``papers/`` with these entry points."""
    pattern = names_of_a_package(points)
    files = [path for end in ("py", "yaml", "json", "j2") for path in home.rglob(f"*.{end}")]
    outside = [path for path in files if points.parent not in path.parents]
    return sorted(str(path.relative_to(home)) for path in outside if pattern.search(path.read_text(encoding="utf-8")))


def test_no_file_outside_a_papers_package_names_it(tmp_path):
    """A package with families is found by its ``entry_points.txt``, as an installed package is by its metadata."""
    every = sorted(PACKAGE.glob("papers/*/entry_points.txt"))
    packages = [points for points in every if "[madbench.families]" in points.read_text(encoding="utf-8")]
    assert packages
    assert {points.parent.name: offenders(points, PACKAGE) for points in packages} == {
        points.parent.name: [] for points in packages
    }
    names = ["'interactions'", "paper interactions", "hfa:2", "import madbench.papers.interactions.suite"]
    for text in (*names, "significant interactions.", "alpha: 1"):
        (tmp_path / "example.py").write_text(f'"""On {text}"""')
        assert offenders(packages[0], tmp_path) == (["example.py"] if text in names else [])


NAMES_A_PAPER = {
    "bench/language.py": "bench table5 prints that table's published numbers beside ours",
    "cli/shared/moved.py": "spellings that moved",
    "cli/paper/__init__.py": "examples of the verb's help",
    "mixers/traits.py": "coefficients is a method of mixers",
}
"""The modules outside of papers that may name one, with the reason."""


def test_no_file_outside_papers_names_a_paper():
    """Their claims, published numbers, sets and profiles are found by the folder in which they stand."""
    papers = {path.parent.name for path in PACKAGE.glob("papers/*/paper.yaml")}
    any_of = "|".join(sorted(papers))
    pattern = re.compile(rf"""["'`/.](?:{any_of})["'`/.]|\bpaper (?:{any_of})\b|(?i:hypermlp)""")
    own = re.compile(r"papers/|mixers/srg/")
    files = {str(path.relative_to(PACKAGE)): path for end in ("py", "yaml", "j2") for path in PACKAGE.rglob(f"*.{end}")}
    naming = {
        name for name, path in files.items() if not own.match(name) and pattern.search(path.read_text(encoding="utf-8"))
    }
    assert naming == NAMES_A_PAPER.keys()


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


def typed_files() -> list[Path]:
    """The files that mypy reads, from ``pyproject.toml``, with those whose errors it ignores."""
    paths = [PACKAGE.parent / path for path in tomllib.loads(PYPROJECT.read_text())["tool"]["mypy"]["files"]]
    return [file for path in paths for file in (sorted(path.rglob("*.py")) if path.is_dir() else [path])]


@pytest.mark.slow
def test_no_type_is_another_name_for_any_and_no_error_of_mypy_is_ignored_without_a_reason():
    """A label and a family have protocols; ``Label = Any`` would hide every wrong attribute from mypy."""
    assert PACKAGE / "labels" / "family.py" in typed_files()
    for path in typed_files():
        text = path.read_text(encoding="utf-8")
        for line in text.splitlines():
            assert "type: ignore" not in line or re.search(r"type: ignore\[[a-z-]+\]  # .{10}", line), f"{path}: {line}"
        aliases = [node for node in ast.parse(text).body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
        assert not [ast.unparse(node) for node in aliases if ast.unparse(node.value) == "Any"], path


ASKS = re.compile(r"_?(is|has|are|may|can|needs|shows|keeps|with|was)_")
"""The prefixes of names of truth values."""
MAY_MULTIPLY = re.compile(r"""["'\])}] \* [a-z(]|[a-z)] \* f?["'\[({]""")
"""A text, list or tuple before or after ``*``, in formatted code."""


def is_truth(node: ast.expr) -> bool:
    """True if an expression is a truth value: a comparison, ``not``, ``bool(...)`` or a name that asks."""
    if isinstance(node, ast.Compare | ast.BoolOp):
        return True
    if isinstance(node, ast.UnaryOp):
        return isinstance(node.op, ast.Not)
    if isinstance(node, ast.Call):
        node = node.func
        if isinstance(node, ast.Name) and node.id in ("all", "any", "bool", "hasattr", "isinstance"):
            return True
    name = node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
    return bool(ASKS.match(name)) or name in ("endswith", "startswith")


def is_text_or_sequence(node: ast.expr) -> bool:
    literals = ast.JoinedStr | ast.List | ast.Set | ast.Tuple
    return isinstance(node, literals) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


@pytest.mark.slow
def test_no_text_or_list_is_multiplied_by_a_truth_value():
    """``if`` is clearer than ``"text" * is_shown`` and ``[x] * bool(y)``."""
    for path in (file for folder in (PACKAGE, EXAMPLES, STUDIES) for file in folder.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        nodes = ast.walk(ast.parse(text)) if MAY_MULTIPLY.search(text) else ()
        for node in (node for node in nodes if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult)):
            for one, other in ((node.left, node.right), (node.right, node.left)):
                is_found = is_text_or_sequence(one) and is_truth(other)
                assert not is_found, f"{path}:{node.lineno}: {ast.unparse(node)}"


SCOPES = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef


def names_bound_in(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """The names that a scope with these nodes binds at run time, and those that it binds for type checks only."""
    bound, for_types = set(), set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if is_for_types(node):
            for_types |= names_bound_in(cast(ast.If, node).body)[0]
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif name := getattr(node, "name", None):  # of a function, class, exception or pattern
            bound.add(name)
        if not isinstance(node, SCOPES):
            waiting += parts_at_run_time(node)
    return bound, for_types - bound


def uses_of_types_at_run_time(source: str) -> list[str]:
    """The uses, as ``line: name``, of names that are bound under ``if TYPE_CHECKING`` only, where code is executed."""
    found = []

    def visit(node: ast.AST, scopes: tuple[tuple[bool, set[str], set[str]], ...]) -> None:
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            visible = [scope for scope in scopes if scope is scopes[-1] or not scope[0]]
            for _, bound, for_types in reversed(visible):
                if node.id in bound | for_types:
                    found.extend([f"{node.lineno}: {node.id}"] if node.id in for_types else [])
                    break
        inner: list[ast.AST] = []
        if isinstance(node, SCOPES):
            inner = node.body if isinstance(node.body, list) else [node.body]
            arguments = [] if isinstance(node, ast.ClassDef) else [node.args]
            own = (isinstance(node, ast.ClassDef), *names_bound_in([*arguments, *inner]))
            for child in inner:
                visit(child, (*scopes, own))
        for child in parts_at_run_time(node):
            if child not in inner:
                visit(child, scopes)

    tree = ast.parse(source)
    visit(tree, ((False, *names_bound_in(tree.body)),))
    return found


@pytest.mark.parametrize(
    ("source", "uses"),
    [
        ("x = cast(Name, 1)", ["5: Name"]),
        ("x = cast('Name', 1)\ny: Name = 1", []),
        ("def f(x: Name) -> Name:\n    return cast(Name, x)", ["6: Name"]),
        ("def f(x: Name) -> Name:\n    from a import Name\n    return cast(Name, x)", []),
        ("def f():\n    from a import Name\n    def g(): return Name\n    return g", []),
        ("def f(x=Name): ...", ["5: Name"]),
        ("@Name\nclass A(Name): ...", ["5: Name", "6: Name"]),
        ("class A:\n    Name = 1\n    x = Name\n    def f(self): return Name", ["8: Name"]),
        ("x = lambda Name: Name\ny = [Alias() for _ in x]", ["6: Alias"]),
        ("def f():\n    if TYPE_CHECKING:\n        from b import Other\n    return Other", ["8: Other"]),
        ("try:\n    from a import Name\nexcept ImportError:\n    Name = None\nx = Name", []),
    ],
)
def test_a_use_of_a_type_at_run_time_is_found(source, uses):
    head = (
        "from __future__ import annotations\nif TYPE_CHECKING:\n    from a import Name\n    Alias: TypeAlias = Name\n"
    )
    assert sorted(uses_of_types_at_run_time(head + source)) == uses


@pytest.mark.slow
def test_no_name_that_is_imported_for_types_is_used_at_run_time():
    """``cast(Name, x)`` evaluates ``Name``. It fails when the line is executed, which an import does not do."""
    texts = {path: path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py")}
    checked = {path: text for path, text in texts.items() if "TYPE_CHECKING:" in text}
    assert len(checked) > 100 and all("from __future__ import annotations" in text for text in checked.values())
    uses = {str(path): uses_of_types_at_run_time(text) for path, text in checked.items()}
    assert {path: found for path, found in uses.items() if found} == {}


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


def test_no_module_changes_the_working_folder():
    """Otherwise relative paths of the user would change their meaning. A path is passed on instead."""
    assert [path for path in PACKAGE.rglob("*.py") if "chdir(" in path.read_text(encoding="utf-8")] == []


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
