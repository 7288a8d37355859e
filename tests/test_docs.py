"""The README and the pages are right: code blocks are run or parsed, and links lead somewhere."""

from __future__ import annotations

import argparse
import ast
import importlib
import importlib.util
import inspect
import re
import shlex
import sys
from pathlib import Path

import pytest
import typer

import madbench
from command_line import main as main
from docs_folder import load_script
from installed import forget_installed
from madbench.cli import app
from madbench.cli.shared.words import labels_and_overrides
from madbench.labels import expand
from madbench.mixers.srg.grammar import LETTERS
from madbench.store.archive import unpack
from madbench.store.runs import Store
from madbench.suites.language.suite import LanguageProfile
from madbench.suites.mad.suite import MadProfile

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "pages").rglob("*.md"))]
TEXTS = {page.relative_to(ROOT).as_posix(): page.read_text(encoding="utf-8") for page in PAGES}
BLOCKS = [
    (page, language, code)
    for page, text in TEXTS.items()
    for language, code in re.findall(r"^ *```(\w*)\n(.*?)^ *```", text, re.DOTALL | re.MULTILINE)
]
OTHER_COMMANDS = (
    "python -m madbench.",
    "python docs/",
    "python studies/",
    "python3 -m venv ",
    "source ",
    "torchrun ",
    "pip install ",
    "uv ",
    "TASKS=",
)


def commands_of(code: str) -> list[str]:
    """Command lines of a block, each without its comment and its continuation."""
    lines = (re.sub(r"\s#.*", "", line).strip() for line in code.replace("\\\n", " ").splitlines())
    return [line for line in lines if line]


COMMANDS = sorted({line for _, language, code in BLOCKS if language == "bash" for line in commands_of(code)})
VERBS = typer.main.get_command(app).commands


@pytest.fixture(autouse=True, scope="module")
def own_mixer(tmp_path_factory):
    """The README's module, in the file and the folder where its commands expect it."""
    (code,) = {code for _, _, code in BLOCKS if "class MyMixer" in code}
    folder = tmp_path_factory.mktemp("own")
    (folder / "my_mixers.py").write_text(code)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.syspath_prepend(folder)
        yield
    sys.modules.pop("my_mixers", None)
    forget_installed()


def test_the_module_in_the_readme_is_a_valid_mixer():
    allocation = madbench.build("my:my_mixers.MyMixer", 32, 16).allocation
    assert allocation.total == 33 * 32 and not allocation.leak


def test_the_readme_is_at_most_120_lines():
    assert len(TEXTS["README.md"].splitlines()) <= 120


@pytest.mark.parametrize("part", ["run", "test"])
def test_the_run_and_test_commands_of_the_readme_are_marked_for_ci(part):
    (line,) = re.findall(rf"<!-- {part} -->\n```bash\n(.*)\n```", TEXTS["README.md"])
    assert line.startswith("python3 -m venv .venv && ")


def test_every_code_block_of_the_docs_names_its_language():
    assert {language for _, language, _ in BLOCKS} == {"bash", "diff", "python", "text"}
    assert len(COMMANDS) > 80


@pytest.mark.parametrize("edit", [code for _, language, code in BLOCKS if language == "diff"])
def test_the_lines_that_an_example_edits_are_in_its_file(edit):
    """The first line of the example names the file. The lines that it keeps and removes follow each other there."""
    first, *lines = edit.splitlines(keepends=True)
    assert first.startswith("--- ") and {line[0] for line in lines} == set(" -+")
    before = "".join(line[1:] for line in lines if line[0] != "+")
    assert before in (ROOT / first.removeprefix("--- ").strip()).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", TEXTS)
