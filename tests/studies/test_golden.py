"""The comparison of the stores of two commits finds every difference."""

from __future__ import annotations

import importlib.util
import json
import math
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save_file

from madbench.bench.again import MEASURED
from madbench.jobs import WEIGHTS, Job, Record
from madbench.labels.registry import families, family_name
from madbench.store.format import encode
from madbench.suites import suites
from sample_jobs import mad_job

JOBS = [mad_job("S", "compression"), mad_job("S", "memorization"), mad_job("R-c", "compression")]
PLANNED_JOBS = {(job.label, job.task): 1 for job in JOBS}
CURVE = [{"step": 1, "train_loss": 2.5, "seconds": 1.0}, {"step": 2, "train_loss": 1.25, "seconds": 2.0}]
RECORD = Record("finished", {"accuracy": 0.75, "test_loss": 0.1}, CURVE, {"device": "an abacus", "versions": {}})
TENSORS = {"w": torch.tensor([1.0, 2.0]), "count": torch.tensor(3)}


@pytest.fixture(scope="module")
def golden() -> ModuleType:
    path = Path(__file__).parents[2] / "studies" / "golden.py"
    spec = importlib.util.spec_from_file_location("golden", path)
    sys.modules["golden"] = module = importlib.util.module_from_spec(spec)  # where dataclasses look for it
    spec.loader.exec_module(module)
    yield module
    del sys.modules["golden"]


def write_run(store: Path, job: Job, record: Record = RECORD, tensors: dict[str, torch.Tensor] = TENSORS) -> Path:
    """Write a run into a store as the package does."""
    folder = store / "runs" / job.id
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in encode(job, record).items():
        (folder / name).write_bytes(content)
    save_file(tensors, folder / WEIGHTS)
    return folder


@pytest.fixture
def stores(tmp_path) -> tuple[Path, Path]:
    """Two stores with the same runs."""
    for side in ("first", "second"):
        for job in JOBS:
            write_run(tmp_path / side, job)
    return tmp_path / "first", tmp_path / "second"


def counts(row) -> tuple[int, int, int, int]:
    return row.jobs, row.equal, row.differing, row.absent


def test_equal_stores_have_no_difference(golden, stores):
    rows, lines = golden.compare(*stores, PLANNED_JOBS)
    assert not lines and {label: counts(row) for label, row in rows.items()} == {"S": (2, 2, 0, 0), "R-c": (1, 1, 0, 0)}
    assert rows["R-c"].numbers == len(["status"]) + len(RECORD.metrics) + 4 + len(TENSORS)


def test_different_times_and_ids_are_no_difference(golden, stores):
    job = JOBS[0]
    later = [row | {"seconds": 9 * row["seconds"]} for row in CURVE]
    shutil.rmtree(stores[1] / "runs" / job.id)
    renamed = write_run(stores[1], replace(job, family="a hash of another source"), replace(RECORD, curve=later))
    assert renamed.name != job.id
    assert golden.compare(*stores, PLANNED_JOBS)[1] == []


def one_bit_more(value: float) -> float:
    return math.nextafter(value, math.inf)


@pytest.mark.parametrize(
    "changes, name, size",
    [
        ({"metrics": RECORD.metrics | {"accuracy": one_bit_more(0.75)}}, "metric accuracy", one_bit_more(0.75) - 0.75),
        ({"metrics": {"accuracy": 0.75}}, "metric test_loss", math.inf),
        ({"metrics": RECORD.metrics | {"ceiling": 1.0}}, "metric ceiling", math.inf),
        ({"metrics": RECORD.metrics | {"test_loss": math.nan}}, "metric test_loss", math.inf),
        ({"curve": [CURVE[0], CURVE[1] | {"train_loss": 1.5}]}, "curve row 2 train_loss", 0.25),
        ({"curve": CURVE[:1]}, "curve row 2 train_loss", math.inf),
        ({"status": "diverged"}, "status", math.inf),
    ],
)
@pytest.mark.parametrize("side", [0, 1])
def test_each_number_of_a_record_is_compared(golden, stores, side, changes, name, size):
    write_run(stores[side], JOBS[2], replace(RECORD, **changes))
    rows, lines = golden.compare(*stores, PLANNED_JOBS)
    assert counts(rows["S"]) == (2, 2, 0, 0) and counts(rows["R-c"]) == (1, 0, 1, 0)
    assert rows["R-c"].largest == size
    assert len(lines) == 1 and name in lines[0]


@pytest.mark.parametrize(
    "tensors, size",
    [
        ({"w": torch.tensor([1.0, 2.5])}, 0.5),
        ({"w": torch.tensor([1.0, 2.0]).nextafter(torch.tensor(9.0))}, 2.0**-22),
        ({"w": torch.tensor([-1.0, math.nan])}, math.inf),
        ({"w": torch.tensor([[1.0, 2.0]])}, math.inf),
        ({"w": torch.tensor([1.0, 2.0]).double()}, math.inf),
        ({"count": torch.tensor(5)}, 2),
        ({"other": torch.tensor(1.0)}, math.inf),
    ],
)
def test_each_weight_is_compared(golden, stores, tensors, size):
    write_run(stores[1], JOBS[2], tensors=TENSORS | tensors)
    rows, lines = golden.compare(*stores, PLANNED_JOBS)
    assert counts(rows["R-c"]) == (1, 0, 1, 0) and rows["R-c"].largest == size
    assert len(lines) == 1 and f"weights {next(iter(tensors))}" in lines[0]


def test_weights_of_one_side_only_are_a_difference(golden, stores):
    (stores[0] / "runs" / JOBS[2].id / WEIGHTS).unlink()
    assert counts(golden.compare(*stores, PLANNED_JOBS)[0]["R-c"]) == (1, 0, 1, 0)


