"""Values that no option can use: one message and exit code 2."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from madbench.cli import app
from madbench.config import short_repr

WORDS = {
    "run": ["S", "-t", "compression", "--dry-run"],
    "sweep": ["S", "R", "-t", "compression", "--dry-run"],
    "compare": ["S", "R"],
    "explain": ["S"],
    "lm train": ["S", "--dry-run"],
    "lm prepare": ["text.txt"],
    "lm sample": ["S"],
    "lm evaluate": ["S"],
    "lm export": ["S"],
}
"""The arguments that a verb needs besides an option."""


def verbs(group, path=""):
    for name, verb in group.commands.items():
        yield from verbs(verb, f"{name} ") if hasattr(verb, "commands") else [(path + name, verb)]


VERBS = dict(verbs(typer.main.get_command(app)))


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_takes_an_empty_value(verb, main):
    for parameter in VERBS[verb].params:
        if getattr(parameter, "is_flag", False) or parameter.name in ("help", "prompt"):
            continue
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else None
        ended = main(*verb.split(), *WORDS.get(verb, []), *([option] if option else []), "")
        assert ended.code == 2 and len(ended.stderr) < 3_000
        if option:
            assert ended.stderr == f"{option} '': expected a value; leave the option out for its default\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "S", "--seeds", "0", "--seeds=1"], "--seeds: given twice; give it once"),
        (["lm", "S", "--profile", "mini", "-p", "tiny"], "--profile and -p are one option; give it once"),
        (["lm", "S", "-pmini", "-p", "tiny"], "-p: given twice; give it once"),
        (["run", "S", "--match=flops", "--budget", "paper"], "--match and --budget are one option; give it once"),
        (
            ["run", "S", "--tasks", "compression", "-t", ""],
            "-t '': expected a value; leave the option out for its default",
        ),
        (
            ["paper", "hypermlp", "table1", "-yf", "jso"],
            "--format 'jso': there is no such choice; did you mean 'json'?",
        ),
        (["run", "S", "--match="], "--match '': expected a value; leave the option out for its default"),
        (["bench", "--minutes", "inf"], "--minutes inf: expected a finite number"),
        (["lm", "prepare", "x", "--max-total", "inf"], "--max-total inf: expected a finite number"),
        (["bench", "--paths", "dens"], "--paths dens: these labels have no path 'dens'; did you mean 'dense'?"),
        (["verify", "S", "--all", "-f", "json"], "--all has no effect with -f json, which has every check"),
        (
            ["explain", "--cost", "S", "R", "--terms", "-f", "json"],
            "--terms has no effect with -f json, which has every term",
        ),
        (["inspect", __file__, "-t", "x"], f"--tasks x has no effect on {__file__}, a file of one run"),
        (
            ["lm", "sample", "S", "--temperature", "0", "--top-k", "3"],
            "--top-k 3 has no effect with --temperature 0, which takes the likeliest token",
        ),
    ],
)
def test_repeated_options_with_one_value_are_refused(words, problem, main):
    ended = main(*words)
    assert ended.code == 2 and ended.stderr == f"{problem}\n"


@pytest.mark.parametrize("words", [["table"], ["compare", "S", "R"], ["plot", "scores"], ["findings"], ["attribute"]])
def test_an_unknown_fidelity_or_budget_is_refused_with_the_choices(words, main):
    budgets = "strict, parameters, paper, flops, state, compute"
    for option, choices in (("--fidelity", "corrected, published"), ("--budget", budgets)):
        ended = main(*words, option, "xx")
        assert ended.code == 2
        assert ended.stderr == f"{option} 'xx': there is no such choice; expected one of: {choices}\n"


@pytest.mark.parametrize("words", [["--match", "xx"], ["--match=xx"], ["--budget", "xx"]])
def test_an_option_of_two_names_is_called_as_it_was_typed(words, main):
    name = words[0].partition("=")[0]
    assert main("run", "S", *words).stderr.startswith(f"{name} 'xx': there is no such choice; expected one of: ")


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["run", "S", "--slots", "0"], "--slots must be at least 1, got 0"),
        (["run", "S", "--slots=-1"], "--slots must be at least 1, got -1"),
        (["run", "S", "--slots", "two"], "--slots 'two': expected a whole number"),
        (["run", "S", "--threads", "99999"], "--threads must be at most 1,024, got 99999"),
        (["run", "S", "--threads", "9" * 400], f"--threads must be at most 1,024, got {short_repr(10**400 - 1)}"),
        (["explain", "S", "--cost", "--d-model", "0"], "--d-model must be at least 1, got 0"),
        (["explain", "S", "--mix-rank", "1.5"], "--mix-rank '1.5': expected a whole number"),
        (["bench", "--minutes", "0.01"], "--minutes must be at least 0.1, got 0.01"),
        (["bench", "--minutes", "nan"], "--minutes nan: expected a finite number"),
    ],
)
def test_a_number_out_of_range_is_named_with_its_bounds(words, problem, main):
    ended = main(*words)
    assert (ended.code, ended.stderr) == (2, f"{problem}\n")


@pytest.mark.slow
def test_list_options_can_be_repeated(main):
    ended = main("run", "S", "-t", "compression", "-t", "memorization", "--dry-run", "-f", "json")
    assert ended.code == 0 and "memorization" in ended.stdout


def test_shell_completion_works_on_an_invalid_command_line(main, monkeypatch):
    monkeypatch.setenv("COMP_WORDS", "madbench run S --seeds= --tasks a --seeds 1 --fid")
    monkeypatch.setenv("COMP_CWORD", "8")
    monkeypatch.setenv("_MADBENCH_COMPLETE", "complete_bash")
    completed = main()
    assert (completed.stdout, completed.stderr) == ("--fidelity\n", "")


def test_a_checkout_without_dependencies_says_how_to_install_them():
    command = [sys.executable, "-S", Path(__file__).parents[2] / "cli.py"]
    ended = subprocess.run(command, env=os.environ | {"PYTHONPATH": ""}, check=False, capture_output=True, text=True)
    assert ended.returncode == 1
    assert ended.stderr == "typer is not installed; pip install -c constraints.txt . installs all that madbench needs\n"


def test_help_is_printed_even_if_other_options_are_wrong(main):
    assert main("run", "S", "--seeds=", "--seeds=1", "--help").code == 0


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep", "table", "report", "findings", "ls", "lm train", "lm sample"])
def test_a_name_too_long_for_the_file_system_is_named(verb, main):
    for option in {"--results", "--profile", "--output"}.intersection(o for p in VERBS[verb].params for o in p.opts):
        ended = main(*verb.split(), *WORDS.get(verb, []), option, "x" * 300)
        assert ended.code == 2, option
        assert "xxx" in ended.stderr or "no such results folder" in ended.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("without_figures")
def test_a_folder_in_place_of_an_output_file_is_refused_by_name(main, fill, tiny):
    fill(["S", "R"], seeds=(0, 1, 2))
    Path("taken").mkdir()
    ended = main("report", "--profile", tiny, "-t", "compression", "-o", "taken")
    assert ended.code == 2 and ended.stderr.startswith("taken: ")


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["run", "sweep", "explain", "table", "plot", "compare", "ls", "data", "new"])
def test_error_messages_shorten_a_long_argument(verb, main):
    for parameter in VERBS[verb].params:
        option = parameter.opts[0] if parameter.opts[0].startswith("-") else None
        if getattr(parameter, "is_flag", False) or parameter.name in ("help", "output"):
            continue
        for word in ("x" * 5_000, f"a={'x' * 5_000}"):
            ended = main(*verb.split(), *WORDS.get(verb, []), *([option] if option else []), word)
            assert len(ended.stderr) < 1_100, option


@pytest.mark.slow
def test_a_folder_that_bench_cannot_make_is_named_before_anything_is_measured(main):
    Path("taken").write_text("")
    ended = main("bench", "decode", "S", "--lengths", "8", "--minutes", "0.1", "--output", "taken")
    assert ended.code == 2 and ended.stdout == "" and ended.stderr.startswith("taken: ")


def test_a_label_of_a_million_characters_prints_a_few_lines(main):
    ended = main("explain", "x" * 100_000)
    assert ended.code == 2 and len(ended.stderr) < 300
    ended = main("run", "S", f"training.{'x' * 100_000}=1")
    assert ended.code == 2 and len(ended.stderr) < 3_000
    for words in (["ls", "x" * 9_000], ["data", "x" * 9_000], ["run", "S", "-t", "x" * 9_000]):
        ended = main(*words)
        assert ended.code == 2 and "xxx" in ended.stderr and len(ended.stderr) < 1_000


@pytest.mark.slow
@pytest.mark.parametrize(
    ("override", "limit"),
    [
        ("model.n_layer=100000000", "n_layer must be at most 1,000, got 100000000"),
        ("model.d_model=100000000000000000000", "d_model must be at most 65,536"),
        ("model.n_head=99999999999", "n_head must be at most 65,536"),
        ("tasks.compression.setting.vocab_size=1000000000000", "vocab_size must be at most 10,000,000"),
        ("tasks.compression.setting.seq_len=1000000000", "seq_len must be at most 1,000,000"),
        ("tasks.compression.setting.num_train_examples=99999999", "num_train_examples must be at most 10,000,000"),
        ("training.epochs=1000000000000", "epochs must be at most 1,000,000,000"),
        (f"learning_rates=[{','.join(f'1e-{i}' for i in range(1, 200))}]", "jobs; at most 100,000 are allowed"),
    ],
)
def test_absurd_sizes_are_refused_with_the_limit_before_a_dry_run(override, limit, main):
    ended = main("run", "S", "--dry-run", "-t", "compression", "--seeds", "0-999", override)
    assert ended.code == 2 and limit in ended.stderr
