"""studies/equal_code.py: the choice of runs to train again, and the digests recorded as equal."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import sys
import tarfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import code_changes
import equal_code
import madbench
from code_changes import Difference, Function, changed_functions, changes_outside, changes_since
from equal_code import add_equal, choose, executed_functions, proven
from madbench.bench import again
from madbench.bench.again import RepeatedRun
from madbench.execute.local import run_jobs
from madbench.execute.products import DETAIL
from madbench.identity import package
from madbench.mixers.ops import products
from madbench.store.reading import Run
from madbench.store.runs import Store
from madbench.suites.mad.suite import MAD
from madbench.training.loop import train
from sample_jobs import mad_job
from small_profiles import counts, profile_text, with_setting
from stored_samples import RECORD

TASK, FAMILY = Difference("task", "a", "b"), Difference("family", "c", "d")
STEP, DECODE = Function("m.py", "M.step"), Function("m.py", "M.decode")


def group(label, seconds):
    record = replace(RECORD, details=RECORD.details | {"seconds": seconds})
    return [Run(mad_job(label=label), record, Path())]


def repeats(digests, metrics=(1.0, 1.0)):
    """A stored run with one digest of its task's code, and its repetition with another digest."""
    records = [
        replace(RECORD, metrics={"accuracy": value}, details={"package_code": {"task": digest, "family": "f"}})
        for digest, value in zip(digests, metrics, strict=True)
    ]
    return RepeatedRun(Run(mad_job(), records[0], Path()), records[1])


def test_digests_are_proven_equal_only_if_all_their_runs_are_equal(tmp_path):
    equal = [repeats(("a", "b")), repeats(("b", "c"))]
    unequal = [repeats(("c", "d")), repeats(("c", "d"), (1.0, 2.0))]
    assert proven([*equal, *unequal]) == {"task": [["a", "b"], ["b", "c"]]}


def test_lists_of_equal_digests_that_overlap_are_merged(tmp_path):
    (path := tmp_path / "equal.json").write_text(
        '{"task": [["a", "b"], ["c", "d"], ["x", "y"]], "model": [["m", "n"]]}'
    )
    add_equal({"task": [["b", "c"]], "suite": [["s", "t"]]}, path)
    known = {"model": [["m", "n"]], "suite": [["s", "t"]], "task": [["a", "b", "c", "d"], ["x", "y"]]}
    text = path.read_text()
    assert json.loads(text) == known and len(text.splitlines()) == 2 + 3 * 2 + 4
    add_equal({"task": [["a", "d"]]}, path)
    assert path.read_text() == text


def test_the_cheapest_runs_are_chosen_that_have_every_digest():
    cheap, both, dear = group("S", 1.0), group("R", 10.0), group("G", 50.0)
    groups = [(cheap, frozenset({TASK})), (both, frozenset({TASK, FAMILY})), (dear, frozenset({TASK, FAMILY}))]
    assert choose(groups, (), lambda group: pytest.fail("nothing to probe")) == ([both], set())
    assert choose(groups[::2], (), lambda group: set()) == ([dear], set())
    apart = [groups[0], (dear, frozenset({FAMILY}))]
    assert choose(apart, (), lambda group: set()) == ([cheap, dear], set())


def test_the_only_run_that_executes_a_changed_function_is_chosen():
    groups = [(group(label, 1.0 + i), frozenset({TASK})) for i, label in enumerate(("S", "R", "R-c", "G"))]
    executed = {"S": set(), "R": set(), "R-c": {STEP}, "G": {STEP}}
    chosen, missed = choose(groups, {STEP, DECODE}, lambda group: executed[group[0].job.label])
    assert [each[0].job.label for each in chosen] == ["S", "R-c"] and missed == {DECODE}


def test_functions_with_other_code_are_changed(tmp_path):
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text("class A:\n    def f(self, x): return x\n    def g(self): return 1  # one\ndef h(): return 1\n")
    after.write_text(
        "def h(): return 2\ndef i(): pass\nclass A:\n    def g(self): return 1\n"
        "    def f(self, x):\n        def j(): pass\n        return x\n"
    )
    assert changed_functions(before, after) == {"h", "i", "A.f"}
    assert changed_functions(None, before) == {"A.f", "A.g", "h"} and changed_functions(before, None) == set()


