"""The files through which a driver and Slurm jobs exchange calls and outcomes."""

from __future__ import annotations

import dataclasses
import functools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from madbench.errors import ConfigError
from madbench.execute.base import Policy
from madbench.execute.messages import WorkerResult
from madbench.execute.slurm_folder import SlurmFolder, assignment_of, encode_call
from madbench.execute.worker import Assignment
from madbench.jobs import Record
from madbench.text.corpus import imagined_corpus
from madbench.training.loop import train
from madbench.training.options import LoopOptions


def test_a_slurm_call_survives_encoding_with_all_training_settings(fake, tmp_path):
    jobs, works = [fake.make_job(seed, steps=3, at=0.5) for seed in range(2)], [tmp_path / "a", tmp_path / "b"]
    corpus = dataclasses.replace(imagined_corpus(300), folder=tmp_path, cache=tmp_path / "cache")
    settings: dict[str, Any] = {
        "device": "cpu",
        "corpora": {corpus.digest: corpus},
    }
    settings["options"] = LoopOptions(keep_weights=True, stacking="measured", measurements=Path("/speed"), threads=2)
    given = Assignment(jobs, functools.partial(train, **settings), Policy(time_limit=7.5), works, ["my:a.B"])
    back = assignment_of(json.loads(encode_call(given, False, {}, "madbench")))
    assert back.jobs == jobs and back.works == works and back.policy == given.policy
    assert back.importable_labels == ["my:a.B"]
    assert back.train.func is train and back.train.keywords == settings
    assert back.train.keywords["corpora"][corpus.digest].cache == corpus.cache  # which corpora are not compared by


def test_a_training_setting_that_json_cannot_hold_is_refused(fake, tmp_path):
    given = Assignment([fake.make_job(0)], functools.partial(train, device=object()), Policy(), [tmp_path])
    with pytest.raises(ConfigError, match="device is an object of object"):
        encode_call(given, False, {}, "madbench")


def test_records_of_a_slurm_outcome_are_read_for_any_subset_of_jobs(fake, tmp_path):
    jobs = [fake.make_job(seed) for seed in range(3)]
    curve = [{"step": 1, "train_loss": 0.1}, {"step": 2, "train_loss": math.inf}]
    first = Record("diverged", {"loss": math.inf, "n": 3}, curve, {"versions": {"torch": "2"}}, "loss was not finite")
    folder = SlurmFolder(tmp_path, "7")
    folder.write_call(b"{}")
    folder.write_outcome(jobs, WorkerResult([first, Record("finished", {"a": 0.1}), None], error="killed"))
    outcome = folder.read_outcome([jobs[2], jobs[0]])
    assert outcome.records == [None, first] and (outcome.error, outcome.broken) == ("killed", "")
