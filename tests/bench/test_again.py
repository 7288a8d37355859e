from __future__ import annotations

import functools
import json
import math
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest

from madbench.bench import again as again_module
from madbench.bench.again import Repeat, Repeatable, add_pairs, main, proven_pairs
from madbench.identity.package import gives_equal_bits
from madbench.jobs import Record
from madbench.store.archive import pack
from madbench.store.runs import Run, Store
from madbench.suites.mad.suite import MAD
from madbench.text.prepare import prepare
from madbench.training.loop import train
from sample_jobs import language_job
from stored_samples import RECORD, make_job

PROFILE = """\
description: A few steps of two tasks.
comparable_with_paper: false
difficulty: baseline
precision: float32
learning_rates: [1.0e-3]
weight_decays: [0.0]
model: {d_model: 16}
training: {batch_size: 16, epochs: 1}
tasks:
  compression:
    setting: {seq_len: 8, num_train_examples: 32, num_validation_examples: 32, num_test_examples: 32}
  memorization:
    setting: {seq_len: 8, num_validation_examples: 32, num_test_examples: 32}
"""


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
    run_here([*([job] for job in jobs), together], store, functools.partial(train, threads=1, stacking="always"))
    return store


def run_here(groups, store, training, on_event=lambda event: None, **_) -> None:
    """Trains the jobs without a result in this process."""
    for group in groups:
        if group := store.missing(group):
            with ExitStack() as claims:
                works = [claims.enter_context(store.claim(job)) for job in group]
                for job, record in zip(group, training(group, works, lambda *_: None)):
                    store.finish(job, record)
                    on_event({"event": "finished", "job": job})


@pytest.mark.slow
def test_runs_trained_again_in_another_process_are_equal_to_the_last_bit(trained, capsys):
    """Also those that shared a step, which are trained together again."""
    assert sorted(len(group) for group in Repeatable.from_store(trained).groups) == [*[1] * 8, 2]
    main([str(trained.root), "--share", "1"])
    rows = capsys.readouterr().out.splitlines()[2:]
    assert rows[2:] == ["", "Drawn from 10 of 10 stored runs."]
    assert [row.split(" | ")[:4] for row in rows[:2]] == [
        ["| compression", "6", "6", "0"],
        ["| memorization", "4", "4", "0"],
    ]


