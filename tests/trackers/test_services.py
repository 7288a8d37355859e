"""The real tracking packages, offline: tracked values are read back from their files."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

PROGRAM = """
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from madbench.jobs import Record
from madbench.trackers import Naming, Tracking, open_trackers

@dataclass(frozen=True)
class Job:
    label: str
    task: str
    setting: dict
    seed: int
    id = property(lambda self: f"c0ffee{self.seed}")
    to_dict = asdict

def fail(text):
    sys.exit(text)

name, results = sys.argv[1], Path(sys.argv[2])
jobs = [Job("R-12o!", "compression", {"seq_len": 16}, seed) for seed in (0, 1)]
curve = [{"epoch": 1, "step": 8, "train_loss": 2.5}, {"epoch": 2, "step": 16, "train_loss": 1.5}]
varied = {job.id: {"model.mix_rank": 4} for job in jobs}
rows = {job.id: "R-12o!  model.mix_rank=4" for job in jobs}
naming = Naming(*sys.argv[3:], rows=rows, varied=varied)
with Tracking(open_trackers([name], results, naming), fail) as tracking:
    for slot, job in enumerate(jobs):
        tracking.on_event({"event": "started", "job": job, "slot": slot})
    for step, accuracy in ((5, 0.25), (12, 0.75)):
        for slot, job in enumerate(jobs):
            progress = {"step": step, "total_steps": 16, "accuracy": accuracy}
            tracking.on_event({"event": "progress", "job": job, "slot": slot, "progress": progress})
    record = Record("finished", {"accuracy": 0.5}, curve)
    tracking.on_event({"event": "finished", "job": jobs[0], "slot": 0, "record": record})
    record = Record("failed", error="Traceback\\nMemoryError")
    tracking.on_event({"event": "failed", "job": jobs[1], "slot": 1, "record": record})
print(*(job.id for job in jobs))
"""


NAMES = {"progress/accuracy", "curve/epoch", "curve/train_loss", "final/accuracy"}
"""The names of metrics in every service. wandb adds ``step``."""
ROW = "R-12o! model.mix_rank=4"


def track(name: str, results: Path, *naming: str, **environment: str) -> list[str]:
    """Track two jobs in parallel in another process, with the project and run name if given. Returns the job ids."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment
    command = [sys.executable, "-c", PROGRAM, name, str(results), *naming]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=results, timeout=120
    )
    assert ended.returncode == 0, ended.stderr
    assert len(ended.stdout.splitlines()) == 1, "standard output is for tables"
    return ended.stdout.split()


