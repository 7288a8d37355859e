"""``madbench ls``: labels, sets, runs, tasks, profiles, families, operators and installed packages."""

from __future__ import annotations

import csv
import dataclasses
import json
from dataclasses import replace

import pytest

from madbench import config
from madbench.cli.ls import ls
from madbench.cli.ls.listings import listings
from madbench.config import read_yaml
from madbench.jobs import Record
from madbench.labels import every_label
from madbench.mixers.named.operators import OPERATORS
from madbench.store.runs import Store
from madbench.suites import suites
from madbench.suites.mad.suite import MAD, MAD_TASKS
from sample_jobs import mad_job


@pytest.fixture
def listed(invoke):
    return lambda *words: json.loads(invoke(ls, *words, "-f", "json").stdout, parse_constant=pytest.fail)


@pytest.fixture
def results(tmp_path):
    """A store with four runs: two under a profile, one at the baseline setting, and a diverged one at a changed
    setting."""
    store = Store.open(tmp_path / "store")
    quick = MAD.Profile.load("quick").settings("compression")[0]
    details = {"steps_per_second": 12.34}
    finished = [Record("finished", {"accuracy": accuracy}, [], details) for accuracy in (0.25, 0.5)]
    store.finish(mad_job("S", seed=1, setting=quick), finished[0])
    store.finish(mad_job("R-c", setting=quick), finished[1])
    store.finish(mad_job("R-c"), Record("failed", error="out of memory"))
    store.finish(mad_job("G-cg-q", setting=quick | {"seq_len": 48}), Record("diverged", {"accuracy": float("nan")}))
    return store.root


def test_ls_labels_lists_table1_with_published_averages(listed):
    rows = listed("labels")
    assert [row["label"] for row in rows] == read_yaml(config.VARIANTS / "table1.yaml")["labels"]
    with open(config.PAPERS / "hypermlp" / "table1.csv", newline="") as file:
        published = {row["label"]: float(row["mad_average"]) for row in csv.DictReader(file)}
    assert {row["label"]: row["published"] for row in rows} == published
    assert "short convolution" in rows[2]["meaning"]


def test_ls_labels_lists_the_given_labels(listed):
    rows = listed("labels", "{S,R}-c", "S-pg-v")
    assert [row["label"] for row in rows] == ["S-c", "R-c", "S-pg-v"]
    assert rows[2]["published"] is None


def test_ls_sets_and_ls_variants_list_the_same_sets(listed):
    assert listed("sets") == listed("variants")


def test_ls_runs_shows_preset_names_and_json_has_long_forms(invoke, store, language_run):
    run = language_run("cd:id-dg", [2.0])
    store.finish(run.job, run.record)
    assert "cd:gla" in (text := invoke(ls, "runs", "--results", store.root).stdout)
    assert "matrix products" not in text
    (row,) = json.loads(invoke(ls, "runs", "--results", store.root, "-f", "json").stdout)
    assert row["label"] == "cd:id-dg"


def test_runs_are_listed_with_the_libraries_of_their_products(invoke, store, language_run):
    run = language_run("S", [2.0])
    details = run.record.details | {"products": "MKL"}
    store.finish(run.job, dataclasses.replace(run.record, details=details))
    assert invoke(ls, "runs", "--results", store.root).stdout.endswith("matrix products on a CPU: MKL\n")


def test_ls_counts_labels_of_sets_and_families_and_settings_of_tasks(listed):
    assert {row["set"]: row["labels"] for row in listed("variants")}["@table1"] == 33
    settings = {row["task"]: row["settings"] for row in listed("tasks") if row["suite"] == "mad"}
    assert list(settings) == list(MAD.tasks())
    assert {task: settings[task] for task in MAD_TASKS} == {
        "compression": 11,
        "fuzzy_in_context_recall": 11,
        "in_context_recall": 11,
        "memorization": 6,
        "noisy_in_context_recall": 14,
        "selective_copying": 13,
    }
    assert next(row["runs"] for row in listed("profiles") if row["profile"] == "full") == 66 * 3 * 2
    assert listed("families")[0]["labels"] == len(every_label()) and "mix_rank" in listed("families")[0]["settings"]


