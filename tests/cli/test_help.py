"""Help texts of all verbs, and the modules that help and ``import madbench`` may import."""

from __future__ import annotations

import dataclasses
import functools
import re
import shlex
import subprocess
import sys

import pytest
import typer

from madbench.cli import ALL_VERBS, app
from madbench.cli.shared.moved import MOVED, MOVED_OPTIONS
from madbench.grid import GridFile
from madbench.suites import main_suite, suites

tree_of = functools.cache(typer.main.get_command)
VERBS = tree_of(app).commands
COMMANDS = {name: verb for name, verb in VERBS.items() if name != "lm"}
COMMANDS |= {f"lm {name}": verb for name, verb in VERBS["lm"].commands.items()}


def verb_in_examples(verb):
    """The verb as examples write it: the default verb of a group is left out."""
    return "lm" if verb == "lm train" else verb


def examples(verb):
    """The arguments after ``verb`` of the command lines in its help, without comments."""
    lines = re.findall(rf"^\s+madbench {verb_in_examples(verb)}(?: (.*))?$", COMMANDS[verb].help, re.MULTILINE)
    return [shlex.split(re.split(r"\s{2,}", line)[0]) for line in lines]


HEAVY = "print(sorted({'torch', 'numpy', 'pandas', 'yaml', 'matplotlib'} & set(sys.modules)))"


def run_program(program: str) -> str:
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


@pytest.mark.slow
def test_help_is_shown_without_importing_anything_heavy():
    shown = run_program(
        "import sys; from madbench.cli import main\n"
        "for words in [], ['run'], ['lm', 'train']:\n"
        "    sys.argv = ['madbench', *words, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as end: assert not end.code, end.code\n" + HEAVY
    )
    assert shown.splitlines()[-1] == "[]" and shown.count("Usage: ") == 3
    assert all(verb in shown for verb in VERBS)


@pytest.mark.slow
def test_the_overview_imports_no_verb():
    shown = run_program(
        "import sys; from madbench.cli import main; sys.argv = ['madbench', '--help']\n"
        "try: main()\n"
        "except SystemExit: print({'madbench.cli.run', 'madbench.cli.table', 'madbench.cli.import_'} & {*sys.modules})"
    )
    assert shown.splitlines()[-1] == "set()" and "Add the runs of an archive" in shown


@pytest.mark.parametrize("verb", ["run", "sweep", "table", "compare", "findings", "audit", "data", "report", "plot"])
def test_every_verb_shows_the_default_profile_of_the_main_suite(verb):
    (profile,) = (option for option in COMMANDS[verb].params if option.name == "profile")
    assert profile.default is None and main_suite().default in profile.show_default


def test_sweep_has_the_options_of_run_and_those_of_a_grid():
    names, helps = ({option.name: option.help for option in COMMANDS[verb].params} for verb in ("run", "sweep"))
    assert (
        helps.keys() - names.keys() == {"vary", "mode", "baseline", "compare", "within"}
        and not names.keys() - helps.keys()
    )
    assert all(helps[name] == text for name, text in names.items() if name != "words")


def test_the_help_of_sweep_names_every_key_of_a_grid_file():
    (keys,) = re.findall(r"A grid in a file has the keys ([^:(]*)", COMMANDS["sweep"].help)
    assert {*re.findall("[a-z_]+", keys)} - {"and"} == {field.name for field in dataclasses.fields(GridFile)}


def test_importing_madbench_leaves_the_import_system_alone():
    program = "import sys; before = [*sys.meta_path], [*sys.path_hooks]; import madbench; madbench.parse('S')"
    assert run_program(f"{program}; print(before == ([*sys.meta_path], [*sys.path_hooks]))") == "True\n"


def test_madbench_is_imported_without_anything_heavy():
    assert run_program(f"import madbench, sys; madbench.parse('S'); {HEAVY}") == "[]\n"


def test_a_users_error_is_one_message_and_exit_code_2(main):
    result = main("explain", "R-cg-12o")
    assert result.code == 2 and result.stdout == ""
    assert result.stderr.startswith("label 'R-cg-12o'\n") and "Traceback" not in result.stderr


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_verb_has_examples_whose_words_and_options_exist(verb):
    found = examples(verb)
    assert found
    for words in found:
        COMMANDS[verb].make_context(verb, words)