def test_examples_that_install_or_need_several_machines_are_marked_with_a_reason(page):
    marked = re.findall(r"(<!-- (?:not run: .*|run|test) -->\n)?```bash\n(.*?)```", TEXTS[page], re.DOTALL)
    outside = ("pip ", "uv ", "python3 ", "source ", "torchrun ")
    assert not [
        code for mark, code in marked if not mark and any(line.startswith(outside) for line in commands_of(code))
    ]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_names_a_verb_options_labels_and_settings_that_exist(command):
    if not command.startswith("madbench "):
        assert command.startswith(OTHER_COMMANDS)
        for module in re.findall(r"(?<=-m )madbench\.[\w.]+", command):
            assert importlib.util.find_spec(module)
        for script in re.findall(r"^python ((?:docs|studies)/\S+)", command):
            assert (ROOT / script).is_file()
        _, is_ours, command = command.partition(" -m madbench ")
        if not is_ours:
            return
        command = f"madbench {command}"
    _, *typed = shlex.split(command)
    verb, *words = typed
    group = VERBS[verb]
    if subcommands := getattr(group, "commands", {}):
        default = next(iter(subcommands)) if not words or words[0] not in subcommands else words.pop(0)
        group = subcommands[default]
    group.make_context(verb, list(words))
    if verb not in ("run", "explain", "table", "compare", "attribute") and (verb != "lm" or group.name != "train"):
        return
    first_option = next((i for i, word in enumerate(words) if word.startswith("-")), len(words))
    if words[:1] == ["--cost"]:
        first_option = next((i for i, word in enumerate(words[1:], 1) if word.startswith("-")), len(words))
    labels, overrides = labels_and_overrides([word for word in words[:first_option] if word != "--cost"])
    if verb == "lm":
        LanguageProfile.load("tiny", overrides)
    else:
        MadProfile.load("quick", overrides)
    assert expand(labels) or verb in ("table", "attribute")


def test_the_list_of_studies_names_every_program():
    listed = re.findall(
        r"^\| `python studies/(\S+?)`?[ `]", (ROOT / "studies/README.md").read_text("utf-8"), re.MULTILINE
    )
    programs = [path.name for path in (ROOT / "studies").glob("*.py") if "__main__" in path.read_text("utf-8")]
    assert sorted(listed) == sorted(programs)


STUDY_COMMANDS = [command for command in COMMANDS if command.startswith("python studies/")]


@pytest.mark.slow
@pytest.mark.parametrize("command", STUDY_COMMANDS)
def test_a_study_takes_the_words_of_its_documented_command(command, monkeypatch):
    class Parsed(BaseException):
        pass

    def parse(parser, args=None, namespace=None):
        _, unknown = parser.parse_known_args(args, namespace)
        assert not unknown, f"{command}: unknown {unknown}"
        raise Parsed

    for name in ("parse_args", "parse_intermixed_args"):
        monkeypatch.setattr(argparse.ArgumentParser, name, parse)
    _, script, *words = shlex.split(command)
    monkeypatch.setattr(sys, "argv", [script, *words])
    loaded = importlib.import_module(Path(script).stem)
    with pytest.raises(Parsed):
        loaded.main()


@pytest.mark.slow
def test_the_python_of_the_page_on_reading_runs_on_stored_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    unpack(ROOT / "results" / "measured" / "evening.tar.xz", Store.open(Path("results")))
    (code,) = [code for page, language, code in BLOCKS if page == "docs/pages/reading.md" and language == "python"]
    exec(compile(code, "reading.md", "exec"), {})


@pytest.mark.slow
def test_the_page_on_trained_models_runs_from_top_to_bottom(main):
    for page, language, code in BLOCKS:
        if page == "docs/pages/inside.md" and language == "bash":
            for command in commands_of(code):
                ended = main(*shlex.split(command)[1:])
                assert ended.code == 0, ended.stderr
        elif page == "docs/pages/inside.md":
            exec(compile(code, page, "exec"), {})


@pytest.mark.parametrize(("page", "code"), [(page, code) for page, language, code in BLOCKS if language == "python"])
def test_python_on_a_page_calls_functions_with_existing_parameters(page, code):
    for call in ast.walk(ast.parse(code)):
        if isinstance(call, ast.Call) and ast.unparse(call.func).startswith("madbench."):
            function = getattr(madbench, ast.unparse(call.func).removeprefix("madbench."))
            inspect.signature(function).bind(*call.args, **{keyword.arg: keyword.value for keyword in call.keywords})


def anchor(heading: str) -> str:
    """The name of a heading in a link, on GitHub and on the site."""
    return re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower()).replace(" ", "-")


