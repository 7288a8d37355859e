"""``madbench table``: rows, protocols, published numbers, and export formats."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import madbench

TWO_TASKS = ("compression", "in_context_recall")


def rows(stdout: str) -> list[list[str]]:
    """The words of the table, without headings, rule and caption."""
    table = stdout.split("\n\n")[0]
    return [line.split() for line in table.splitlines()[2:]]


@pytest.mark.slow
def test_the_store_is_tabulated_in_the_order_of_the_grammar_with_published_rows(main, fill, tiny):
    fill(["R-c", "S"])
    fill("S", 0.7, [1])
    shown = main("table", "--profile", tiny, "-t", ",".join(TWO_TASKS), "--published", "--notes")
    assert (shown.code, shown.stderr) == (0, "")
    assert rows(shown.stdout) == [
        ["S", "60.0", "±77.7", "60.0", "±77.7", "0.990", "2"],
        ["published", "35.2", "83.7"],
        ["R-c", "50.0†", "50.0†", "0.990", "1"],
        ["published", "39.9", "100.0"],
    ]
    caption = " ".join(shown.stdout.split())
    assert "few seeds can hide a larger spread" in caption
    assert "Trained on an abacus." in caption
    assert f"Profile {tiny}: d_model 16, 2 blocks, 2 heads, float32." in caption


@pytest.mark.slow
def test_only_the_labels_asked_for_are_shown(main, fill, tiny):
    fill(["S", "R", "R-c"])
    shown = main("table", "R", "S", "--profile", tiny, "-t", "compression", "--published")
    assert [row[0] for row in rows(shown.stdout)] == ["R", "published", "S", "published"]


@pytest.mark.slow
def test_protocols_are_never_mixed(main, fill, tiny):
    fill("S", 0.1)
    fill("S", 0.2, fidelity="published")
    fill("S", 0.3, budget="paper")
    fill("S", 0.4, overrides=["training.epochs=3"])
    for number, *options in [
        ["10.0"],
        ["20.0", "--fidelity", "published"],
        ["30.0", "--budget", "paper"],
        ["40.0", "training.epochs=3"],
    ]:
        shown = main("table", "--profile", tiny, "-t", ",".join(TWO_TASKS), *options)
        assert rows(shown.stdout)[0] == ["S", f"{number}†", f"{number}†", "0.990", "1"]


@pytest.mark.slow
@pytest.mark.parametrize("format", ["terminal", "latex"])
@pytest.mark.parametrize("verb", [["table"], ["compare", "S", "S-c"], ["attribute"], ["findings"]])
def test_captions_state_the_changes_to_the_profile(main, fill, verb, format):
    changes = ["training.epochs=7", "training.batch_size=16"]
    fill(["S", "S-c"], profile="quick", overrides=changes)
    shown = main(*verb, *changes, "--profile", "quick", "-t", "compression", "-f", format)
    assert shown.code == 0, shown.stderr
    text = " ".join(shown.stdout.split()).replace("\\_", "_")
    assert f"rofile quick with {', '.join(changes)}" in text


@pytest.mark.slow
@pytest.mark.parametrize("verb", [["table"], ["compare", "S", "S-c"], ["attribute"]])
def test_captions_name_the_file_of_a_profile_and_are_unchanged_for_a_shipped_one(main, fill, tiny, verb):
    fill(["S", "S-c"])
    fill(["S", "S-c"], profile="quick")
    words = [*verb, "-t", "compression", "-f", "json", "--profile"]
    assert f"rofile {tiny}" in json.loads(main(*words, tiny).stdout)["caption"]
    caption = json.loads(main(*words, "quick").stdout)["caption"]
    assert "Profile" not in caption and ("(profile quick)" in caption) == (verb == ["table"])


@pytest.mark.slow
def test_a_table_leaves_out_labels_of_other_protocols_that_do_not_fit_its_own(main, fill, tiny):
    fill("S")
    fill("G-q-12", budget="paper", overrides=["model.d_model=8"])
    assert rows(main("table", "model.d_model=16", "--profile", tiny, "-t", "compression").stdout)[0][0] == "S"
    shown = main("table", "model.d_model=8", "--budget", "paper", "--profile", tiny, "-t", "compression")
    assert [row[0] for row in rows(shown.stdout)] == ["G-q-12"]


@pytest.mark.slow
def test_runs_in_two_precisions_need_the_precision_to_be_chosen(main, fill, tiny, tmp_path):
    profile = tmp_path / "auto.yaml"
    profile.write_text(Path(tiny).read_text().replace("precision: float32", "precision: auto"))
    fill("S", 0.1, profile=str(profile), precision="float32")
    words = ("table", "--profile", profile, "-t", "compression")
    assert rows(main(*words).stdout)[0] == ["S", "10.0†", "0.990", "1"]
    fill("S", 0.2, profile=str(profile), precision="bfloat16")
    refused = main(*words)
    assert (refused.code, refused.stdout) == (2, "")
    assert "runs in bfloat16 and in float32; add precision=bfloat16 or precision=float32" in refused.stderr
    assert rows(main(*words, "precision=float32").stdout)[0] == ["S", "10.0†", "0.990", "1"]
    assert rows(main(*words, "precision=bfloat16").stdout)[0] == ["S", "20.0†", "0.990", "1"]


def test_an_empty_store_and_one_without_matching_runs_are_errors(main, fill, tiny):
    missing = main("table", "--results", "no where")
    makes_it = "madbench run G-cg-q-12o --results 'no where' makes it"
    assert missing.code == 2 and missing.stderr == f"no where: there is no such results folder; {makes_it}\n"
    empty = main("table")
    assert empty.code == 2 and empty.stderr == "results: no runs of MAD tasks yet; madbench run G-cg-q-12o makes some\n"
    fill("S")
    for options in (["--profile", "quick"], ["R", "--profile", tiny], ["--profile", tiny, "--budget", "paper"]):
        refused = main("table", *options)
        assert (refused.code, refused.stdout) == (2, "")
        nothing = "no run of R belongs to profile" if "R" in options else "none of its 2 runs belongs to"
        assert nothing in refused.stderr and "Traceback" not in refused.stderr


@pytest.mark.slow
def test_every_format_of_table_has_the_same_values(main, fill, tiny):
    fill(["S", "R-12o!"])
    words = ("table", "--profile", tiny, "-t", ",".join(TWO_TASKS), "--published", "--format")
    markdown, latex, table, lines, page = (main(*words, name) for name in ("markdown", "latex", "json", "csv", "html"))
    assert {shown.code for shown in (markdown, latex, table, lines, page)} == {0}
    assert '<th scope="row">R-12o!</th><td>50.0†</td><td>50.0†</td>' in page.stdout
    assert "| S | 50.0† | 50.0† | 0.990 | 1 |\n| *published* | 35.2 | 83.7 |  |  |\n" in markdown.stdout
    assert r"\texttt{S} & 50.0$^\dagger$ & 50.0$^\dagger$ & 0.990 & 1 \\" in latex.stdout
    assert r"\texttt{R-12o!} & 50.0$^\dagger$ & 50.0$^\dagger$ & 0.990$\|$ & 1 \\" in latex.stdout
    content = json.loads(table.stdout)
    assert "not comparable" in content["notes"]
    found = [(cell["label"], cell["task"], cell["mean"]) for cell in content["cells"]]
    assert found == [(label, task, 50.0) for label in ("S", "R-12o!") for task in TWO_TASKS]
    lines = csv.DictReader(io.StringIO(lines.stdout))
    assert [(line["label"], line["task"], float(line["mean"])) for line in lines] == found


@pytest.mark.slow
def test_an_incomplete_cell_shows_its_number_of_stored_runs(main, fill, tiny):
    fill("S", overrides=["learning_rates=[1e-3]"])
    overrides = ["learning_rates=[1e-3, 2e-3]"]
    shown = main("table", *overrides, "--profile", tiny, "-t", "compression", "--notes")
    assert rows(shown.stdout)[0] == ["S", "50.0†", "(1/2)", "0.990", "1"]
    assert "with learning_rates=[1e-3, 2e-3]:" in " ".join(shown.stdout.split())


@pytest.mark.slow
def test_a_damaged_run_is_named_and_the_others_are_tabulated(main, fill, tiny, tmp_path):
    fill("S")
    folder = min((tmp_path / "results" / "runs").iterdir())
    (folder / "curve.csv").unlink()
    shown = main("table", "-p", tiny)
    assert shown.code == 0 and "50.0" in shown.stdout
    remedy = f"repeat the command that trained it, or delete results/runs/{folder.name}"
    assert shown.stderr == f"warning: results/runs/{folder.name}/curve.csv: missing or not a file; {remedy}\n"


@pytest.mark.slow
def test_characters_that_the_output_cannot_encode_become_question_marks(fill, tiny, tmp_path):
    for seed in range(5):
        fill("S", 0.5 + seed / 100, [seed])
    checkout = str(Path(madbench.__file__).resolve().parents[1])
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONPATH": checkout}
    command = [sys.executable, "-m", "madbench", "table", "-p", tiny, "--format", "markdown"]
    shown = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert shown.returncode == 0 and "52.0 ?4.3" in shown.stdout, shown.stderr


@pytest.mark.slow
def test_a_stored_label_that_does_not_fit_every_task_hides_no_other(main, fill, tiny):
    longer = "tasks.in_context_recall.setting.seq_len=512"
    fill("S", overrides=[longer])
    fill("R-q-12", overrides=[longer], tasks=["compression"])
    shown = main("table", "-p", tiny, longer, "-t", ",".join(TWO_TASKS), "--published")
    assert shown.code == 0 and [row[0] for row in rows(shown.stdout)] == ["S", "published"]
    assert shown.stderr.startswith("warning: R-q-12 is left out; in_context_recall at seq_len 512: R-q-12 does not fit")