@pytest.mark.parametrize("verb", COMMANDS)
def test_every_option_and_argument_says_what_it_is(verb):
    for parameter in COMMANDS[verb].params:
        assert parameter.help or parameter.name == "help", parameter.name


@pytest.mark.parametrize("verb", COMMANDS)
def test_examples_are_indented_under_their_heading(main, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "80")
    shown = main(*verb.split(), "--help").stdout
    example = next(
        line for line in shown.splitlines() if line.lstrip().startswith(f"madbench {verb_in_examples(verb)} ")
    )
    heading = next(line for line in shown.splitlines() if line.strip() == "Examples")
    assert example.index("m") == heading.index("E") + 2


@pytest.mark.parametrize("verb", COMMANDS)
def test_no_line_of_a_help_text_runs_over_80_columns(verb):
    help_text = COMMANDS[verb].help.split("\n\n", 1)[1]  # the summary before it is wrapped by the screen
    assert max(map(len, help_text.replace("\\[", "[").splitlines())) <= 78


@pytest.mark.parametrize("group", ["", "lm"])
def test_the_overview_has_every_summary_on_a_line_of_80_columns(main, monkeypatch, group):
    monkeypatch.setenv("COLUMNS", "80")
    shown = main(*group.split(), "--help").stdout
    command = VERBS["lm"] if group else tree_of(app)
    summaries = [verb.help.partition("\n\n")[0] for verb in command.commands.values()]
    assert summaries and [text for text in summaries if text not in shown] == []


@pytest.mark.parametrize("verb", COMMANDS)
def test_help_has_at_most_a_dozen_options_and_help_all_has_every_one(main, monkeypatch, verb):
    monkeypatch.setenv("COLUMNS", "120")
    short, long = ({*re.findall(r"^│ (--[a-z-]+)", main(*verb.split(), flag).stdout, re.MULTILINE)} for flag in FLAGS)
    assert len(short - {"--help", "--help-all"}) <= 12
    options = {one.opts[0] for one in COMMANDS[verb].params if one.param_type_name == "option"} | {"--help"}
    assert (long or short) == options, "a verb without rare options has no --help-all"


FLAGS = ("--help", "--help-all")