@pytest.mark.parametrize("page", TEXTS)
def test_links_of_a_page_lead_to_existing_files_and_headings(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", TEXTS[page], flags=re.DOTALL)):
        if target.startswith(("https://", "api/", "../api/")):  # api/ is written while the site is built
            continue
        path, _, name = target.partition("#")
        end = (ROOT / page).parent / path if path else ROOT / page
        assert end.exists(), target
        if name and end.suffix == ".md":
            headings = re.findall(r"^#+ (.*)$", end.read_text(encoding="utf-8") + _included(end), re.MULTILINE)
            assert name in map(anchor, headings), target


def _included(page: Path) -> str:
    files = re.findall(r"<!-- include: (\S+)", page.read_text(encoding="utf-8"))
    return "\n".join((ROOT / file).read_text(encoding="utf-8") for file in files if (ROOT / file).exists())


def test_every_page_is_two_clicks_from_the_readme():
    """The README's links, and those of the pages they lead to."""

    def ends(page: str) -> set[str]:
        targets = re.findall(r"\]\(([^)#\s]+\.md)", TEXTS[page])
        paths = [((ROOT / page).parent / target).resolve() for target in targets if "api/" not in target]
        return {path.relative_to(ROOT).as_posix() for path in paths} & TEXTS.keys()

    first = ends("README.md")
    second = set().union(*(ends(page) for page in first))
    assert TEXTS.keys() - first - second - {"README.md", "docs/pages/index.md", "docs/pages/changelog.md"} == set()


DEFINITION = re.compile(r"^\| ([a-z ]+) \| (.+) \|$", re.MULTILINE)
NOUNS = (
    "label, family, mixer, task, task setting, setting, suite, profile, protocol, fidelity, budget, allocation, grid, "
    "plan, experiment, job, run, trial, group, slot, lock, record, query, selection, results, column, cell, row, "
    "claim, item, room, "
    "base, row of scores, slot of a row, register, lag, mixing matrix, strengths, readout, mirror"
)


def test_the_glossary_defines_each_core_noun_in_one_sentence():
    definitions = dict(DEFINITION.findall((ROOT / "docs/pages/glossary.md").read_text()))
    assert ", ".join(definitions) == NOUNS
    for noun, text in definitions.items():
        assert text.endswith(".") and text.count(". ") == 0 and len(text.split()) <= 30, noun
    assert all("(glossary.md)" in (ROOT / f"docs/pages/{page}.md").read_text() for page in ("index", "architecture"))


@pytest.mark.parametrize("name", ["hypermlp", "coefficients", "interactions"])
def test_every_row_of_a_papers_items_has_five_cells(name):
    """A title such as "|T| = c" adds none."""
    page = load_script("filled").fill(TEXTS[f"docs/pages/papers/{name}.md"], Path("papers", f"{name}.md"))
    rows = [row for row in page[page.index("| Item |") :].splitlines() if row.startswith("|")]
    assert len(rows) > 20 and {len(re.findall(r"(?<!\\)\|", row)) for row in rows} == {6}


def test_the_page_of_labels_has_an_entry_or_a_row_for_each_letter():
    """Entries are ``| R ReLU of L2Norm`` in the first block. Rows are those of the table of other papers' letters."""
    page = (ROOT / "docs/pages/labels.md").read_text(encoding="utf-8")
    block = page.split("```text\n")[1].split("```")[0]
    entries = re.findall(r"(?:^|  |\| |[;:] )([A-Za-z0-9!])(?= )", block, re.MULTILINE)
    rows = re.findall(r"^\| (\S) \|", page, re.MULTILINE)
    assert sorted(entries + rows) == sorted(row.letter for row in LETTERS)


def test_broken_links_of_a_page_are_named(tmp_path):
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="b.html">b</a><a href="c.html#there">c</a><a href="#here">ok</a><img src="p.png">'
        '<a href="#gone">gone</a><a href="https://example.org">away</a>'
    )
    (tmp_path / "c.html").write_text('<script src="https://example.org/x.js"></script>')
    broken = load_script("links").broken_links(tmp_path)
    assert [line.partition(": ")[2] for line in sorted(broken)] == [
        "no anchor for #gone", "no anchor for c.html#there", "no file for b.html", "no file for p.png",
        "loads https://example.org/x.js from the network",
    ]  # fmt: skip