def test_operators_are_listed_with_their_titles_and_sources(listed):
    rows = {row["label"]: row for row in listed("operators")}
    assert rows.keys() == OPERATORS.keys()
    assert rows["KDA"]["source"] == "Kimi Linear, arXiv 2510.26692"
    assert all(row["layer"] for row in rows.values())


@pytest.mark.slow
def test_installed_families_and_tasks_are_listed(listed, install_example):
    install_example("plugin")
    install_example("task")
    family = next(row for row in listed("families") if row["family"] == "lin")
    assert (family["labels"], family["settings"]) == (6, "eps")
    assert {row["task"]: row["suite"] for row in listed("tasks")}["prefix_sum"] == "mad"
    assert [row["label"] for row in listed("labels", "lin:elu")] == ["lin:elu"]


def test_profiles_name_every_key_that_an_override_can_change(invoke):
    text = invoke(ls, "profiles", "mad").output
    for key in ("training.epochs", "model.d_model", "tasks.TASK.setting.KEY", "learning_rates"):
        assert key in text


def test_the_description_of_a_profile_is_below_its_row_over_the_whole_width(invoke):
    lines = invoke(ls, "profiles", "language").output.splitlines()
    row = next(i for i, line in enumerate(lines) if line.startswith("gpt2 "))
    assert lines[row].split() == ["gpt2", "19.7", "G", "give", "--corpus", "comparable"]
    assert (
        lines[row + 1].startswith("  The paper's language model: GPT-2 small (124M)") and 60 < len(lines[row + 1]) <= 80
    )
    assert "training.lr_decay_steps=600000" in " ".join(lines)


@pytest.mark.slow
@pytest.mark.parametrize("columns", [80, 160])
@pytest.mark.parametrize("kind", listings())
def test_every_list_fits_its_width_uncut(invoke, results, kind, columns):
    text = invoke(ls, kind, *(["--results", results] if kind == "runs" else []), columns=columns).output
    lines = [line for line in text.splitlines() if str(results) not in line]
    assert max(map(len, lines)) <= columns and "…" not in text


@pytest.mark.slow
def test_the_overview_counts_every_kind_of_listing(listed, results):
    counts = {row["kind"]: row["count"] for row in listed("--results", results)}
    assert set(counts) == set(listings())
    num_tasks = sum(len(suite.tasks()) for suite in suites().values())
    assert (counts["labels"], counts["tasks"], counts["runs"]) == (len(every_label()), num_tasks, 4)


def test_ls_runs_sorts_runs_and_names_their_settings(listed, results):
    rows = listed("runs", "--results", results)
    assert [(row["label"], row["seed"]) for row in rows] == [("G-cg-q", 0), ("R-c", 0), ("R-c", 0), ("S", 1)]
    assert rows[0]["status"] == "diverged" and rows[0]["metrics"] == {"accuracy": None}
    assert rows[0]["setting_change"] == "quick seq_len=48"
    assert sorted(row["setting_change"] for row in rows[1:3]) == ["baseline", "quick"]
    assert rows[3]["metrics"] == {"accuracy": 0.25} and rows[3]["details"]["steps_per_second"] == 12.34
    assert all((results / "runs" / row["folder"].rpartition("/")[2] / "job.json").is_file() for row in rows)


def test_ls_runs_names_overrides_that_tell_runs_apart(listed, tmp_path):
    store = Store.open(tmp_path / "store")
    quick = MAD.Profile.load("quick")
    setting, training = quick.settings("compression")[0], quick.trainings("compression", "float32")[0]
    how = {"setting": setting, "model": quick.model_config(), "mixer": {"mix_rank": 8}}
    for epochs in (training.epochs, 77):
        job = mad_job("R-12!", training=replace(training, epochs=epochs), **how)
        store.finish(job, Record("finished", {"accuracy": 0.5}))
    rows = listed("runs", "--results", store.root)
    assert sorted(row["setting_change"] for row in rows) == ["quick", "quick training.epochs=77"]