@pytest.mark.slow
def test_tensorboard_reads_back_what_was_tracked(tmp_path):
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    good, bad = track("tensorboard", tmp_path)
    (folder,) = tmp_path.glob(f"tensorboard/R-12o!_model.mix_rank=4_compression_seed_0_{good}")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    assert set(events.Tags()["scalars"]) == NAMES
    points = {tag: [(event.step, event.value) for event in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert points["progress/accuracy"] == [(5, 0.25), (12, 0.75)]
    assert points["curve/train_loss"] == [(8, 2.5), (16, 1.5)]
    assert [value for _, value in points["final/accuracy"]] == [0.5]
    assert "_hparams_/session_start_info" in events.summary_metadata
    (text,) = (event.tensor_proto.string_val[0] for event in events.Tensors("job/text_summary"))
    content = json.loads(text.decode().strip("`\n"))
    assert (content["id"], content["varied"]) == (good, {"model.mix_rank": 4})
    (folder,) = tmp_path.glob(f"tensorboard/*_{bad}")
    events = accumulator.EventAccumulator(str(folder))
    events.Reload()
    (text,) = (event.tensor_proto.string_val[0] for event in events.Tensors("status/text_summary"))
    assert text.decode().startswith("failed") and "MemoryError" in text.decode()


@pytest.mark.slow
def test_wandb_stores_what_was_tracked_without_a_network(tmp_path):
    pytest.importorskip("wandb")
    track("wandb", tmp_path, WANDB_MODE="offline")
    runs = [_wandb_records(path) for path in sorted(tmp_path.glob("wandb/offline-run-*/run-*.wandb"))]
    assert len(runs) == 2
    good = next(records for records in runs if records["seed"] == "0")
    assert (good["label"], good["task"], good["exit_code"]) == ('"R-12o!"', '"compression"', 0)
    assert good["history"] == [
        {"step": 5, "progress/accuracy": 0.25},
        {"step": 12, "progress/accuracy": 0.75},
        {"step": 8, "curve/epoch": 1, "curve/train_loss": 2.5},
        {"step": 16, "curve/epoch": 2, "curve/train_loss": 1.5},
    ]
    assert good["summary"]["final/accuracy"] == "0.5" and good["summary"]["status"] == '"finished"'
    named = {name for row in good["history"] for name in row} | good["summary"].keys()
    assert {name for name in named if "/" in name and name[0] != "_"} == NAMES  # wandb has its own beside them
    assert (good["project"], good["name"]) == ("madbench", f"{ROW} compression seed 0")
    assert json.loads(good["varied"]) == {"model.mix_rank": 4}
    bad = next(records for records in runs if records["seed"] == "1")
    assert bad["summary"]["error"].endswith('MemoryError"') and bad["exit_code"] == 1


def _wandb_records(path: Path) -> dict:
    """The records in the file of an offline run of wandb."""
    from wandb.proto import wandb_internal_pb2

    found = {"history": [], "summary": {}}
    for data in _leveldb_log(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "run":
            found |= {item.key: item.value_json for item in record.run.config.update}
            found |= {"project": record.run.project, "name": record.run.display_name}
        elif kind == "history":
            row = {(item.key or "/".join(item.nested_key)): json.loads(item.value_json) for item in record.history.item}
            found["history"].append({key: value for key, value in row.items() if not key.startswith("_")})
        elif kind == "summary":
            found["summary"] |= {(i.key or "/".join(i.nested_key)): i.value_json for i in record.summary.update}
        elif kind == "exit":
            found["exit_code"] = record.exit.exit_code
    return found


def _leveldb_log(content: bytes) -> Iterator[bytes]:
    """The records of a LevelDB log, as wandb writes it after 7 bytes of its own."""
    position, parts = 7, b""
    while position + 7 <= len(content):
        room = 32768 - position % 32768
        if room < 7:
            position += room
            continue
        _, length, kind = struct.unpack("<IHB", content[position : position + 7])
        parts += content[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # whole, or the last of several parts
            yield parts
            parts = b""


@pytest.mark.slow
def test_wandb_without_a_key_is_refused_before_anything_is_trained(tmp_path):
    pytest.importorskip("wandb")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "HOME": str(tmp_path)}
    command = [sys.executable, "-c", PROGRAM, "wandb", str(tmp_path)]
    ended = subprocess.run(
        command, check=False, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=120
    )
    assert ended.returncode == 1
    assert re.search(
        r"ConfigError: tracker wandb: no API key; run wandb login, or set WANDB_MODE=offline", ended.stderr
    )


@pytest.mark.slow
def test_trackio_stores_what_was_tracked_in_its_folder(tmp_path):
    pytest.importorskip("trackio")
    good, bad = track("trackio", tmp_path, TRACKIO_DIR=str(tmp_path / "trackio"))
    with closing(sqlite3.connect(tmp_path / "trackio" / "madbench.db")) as database, database:
        rows = database.execute("select run_name, step, metrics from metrics order by id").fetchall()
        configs = dict(database.execute("select run_name, config from configs").fetchall())
    database.close()
    mine = [(step, json.loads(metrics)) for run, step, metrics in rows if run.endswith(good)]
    assert mine[:4] == [
        (5, {"progress/accuracy": 0.25}),
        (12, {"progress/accuracy": 0.75}),
        (8, {"curve/epoch": 1, "curve/train_loss": 2.5}),
        (16, {"curve/epoch": 2, "curve/train_loss": 1.5}),
    ]
    assert mine[4][1] == {"final/accuracy": 0.5}
    assert {name for _, values in mine for name in values} == NAMES
    config = json.loads(configs[f"{ROW} compression seed 0 {good}"])
    assert config["varied"] == {"model.mix_rank": 4}
    assert (config["label"], config["task"], config["seed"], config["id"]) == ("R-12o!", "compression", 0, good)
    assert any(run.endswith(bad) for run, *_ in rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tensorboard", "wandb", "trackio"])
def test_projects_and_runs_have_the_names_that_were_asked_for(name, tmp_path):
    pytest.importorskip(name)
    places = {"TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", "WANDB_PROJECT": "another"}
    good, _ = track(name, tmp_path, "mine", "{label}/{seed}", **places)
    if name == "tensorboard":
        assert len([*tmp_path.glob(f"tensorboard/mine/R-12o!_0_{good}/*tfevents*")]) > 0
    elif name == "wandb":
        runs = [_wandb_records(path) for path in tmp_path.glob("wandb/offline-run-*/run-*.wandb")]
        assert {(run["project"], run["name"]) for run in runs} == {("mine", "R-12o!/0"), ("mine", "R-12o!/1")}
    else:
        with closing(sqlite3.connect(tmp_path / "trackio" / "mine.db")) as database, database:
            names = {run for (run,) in database.execute("select distinct run_name from configs")}
        database.close()
        assert f"R-12o!/0 {good}" in names
