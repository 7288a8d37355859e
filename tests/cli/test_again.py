"""``madbench again`` trains runs again, compares them, and names differences."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tarfile
from contextlib import ExitStack
from dataclasses import replace

import pytest

from madbench.bench import again as again_module
from madbench.mixers.ops import products
from madbench.store.archive import pack
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from madbench.text.prepare import prepare
from madbench.training.loop import train
from madbench.training.options import LoopOptions
from sample_jobs import language_job
from small_profiles import counts, profile_text, with_setting
from stored_samples import RECORD

PROFILE = profile_text(
    model={"d_model": 16},
    training={"batch_size": 16, "epochs": 1},
    tasks=with_setting(["compression"], **{"seq_len": 8, **counts(32, 32)})
    | with_setting(["memorization"], seq_len=8, num_validation_examples=32, num_test_examples=32),
)


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """Restore the choice of the library of matrix products after a test that trains in this process."""
    monkeypatch.setattr(products, "onednn_is_faster", products.onednn_is_faster)


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Store:
    """Two labels with two seeds of two tasks, trained alone, and two more seeds of one that shared a step."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "tiny.yaml").write_text(PROFILE)
    profile = MAD.Profile.load(str(folder / "tiny.yaml"))
    tasks = ("compression", "memorization")
    jobs = MAD.jobs(["S", "R-12o!"], profile, tasks=tasks, seeds=(0, 1))
    together = MAD.jobs(["S"], profile, tasks=("compression",), seeds=(2, 3))
    store = Store.open(folder / "results")
    run_here(
        [*([job] for job in jobs), together],
        store,
        functools.partial(train, options=LoopOptions(threads=1, stacking="always")),
    )
    return store


def run_here(groups, store, training, on_event=lambda event: None, **_) -> None:
    """Train the jobs without a result in this process."""
    for group in groups:
        missing = store.missing(group)
        for job in group:
            if job not in missing:
                on_event({"event": "skipped", "job": job, "reason": "stored"})
        if group := missing:
            with ExitStack() as locks:
                works = [locks.enter_context(store.lock(job)) for job in group]
                for job, record in zip(group, training(group, works, lambda *_: None)):
                    store.finish(job, record)
                    on_event({"event": "finished", "job": job, "record": record})