def test_changed_functions_compares_nested_and_repeated_definitions(tmp_path):
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    text = (
        "try:\n    def f(): return 1\nexcept ImportError:\n    def f(): return 2\n"
        "if f():\n    class A:\n        @property\n        def x(self): return 1\n"
        "        @x.setter\n        def x(self, value): pass\n"
    )
    before.write_text(text)
    after.write_text(text.replace("return 1", "return 3"))
    assert changed_functions(before, after) == {"f", "A.x"} and changes_outside(before, after) == []


def test_changes_outside_of_functions_are_listed(tmp_path):
    before, after = tmp_path / "before.py", tmp_path / "after.py"
    before.write_text("KEPT = 2\nclass A:\n    rate: float = 0.1\n    def f(self): return 1\n")
    after.write_text(
        '"""Text."""\nimport io\nKEPT = 3  # more\nclass A:\n    """A."""\n    rate: float = 0.2\n    """Rate."""\n'
        "    def f(self): return 2\n"
    )
    changed = ["-KEPT = 2", "+KEPT = 3", "-    rate: float = 0.1", "+    rate: float = 0.2"]
    assert changes_outside(before, after) == changed
    assert changes_outside(before, before) == [] and "+KEPT = 2" in changes_outside(None, before)


def test_the_report_names_changes_that_no_function_shows(tmp_path, capsys):
    (path := tmp_path / "equal.json").write_text("{}")
    equal_code.report([], [], {STEP}, {"m.py": ["-KEPT = 2", "+KEPT = 3"]}, {}, path)
    text = capsys.readouterr().out
    assert "  m.py: M.step\n" in text and "  m.py: -KEPT = 2\n  m.py: +KEPT = 3\n" in text


def test_only_runs_with_digests_are_unpacked(tmp_path):
    with tarfile.open(tmp_path / "a.tar.xz", "w:xz") as archive:
        for name, text in {
            "a/runs/1/curve.csv": "1",
            "a/runs/1/measurements/m.json": "{}",
            "a/runs/1/record.json": '{"package_code": {}}',
            "a/runs/2/record.json": "{}",
        }.items():
            (member := tarfile.TarInfo(name)).size = len(text)
            archive.addfile(member, io.BytesIO(text.encode()))
    equal_code.unpack_digested_runs(tmp_path / "a.tar.xz", tmp_path / "folder")
    files = {path.relative_to(tmp_path / "folder").as_posix() for path in (tmp_path / "folder").rglob("*.*")}
    assert files == {"a/runs/1/curve.csv", "a/runs/1/record.json"}