@pytest.mark.parametrize("profile", ["evening", "evening-4"])
def test_ls_runs_names_the_profile_of_a_run_even_if_another_shares_its_settings(listed, tmp_path, profile):
    store = Store.open(tmp_path / "store")
    for changes in ([], ["training.batch_size=8"]):
        [job] = MAD.jobs(["S-p"], MAD.Profile.load(profile, changes), tasks=["compression"], seeds=[0])
        store.finish(job, Record("finished", {"accuracy": 0.5}))
    rows = listed("runs", "--results", store.root)
    assert sorted(row["setting_change"] for row in rows) == [profile, f"{profile} training.batch_size=8"]


def test_runs_of_a_task_that_is_not_installed_are_listed_with_their_setting(listed, tmp_path):
    store = Store.open(tmp_path / "store")
    store.finish(replace(mad_job("S"), task="forgotten", setting={"seq_len": 8}), Record("finished", {"accuracy": 0.5}))
    assert [row["setting_change"] for row in listed("runs", "--results", store.root)] == ["seq_len=8"]


@pytest.mark.parametrize("columns", [80, 400])
def test_ls_runs_shows_every_run_at_any_width(invoke, results, columns):
    text = invoke(ls, "runs", "--results", results, columns=columns).output
    assert [line.split()[0] for line in text.splitlines() if "compression" in line] == ["G-cg-q", "R-c", "R-c", "S"]
    for part in ("0.250", "12.3", "diverged", "failed", "quick seq_len=48"):
        assert part in text
    assert text.count(str(results)) == 4


def test_a_damaged_run_is_named_and_hides_no_other(invoke, results):
    (results / "runs" / "0123456789abcdef").mkdir()
    result = invoke(ls, "runs", "--results", results, "-f", "json")
    assert len(json.loads(result.stdout)) == 4
    assert "warning" in result.stderr and "0123456789abcdef" in result.stderr


def test_no_runs_yet_is_no_error_but_a_wrong_folder_is(invoke, refuse, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = invoke(ls, "runs")
    assert result.exit_code == 0 and "no runs in results" in result.output
    assert json.loads(invoke(ls, "runs", "-f", "json").stdout) == []
    assert "no such results folder" in refuse(ls, "runs", "--results", tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lables"], "did you mean 'labels'"),
        (["tasks", "compression"], "'compression' has no effect"),
        (["tasks", "--results", "x"], "--results has no effect"),
        (["labels", "R-x"], "^"),
    ],
)
def test_ls_refuses_wrong_arguments(refuse, words, message):
    assert message in refuse(ls, *words)


def test_ls_runs_filters_by_label_and_override(main, fill):
    fill(["S", "R-c"], profile="quick", overrides=["training.epochs=7"])
    fill("S", profile="quick")
    assert len(json.loads(main("ls", "runs", "-f", "json").stdout)) == 6
    assert len(json.loads(main("ls", "runs", "S", "-f", "json").stdout)) == 4
    found = json.loads(main("ls", "runs", "{S,R}{,-c}", "training.epochs=7", "-f", "json").stdout)
    assert len(found) == 4 and all("training.epochs=7" in run["setting_change"] for run in found)
    assert "no runs in results of these labels and changes" in main("ls", "runs", "G").stdout


@pytest.mark.slow
def test_ls_families_has_a_distinct_sentence_for_every_family(main, install_example):
    install_example("plugin")
    rows = {row["family"]: row["description"] for row in json.loads(main("ls", "families", "-f", "json").stdout)}
    assert rows.pop("lin") == "Linear attention (Katharopoulos et al. 2020, arXiv 2006.16236) as a family of madbench."
    assert len(set(rows.values())) == len(rows) >= 6
    for sentence in rows.values():
        assert sentence.endswith(".") and "labels such as" not in sentence and 40 < len(sentence) < 120
