"""Shell completion, called as the script for bash calls it, and once typed into a real bash."""

from __future__ import annotations

import os
import pty
import select
import shutil
import signal
import sys
import time
from typing import get_args, get_origin

import pytest
import typer

import madbench.cli
from madbench.jobs import Record
from madbench.labels import available_sets, every_label, parse
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD, MAD_TASKS


@pytest.fixture
def complete(main, monkeypatch):
    """``complete(words)``: what bash is offered for the last of the words of a command line."""

    def call(line: str) -> list[str]:
        words = line.split(" ")
        with monkeypatch.context() as patch:
            patch.setenv("_MADBENCH_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", " ".join(words))
            patch.setenv("COMP_CWORD", str(len(words) - 1))
            ended = main()
        assert not ended.stderr  # it would appear in the line that is typed
        return ended.stdout.split()

    return call


def test_labels_are_completed_part_by_part(complete):
    offered = complete("madbench run G-cg")
    assert "G-cg" in offered and "G-cgk" in offered and all("-" not in word[2:] for word in offered)
    assert "G-cg-q-12o" in complete("madbench run G-cg-q-1")
    for word in complete("madbench explain R-cg-q-"):
        assert str(parse(word)) == word and word in every_label()


def test_sets_neighborhoods_and_families_are_completed(complete):
    assert complete("madbench table @tab") == ["@table1"]
    assert {f"@{name}" for name in available_sets()} <= set(complete("madbench run "))
    assert "~R-c" in complete("madbench run ~R-c") and "cd:" in complete("madbench verify c")
    assert {"hfa:2", "hfa:2w"} <= set(complete("madbench run hfa:"))
    assert complete("madbench run cd:gl") == ["cd:gla"]


def test_the_last_part_of_a_pattern_is_completed(complete):
    assert complete("madbench run 3xKDA/S-p/2xGD") == ["3xKDA/S-p/2xGDN"]
    assert complete("madbench run 3xKD") == ["3xKDA"] and "~KDA/cd:gla" in complete("madbench run ~KDA/cd:gl")


def test_words_with_colon_or_at_are_completed_as_bash_splits_them(complete):
    assert "2" in complete("madbench run hfa :") and "2" in complete("madbench run hfa : 2")
    assert complete("madbench run S @ tab") == ["@table1"]
    assert "@table1" in complete("madbench run S @")


def test_tasks_profiles_and_figures_are_completed(complete):
    assert set(complete("madbench run S -t ")) >= {*MAD_TASKS, "language_model"}
    assert complete("madbench run S -t compression,me") == ["compression,memorization"]
    assert complete("madbench run S -t hunters,mad") == ["hunters,mad"]
    assert {"quick", "full"} <= set(complete("madbench table --profile "))
    assert complete("madbench lm S --profile ti") == ["tiny"]
    assert complete("madbench plot eff") == ["effects"]
    assert complete("madbench data mem") == ["memorization"]


def test_lm_completes_its_verbs_and_labels(complete):
    assert {"prepare", "sample"} <= set(complete("madbench lm ")) and "S-p" in complete("madbench lm S-p")


def test_runs_are_completed_by_label_and_by_id(complete, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert complete("madbench inspect ") == []  # there is no store
    (job, *_) = MAD.jobs(["R-c"], MAD.Profile.load("quick"), tasks=["memorization"], seeds=[0])
    Store.open(tmp_path / "results").finish(job, Record("finished", {"accuracy": 0.5}))
    assert complete("madbench inspect R") == ["R-c"]
    assert complete(f"madbench inspect {job.id[:3]}") == [job.id]
    assert complete(f"madbench inspect --results elsewhere {job.id[:3]}") == []


def test_values_after_an_equals_sign_are_completed_as_bash_splits_them(complete, tmp_path):
    assert complete("madbench run S --profile = qu") == ["quick"]
    assert {"quick", "full"} <= set(complete("madbench table --profile ="))
    assert complete("madbench table -p quick --tasks = memorization,sel") == ["memorization,selective_copying"]
    (job, *_) = MAD.jobs(["R-c"], MAD.Profile.load("quick"), tasks=["memorization"], seeds=[0])
    Store.open(tmp_path / "one").finish(job, Record("finished", {"accuracy": 0.5}))
    assert complete(f"madbench inspect --results = {tmp_path / 'one'} R") == ["R-c"]
    assert "R-cg" in complete("madbench run model.n_head = 4 R-cg")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("ls ", {"labels", "runs", "families", "profiles"}),
        ("ls fam", {"families"}),
        ("paper ", {"hypermlp", "coefficients", "interactions", "talk"}),
        ("paper hypermlp ta", {"table1"}),
        ("paper hypermlp table1 --profile q", {"quick"}),
        ("findings --claims hy", {"hypermlp"}),
        ("findings --explain la", {"lag"}),
        ("findings --power --claim la", {"lag"}),
        ("run S --device c", {"cpu", "cuda"}),
        ("run S --track tensorboard,wan", {"tensorboard,wandb"}),
        ("run S --dtype uint3", {"uint32"}),
        ("run S --tokenizer g", {"gpt2"}),
        ("run S --budget pa", {"paper"}),
        ("lm prepare --tokenizer bp", {"bpe:"}),
        ("data memorization --split va", {"validation"}),
        ("sweep S --group a", {"auto"}),
        ("bench dec", {"decode"}),
    ],
)
def test_values_that_are_one_of_a_few_are_completed(complete, line, offered):
    assert offered <= set(complete(f"madbench {line}"))