def git(folder, *words):
    author = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", "-C", folder, *author, *words], check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_changed_files_are_found_in_the_newest_commit_with_the_stored_digest(tmp_path, monkeypatch):
    home, equal = tmp_path / "clone/madbench", tmp_path / "equal.json"
    shutil.copytree(Path(madbench.__file__).parent, home, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(code_changes, "ROOT", home.parent)
    equal.write_text("{}")
    git(home.parent, "init", "-q")

    def commit(file, old, new):
        text = (home / file).read_text()
        (home / file).write_text(text.replace(old, new))
        assert not old or text.count(old) == 1
        git(home.parent, "add", "-A")
        git(home.parent, "commit", "-qm", file)
        return git(home.parent, "rev-parse", "--short", "HEAD").strip()

    job = mad_job(label="KDA")
    with package.files_of(home):
        stored = digests(job)
        commit("mixers/sequence.py", "", "")
        first = commit("cli/table.py", "from __future__ import annotations\n", "ADDED = 1\n")
        commit("mixers/named/operators/kda.py", "from __future__ import annotations\n", "def added():\n    pass\n")
        commit("mixers/named/operators/gdn.py", "from __future__ import annotations\n", "ADDED = 1\n")
        here = digests(job)
        changes = changes_since({Difference("family", stored["family"], here["family"]): job}, tmp_path / "old", equal)
    assert changes.commits == {first} and not changes.unknown
    assert changes.parts == {"madbench/mixers/named/operators/kda.py": {"family"}}
    assert changes.functions == {Function("madbench/mixers/named/operators/kda.py", "added")}
    assert changes.outside == {}
    with package.files_of(home):
        unknown = Difference("family", "0123", here["family"])
        assert changes_since({unknown: job}, tmp_path / "older", equal).unknown == {unknown}


def digests(job):
    """The digests of the files that :func:`madbench.identity.package.files_of` names, without the cache."""
    return {part: package.package_digest(*where) for part, where in code_changes.job_modules(job).items()}


@pytest.fixture(scope="module")
def job(tmp_path_factory):
    """A job that trains within a second."""
    (path := tmp_path_factory.mktemp("profile") / "tiny.yaml").write_text(
        profile_text(
            model={"d_model": 16},
            training={"batch_size": 16, "epochs": 1},
            tasks=with_setting(["compression"], seq_len=8, **counts(32, 32)),
        )
    )
    return MAD.jobs(["R-c"], MAD.Profile.load(str(path)), tasks=("compression",), seeds=(0,))[0]


@pytest.mark.slow
def test_the_functions_that_a_run_executes_are_noted(job, monkeypatch):
    monkeypatch.setattr(products, "onednn_is_faster", products.onednn_is_faster)  # a repeated run replaces it
    functions = executed_functions([job], {}, {})
    assert Function("madbench/training/loop.py", "GroupLoop.take_step") in functions
    assert not {each for each in functions if "named" in each.file}


@pytest.mark.slow
@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="torch was built without oneDNN")
@pytest.mark.parametrize("details", [{}, {DETAIL: "oneDNN for large products"}])
def test_executed_functions_uses_the_product_library_of_the_repeated_run(job, monkeypatch, details):
    monkeypatch.setattr(again, "ONEDNN_IS_FASTER", lambda: True)
    monkeypatch.setattr(products, "onednn_is_faster", lambda: True)
    for bound in ("LEAST_ROWS", "LEAST_INPUTS", "LEAST_WEIGHTS"):
        monkeypatch.setattr(products, bound, 1)
    executed = Function("madbench/mixers/ops/products.py", "multiply") in executed_functions([job], details, {})
    assert executed == (DETAIL in details)


@pytest.mark.slow
def test_a_marked_run_is_trained_again_and_its_digest_recorded(job, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(equal_code, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(code_changes, "MOST_COMMITS", 1)
    (path := tmp_path / "equal.json").write_text("{}")
    trained, store = Store.open(tmp_path / "trained"), Store.open(tmp_path / "stored")
    run_jobs([[job]], trained, train)
    record = trained.read(job.id).record
    here = record.details["package_code"]
    stored = replace(record, details=record.details | {"package_code": here | {"model": "0123"}})
    store.finish(job, stored)

    def ended(*words):
        monkeypatch.setattr(sys, "argv", ["equal_code.py", str(store.root), "--equal", str(path), "--slots=1", *words])
        try:
            equal_code.main()
        except SystemExit as end:
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

    code, text = ended("--list")
    assert code == 1 and "1 stored run marked" in text and path.read_text() == "{}"
    code, text = ended()
    assert code == 0 and "Equal to the last bit: 1 of 1." in text
    assert json.loads(path.read_text()) == {"model": [["0123", here["model"]]]}
    assert ended("--list") == (0, "Reading the runs of 1 archive ...\nNo stored run is marked.\n")
    on_gpu = {name: value for name, value in stored.details.items() if name != "processor"}
    store.finish(job, replace(stored, details=on_gpu), replace=True)
    path.write_text("{}")
    assert ended("--list") == (0, "Reading the runs of 1 archive ...\nNo stored run is marked.\n")
    store.finish(job, replace(stored, metrics=stored.metrics | {"accuracy": 7.0}), replace=True)
    path.write_text("{}")
    code, text = ended()
    assert code == 1 and "accuracy 7.0, again" in text and path.read_text() == "{}"
