"""``validate --store`` names damage, and no verb hangs, crashes or shows an altered number."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import resource
import shutil
import time
from pathlib import Path

import pytest
import torch

from madbench.errors import MadbenchError
from madbench.execute import journal as journal_module
from madbench.execute.journal import Journal
from madbench.jobs import KEEP, Record
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from madbench.text.corpus import open_corpus
from madbench.text.options import PrepareOptions
from madbench.text.prepare import prepare
from madbench.training.checkpoints import NAME, TrainingState, load_model, save_checkpoint, save_weights
from madbench.training.optimizer import make_optimizer
from sample_jobs import language_job
from unprivileged import enforce_file_modes

WEIGHTS = "weights.safetensors"
REFUSED = re.compile("[Pp]ermission denied|unable to open")  # the second is SQLite's


class TrialOf:
    def __init__(self, model):
        self.model, self.state = model, {}


@pytest.fixture
def results(store, fill, fill_language, language_run, tmp_path, monkeypatch) -> Path:
    """A store with runs, weights, measurements, a checkpoint, a corpus, an index and journals."""
    monkeypatch.setattr(journal_module, "WRITE_SECONDS", 0.0)
    root = store.root
    fill(["S", "R-cg-q-12o"], seeds=(0, 1, 2))
    fill_language("S")
    run, model = language_run("R-c", seed=7), torch.nn.Linear(3, 2)
    job = run.job
    with store.lock(job) as work:
        (work / KEEP).mkdir()
        save_weights(work / KEEP / WEIGHTS, model, job)
        store.finish(job, run.record)
    for length in (8, 16):
        store.measure(job.id, "evaluation", {"validation_loss": 2.5 + length}, {}, {"seq_len": length})
    unfinished = language_job(label="S", seed=8)
    (root / "work" / unfinished.id).mkdir()
    optimizer = make_optimizer(model, unfinished.training)
    save_checkpoint(root / "work" / unfinished.id, unfinished, TrialOf(model), optimizer, TrainingState("cpu"), 1.0)
    (tmp_path / "text.txt").write_text("a corpus of very few words. " * 200)
    corpus = prepare([str(tmp_path / "text.txt")], root / "corpora" / "text", PrepareOptions(validation=0.1))
    open_corpus(corpus.folder, cache=root / "corpora")
    jobs = MAD.jobs(["S"], MAD.Profile.load("quick"), tasks=["compression"], seeds=range(3))
    for title in ("first", "second"):
        with Journal(root, jobs, title, "madbench run S", pytest.fail) as journal:
            journal.on_event({"event": "started", "job": jobs[0], "slot": 0})
            record = Record("failed", error="MemoryError")
            journal.on_event({"event": "failed", "job": jobs[0], "slot": 0, "record": record})
    time.sleep(0.02)  # the index takes no run that could still change within a tick of the clock
    list(Store.open(root, create=False).runs(with_curves=False))
    assert (root / "index" / "runs.sqlite").exists()
    return root


def problems(ended) -> dict[str, list[str]]:
    reports = {report["kind"]: report["problems"] for report in json.loads(ended.stdout)}
    assert ended.code == (2 if any(reports.values()) else 0)
    return {kind: found for kind, found in reports.items() if found}


def flip(path: Path, place: int) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 4
    path.write_bytes(content)


@pytest.mark.slow
def test_validating_a_sound_store_finds_no_problem_and_changes_no_file(results, main):
    before = {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}
    shown = main("validate", "--store")
    assert shown.code == 0 and "runs: 14 checked" in shown.stdout and "journals: 2 checked" in shown.stdout
    assert before == {path: path.read_bytes() for path in results.rglob("*") if path.is_file()}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "kind", "advice"),
    [
        ("runs/*/job.json", "runs", "repeat the command that trained it"),
        ("runs/*/record.json", "runs", "repeat the command that trained it"),
        ("runs/*/curve.csv", "runs", "repeat the command that trained it"),
        (f"runs/*/{WEIGHTS}", "runs", "train it again with --force"),
        ("runs/*/measurements/*", "runs", "delete it and measure again"),
        (f"work/*/{NAME}", "checkpoints", "delete it: the run starts from the beginning"),
        ("corpora/*/train.bin", "corpora", "prepare the corpus again"),
        ("corpora/*/val.bin", "corpora", "prepare the corpus again"),
        ("corpora/*/manifest.json", "corpora", "prepare the corpus again"),
        ("corpora/*.json", "corpora", "delete it: it is made again"),
        ("sweeps/*.json", "journals", "delete it"),
    ],
)
def test_validate_store_names_damaged_files_with_advice(results, main, pattern, kind, advice):
    path = min(results.glob(pattern))
    flip(path, path.stat().st_size // 2 + 1)
    ((found,),) = [problems(main("validate", "--store", "-f", "json")).pop(kind)]
    assert str(path.relative_to(results)).split("/")[1] in found and advice in found
    shown = main("validate", "--store")
    assert shown.code == 2 and advice in shown.stdout and shown.stderr == f"1 problem in {kind}\n"


def test_validate_store_names_a_damaged_index_and_stray_files(results, main):
    (results / "index" / "runs.sqlite").write_bytes(b"SQLite format 4")
    (min((results / "runs").iterdir()) / "notes.txt").touch()
    found = problems(main("validate", "--store", "-f", "json"))
    assert found.keys() == {"runs", "index"} and "notes.txt: not of this run; delete it" in found["runs"][0]
    assert "it is made again" in found["index"][0]


def test_validate_store_notes_an_unfinished_corpus(store, fill, main):
    fill(["S"])
    (store.root / "corpora" / "text" / "partial").mkdir(parents=True)
    ended = main("validate", "--store", "-f", "json")
    notes = next(report["notes"] for report in json.loads(ended.stdout) if report["kind"] == "corpora")
    assert ended.code == 0 and "text/partial: a corpus that is not finished" in notes[0]


def test_options_that_have_no_effect_are_refused(main):
    assert "has no effect with --store" in main("validate", "mine.yaml", "--store").stderr
    assert "has no effect without --store" in main("validate", "--results", "r").stderr
    assert "there is no such results folder" in main("validate", "--store", "--results", "r").stderr


def damage(path: Path, other: Path, rng: random.Random) -> str:
    """Damage a file at random, and return a description."""
    content = path.read_bytes() or b"\0"
    place = rng.randrange(len(content))

    def flip():
        flipped = content[place] ^ 1 << rng.randrange(8)
        path.write_bytes(content[:place] + bytes([flipped]) + content[place + 1 :])

    def replace(make):
        path.unlink()
        make()

    kinds = {
        "flip": flip,
        "truncate": lambda: path.write_bytes(content[:place]),
        "zeros": lambda: path.write_bytes(content[:place] + bytes(len(content) - place)),
        "delete": path.unlink,
        "folder": lambda: replace(path.mkdir),
        "other": lambda: path.write_bytes(other.read_bytes()),
        "null": lambda: path.write_bytes(b"null"),
        "nulls": lambda: path.write_bytes(json.dumps(dict.fromkeys(json.loads(content))).encode()),
        "binary": lambda: path.write_bytes(rng.randbytes(500)),
        "name": lambda: path.rename(path.with_name(path.name + "\udcff")),
    }  # fmt: skip
    if path.suffix != ".json" or "index" in str(path) or path.name == "manifest.json":
        kinds.pop("nulls")
    kind = rng.choice(list(kinds))
    kinds[kind]()
    return kind


def same(before: Path, after: Path) -> bool:
    """True if the content of a file has the same meaning as before."""
    if not after.is_file():
        return False
    if before.read_bytes() == after.read_bytes():
        return True
    with contextlib.suppress(ValueError, RecursionError, OSError):
        return (
            before.suffix == ".json"
            and after.stat().st_size < 1e6
            and (json.loads(before.read_bytes()) == json.loads(after.read_bytes()))
        )
    return False


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("seed", range(3))
def test_thirty_damaged_stores_never_break_a_verb_nor_show_an_altered_number(results, main, seed, tmp_path):
    def rows(ended):
        return {Path(row["folder"]).name: row for row in json.loads(ended.stdout)} if ended.code == 0 else {}

    def sweeps(ended):
        return {sweep["name"]: sweep for sweep in json.loads(ended.stdout)} if ended.code == 0 else {}

    clean, rng = tmp_path / "clean", random.Random(seed)
    shutil.copytree(results, clean)
    expected = sweeps(main("ls", "sweeps", "-f", "json")), rows(main("ls", "runs", "-f", "json"))
    measured = {run.job.id: Store(clean).measurements(run.job.id) for run in Store(clean).runs()}
    files = sorted(path.relative_to(clean) for path in clean.rglob("*") if path.is_file() and path.name != "lock")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(30):
        shutil.rmtree(results)
        shutil.copytree(clean, results)
        done = {}
        for path in rng.sample(files, rng.choice((1, 1, 2, 4))):
            done[path] = damage(results / path, clean / rng.choice(files), rng)
        for words in (
            ["status"],
            ["table", "-f", "json"],
            ["lm", "table", "-f", "json"],
            ["ls", "runs"],
            ["compare", "S", "R-cg-q-12o"],
        ):
            began = time.monotonic()
            ended = main(*words)  # raises what is no error of the user
            assert ended.code in (0, 2) and "Traceback" not in ended.stderr and time.monotonic() - began < 30, (
                done,
                words,
            )
            assert "weights_only" not in ended.stderr
        for name, sweep in sweeps(main("ls", "sweeps", "-f", "json")).items():
            assert sweep["state"] == "damaged" or sweep == expected[0][name], done
        for name, row in rows(main("ls", "runs", "-f", "json")).items():
            assert row == expected[1][name], done
        store = Store(results)
        for name, known in measured.items():
            with contextlib.suppress(MadbenchError):
                assert all(one in known for one in store.measurements(name)), done
        for path in files:
            with contextlib.suppress(MadbenchError):
                if path.name == WEIGHTS:
                    assert same(clean / path, store.kept_file(path.parts[1], WEIGHTS)), done
                if path.name in (WEIGHTS, NAME):
                    load_model(results / path)
                if path.name == "manifest.json" and os.path.lexists(results / path):  # without one it is nanoGPT's
                    corpus = open_corpus(results / path.parent, cache=results / "corpora")
                    assert same(clean / path, results / path), done
                    assert all(
                        same(clean / path.with_name(name), results / path.with_name(name))
                        for name in ("train.bin", "val.bin")
                    ), done
                    assert corpus.digest == open_corpus(clean / path.parent).digest
        altered = [
            path
            for path, kind in done.items()
            if kind not in ("delete", "name") and not same(clean / path, results / path)
        ]
        found = problems(main("validate", "--store", "-f", "json"))
        if any(path.parts[0] != "index" for path in altered):
            assert found, done
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory < 1_500_000, "kilobytes"


@pytest.mark.slow
@pytest.mark.parametrize(
    "pattern",
    [
        *("corpora", "corpora/*/", "corpora/*/manifest.json", "corpora/*.json", "index", "index/runs.sqlite"),
        *("runs", "runs/*/", "runs/*/record.json", f"runs/*/{WEIGHTS}", "runs/*/measurements", "sweeps"),
        *("runs/*/measurements/*", "sweeps/*.json", "work", "work/*/", f"work/*/{NAME}"),
    ],
)
def test_unreadable_files_of_a_store_are_named_as_problems(results, main, pattern):
    assert main("validate", "--store").code == 0  # whose modules are imported by now
    path = min(results.glob(pattern))
    mode = path.stat().st_mode
    path.chmod(0)
    try:
        with enforce_file_modes():
            ended, sweeps = main("validate", "--store"), main("ls", "sweeps")
    finally:
        path.chmod(mode)
    assert ended.code == 2, ended.stdout
    said = [line for line in (ended.stdout + ended.stderr).splitlines() if REFUSED.search(line)]
    named = path.parent if path.name == "record.json" else path  # a run is named as a whole
    assert len(said) == 1 and str(named.relative_to(results)) in said[0], ended.stdout
    if pattern.startswith("sweeps"):
        assert path.name in sweeps.stdout + sweeps.stderr and REFUSED.search(sweeps.stdout + sweeps.stderr)


def test_a_work_folder_that_cannot_be_removed_is_only_noted(store, fill, main):
    fill(["S"])
    work = store.root / "work" / store.job_ids()[0]
    (work / "keep").mkdir(parents=True)
    (work / "keep" / WEIGHTS).touch()
    for folder in (work, work / "keep"):
        folder.chmod(0o555)
        with enforce_file_modes():
            Store.open(store.root)
            notes = json.loads(main("validate", "--store", "-f", "json").stdout)[1]["notes"]
        folder.chmod(0o755)
        assert (work / "keep" / WEIGHTS).exists() and (folder != work or work.name in notes[0])
    Store.open(store.root)
    assert not work.exists()
