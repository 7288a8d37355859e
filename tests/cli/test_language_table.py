"""``madbench table`` for stores of language models: order, choice of a protocol, and errors."""

from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from madbench.cli.table import table
from madbench.jobs import Record
from madbench.suites.language.suite import LANGUAGE
from sample_jobs import mad_job

LANGUAGE_ONLY = ("-t", "language_model")

OTHER_CORPUS = {"corpus": "deadbeef01234567", "vocab_size": 320}
"""Setting of a job on another corpus."""


@pytest.fixture
def fill(fill_language):
    """Store a run of the profile tiny with ``overrides``, and return it."""

    def call(label="S", train=(3.0, 2.5, 2.0), *, overrides=(), profile="tiny", precision="float32", **choices):
        loaded = LANGUAGE.Profile.load(profile, overrides)
        sizes = {"model": loaded.model_config(), "training": loaded.training_config(precision)}
        sizes["mixer"] = loaded.identifying_settings(label)
        return fill_language(label, train, **sizes | choices)

    return call


@pytest.fixture
def row_words(invoke):
    """``row_words(*words)``: the cells of the table's rows."""

    def call(*words):
        output = invoke(table, *LANGUAGE_ONLY, *words, columns=160)
        assert not output.exception, output.exception
        return [line.split() for line in output.stdout.split("\n\n")[0].splitlines()[2:]]

    return call


def test_language_rows_are_in_the_order_of_the_grammar(fill, row_words):
    fill("R-c", [2.0])
    fill("S", [3.0])
    assert row_words() == [
        ["S", "3.000†", "3.100†", "6.200†", "3.100†", "320", "0.990", "1"],
        ["R-c", "2.000†", "2.100†", "4.200†", "10†", "10†", "10†", "10†", "2.100†", "320", "0.990", "1"],
    ]


def test_labels_choose_and_order_the_rows_and_a_missing_one_is_a_warning(fill, invoke, row_words):
    for label in ("S", "R", "R-c"):
        fill(label)
    assert [row[0] for row in row_words("R-c", "S")] == ["R-c", "S"]
    output = invoke(table, *LANGUAGE_ONLY, "{S,G}")
    assert output.exit_code == 0 and output.stderr == "warning: no run of G is as asked\n"


@pytest.mark.slow
def test_several_protocols_are_listed_and_every_way_to_choose_one_works(fill, refuse, row_words):
    fill("S", [2.0])
    fill("S", [2.1], overrides=["training.steps=600"])
    fill("S", [2.2], setting=OTHER_CORPUS, details={"corpus": {"name": "owt", "digest": "deadbeef01234567"}})
    fill("S", [2.3], budget="paper")
    fill("S", [2.4], profile="mini")
    message = refuse(table, *LANGUAGE_ONLY)
    assert "4 protocols" in message and len(message.splitlines()) == 5
    ids = {line.split("  ")[2].partition(": ")[0]: line.split()[0] for line in message.splitlines()[1:]}
    for words, loss in [
        (["training.steps=600"], "2.100"),
        (["--corpus", "owt"], "2.200"),
        (["--corpus", "results/corpora/owt"], "2.200"),
        (["--corpus", "deadbeef"], "2.200"),
        (["--budget", "paper"], "2.300"),
        (["--profile", "mini"], "2.400"),
        (["--profile", "tiny", "--corpus", "shelf", "--budget", "strict"], "2.000"),
        (["--protocol", ids["corpus shelf (c0ffee01), profile tiny, float32, budget strict"]], "2.000"),
    ]:
        assert [row[1] for row in row_words(*words)] == [f"{loss}†"], words


def test_runs_in_two_precisions_are_two_protocols(fill, refuse, row_words):
    fill("S", [2.0], profile="mini")
    fill("S", [2.1], profile="mini", precision="bfloat16")
    message = refuse(table, *LANGUAGE_ONLY, "--profile", "mini")
    assert "the runs of language models follow 2 protocols" in message
    assert "profile mini, bfloat16" in message and "profile mini, float32" in message
    assert row_words("--profile", "mini", "precision=bfloat16")[0][1] == "2.100†"