@pytest.mark.slow
def test_another_number_is_named_and_what_is_kept_is_not_trained_again(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    again = Store.open(tmp_path / "again")
    altered = next(run for run in trained.runs() if run.job.task == "memorization" and run.job.seed == 1)
    metrics = altered.record.metrics | {"accuracy": altered.record.metrics["accuracy"] + 0.25}
    again.finish(altered.job, replace(altered.record, metrics=metrics))
    main([str(trained.root), "--share", "1", "--alone", "--keep", str(again.root)])
    shown = capsys.readouterr()
    assert "| memorization | 4 | 3 | 0.25 |" in shown.out
    old, new = altered.record.metrics["accuracy"], metrics["accuracy"]
    assert f"{altered.job.id} {altered.job.label} memorization seed 1: accuracy {old}, again {new}" in shown.out
    assert "Drawn from 8 of 10 stored runs. Left out: 2 (shared a step with others)." in shown.out
    assert "[8/8]" in shown.err and "[1/8]" not in shown.err


@pytest.mark.slow
def test_an_archive_is_read_as_a_folder_is(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    (job,) = [
        run.job for run in trained.runs() if (run.job.label, run.job.task, run.job.seed) == ("S", "memorization", 0)
    ]
    pack(trained, [job.id], tmp_path / "runs.tar.xz")
    main([str(tmp_path / "runs.tar.xz"), "--share", "1"])
    assert "| memorization | 1 | 1 | 0 |" in capsys.readouterr().out


def test_a_share_is_drawn_and_the_seed_decides_which(tmp_path):
    store = Store.open(tmp_path / "results")
    for seed in range(20):
        store.finish(make_job(seed), RECORD)
    store.finish(make_job(20), Record("failed", error="out of memory"))
    repeatable = Repeatable.from_store(store)
    drawn = [[run.job.id for (run,) in repeatable.draw(0.25, seed)] for seed in (0, 0, 1)]
    assert [len(ids) for ids in drawn] == [5, 5, 5]
    assert drawn[0] == drawn[1] != drawn[2]
    assert repeatable.left_out == {"failed": 1}
    assert make_job(20).id not in {run.job.id for (run,) in repeatable.draw(1, 0)}


def test_seeds_that_shared_a_step_are_drawn_in_the_groups_that_their_records_count(tmp_path):
    store = Store.open(tmp_path / "results")
    for seed in range(6):
        store.finish(make_job(seed), replace(RECORD, details=RECORD.details | {"group": 3}))
    store.finish(make_job(6), RECORD)
    groups = Repeatable.from_store(store).groups
    assert sorted([run.job.seed for run in group] for group in groups) == [[0, 1, 2], [3, 4, 5], [6]]
    assert [[run.job.seed for run in group] for group in Repeatable.from_store(store, alone=True).groups] == [[6]]
    store.finish(make_job(7), replace(RECORD, details=RECORD.details | {"group": 3}))
    repeatable = Repeatable.from_store(store)
    assert repeatable.count == 1 and repeatable.left_out.total() == 7


def test_the_group_of_a_run_is_the_one_that_its_record_lists(tmp_path):
    store, jobs = Store.open(tmp_path / "results"), [make_job(seed) for seed in range(5)]
    ids = [jobs[seed].id for seed in (3, 0, 1)]
    whole, parted = {"from_step": 0, "ids": ids}, {"from_step": 0, "ids": [jobs[2].id, jobs[4].id]}
    later, alone = {"from_step": 5, "ids": ids[1:]}, {"from_step": 5, "ids": [jobs[2].id]}
    for job, steps, history in [
        (jobs[3], 5, [whole]),
        (jobs[0], 9, [whole, later]),
        (jobs[1], 9, [whole, later]),
        (jobs[2], 9, [parted, alone]),  # the other one was not over
        (jobs[4], 9, [parted]),
    ]:
        details = {"group": len(history[0]["ids"]), "group_jobs": history, "steps": steps}
        store.finish(job, replace(RECORD, details=RECORD.details | details))
    repeatable = Repeatable.from_store(store)
    assert [[run.job.seed for run in group] for group in repeatable.groups] == [[3, 0, 1]]
    assert repeatable.left_out.total() == 2


def test_a_language_model_is_trained_again_on_the_corpus_that_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("The brown hen sat by the mill. " * 60)
    corpus, store = prepare([str(tmp_path / "text")], tmp_path / "corpus"), Store.open(tmp_path / "results")
    job = language_job("S", corpus.digest, corpus.padded_vocab_size)
    run_here([[job]], store, functools.partial(train, threads=1, corpora={corpus.digest: corpus}))
    main([str(store.root), "--share", "1", "--corpus", str(tmp_path / "corpus"), "--pairs", str(tmp_path / "pairs")])
    assert "| language_model | 1 | 1 | 0 |" in capsys.readouterr().out


def test_runs_whose_corpus_is_not_given_are_left_out_and_nothing_else_is_a_sentence(tmp_path):
    store = Store.open(tmp_path / "results")
    store.finish(language_job("S"), replace(RECORD, curve=[]))
    with pytest.raises(SystemExit, match=r"1 \(their corpus was not given\)"):
        main([str(store.root)])


@pytest.mark.parametrize("option", ["--share=7", "--share=0", "--share=nan", "--seed=-1", "--slots=0"])
def test_an_option_out_of_range_is_refused_before_anything_is_trained(option, tmp_path, capsys):
    with pytest.raises(SystemExit) as refused:
        main([str(tmp_path), option])
    assert refused.value.code == 2 and option.split("=")[0] in capsys.readouterr().err


@pytest.mark.parametrize(
    ("again", "difference"),
    [
        (Record("finished", {"loss": 1.5, "nothing": math.nan}), 0.5),
        (Record("finished", {"loss": 1.0, "nothing": math.nan}), 0),
        (Record("finished", {"loss": 1.0}), math.inf),
        (Record("diverged", {"loss": 1.0, "nothing": math.nan}), math.inf),
    ],
)
def test_a_difference_is_the_largest_of_the_metrics(again, difference, tmp_path):
    run = Run(make_job(), Record("finished", {"loss": 1.0, "nothing": math.nan}), tmp_path)
    assert Repeat(run, again).difference == difference


def test_what_is_no_results_folder_is_a_sentence(tmp_path):
    with pytest.raises(SystemExit, match="there is no such results folder"):
        main([str(tmp_path / "absent")])


def repeats(digests, metrics=(1.0, 1.0)):
    """A stored run with one digest of its task's code, and the same job again with another."""
    records = [
        replace(RECORD, metrics={"accuracy": value}, details={"package_code": {"task": digest, "family": "f"}})
        for digest, value in zip(digests, metrics, strict=True)
    ]
    return Repeat(Run(make_job(), records[0], Path()), records[1])


def test_digests_of_code_that_gave_equal_bits_are_written_once_and_hold_in_chains(tmp_path):
    path = tmp_path / "pairs.json"
    path.write_text("{}")
    equal = [repeats(("a", "b")), repeats(("b", "c"))]
    unequal = [repeats(("c", "d")), repeats(("c", "d"), (1.0, 2.0))]
    assert add_pairs(proven_pairs([*equal, *unequal]), path) == 2
    assert add_pairs(proven_pairs(equal), path) == 0
    assert json.loads(path.read_text()) == {"task": [["a", "b"], ["b", "c"]]}
    assert gives_equal_bits("task", "c", "a", path) and gives_equal_bits("family", "x", "x", path)
    assert not gives_equal_bits("task", "c", "d", path) and not gives_equal_bits("family", "a", "b", path)


@pytest.mark.slow
def test_a_run_trained_again_by_other_code_is_a_pair(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(again_module, "run_jobs", run_here)
    store, pairs = Store.open(tmp_path / "results"), tmp_path / "pairs.json"
    run = next(iter(trained.runs()))
    here = run.record.details["package_code"]
    details = {name: value for name, value in run.record.details.items() if name != "group"}
    store.finish(run.job, replace(run.record, details=details | {"package_code": here | {"model": "0123"}}))
    main([str(store.root), "--share", "1", "--pairs", str(pairs)])
    assert "1 new pairs of digests" in capsys.readouterr().out
    assert json.loads(pairs.read_text()) == {"model": [["0123", here["model"]]]}


@pytest.mark.parametrize("content", ["[", "[]", '{"model": 3}', '{"model": [["a"]]}', '{"model": [[1, 2]]}'])
def test_a_file_without_pairs_is_refused_before_anything_is_trained(content, tmp_path):
    (pairs := tmp_path / "pairs.json").write_text(content)
    with pytest.raises(SystemExit, match=r"pairs\.json: no file of --pairs"):
        main([str(tmp_path), "--pairs", str(pairs)])
    assert pairs.read_text() == content
