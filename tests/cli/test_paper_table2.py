"""Table 2 of the HyperMLP paper: its ranks follow from its columns, and our labels get ranks in it."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from madbench.analysis.scores import Results
from madbench.analysis.standings import standings
from madbench.config import PAPERS
from madbench.errors import ConfigError
from madbench.experiment import ExperimentOptions
from madbench.experiment import prepare as prepare_experiment
from madbench.jobs import Record
from madbench.papers import load_paper
from madbench.papers.hypermlp import table2
from madbench.papers.hypermlp.table2 import (
    COLUMNS,
    Table2,
    halves_rounded_down,
    published_mismatches,
    published_rows,
    stored_benchmarks,
)
from madbench.papers.making import Request, jobs_of
from madbench.store.reading import Snapshot
from madbench.store.runs import Store
from madbench.suites.language.suite import LANGUAGE, LanguageProfile
from madbench.suites.published import profile_scores
from madbench.text.corpus import imagined_corpus
from madbench.text.options import CorpusOptions, PrepareOptions
from madbench.text.prepare import prepare
from sample_jobs import train_job

PRESET = """\
description: A few steps of a small model.
comparable_with_paper: false
precision: float32
model: {d_model: 32, n_layer: 1, seq_len: 24, mix_rank: 2}
training:
  {steps: 4, tokens_per_step: 96, eval_every: 2, eval_sequences: 4, warmup_steps: 1, learning_rate: 1.0e-2}
