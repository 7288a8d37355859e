"""Warnings on processes that a run waits for, and on the versions with which parts of it were trained."""

from __future__ import annotations

import pytest
import torch

from madbench.errors import ConfigError
from madbench.training import distributed
from madbench.training.member import GroupMember


def test_a_run_resumed_with_another_torch_has_a_warning_and_lists_both_versions(make_job, tmp_path, monkeypatch):
    job = make_job(epochs=1)
    first = GroupMember(job, tmp_path, lambda progress: None)
    assert not first.warning
    first.state.step = 2
    first.save(0.0)
    same = GroupMember(job, tmp_path, lambda progress: None)
    assert not same.warning and len(same.state.places) == 1
    began = torch.__version__
    monkeypatch.setattr(torch, "__version__", "99.0")
    resumed = GroupMember(job, tmp_path, lambda progress: None)
    assert f"trained with torch {began} on" in resumed.warning and "resumes with torch 99.0 on" in resumed.warning
    resumed.state.diverged = True
    places = resumed.record({"compiled": False}).details["places"]
    assert [(place["torch"], place["from_step"]) for place in places] == [(began, 0), ("99.0", 2)]
    same.state.diverged = True
    assert "places" not in same.record({"compiled": False}).details


def test_variables_that_torchrun_left_over_are_named_while_a_process_waits(monkeypatch, capfd):
    values = {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_RANK": "1", "MASTER_ADDR": "localhost", "MASTER_PORT": "29999"}
    for name, value in values.items():
        monkeypatch.setenv(name, value)

    def wait(*_, **__):
        waiting.join()
        raise torch.distributed.DistNetworkError("the client socket has timed out")

    waiting = distributed.threading.Timer(0.02, lambda: None)
    waiting.start()
    monkeypatch.setattr(distributed, "PATIENCE", 0.0)
    monkeypatch.setattr(torch.distributed, "rendezvous", wait)
    distributed._meeting_place.cache_clear()
    with pytest.raises(ConfigError, match="process 1 of 2 does not find the others at localhost:29999: .*; without"):
        with distributed.process_group("cpu"):
            pass
    told = capfd.readouterr().err
    assert "waits up to 10 min for the others at localhost:29999" in told and "unset LOCAL_RANK, MASTER_ADDR" in told