def rows(text: str) -> dict[str, list[str]]:
    """The cells of the printed table, by task."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    return {cells[0]: cells[1:] for cells in lines if len(cells) == 5 and cells[1].isdigit()}


@pytest.mark.slow
def test_runs_trained_again_in_another_process_are_equal_to_the_last_bit(trained, main):
    """Runs that shared a step are trained together again."""
    assert sorted(len(group) for group in again_module.RepeatableRuns.from_store(trained).groups) == [*[1] * 8, 2]
    ended = main("again", trained.root, "--share", 1)
    assert ended.code == 0
    assert {task: cells[:3] for task, cells in rows(ended.stdout).items()} == {
        "compression": ["6", "6", "0"],
        "memorization": ["4", "4", "0"],
    }
    assert ended.stdout.endswith("\nDrawn from 10 of 10 stored runs.\n")
    assert f"10 jobs, trained again from {trained.root}" in ended.stderr and "[10/10] " in ended.stderr


@pytest.mark.slow
def test_a_run_with_another_number_is_named_and_the_exit_code_is_1(trained, tmp_path, main, monkeypatch):
    """Runs kept with ``--keep`` are not trained again."""
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    again = Store.open(tmp_path / "again")
    altered = next(run for run in trained.runs() if run.job.task == "memorization" and run.job.seed == 1)
    metrics = altered.record.metrics | {"accuracy": altered.record.metrics["accuracy"] + 0.25}
    details = altered.record.details | {"products": "another library"}
    again.finish(altered.job, replace(altered.record, metrics=metrics, details=details))
    words = ["again", trained.root, "--share", 1, "--alone", "--keep", again.root]
    shown = main(*words)
    assert shown.code == 1
    assert rows(shown.stdout)["memorization"][:3] == ["4", "3", "0.25"]
    change = f"accuracy {altered.record.metrics['accuracy']}, again {metrics['accuracy']}"
    assert f"{altered.job.id} {altered.job.label} memorization seed 1: {change}" in shown.stdout
    assert f"{change}; matrix products not recorded, again another library" in shown.stdout
    assert "Drawn from 8 of 10 stored runs. Left out: 2 (shared a step with others)." in shown.stdout
    assert "1 of 8 jobs already in the store" in shown.stderr and "[8/8]" in shown.stderr
    (run,) = (content := json.loads(main(*words, "--format", "json").stdout))["differing"]
    assert (run["id"], run["change"]) == (altered.job.id, change)
    assert (run["products"], run["products_again"]) == ("not recorded", "another library")
    assert (content["available"], content["left_out"]) == (8, {"shared a step with others": 2})
    assert [(row["task"], row["runs"], row["equal"]) for row in content["tasks"]] == [
        ("compression", 4, 4),
        ("memorization", 4, 3),
    ]


@pytest.mark.slow
def test_runs_of_an_archive_are_trained_again_and_damaged_ones_named(trained, tmp_path, main, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    run = next(run for run in trained.runs() if (run.job.label, run.job.task, run.job.seed) == ("S", "memorization", 0))
    pack(trained, [run.job.id], tmp_path / "runs.tar.xz")
    ended = main("again", tmp_path / "runs.tar.xz", "--share", 1)
    assert ended.code == 0 and rows(ended.stdout)["memorization"][:3] == ["1", "1", "0"]
    assert not [path for path in tmp_path.iterdir() if path.is_dir()], "runs that are not kept leave nothing"
    with tarfile.open(tmp_path / "runs.tar.xz") as archive:
        archive.extractall(tmp_path / "theirs", filter="data")
    (curve,) = (tmp_path / "theirs").rglob("curve.csv")
    curve.write_bytes(b"step\n1\n")
    with tarfile.open(tmp_path / "damaged.tar.xz", "w:xz") as archive:
        archive.add(tmp_path / "theirs" / "runs", "runs")
    ended = main("again", tmp_path / "damaged.tar.xz", "--share", 1)
    assert ended.code == 2 and "do not match their checksum" in ended.stderr


@pytest.mark.slow
def test_a_language_model_is_trained_again_on_the_corpus_that_is_named(tmp_path, main, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("The brown hen sat by the mill. " * 60)
    corpus, store = prepare([str(tmp_path / "text")], tmp_path / "corpus"), Store.open(tmp_path / "results")
    job = language_job("S", corpus.digest, corpus.padded_vocab_size)
    run_here([[job]], store, functools.partial(train, corpora={corpus.digest: corpus}, options=LoopOptions(threads=1)))
    ended = main("again", store.root, "--share", 1, "--corpus", tmp_path / "corpus")
    assert rows(ended.stdout)["language_model"][:3] == ["1", "1", "0"]


def test_language_runs_without_a_given_corpus_are_left_out_and_counted(tmp_path, main):
    store = Store.open(tmp_path / "results")
    store.finish(language_job("S"), replace(RECORD, curve=[]))
    ended = main("again", store.root)
    assert ended.code == 2 and "1 (their corpus was not given)" in ended.stderr


@pytest.mark.parametrize("option", ["--share=7", "--share=0", "--share=nan", "--seed=-1", "--slots=0"])
def test_an_option_out_of_range_is_refused_before_anything_is_trained(option, tmp_path, main):
    ended = main("again", tmp_path, option)
    assert ended.code == 2 and option.split("=")[0] in ended.stderr


def test_again_refuses_a_missing_results_folder(tmp_path, main):
    ended = main("again", tmp_path / "absent")
    assert ended.code == 2 and "there is no such archive or results folder" in ended.stderr


def test_the_former_option_of_maintainers_is_refused_with_the_new_command(tmp_path, main):
    ended = main("again", tmp_path, "--pairs", tmp_path / "pairs.json")
    assert ended.code == 2 and "python studies/equal_code.py" in ended.stderr


@pytest.mark.slow
def test_the_former_command_is_refused_with_the_new_one():
    ended = subprocess.run([sys.executable, "-m", "madbench.bench.again", "x"], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == "python -m madbench.bench.again is now madbench again ARCHIVE\n"