@pytest.mark.parametrize("sides", [[0], [1], [0, 1]])
def test_a_planned_job_without_a_run_is_reported_as_absent(golden, stores, sides):
    for side in sides:
        shutil.rmtree(stores[side] / "runs" / JOBS[1].id)
    rows, lines = golden.compare(*stores, PLANNED_JOBS)
    assert counts(rows["S"]) == (2, 1, 0, 1) and len(lines) == 1 and "absent" in lines[0]


def test_a_run_of_another_setting_is_another_job(golden, stores):
    job = JOBS[1]
    shutil.rmtree(stores[1] / "runs" / job.id)
    write_run(stores[1], replace(job, setting=job.setting | {"seq_len": 64}))
    assert counts(golden.compare(*stores, PLANNED_JOBS)[0]["S"]) == (2, 1, 0, 2)


def test_runs_that_were_not_planned_are_left_out(golden, stores):
    rows, lines = golden.compare(*stores, {("R-c", "compression"): 1})
    assert [*rows] == ["R-c"] and not lines
    write_run(stores[1], JOBS[0], replace(RECORD, metrics={"accuracy": 0.0}))
    assert golden.compare(*stores, {("R-c", "compression"): 1})[1] == []


def test_a_pattern_selects_jobs_by_profile_task_and_label(golden):
    parts = golden.parts_of(["S-p", "cd:gdn-cg"], False, "*/memorization/S*")
    assert [(part.name, part.tasks, part.labels) for part in parts] == [
        ("quick", ("memorization",), ("S-p",)),
        ("evening", ("memorization",), ("S-p",)),
    ]
    parts = golden.parts_of(["S-p", "cd:gdn-cg"], False, "*")
    assert {part.name: len(part.tasks) * len(part.labels) for part in parts} == {"quick": 12, "evening": 12, "tiny": 2}


def test_the_working_tree_has_new_files_and_leaves_the_index_alone(golden, tmp_path, monkeypatch):
    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    git("init", "-q")
    (tmp_path / "old").write_text("old")
    git("add", "old")
    (tmp_path / "old").write_text("changed")
    (tmp_path / "new").write_text("new")
    before = git("status", "--porcelain")
    monkeypatch.setattr(golden, "ROOT", tmp_path)
    tree = golden.tree_of_the_working_folder()
    assert git("ls-tree", "--name-only", tree).split() == ["new", "old"]
    assert git("cat-file", "-p", f"{tree}:old") == "changed" and git("status", "--porcelain") == before


def test_every_task_of_the_suites_is_trained(golden):
    parts = {part.name: {*part.tasks} for part in golden.parts_of(["S"], True, "*")}
    tasks = {name: {*suite.tasks()} for name, suite in suites().items()}
    assert parts["quick"] == parts["evening"] == tasks["mad"] and parts["tiny"] == tasks["language"]
    assert parts["signals"] == tasks["signals"] and parts["interactions"] == tasks["interactions"]


def test_one_label_of_each_family_is_trained(golden):
    named = {family_name(label) for label in golden.LABELS.split(",")}
    assert named == {*families()} - {"named", "hybrid"}, "which the commit that is compared with does not have"


def test_stores_of_different_machines_have_different_descriptions(golden, stores):
    assert len(golden.machines(stores[0]) | golden.machines(stores[1])) == 1
    write_run(stores[1], JOBS[0], replace(RECORD, details=RECORD.details | {"versions": {"torch": "2.6"}}))
    assert len(golden.machines(stores[0]) | golden.machines(stores[1])) == 2
    write_run(stores[1], JOBS[0], replace(RECORD, details=RECORD.details | {"versions": {"madbench": "0.3"}}))
    assert len(golden.machines(stores[0]) | golden.machines(stores[1])) == 1


@pytest.mark.parametrize(
    "changes, code",
    [
        ({}, 0),
        ({"metrics": RECORD.metrics | {"accuracy": one_bit_more(0.75)}}, 1),
        ({"details": RECORD.details | {"versions": {"torch": "2.6"}}}, 1),
    ],
)
def test_the_exit_code_is_1_for_a_difference(golden, tmp_path, monkeypatch, capsys, changes, code):
    def make_side(commit: str | None, folder: Path):
        return golden.Side(str(commit), folder / str(commit))

    def train(side, part, slots: int) -> None:
        assert slots == 2
        for job in JOBS:
            changed = replace(RECORD, **changes) if side.name == "None" and part.name == "evening" else RECORD
            write_run(side.store(part), job, changed)

    monkeypatch.setattr(golden, "make_side", make_side)
    monkeypatch.setattr(golden, "plan", lambda side, part: PLANNED_JOBS)
    monkeypatch.setattr(golden, "train", train)
    monkeypatch.setattr(sys, "argv", ["golden.py", "reference", "--slots", "2", "--keep", str(tmp_path)])
    assert golden.main() == code
    shown = capsys.readouterr().out
    assert ("evening:" in shown) == bool(code)


def test_two_runs_of_one_job_are_refused(golden, stores):
    write_run(stores[1], replace(JOBS[0], family="a hash of another source"))
    with pytest.raises(SystemExit, match="two runs of one job"):
        golden.compare(*stores, PLANNED_JOBS)


def test_numbers_are_compared_as_their_stored_text(golden, stores):
    """Comparing text compares bits, because the store writes the shortest text of each number."""
    path = stores[0] / "runs" / JOBS[0].id / "record.json"
    assert golden.read_numbers(path.parent)["metric test_loss"] == "0.1"
    assert json.loads(path.read_text())["metrics"]["test_loss"] == 0.1


def test_golden_and_again_ignore_the_same_machine_dependent_numbers(golden):
    assert golden.NOT_COMPARED == MEASURED