"""


@pytest.fixture
def request_of(tmp_path):
    paper = load_paper("hypermlp")
    return lambda **how: Request(paper, paper.item("table2"), results=tmp_path / "results", **how)


def groups(request_of) -> dict[str, list]:
    rows = published_rows(request_of())
    return {scale: [row for row in rows if row.scale == scale] for scale in ("1.3B", "340M")}


def test_the_printed_avg_rank_and_top1_follow_from_the_printed_columns(request_of):
    """Ties share the mean rank. One value that ends in half a digit is printed rounded down, the others up."""
    of_scale = groups(request_of)
    assert [len(rows) for rows in of_scale.values()] == [8, 8] and len(COLUMNS) == 16
    assert [published_mismatches(rows) for rows in of_scale.values()] == [[], []]
    assert halves_rounded_down(of_scale["1.3B"]) == ["HGRN 5.125 is printed 5.12"]
    assert halves_rounded_down(of_scale["340M"]) == []


def test_a_printed_rank_that_contradicts_the_printed_columns_is_named(request_of):
    rows = groups(request_of)["340M"]
    wrong = [replace(rows[0], average_rank=4.2, top1=3), *rows[1:]]
    assert published_mismatches(wrong) == ["DiffTrans: Avg Rank 4.1250, printed 4.20", "DiffTrans: #Top1 2, printed 3"]


def test_ties_share_the_average_rank_and_all_count_as_top1():
    found = standings({"a": [0.5, 0.1, 0.3], "b": [0.5, 0.3, 0.2], "c": [0.4, 0.2, 0.1]})
    assert [found[name].average_rank for name in "abc"] == [
        pytest.approx(x / 3) for x in (1.5 + 3 + 1, 1.5 + 1 + 2, 3 + 2 + 3)
    ]
    assert [found[name].top1 for name in "abc"] == [2, 2, 0]
    assert standings({}) == {}
    with pytest.raises(ValueError, match="zip"):
        standings({"a": [1.0, 2.0], "b": [1.0]})


def test_every_model_of_the_table_has_a_label_that_is_trained_at_its_size(request_of):
    with open(PAPERS / "hypermlp" / "table2_lm_eval.csv", newline="", encoding="utf-8") as file:
        of_model = {row["model"]: row["label"] for row in csv.DictReader(file)}
    assert of_model["HyperGLU"] == "G-cg-q-12o" and of_model["DiffTrans"] == "D-p" and len(of_model) == 12
    assert {"GSA", "RetNet", "HGRN", "HGRN2"} <= {label for model, label in of_model.items() if model == label}
    for size, count in (("fineweb-1.3b", 8), ("full", 8)):
        asked = request_of(profile=size)
        profile = LanguageProfile.load(asked.profile_name)
        labels = [row.label for row in Table2().plan(asked).rows]
        left_out = [text for text in Table2().introduction(asked) if text.startswith("left out: ")]
        assert len(labels) == count and not left_out
        jobs = LANGUAGE.jobs(labels, profile, corpus=imagined_corpus(profile.vocab_size))
        assert {job.model.seq_len for job in jobs} == {4096}


def test_listing_items_prepares_no_corpus(request_of, tmp_path):
    assert jobs_of(request_of()) == [] and not (tmp_path / "results").exists()


@pytest.fixture
def hens(tmp_path) -> Path:
    """A small text, and a profile in the same folder."""
    (tmp_path / "profile.yaml").write_text(PRESET)
    (tmp_path / "hen.txt").write_text("".join(f"{i}: the brown hen counted {i * 7} grains. " for i in range(200)))
    return prepare([str(tmp_path / "hen.txt")], tmp_path / "hens", PrepareOptions(validation=0.3)).folder


@pytest.mark.slow
def test_table2_trains_evaluates_and_ranks_two_labels(hens, request_of, tmp_path):
    """The verb is called in this process. Stored answers are not asked again."""
    asked = request_of(profile=str(tmp_path / "profile.yaml"), device="cpu")
    experiment = prepare_experiment(
        Table2().plan(asked), ExperimentOptions(device="cpu", results=asked.results, data=CorpusOptions(corpus=hens))
    )
    store = Store.open(asked.results)
    for job in experiment.jobs:
        with store.lock(job) as work:
            corpora = {row.protocol.corpus.digest: row.protocol.corpus for row in experiment.rows}
            store.finish(job, train_job(job, work, lambda progress: None, corpora=corpora))
    results = Results.from_rows(experiment, Snapshot.open(asked.results))
    made = Table2().decide(asked, results)
    own, of_13, of_340 = made.tables
    headings, lines = own.text_rows()
    assert headings == ["Label", "continuation", "repetition", "Avg Rank", "#Top1", "n"]
    assert [line[0] for line in lines] == ["S-p", "G-cg-q-12o"] and "1.3B" in of_13.caption and "340M" in of_340.caption
    assert sum(float(line[3]) for line in lines) == 3
    measured = {job.id: store.measurements(job.id) for job in experiment.jobs}
    assert [len(of_run) for of_run in measured.values()] == [2, 2]
    again = Table2().decide(asked, Results.from_rows(experiment, Snapshot.open(asked.results)))
    assert again.tables[0].text_rows() == own.text_rows()
    files = [*(asked.results / "runs").glob("*/measurements/*.json")]
    assert len(files) == 4

    for job, value in zip(experiment.jobs, (0.5, 0.25)):  # every run has HellaSwag, and one of two BoolQ
        store.measure(job.id, "benchmark", {"acc_norm": value}, {}, {"task": "hellaswag", "shots": 0})
    store.measure(experiment.jobs[0].id, "benchmark", {"acc": 0.9}, {}, {"task": "boolq", "shots": 0})
    joined = Table2().decide(asked, Results.from_rows(experiment, Snapshot.open(asked.results))).tables[0]
    headings, lines = joined.text_rows()
    assert headings == ["Label", "continuation", "repetition", "HS", "Avg Rank", "#Top1", "n"]
    assert [line[3] for line in lines] == ["0.500", "0.250"] and "HS of lm-evaluation-harness" in joined.caption


def test_missing_benchmarks_of_table_2_are_listed_with_their_command(request_of, with_runs):
    said = "HyperGLU has the best Avg Rank at 340M"
    nothing = Table2().decide(request_of(profile="full"), None).remarks[said]
    assert "madbench lm evaluate RUN... --tasks leaderboard_mmlu_pro,leaderboard_gpqa," in nothing
    with_runs({"S-p": 0.5}, seeds=(0,), headings=[column.heading for column in COLUMNS if column.heading != "PIQA"])
    assert Table2().decide(request_of(profile="full"), None).remarks[said].endswith("--tasks piqa")


@pytest.mark.slow
def test_the_command_line_trains_evaluates_and_ranks_table2(main, hens, tmp_path):
    """The second call of the command trains and evaluates nothing."""
    words = ("paper", "hypermlp", "table2", "--profile", "profile.yaml", "--corpus", "hens", "--device", "cpu", "--yes")
    ended = main(*words, "--threads", "1", "-f", "json")
    assert ended.code == 0, ended.stderr
    content = json.loads(ended.stdout)
    own = [cell for cell in content["cells"] if "scale" not in cell]
    answers = {(cell["label"], cell["column"]): cell["mean"] for cell in own if "mean" in cell}
    assert set(answers) == {(label, task) for label in ("S-p", "G-cg-q-12o") for task in ("continuation", "repetition")}
    assert all(0 <= share <= 1 for share in answers.values())
    ranks = {cell["label"]: cell["average_rank"] for cell in own if cell["column"] == "standing"}
    assert sum(ranks.values()) == 3 and set(ranks) == {"S-p", "G-cg-q-12o"}
    verdicts = content["verdicts"]
    assert verdicts["Avg Rank and #Top1 at 340M follow from the columns"] == "reproduced"
    assert verdicts["HyperGLU has the best Avg Rank at 340M"] == "not enough data"

    store = Store.open(tmp_path / "results", create=False)
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "results" / "runs").rglob("*") if path.is_file()}
    assert sum(len(store.measurements(job_id)) for job_id in store.job_ids()) == 4
    again = main(*words)
    assert again.code == 0 and "HGRN 5.125 is printed 5.12" in " ".join(again.stdout.split())
    assert {path: path.stat().st_mtime_ns for path in files} == files
    asked = main("lm", "evaluate", "S-p", "--task", "repetition", "--device", "cpu", "-f", "json")
    (row,) = json.loads(asked.stdout)["tasks"]
    assert row["acc"] == answers["S-p", "repetition"] and row["questions"] == 200

    refused = main("lm", "evaluate", "S-p", "--task", "repetitions", "--device", "cpu")
    assert refused.code == 2 and "did you mean 'repetition'?" in refused.stderr


@pytest.fixture
def with_runs(tmp_path):
    """``with_runs({label: values or None})``: store runs of the 340M profile, with all benchmarks of three seeds."""

    def call(values, seeds=range(3), headings=tuple(column.heading for column in COLUMNS)) -> Store:
        store, profile = Store.open(tmp_path / "results"), LanguageProfile.load("fineweb-340m")
        for label, quality in values.items():
            for job in LANGUAGE.jobs([label], profile, corpus=imagined_corpus(32000), seeds=seeds, budget="paper"):
                store.finish(job, Record("finished", {"loss_l5": 2.5}, [], {}))
                for column in (column for column in COLUMNS if column.heading in headings):
                    store.measure(job.id, "benchmark", _metrics(column.task, quality), {}, column.settings)
        return store

    return call


def _metrics(task: str, quality: float) -> dict[str, float]:
    """All metrics of a task, several of them as the harness gives them."""
    return {column.metric: quality for column in COLUMNS if column.task == task}


LABELS = {"D-p": 3, "cd:gdn-cg": 4, "cd:deltanet-c": 5, "cd:gla-g": 6, "S-p": 7, "R-c": 8, "R-cg-q-12o": 2}


@pytest.mark.slow
@pytest.mark.parametrize(("glu", "verdict"), [(0.9, "reproduced"), (0.05, "contradicted")])
def test_complete_benchmarks_rank_our_labels_and_give_a_verdict(request_of, with_runs, monkeypatch, glu, verdict):
    with_runs({label: 0.9 - place / 10 for label, place in LABELS.items()} | {"G-cg-q-12o": glu}, seeds=(0,))
    made = Table2().decide(request_of(profile="full"), None)
    assert made.verdicts["HyperGLU has the best Avg Rank at 340M"] == "not enough data"
    monkeypatch.setattr(table2, "LEAST_SEEDS", 1)
    made = Table2().decide(request_of(profile="full"), None)
    assert made.verdicts["HyperGLU has the best Avg Rank at 340M"] == verdict
    assert made.verdicts["HyperGLU has the best Avg Rank at 1.3B"] == "not enough data"
    table = next(table for table in made.tables if "340M" in table.caption)
    headings, lines = table.text_rows()
    ours = next(line for line in lines if line[0].startswith("HyperGLU"))
    assert dict(zip(headings, ours))["Avg Rank"] == ("1.00" if verdict == "reproduced" else "8.00")
    assert lines[lines.index(ours) + 1][1:4] == ["0.117", "0.259", "0.313"]
    assert all(table.to_markdown() and table.to_latex() for table in made.tables)


def test_incomplete_benchmarks_are_shown_without_ranks(request_of, with_runs):
    with_runs({"S-p": 0.5, "G-cg-q-12o": 0.6}, seeds=(0,), headings=("HS", "PIQA"))
    asked = request_of(profile="full")
    assert stored_benchmarks(asked, "fineweb-340m")["S-p"] == [{"HS": 0.5, "PIQA": 0.5}]
    made = Table2().decide(asked, None)
    headings, lines = next(table for table in made.tables if "340M" in table.caption).text_rows()
    row = dict(zip(headings, next(line for line in lines if line[0].startswith("SoftmaxAttn"))))
    assert (row["HS"], row["BoolQ"], row["Avg Rank"]) == ("0.500", "-", "-")
    assert made.verdicts["HyperGLU has the best Avg Rank at 340M"] == "not enough data"


def test_benchmarks_with_other_shots_or_a_changed_profile_are_left_out(request_of, with_runs, tmp_path):
    store = with_runs({"S-p": 0.5}, seeds=(0, 1), headings=())
    profile = LanguageProfile.load("fineweb-340m", ["training.learning_rate=1e-3"])
    (changed,) = LANGUAGE.jobs(["R-c"], profile, corpus=imagined_corpus(32000), budget="paper")
    store.finish(changed, Record("finished", {"loss_l5": 2.5}, [], {}))
    store.measure(changed.id, "benchmark", {"acc_norm": 0.4}, {}, {"task": "hellaswag", "shots": 0})
    job_id, second = (job_id for job_id in store.job_ids() if job_id != changed.id)
    store.measure(job_id, "benchmark", {"acc_norm": 0.3}, {}, {"task": "hellaswag", "shots": 10})
    assert stored_benchmarks(request_of(), "fineweb-340m") == {}
    store.measure(job_id, "benchmark", {"acc_norm": 0.2}, {}, {"task": "hellaswag", "shots": 0})
    store.measure(job_id, "benchmark", {"acc_norm": 0.25}, {}, {"task": "hellaswag", "shots": 0})
    store.measure(second, "benchmark", {"acc_norm": 0.35}, {}, {"task": "hellaswag", "shots": 0})
    usual, other_text = LanguageProfile.load("fineweb-340m"), replace(imagined_corpus(32000).manifest, dtype="uint32")
    for corpus, budget in (
        (imagined_corpus(32000), "strict"),
        (imagined_corpus(50257), "paper"),
        (replace(imagined_corpus(32000), manifest=other_text), "paper"),
    ):
        (job,) = LANGUAGE.jobs(["R-c"], usual, corpus=corpus, budget=budget)
        store.finish(job, Record("finished", {"loss_l5": 2.5}, [], {}))
        store.measure(job.id, "benchmark", {"acc_norm": 0.9}, {}, {"task": "hellaswag", "shots": 0})
    assert stored_benchmarks(request_of(), "fineweb-340m") == {"S-p": [{"HS": 0.25}, {"HS": 0.35}]}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--profile", "full", "--yes"), "profile fineweb-340m has no corpus of its own: give --corpus FOLDER"),
        (("--tasks", "compression"), "--tasks compression has no effect on table2, of language_model alone"),
    ],
)
def test_options_without_effect_on_table_2_are_refused(main, words, message):
    ended = main("paper", "hypermlp", "table2", *words)
    assert ended.code == 2 and message in ended.stderr


def test_the_option_corpus_is_refused_by_items_without_language_models(main):
    assert main("paper", "coefficients", "principle1", "--corpus", "x").code == 2
    assert main("paper", "hypermlp", "theorem2.3", "--corpus", "x").code == 2


def test_other_tasks_are_refused_on_table2(request_of):
    with pytest.raises(ConfigError, match="has no effect on table2"):
        Table2().plan(request_of(tasks=("compression",)))


def test_the_table_of_benchmarks_has_no_perplexities_of_its_profiles():
    assert profile_scores("fineweb-340m") == {} and profile_scores("hyper1")["S"] == {"perplexity": 62.28}