def test_the_overview_fits_on_a_screen_of_80_by_40(main, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    lines = main("--help").stdout.splitlines()
    assert len(lines) <= 40 and max(map(len, lines)) <= 80
    assert set(VERBS) == ALL_VERBS


@pytest.mark.parametrize("option", MOVED_OPTIONS)
def test_an_option_that_moved_is_refused_with_its_new_name(main, option):
    refused = main("table", f"{option}=x")
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr == f"{option} is now {MOVED_OPTIONS[option]}\n"


def test_an_option_of_another_command_is_refused_with_the_one_for_its_purpose(main):
    refused = main("again", "mine.tar.xz", "--results", "there")
    assert refused.code == 2
    assert refused.stderr == "--results: madbench again has no such option; --keep FOLDER keeps the new runs\n"


@pytest.mark.parametrize(
    "words, problem",
    [
        (("run", "S", "--sedes", "1"), "--sedes: madbench run has no such option; did you mean '--seeds'?"),
        (
            ("compare", "S", "R", "--margin", "2"),
            "--margin: madbench compare has no such option; did you mean '--within'?",
        ),
        (
            ("compare", "S", "R", "--alpha", "1"),
            "--alpha: madbench compare has no such option; madbench compare --help-all",
        ),
        (
            ("run", "S", "--set", "a=1"),
            "--set: madbench run has no such option; settings are words, such as training.epochs=20",
        ),
        (("archive", "x.tar.xz"), "'x.tar.xz' is no label; --output x.tar.xz names the archive"),
        (("again", "x.tar.xz"), "x.tar.xz: there is no such archive or results folder"),
        (("data", "memorization", "--seed", str(2**63)), "--seed must be at most 9,223,372,036,854,775,807"),
        (
            ("run", "S", "--seeds", str(2**64)),
            "--seeds '18446744073709551616': expected whole numbers of at most 18 digits",
        ),
        (("table", "--seeds", "0-1"), "--seeds: madbench table has no such option; it shows all stored seeds"),
        (("run", "S", "-y"), "-y: madbench run has no such option; madbench run --help-all lists all"),
        (("lm", "train", "-y"), "-y: madbench lm train has no such option; madbench lm train --help-all lists all"),
        (
            ("run", "S", "--lr", "1e-3"),
            "--lr: madbench run has no such option; settings of the profile have no dashes: ",
        ),
        (
            ("lm", "train", "S", "--lr", "1"),
            "--lr: madbench lm train has no such option; settings of the profile have ",
        ),
        (("run", "S", "--seeds"), "--seeds: expected a value"),
        (("run", "S", "--dry-run=3"), "--dry-run: takes no value"),
        (("run", "S", "--help=3"), "--help: takes no value"),
    ],
)
def test_an_option_that_does_not_fit_is_refused_with_what_to_type(main, words, problem):
    refused = main(*words)
    assert (refused.code, refused.stdout) == (2, "") and refused.stderr.startswith(problem)
    assert refused.stderr.count("\n") == 1


@pytest.mark.parametrize("verb", MOVED)
@pytest.mark.parametrize("rest", [(), ("--help",), ("colliding", "--format", "latex")])
def test_a_verb_that_moved_is_refused_with_its_new_name(main, verb, rest):
    refused = main(*verb.split(), *rest)
    assert (refused.code, refused.stdout) == (2, "")
    assert refused.stderr == f"madbench {verb} is now {MOVED[verb]}\n"
    assert main(*MOVED[verb].split()[1:], "--help").code == 0


@pytest.mark.parametrize("rest", [(), ("--help",)])
def test_ls_with_a_suite_is_refused_with_its_new_name(main, rest):
    for suite in suites():
        refused = main("ls", suite, *rest)
        assert (refused.code, refused.stdout) == (2, "")
        assert refused.stderr == f"madbench ls {suite} is now madbench ls profiles {suite}\n"


@pytest.mark.parametrize("kind", ["profiles", "tasks", "sets", "runs"])
def test_a_kind_of_list_given_as_a_verb_is_refused_with_the_command_that_lists_it(main, kind):
    refused = main(kind, "-f", "json")
    assert (refused.code, refused.stderr) == (
        2,
        f"there is no command {kind!r}; did you mean madbench ls {kind}?\n",
    )
    assert main("ls", kind, "--help").code == 0


@pytest.mark.parametrize("verb", ["table", "compare", "plot", "report", "run"])
def test_the_help_says_that_rename_is_repeated(main, verb):
    assert "Repeat the option for each label." in " ".join(main(verb, "--help-all").stdout.replace("│", " ").split())


def test_a_value_that_looks_like_a_former_option_is_accepted(main):
    assert "--json" in main("new", "claim", "S-p > S on compression", "--name", "--json").stdout


@pytest.mark.parametrize("paper", ["hypermlp", "coefficients", "interactions", "talk"])
def test_a_paper_given_as_a_verb_is_refused_with_the_right_command(main, paper):
    refused = main(paper, "--seeds", "0")
    assert (refused.code, refused.stderr) == (2, f"{paper} is a paper: madbench paper {paper}\n")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tabel",), "there is no command 'tabel'; did you mean 'table'?"),
        (("lm", "prepar"), "there is no command or label 'prepar'; did you mean 'prepare'?"),
        (("qqqq",), "there is no command 'qqqq'; madbench --help lists all"),
        (("verify",), "madbench verify: expected LABEL; madbench verify --help has examples"),
        (("lm", "prepare"), "madbench lm prepare: expected SOURCE; madbench lm prepare --help has examples"),
        (("register", "a", "b"), "madbench register: got unexpected extra arguments (b)"),
        (("--results", "r", "table"), "--results: madbench has no such option; options of a command follow its name"),
    ],
)
def test_a_wrong_command_line_is_one_message_without_a_box(words, said, main):
    assert main(*words) == (2, "", f"{said}\n")