@pytest.mark.slow
def test_completion_of_sort_offers_the_columns_of_the_table(complete, fill, fill_language, main, tiny):
    assert complete("madbench table --sort ") == []  # there is no store
    fill(["S", "S-c"])
    fill_language("S", [3.0, 2.0])
    fill_language("S", [2.5, 1.5], setting={"corpus": "c0ffee0123456789", "vocab_size": 64})
    line = f"madbench table S --profile {tiny}"
    offered = complete(f"{line} --sort ")
    assert {"label", "compression", "in_context_recall", "n"} <= set(offered) and "loss_l5" not in offered
    assert complete(f"{line} -t compression --sort c") == ["compression"]
    for column in offered:
        assert main(*line.split()[1:], "--sort", column).stdout.startswith("Label")
    assert complete("madbench table -t language_model --sort ") == []  # there are two protocols
    assert complete(f"{line} --results elsewhere --sort ") == []


@pytest.mark.slow
def test_completion_of_sort_offers_columns_of_the_given_thresholds(complete, fill_language):
    fill_language("S", [3.0, 2.0])
    line = "madbench table -t language_model"
    assert complete("madbench table R -t language_model --sort ") == []  # it has no runs
    assert {"loss_l5", "validation_loss"} <= set(complete(f"{line} --sort "))
    assert complete(f"{line} --thresholds 2.5,2.25 --sort steps_to_2.2") == ["steps_to_2.25"]


def test_completion_of_paths_offers_those_of_the_labels(complete, main):
    usual = complete("madbench bench --paths ")
    assert {"auto", "reference", "dense", "tiled"} <= set(usual)
    assert complete("madbench bench S mixers --paths s") == ["sdpa"]
    of_cd = complete("madbench bench cd:gla --paths ")
    assert "blocks" in of_cd and "tiled" not in of_cd and "blocks" not in usual
    assert complete("madbench bench length cd:gla S --paths blocks,ti") == ["blocks,tiled"]
    refused = main("bench", "cd:gla", "--paths", f"{','.join(of_cd)},tiled").stderr
    assert "these labels have no path 'tiled'" in refused


def test_built_in_evaluation_tasks_of_language_models_are_completed(complete):
    assert complete("madbench lm evaluate S --tasks continuation,re") == ["continuation,repetition"]


WITHOUT_COMPLETION = {  # values that are a number, a path, a text or an id of the user's own
    "archive", "baseline", "batch", "called", "corpus", "d_model", "devices", "examples", "file", "files", "include",
    "into", "keep", "lengths", "limit", "max_document", "max_failures", "max_len", "max_line", "max_total",
    "micro_batch", "minutes", "mix_rank", "n_head", "name", "on", "output", "pairs", "peer", "prompt", "protocol",
    "rank_multiple", "registered", "rename", "repeats", "results", "seed", "seeds", "seq_len", "share", "shots",
    "slots", "source", "sources", "temperature", "tex_label", "text_key", "threads", "thresholds", "time_limit",
    "tokens", "top_k", "track_name", "track_project", "true_gain", "trust", "validation", "vary", "windows", "within",
    "workers",
}  # fmt: skip


def parameters(command, path=()):
    for name, verb in getattr(command, "commands", {}).items():
        yield from parameters(verb, (*path, name))
    yield from ((" ".join(path), one) for one in command.params)


def choices(parameter):
    if not hasattr(parameter, "type_descriptor"):  # Typer before 0.29
        return getattr(parameter.type, "choices", ())
    annotation = parameter.type_descriptor.annotation
    while get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return get_args(annotation)


def test_every_argument_and_option_has_a_completion_or_is_listed_without():
    command = typer.main.get_command(madbench.cli.app)
    missing = {
        f"{verb} {one.name}"
        for verb, one in parameters(command)
        if not getattr(one, "is_flag", False)
        and one._custom_shell_complete is None
        and not choices(one)
        and one.name not in WITHOUT_COMPLETION
    }
    assert not missing


def test_a_completion_that_fails_is_empty(complete, tmp_path):
    (tmp_path / "results").write_text("no folder")
    assert complete("madbench inspect S") == []


@pytest.mark.slow  # a shell and three starts of madbench
@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
def test_an_interactive_bash_completes_typed_words(tmp_path):
    program = tmp_path / "madbench"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m madbench "$@"\n')
    program.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    process, terminal = pty.fork()
    if process == 0:
        os.chdir(tmp_path)  # noqa: TID251  of the forked process
        os.execve(shutil.which("bash"), ["bash", "--norc", "-i"], os.environ | {"PATH": path})

    def type_in(text: str, until: str) -> str:
        os.write(terminal, text.encode())
        shown, end = "", time.monotonic() + 60
        while until not in shown and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                shown += os.read(terminal, 65536).decode(errors="replace")
        return shown

    try:
        type_in('eval "$(_MADBENCH_COMPLETE=source_bash madbench)"; echo rea""dy\n', "ready")
        for typed, completed in [
            ("@tab", "@table1"),
            ("S -t memo", "memorization"),
            ("cd:e", "cd:exp"),
            ("S --profile=qu", "quick"),
        ]:
            assert completed in type_in(f"madbench run {typed}\t", completed)
            type_in("\x15", "")
    finally:
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(terminal)