def test_the_pictures_of_the_pages_are_those_of_their_command():
    pictures = load_script("pictures")
    folder = ROOT / "docs" / "pages" / "pictures"
    assert (folder / "label.svg").read_text() == pictures.label_picture("G-cg-q-12o")
    assert (folder / "house.svg").read_text() == pictures.house_picture()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "usage: python docs/pictures.py LABEL"),
        (["--help"], "usage: python docs/pictures.py LABEL"),
        (["KDA"], "KDA has no such picture"),
        (["3xKDA/S-p"], "3xKDA/S-p has no such picture"),
        (["cd:gla"], "cd:gla has no such picture"),
        (["G-cx-q-12o"], "label 'G-cx-q-12o'"),
    ],
)
def test_pictures_py_with_wrong_arguments_prints_a_message(words, message):
    with pytest.raises(SystemExit, match=re.escape(message)):
        load_script("pictures").main(words)


def test_pictures_py_prints_the_picture_of_a_label():
    pictures = load_script("pictures")
    assert pictures.main(["HyperGLU"]) == pictures.label_picture("G-cg-q-12o")
    assert pictures.main(["house"]) == pictures.house_picture()


def test_the_reference_lists_arguments_and_no_sentences_as_arguments():
    pytest.importorskip("griffe", reason="pip install '.[docs]' brings what builds the site")
    reference = load_script("reference")
    page = reference.reference_page(*reference.REFERENCE["functions"])
    for function, text in re.findall(r"## `(\w+)` \{(.*?)(?=\n## |\Z)", page, re.DOTALL):
        names = re.findall(r"^- `([^`]+)`:", text, re.MULTILINE)
        assert not names or set(names) <= inspect.signature(getattr(madbench, function)).parameters.keys(), function
    assert "**Returns**\n\n  " in page


def test_the_reference_has_the_shared_arguments_of_a_function_with_their_defaults():
    pytest.importorskip("griffe", reason="pip install '.[docs]' brings what builds the site")
    reference = load_script("reference")
    page = reference.reference_page(*reference.REFERENCE["functions"])
    sections = dict(re.findall(r"^## `(\w+)` .*?\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL))
    run = sections["run"]
    assert "    micro_batch: int | None = None,\n" in run and "    results: Path | str = 'results',\n" in run
    sentence = "Sequences in memory at a time; the gradients of a step are accumulated."
    assert f"\n- `micro_batch`: {sentence}\n" in run.partition("**Shared arguments**")[2]
    for name in ("attribute", "audit", "compare", "plan", "run", "run_language_model", "sweep", "table"):
        function = getattr(madbench, name)
        described = re.findall(r"^    (\w+): ", function.__doc__.partition("Shared arguments:")[2], re.MULTILINE)
        signature, _, text = sections[name].partition("\n```\n")
        assert len(described) > 5 and set(described) <= set(re.findall(r"^- `(\w+)`: ", text, re.MULTILINE))
        assert {*re.findall(r"^    (\w+): ", signature, re.MULTILINE)} == {*inspect.signature(function).parameters}


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_its_links_lead_somewhere(tmp_path):
    pytest.importorskip("griffe", reason="pip install '.[docs]' brings what builds the site")
    pytest.importorskip("zensical", reason="pip install '.[docs]' brings what builds the site")
    assert load_script("build").build(tmp_path / "docs") == []


def test_the_profiles_page_lists_profiles_that_mad_trains():
    table = TEXTS["docs/pages/profiles.md"].partition("| Profile |")[2].partition("\n\n")[0]
    listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
    assert len(listed) >= 3
    for name in listed:
        MadProfile.load(name)


def test_the_page_of_operators_has_counted_and_measured_costs_of_each():
    from madbench.mixers import solve
    from madbench.mixers.named.operators import OPERATORS

    filled = load_script("filled")
    width, heads, length = filled.OPERATOR_SIZE
    rows = [line.strip("| ").split(" | ") for line in filled.operator_table().splitlines() if line.startswith("| `")]
    costs = {name.strip("`"): numbers for name, *numbers in rows[len(OPERATORS) :]}
    assert list(costs) == [filled.BASELINE, *OPERATORS]
    for label, (parameters, state, flops, *times) in costs.items():
        one = solve(label, width, heads, length)
        assert (parameters, state) == (f"{one.total:,}", f"{one.state(length):,}")
        assert flops == f"{one.flops_per_token(length):,.0f}" and len(times) == len(filled.TIMES)
    assert costs[filled.BASELINE][3:] == ["1.00"] * len(filled.TIMES)
