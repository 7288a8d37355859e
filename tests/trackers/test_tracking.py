"""Trackers get every run and point, and a failing tracker does not stop a sweep."""

from __future__ import annotations

import re
import sys
import threading
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from madbench.errors import ConfigError, MissingExtraError
from madbench.extras import how_to_install
from madbench.jobs import Record
from madbench.trackers import NAMES, Naming, Tracking, open_trackers, parse_names

JOBS = [SimpleNamespace(id=f"{seed}", label="S", task="compression", seed=seed) for seed in range(2)]
CURVE = [{"epoch": 1, "step": 8, "train_loss": 2.5}, {"epoch": 2, "step": 16, "train_loss": float("nan")}]
DONE = Record("finished", {"accuracy": 0.5}, CURVE)


class Notebook:
    """A tracker that records its calls."""

    def __init__(self, fails_at=""):
        self.told, self.fails_at = [], fails_at

    def __getattr__(self, method):
        def tell(*arguments):
            self.told.append((method, *arguments))  # the run that a tracker returns is None here
            if method == self.fails_at:
                raise OSError("the network is gone\nand more lines")

        return tell


def started(job, slot=0):
    return {"event": "started", "job": job, "slot": slot}


def progress(job, step, accuracy, slot=0):
    values = {"step": step, "total_steps": 16, "accuracy": accuracy}
    return {"event": "progress", "job": job, "slot": slot, "progress": values}


def finished(job, record=DONE, slot=0):
    return {"event": "finished", "job": job, "slot": slot, "record": record}


def follow(trackers, *events) -> list[str]:
    warnings = []
    with Tracking(trackers, warnings.append) as tracked:
        for event in events:
            tracked.on_event(event)
    return warnings


def test_a_tracker_gets_the_start_points_and_end_of_a_job():
    notebook, job = Notebook(), JOBS[0]
    points = [progress(job, 1, None), progress(job, 2, 0.25), progress(job, 3, 0.25), progress(job, 9, 0.5)]
    skipped = {"event": "skipped", "job": JOBS[1], "reason": "stored"}
    assert follow({"notebook": notebook}, skipped, started(job), *points, finished(job)) == []
    assert notebook.told == [
        ("begin", job),
        ("log", None, 2, {"progress/accuracy": 0.25}),
        ("log", None, 9, {"progress/accuracy": 0.5}),
        ("log", None, 8, {"curve/epoch": 1, "curve/train_loss": 2.5}),
        ("log", None, 16, {"curve/epoch": 2}),
        ("end", None, job, DONE, {"final/accuracy": 0.5}),
    ]


def test_jobs_unfinished_at_the_end_of_the_sweep_end_without_a_result():
    notebook = Notebook()
    follow({"notebook": notebook}, started(JOBS[0], 0), started(JOBS[1], 1), finished(JOBS[1], slot=1))
    assert notebook.told[-1] == ("end", None, JOBS[0], None, {})


@pytest.mark.parametrize("method", ["begin", "log", "end"])
def test_a_tracker_that_fails_is_left_out_with_one_warning(method):
    bad, good = Notebook(fails_at=method), Notebook()
    events = [event for job in JOBS for event in (started(job), progress(job, 2, 0.25), finished(job))]
    warnings = follow({"bad": bad, "good": good}, *events)
    assert warnings == ["tracker bad failed and is left out of the rest of the sweep: the network is gone"]
    assert [told[0] for told in bad.told].count(method) == 1
    assert [told[0] for told in good.told].count("end") == 2


def test_a_tracker_that_hangs_holds_up_neither_the_sweep_nor_its_end(monkeypatch):
    monkeypatch.setattr("madbench.trackers.FLUSH_SECONDS", 0.05)
    end = threading.Event()
    slow = Notebook()
    slow.begin = lambda job: end.wait(60)
    warnings = follow({"slow": slow}, started(JOBS[0]), finished(JOBS[0]))
    end.set()
    assert len(warnings) == 1 and warnings[0].startswith("slow: not done after")


@pytest.mark.parametrize(
    ("names", "says"), [(["tensorbord"], "did you mean 'tensorboard'?"), (["wandb", "wandb"], "given twice")]
)
def test_trackers_that_do_not_exist_are_refused(names, says):
    with pytest.raises(ConfigError) as refused:
        parse_names(names)
    assert says in str(refused.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_tracker_that_is_not_installed_names_its_extra(name, tmp_path, monkeypatch):
    package = "torch.utils.tensorboard" if name == "tensorboard" else name
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=f"tracker {name} needs .* {re.escape(how_to_install(name))}"):
        open_trackers([name], tmp_path)


@pytest.mark.parametrize("name", ["wandb", "trackio"])
def test_a_resumed_job_continues_its_tracked_run(name, tmp_path, monkeypatch):
    service = MagicMock()
    monkeypatch.setitem(sys.modules, name, service)
    tracker = open_trackers([name], tmp_path)[name]
    tracker.begin(SimpleNamespace(**vars(JOBS[0]), to_dict=dict))
    asked = service.init.call_args.kwargs
    assert asked["resume"] == "allow" and JOBS[0].id in (asked["id"] if name == "wandb" else asked["name"])


def test_the_option_track_takes_several_names_and_refuses_wrong_ones():
    assert parse_names(None) == []
    assert parse_names(["tensorboard,wandb", "trackio"]) == ["tensorboard", "wandb", "trackio"]
    refused = {"wanbd": "did you mean 'wandb'?", " ,": "no tracker named", "wandb,wandb": "given twice"}
    for value, says in refused.items():
        with pytest.raises(ConfigError, match=re.escape(says)):
            parse_names([value])


@pytest.mark.parametrize("source", ["x = = 1", "int('seven')", "raise SystemExit(3)"])
def test_the_error_on_a_broken_tracker_names_its_failed_import(tmp_path, monkeypatch, source):
    (tmp_path / "trackio.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "trackio", raising=False)
    with pytest.raises(ConfigError, match="tracker trackio: trackio is installed and cannot be imported: "):
        open_trackers(["trackio"], tmp_path)


def test_a_tracked_run_is_named_by_its_row_or_by_a_template():
    job = JOBS[1]
    assert Naming().title(job) == "S compression seed 1"
    rows = {"1": "S  model.mix_rank=4"}
    assert Naming(rows=rows).title(job) == "S model.mix_rank=4 compression seed 1"
    assert Naming(run_name="{label}-{id}", rows=rows).title(job) == "S-1"


@pytest.mark.parametrize("wrong", ["{lable}", "{", "{0}", "{seed.real}"])
def test_a_name_template_with_unknown_fields_is_refused_with_the_known_ones(wrong):
    with pytest.raises(ConfigError, match=r"--track-name .*: expected a text with \{row\}, \{label\}"):
        Naming(run_name=wrong)


def test_a_project_name_with_a_path_is_refused():
    with pytest.raises(ConfigError, match="--track-project '../x': expected letters"):
        Naming("../x")