def test_a_choice_without_matching_language_runs_lists_the_stored_protocols(fill, refuse):
    fill("S")
    for words in (["R"], ["--profile", "gpt2"], ["--corpus", "owt"]):
        message = refuse(table, *LANGUAGE_ONLY, *words)
        assert message.startswith("results: none of its runs of language models is as asked; it has:\n")
        assert message.endswith("profile tiny, float32, budget strict: S")
    message = refuse(table, *LANGUAGE_ONLY, "--protocol", "00000000")
    assert message.startswith("results: no run follows protocol 00000000; it has:\n")
    assert message.endswith("profile tiny, float32, budget strict: S")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--protocol", "c0ffee", "--profile", "tiny"],
            "--protocol c0ffee, --profile tiny: each chooses the runs",
        ),
        (
            ["--protocol", "c0ffee", "--budget", "strict"],
            "--protocol c0ffee, --budget strict: each chooses the runs",
        ),
        (["--thresholds", "2.0,x"], "--thresholds '2.0,x': expected losses such as 2.0,1.9"),
        (["--thresholds", ""], "--thresholds '': expected losses such as 2.0,1.9"),
        (["--thresholds", "2,2.0"], "give each once"),
        (["--thresholds", "0"], "threshold 0: expected a loss above 0"),
        (["--sort", "loss_l6"], "--sort 'loss_l6': no such column; did you mean 'loss_l5'?"),
        (["--profile", "tinny"], "profile 'tinny': no such profile or file; did you mean 'tiny'?"),
        (["trainin.steps=1"], "unknown key 'trainin'; did you mean 'training'?"),
        (["S-x"], "label 'S-x'"),
    ],
)
def test_table_refuses_wrong_options_for_language_models(fill, refuse, words, message):
    fill("S")
    assert message in refuse(table, *LANGUAGE_ONLY, *words)


def test_a_store_without_language_models_says_how_to_make_some(store, refuse):
    store.finish(mad_job(), Record("finished", {"accuracy": 0.5}))
    assert refuse(table, *LANGUAGE_ONLY) == (
        "results: no runs of language models yet; madbench run G-cg-q-12o -t language_model makes some; its MAD tasks "
        "are in madbench table -t compression"
    )
    assert refuse(table, *LANGUAGE_ONLY, "--results", "nowhere").startswith("nowhere: there is no such results folder;")


def test_a_failed_run_is_no_result(fill, store, row_words):
    run = fill("S")
    store.finish(replace(run.job, label="R"), Record("failed", {}, [], {}, "out of memory"))
    assert [row[0] for row in row_words()] == ["S"]


def test_the_option_thresholds_sets_the_columns_of_steps(fill, row_words, invoke):
    fill("S", [3.0, 2.0, 1.95])
    assert "to 2.5  to 1.97" in invoke(table, *LANGUAGE_ONLY, "--thresholds", "2.5,1.97", columns=160).stdout
    assert row_words("--thresholds", "2.5,1.97")[0][4:6] == ["20†", "30†"]


def test_rows_are_sorted_by_a_column_the_best_first(fill, row_words):
    for label, loss in (("S", 2.5), ("R", 2.0), ("G", 2.2)):
        fill(label, [loss])
    assert [row[0] for row in row_words("--sort", "loss_l5")] == ["R", "G", "S"]


@pytest.mark.slow
def test_every_format_of_table_has_the_same_values_of_language_models(fill, invoke):
    fill("S", [2.0])
    outputs = {
        name: invoke(table, *LANGUAGE_ONLY, "--format", name).stdout for name in ("markdown", "latex", "csv", "json")
    }
    assert "| S | 2.000† | 2.100† | 4.200† | 10† | 10† | 10† | 10† | 320 | 0.990 | 1 |" in outputs["markdown"]
    numbers = ("2.000", "2.100", "4.200", "10")  # in LaTeX a single row has a line per column
    assert all(rf" & {number}$^\dagger$ \\" in outputs["latex"] for number in numbers)
    content = json.loads(outputs["json"])
    assert "Nats per token" in content["notes"] and "nats per token" in content["caption"]
    lines = list(csv.DictReader(io.StringIO(outputs["csv"])))
    found = [(cell["label"], cell["task"], cell["mean"]) for cell in content["cells"]]
    assert [(line["label"], line["task"], float(line["mean"])) for line in lines] == found
    assert ("S", "loss_l5", 2.0) in found
    assert invoke(table, *LANGUAGE_ONLY, "-f", "json").stdout == outputs["json"]


def test_a_language_table_fits_80_columns(fill, invoke):
    for seed in (0, 1, 2):
        for label in ("S-p", "G-pcg-q-12o"):
            fill(label, [2.0 + seed / 10], seed=seed)
    output = invoke(table, *LANGUAGE_ONLY, columns=80).stdout
    assert max(map(len, output.splitlines())) <= 80 and "…" not in output
    assert {"2.100", "±0.239*", "0.990", "320"} <= set(output.split())


def test_a_damaged_run_is_named_and_the_others_are_tabulated(fill, store, row_words, invoke):
    fill("S")
    run = fill("R")
    (store.root / "runs" / run.job.id / "curve.csv").unlink()
    assert [row[0] for row in row_words()] == ["S"]
    assert f"warning: results/runs/{run.job.id}/curve.csv: missing" in invoke(table, *LANGUAGE_ONLY).stderr
